//! An amount per request, or a difference between two servers in one.

use super::location::{Location, by_unit};
use crate::estimate::Estimate;

/// An amount per request, or a difference between two servers in one: in its own unit, not on
/// logarithms, because it may be 0 or negative, and because amounts are added up.
///
/// The estimate is the mean of the restarts' means, so the estimates of parts add up to the
/// estimate of their sum.
#[derive(Debug)]
pub struct Amount {
    location: Location,
    /// The number of restarts.
    pub restarts: u32,
}

impl Amount {
    /// From values, each with its restart; `None` without a finite one.
    pub fn of(values: impl IntoIterator<Item = (u32, f64)>) -> Option<Self> {
        let finite = values.into_iter().filter(|(_, value)| value.is_finite());
        let means = by_unit(finite);
        let location = Location::student(&means)?;
        Some(Self { location, restarts: means.len() as u32 })
    }

    /// The amount with its interval at `confidence` (0.95).
    pub fn estimate(&self, confidence: f64) -> Estimate {
        let (value, half) = (self.location.value, self.location.half_width(confidence));
        Estimate { value, low: value - half, high: value + half }
    }

    /// Two-sided p-value of the hypothesis that it is 0.
    pub fn p(&self) -> f64 {
        self.location.p()
    }

    /// The difference of two amounts that were measured independently, with Welch's interval.
    pub fn minus(&self, other: &Self) -> Self {
        Self {
            location: self.location.minus(&other.location),
            restarts: self.restarts.min(other.restarts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Amount {
        Amount::of((0..).zip(values.iter().copied())).unwrap()
    }

    /// Student's interval, computed in Python: mean 2, standard error 1/√3, t = 4.302653.
    #[test]
    fn the_interval_of_one_value_per_restart_is_students() {
        let amount = of(&[1.0, 2.0, 3.0]);
        let found = amount.estimate(0.95);
        assert_eq!((found.value, amount.restarts), (2.0, 3));
        assert!((found.high - 4.484_137_8).abs() < 1e-6, "{found:?}");
        assert!((found.low + 0.484_137_8).abs() < 1e-6, "{found:?}");
        assert!((amount.p() - 0.074_179_9).abs() < 1e-6, "{}", amount.p());
    }

    #[test]
    fn parts_add_up_to_their_sum() {
        let (one, other) = ([1.0, 7.0, 2.5], [0.5, -3.0, 40.0]);
        let sum: Vec<f64> = one.iter().zip(other).map(|(a, b)| a + b).collect();
        let value = |values: &[f64]| of(values).estimate(0.95).value;
        assert!((value(&one) + value(&other) - value(&sum)).abs() < 1e-12);
    }

    #[test]
    fn equal_values_are_known_exactly_and_a_single_one_is_not() {
        let same = of(&[1.0; 4]);
        assert_eq!((same.estimate(0.95).low, same.p()), (1.0, 0.0));
        assert_eq!(of(&[0.0; 4]).p(), 1.0);
        let single = of(&[1.0]);
        assert_eq!((single.estimate(0.95).is_bounded(), single.p()), (false, 1.0));
        assert!(Amount::of([(0, f64::NAN)]).is_none());
    }

    #[test]
    fn a_difference_has_the_errors_of_both() {
        let difference = of(&[5.0, 6.0, 7.0]).minus(&of(&[1.0, 2.0, 3.0, 2.0]));
        let found = difference.estimate(0.95);
        assert!((found.value - 4.0).abs() < 1e-12 && difference.restarts == 3);
        assert!(found.low > 1.0 && found.low < 3.0, "{found:?}");
    }
}
