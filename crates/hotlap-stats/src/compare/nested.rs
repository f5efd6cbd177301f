//! Rounds nested in restarts: the only place where intervals are computed from them.
//!
//! The estimator was chosen from nine by simulation (`tests/coverage`): a robust location for each
//! restart, and Student's interval over the restarts.

use std::collections::BTreeMap;

use super::location::{Location, variance};
use crate::robust::{biweight, median};

/// The scale of the rounds is estimated from this quantile of the differences between rounds of one
/// restart. It must be low to be robust: a round has four laps, so if something disturbs 10 % of
/// the laps, only 0.9⁸ = 43 % of all pairs of rounds are undisturbed. The idea is that of Rousseeuw
/// and Croux's Qn ("Alternatives to the median absolute deviation", JASA 88, 1993), which takes
/// about the first quartile. Its coverage is in METHODOLOGY, appendix A.13.
const SCALE_QUANTILE: f64 = 0.33;

/// The quantile of the absolute standard normal distribution at [`SCALE_QUANTILE`]:
/// Φ⁻¹((1 + 0.33) / 2).
const NORMAL_AT_SCALE_QUANTILE: f64 = 0.426_148;

/// The number of rounds from which the biweight is used for a single restart. With four it cannot
/// tell which one is disturbed. No verdict depends on this: a single restart gets none.
const MIN_FOR_BIWEIGHT: usize = 5;

/// How much restarts, and rounds of one restart, differ: the variance components of a nested
/// design, as standard deviations in log units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Standard deviation between restarts.
    pub sd_restart: f64,
    /// Standard deviation between rounds of one restart.
    pub sd_round: f64,
}

/// Values grouped by restart.
pub(super) struct Restarts(Vec<Vec<f64>>);

impl Restarts {
    /// Groups `(restart, value)`; `None` without values.
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

    /// The location of each restart, in the order of their numbers.
    pub fn centres(&self) -> Vec<f64> {
        self.locations(self.round_scale())
    }

    /// The mean of the restarts' locations; of a single restart, the location of its rounds.
    pub fn location(&self) -> Location {
        let scale = self.round_scale();
        match &self.0[..] {
            [one] if one.len() >= MIN_FOR_BIWEIGHT && scale > 0.0 => Location::biweight(one, scale),
            [one] => Location::student(one),
            _ => Location::student(&self.locations(scale)),
        }
    }

    /// The variance components. That between restarts is the variance of their locations minus what
    /// the rounds alone explain, and at least 0.
    pub fn spread(&self) -> Spread {
        let sd_round = self.round_scale();
        let per_restart: f64 = self.0.iter().map(|restart| 1.0 / restart.len() as f64).sum();
        let explained = sd_round.powi(2) * per_restart / self.0.len() as f64;
        let restart = (variance(&self.locations(sd_round)) - explained).max(0.0);
        Spread { sd_restart: restart.sqrt(), sd_round }
    }

    /// Standard deviation of the undisturbed rounds of one restart, from the smaller differences
    /// between rounds of the same restart; 0 if no restart has two rounds.
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
        // The quantile, linear between neighbours. A difference has √2 times the deviation of one.
        let place = SCALE_QUANTILE * (differences.len() - 1) as f64;
        let (below, share) = (place.floor() as usize, place.fract());
        let above = (below + 1).min(differences.len() - 1);
        let quantile = differences[below] + share * (differences[above] - differences[below]);
        quantile / (NORMAL_AT_SCALE_QUANTILE * std::f64::consts::SQRT_2)
    }

    /// The location of each restart: Tukey's biweight, with the scale of all restarts.
    ///
    /// It starts from the restart's median; for an even number of rounds, from the one of the
    /// middle two that is nearer to the median of all rounds. So even of two rounds, the disturbed
    /// one loses.
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
        assert!((hit.location().value - 1.0025).abs() < 0.001);
    }

    #[test]
    fn restarts_that_differ_much_do_not_count_as_disturbed_rounds() {
        let apart = restarts(&[&[1.00, 1.01, 0.99], &[1.00, 1.01, 0.99], &[2.00, 2.01, 1.99]]);
        let location = apart.location();
        assert!((location.value - 4.0 / 3.0).abs() < 1e-3);
        assert!(location.half_width(0.95) > 1.0);
        assert!(apart.spread().sd_restart > 0.5);
    }

    #[test]
    fn equal_values_are_known_exactly() {
        let same = restarts(&[&[0.5; 3], &[0.5; 3]]).location();
        assert_eq!((same.value, same.half_width(0.95), same.p()), (0.5, 0.0, 0.0));
        let none = restarts(&[&[0.0; 6]]).location();
        assert_eq!((none.value, none.p()), (0.0, 1.0));
    }

    fn close(ours: f64, theirs: f64) {
        assert!((ours / theirs - 1.0).abs() < 1e-8, "ours {ours:e}, theirs {theirs:e}");
    }

    /// Three restarts of four rounds, one of which was disturbed.
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
        let location = restarts.location();
        assert!((location.value / 0.018_535_873_187 - 1.0).abs() < 1e-5);
        assert!((location.half_width(0.95) / 0.019_118_787_007 - 1.0).abs() < 1e-5);
        assert!((location.p() / 0.052_944_910_783 - 1.0).abs() < 1e-5);
        assert_eq!(location.df, 2.0);
        let spread = restarts.spread();
        assert!((spread.sd_restart / 0.006_944_110_991 - 1.0).abs() < 1e-5, "{spread:?}");
        assert_eq!(spread.sd_round, scale);
    }

    /// As above, with the standard error of Mosteller and Tukey (1977), chapter 10,
    /// `sqrt(sum((v - m)**2 * (1 - u**2)**4) / (b * (b - 1)))` where
    /// `b = sum((1 - u**2) * (1 - 5 * u**2))`, and t at 0.7 × 5 degrees of freedom, by integrating
    /// its density.
    #[test]
    fn the_interval_of_a_single_restart_is_that_of_the_biweight() {
        let location = restarts(&[&[0.012, 0.019, 0.008, 0.022, 0.090, 0.015]]).location();
        assert_eq!(location.df, 3.5);
        assert!((location.value / 0.015_205_112_316 - 1.0).abs() < 1e-5);
        assert!((location.standard_error / 0.002_549_652_375 - 1.0).abs() < 1e-5);
        let ratio = location.exp(0.95);
        for (ours, theirs) in [
            (ratio.value, 1.015_321_298_162),
            (ratio.low, 1.007_738_698_473),
            (ratio.high, 1.022_960_952_143),
        ] {
            assert!((ours - theirs).abs() < 1e-6, "{ours}");
        }
        assert!((location.p() / 0.006_006_338_441 - 1.0).abs() < 1e-4);
    }

    #[test]
    fn a_single_restart_of_fewer_than_five_rounds_or_without_noise_has_students_interval() {
        // Four: mean and √(variance / 4), the disturbed one included.
        let four = restarts(&[&[1.0, 2.0, 3.0, 10.0]]).location();
        assert_eq!((four.value, four.df), (4.0, 3.0));
        close(four.standard_error, f64::sqrt(50.0 / 3.0 / 4.0));
        // Five have the biweight's 0.7 × 4 degrees of freedom.
        let five = restarts(&[&[1.0, 2.0, 3.0, 4.0, 100.0]]).location();
        assert!((five.df - 2.8).abs() < 1e-12 && five.value < 5.0, "{}", five.value);
        // Most differences are 0, so there is no scale.
        let flat = restarts(&[&[1.0, 1.0, 1.0, 1.0, 1.0, 2.0]]).location();
        assert_eq!(flat.df, 5.0);
        close(flat.value, 7.0 / 6.0);
    }

    /// The differences are 1, 2 and 3, and the 0.33 quantile is 0.66 of the way from 1 to 2.
    #[test]
    fn the_scale_interpolates_between_differences() {
        let of = |values: &[&[f64]]| {
            restarts(values).round_scale() * NORMAL_AT_SCALE_QUANTILE * f64::sqrt(2.0)
        };
        close(of(&[&[0.0, 1.0, 3.0]]), 1.66);
        close(of(&[&[0.0, 1.0], &[5.0, 7.0], &[3.0, 6.0]]), 1.66);
        close(of(&[&[0.0, 4.0], &[9.0]]), 4.0);
        assert_eq!(of(&[&[0.0], &[4.0]]), 0.0);
    }

    #[test]
    fn a_location_starts_from_the_middle_round_that_is_nearer_the_others() {
        // With a scale of 0 the start is the location. The median of all is 3.
        let of = |one: &[f64]| restarts(&[one, &[3.0; 9]]).locations(0.0)[0];
        assert_eq!(of(&[2.0, 5.0]), 2.0);
        assert_eq!(of(&[0.0, 4.0]), 4.0);
        assert_eq!(of(&[1.0, 5.5]), 1.0);
        assert_eq!(of(&[2.0, 4.0]), 2.0, "as near: the lower one");
        assert_eq!(of(&[1.0, 9.0, 8.0]), 8.0);
        assert_eq!(of(&[0.0, 1.0, 4.0, 9.0]), 4.0);
    }

    #[test]
    fn variance_explained_by_rounds_is_not_spread_between_restarts() {
        // Locations 0 and 2 have a variance of 2; rounds without noise explain none of it.
        let found = restarts(&[&[0.0; 2], &[2.0; 4]]);
        assert_eq!(found.spread(), Spread { sd_restart: f64::sqrt(2.0), sd_round: 0.0 });
        let same = restarts(&[&[0.9, 1.1], &[0.95, 1.15]]).spread();
        assert!(same.sd_restart == 0.0 && same.sd_round > 0.1, "{same:?}");
    }

    /// Regression: the median of two groups is in neither, and the biweight gave it an error of 0,
    /// so the ratio seemed to be known exactly.
    #[test]
    fn two_groups_of_rounds_have_students_interval() {
        let groups = [0.0, 0.001, 0.002, 1.0, 1.001, 1.002];
        let found = restarts(&[&groups]).location();
        assert_eq!(found.df, 5.0);
        close(found.value, 0.501);
        close(found.standard_error, (variance(&groups) / 6.0).sqrt());
        assert!(found.standard_error > 0.2);
        // The same with one round between the two groups.
        let group = |around: f64| (0..5).map(move |i| around + 0.01 * f64::from(i));
        let rounds: Vec<f64> = group(-10.0).chain([0.0]).chain(group(10.0)).collect();
        assert_eq!(restarts(&[&rounds]).location().df, 10.0);
    }
}
