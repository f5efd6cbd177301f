//! A value and the interval that it lies in.

use serde::{Deserialize, Serialize};

use crate::restarts::Restarts;

/// A value with its confidence interval, in the unit of the value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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

    /// Whether the data say anything about how sure the value is.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }
}

/// What one round says of one server: a figure in its own unit (requests/s, ns a request).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The fresh start that the round belongs to.
    pub restart: u32,
    /// The round within the restart.
    pub round: u32,
    /// Of the round's mirrored laps together.
    pub value: f64,
}

impl Reading {
    /// Its natural logarithm; none where it is not positive and finite, and no reading at all.
    pub(crate) fn log(&self) -> Option<f64> {
        (self.value.is_finite() && self.value > 0.0).then(|| self.value.ln())
    }
}

/// The level of one server over all restarts, with its interval at `confidence` (0.95): estimated
/// as a comparison is (see [`crate::compare::effect`]), on the logarithm, so that the interval
/// cannot reach below zero. Readings that are not positive and finite are left out; `None` if none
/// is left.
#[must_use]
pub fn level(readings: &[Reading], confidence: f64) -> Option<Estimate> {
    let logs = readings.iter().filter_map(|r| Some((r.restart, r.log()?)));
    Some(Restarts::of(logs)?.centre(confidence).exp())
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
        _ => Some(f64::midpoint(sorted[n / 2 - 1], sorted[n / 2])),
    }
}

/// What the median distance of normal values from their centre is multiplied by to give their
/// standard deviation: 1 / Φ⁻¹(3/4).
pub(crate) const NORMAL_PER_MEDIAN: f64 = 1.482_602_218_505_602;

/// The median absolute deviation from the median, times 1.4826: for normal values it estimates
/// their standard deviation, and up to half of them may be anything (Hampel, "The influence curve
/// and its role in robust estimation", JASA 69, 1974). `None` for no values.
#[must_use]
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    Some(NORMAL_PER_MEDIAN * median(&deviations)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mad_ignores_a_wild_value() {
        assert_eq!(mad(&[1.0, 2.0, 3.0, 4.0, 1e9]), Some(1.482_602_218_505_602));
        assert_eq!(mad(&[]), None);
    }

    #[test]
    fn a_level_leaves_out_what_is_no_figure() {
        let reading = |restart, value| Reading { restart, round: 0, value };
        let readings =
            [reading(0, 100.0), reading(1, 0.0), reading(1, 100.0), reading(2, f64::NAN)];
        let level = level(&readings, 0.95).unwrap();
        assert!((level.value - 100.0).abs() < 1e-9);
    }

    #[test]
    fn the_half_width_is_a_share_of_the_size_of_the_value() {
        let estimate = |value| Estimate { value, low: 1.0, high: 4.0 };
        assert_eq!(estimate(2.0).relative_half_width(), 0.75);
        assert_eq!(estimate(-2.0).relative_half_width(), 0.75);
    }

    #[test]
    fn an_interval_holds_its_ends() {
        let estimate = Estimate { value: 2.0, low: 1.0, high: 4.0 };
        for (x, expected) in [(0.9, false), (1.0, true), (2.0, true), (4.0, true), (4.1, false)] {
            assert_eq!(estimate.holds(x), expected, "{x}");
        }
    }

    #[test]
    fn an_interval_with_one_open_end_is_not_bounded() {
        let of = |low, high| Estimate { value: 1.0, low, high }.is_bounded();
        assert!(of(0.5, 2.0));
        assert!(!of(f64::NEG_INFINITY, 2.0) && !of(0.5, f64::INFINITY) && !of(f64::NAN, f64::NAN));
    }

    #[test]
    fn a_level_leaves_out_what_is_negative_or_infinite() {
        let readings = [100.0, -100.0, f64::INFINITY, 100.0];
        let reading = |(restart, value)| Reading { restart, round: 0, value };
        let readings: Vec<Reading> = (0..).zip(readings).map(reading).collect();
        let found = level(&readings, 0.95).unwrap();
        assert!((found.value - 100.0).abs() < 1e-9 && found.is_bounded(), "{found:?}");
        assert_eq!(level(&readings[1..3], 0.95), None);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[7.0, 1.0, 9.0, 3.0]), Some(5.0));
    }
}
