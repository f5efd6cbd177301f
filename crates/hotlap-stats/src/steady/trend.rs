//! The trend of a series of windows.

use crate::robust::{mad, median};

/// The standard error of Theil and Sen's slope as a multiple of that of least squares, for equally
/// spaced values with normal noise: √(π / 3), since the ratio of the variances is π / 3 (Sen,
/// "Estimates of the regression coefficient based on Kendall's tau", JASA 63, 1968).
const THEIL_SEN: f64 = 1.023_326_707_946_488_5;

/// A robust line through equally spaced values.
pub(super) struct Line {
    /// Rise per step.
    pub slope: f64,
    /// Standard error of `slope`, if the deviations from the line are independent.
    pub error: f64,
}

impl Line {
    /// The line through values at 0, 1, 2, ... by Theil and Sen's method: its slope is the median
    /// of the slopes between all pairs, so up to 29 % of the values may be outliers (Sen 1968).
    pub fn through(values: &[f64]) -> Self {
        let n = values.len();
        let mut slopes = Vec::new();
        for i in 0..n {
            for j in i + 1..n {
                slopes.push((values[j] - values[i]) / (j - i) as f64);
            }
        }
        let slope = median(&slopes).unwrap_or(0.0);
        let rest: Vec<f64> = values.iter().enumerate().map(|(i, v)| v - slope * i as f64).collect();
        // The standard error of least squares is √(12 / (n³ - n)) times the noise.
        let n = n as f64;
        let least_squares = mad(&rest).unwrap_or(0.0) * (12.0 / (n.powi(3) - n)).sqrt();
        let error = THEIL_SEN * least_squares;
        Self { slope, error }
    }

    /// Whether the slope lies within two standard errors of 0.
    pub fn is_level(&self) -> bool {
        self.slope.abs() <= 2.0 * self.error
    }
}

/// Whether the values rise, or fall, from each third to the next: in three of four pairs with one
/// value of each (the statistic of Mann and Whitney, "On a test of whether one of two random
/// variables is stochastically larger than the other", Annals of Mathematical Statistics 18, 1947).
pub(super) fn climbs(values: &[f64]) -> bool {
    let third = (values.len() / 3).max(1);
    let [first, middle, last] = [0, (values.len() - third) / 2, values.len() - third];
    // The share of pairs that rise minus the share of those that fall.
    let rising = |from: usize, to: usize| {
        let later = &values[to..to + third];
        let pairs = values[from..from + third]
            .iter()
            .flat_map(|a| later.iter().map(move |b| f64::from(b.total_cmp(a) as i8)));
        pairs.sum::<f64>() / (third * third) as f64
    };
    let steps = [rising(first, middle), rising(middle, last)];
    steps.iter().all(|step| *step >= 0.5) || steps.iter().all(|step| *step <= -0.5)
}

/// Logarithms that alternate by ± `half` around a line that rises by `rise` per window.
#[cfg(test)]
pub(super) fn zigzag(n: usize, half: f64, rise: f64) -> Vec<f64> {
    let sign = |i: usize| if i.is_multiple_of(2) { -half } else { half };
    (0..n).map(|i| sign(i) + rise * i as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slope of `zigzag` is `rise`, and the median absolute deviation 1.4826 × `half`. For ten
    /// values the standard error of least squares is √(12 / 990) = 0.1101 of that.
    #[test]
    fn a_line_has_the_standard_error_of_theil_and_sen() {
        let line = Line::through(&zigzag(10, 0.5, 0.0));
        assert_eq!(line.slope, 0.0);
        assert!((line.error / (1.023_327 * 1.482_602 * 0.5 * 0.110_096_4) - 1.0).abs() < 1e-5);
        // Python: statistics.median of the 21 slopes of these seven, and √(π/3) × the MAD of the
        // rest (as a multiple of the normal quantile 0.6745) × √(12 / 336).
        let line = Line::through(&[0.0, 1.3, 1.9, 3.2, 3.8, 5.3, 5.9]);
        assert!((line.slope - 0.983_333_333_333_333_4).abs() < 1e-12, "{}", line.slope);
        assert!((line.error - 0.038_229_505_071).abs() < 1e-8, "{}", line.error);
    }

    #[test]
    fn a_line_is_level_within_two_standard_errors() {
        let is_level = |slope, error| Line { slope, error }.is_level();
        assert!(is_level(2.0, 1.0) && is_level(-2.0, 1.0) && is_level(5.5, 3.0));
        assert!(!is_level(2.1, 1.0) && !is_level(-2.1, 1.0) && !is_level(0.25, 0.1));
    }

    #[test]
    fn a_climb_takes_three_of_four_pairs_in_both_steps() {
        let thirds = |first: [f64; 4], middle: [f64; 4], last: [f64; 4]| {
            climbs(&[first, middle, last].concat())
        };
        let (low, middle, high) = ([1.0, 1.0, 1.0, 5.0], [2.0; 4], [3.0, 3.0, 3.0, 1.5]);
        assert!(thirds(low, middle, high));
        assert!(thirds(high, middle, low));
        // 9 of 16 pairs rise and 4 fall in one of the two.
        assert!(!thirds([1.0, 1.0, 1.0, 5.0], [2.0, 2.0, 2.0, 1.0], high));
        assert!(!thirds(low, middle, [3.0, 3.0, 1.5, 1.5]));
        // Up and down again.
        assert!(!thirds([1.0; 4], [2.0; 4], [1.0; 4]));
        assert!(!climbs(&[1.0; 12]));
        // A number of values that is not divisible by three.
        assert!(climbs(&[1.0, 1.0, 9.0, 2.0, 2.0, 0.0, 3.0, 3.0]));
        assert!(climbs(&[1.0, 2.0, 3.0]) && climbs(&[3.0, 2.0, 1.0]));
    }
}
