//! Rounds within restarts: the one place where an interval is made of them.
//!
//! The estimator is the one that came out best in `tests/coverage`, where the others are kept too:
//! a robust location for each restart, and Student's interval over the restarts.

use std::collections::BTreeMap;

use crate::Estimate;
use crate::estimate::median;
use crate::student;

/// Where Tukey's biweight stops looking, in standard deviations: 95 % efficient for normal values
/// (Mosteller and Tukey, "Data Analysis and Regression", 1977, chapter 10).
const BIWEIGHT_REACH: f64 = 4.685;

/// The share of the differences between rounds that is taken for undisturbed when their scale is
/// estimated, and the normal distribution's quantile for it, Φ⁻¹((1 + 0.33) / 2). A low share is
/// what makes the scale robust: at 10 % disturbed laps over half of all *pairs of rounds* are hit
/// (the idea is Rousseeuw and Croux's Qn, JASA 88, 1993).
const QUIET_SHARE: f64 = 0.33;
const QUIET_QUANTILE: f64 = 0.426_148;

/// Values by the restart that they belong to.
pub(crate) struct Restarts(Vec<Vec<f64>>);

/// A centre on the scale of the values, with what its interval needs.
pub(crate) struct Centre {
    pub value: f64,
    /// Standard error of `value`; infinite where one value is all there is.
    pub standard_error: f64,
    pub df: f64,
    pub confidence: f64,
}

impl Restarts {
    /// Groups `(restart, value)`; `None` if there is no value.
    pub fn of(values: impl IntoIterator<Item = (u32, f64)>) -> Option<Self> {
        let mut restarts = BTreeMap::<u32, Vec<f64>>::new();
        for (restart, value) in values {
            restarts.entry(restart).or_default().push(value);
        }
        (!restarts.is_empty()).then(|| Self(restarts.into_values().collect()))
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn rounds(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Student's interval over the locations of the restarts; with one restart, over its rounds.
    pub fn centre(&self, confidence: f64) -> Centre {
        let scale = self.round_scale();
        let (value, standard_error, df) = match &self.0[..] {
            [one] if one.len() >= 5 && scale > 0.0 => biweight_t(one, scale),
            [one] => student_t(one),
            _ => student_t(&self.locations(scale)),
        };
        Centre { value, standard_error, df, confidence }
    }

    /// Standard deviation (between restarts, between rounds of one restart): the variance of the
    /// restarts' locations less what the rounds alone explain, and never below zero.
    pub fn spread(&self) -> (f64, f64) {
        let round = self.round_scale();
        let per_restart: f64 = self.0.iter().map(|restart| 1.0 / restart.len() as f64).sum();
        let explained = round.powi(2) * per_restart / self.0.len() as f64;
        let restart = (variance(&self.locations(round)) - explained).max(0.0);
        (restart.sqrt(), round)
    }

    /// Standard deviation of the undisturbed rounds of one restart, from the smaller differences
    /// between rounds of the same restart; 0 where no restart has two.
    fn round_scale(&self) -> f64 {
        let mut differences = Vec::new();
        for restart in &self.0 {
            for (i, a) in restart.iter().enumerate() {
                differences.extend(restart[i + 1..].iter().map(|b| (a - b).abs()));
            }
        }
        if differences.is_empty() {
            return 0.0;
        }
        differences.sort_by(f64::total_cmp);
        let place = QUIET_SHARE * (differences.len() - 1) as f64;
        let (below, share) = (place.floor() as usize, place.fract());
        let above = (below + 1).min(differences.len() - 1);
        let quantile = differences[below] + share * (differences[above] - differences[below]);
        quantile / (QUIET_QUANTILE * std::f64::consts::SQRT_2)
    }

    /// One location for each restart: Tukey's biweight with the scale of all restarts.
    ///
    /// It starts from the restart's median; between the two middle rounds of an even number, from
    /// the one nearer the median of all rounds. So even of two rounds the disturbed one loses.
    fn locations(&self, scale: f64) -> Vec<f64> {
        let all = median(&self.0.concat()).unwrap_or(0.0);
        let start = |restart: &[f64]| {
            let mut sorted = restart.to_vec();
            sorted.sort_by(f64::total_cmp);
            let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
            if (low - all).abs() <= (high - all).abs() { low } else { high }
        };
        self.0.iter().map(|restart| biweight(restart, start(restart), scale)).collect()
    }
}

impl Centre {
    pub fn half_width(&self) -> f64 {
        match self.standard_error {
            0.0 => 0.0,
            se => student::quantile(1.0 - self.confidence, self.df) * se,
        }
    }

    /// Two-sided p-value of "the centre is 0".
    pub fn p(&self) -> f64 {
        // Without an error this is infinite, or not a number where the centre is 0: p = 0, or 1.
        student::two_sided_p(self.value / self.standard_error, self.df)
    }

    /// This centre less another that was measured apart from it: their errors add as independent
    /// ones do, with the degrees of freedom of Welch ("The generalization of Student's problem when
    /// several different population variances are involved", Biometrika 34, 1947).
    pub fn less(&self, other: &Self) -> Self {
        let (a, b) = (self.standard_error.powi(2), other.standard_error.powi(2));
        let df = match a + b {
            sum if sum > 0.0 && sum.is_finite() => {
                sum.powi(2) / (share(a, self.df) + share(b, other.df))
            }
            _ => self.df.min(other.df),
        };
        Self {
            value: self.value - other.value,
            standard_error: (a + b).sqrt(),
            df,
            confidence: self.confidence,
        }
    }

    /// The estimate of the exponential: from log units to a ratio or a level.
    pub fn exp(&self) -> Estimate {
        let half = self.half_width();
        let [value, low, high] = [self.value, self.value - half, self.value + half].map(f64::exp);
        Estimate { value, low, high }
    }
}

/// What one of two variances adds to the denominator of Welch's degrees of freedom; a variance of
/// nothing adds nothing, however few values it comes from.
fn share(variance: f64, df: f64) -> f64 {
    if variance > 0.0 { variance.powi(2) / df } else { 0.0 }
}

/// Mean, its standard error and its degrees of freedom.
fn student_t(values: &[f64]) -> (f64, f64, f64) {
    let n = values.len() as f64;
    let error = if values.len() < 2 { f64::INFINITY } else { (variance(values) / n).sqrt() };
    (mean(values), error, n - 1.0)
}

/// The biweight location, its standard error and its degrees of freedom, 0.7 (n - 1) (Mosteller and
/// Tukey 1977, chapter 10; Kafadar, "A biweight approach to the one-sample problem", JASA 77,
/// 1982). Needs five values and a scale: of four it cannot say which one is wrong. Where the values
/// form two groups with nothing near the middle, it says nothing, and Student's interval is given.
fn biweight_t(values: &[f64], scale: f64) -> (f64, f64, f64) {
    let centre = biweight(values, median(values).unwrap_or(0.0), scale);
    let (mut squares, mut slope) = (0.0, 0.0);
    for v in values {
        let u2 = ((v - centre) / scale / BIWEIGHT_REACH).powi(2);
        let within = (1.0 - u2).max(0.0);
        squares += ((v - centre) * within.powi(2)).powi(2);
        slope += within * (1.0 - 5.0 * u2);
    }
    if slope <= 1.0 {
        return student_t(values);
    }
    let error = (squares / (slope * (slope - 1.0).max(1.0))).sqrt();
    (centre, error, 0.7 * (values.len() - 1) as f64)
}

/// Whether a step of a location no longer matters, on this scale of its values.
fn is_negligible(step: f64, scale: f64) -> bool {
    step.abs() <= 1e-12 * scale
}

/// Tukey's biweight location by repeated weighting, from `centre`.
fn biweight(values: &[f64], mut centre: f64, scale: f64) -> f64 {
    if scale <= 0.0 {
        return centre;
    }
    for _ in 0..20 {
        let (mut sum, mut weights) = (0.0, 0.0);
        for v in values {
            let u2 = ((v - centre) / scale / BIWEIGHT_REACH).powi(2);
            let weight = (1.0 - u2).max(0.0).powi(2);
            // The distance and not the value is averaged: equal values must stay exactly equal.
            sum += weight * (v - centre);
            weights += weight;
        }
        let step = sum / weights;
        if weights <= 0.0 || is_negligible(step, scale) {
            break;
        }
        centre += step;
    }
    centre
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sample variance; 0 for fewer than two values.
fn variance(values: &[f64]) -> f64 {
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

    fn restarts(values: &[&[f64]]) -> Restarts {
        Restarts(values.iter().map(|v| v.to_vec()).collect())
    }

    #[test]
    fn of_two_rounds_the_disturbed_one_loses() {
        let quiet = [[1.01, 0.99], [1.00, 1.02], [0.98, 1.00]];
        let hit = restarts(&[&quiet[0], &quiet[1], &quiet[2], &[1.01, 1.50]]);
        assert!((hit.centre(0.95).value - 1.0025).abs() < 0.001);
    }

    #[test]
    fn starts_that_differ_much_are_not_taken_for_disturbed_rounds() {
        let apart = restarts(&[&[1.00, 1.01, 0.99], &[1.00, 1.01, 0.99], &[2.00, 2.01, 1.99]]);
        let centre = apart.centre(0.95);
        assert!((centre.value - 4.0 / 3.0).abs() < 1e-3);
        assert!(centre.half_width() > 1.0);
        assert!(apart.spread().0 > 0.5);
    }

    #[test]
    fn one_value_has_no_interval() {
        let centre = restarts(&[&[3.0]]).centre(0.95);
        assert_eq!((centre.value, centre.half_width(), centre.p()), (3.0, f64::INFINITY, 1.0));
    }

    #[test]
    fn equal_values_are_known_exactly() {
        let same = restarts(&[&[0.5; 3], &[0.5; 3]]).centre(0.95);
        assert_eq!((same.value, same.half_width(), same.p()), (0.5, 0.0, 0.0));
        let none = restarts(&[&[0.0; 6]]).centre(0.95);
        assert_eq!((none.value, none.p()), (0.0, 1.0));
    }

    fn close(ours: f64, theirs: f64) {
        assert!((ours / theirs - 1.0).abs() < 1e-8, "ours {ours:e}, theirs {theirs:e}");
    }

    /// Three restarts of four rounds, of which one was disturbed.
    const RESTARTS: [[f64; 4]; 3] =
        [[0.012, 0.019, 0.008, 0.022], [0.031, 0.024, 0.190, 0.027], [0.015, 0.011, 0.017, 0.009]];

    /// Computed in Python from the definitions: the scale is the 0.33 quantile of the differences
    /// within restarts (linear between neighbours), divided by
    /// `statistics.NormalDist().inv_cdf(.665) * 2**.5`; each location m is the root of
    /// `sum(u * (1 - u**2)**2)`, u = (v - m) / scale / 4.685 where |u| < 1, by bisection; then
    /// `statistics.mean` and `variance`, t = 4.302653, and p = 1 - t / √(2 + t²), which holds at
    /// two degrees of freedom.
    #[test]
    fn the_interval_over_restarts_is_that_of_their_biweights() {
        let restarts = restarts(&RESTARTS.each_ref().map(|restart| &restart[..]));
        assert_eq!((restarts.count(), restarts.rounds()), (3, 12));
        let scale = restarts.round_scale();
        // The constant Φ⁻¹(0.665) has six digits.
        assert!((scale / 0.006_637_194_291 - 1.0).abs() < 1e-5, "{scale}");
        let locations = restarts.locations(0.006_637_194_290_955_496);
        let expected = [0.015_283_066_845_130_6, 0.027_324_552_717_319_78, 0.013];
        locations.iter().zip(expected).for_each(|(ours, theirs)| close(*ours, theirs));
        let centre = restarts.centre(0.95);
        assert!((centre.value / 0.018_535_873_187 - 1.0).abs() < 1e-5);
        assert!((centre.half_width() / 0.019_118_787_007 - 1.0).abs() < 1e-5);
        assert!((centre.p() / 0.052_944_910_783 - 1.0).abs() < 1e-5);
        assert_eq!(centre.df, 2.0);
        let (restart, round) = restarts.spread();
        assert!((restart / 0.006_944_110_991 - 1.0).abs() < 1e-5, "{restart}");
        assert_eq!(round, scale);
    }

    /// As above, with the standard error of Mosteller and Tukey (1977), chapter 10,
    /// `sqrt(sum((v - m)**2 * (1 - u**2)**4) / (b * (b - 1)))` where
    /// `b = sum((1 - u**2) * (1 - 5 * u**2))`, and t at 0.7 × 5 degrees of freedom, by integrating
    /// its density.
    #[test]
    fn the_interval_of_one_restart_is_that_of_the_biweight() {
        let centre = restarts(&[&[0.012, 0.019, 0.008, 0.022, 0.090, 0.015]]).centre(0.95);
        assert_eq!(centre.df, 3.5);
        assert!((centre.value / 0.015_205_112_316 - 1.0).abs() < 1e-5);
        assert!((centre.standard_error / 0.002_549_652_375 - 1.0).abs() < 1e-5);
        let ratio = centre.exp();
        for (ours, theirs) in [
            (ratio.value, 1.015_321_298_162),
            (ratio.low, 1.007_738_698_473),
            (ratio.high, 1.022_960_952_143),
        ] {
            assert!((ours - theirs).abs() < 1e-6, "{ours}");
        }
        assert!((centre.p() / 0.006_006_338_441 - 1.0).abs() < 1e-4);
    }

    #[test]
    fn one_restart_of_fewer_than_five_rounds_or_without_noise_has_students_interval() {
        // Four: mean and √(variance / 4), the disturbed one included.
        let four = restarts(&[&[1.0, 2.0, 3.0, 10.0]]).centre(0.95);
        assert_eq!((four.value, four.df), (4.0, 3.0));
        close(four.standard_error, f64::sqrt(50.0 / 3.0 / 4.0));
        // Five have the biweight's 0.7 × 4 degrees of freedom.
        let five = restarts(&[&[1.0, 2.0, 3.0, 4.0, 100.0]]).centre(0.95);
        assert!((five.df - 2.8).abs() < 1e-12 && five.value < 5.0, "{}", five.value);
        // Most differences are 0, so there is no scale.
        let flat = restarts(&[&[1.0, 1.0, 1.0, 1.0, 1.0, 2.0]]).centre(0.95);
        assert_eq!(flat.df, 5.0);
        close(flat.value, 7.0 / 6.0);
    }

    /// A third of the way from one difference to the next: the differences are 1, 2 and 3, and the
    /// place of 0.33 is 0.66.
    #[test]
    fn the_scale_interpolates_between_differences() {
        let of =
            |values: &[&[f64]]| restarts(values).round_scale() * QUIET_QUANTILE * f64::sqrt(2.0);
        close(of(&[&[0.0, 1.0, 3.0]]), 1.66);
        close(of(&[&[0.0, 1.0], &[5.0, 7.0], &[3.0, 6.0]]), 1.66);
        close(of(&[&[0.0, 4.0], &[9.0]]), 4.0);
        assert_eq!(of(&[&[0.0], &[4.0]]), 0.0);
    }

    #[test]
    fn a_location_starts_from_the_middle_round_that_is_nearer_the_others() {
        // Without a scale the start is the location. The median of all is 3.
        let of = |one: &[f64]| restarts(&[one, &[3.0; 9]]).locations(0.0)[0];
        assert_eq!(of(&[2.0, 5.0]), 2.0);
        assert_eq!(of(&[0.0, 4.0]), 4.0);
        assert_eq!(of(&[1.0, 5.5]), 1.0);
        assert_eq!(of(&[2.0, 4.0]), 2.0, "as near: the lower one");
        assert_eq!(of(&[1.0, 9.0, 8.0]), 8.0);
        assert_eq!(of(&[0.0, 1.0, 4.0, 9.0]), 4.0);
    }

    #[test]
    fn what_the_rounds_explain_is_not_held_against_the_restarts() {
        // Locations 0 and 2 have a variance of 2, rounds of one restart explain 1² × (1/2 + 1/4) /
        // 2.
        let found = restarts(&[&[0.0; 2], &[2.0; 4]]);
        assert_eq!(found.spread(), (f64::sqrt(2.0), 0.0));
        let same = restarts(&[&[0.9, 1.1], &[0.95, 1.15]]);
        assert_eq!(same.spread().0, 0.0);
        assert!(same.spread().1 > 0.1);
    }

    #[test]
    fn a_variance_is_of_two_values_at_least() {
        assert_eq!(variance(&[]), 0.0);
        assert_eq!(variance(&[3.0]), 0.0);
        assert_eq!(variance(&[3.0, 5.0]), 2.0);
    }

    fn centre(value: f64, standard_error: f64, df: f64) -> Centre {
        Centre { value, standard_error, df, confidence: 0.95 }
    }

    #[test]
    fn the_p_value_of_a_centre_without_error_says_whether_it_is_zero() {
        assert_eq!(centre(0.0, 0.0, 2.0).p(), 1.0);
        assert_eq!(centre(0.1, 0.0, 2.0).p(), 0.0);
        assert_eq!(centre(0.1, f64::INFINITY, 0.0).p(), 1.0);
        assert_eq!(centre(0.1, 0.0, 0.0).half_width(), 0.0);
        close(centre(0.2, 0.1, 2.0).half_width(), 0.430_265_272_974_946);
    }

    /// Welch (1947): (a + b)² / (a² / df_a + b² / df_b), of the squared errors a and b.
    #[test]
    fn a_difference_of_centres_has_welchs_degrees_of_freedom() {
        let of = |a, b| {
            let less = centre(5.0, a, 4.0).less(&centre(3.0, b, 2.0));
            assert_eq!((less.value, less.confidence), (2.0, 0.95));
            (less.standard_error, less.df)
        };
        let (error, df) = of(3.0, 4.0);
        assert_eq!(error, 5.0);
        close(df, 625.0 / (81.0 / 4.0 + 256.0 / 2.0));
        // One that is exact adds nothing, and of two that are the lower number holds.
        assert_eq!((of(3.0, 0.0), of(0.0, 3.0)), ((3.0, 4.0), (3.0, 2.0)));
        assert_eq!(of(0.0, 0.0), (0.0, 2.0));
        assert_eq!(of(f64::INFINITY, 1.0), (f64::INFINITY, 2.0));
    }

    /// The median of two groups is in neither, and the biweight gave it an error of 0: a ratio
    /// known exactly.
    #[test]
    fn two_groups_of_rounds_have_students_interval() {
        let groups = [0.0, 0.001, 0.002, 1.0, 1.001, 1.002];
        let found = restarts(&[&groups]).centre(0.95);
        assert_eq!(found.df, 5.0);
        close(found.value, 0.501);
        close(found.standard_error, (variance(&groups) / 6.0).sqrt());
        assert!(found.standard_error > 0.2);
        // The same of one round between two groups.
        let group = |around: f64| (0..5).map(move |i| around + 0.01 * f64::from(i));
        let rounds: Vec<f64> = group(-10.0).chain([0.0]).chain(group(10.0)).collect();
        assert_eq!(restarts(&[&rounds]).centre(0.95).df, 10.0);
    }

    #[test]
    fn a_location_is_sought_to_a_millionth_of_a_millionth_of_the_scale() {
        assert!(is_negligible(1e-12, 1.0) && is_negligible(-2e-12, 2.0));
        assert!(!is_negligible(1.1e-12, 1.0) && !is_negligible(1e-12, 0.5));
    }

    #[test]
    fn a_variance_of_nothing_has_no_share_in_the_degrees_of_freedom() {
        assert_eq!((share(0.0, 0.0), share(0.0, 4.0), share(3.0, 4.0)), (0.0, 0.0, 2.25));
    }
}
