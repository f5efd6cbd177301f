//! A value and the interval that it lies in.

use serde::{Deserialize, Serialize};

/// A value with its confidence interval, in the unit of the value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The point estimate.
    pub value: f64,
    /// Lower end of the interval; `-inf` where the data say nothing.
    pub low: f64,
    /// Upper end of the interval; `inf` where the data say nothing.
    pub high: f64,
}

impl Estimate {
    /// Half the width of the interval, as a share of the value: the "± 1.2 %" of the table.
    #[must_use]
    pub fn relative_half_width(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.value.abs()
    }

    /// Whether the interval holds `x`.
    #[must_use]
    pub fn holds(&self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }
}

/// The median; for an even count the mean of the middle two. `None` for no values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(sorted[n / 2]),
        _ => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}
