//! The highest rate at which a server keeps a goal, such as "at most 1 % of requests take longer
//! than 10 ms".
//!
//! A [`Trial`] is a window at one rate, with the number of requests that missed the goal. The share
//! of misses grows with the rate; the capacity is the rate at which it equals the share that the
//! goal allows. No trial is trusted by itself: [`Capacity::fit`] fits a curve through the trials
//! around that rate, and [`next_rate`] chooses the rate of the next one.
//!
//! # The curve
//!
//! Near the capacity, the logarithm of the odds of a miss is linear in the logarithm of the rate: a
//! logistic regression. In queues with Poisson arrivals, the share of requests that wait longer
//! than t falls exponentially with t, at a speed that depends smoothly on the rate (Kleinrock,
//! "Queueing Systems, Volume II", 1976, section 2.1; Asmussen, "Applied Probability and Queues",
//! 2nd edition, chapter XIII), so the line fits locally and only there. Trials far from the
//! capacity are left out ([`LOCAL`]).
//!
//! All trials share one slope, and each restart has its own intercept, so each restart gives one
//! capacity. Misses come in bursts, so their binomial variance means nothing here: the interval is
//! computed over restarts, as for any other level ([`crate::level`]), and the ratio of two servers
//! over pairs of restarts ([`crate::effect`]).
//!
//! # The search
//!
//! First the rate is bracketed between a trial that kept the goal and one that did not. Then trials
//! alternate between both sides of the present estimate, one unit of the logistic curve away from
//! it, where a trial tells most about the point at which the curve crosses the goal (Wu, "Efficient
//! sequential designs with binary data", JASA 80, 1985).

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::Reading;

/// One window at a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The restart that the window belongs to.
    pub restart: u32,
    /// Offered rate, in requests/s.
    pub rate: f64,
    /// Requests.
    pub requests: f64,
    /// Requests that missed the goal.
    pub missed: f64,
}

/// The trials of one goal.
#[derive(Debug, Clone, PartialEq)]
pub struct GoalTrials {
    /// The share of requests that may miss the goal, above 0 and below 1.
    pub share: f64,
    /// The trials.
    pub trials: Vec<Trial>,
}

/// Trials count if the fitted odds of a miss differ from the allowed odds by at most this, as a
/// logarithm: between a twelfth and twelve times the allowed odds.
const LOCAL: f64 = 2.5;

/// The slopes of the curve that are possible. With the lower one, twice the rate has four times the
/// misses, as if the rate hardly mattered. With the upper one, a rate that is 1 % too high is
/// overload: the queue of a server with constant service time, and a goal of 100 service times, has
/// about 500.
const SLOPES: (f64, f64) = (2.0, 2_000.0);

/// Each restart is pulled towards the common estimate by an imaginary trial with half of a miss, so
/// that a restart without any miss has an estimate too.
const IMAGINARY_MISSES: f64 = 0.5;

/// How far the trials of a search lie from its estimate, as a logarithm of the rate: at least this
/// much, so that they tell the two sides apart, and at most that much.
const STEP: (f64, f64) = (0.005, 0.15);

/// The bracket in which the curve takes over from bisection: an upper end at most this many times
/// the lower one.
const BRACKET: f64 = 1.2;

/// How far outside of the bracket the estimate may lie, as a factor. A curve through few trials can
/// be far off.
const LARGEST_MOVE: f64 = 1.1;

/// The rate at which the share of misses equals the allowed share, by restart.
#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    /// ln(odds of a miss) grows by this much per ln(rate).
    pub slope: f64,
    /// ln(rate) by restart.
    by_restart: BTreeMap<u32, f64>,
}

/// Which side of the present estimate to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A lower rate.
    Below,
    /// A higher rate.
    Above,
}

impl GoalTrials {
    /// Whether a trial kept the goal.
    fn is_kept(&self, trial: &Trial) -> bool {
        trial.missed <= self.share * trial.requests
    }

    /// The trials with any request.
    fn usable(&self) -> Vec<Trial> {
        let usable = |t: &&Trial| t.requests > 0.0 && t.rate > 0.0 && t.missed <= t.requests;
        self.trials.iter().filter(usable).copied().collect()
    }
}

impl Capacity {
    /// Fits the curve. `None` unless the trials bracket it: lower rates kept the goal, higher ones
    /// did not.
    #[must_use]
    pub fn fit(goal: &GoalTrials) -> Option<Self> {
        let trials = goal.usable();
        let target = log_odds(goal.share);
        let restarts: BTreeSet<u32> = trials.iter().map(|t| t.restart).collect();
        let (rates, below) = border(trials.iter().map(|t| (t.rate, goal.is_kept(t))).collect());
        let start = (rates.get(below.checked_sub(1)?)? * rates.get(below)?).sqrt().ln();
        let mut fitted = Self {
            slope: start_slope(goal, &trials, start).clamp(SLOPES.0, SLOPES.1),
            by_restart: restarts.iter().map(|restart| (*restart, start)).collect(),
        };
        let mut selected = Vec::new();
        // Usually three to five steps; trials at the edge may enter and leave forever.
        for _ in 0..12 {
            let local = fitted.local(&trials);
            if local == selected {
                break;
            }
            fitted = fitted.refit(&local, target);
            selected = local;
        }
        Some(fitted)
    }

    /// The capacity of each restart, as readings of one round.
    #[must_use]
    pub fn readings(&self) -> Vec<Reading> {
        let reading = |(restart, log): (&u32, &f64)| Reading {
            restart: *restart,
            round: 0,
            value: log.exp(),
        };
        self.by_restart.iter().map(reading).collect()
    }

    /// The geometric mean over restarts, in requests/s.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.log_rate().exp()
    }

    fn log_rate(&self) -> f64 {
        self.by_restart.values().sum::<f64>() / self.by_restart.len().max(1) as f64
    }

    /// The odds of a miss at a trial's rate relative to the allowed odds, as a logarithm.
    fn excess(&self, trial: &Trial) -> f64 {
        self.slope * (trial.rate.ln() - self.by_restart[&trial.restart])
    }

    /// The trials near the capacity; if there are only one or two on a side, the nearest two.
    fn local(&self, trials: &[Trial]) -> Vec<Trial> {
        let nearest = |is_above: bool| {
            let mut distances: Vec<f64> = trials
                .iter()
                .map(|t| self.excess(t))
                .filter(|excess| (*excess > 0.0) == is_above)
                .map(f64::abs)
                .collect();
            distances.sort_by(f64::total_cmp);
            distances.get(1).or(distances.first()).copied().unwrap_or(0.0)
        };
        let (below, above) = (LOCAL.max(nearest(false)), LOCAL.max(nearest(true)));
        let is_local = |t: &&Trial| (-below..=above).contains(&self.excess(t));
        trials.iter().filter(is_local).copied().collect()
    }

    /// The maximum-likelihood fit to these trials. The profile likelihood is concave in the slope,
    /// so its derivative has one root.
    fn refit(&self, trials: &[Trial], target: f64) -> Self {
        let centre = self.log_rate();
        let at = |slope: f64| -> BTreeMap<u32, f64> {
            let of = |restart: &u32| (*restart, crossing(trials, *restart, slope, target, centre));
            self.by_restart.keys().map(of).collect()
        };
        let derivative = |slope: f64| -> f64 {
            let by_restart = at(slope);
            let of = |t: &Trial| {
                let distance = t.rate.ln() - by_restart[&t.restart];
                distance * (t.missed - t.requests * share(target + slope * distance))
            };
            trials.iter().map(of).sum()
        };
        let slope = root(SLOPES.0.ln(), SLOPES.1.ln(), |log| derivative(log.exp())).exp();
        Self { slope, by_restart: at(slope) }
    }
}

/// ln(rate) at which a restart's curve of this slope crosses the goal.
fn crossing(trials: &[Trial], restart: u32, slope: f64, target: f64, centre: f64) -> f64 {
    let own: Vec<&Trial> = trials.iter().filter(|t| t.restart == restart).collect();
    let allowed = share(target);
    let surplus = |log: f64| -> f64 {
        let of = |t: &&Trial| t.missed - t.requests * share(target + slope * (t.rate.ln() - log));
        let imaginary = IMAGINARY_MISSES * (1.0 - share(target + slope * (centre - log)) / allowed);
        own.iter().map(of).sum::<f64>() + imaginary
    };
    // A higher crossing predicts fewer misses.
    let rates = own.iter().map(|t| t.rate.ln()).chain([centre]);
    let (low, high) =
        rates.fold((f64::MAX, f64::MIN), |(low, high), log| (low.min(log), high.max(log)));
    root(low - 3.0, high + 3.0, |log| -surplus(log))
}

/// The point at which a decreasing function crosses 0, within a range; the nearer end if it does
/// not.
fn root(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    // Halved 32 times, a range of 10 is known to 10⁻⁸.
    for _ in 0..32 {
        let middle = f64::midpoint(low, high);
        if function(middle) > 0.0 { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// Rates with whether the goal was kept, in order of the rate, and how many of them lie below the
/// border that best separates those that kept it from those that did not. Single trials may be
/// wrong, so the border is where fewest are on the wrong side.
fn border(mut tried: Vec<(f64, bool)>) -> (Vec<f64>, usize) {
    tried.sort_by(|a, b| a.0.total_cmp(&b.0));
    // With all of them above the border, those that kept the goal are on the wrong side.
    let mut wrong = tried.iter().filter(|(_, is_kept)| *is_kept).count() as i64;
    let mut best = (wrong, 0);
    for (place, (_, is_kept)) in tried.iter().enumerate() {
        wrong += if *is_kept { -1 } else { 1 };
        if wrong < best.0 {
            best = (wrong, place + 1);
        }
    }
    (tried.into_iter().map(|(rate, _)| rate).collect(), best.1)
}

/// A first slope: that between the nearest trial on each side of the border.
fn start_slope(goal: &GoalTrials, trials: &[Trial], border: f64) -> f64 {
    let nearest = |is_above: bool| {
        let side = trials.iter().filter(|t| (t.rate.ln() > border) == is_above);
        side.min_by(|a, b| (a.rate.ln() - border).abs().total_cmp(&(b.rate.ln() - border).abs()))
    };
    let (Some(below), Some(above)) = (nearest(false), nearest(true)) else { return SLOPES.0 };
    let odds = |t: &Trial| log_odds((t.missed + 0.5 * goal.share) / (t.requests + 0.5));
    (odds(above) - odds(below)) / (above.rate.ln() - below.rate.ln()).max(1e-6)
}

fn log_odds(share: f64) -> f64 {
    let share = share.clamp(1e-12, 1.0 - 1e-12);
    (share / (1.0 - share)).ln()
}

fn share(log_odds: f64) -> f64 {
    1.0 / (1.0 + (-log_odds).exp())
}

/// The rate of the next trial of a server, in requests/s. `first` is a guess from which the search
/// begins, and `side` the side of the estimate to try once there is one. With several goals, the
/// one that is missed at the lowest rate decides.
#[must_use]
pub fn next_rate(goals: &[GoalTrials], first: f64, side: Side) -> f64 {
    let (kept, missed) = bracket(goals);
    match (kept, missed) {
        (None, None) => first,
        (Some(kept), None) => kept * 1.4,
        (None, Some(missed)) => missed / 2.0,
        (Some(kept), Some(missed)) if missed > kept * BRACKET => (kept * missed).sqrt(),
        (Some(kept), Some(missed)) => {
            let fits = goals.iter().filter_map(Capacity::fit).map(|fit| (fit.rate(), fit.slope));
            let lowest = fits.min_by(|a, b| a.0.total_cmp(&b.0));
            let (rate, slope) = lowest.unwrap_or(((kept * missed).sqrt(), SLOPES.0));
            let step = (1.0 / slope).clamp(STEP.0, STEP.1);
            let step = if side == Side::Above { step } else { -step };
            rate.clamp(kept / LARGEST_MOVE, missed * LARGEST_MOVE) * step.exp()
        }
    }
}

/// The neighbours of the border between rates at which all goals were kept and others: the highest
/// rate below it, and the lowest above it.
fn bracket(goals: &[GoalTrials]) -> (Option<f64>, Option<f64>) {
    // A window is a trial of each goal, so the trials of all goals are in the same order.
    let mut tried: Vec<(f64, bool)> = Vec::new();
    for goal in goals {
        for (place, trial) in goal.trials.iter().enumerate() {
            let is_kept = goal.is_kept(trial);
            match tried.get_mut(place) {
                Some((_, all)) => *all &= is_kept,
                None => tried.push((trial.rate, is_kept)),
            }
        }
    }
    let (rates, below) = border(tried);
    (below.checked_sub(1).map(|last| rates[last]), rates.get(below).copied())
}

/// Whether a search has found a rate that keeps all goals and one that does not, close to each
/// other.
#[must_use]
pub fn is_bracketed(goals: &[GoalTrials]) -> bool {
    matches!(bracket(goals), (Some(kept), Some(missed)) if missed <= kept * BRACKET)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A trial of 10,000 requests on a curve of this slope that crosses 1 % at this rate.
    fn on_curve(restart: u32, rate: f64, (slope, crossing): (f64, f64)) -> Trial {
        let missed = 10_000.0 * share(log_odds(0.01) + slope * (rate / crossing).ln());
        Trial { restart, rate, requests: 10_000.0, missed }
    }

    fn goal(trials: Vec<Trial>) -> GoalTrials {
        GoalTrials { share: 0.01, trials }
    }

    fn kept(rate: f64) -> Trial {
        Trial { restart: 0, rate, requests: 1_000.0, missed: 10.0 }
    }

    fn missed(rate: f64) -> Trial {
        Trial { restart: 0, rate, requests: 1_000.0, missed: 11.0 }
    }

    #[test]
    fn trials_on_a_curve_give_back_its_slope_and_where_it_crosses_the_goal() {
        for curve in [(8.0, 1_000.0), (60.0, 20_000.0), (700.0, 50.0)] {
            let rates =
                [-1.5, -1.0, -0.5, 0.5, 1.0, 1.5].map(|x: f64| curve.1 * (x / curve.0).exp());
            let trials = (0..3).flat_map(|r| rates.map(|rate| on_curve(r, rate, curve))).collect();
            let fit = Capacity::fit(&goal(trials)).unwrap();
            assert!((fit.rate() / curve.1 - 1.0).abs() < 1e-3, "{fit:?}");
            assert!((fit.slope / curve.0 - 1.0).abs() < 0.02, "{fit:?}");
            assert_eq!(fit.readings().len(), 3);
        }
    }

    #[test]
    fn each_restart_has_its_own_capacity() {
        let rates = [0.97, 0.99, 1.01, 1.03].map(|x| 1_000.0 * x);
        let trials = |(restart, crossing)| rates.map(|r| on_curve(restart, r, (50.0, crossing)));
        let all = [(0, 980.0), (1, 1_000.0), (5, 1_020.0)].into_iter().flat_map(trials).collect();
        let readings = Capacity::fit(&goal(all)).unwrap().readings();
        let expected = [(0, 980.0), (1, 1_000.0), (5, 1_020.0)];
        for (reading, (restart, rate)) in readings.iter().zip(expected) {
            assert_eq!((reading.restart, reading.round), (restart, 0));
            assert!((reading.value / rate - 1.0).abs() < 2e-3, "{readings:?}");
        }
    }

    /// Far from the capacity, the curve of a queue is not the line that fits near it.
    #[test]
    fn trials_far_from_the_capacity_do_not_bend_the_curve() {
        let rates = [0.96, 0.98, 1.02, 1.04].map(|x| 1_000.0 * x);
        let near: Vec<Trial> = rates.map(|rate| on_curve(0, rate, (40.0, 1_000.0))).into();
        let mut with_far = near.clone();
        with_far.push(Trial { missed: 9_900.0, ..on_curve(0, 1_100.0, (40.0, 1_000.0)) });
        with_far.push(Trial { missed: 0.0, ..on_curve(0, 300.0, (40.0, 1_000.0)) });
        let (near, far) = (Capacity::fit(&goal(near)), Capacity::fit(&goal(with_far)));
        assert_eq!(near, far);
    }

    #[test]
    fn without_trials_on_both_sides_there_is_no_capacity() {
        assert_eq!(Capacity::fit(&goal(Vec::new())), None);
        assert_eq!(Capacity::fit(&goal(vec![kept(10.0), kept(20.0)])), None);
        assert_eq!(Capacity::fit(&goal(vec![missed(10.0)])), None);
        assert!(Capacity::fit(&goal(vec![kept(10.0), missed(20.0)])).is_some());
        // A window without a request says nothing.
        let empty = Trial { requests: 0.0, missed: 0.0, ..missed(20.0) };
        assert_eq!(Capacity::fit(&goal(vec![kept(10.0), empty])), None);
    }

    #[test]
    fn a_restart_without_a_miss_is_near_the_others() {
        let curve = (20.0, 1_000.0);
        let mut trials: Vec<Trial> = [900.0, 1_100.0].map(|rate| on_curve(0, rate, curve)).into();
        trials.push(Trial { missed: 0.0, ..on_curve(1, 1_000.0, curve) });
        let readings = Capacity::fit(&goal(trials)).unwrap().readings();
        let (first, second) = (readings[0].value, readings[1].value);
        assert!(second > first && second < 1.5 * first, "{readings:?}");
    }

    #[test]
    fn a_search_brackets_the_capacity_first() {
        let next = |trials| next_rate(&[goal(trials)], 100.0, Side::Above);
        assert_eq!(next(vec![]), 100.0);
        assert_eq!(next(vec![kept(100.0)]), 140.0);
        assert_eq!(next(vec![missed(100.0)]), 50.0);
        assert_eq!(next(vec![missed(100.0), kept(25.0)]), 50.0);
        assert!(!is_bracketed(&[goal(vec![missed(100.0), kept(25.0)])]));
        assert!(is_bracketed(&[goal(vec![missed(100.0), kept(84.0)])]));
    }

    #[test]
    fn a_search_then_tries_both_sides_of_the_estimate() {
        let curve = (20.0, 100.0);
        let trials: Vec<Trial> =
            [92.0, 96.0, 104.0, 108.0].map(|rate| on_curve(0, rate, curve)).into();
        let next = |side| next_rate(&[goal(trials.clone())], 1.0, side);
        assert!((next(Side::Above) / (100.0 * 0.05_f64.exp()) - 1.0).abs() < 5e-3);
        assert!((next(Side::Below) / (100.0 * (-0.05_f64).exp()) - 1.0).abs() < 5e-3);
    }

    /// Otherwise one disturbed window at a low rate would keep the search there.
    #[test]
    fn a_single_miss_at_a_low_rate_does_not_hold_the_search_back() {
        let trials = vec![missed(50.0), kept(60.0), kept(70.0), kept(98.0), missed(110.0)];
        let rate = next_rate(&[goal(trials)], 1.0, Side::Above);
        assert!((89.0..=121.0).contains(&rate), "{rate}");
        let all_kept_but_one = vec![kept(25.0), missed(50.0), kept(51.0), kept(52.0)];
        let rate = next_rate(&[goal(all_kept_but_one)], 1.0, Side::Above);
        assert!((rate - 52.0 * 1.4).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn of_several_goals_the_one_that_is_missed_first_decides() {
        let goals = [
            goal(vec![kept(100.0), missed(200.0)]),
            GoalTrials { share: 0.5, trials: vec![kept(100.0), kept(200.0)] },
        ];
        assert_eq!(next_rate(&goals, 1.0, Side::Below), (100.0_f64 * 200.0).sqrt());
        assert!(!is_bracketed(&goals));
    }

    proptest! {
        #[test]
        fn a_fit_and_the_next_rate_are_always_positive_and_finite(
            tried in prop::collection::vec((1.0..1e5_f64, 0.0..1.0_f64, 0..4u32), 0..30),
        ) {
            let trial = |(rate, share, restart): (f64, f64, u32)| {
                Trial { restart, rate, requests: 1_000.0, missed: (1_000.0 * share.powi(4)).round() }
            };
            let goal = goal(tried.into_iter().map(trial).collect());
            if let Some(fit) = Capacity::fit(&goal) {
                prop_assert!(fit.rate().is_finite() && fit.rate() > 0.0);
                prop_assert!((SLOPES.0 * 0.99..=SLOPES.1 * 1.01).contains(&fit.slope));
            }
            for side in [Side::Below, Side::Above] {
                let rate = next_rate(std::slice::from_ref(&goal), 10.0, side);
                prop_assert!(rate.is_finite() && rate > 0.0);
            }
        }
    }
}
