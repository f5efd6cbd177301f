//! Decides how many restarts a run makes, and whether the run may end early.
//!
//! A run that stops as soon as a difference looks significant will sooner or later find one
//! between identical servers (Armitage, McPherson and Rowe, "Repeated significance tests on
//! accumulating data", JRSS A 132, 1969). So a run ends early for only two reasons. The first
//! reason is that its intervals are narrow, whatever the difference is. The second is that its
//! differences pass a much stricter test ([`is_certain`]), which leaves a smaller error for the
//! last test.

use crate::compare::{Mean, effect};
use crate::reading::ByRestart;
use crate::student;
use crate::verdict::MIN_RESTARTS;

/// The number of restarts before the first look at the widths. Fewer restarts may agree by chance
/// and look precise (simulated in `tests/coverage/stopping.rs`).
pub const RESTARTS_BEFORE_LOOK: u32 = 5;

/// The largest number of restarts. More would add little, because Student's quantile is only 2.1 at
/// 20 restarts. Each restart also costs a start of every server.
const RESTARTS_MAX: u32 = 20;

/// The variance between restarts, as a multiple of the variance between rounds, by convention.
const RESTART_VARIANCE: f64 = 0.25;

/// The time for which a process should be measured, in seconds, so that its laps include its
/// bursts. The time may be shorter for up to five restarts. The second value is for runs that may
/// end early.
const SERVES_S: [f64; 2] = [2.0, 1.0];

/// The largest p-value that ends a run with one comparison early. With n comparisons, the limit is
/// this value ÷ n. There are up to 18 looks, from the third restart to the twentieth, so their
/// joint error is at most 1.8% (Bonferroni's inequality). The looks are correlated, so the actual
/// error is smaller (simulated in `tests/coverage/stopping.rs`).
const LOOK_ALPHA: f64 = 0.001;

/// Returns the confidence at which the intervals of a run must be computed, so that they contain
/// the truth in 95 of 100 runs. The confidence applies to [`effect`], [`crate::level`] and (as 1 −
/// confidence) [`crate::Criterion::alpha`]. If `precision` is given, the run may end once its
/// intervals are narrow enough.
///
/// A run that ends when it looks precise often ends when the restarts agree by chance. At 95%, too
/// many such runs would find a difference between identical servers. So such a run has half the
/// alpha, and does not look before the fifth restart (simulated in `tests/coverage/stopping.rs`).
///
/// A run that may end early once it is certain ([`is_certain`]) spends part of its alpha on the
/// looks. `looks` says whether this is such a run.
pub fn confidence(precision: Option<f64>, looks: bool) -> f64 {
    match (precision, looks) {
        (Some(_), _) => 0.975,
        (None, true) => 0.97,
        (None, false) => 0.95,
    }
}

/// Returns whether every ratio is certainly above or certainly below `limit`, so that further
/// restarts are unlikely to change a verdict. The limit is 1 for the question whether servers
/// differ, and 1.03 for the rule that a server may cost at most 3% more.
pub fn is_certain(comparisons: &[ByRestart], limit: f64) -> bool {
    let alpha = LOOK_ALPHA / comparisons.len() as f64;
    let is_apart = |pairs: &ByRestart| {
        let Some(mean) = Mean::of(pairs.clone()) else { return false };
        mean.restarts >= MIN_RESTARTS && mean.minus(&Mean::known(limit.ln(), 0.0)).p() <= alpha
    };
    !comparisons.is_empty() && comparisons.iter().all(is_apart)
}

/// Returns whether every ratio has at least five restarts, and an interval with a relative
/// half-width of at most `precision` (0.01 for 1%).
pub fn is_precise(comparisons: &[ByRestart], precision: f64) -> bool {
    let is_narrow = |pairs: &ByRestart| {
        effect(pairs, confidence(Some(precision), false)).is_some_and(|e| {
            e.restarts >= RESTARTS_BEFORE_LOOK && e.ratio.relative_half_width() <= precision
        })
    };
    !comparisons.is_empty() && comparisons.iter().all(is_narrow)
}

/// The parts of a run's time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// The time that a restart takes in addition to its rounds, to start and warm up every server.
    pub restart_s: f64,
    /// The length of one round, including the time between laps.
    pub round_s: f64,
    /// The part of a round in which one server is measured.
    pub lap_s: f64,
}

/// Returns the number of further restarts that divides the remaining `left_s` seconds best. `had`
/// is the number of rounds of each restart so far. `looks` says whether the run may end early, as
/// soon as its ratios are certain ([`is_certain`]). In such a run, short restarts save time. The
/// result is 0 if no further restart is worthwhile. The caller then spends the time on rounds of
/// the present restart.
///
/// The best number has the smallest expected width, t(restarts − 1) × √(sum of the restarts'
/// variances) ÷ restarts. The formula is from Kalibera and Jones, ISMM 2013, section 6.3, here with
/// the actual rounds of each restart.
pub fn further_restarts(had: &[u32], left_s: f64, costs: &Costs, looks: bool) -> u32 {
    let before = had.len() as u32;
    let variance = |rounds: f64| RESTART_VARIANCE + 1.0 / rounds;
    let past: f64 = had.iter().map(|rounds| variance(f64::from((*rounds).max(1)))).sum();
    let most = RESTARTS_MAX.saturating_sub(before);
    let width = |further: u32| {
        let each_s = left_s / f64::from(further) - costs.restart_s;
        let rounds = (each_s / costs.round_s + 1e-9).floor();
        let restarts = before + further;
        let serves_s = SERVES_S[usize::from(looks)];
        let is_short = rounds * costs.lap_s < serves_s && restarts > RESTARTS_BEFORE_LOOK;
        if rounds < 1.0 || is_short || restarts < MIN_RESTARTS {
            return None;
        }
        let sum = past + f64::from(further) * variance(rounds);
        let n = f64::from(restarts);
        Some((student::quantile(0.05, n - 1.0) * sum.sqrt() / n, further))
    };
    let best = (1..=most).filter_map(width).min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(0, |(_, further)| further)
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    const COSTS: Costs = Costs { restart_s: 2.0, round_s: 0.5, lap_s: 0.2 };

    #[test]
    fn a_minute_has_room_for_some_restarts_of_some_seconds() {
        assert_eq!(further_restarts(&[], 60.0, &COSTS, false), 8);
        let slow = Costs { restart_s: 9.0, ..COSTS };
        assert_eq!(further_restarts(&[], 60.0, &slow, false), 5);
        // With more restarts, each process would be measured for less than two seconds.
        let long = Costs { round_s: 3.0, ..COSTS };
        assert_eq!(further_restarts(&[], 60.0, &long, false), 5);
        assert_eq!(further_restarts(&[], 1e6, &COSTS, false), 20);
        assert_eq!(further_restarts(&[], 60.0, &COSTS, true), 13, "the run may end early");
    }

    /// Regression: sixteen virtual machines that take three minutes to start had two restarts in
    /// five minutes, which gave useless intervals.
    #[test]
    fn if_three_restarts_are_too_expensive_there_is_one() {
        let costs = |restart_s| Costs { restart_s, round_s: 13.0, lap_s: 0.2 };
        assert_eq!(further_restarts(&[0], 300.0, &costs(180.0), false), 0);
        assert_eq!(further_restarts(&[0], 300.0, &costs(100.0), false), 2);
        assert_eq!(further_restarts(&[4, 4], 20.0, &costs(100.0), false), 0);
    }

    /// Regression: past restarts were assumed to have as many rounds as the next one, so one
    /// restart of many rounds looked best in the end.
    #[test]
    fn the_time_is_divided_into_restarts_of_like_length() {
        let (mut had, mut left_s) = (Vec::new(), 60.0);
        loop {
            let further = further_restarts(&had, left_s, &COSTS, false);
            if further == 0 {
                break;
            }
            let rounds = ((left_s / f64::from(further) - COSTS.restart_s) / COSTS.round_s).floor();
            had.push(rounds as u32);
            left_s -= COSTS.restart_s + rounds * COSTS.round_s;
        }
        let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
        assert!(most - least <= 2 && left_s < 4.0, "{had:?}, {left_s} s left");
    }

    /// Returns the pairs of this many restarts, which differ by ± `spread`.
    fn pairs(restarts: u32, spread: f64) -> ByRestart {
        let sign = |i: u32| if i.is_multiple_of(2) { -1.0 } else { 1.0 };
        let pair = |i| (i, spread * sign(i));
        (0..restarts).map(pair).collect()
    }

    #[test]
    fn a_run_ends_once_every_interval_is_narrow_enough() {
        let (close, apart) = (pairs(6, 0.001), pairs(6, 0.02));
        assert!(is_precise(&[close.clone(), close.clone()], 0.01));
        assert!(!is_precise(&[close.clone(), apart.clone()], 0.01));
        assert!(!is_precise(&[close, ByRestart::new()], 0.01));
        assert!(!is_precise(&[], 0.01));
        // This is the half-width of the wider interval, at the confidence of the run.
        let half = effect(&apart, 0.975).unwrap().ratio.relative_half_width();
        assert!(is_precise(from_ref(&apart), half) && !is_precise(&[apart], half * 0.999));
    }

    #[test]
    fn four_restarts_are_too_few_to_look() {
        assert!(!is_precise(&[pairs(4, 0.001)], 0.5));
        assert!(is_precise(&[pairs(5, 0.001)], 0.5));
    }

    #[test]
    fn a_run_that_may_end_early_has_half_the_alpha() {
        assert_eq!((confidence(None, false), confidence(Some(0.01), false)), (0.95, 0.975));
        assert_eq!((confidence(None, true), confidence(Some(0.01), true)), (0.97, 0.975));
    }

    #[test]
    fn a_run_is_certain_once_every_ratio_is_far_from_the_limit() {
        let by = |restarts, ratio: f64| -> ByRestart {
            pairs(restarts, 0.001).into_iter().map(|(i, log)| (i, log + ratio.ln())).collect()
        };
        assert!(is_certain(&[by(4, 1.1)], 1.0) && is_certain(&[by(4, 0.9)], 1.0));
        assert!(!is_certain(&[by(4, 1.0)], 1.0) && !is_certain(&[by(2, 1.1)], 1.0));
        // Equal servers certainly pass a rule that allows 3%. At the limit, nothing is certain.
        assert!(is_certain(&[by(4, 1.0)], 1.03) && !is_certain(&[by(4, 1.03)], 1.03));
        assert!(!is_certain(&[by(4, 1.1), by(4, 1.0)], 1.0) && !is_certain(&[], 1.0));
    }
}
