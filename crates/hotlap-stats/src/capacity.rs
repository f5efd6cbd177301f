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
//! The trials of all restarts are fitted together, because the few bursts of one restart would give
//! a capacity that is too high on average: the logarithm of a noisy share is too low. Each restart
//! gets the jackknife's pseudo-value, what the estimate owes to it (Tukey, 1958; Miller, "The
//! jackknife", Biometrika 61, 1974). The interval is Student's over them, as for any other level
//! ([`crate::level`]), and the ratio of two servers is computed over pairs ([`crate::effect`]).
//!
//! # The search
//!
//! First the rate is bracketed between a trial that kept the goal and one that did not. Then trials
//! alternate between both sides of the present estimate, close to it, where a trial tells most about the point at which the curve crosses the goal (Wu, "Efficient
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

/// How many independent misses a trial at the capacity is worth, however many it has: misses come
/// in bursts, one burst for each time that the queue is long. With the number of requests in its
/// place, the noise of single windows would look like a steep curve.
const INDEPENDENT: f64 = 0.3;

/// The prior of the slope: its median, and the standard deviation of its logarithm. A queue with
/// constant service time and a goal of 10 service times has a slope of 17, one of 20 has 38, one of
/// 200 has 400; without a prior, few trials give any slope, and steps that are far too small.
const PRIOR: (f64, f64) = (12.0, 1.2);

/// The slopes of the curve that are possible. With the lower one, twice the rate has four times the
/// misses, as if the rate hardly mattered. With the upper one, a rate that is 1 % too high is
/// overload: the queue of a server with constant service time, and a goal of 100 service times, has
/// about 500.
const SLOPES: (f64, f64) = (2.0, 2_000.0);

/// How much the capacities of restarts differ, as a standard deviation of their logarithms: between
/// these two. Where the curve is steep, each restart shows its own capacity; where it is flat, the
/// bursts of a single restart say little, and all of them are taken together.
const RESTARTS_DIFFER: (f64, f64) = (0.001, 0.05);

/// Trials count if their rates differ from a first estimate by at most this, as a logarithm. Over a
/// wider range, the curve of a queue bends.
const NEAR: f64 = 0.15;

/// Trials count if their fitted odds differ from the allowed odds by at most this, as a logarithm.
/// Those further away, which the beginning of a search has on one side only, would move the
/// estimate if the slope is not known well.
const LOCAL: f64 = 2.5;

/// How far the trials of a search lie from its estimate on the scale of the curve: at about a third
/// of and three times the allowed odds.
const DISTANCES: [f64; 3] = [2.0, 1.0, 0.5];

/// How far the trials of a search lie from its estimate, as a logarithm of the rate: at least this
/// much, so that they tell the two sides apart, and at most that much.
const STEP: (f64, f64) = (0.005, 0.08);

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

impl Trial {
    fn share(&self) -> f64 {
        self.missed / self.requests
    }
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
        let curve = Curve::fit(goal, &trials)?;
        let restarts: BTreeSet<u32> = trials.iter().map(|t| t.restart).collect();
        let count = restarts.len() as f64;
        let pseudo_value = |restart: &u32| {
            let others: Vec<Trial> =
                trials.iter().filter(|t| t.restart != *restart).copied().collect();
            let without = Curve::fit(goal, &others).unwrap_or(curve);
            (*restart, count * curve.log_rate - (count - 1.0) * without.log_rate)
        };
        Some(Self { slope: curve.slope, by_restart: restarts.iter().map(pseudo_value).collect() })
    }

    /// The capacity by restart, as readings of one round.
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
        (self.by_restart.values().sum::<f64>() / self.by_restart.len().max(1) as f64).exp()
    }
}

/// A logistic curve: ln(odds of a miss) = ln(allowed odds) + slope × (ln(rate) − `log_rate`).
#[derive(Debug, Clone, Copy, PartialEq)]
struct Curve {
    slope: f64,
    log_rate: f64,
    /// How far the latest restart's crossing is from it.
    latest: f64,
}

impl Curve {
    /// Fits the curve to the trials near the capacity.
    fn fit(goal: &GoalTrials, trials: &[Trial]) -> Option<Self> {
        let target = log_odds(goal.share);
        let (rates, below) = border(trials.iter().map(|t| (t.rate, goal.is_kept(t))).collect());
        let is_bracketed = below > 0 && below < rates.len();
        let rough = is_bracketed.then(|| Self::regression(trials, target))?;
        Some(Self::regression(&rough.near(trials), target))
    }

    /// The trials near the capacity, and the nearest two on each side.
    fn near(&self, trials: &[Trial]) -> Vec<Trial> {
        let distance = |t: &Trial| t.rate.ln() - self.log_rate;
        let nearest = |is_above: bool| {
            let side = trials.iter().map(distance).filter(|d| (*d > 0.0) == is_above);
            let mut distances: Vec<f64> = side.map(f64::abs).collect();
            distances.sort_by(f64::total_cmp);
            distances.get(1).or(distances.first()).copied().unwrap_or(0.0)
        };
        let near = NEAR.min(LOCAL / self.slope);
        let (below, above) = (near.max(nearest(false)), near.max(nearest(true)));
        let is_near = |t: &&Trial| (-below..=above).contains(&distance(t));
        trials.iter().filter(is_near).copied().collect()
    }

    /// The logistic regression in which each trial counts as [`INDEPENDENT`] misses, with priors
    /// for the slope and for how much restarts differ.
    fn regression(trials: &[Trial], target: f64) -> Self {
        let mut restarts = BTreeMap::<u32, Vec<(f64, f64)>>::new();
        for trial in trials {
            let own = restarts.entry(trial.restart).or_default();
            own.push((trial.rate.ln(), trial.share()));
        }
        let restarts: Vec<Vec<(f64, f64)>> = restarts.into_values().collect();
        let fit = |differ: f64| Model::fit(&restarts, target, differ);
        let alike = fit(RESTARTS_DIFFER.0);
        // What restarts differ by, beyond what bursts explain.
        let crossing = alike.crossing();
        let loose = Model { differ: RESTARTS_DIFFER.1, ..alike };
        let shifts: Vec<f64> = restarts.iter().map(|own| loose.shift(own, crossing)).collect();
        let count = shifts.len() as f64;
        let mean = shifts.iter().sum::<f64>() / count;
        let variance =
            shifts.iter().map(|shift| (shift - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        let misses = INDEPENDENT * trials.len() as f64 / count;
        let explained = 1.0 / misses / alike.slope.powi(2);
        let differ = (variance - explained).max(0.0).sqrt();
        let model = fit(differ.clamp(RESTARTS_DIFFER.0, RESTARTS_DIFFER.1));
        let log_rate = model.crossing();
        let latest = restarts.last().map_or(0.0, |own| model.shift(own, log_rate));
        Self { slope: model.slope, log_rate, latest }
    }
}

/// A curve of a known slope, and the trials of each restart as ln(rate) and share of misses.
#[derive(Clone, Copy)]
struct Model<'a> {
    restarts: &'a [Vec<(f64, f64)>],
    slope: f64,
    target: f64,
    /// Standard deviation between restarts, as a logarithm of the rate.
    differ: f64,
    /// The weight of a trial, in requests.
    weight: f64,
}

impl<'a> Model<'a> {
    /// The slope that fits best.
    fn fit(restarts: &'a [Vec<(f64, f64)>], target: f64, differ: f64) -> Self {
        let weight = INDEPENDENT / (share(target) * (1.0 - share(target)));
        let model = |slope: f64| Self { restarts, slope, target, differ, weight };
        // The derivative of the penalized likelihood by ln(slope).
        let derivative = |log_slope: f64| -> f64 {
            let model = model(log_slope.exp());
            let crossing = model.crossing();
            let steeper: f64 = restarts.iter().map(|own| model.steeper(own, crossing)).sum();
            model.slope * weight * steeper - (log_slope - PRIOR.0.ln()) / PRIOR.1.powi(2)
        };
        model(root(SLOPES.0.ln(), SLOPES.1.ln(), derivative).exp())
    }

    /// By how much the curve predicts more misses than there were, in shares, if it crosses the
    /// goal at `log`.
    fn surplus(&self, own: &[(f64, f64)], log: f64) -> f64 {
        let of = |(x, found): &(f64, f64)| share(self.target + self.slope * (x - log)) - found;
        own.iter().map(of).sum()
    }

    /// How far a restart's own crossing is from the common one, as a logarithm: where its trials
    /// and the prior balance.
    fn shift(&self, own: &[(f64, f64)], crossing: f64) -> f64 {
        let pull = |shift: f64| {
            let by_trials = self.weight * self.slope * self.surplus(own, crossing + shift);
            by_trials - shift / self.differ.powi(2)
        };
        root(-10.0 * self.differ, 10.0 * self.differ, pull)
    }

    /// ln(rate) at which the curve crosses the goal: it predicts as many misses as there were.
    fn crossing(&self) -> f64 {
        let logs = || self.restarts.iter().flatten().map(|(x, _)| *x);
        let (low, high) = (logs().fold(f64::MAX, f64::min), logs().fold(f64::MIN, f64::max));
        let surplus = |log: f64| -> f64 {
            let of = |own: &Vec<(f64, f64)>| self.surplus(own, log + self.shift(own, log));
            self.restarts.iter().map(of).sum()
        };
        // Beyond that, the curve would predict hardly any misses, or nothing else.
        root(low - 20.0 / self.slope, high + 20.0 / self.slope, surplus)
    }

    /// How much better a steeper curve fits a restart.
    fn steeper(&self, own: &[(f64, f64)], crossing: f64) -> f64 {
        let log = crossing + self.shift(own, crossing);
        let of = |(x, found): &(f64, f64)| {
            (x - log) * (found - share(self.target + self.slope * (x - log)))
        };
        own.iter().map(of).sum()
    }
}

/// Roots are known to this precision: logarithms of rates and slopes, for intervals of some per cent.
const PRECISION: f64 = 1e-5;

/// The point at which a decreasing function crosses 0, within a range; the nearer end if it does
/// not. The Illinois method (Dowell and Jarratt, BIT 11, 1971): a secant that keeps both sides, in
/// which an end that stays counts half.
fn root(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    // The functions here grow like exponentials, which a secant does not fit.
    let function = |at: f64| function(at).asinh();
    let (mut at_low, mut at_high) = (function(low), function(high));
    if at_low <= 0.0 {
        return low;
    }
    if at_high >= 0.0 {
        return high;
    }
    let mut stayed = None;
    for _ in 0..100 {
        if high - low < PRECISION {
            break;
        }
        let secant = (low * at_high - high * at_low) / (at_high - at_low);
        // Not closer to an end than a rounding error, so that each step is a step.
        let at = secant.clamp(low + PRECISION / 10.0, high - PRECISION / 10.0);
        let value = function(at);
        let is_low = value > 0.0;
        if is_low {
            (low, at_low) = (at, value);
        } else {
            (high, at_high) = (at, value);
        }
        match stayed {
            Some(true) if is_low => at_high /= 2.0,
            Some(false) if !is_low => at_low /= 2.0,
            _ => {}
        }
        stayed = Some(is_low);
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
        (Some(kept), None) => kept * 1.5,
        (None, Some(missed)) => missed / 2.0,
        (Some(kept), Some(missed)) if missed > kept * BRACKET => (kept * missed).sqrt(),
        (Some(kept), Some(missed)) => {
            let fits = goals.iter().filter_map(|goal| Curve::fit(goal, &goal.usable()));
            let lowest = fits.min_by(|a, b| a.log_rate.total_cmp(&b.log_rate));
            let (rate, slope) = lowest.map_or(((kept * missed).sqrt(), PRIOR.0), |curve| {
                ((curve.log_rate + curve.latest).exp(), curve.slope)
            });
            let number = goals.first().map_or(0, |goal| goal.trials.len());
            let distance = DISTANCES[number / 2 % DISTANCES.len()];
            let step = (distance / slope).clamp(STEP.0, STEP.1);
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
        assert_eq!(next(vec![kept(100.0)]), 150.0);
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
        assert!((rate - 52.0 * 1.5).abs() < 1e-9, "{rate}");
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
