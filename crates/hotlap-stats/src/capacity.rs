//! Finds the highest rate at which a server meets a goal, such as "99 of 100 requests take less
//! than 10 ms".
//!
//! A [`Trial`] is a window at one rate, in which the goal was met or missed. Near the limit of a
//! server, windows at the same rate may meet or miss the goal, because requests queue up in bursts.
//! A window at each rate therefore meets the goal with some probability. At the rate of even odds,
//! far too many requests of a minute miss the goal, so the capacity is a lower rate
//! ([`Capacity::sustained`]). No single trial is trusted: [`Capacity::fit`] fits a curve through
//! all trials, and [`next_rate`] chooses the rate of the next trial.
//!
//! The share of requests that missed the goal says more than whether a window met it, but this
//! share is not used. The share varies a hundredfold from window to window, and its mean rests on
//! the few windows with a burst (docs/evidence.md, *Capacity*).
//!
//! # The curve
//!
//! The curve is a logistic regression of misses on the logarithm of the rate. Restarts may differ,
//! so the fit gives one capacity per restart. The interval is Student's over restarts, as for any
//! other level ([`crate::level`]). The error of the slope widens the interval. The ratio of two
//! servers is computed over pairs of restarts ([`crate::effect`]).
//!
//! # The search
//!
//! The search first brackets the rate between a trial that met the goal and a trial that missed it.
//! Trials then alternate between both sides of the present estimate. Close to the estimate, a trial
//! tells most about the point at which the curve crosses one half (Wu, "Efficient sequential
//! designs with binary data", JASA 80, 1985).

mod curve;

use crate::compare::Mean;
use crate::reading::ByRestart;
pub use curve::Trial;
use curve::{Curve, border};

/// The distances of successive trials from the estimate, on the scale of the curve. Trials at
/// several distances show how steep the curve is.
const DISTANCES: [f64; 3] = [1.5, 1.0, 0.5];

/// The smallest and largest distance of a trial from the estimate, as a logarithm of the rate.
/// Closer trials would not tell the two sides apart.
const STEP: (f64, f64) = (0.004, 0.08);

/// The curve takes over from bisection once the upper end of the bracket is at most this many times
/// the lower end.
const BRACKET: f64 = 1.2;

/// The share of windows that miss the goal at the sustained rate, as a multiple of the share of
/// requests that may miss it. For p99, 10% of the windows miss the goal, and for p99.9, 1%. Misses
/// come in bursts, so a few windows have most of the misses. In simulated queues, all windows
/// together then just meet the goal (docs/evidence.md, *Capacity*).
const BURSTS: f64 = 10.0;

/// The largest share of windows that may miss the goal at the sustained rate. A goal for the median
/// reaches this share, because all windows have a similar number of misses.
const HALF: f64 = 0.5;

/// The capacity of a server, by restart.
#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    curve: Curve,
    /// The logarithm of the sustained rate divided by the rate at even odds.
    log_share: f64,
}

/// The side of the present estimate to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A lower rate.
    Below,
    /// A higher rate.
    Above,
}

impl Capacity {
    /// Fits the curve for a goal that permits this share of misses. `None` unless lower rates met
    /// the goal and higher rates missed it.
    pub fn fit(trials: &[Trial], share: f64) -> Option<Self> {
        let (curve, missed) = (Curve::fit(trials)?, (BURSTS * share).clamp(f64::EPSILON, HALF));
        let log_share = -((1.0 - missed) / missed).ln() / curve.slope;
        Some(Self { curve, log_share })
    }

    /// Returns the logarithm of the sustained rate, by restart.
    pub fn logs(&self) -> ByRestart {
        let log = |(restart, log): (&u32, &f64)| (*restart, log + self.log_share);
        self.curve.by_restart.iter().map(log).collect()
    }

    /// Returns the rate at which the goal is met in the long run, in requests/s, as the geometric
    /// mean over restarts. At this rate, few enough windows miss the goal according to the curve
    /// (docs/evidence.md, *Capacity*).
    pub fn sustained(&self) -> f64 {
        (self.curve.log_rate + self.log_share).exp()
    }

    /// Returns the standard error that the error of the slope adds to the logarithm of the
    /// sustained rate.
    pub fn error(&self) -> f64 {
        -self.log_share * self.curve.slope_error
    }

    /// Returns the mean logarithm of the sustained rate over restarts. Its error includes the
    /// error of the slope.
    pub fn mean(&self) -> Option<Mean> {
        Some(Mean::of(self.logs())?.minus(&Mean::known(0.0, self.error())))
    }
}

/// Returns the rate of the next trial of a server, in requests/s. The search begins with the guess
/// `first`. Once there is an estimate, `side` is the side of it to try.
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

/// Returns whether a search has found a rate that meets the goal and a rate that misses it, close
/// to each other.
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

    /// Returns trials of a restart around this capacity, as a curve with a slope of 20 to 40 would
    /// give.
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

    /// The distances cycle through 1.5, 1 and 0.5 on the scale of the curve. Both sides have the
    /// same distance.
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
        // The second trial of a round is as far from the estimate as the first.
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

    /// One disturbed window at a low rate must not keep the search at low rates.
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
