//! A value with its confidence interval.

use serde::{Deserialize, Serialize};

/// A point estimate and the two ends of its confidence interval, all in the same unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Estimate {
    /// The point estimate.
    pub value: f64,
    /// The lower end of the interval. `-inf`, or 0 for a ratio, if the data set no limit.
    pub low: f64,
    /// The upper end of the interval. `inf` if the data set no limit.
    pub high: f64,
}

impl Estimate {
    /// Returns the estimate in another unit, multiplied by `by`.
    pub fn scaled(&self, by: f64) -> Self {
        Self { value: self.value * by, low: self.low * by, high: self.high * by }
    }

    /// Returns half the width of the interval as a share of the value, which a table shows as "±
    /// 1.2%".
    pub fn relative_half_width(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.value.abs()
    }

    /// Returns whether `x` lies in the interval, ends included.
    pub fn contains(&self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }

    /// Returns whether both ends are finite. With too few data, the interval has no upper end.
    pub fn is_bounded(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }
}

/// Returns the share `count` ÷ `of` with its 95% interval (Wilson, "Probable inference, the law of
/// succession, and statistical inference", JASA 22, 1927).
pub fn proportion(count: u32, of: u32) -> Estimate {
    const Z: f64 = 1.96;
    let (n, share) = (f64::from(of), f64::from(count) / f64::from(of));
    let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    Estimate { value: share, low: (middle - half).max(0.0), high: (middle + half).min(1.0) }
}

/// Returns the median. For an even number of values, the median is the mean of the middle two.
/// `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(sorted[n / 2]),
        _ => Some(f64::midpoint(sorted[n / 2 - 1], sorted[n / 2])),
    }
}

/// The standard deviation of normal values as a multiple of their median absolute deviation:
/// 1 / Φ⁻¹(3/4).
pub(crate) const MAD_TO_SD: f64 = 1.482_602_218_505_602;

/// Returns the median absolute deviation from the median, times 1.4826. This figure estimates the
/// standard deviation of normal values, and up to half of the values may be outliers (Hampel, "The
/// influence curve and its role in robust estimation", JASA 69, 1974). `None` without values.
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    Some(MAD_TO_SD * median(&deviations)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_half_width_is_relative_to_the_absolute_value() {
        let estimate = |value| Estimate { value, low: 1.0, high: 4.0 };
        assert_eq!(estimate(2.0).relative_half_width(), 0.75);
        assert_eq!(estimate(-2.0).relative_half_width(), 0.75);
    }

    #[test]
    fn an_interval_contains_its_ends() {
        let estimate = Estimate { value: 2.0, low: 1.0, high: 4.0 };
        for (x, expected) in [(0.9, false), (1.0, true), (2.0, true), (4.0, true), (4.1, false)] {
            assert_eq!(estimate.contains(x), expected, "{x}");
        }
    }

    #[test]
    fn an_interval_with_one_open_end_is_not_bounded() {
        let of = |low, high| Estimate { value: 1.0, low, high }.is_bounded();
        assert!(of(0.5, 2.0));
        assert!(!of(f64::NEG_INFINITY, 2.0) && !of(0.5, f64::INFINITY) && !of(f64::NAN, f64::NAN));
    }

    mod robust {
        use super::super::*;

        #[test]
        fn the_median_of_an_even_number_lies_between_the_middle_two() {
            assert_eq!(median(&[]), None);
            assert_eq!(median(&[3.0]), Some(3.0));
            assert_eq!(median(&[9.0, 1.0]), Some(5.0));
            assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
            assert_eq!(median(&[7.0, 1.0, 9.0, 3.0]), Some(5.0));
        }

        #[test]
        fn mad_ignores_an_outlier() {
            assert_eq!(mad(&[1.0, 2.0, 3.0, 4.0, 1e9]), Some(1.482_602_218_505_602));
            assert_eq!(mad(&[]), None);
        }
    }
}
