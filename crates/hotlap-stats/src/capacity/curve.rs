//! The trials of a search, and the logistic curve through them.

use std::collections::BTreeMap;

/// The median of the prior of the slope, whose logarithm has a standard deviation of 1. With a
/// constant service time and windows of a second, the slopes of queues range from 15 to 300, for
/// goals of 10 to 200 service times. Without a prior, few trials fit almost any slope, and the next
/// trials could be far too close to each other.
const PRIOR: f64 = 20.0;

/// The slopes that are tried before the best one is refined.
const SLOPES: [f64; 17] = [
    4.0, 6.0, 9.0, 13.0, 20.0, 30.0, 45.0, 65.0, 100.0, 150.0, 220.0, 330.0, 500.0, 700.0, 1_000.0,
    1_500.0, 2_000.0,
];

/// The factors by which the best slope is refined, in turn. Together they reach more than halfway
/// to the next slope, and the last factor leaves an error of 2.5%.
const FINER: [f64; 4] = [1.2, 1.1, 1.05, 1.025];

/// The limits of how much the capacities of restarts may differ, as a standard deviation of their
/// logarithms. If the curve is steep, each restart shows its own capacity. If the curve is flat,
/// the few trials of a single restart say little, so all restarts are taken together.
const RESTARTS_DIFFER: (f64, f64) = (0.001, 0.05);

/// The standard deviation of a prior that hardly counts.
const LOOSE: f64 = 0.3;

/// The weight of an added trial, relative to a real trial. The added trial is half met and half
/// missed at the first estimate of the capacity. A crossing therefore exists even if all real
/// trials have the same result.
const ANCHOR: f64 = 0.3;

/// The search follows the crossing of the present restart if the trials of an average restart have
/// more information than this. The standard error of the logarithm of a crossing is then below
/// 0.01.
const KNOWN: f64 = 1e4;

/// A trial counts if the logarithm of its rate differs from the first estimate by at most this
/// much. A window that missed the goal far below the capacity was disturbed by something else.
const NEAR: f64 = 0.25;

/// The information of a trial at even odds, p (1 − p).
const INFORMATION: f64 = 0.25;

/// One window at one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The restart that the window belongs to.
    pub restart: u32,
    /// The offered rate, in requests/s.
    pub rate: f64,
    /// Whether the window met every goal.
    pub is_kept: bool,
}

/// Finds the border that best separates rates that met the goal from rates that missed it. Returns
/// the highest rate below the border, and the lowest rate above it. Trials may be on the wrong
/// side of the border, so the border is placed where the fewest are.
pub(super) fn border(trials: &[Trial]) -> (Option<f64>, Option<f64>) {
    let mut sorted: Vec<&Trial> = trials.iter().collect();
    sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    // If all trials are above the border, the trials that met the goal are on the wrong side.
    let mut wrong = sorted.iter().filter(|trial| trial.is_kept).count() as i64;
    let mut best = (wrong, 0);
    for (place, trial) in sorted.iter().enumerate() {
        wrong += if trial.is_kept { -1 } else { 1 };
        if wrong < best.0 {
            best = (wrong, place + 1);
        }
    }
    let rate = |place: usize| sorted.get(place).map(|trial| trial.rate);
    (best.1.checked_sub(1).and_then(rate), rate(best.1))
}

/// A logistic curve with ln(odds of a miss) = slope × (ln(rate) − `log_rate`).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve {
    /// The growth of ln(odds of a miss) per ln(rate).
    pub slope: f64,
    /// The standard error of the slope, as a share of the slope.
    pub slope_error: f64,
    /// The ln(rate) at even odds, over all restarts.
    pub log_rate: f64,
    /// The ln(rate) at even odds for each restart, with a mean of `log_rate`. The spread comes from
    /// chance and from differences between restarts.
    pub by_restart: BTreeMap<u32, f64>,
    /// The ln(rate) at even odds for the latest restart, as far as its trials show a difference.
    pub latest: f64,
}

impl Curve {
    /// Fits the curve. `None` unless lower rates met the goal and higher rates missed it.
    pub fn fit(trials: &[Trial]) -> Option<Self> {
        let (kept, missed) = border(trials);
        let anchor = (kept? * missed?).sqrt().ln();
        let is_near = |t: &&Trial| (t.rate.ln() - anchor).abs() <= NEAR;
        let near: Vec<Trial> = trials.iter().filter(is_near).copied().collect();
        // There may be no trial near the middle of a bracket that is still wide.
        Some(Self::regression(if near.is_empty() { trials } else { &near }, anchor))
    }

    /// Fits the logistic regression, with priors for the slope and for how much restarts differ.
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
        let shifts = model.shifts(log_rate);
        let own = numbers.into_iter().zip(shifts.iter().map(|shift| log_rate + shift));
        let latest = restarts.last().filter(|_| model.is_known());
        Self {
            slope: model.slope,
            slope_error: model.slope_error(&shifts, log_rate),
            log_rate,
            latest: log_rate + latest.map_or(0.0, |own| model.shift(own, log_rate)),
            by_restart: own.collect(),
        }
    }
}

/// A curve with a given slope, and the trials of each restart as (ln(rate), 1 for a miss or 0).
#[derive(Clone, Copy)]
struct Model<'a> {
    restarts: &'a [Vec<(f64, f64)>],
    slope: f64,
    /// The standard deviation between restarts, as a logarithm of the rate.
    differ: f64,
    /// The ln(rate) of the first estimate, see [`ANCHOR`].
    anchor: f64,
}

impl<'a> Model<'a> {
    /// Returns the model with the slope that fits best. The likelihood may have several maxima, so
    /// slopes over the whole range are tried before the best slope is refined.
    fn fit(restarts: &'a [Vec<(f64, f64)>], differ: f64, anchor: f64) -> Self {
        let of = |slope: f64| {
            let model = Self { restarts, slope, differ, anchor };
            (model.log_likelihood(), model)
        };
        let likelier =
            |a: (f64, Self), b: (f64, Self)| if a.0.total_cmp(&b.0).is_lt() { b } else { a };
        let [first, others @ ..] = SLOPES.map(of);
        let mut best = others.into_iter().fold(first, likelier);
        for factor in FINER {
            let slope = best.1.slope;
            best = [slope / factor, slope * factor].map(of).into_iter().fold(best, likelier);
        }
        best.1
    }

    /// Returns the logarithm of the likelihood, including the priors, up to a constant.
    fn log_likelihood(&self) -> f64 {
        let crossing = self.crossing();
        let of_restart = |own: &Vec<(f64, f64)>| {
            let shift = self.shift(own, crossing);
            let of = |(x, missed): &(f64, f64)| {
                let log_odds = self.slope * (x - crossing - shift);
                // These terms are ln p and ln (1 - p), in a form that loses no precision where the
                // curve is flat.
                -missed * (-log_odds).exp().ln_1p() - (1.0 - missed) * log_odds.exp().ln_1p()
            };
            own.iter().map(of).sum::<f64>() - 0.5 * (shift / self.differ).powi(2)
        };
        let prior = (self.slope / PRIOR).ln();
        self.restarts.iter().map(of_restart).sum::<f64>() - 0.5 * prior.powi(2)
    }

    /// Returns how much the capacities of restarts differ, beyond what chance explains.
    fn difference_of_restarts(&self) -> f64 {
        let shifts = self.shifts(self.crossing());
        let squares: f64 = shifts.iter().map(|shift| shift.powi(2)).sum();
        let beyond = squares / (shifts.len() as f64 - 1.0).max(1.0) - 1.0 / self.information();
        beyond.max(0.0).sqrt().clamp(RESTARTS_DIFFER.0, RESTARTS_DIFFER.1)
    }

    /// Returns the standard error of the slope's logarithm, from the information of the trials and
    /// of the prior. The weight of a trial depends on its distance from the crossing of its
    /// restart. The prior's σ is 1.
    fn slope_error(&self, shifts: &[f64], crossing: f64) -> f64 {
        let of_restart = |(own, shift): (&Vec<(f64, f64)>, &f64)| {
            let of = |(x, _): &(f64, f64)| {
                let log_odds = self.slope * (x - crossing - shift);
                share(log_odds) * (1.0 - share(log_odds)) * log_odds.powi(2)
            };
            own.iter().map(of).sum::<f64>()
        };
        let information: f64 = self.restarts.iter().zip(shifts).map(of_restart).sum();
        1.0 / (information + 1.0).sqrt()
    }

    /// Returns whether the crossing of a single restart is known well enough to follow it.
    fn is_known(&self) -> bool {
        self.information() > KNOWN
    }

    /// Returns the average information that the trials of one restart have on its crossing: the
    /// inverse of the crossing's variance.
    fn information(&self) -> f64 {
        let trials = self.restarts.iter().map(Vec::len).sum::<usize>() as f64;
        INFORMATION * trials / self.restarts.len() as f64 * self.slope.powi(2)
    }

    /// Returns the distance of each restart's crossing from the mean crossing, with a prior that
    /// hardly counts.
    fn shifts(&self, crossing: f64) -> Vec<f64> {
        let loose = Self { differ: LOOSE, ..*self };
        let shifts: Vec<f64> = self.restarts.iter().map(|own| loose.shift(own, crossing)).collect();
        let mean = shifts.iter().sum::<f64>() / shifts.len() as f64;
        shifts.into_iter().map(|shift| shift - mean).collect()
    }

    /// Returns how many more misses the curve predicts than occurred, if it crosses even odds at
    /// `log`.
    fn surplus(&self, own: &[(f64, f64)], log: f64) -> f64 {
        own.iter().map(|(x, missed)| share(self.slope * (x - log)) - missed).sum()
    }

    /// Returns the logarithmic distance of a restart's crossing from the common crossing. At this
    /// distance, the trials of the restart and the prior balance.
    fn shift(&self, own: &[(f64, f64)], crossing: f64) -> f64 {
        let pull = |shift: f64| {
            self.slope * self.surplus(own, crossing + shift) - shift / self.differ.powi(2)
        };
        root(-10.0 * self.differ, 10.0 * self.differ, pull)
    }

    /// Returns the ln(rate) at even odds, at which the curve predicts as many misses as occurred.
    fn crossing(&self) -> f64 {
        let (low, high) = self.ends();
        let surplus = |log: f64| -> f64 {
            let of = |own: &Vec<(f64, f64)>| self.surplus(own, log + self.shift(own, log));
            let anchor = share(self.slope * (self.anchor - log)) - 0.5;
            self.restarts.iter().map(of).sum::<f64>() + ANCHOR * anchor
        };
        root(low, high, surplus)
    }

    /// Returns the logarithms of the rate between which the crossing lies. Beyond these limits, the
    /// curve would predict either hardly any misses, or only misses.
    fn ends(&self) -> (f64, f64) {
        let logs = || self.restarts.iter().flatten().map(|(x, _)| *x).chain([self.anchor]);
        let (low, high) = (logs().fold(f64::MAX, f64::min), logs().fold(f64::MIN, f64::max));
        (low - 20.0 / self.slope, high + 20.0 / self.slope)
    }
}

/// Returns the probability of a miss, given its log odds.
fn share(log_odds: f64) -> f64 {
    1.0 / (1.0 + (-log_odds).exp())
}

/// The precision of roots, which are logarithms of rates. This error is negligible, because
/// intervals are several per cent wide.
const PRECISION: f64 = 1e-5;

/// Returns the point within a range at which a decreasing function crosses 0, or the nearer end if
/// it does not. The search uses the Illinois method (Dowell and Jarratt, BIT 11, 1971). This secant
/// method keeps an end on each side of the root, and halves the value of an end that stays.
fn root(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    let (mut at_low, mut at_high) = (function(low), function(high));
    if at_low <= 0.0 {
        return low;
    }
    if at_high >= 0.0 {
        return high;
    }
    let mut was_high = None;
    for _ in 0..100 {
        if high - low <= PRECISION {
            break;
        }
        let secant = (low * at_high - high * at_low) / (at_high - at_low);
        // The new point keeps a distance from both ends, so that every step makes progress.
        let at = secant.clamp(low + PRECISION / 10.0, high - PRECISION / 10.0);
        let value = function(at);
        let is_high = value <= 0.0;
        let other = if is_high {
            (high, at_high) = (at, value);
            &mut at_low
        } else {
            (low, at_low) = (at, value);
            &mut at_high
        };
        if was_high == Some(is_high) {
            *other /= 2.0;
        }
        was_high = Some(is_high);
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: f64 = 0.0;
    const MISSED: f64 = 1.0;

    /// Returns a curve with this slope through these trials, with a first estimate of 0.
    fn model(restarts: &[Vec<(f64, f64)>], slope: f64, differ: f64) -> Model<'_> {
        Model { restarts, slope, differ, anchor: 0.0 }
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 3e-5, "found {found}, expected {expected}");
    }

    /// Returns trials of a restart at these rates. Trials from `capacity` up missed the goal.
    fn trials(restart: u32, rates: &[f64], capacity: f64) -> Vec<Trial> {
        rates.iter().map(|&rate| Trial { restart, rate, is_kept: rate < capacity }).collect()
    }

    /// Returns two trials of a restart, at odds of one to three and three to one.
    fn pair(crossing: f64, slope: f64) -> Vec<(f64, f64)> {
        let distance = 3.0_f64.ln() / slope;
        vec![(crossing - distance, KEPT), (crossing + distance, MISSED)]
    }

    #[test]
    fn a_share_has_these_odds() {
        assert_eq!(share(0.0), 0.5);
        near(share(3.0_f64.ln()), 0.75);
        near(share(-3.0_f64.ln()), 0.25);
    }

    /// There is one miss at the common crossing. With a shift of -ln 3 / slope, the curve predicts
    /// this miss with 0.75, so the surplus is -0.25. The surplus balances the prior, slope × 0.25 =
    /// ln 3 / slope / differ², if differ is 2 √(ln 3) / slope.
    #[test]
    fn a_shift_balances_misses_and_prior() {
        for slope in [4.0, 40.0] {
            let differ = 2.0 * 3.0_f64.ln().sqrt() / slope;
            let model = model(&[], slope, differ);
            near(model.shift(&[(1.0, MISSED)], 1.0), -3.0_f64.ln() / slope);
            near(model.shift(&[(1.0, KEPT)], 1.0), 3.0_f64.ln() / slope);
            near(model.shift(&[], 1.0), 0.0);
        }
    }

    /// Without a limit, the shift would be 1,000 × 100 × 0.001², which is ten times as much.
    #[test]
    fn a_shift_is_at_most_ten_deviations() {
        let model = model(&[], 1_000.0, 0.001);
        assert_eq!(model.shift(&[(1.0, MISSED); 100], 2.0), -0.01);
        assert_eq!(model.shift(&[(3.0, KEPT); 100], 2.0), 0.01);
    }

    /// There is one miss, and a first estimate with a weight of 0.3. Suppose that the curve
    /// predicts a miss at the first estimate with 0.9. The probability of the real miss is then
    /// 1 - 0.3 × (0.9 - 0.5) = 0.88, or odds of 22 to 3.
    #[test]
    fn a_curve_predicts_as_many_misses_as_there_were() {
        let log_odds = (22.0_f64 / 3.0).ln();
        for slope in [4.0, 50.0] {
            let of = |differ: f64, crossing: f64| {
                let anchor = crossing + 9.0_f64.ln() / slope;
                near(
                    Model { anchor, ..model(&[vec![(0.0, MISSED)]], slope, differ) }.crossing(),
                    crossing,
                );
            };
            of(1e-6, -log_odds / slope);
            // The crossing of the restart is lower by 1 / slope. There, the prior balances the
            // trial: slope × 0.12 = 1 / slope / differ².
            of((1.0_f64 / 0.12).sqrt() / slope, (1.0 - log_odds) / slope);
        }
    }

    #[test]
    fn the_crossing_lies_within_20_slopes_of_the_trials() {
        let restarts = [vec![(1.0, KEPT), (3.0, MISSED)], vec![(2.0, MISSED)]];
        assert_eq!(model(&restarts, 10.0, 0.01).ends(), (-2.0, 5.0));
        assert_eq!(Model { anchor: 3.5, ..model(&restarts, 10.0, 0.01) }.ends(), (-1.0, 5.5));
    }

    /// The two restarts have the balance of `a_shift_balances_misses_and_prior`. There are two
    /// trials with a probability of 0.75, two shifts of √(ln 3) / 2 deviations, and a slope of
    /// twice the prior's median.
    #[test]
    fn a_likelihood_has_terms_for_trials_restarts_and_slope() {
        let restarts = [vec![(1.0, MISSED)], vec![(1.0, KEPT)]];
        let (slope, ln_3) = (2.0 * PRIOR, 3.0_f64.ln());
        let model = model(&restarts, slope, 2.0 * ln_3.sqrt() / slope);
        let found = Model { anchor: 1.0, ..model }.log_likelihood();
        near(found, 2.0 * 0.75_f64.ln() - ln_3 / 4.0 - 2.0_f64.ln().powi(2) / 2.0);
    }

    #[test]
    fn information_is_that_of_trials_at_even_odds() {
        let restarts = [vec![(0.0, KEPT); 3], vec![(0.0, MISSED); 5]];
        let of = |slope: f64| model(&restarts, slope, 0.01);
        // The information is 1/4 × 4 × 100².
        assert_eq!(of(100.0).information(), 1e4);
        assert!(!of(100.0).is_known() && of(100.1).is_known());
    }

    /// Restarts at -0.02, 0 and 0.02 have a variance of 0.0004. Chance explains 1 / (1/4 × 2 ×
    /// 100²) = 0.0002 of this variance.
    #[test]
    fn restarts_differ_by_what_chance_does_not_explain() {
        let of = |crossings: &[f64]| {
            let restarts: Vec<_> = crossings.iter().map(|at| pair(*at, 100.0)).collect();
            model(&restarts, 100.0, 0.001).difference_of_restarts()
        };
        let found = of(&[-0.02, 0.0, 0.02]);
        assert!((found / 0.0002_f64.sqrt() - 1.0).abs() < 0.01, "{found}");
        assert_eq!(of(&[-0.01, 0.0, 0.01]), 0.001);
        assert_eq!(of(&[0.0]), 0.001);
        assert_eq!(of(&[-0.1, 0.0, 0.1]), 0.05);
    }

    #[test]
    fn the_shifts_of_restarts_have_a_mean_of_zero() {
        let restarts = [pair(0.01, 100.0), pair(0.04, 100.0)];
        let found = model(&restarts, 100.0, 0.001).shifts(0.0);
        assert!((found[0] + 0.015).abs() < 2e-4 && (found[1] - 0.015).abs() < 2e-4, "{found:?}");
    }

    /// The slope is compared with the likeliest of many slopes that are 2% apart.
    #[test]
    fn the_slope_is_the_likeliest() {
        for scale in [0.02, 0.025, 0.03, 0.1, 0.3, 0.5] {
            let restart = |at: f64| -> Vec<(f64, f64)> {
                let tried =
                    [(-2.0, KEPT), (-1.0, KEPT), (-0.5, MISSED), (0.4, KEPT), (1.1, MISSED)];
                tried.iter().chain(&[(2.1, MISSED)]).map(|(x, y)| (at + scale * x, *y)).collect()
            };
            let restarts = [restart(0.0), restart(0.002)];
            let likelihood = |slope: f64| model(&restarts, slope, 0.01).log_likelihood();
            let many = (70..380).map(|n| (0.02 * f64::from(n)).exp());
            let best = many.max_by(|a, b| likelihood(*a).total_cmp(&likelihood(*b))).unwrap();
            let found = Model::fit(&restarts, 0.01, 0.0).slope;
            assert!((found / best).ln().abs() < 0.035, "{scale}: {found}, not {best}");
        }
    }

    #[test]
    fn two_trials_have_their_crossing_in_the_middle() {
        let curve = Curve::fit(&trials(0, &[10.0, 20.0], 15.0)).unwrap();
        near(curve.log_rate, 200.0_f64.sqrt().ln());
    }

    #[test]
    fn trials_far_from_the_first_estimate_do_not_count() {
        let all = trials(0, &[960.0, 980.0, 990.0, 1_010.0, 1_020.0, 1_040.0], 1_000.0);
        let fit = |rate: f64, is_kept: bool| {
            Curve::fit(&[&all[..], &[Trial { restart: 0, rate, is_kept }]].concat()).unwrap()
        };
        let curve = Curve::fit(&all).unwrap();
        // The limit is a factor of e^0.25 = 1.284.
        assert_eq!([fit(770.0, false), fit(1_290.0, true)], [curve.clone(), curve.clone()]);
        assert_ne!(fit(790.0, false), curve);
        assert_ne!(fit(1_280.0, true), curve);
    }

    #[test]
    fn the_latest_restart_counts_alone_once_its_crossing_is_known() {
        // At -1 and 1, trials of a flat curve have the opposite result.
        let of = |width: f64, is_flat: bool| {
            let restart = |restart: u32, at: f64| {
                [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0].repeat(2).into_iter().map(move |step: f64| {
                    Trial {
                        restart,
                        rate: at * (width * step).exp(),
                        is_kept: (step < 0.0) != (is_flat && step.abs() < 2.0),
                    }
                })
            };
            let all = restart(0, 995.0).chain(restart(3, 1_000.0)).chain(restart(4, 1_005.0));
            Curve::fit(&all.collect::<Vec<_>>()).unwrap()
        };
        let steep = of(0.001, false);
        let own = steep.by_restart[&4];
        assert!((own - 1_005.0_f64.ln()).abs() < 5e-4, "{steep:?}");
        assert!((steep.latest - own).abs() < 5e-4, "{steep:?}");
        let flat = of(0.03, true);
        assert_eq!(flat.latest, flat.log_rate);
        assert!((flat.log_rate - 1_000.0_f64.ln()).abs() < 1e-3, "{flat:?}");
    }

    mod root {
        use std::cell::Cell;

        use super::super::*;

        /// Returns the root between 0 and 10, and how often the function was computed.
        fn found(function: impl Fn(f64) -> f64) -> (f64, u32) {
            let count = Cell::new(0);
            let counted = |x: f64| {
                count.set(count.get() + 1);
                function(x)
            };
            (root(0.0, 10.0, counted), count.get())
        }

        /// The function is evaluated once at each end, once at the root, and once to confirm the
        /// root.
        #[test]
        fn the_root_of_a_line_is_found_at_once() {
            assert_eq!(found(|x| 4.0 - x), (4.0 - PRECISION / 20.0, 4));
            // At 4, this function is still above 0.
            let late = |x: f64| if x > 4.0 { 4.0 - x } else { 4.0 - x + f64::MIN_POSITIVE };
            let (at, count) = found(late);
            assert!((at - 4.0 - PRECISION / 20.0).abs() < 1e-9 && count == 4, "{at}, {count}");
        }

        /// A secant that moves only one end takes thousands of steps.
        #[test]
        fn the_root_of_an_exponential_takes_few_steps_from_either_side() {
            let (from_below, few) = found(|x| (50.0 - x.exp()) / 1e5);
            assert!((from_below - 50.0_f64.ln()).abs() < PRECISION && few < 25, "{few}");
            let (from_above, few) = found(|x| ((10.0 - x).exp() - 50.0) / 1e5);
            assert!((from_above - (10.0 - 50.0_f64.ln())).abs() < PRECISION && few < 25, "{few}");
        }

        #[test]
        fn a_function_that_does_not_cross_zero_has_its_root_at_the_nearer_end() {
            assert_eq!(found(|x| -1.0 - x).0, 0.0);
            assert_eq!(found(|x| 11.0 - x).0, 10.0);
            assert_eq!((found(|x| -x).0, found(|x| 10.0 - x).0), (0.0, 10.0));
        }
    }
}
