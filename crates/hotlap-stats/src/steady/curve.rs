//! The curve of a warm-up (the speed of each window so far), and figures derived from the curve.

use serde::{Deserialize, Serialize};

use crate::estimate::{mad, median};

/// How a server became steady, by the classes of Barrett, Bolz-Tereick, Killick, Mount and Tratt
/// ("Virtual machine warmup blows hot and cold", OOPSLA 2017).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The server was steady from the start.
    Flat,
    /// The server became faster, then steady.
    WarmedUp,
    /// The server became slower, then steady.
    SlowingDown,
    /// The server was still becoming faster or slower at the limit.
    NeverSteady,
}

/// A window with at least this share of the final level is near the final speed. The share is a
/// convention.
const NEAR: f64 = 0.9;

/// A server is not flat if its first windows reach less than this share of the steady level, or
/// vice versa, however noisy the steady part is. The share is a convention. If the share is too
/// high, servers are merely warmed up for longer.
const FLAT_FROM: f64 = 0.7;

/// A server whose first windows reach less than this share of its level has a compiler at work.
/// This convention (docs/rules.md, *Warm-up*) lies between the effect of caches and the factors of
/// ten or more by which Java and Node become faster.
const COMPILES_BELOW: f64 = 1.0 / 3.0;

/// The number of windows in a running median, by convention. Nine windows are nearly a stretch of
/// one second, and four of them may be disturbed.
const SMOOTHING: usize = 9;

/// The standard error of a median of nine normal values, in standard deviations. The figure √(π /
/// 2) / √9 is the approximation for large samples.
const SMOOTHED_ERROR: f64 = 0.42;

/// The speed of each window from the first one on.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Curve(pub Vec<f64>);

impl Curve {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no window had a response.
    pub fn is_silent(&self) -> bool {
        self.0.iter().all(|speed| *speed <= 0.0)
    }

    fn last(&self, n: usize) -> &[f64] {
        &self.0[self.len() - n..]
    }

    /// Returns the median of the last `n` windows.
    pub fn level(&self, n: usize) -> f64 {
        median(self.last(n)).unwrap_or(0.0)
    }

    /// Returns the logarithms of the last `n` windows.
    pub fn logs(&self, n: usize) -> Vec<f64> {
        self.last(n).iter().map(|v| v.max(f64::MIN_POSITIVE).ln()).collect()
    }

    /// Returns whether the last `n` windows are so much faster than the first windows that a
    /// compiler must be at work.
    pub fn compiles(&self, n: usize) -> bool {
        let first = median(&self.0[..3.min(n)]);
        first.is_some_and(|first| first < COMPILES_BELOW * self.level(n))
    }

    /// Returns the number of windows before the first window near the level of the last `n`. A
    /// single fast window does not count, because its median with the next two windows must be near
    /// too.
    pub fn filling(&self, n: usize) -> usize {
        let level = self.level(n);
        let is_near = |speed: f64| speed >= NEAR * level;
        let is_full = |some: &[f64]| is_near(some[0]) && median(some).is_some_and(is_near);
        self.0.windows(3).position(is_full).unwrap_or(0)
    }

    /// Returns the start of the steady part, and the class, given that the last `n` windows are
    /// steady. The steady part starts after the last window whose running median is further from
    /// the level than `tolerance` and noise explain. Without such a window, the first windows
    /// decide.
    pub fn look_back(&self, n: usize, tolerance: f64) -> (usize, Class) {
        let level = self.level(n);
        let noise = mad(self.last(n)).unwrap_or(0.0);
        // The band has five standard errors, because every window is tested, and a burst of load on
        // the machine also moves the neighbouring medians.
        let band = (2.0 * tolerance * level).max(5.0 * SMOOTHED_ERROR * noise);
        let smooth = |i: usize| {
            let from = i.saturating_sub(SMOOTHING / 2).min(self.len().saturating_sub(SMOOTHING));
            let to = (from + SMOOTHING).min(self.len());
            median(&self.0[from..to]).unwrap_or(0.0)
        };
        // The fitted line tolerates a few outlying windows in the older half of the steady part,
        // but those windows are not steady.
        let last_off = (0..self.len() - n / 2).rev().find(|&i| (smooth(i) - level).abs() > band);
        let first = median(&self.0[..self.len().min(5)]).unwrap_or(0.0);
        match last_off {
            None if first < FLAT_FROM * level => (self.len() - n, Class::WarmedUp),
            None if first * FLAT_FROM > level => (self.len() - n, Class::SlowingDown),
            Some(i) if level - first > band => (i + 1, Class::WarmedUp),
            Some(i) if first - level > band => (i + 1, Class::SlowingDown),
            // The server began at the level and returned to it, so it was only disturbed.
            _ => (0, Class::Flat),
        }
    }
}

/// The standard error of Theil and Sen's slope, as a multiple of the standard error of least
/// squares, for equally spaced values with normal noise. The multiple is √(π / 3), because the
/// ratio of the variances is π / 3 (Sen, "Estimates of the regression coefficient based on
/// Kendall's tau", JASA 63, 1968).
const THEIL_SEN: f64 = 1.023_326_707_946_488_5;

/// A robust line through equally spaced values.
pub(super) struct Line {
    /// The rise per step.
    pub slope: f64,
    /// The standard error of `slope`, if the deviations from the line are independent.
    pub error: f64,
}

impl Line {
    /// Fits a line to values at 0, 1, 2, ... by Theil and Sen's method. The slope is the median of
    /// the slopes between all pairs, so up to 29% of the values may be outliers (Sen 1968).
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

    /// Returns whether the slope lies within two standard errors of 0.
    pub fn is_level(&self) -> bool {
        self.slope.abs() <= 2.0 * self.error
    }
}

/// Returns whether the values rise, or fall, from each third to the next. The later value must be
/// higher, or lower, in at least three of four pairs with one value from each of the two thirds
/// (the statistic of Mann and Whitney, "On a test of whether one of two random variables is
/// stochastically larger than the other", Annals of Mathematical Statistics 18, 1947).
pub(super) fn climbs(values: &[f64]) -> bool {
    let third = (values.len() / 3).max(1);
    let [first, middle, last] = [0, (values.len() - third) / 2, values.len() - third];
    // The share of pairs that rise minus the share of pairs that fall.
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

/// Returns logarithms that alternate by ± `half` around a line that rises by `rise` per window.
#[cfg(test)]
pub(super) fn zigzag(n: usize, half: f64, rise: f64) -> Vec<f64> {
    let sign = |i: usize| if i.is_multiple_of(2) { -half } else { half };
    (0..n).map(|i| sign(i) + rise * i as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(windows: impl Into<Vec<f64>>) -> Curve {
        Curve(windows.into())
    }

    #[test]
    fn filling_ends_with_a_window_of_nine_tenths_that_is_no_exception() {
        let filling = |first: &[f64]| curve([first, &[1000.0; 10]].concat()).filling(10);
        assert_eq!(filling(&[]), 0);
        assert_eq!(filling(&[900.0, 900.0, 500.0, 500.0]), 0);
        assert_eq!(filling(&[899.0, 900.0, 900.0]), 1);
        // One fast window comes among slow windows, then one slow window among fast windows.
        assert_eq!(filling(&[950.0, 500.0, 500.0, 500.0]), 4);
        assert_eq!(filling(&[500.0, 950.0, 500.0]), 1);
        assert_eq!(curve([]).filling(0), 0);
    }

    #[test]
    fn a_server_compiles_if_it_begins_below_a_third_of_its_level() {
        let compiles = |first: &[f64]| curve([first, &[900.0; 12]].concat()).compiles(10);
        assert!(compiles(&[299.0; 3]) && !compiles(&[300.0; 3]));
        // The median of the first three windows decides.
        assert!(compiles(&[299.0, 900.0, 299.0]) && !compiles(&[900.0, 299.0, 900.0]));
        assert!(compiles(&[299.0, 299.0]) && !compiles(&[299.0]));
        assert!(!curve([1.0, 9.0]).compiles(2));
    }

    fn after(first: &[f64]) -> (usize, Class) {
        curve([first, &[1000.0; 20]].concat()).look_back(20, 0.02)
    }

    #[test]
    fn a_window_that_is_off_by_over_twice_the_tolerance_is_not_steady() {
        assert_eq!(after(&[]), (0, Class::Flat));
        assert_eq!(after(&[960.0; 9]), (0, Class::Flat));
        assert_eq!(after(&[959.0; 9]), (9, Class::WarmedUp));
        assert_eq!(after(&[1040.0; 9]), (0, Class::Flat));
        assert_eq!(after(&[1041.0; 9]), (9, Class::SlowingDown));
        // Four of nine windows do not move the median, but five do.
        assert_eq!(after(&[959.0; 4]), (0, Class::Flat));
        assert_eq!(after(&[959.0; 5]), (5, Class::WarmedUp));
        // Windows at the edge of the band come after and before windows beyond it.
        assert_eq!(after(&[[950.0; 9], [960.0; 9]].concat()), (9, Class::WarmedUp));
        assert_eq!(after(&[[960.0; 9], [950.0; 9]].concat()), (0, Class::Flat));
        assert_eq!(after(&[[1040.0; 9], [1050.0; 9]].concat()), (0, Class::Flat));
        // A server that begins at the level and then leaves it was disturbed.
        assert_eq!(after(&[[1000.0; 9], [500.0; 9]].concat()), (0, Class::Flat));
    }

    #[test]
    fn only_the_older_half_of_the_steady_part_is_searched_for_windows_that_are_off() {
        let late = [&[900.0; 9][..], &[1000.0; 11], &[900.0; 9]].concat();
        assert_eq!(curve(late).look_back(20, 0.02), (9, Class::WarmedUp));
        let mut windows = [1000.0; 29];
        windows[..12].fill(900.0);
        assert_eq!(curve(windows).look_back(20, 0.02), (12, Class::WarmedUp));
    }

    /// The steady windows alternate between 800 and 1,200. Their estimated standard deviation is
    /// 1.4826 × 200, so a difference of up to 5 × 0.42 × 297 = 623 is within the noise.
    #[test]
    fn noise_hides_where_the_steady_part_began_but_not_that_it_began_slowly() {
        let steady: Vec<f64> =
            (0..20_usize).map(|i| if i.is_multiple_of(2) { 800.0 } else { 1200.0 }).collect();
        let after = |first: f64| curve([&[first; 9][..], &steady].concat()).look_back(20, 0.02);
        assert_eq!(after(370.0), (9, Class::WarmedUp));
        assert_eq!(after(1630.0), (9, Class::SlowingDown));
        // Some windows of the steady part are older than the last 20.
        let off = [&[370.0; 9][..], &steady, &[1000.0; 4]].concat();
        assert_eq!(curve(off).look_back(20, 0.02), (9, Class::WarmedUp));
        // These starts are within the noise, and some are below 0.7 of the level or above 1 / 0.7
        // of it.
        assert_eq!(after(690.0), (9, Class::WarmedUp));
        assert_eq!(after(710.0), (0, Class::Flat));
        assert_eq!(after(1420.0), (0, Class::Flat));
        assert_eq!(after(1440.0), (9, Class::SlowingDown));
        // The first five windows decide.
        let two = curve([&[100.0; 2][..], &steady].concat()).look_back(20, 0.02);
        assert_eq!(two, (0, Class::Flat));
    }

    mod trend {
        use super::super::*;

        /// The slope of `zigzag` is `rise`, and the median absolute deviation is 1.4826 × `half`.
        /// For ten values, the standard error of least squares is this deviation times √(12 / 990)
        /// = 0.1101.
        #[test]
        fn a_line_has_the_standard_error_of_theil_and_sen() {
            let line = Line::through(&zigzag(10, 0.5, 0.0));
            assert_eq!(line.slope, 0.0);
            assert!((line.error / (1.023_327 * 1.482_602 * 0.5 * 0.110_096_4) - 1.0).abs() < 1e-5);
            // Both values were computed in Python. The slope is statistics.median of the 21 slopes
            // between these seven values. The error is √(π/3) × the MAD of the rest (divided by
            // the normal quantile 0.6745) × √(12 / 336).
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
            // In one of the two steps, 9 of 16 pairs rise and 4 fall.
            assert!(!thirds([1.0, 1.0, 1.0, 5.0], [2.0, 2.0, 2.0, 1.0], high));
            assert!(!thirds(low, middle, [3.0, 3.0, 1.5, 1.5]));
            // The values rise and fall again.
            assert!(!thirds([1.0; 4], [2.0; 4], [1.0; 4]));
            assert!(!climbs(&[1.0; 12]));
            // The number of values need not be divisible by three.
            assert!(climbs(&[1.0, 1.0, 9.0, 2.0, 2.0, 0.0, 3.0, 3.0]));
            assert!(climbs(&[1.0, 2.0, 3.0]) && climbs(&[3.0, 2.0, 1.0]));
        }
    }
}
