//! One server's level, or two servers' ratio, each with its interval.
//!
//! Rounds lie within restarts, and restarts differ. So each restart is reduced to one robust
//! location of its rounds (Tukey's biweight, with one scale for all restarts), and the interval is
//! Student's over the restarts, with one degree of freedom less than restarts: an interval must be
//! based on the highest level that was repeated (Kalibera and Jones, "Rigorous benchmarking in
//! reasonable time", ISMM 2013, section 6). From a single restart it is based on the rounds, holds
//! for that restart alone, and gets no verdict ([`crate::MIN_RESTARTS`]).
//!
//! All of it is computed on logarithms: ratios and levels are positive, and noise multiplies them.
//! Only an [`Amount`], which is added to others, has its own unit.

mod amount;
mod location;
mod nested;
mod node;
mod reading;

use crate::estimate::Estimate;
pub use amount::Amount;
use location::Location;
use nested::Restarts;
pub use nested::Spread;
pub use node::{NodeSpread, by_node, readings_by_node};
pub use reading::{Pair, Reading, pairs, pooled};

/// One server's figure relative to another's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// server / reference, with its interval.
    pub ratio: Estimate,
    /// Two-sided p-value of the hypothesis that the ratio is 1.
    pub p: f64,
    /// How much restarts, and rounds of one restart, differ in the ratio.
    pub spread: Spread,
    /// The number of restarts.
    pub restarts: u32,
    /// The number of rounds in all restarts.
    pub rounds: u32,
}

impl Effect {
    fn new(location: &Location, restarts: &Restarts, confidence: f64) -> Self {
        Self {
            ratio: location.exp(confidence),
            p: location.p(),
            spread: restarts.spread(),
            restarts: restarts.count() as u32,
            rounds: restarts.rounds() as u32,
        }
    }

    /// The far end of the interval: its larger distance from a ratio of 1, in log units. For the
    /// A/A control against the reference, this is the noise floor.
    #[must_use]
    pub fn far_end(&self) -> f64 {
        self.ratio.low.ln().abs().max(self.ratio.high.ln().abs())
    }
}

/// The level of one server over all restarts, with its interval at `confidence` (0.95). Readings
/// that are not positive and finite are left out; `None` if there are no others.
#[must_use]
pub fn level(readings: &[Reading], confidence: f64) -> Option<Estimate> {
    Some(restarts(readings)?.location().exp(confidence))
}

/// The ratio from the pairs, with its interval at `confidence` (0.95). Pairs that are not finite
/// are left out; `None` if there are no others.
///
/// In a simulation (`tests/coverage`) 95 % intervals contained the true ratio in 93 to 98 of 100
/// runs; nine estimators were compared there.
#[must_use]
pub fn effect(pairs: &[Pair], confidence: f64) -> Option<Effect> {
    let finite = pairs.iter().filter(|p| p.log_ratio.is_finite());
    let restarts = Restarts::of(finite.map(|p| (p.restart, p.log_ratio)))?;
    Some(Effect::new(&restarts.location(), &restarts, confidence))
}

/// The ratio of two levels measured in separate runs, with its interval at `confidence` (0.95).
/// `None` if one of them has no reading.
///
/// Nothing is paired, so any change on the machine between the runs counts as an effect, and the
/// interval is wider than [`effect`]'s with as many laps. Each side is reduced as in [`level`], and
/// the interval is Welch's. Spread and counts are those of the side with fewer restarts, which
/// affects the interval most.
#[must_use]
pub fn unpaired(server: &[Reading], reference: &[Reading], confidence: f64) -> Option<Effect> {
    let (server, reference) = (restarts(server)?, restarts(reference)?);
    let difference = server.location().minus(&reference.location());
    let weaker = if server.count() <= reference.count() { &server } else { &reference };
    Some(Effect::new(&difference, weaker, confidence))
}

/// The ratio of two servers that were each compared with the reference on their nodes, but never
/// measured together: the difference of both comparisons, with Welch's interval at `confidence`.
/// `None` if one of them has no pair. Pairs are by node ([`by_node`]).
#[must_use]
pub fn across_nodes(one: &[Pair], other: &[Pair], confidence: f64) -> Option<Effect> {
    let ratios = |pairs: &[Pair]| -> Vec<Reading> {
        let reading =
            |p: &Pair| Reading { restart: p.restart, round: p.round, value: p.log_ratio.exp() };
        pairs.iter().map(reading).collect()
    };
    unpaired(&ratios(one), &ratios(other), confidence)
}

/// The logarithms of readings by restart.
fn restarts(readings: &[Reading]) -> Option<Restarts> {
    Restarts::of(readings.iter().filter_map(|r| Some((r.restart, r.log()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(values: &[f64]) -> Vec<Reading> {
        (0..).zip(values).map(|(restart, &value)| Reading { restart, round: 0, value }).collect()
    }

    #[test]
    fn a_level_ignores_values_that_are_not_positive_and_finite() {
        let reading = |restart, value| Reading { restart, round: 0, value };
        let some = [reading(0, 100.0), reading(1, 0.0), reading(1, 100.0), reading(2, f64::NAN)];
        assert!((level(&some, 0.95).unwrap().value - 100.0).abs() < 1e-9);
        let some = readings(&[100.0, -100.0, f64::INFINITY, 100.0]);
        let found = level(&some, 0.95).unwrap();
        assert!((found.value - 100.0).abs() < 1e-9 && found.is_bounded(), "{found:?}");
        assert_eq!(level(&some[1..3], 0.95), None);
    }

    #[test]
    fn equal_levels_of_two_runs_without_noise_are_no_effect() {
        let same = unpaired(&readings(&[5.0; 3]), &readings(&[5.0; 4]), 0.95).unwrap();
        assert_eq!((same.ratio.value, same.p, same.restarts), (1.0, 1.0, 3));
        let other = unpaired(&readings(&[6.0; 3]), &readings(&[5.0; 4]), 0.95).unwrap();
        assert!((other.ratio.low - 1.2).abs() < 1e-12 && other.p < 1e-12);
    }

    #[test]
    fn a_single_reading_on_one_side_leaves_the_ratio_unbounded() {
        let open = unpaired(&readings(&[6.0]), &readings(&[5.0, 5.1, 4.9]), 0.95).unwrap();
        assert!(!open.ratio.is_bounded() && open.p == 1.0);
        assert_eq!(unpaired(&[], &readings(&[5.0]), 0.95), None);
    }

    #[test]
    fn of_two_runs_the_one_with_fewer_restarts_gives_counts_and_spread() {
        let (few, many) = (readings(&[5.0, 6.0]), readings(&[5.0, 5.1, 4.9]));
        for (server, reference) in [(&few, &many), (&many, &few)] {
            let found = unpaired(server, reference, 0.95).unwrap();
            assert_eq!((found.restarts, found.rounds), (2, 2));
            assert!(found.spread.sd_restart > 0.1, "{found:?}");
        }
        // With as many restarts on either side, it is the server's.
        let found = unpaired(&few, &readings(&[5.0, 5.1]), 0.95).unwrap();
        assert!(found.spread.sd_restart > 0.1, "{found:?}");
    }

    #[test]
    fn the_far_end_may_be_either_end_of_the_interval() {
        let far_end = |low: f64, high: f64| {
            let ratio = Estimate { value: 1.0, low, high };
            let spread = Spread { sd_restart: 0.0, sd_round: 0.0 };
            Effect { ratio, p: 1.0, spread, restarts: 3, rounds: 3 }.far_end()
        };
        assert_eq!(far_end(0.9, 1.05), -f64::ln(0.9));
        assert_eq!(far_end(0.99, 1.05), f64::ln(1.05));
        assert_eq!(far_end(1.02, 1.05), f64::ln(1.05));
    }

    #[test]
    fn an_effect_counts_restarts_and_rounds_of_finite_pairs() {
        let pair = |restart, round, log_ratio| Pair { restart, round, log_ratio };
        let pairs = [
            pair(0, 0, 0.1),
            pair(0, 1, 0.2),
            pair(4, 0, 0.3),
            pair(4, 1, f64::INFINITY),
            pair(5, 0, f64::NAN),
        ];
        let found = effect(&pairs, 0.95).unwrap();
        assert_eq!((found.restarts, found.rounds), (2, 3));
        assert_eq!(effect(&pairs[3..], 0.95), None);
        // Restarts of 0.1 and 0.3: their mean, whichever of its two rounds the first one rests on.
        assert!((0.2..0.25 + 1e-12).contains(&found.ratio.value.ln()), "{found:?}");
    }

    #[test]
    fn servers_that_never_met_are_compared_through_the_reference() {
        let of = |around: f64| -> Vec<Pair> {
            let pair =
                |n| Pair { restart: n, round: n, log_ratio: around + 0.01 * f64::from(n % 2) };
            (0..4).map(pair).collect()
        };
        let found = across_nodes(&of(0.5), &of(0.2), 0.95).unwrap();
        assert!((found.ratio.value.ln() - 0.3).abs() < 1e-9);
        assert!(found.restarts == 4 && found.p < 0.001 && found.ratio.low.ln() > 0.25);
        assert_eq!(across_nodes(&of(0.5), &[], 0.95), None);
    }
}
