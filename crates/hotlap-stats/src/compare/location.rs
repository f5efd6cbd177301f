//! A location with its standard error, from which confidence intervals and p-values are computed.

use std::collections::BTreeMap;

use crate::estimate::Estimate;
use crate::student;

/// An estimated location, on the scale of the values (natural logarithms for ratios).
#[derive(Debug, Clone, Copy)]
pub(super) struct Location {
    pub value: f64,
    /// Standard error of `value`; infinite for a single value.
    pub standard_error: f64,
    /// Degrees of freedom of the standard error.
    pub df: f64,
}

impl Location {
    /// The mean of independent values, with the standard error of Student's t; `None` without a
    /// value.
    pub fn student(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let standard_error =
            if values.len() < 2 { f64::INFINITY } else { (variance(values) / n).sqrt() };
        (n > 0.0).then(|| Self { value: mean(values), standard_error, df: n - 1.0 })
    }

    /// Half the width of Student's interval.
    pub fn half_width(&self, confidence: f64) -> f64 {
        match self.standard_error {
            0.0 => 0.0,
            error => student::quantile(1.0 - confidence, self.df) * error,
        }
    }

    /// Two-sided p-value of the hypothesis that the location is 0.
    pub fn p(&self) -> f64 {
        // Without an error the quotient is infinite, or NaN if the value is 0: p is then 0 or 1.
        student::two_sided_p(self.value / self.standard_error, self.df)
    }

    /// The difference of two locations that were measured independently. The squared errors add up,
    /// with Welch's degrees of freedom ("The generalization of 'Student's' problem when several
    /// different population variances are involved", Biometrika 34, 1947).
    pub fn minus(&self, other: &Self) -> Self {
        let (a, b) = (self.standard_error.powi(2), other.standard_error.powi(2));
        let df = match a + b {
            sum if sum > 0.0 && sum.is_finite() => {
                sum.powi(2) / (welch_term(a, self.df) + welch_term(b, other.df))
            }
            _ => self.df.min(other.df),
        };
        Self { value: self.value - other.value, standard_error: (a + b).sqrt(), df }
    }

    /// Takes the exponential: turns an estimate in log units into one of a ratio or a level.
    pub fn exp(&self, confidence: f64) -> Estimate {
        let half = self.half_width(confidence);
        let [value, low, high] = [self.value, self.value - half, self.value + half].map(f64::exp);
        Estimate { value, low, high }
    }
}

/// The term of one squared error in the denominator of Welch's degrees of freedom. An error of 0
/// has none, even if it has no degrees of freedom.
fn welch_term(squared_error: f64, df: f64) -> f64 {
    if squared_error > 0.0 { squared_error.powi(2) / df } else { 0.0 }
}

/// The mean of each unit's values (a restart, a node), in the order of the units.
pub(super) fn by_unit(values: impl IntoIterator<Item = (u32, f64)>) -> Vec<f64> {
    let mut units = BTreeMap::<u32, Vec<f64>>::new();
    for (unit, value) in values {
        units.entry(unit).or_default().push(value);
    }
    units.values().map(|values| mean(values)).collect()
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sample variance; 0 for fewer than two values.
pub(super) fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    squares / (values.len() - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(value: f64, standard_error: f64, df: f64) -> Location {
        Location { value, standard_error, df }
    }

    fn close(ours: f64, theirs: f64) {
        assert!((ours / theirs - 1.0).abs() < 1e-8, "ours {ours:e}, theirs {theirs:e}");
    }

    #[test]
    fn a_single_value_has_no_interval() {
        let one = Location::student(&[3.0]).unwrap();
        assert_eq!((one.value, one.half_width(0.95), one.p()), (3.0, f64::INFINITY, 1.0));
        assert!(Location::student(&[]).is_none());
    }

    #[test]
    fn the_p_value_of_a_location_without_error_says_whether_it_is_zero() {
        assert_eq!(location(0.0, 0.0, 2.0).p(), 1.0);
        assert_eq!(location(0.1, 0.0, 2.0).p(), 0.0);
        assert_eq!(location(0.1, f64::INFINITY, 0.0).p(), 1.0);
        assert_eq!(location(0.1, 0.0, 0.0).half_width(0.95), 0.0);
        close(location(0.2, 0.1, 2.0).half_width(0.95), 0.430_265_272_974_946);
    }

    /// Welch (1947): (a + b)² / (a² / df_a + b² / df_b), of the squared errors a and b.
    #[test]
    fn a_difference_has_welchs_degrees_of_freedom() {
        let of = |a, b| {
            let difference = location(5.0, a, 4.0).minus(&location(3.0, b, 2.0));
            assert_eq!(difference.value, 2.0);
            (difference.standard_error, difference.df)
        };
        let (error, df) = of(3.0, 4.0);
        assert_eq!(error, 5.0);
        close(df, 625.0 / (81.0 / 4.0 + 256.0 / 2.0));
        // An exact one adds nothing; for two exact ones the lower number holds.
        assert_eq!((of(3.0, 0.0), of(0.0, 3.0)), ((3.0, 4.0), (3.0, 2.0)));
        assert_eq!(of(0.0, 0.0), (0.0, 2.0));
        assert_eq!(of(f64::INFINITY, 1.0), (f64::INFINITY, 2.0));
        assert_eq!((welch_term(0.0, 0.0), welch_term(0.0, 4.0)), (0.0, 0.0));
        assert_eq!(welch_term(3.0, 4.0), 2.25);
    }

    #[test]
    fn a_variance_takes_two_values() {
        assert_eq!(variance(&[]), 0.0);
        assert_eq!(variance(&[3.0]), 0.0);
        assert_eq!(variance(&[3.0, 5.0]), 2.0);
    }
}
