//! The logistic curve through the trials of a search.

use std::collections::BTreeMap;

use super::trial::{Trial, border};

/// The prior of the slope: its median, and the standard deviation of its logarithm. Queues with a
/// constant service time and windows of a second have slopes from 15 (a goal of 10 service times)
/// to 300 (200 service times). Without a prior, few trials give any slope, and the next trials
/// would be far too close to each other.
const PRIOR: (f64, f64) = (20.0, 1.0);

/// The slopes that are possible.
const SLOPES: (f64, f64) = (4.0, 2_000.0);

/// How much the capacities of restarts differ, as a standard deviation of their logarithms: between
/// these two. Where the curve is steep, each restart shows its own capacity; where it is flat, the
/// few trials of a single restart say little, and all of them are taken together.
const RESTARTS_DIFFER: (f64, f64) = (0.001, 0.05);

/// A prior that hardly counts.
const LOOSE: f64 = 0.3;

/// A trial at a first estimate of the capacity that is half kept and half missed counts as this
/// part of a real one, so that trials with one result have a crossing too.
const ANCHOR: f64 = 0.3;

/// The search follows the crossing of the present restart if chance makes it uncertain by less than
/// this, as a logarithm.
const KNOWN: f64 = 0.01;

/// Trials count if their rates differ from a first estimate by at most this, as a logarithm. A
/// window far below the capacity that missed the goal was disturbed by something else.
const NEAR: f64 = 0.25;

/// Slopes that are tried before the best is refined, less one, and the precision of its logarithm.
const GRID: u32 = 16;
const PRECISION_OF_SLOPE: f64 = 0.03;

/// The information of a trial at even odds: p (1 − p).
const INFORMATION: f64 = 0.25;

/// A logistic curve: ln(odds of a miss) = slope × (ln(rate) − `log_rate`).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve {
    /// ln(odds of a miss) grows by this much per ln(rate).
    pub slope: f64,
    /// ln(rate) at even odds, over all restarts.
    pub log_rate: f64,
    /// The same for each restart. Their mean is `log_rate`, and they differ as much as chance and
    /// restarts make them differ.
    pub by_restart: BTreeMap<u32, f64>,
    /// The same for the latest restart, as far as its trials show that it differs.
    pub latest: f64,
}

impl Curve {
    /// Fits the curve. `None` unless lower rates kept the goal and higher ones did not.
    pub fn fit(trials: &[Trial]) -> Option<Self> {
        let (kept, missed) = border(trials);
        let anchor = (kept? * missed?).sqrt().ln();
        let is_near = |t: &&Trial| (t.rate.ln() - anchor).abs() <= NEAR;
        let near: Vec<Trial> = trials.iter().filter(is_near).copied().collect();
        // A bracket that is still wide has no trial near its middle.
        Some(Self::regression(if near.is_empty() { trials } else { &near }, anchor))
    }

    /// The logistic regression, with priors for the slope and for how much restarts differ.
    fn regression(trials: &[Trial], anchor: f64) -> Self {
        let mut restarts = BTreeMap::<u32, Vec<(f64, f64)>>::new();
        for trial in trials {
            let missed = if trial.is_kept { 0.0 } else { 1.0 };
            restarts.entry(trial.restart).or_default().push((trial.rate.ln(), missed));
        }
        let numbers: Vec<u32> = restarts.keys().copied().collect();
        let restarts: Vec<Vec<(f64, f64)>> = restarts.into_values().collect();
        let alike = Model::fit(&restarts, RESTARTS_DIFFER.0, anchor);
        let model = Model::fit(&restarts, alike.difference_of_restarts(), anchor);
        let log_rate = model.crossing();
        let chance = 1.0 / model.information().sqrt();
        let shifts = model.shifts(log_rate);
        let own = numbers.into_iter().zip(shifts.iter().map(|shift| log_rate + shift));
        Self {
            slope: model.slope,
            log_rate,
            latest: match (chance < KNOWN, restarts.last()) {
                (true, Some(own)) => log_rate + model.shift(own, log_rate),
                _ => log_rate,
            },
            by_restart: own.collect(),
        }
    }
}

/// A curve of a known slope, and the trials of each restart: ln(rate), and 1 for a miss, else 0.
#[derive(Clone, Copy)]
struct Model<'a> {
    restarts: &'a [Vec<(f64, f64)>],
    slope: f64,
    /// Standard deviation between restarts, as a logarithm of the rate.
    differ: f64,
    /// ln(rate) of a first estimate, see [`ANCHOR`].
    anchor: f64,
}

impl<'a> Model<'a> {
    /// The slope that fits best. The likelihood may have several maxima, so slopes all over the
    /// range are tried before the best one is refined.
    fn fit(restarts: &'a [Vec<(f64, f64)>], differ: f64, anchor: f64) -> Self {
        let model = |log_slope: f64| Self { restarts, slope: log_slope.exp(), differ, anchor };
        let (low, high) = (SLOPES.0.ln(), SLOPES.1.ln());
        let mut step = (high - low) / f64::from(GRID);
        let grid = (0..=GRID).map(|n| low + step * f64::from(n));
        let tried = grid.map(|log_slope| (log_slope, model(log_slope).log_likelihood()));
        let (mut best, mut likelihood) =
            tried.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((PRIOR.0.ln(), f64::MIN));
        while step > PRECISION_OF_SLOPE {
            step /= 2.0;
            for log_slope in [best - step, best + step] {
                let found = model(log_slope).log_likelihood();
                if found > likelihood && (low..=high).contains(&log_slope) {
                    (best, likelihood) = (log_slope, found);
                }
            }
        }
        model(best)
    }

    /// The logarithm of the likelihood, with the priors, up to a constant.
    fn log_likelihood(&self) -> f64 {
        let crossing = self.crossing();
        let of_restart = |own: &Vec<(f64, f64)>| {
            let shift = self.shift(own, crossing);
            let of = |(x, missed): &(f64, f64)| {
                let log_odds = self.slope * (x - crossing - shift);
                // ln p and ln (1 - p), without loss where the curve is flat.
                -missed * (-log_odds).exp().ln_1p() - (1.0 - missed) * log_odds.exp().ln_1p()
            };
            own.iter().map(of).sum::<f64>() - 0.5 * (shift / self.differ).powi(2)
        };
        let prior = (self.slope / PRIOR.0).ln() / PRIOR.1;
        self.restarts.iter().map(of_restart).sum::<f64>() - 0.5 * prior.powi(2)
    }

    /// By how much the capacities of restarts differ, beyond what chance explains.
    fn difference_of_restarts(&self) -> f64 {
        let shifts = self.shifts(self.crossing());
        let squares: f64 = shifts.iter().map(|shift| shift.powi(2)).sum();
        let beyond = squares / (shifts.len() as f64 - 1.0).max(1.0) - 1.0 / self.information();
        beyond.max(0.0).sqrt().clamp(RESTARTS_DIFFER.0, RESTARTS_DIFFER.1)
    }

    /// The information that the trials of one restart have on its crossing, on average: the inverse
    /// of the variance.
    fn information(&self) -> f64 {
        let trials = self.restarts.iter().map(Vec::len).sum::<usize>() as f64;
        INFORMATION * trials / self.restarts.len() as f64 * self.slope.powi(2)
    }

    /// How far each restart's own crossing is from their mean, hardly held back by a prior.
    fn shifts(&self, crossing: f64) -> Vec<f64> {
        let loose = Self { differ: LOOSE, ..*self };
        let shifts: Vec<f64> = self.restarts.iter().map(|own| loose.shift(own, crossing)).collect();
        let mean = shifts.iter().sum::<f64>() / shifts.len() as f64;
        shifts.into_iter().map(|shift| shift - mean).collect()
    }

    /// How many more misses the curve predicts than there were, if it crosses even odds at `log`.
    fn surplus(&self, own: &[(f64, f64)], log: f64) -> f64 {
        own.iter().map(|(x, missed)| share(self.slope * (x - log)) - missed).sum()
    }

    /// How far a restart's own crossing is from the common one, as a logarithm: where its trials
    /// and the prior balance.
    fn shift(&self, own: &[(f64, f64)], crossing: f64) -> f64 {
        let pull = |shift: f64| {
            self.slope * self.surplus(own, crossing + shift) - shift / self.differ.powi(2)
        };
        root(-10.0 * self.differ, 10.0 * self.differ, pull)
    }

    /// ln(rate) at even odds: the curve predicts as many misses as there were.
    fn crossing(&self) -> f64 {
        let logs = || self.restarts.iter().flatten().map(|(x, _)| *x).chain([self.anchor]);
        let (low, high) = (logs().fold(f64::MAX, f64::min), logs().fold(f64::MIN, f64::max));
        let surplus = |log: f64| -> f64 {
            let of = |own: &Vec<(f64, f64)>| self.surplus(own, log + self.shift(own, log));
            let anchor = share(self.slope * (self.anchor - log)) - 0.5;
            self.restarts.iter().map(of).sum::<f64>() + ANCHOR * anchor
        };
        // Beyond that, the curve would predict hardly any misses, or nothing else.
        root(low - 20.0 / self.slope, high + 20.0 / self.slope, surplus)
    }
}

/// The probability of a miss.
fn share(log_odds: f64) -> f64 {
    1.0 / (1.0 + (-log_odds).exp())
}

/// Roots are known to this precision: logarithms of rates, for intervals of some per cent.
const PRECISION: f64 = 1e-5;

/// The point at which a decreasing function crosses 0, within a range; the nearer end if it does
/// not. The Illinois method (Dowell and Jarratt, BIT 11, 1971): a secant that keeps both sides, in
/// which an end that stays counts half.
fn root(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
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
