//! The highest rate at which a server meets a goal, such as "99 of 100 requests take less than
//! 10 ms".
//!
//! A [`Trial`] is a window at one rate, in which the goal was met or missed. Near the limit of a
//! server, windows at the same rate do both, because requests queue up in bursts. So a rate has a
//! probability with which a window meets the goal. At even odds, the requests of a minute miss the
//! goal far too often, so the capacity is a lower rate: [`Capacity::sustained`]. No trial is
//! trusted by itself: [`Capacity::fit`] fits a curve through all of them, and [`next_rate`] chooses
//! the rate of the next one.
//!
//! Whether a window met the goal says less than the share of its requests that missed it, but that
//! share has no use here: it varies a hundredfold from window to window, and its mean rests on the
//! few windows with a burst (docs/evidence.md, *Capacity*).
//!
//! # The curve
//!
//! A logistic regression of misses on the logarithm of the rate. Restarts may differ, so the
//! estimate rests on them: the fit gives one capacity per restart, and the interval is Student's
//! over restarts, as for any other level ([`crate::level`]). The ratio of two servers is computed
//! over pairs of restarts ([`crate::effect`]).
//!
//! # The search
//!
//! First the rate is bracketed between a trial that met the goal and one that did not. Then trials
//! alternate between both sides of the present estimate, close to it, where a trial tells most
//! about the point at which the curve crosses one half (Wu, "Efficient sequential designs with
//! binary data", JASA 80, 1985).

mod curve;

use crate::compare::Mean;
use crate::reading::ByRestart;
pub use curve::Trial;
use curve::{Curve, border};

/// How far the trials of a search lie from its estimate on the scale of the curve, in turn. Trials
/// at several distances show how steep the curve is.
const DISTANCES: [f64; 3] = [1.5, 1.0, 0.5];

/// How far they lie from it, as a logarithm of the rate: at least this much, so that they tell the
/// two sides apart, and at most that much.
const STEP: (f64, f64) = (0.004, 0.08);

/// The bracket in which the curve takes over from bisection: an upper end at most this many times
/// the lower one.
const BRACKET: f64 = 1.2;

/// At the sustained rate, this many times as many windows miss the goal as the goal permits
/// requests to miss it: 10% of the windows for p99, 1% for p99.9. Misses come in bursts, so a few
/// windows have most of the misses. In simulated queues, all windows together are then at the goal
/// (docs/evidence.md, *Capacity*).
const BURSTS: f64 = 10.0;

/// The largest share of windows that miss the goal at the sustained rate, as for a median: all
/// windows have about as many misses.
const HALF: f64 = 0.5;

/// The capacity by restart.
#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    curve: Curve,
    /// The sustained rate as a share of the rate at even odds, as a logarithm.
    log_share: f64,
}

/// Which side of the present estimate to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A lower rate.
    Below,
    /// A higher rate.
    Above,
}

impl Capacity {
    /// Fits the curve. `None` unless the trials bracket it: lower rates met the goal, higher ones
    /// did not.
    pub fn fit(trials: &[Trial], share: f64) -> Option<Self> {
        let (curve, missed) = (Curve::fit(trials)?, (BURSTS * share).clamp(f64::EPSILON, HALF));
        let log_share = -((1.0 - missed) / missed).ln() / curve.slope;
        Some(Self { curve, log_share })
    }

    /// The logarithm of the sustained rate, by restart.
    pub fn logs(&self) -> ByRestart {
        let log = |(restart, log): (&u32, &f64)| (*restart, log + self.log_share);
        self.curve.by_restart.iter().map(log).collect()
    }

    /// The rate at which the goal is met for long, in requests/s: where the curve has few enough
    /// windows that miss the goal (docs/evidence.md, *Capacity*). The geometric mean over restarts.
    pub fn sustained(&self) -> f64 {
        (self.curve.log_rate + self.log_share).exp()
    }

    /// The standard error that the error of the slope adds to the sustained rate, as a logarithm.
    pub fn error(&self) -> f64 {
        -self.log_share * self.curve.slope_error
    }

    /// The mean logarithm of the sustained rate over restarts.
    pub fn mean(&self) -> Option<Mean> {
        Some(Mean::of(self.logs())?.minus(&Mean::known(0.0, self.error())))
    }
}

/// The rate of the next trial of a server, in requests/s. `first` is a guess from which the search
/// begins, and `side` the side of the estimate to try once there is one.
pub fn next_rate(trials: &[Trial], first: f64, side: Side) -> f64 {
    match border(trials) {
        (None, None) => first,
        (Some(kept), None) => kept * 1.4,
        (None, Some(missed)) => missed / 2.0,
        (Some(kept), Some(missed)) => match Curve::fit(trials) {
            Some(curve) if missed <= kept * BRACKET => {
                let distance = DISTANCES[trials.len() / 2 % DISTANCES.len()];
                let step = (distance / curve.slope).clamp(STEP.0, STEP.1);
                (curve.latest + if side == Side::Above { step } else { -step }).exp()
            }
            _ => (kept * missed).sqrt(),
        },
    }
}

/// Whether a search has found a rate that meets the goal and one that does not, close to each
/// other.
pub fn is_bracketed(trials: &[Trial]) -> bool {
    matches!(border(trials), (Some(kept), Some(missed)) if missed <= kept * BRACKET)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(rate: f64) -> Trial {
        Trial { restart: 0, rate, is_kept: true }
    }

    fn missed(rate: f64) -> Trial {
        Trial { restart: 0, rate, is_kept: false }
    }

    /// Trials of a restart around this capacity, as a curve with a slope of 20 to 40 gives them.
    fn restart(restart: u32, capacity: f64) -> Vec<Trial> {
        let trial = |&(relative, is_kept): &(f64, bool)| Trial {
            restart,
            rate: capacity * relative,
            is_kept,
        };
        let tried = [
            (0.93, true),
            (0.95, true),
            (0.97, false),
            (0.98, true),
            (1.02, false),
            (1.03, true),
            (1.05, false),
            (1.07, false),
        ];
        tried.iter().map(trial).collect()
    }

    /// Distances of 1.5, 1 and 0.5 slopes follow one another, the same on both sides.
    #[test]
    fn trials_lie_at_changing_distances_on_both_sides_of_the_curve() {
        let mut trials = restart(0, 1_000.0);
        let mut distances = Vec::new();
        for _ in 0..4 {
            let curve = Curve::fit(&trials).unwrap();
            let of = |side| (next_rate(&trials, 1.0, side).ln() - curve.latest) * curve.slope;
            assert!((of(Side::Above) + of(Side::Below)).abs() < 1e-9);
            distances.push((of(Side::Above) * 1e6).round() / 1e6);
            trials.extend([kept(900.0), missed(1_100.0)]);
        }
        assert_eq!(distances, [1.0, 0.5, 1.5, 1.0]);
        // The second trial of a round is as far away as the first.
        let odd = [restart(0, 1_000.0), vec![kept(900.0)]].concat();
        let curve = Curve::fit(&odd).unwrap();
        let above = (next_rate(&odd, 1.0, Side::Above).ln() - curve.latest) * curve.slope;
        assert!((above - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_capacity_lies_where_as_many_windows_keep_the_goal_as_miss_it() {
        let trials: Vec<Trial> = (0..5).flat_map(|n| restart(n, 1_000.0)).collect();
        let fit = Capacity::fit(&trials, 0.01).unwrap();
        let rate = fit.curve.log_rate.exp();
        assert!((rate / 1_000.0 - 1.0).abs() < 5e-3, "{fit:?}");
        assert!((20.0..60.0).contains(&fit.curve.slope), "{fit:?}");
        assert_eq!(fit.logs().len(), 5);
        let sustained = fit.sustained();
        assert!((sustained / rate - (-(9.0_f64.ln()) / fit.curve.slope).exp()).abs() < 1e-12);
        let mean = fit.logs().values().sum::<f64>() / 5.0;
        assert!(sustained < rate && (mean.exp() / sustained - 1.0).abs() < 1e-9);
    }

    #[test]
    fn each_restart_has_its_own_capacity() {
        let steep = |restart: u32, capacity: f64| {
            [0.98, 0.99, 0.995, 1.005, 1.01, 1.02].map(|x| Trial {
                restart,
                rate: capacity * x,
                is_kept: x < 1.0,
            })
        };
        let all = [(0, 980.0), (1, 1_000.0), (5, 1_020.0)];
        let trials: Vec<Trial> = all.into_iter().flat_map(|(n, c)| steep(n, c)).collect();
        let fit = Capacity::fit(&trials, 0.01).unwrap();
        let logs = fit.logs();
        for ((own, log), (restart, rate)) in logs.iter().zip(all) {
            assert_eq!(*own, restart);
            let crossing = (log - fit.log_share).exp();
            assert!((crossing / rate - 1.0).abs() < 5e-3, "{logs:?}");
        }
    }

    #[test]
    fn without_trials_on_both_sides_there_is_no_capacity() {
        assert_eq!(Capacity::fit(&[], 0.01), None);
        assert_eq!(Capacity::fit(&[kept(10.0), kept(20.0)], 0.01), None);
        assert_eq!(Capacity::fit(&[missed(10.0)], 0.01), None);
        assert!(Capacity::fit(&[kept(10.0), missed(20.0)], 0.01).is_some());
    }

    #[test]
    fn a_search_brackets_the_capacity_first() {
        let next = |trials: &[Trial]| next_rate(trials, 100.0, Side::Above);
        assert_eq!(next(&[]), 100.0);
        assert_eq!(next(&[kept(100.0)]), 140.0);
        assert_eq!(next(&[missed(100.0)]), 50.0);
        assert_eq!(next(&[missed(100.0), kept(25.0)]), 50.0);
        assert!(!is_bracketed(&[missed(100.0), kept(25.0)]));
        assert!(is_bracketed(&[missed(100.0), kept(84.0)]));
    }

    #[test]
    fn a_search_then_tries_both_sides_of_the_estimate() {
        let trials = restart(0, 100.0);
        let (below, above) =
            (next_rate(&trials, 1.0, Side::Below), next_rate(&trials, 1.0, Side::Above));
        assert!(
            (92.0..99.0).contains(&below) && (101.0..108.0).contains(&above),
            "{below} {above}"
        );
    }

    /// Otherwise one disturbed window at a low rate would keep the search there.
    #[test]
    fn a_single_miss_at_a_low_rate_does_not_hold_the_search_back() {
        let trials = [missed(50.0), kept(60.0), kept(70.0), kept(98.0), missed(110.0)];
        let rate = next_rate(&trials, 1.0, Side::Above);
        assert!((89.0..=125.0).contains(&rate), "{rate}");
        let all_kept_but_one = [kept(25.0), missed(50.0), kept(51.0), kept(52.0)];
        let rate = next_rate(&all_kept_but_one, 1.0, Side::Above);
        assert!((rate - 52.0 * 1.4).abs() < 1e-9, "{rate}");
    }

    proptest! {
        #[test]
        fn a_fit_and_the_next_rate_are_always_positive_and_finite(
            tried in prop::collection::vec((1.0..1e5_f64, any::<bool>(), 0..4u32), 0..30),
        ) {
            let trial = |(rate, is_kept, restart)| Trial { restart, rate, is_kept };
            let trials: Vec<Trial> = tried.into_iter().map(trial).collect();
            if let Some(fit) = Capacity::fit(&trials, 0.01) {
                let rate = fit.curve.log_rate.exp();
                prop_assert!(rate.is_finite() && rate > 0.0);
                prop_assert!(fit.curve.slope.is_finite() && fit.curve.slope > 0.0);
            }
            for side in [Side::Below, Side::Above] {
                let rate = next_rate(&trials, 10.0, side);
                prop_assert!(rate.is_finite() && rate > 0.0);
            }
        }
    }
}
