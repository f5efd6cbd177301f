//! One server's level, or two servers' ratio, each with its interval.
//!
//! A restart is reduced to its totals: all CPU time over all requests, or all responses over all
//! time. The interval is Student's over the restarts, with one degree of freedom less than
//! restarts: an interval must be based on the highest level that was repeated (Kalibera and Jones,
//! "Rigorous benchmarking in reasonable time", ISMM 2013, section 6). A single restart has no
//! interval.
//!
//! All of it is computed on logarithms: ratios and levels are positive, and noise multiplies them.
//! Only an [`Amount`], which is added to others, has its own unit.

use std::collections::BTreeMap;

use crate::estimate::Estimate;
use crate::reading::{Pair, Reading, totals};
use crate::student::{self, MANY};

/// One server's figure relative to another's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// server / reference, with its interval.
    pub ratio: Estimate,
    /// Two-sided p-value of the hypothesis that the ratio is 1.
    pub p: f64,
    /// The number of restarts, nodes or runs that the interval rests on.
    pub restarts: u32,
    /// The number of rounds in all restarts.
    pub rounds: u32,
}

/// What the measuring method did to a level or a ratio, in log units, with its standard error. The
/// shift was measured apart from the level or the ratio.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shift {
    /// The expected value.
    pub log: f64,
    /// Its standard error.
    pub standard_error: f64,
}

impl Shift {
    /// The shift between two levels that have these shifts.
    pub fn between(self, other: Self) -> Self {
        let standard_error = self.standard_error.hypot(other.standard_error);
        Self { log: self.log - other.log, standard_error }
    }

    /// The shift as a location. The shift rests on many probes, or on many windows.
    fn location(self) -> Location {
        Location { value: self.log, standard_error: self.standard_error, df: MANY }
    }
}

impl Effect {
    fn new(location: &Location, restarts: usize, rounds: u32, confidence: f64) -> Self {
        let (ratio, p) = (location.exp(confidence), location.p());
        Self { ratio, p, restarts: restarts as u32, rounds }
    }

    /// The larger distance of the interval's ends from a ratio of 1, in log units.
    pub fn far_end(&self) -> f64 {
        self.ratio.low.ln().abs().max(self.ratio.high.ln().abs())
    }
}

/// The level of one server over all restarts, with its interval at `confidence` (0.95). Readings
/// whose totals are not positive and finite are left out; `None` if there are no others.
pub fn level(readings: &[Reading], confidence: f64) -> Option<Estimate> {
    shifted_level(readings, Shift::default(), confidence)
}

/// The level without what the measuring method did to the level. The error of the shift widens the
/// interval.
pub fn shifted_level(readings: &[Reading], shift: Shift, confidence: f64) -> Option<Estimate> {
    Some(Location::student(&logs_by_restart(readings))?.minus(&shift.location()).exp(confidence))
}

/// The same over the nodes of a pool: the level of a node is the mean of its restarts. `node_of`
/// has the node of each restart.
pub fn level_of_nodes(readings: &[Reading], node_of: &[u32], confidence: f64) -> Option<Estimate> {
    let of_node =
        |(restart, (log, _)): (u32, (f64, u32))| Some((*node_of.get(restart as usize)?, log));
    let nodes = by_unit(totals(readings).into_iter().filter_map(of_node));
    Some(Location::student(&nodes)?.exp(confidence))
}

/// The ratio from the pairs, with its interval at `confidence` (0.95). `None` without pairs.
///
/// In a simulation (`tests/coverage`) 95 % intervals contained the true ratio in 93 to 97 of 100
/// runs.
pub fn effect(pairs: &[Pair], confidence: f64) -> Option<Effect> {
    shifted_effect(pairs, Shift::default(), confidence)
}

/// The same without what the measuring method did to the ratio. The error of the shift widens the
/// interval.
pub fn shifted_effect(pairs: &[Pair], shift: Shift, confidence: f64) -> Option<Effect> {
    let (units, location) = of_pairs(pairs)?;
    let location = location.minus(&shift.location());
    let rounds = pairs.iter().map(|pair| pair.rounds).sum();
    Some(Effect::new(&location, units, rounds, confidence))
}

/// The level of one server over several runs, with Student's interval over runs, or over restarts
/// if there is only one run. Each run has the logarithms of its restarts ([`logs_by_restart`]).
/// `None` if a run has no logarithm.
pub fn level_of_runs(runs: &[Vec<f64>], confidence: f64) -> Option<Estimate> {
    Some(of_runs(runs)?.exp(confidence))
}

/// The ratio of a server's figure in some runs to its figure in other runs, with Welch's interval
/// at `confidence` (0.95). Each run has the logarithms of its restarts. `None` if a run has no
/// logarithm.
///
/// Each run is one sample of the machine: six identical runs within two minutes differed by up to
/// 47% ± 3% (the interval over restarts). So the interval is over runs. A side of one run has an
/// interval over restarts, which is too narrow for a verdict. [`Effect::restarts`] has the number
/// of runs of the smaller side, and [`Effect::rounds`] the number of restarts of the smaller side.
pub fn across_runs(server: &[Vec<f64>], reference: &[Vec<f64>], confidence: f64) -> Option<Effect> {
    let location = of_runs(server)?.minus(&of_runs(reference)?);
    let fewer = [server, reference].into_iter().min_by_key(|side| side.len())?;
    let restarts: usize = fewer.iter().map(Vec::len).sum();
    Some(Effect::new(&location, fewer.len(), restarts as u32, confidence))
}

/// The location of the means of runs, or of the restarts of a single run.
fn of_runs(runs: &[Vec<f64>]) -> Option<Location> {
    let means = by_unit((0..).zip(runs).flat_map(|(n, run)| run.iter().map(move |log| (n, *log))));
    match runs {
        [run] => Location::student(run),
        _ if means.len() < runs.len() => None,
        _ => Location::student(&means),
    }
}

/// The ratio of two servers that were each compared with the reference on their nodes, but never
/// measured together: the difference of both comparisons, with Welch's interval at `confidence`.
/// `None` if one of them has no pair. Pairs are by node ([`by_node`]).
pub fn across_nodes(one: &[Pair], other: &[Pair], confidence: f64) -> Option<Effect> {
    let ((a, one), (b, other)) = (of_pairs(one)?, of_pairs(other)?);
    Some(Effect::new(&one.minus(&other), a.min(b), a.min(b) as u32, confidence))
}

/// The logarithm of each restart's total. Totals that are not positive and finite are left out.
pub fn logs_by_restart(readings: &[Reading]) -> Vec<f64> {
    totals(readings).into_values().map(|(log, _)| log).collect()
}

/// The number of restarts or nodes, and the location of their ratios.
fn of_pairs(pairs: &[Pair]) -> Option<(usize, Location)> {
    let means = by_unit(pairs.iter().map(|pair| (pair.restart, pair.log_ratio)));
    Some((means.len(), Location::student(&means)?))
}

/// An estimated location, on the scale of the values (natural logarithms for ratios).
#[derive(Debug, Clone, Copy)]
struct Location {
    value: f64,
    /// Standard error of `value`; infinite for a single value.
    standard_error: f64,
    /// Degrees of freedom of the standard error.
    df: f64,
}

impl Location {
    /// The mean of independent values, with the standard error of Student's t; `None` without a
    /// value.
    fn student(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let standard_error =
            if values.len() < 2 { f64::INFINITY } else { (variance(values) / n).sqrt() };
        (n > 0.0).then(|| Self { value: mean(values), standard_error, df: n - 1.0 })
    }

    /// Half the width of Student's interval.
    fn half_width(&self, confidence: f64) -> f64 {
        match self.standard_error {
            0.0 => 0.0,
            error => student::quantile(1.0 - confidence, self.df) * error,
        }
    }

    /// Two-sided p-value of the hypothesis that the location is 0.
    fn p(&self) -> f64 {
        // Without an error the quotient is infinite, or NaN if the value is 0: p is then 0 or 1.
        student::two_sided_p(self.value / self.standard_error, self.df)
    }

    /// The difference of two locations that were measured independently. The squared errors add up,
    /// with Welch's degrees of freedom ("The generalization of 'Student's' problem when several
    /// different population variances are involved", Biometrika 34, 1947).
    fn minus(&self, other: &Self) -> Self {
        let (a, b) = (self.standard_error.powi(2), other.standard_error.powi(2));
        let df = match a + b {
            sum if sum > 0.0 && sum.is_finite() => {
                sum.powi(2) / (welch_term(a, self.df) + welch_term(b, other.df))
            }
            _ => self.df.min(other.df),
        };
        Self { value: self.value - other.value, standard_error: (a + b).sqrt(), df }
    }

    /// Takes the exponential: turns an estimate in log units into one of a ratio or a level.
    fn exp(&self, confidence: f64) -> Estimate {
        let half = self.half_width(confidence);
        let [value, low, high] = [self.value, self.value - half, self.value + half].map(f64::exp);
        Estimate { value, low, high }
    }
}

/// The term of one squared error in the denominator of Welch's degrees of freedom. An error of 0
/// has none, even if it has no degrees of freedom.
fn welch_term(squared_error: f64, df: f64) -> f64 {
    if squared_error > 0.0 { squared_error.powi(2) / df } else { 0.0 }
}

/// The mean of each unit's values (a restart, a node), in the order of the units.
fn by_unit(values: impl IntoIterator<Item = (u32, f64)>) -> Vec<f64> {
    let mut units = BTreeMap::<u32, Vec<f64>>::new();
    for (unit, value) in values {
        units.entry(unit).or_default().push(value);
    }
    units.values().map(|values| mean(values)).collect()
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

/// An amount per request, or a difference between two servers in one: in its own unit, not on
/// logarithms, because it may be 0 or negative, and because amounts are added up.
///
/// The estimate is the mean of the restarts' means, so the estimates of parts add up to the
/// estimate of their sum.
#[derive(Debug)]
pub struct Amount {
    location: Location,
    /// The number of restarts.
    pub restarts: u32,
}

impl Amount {
    /// From values, each with its restart; `None` without a finite one.
    pub fn of(values: impl IntoIterator<Item = (u32, f64)>) -> Option<Self> {
        let finite = values.into_iter().filter(|(_, value)| value.is_finite());
        let means = by_unit(finite);
        let location = Location::student(&means)?;
        Some(Self { location, restarts: means.len() as u32 })
    }

    /// The amount with its interval at `confidence` (0.95).
    pub fn estimate(&self, confidence: f64) -> Estimate {
        let (value, half) = (self.location.value, self.location.half_width(confidence));
        Estimate { value, low: value - half, high: value + half }
    }

    /// Two-sided p-value of the hypothesis that it is 0.
    pub fn p(&self) -> f64 {
        self.location.p()
    }

    /// The difference of two amounts that were measured independently, with Welch's interval.
    pub fn minus(&self, other: &Self) -> Self {
        Self {
            location: self.location.minus(&other.location),
            restarts: self.restarts.min(other.restarts),
        }
    }
}

// Nodes: the level above restarts, where a comparison was repeated on several machines.
//
// Restarts on one machine share the machine's peculiarities. So an interval that should hold for
// machines of a kind must rest on machines, as an interval for one machine rests on restarts
// (Kalibera and Jones 2013, section 6: the highest level that was repeated). Each restart is
// labelled with its node, and [`crate::effect`] takes the mean of a node's restarts and Student's
// interval over the nodes.
//
// Nodes have equal weight. Weights from each node's own variance, as in a meta-analysis, would rest
// on the few restarts of a node. `tests/nodes` compares both.

/// The pairs, each with its node in place of the restart. `node_of` has the node of each restart;
/// restarts without one are left out.
pub fn by_node(pairs: &[Pair], node_of: &[u32]) -> Vec<Pair> {
    let of_node = |pair: &Pair| {
        let restart = *node_of.get(pair.restart as usize)?;
        Some(Pair { restart, ..*pair })
    };
    pairs.iter().filter_map(of_node).collect()
}

/// How much nodes differ in a ratio: the variance component above restarts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeSpread {
    /// The number of nodes.
    pub nodes: u32,
    /// Standard deviation between nodes, in log units, with its interval. An interval that begins
    /// at 0 does not prove that nodes differ.
    pub between: Estimate,
    /// What restarts alone explain of the differences between nodes: the standard deviation of a
    /// node's mean, in log units (root mean square over nodes).
    pub within: f64,
}

impl NodeSpread {
    /// How much nodes differ, from pairs by node ([`by_node`]), with an interval at `confidence`.
    /// `None` with one node, or if no node has two restarts, so that nothing tells nodes from
    /// restarts.
    ///
    /// The variance is the variance of the nodes' means minus what restarts explain, at least 0.
    /// Its interval is Williams's and Tukey's ("A confidence interval for variance components",
    /// Biometrika 49, 1962), with the harmonic mean of the numbers of restarts where they differ
    /// (Thomas and Hultquist, "Interval estimation for the unbalanced case of the one-way random
    /// effects model", Annals of Statistics 6, 1978).
    pub fn of(pairs: &[Pair], confidence: f64) -> Option<Self> {
        let mut nodes = BTreeMap::<u32, Vec<f64>>::new();
        for pair in pairs.iter().filter(|p| p.log_ratio.is_finite()) {
            nodes.entry(pair.restart).or_default().push(pair.log_ratio);
        }
        let count = nodes.len();
        let spare: usize = nodes.values().map(|node| node.len() - 1).sum();
        if count < 2 || spare == 0 {
            return None;
        }
        let means: Vec<f64> = nodes.values().map(|node| mean(node)).collect();
        let squares = nodes.values().map(|node| variance(node) * (node.len() - 1) as f64);
        let each = squares.sum::<f64>() / spare as f64;
        let per_node = nodes.values().map(|node| 1.0 / node.len() as f64).sum::<f64>();
        let (found, within) = (variance(&means), each * per_node / count as f64);
        let (above, below) = ((count - 1) as f64, spare as f64);
        let end = |alpha: f64| {
            let f = student::fisher_quantile(alpha, above, below);
            ((found - within * f) / student::fisher_quantile(alpha, above, MANY)).max(0.0).sqrt()
        };
        let tail = (1.0 - confidence) / 2.0;
        let value = (found - within).max(0.0).sqrt();
        let between = Estimate { value, low: end(tail), high: end(1.0 - tail) };
        Some(Self { nodes: count as u32, between, within: within.sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Share;

    fn readings(values: &[f64]) -> Vec<Reading> {
        let reading = |(restart, &value)| Reading { restart, round: 0, share: Share::whole(value) };
        (0..).zip(values).map(reading).collect()
    }

    fn pair(restart: u32, log_ratio: f64) -> Pair {
        Pair { restart, log_ratio, rounds: 2 }
    }

    #[test]
    fn a_level_ignores_values_that_are_not_positive_and_finite() {
        let some = readings(&[100.0, -100.0, f64::INFINITY, f64::NAN, 0.0, 100.0]);
        let found = level(&some, 0.95).unwrap();
        assert!((found.value - 100.0).abs() < 1e-9 && found.is_bounded(), "{found:?}");
        assert_eq!(level(&some[1..3], 0.95), None);
    }

    #[test]
    fn equal_runs_without_noise_are_no_effect() {
        let side = |value: f64, runs: usize| vec![vec![value.ln(); 4]; runs];
        let same = across_runs(&side(5.0, 3), &side(5.0, 4), 0.95).unwrap();
        assert_eq!((same.ratio.value, same.p, same.restarts, same.rounds), (1.0, 1.0, 3, 12));
        let other = across_runs(&side(6.0, 3), &side(5.0, 3), 0.95).unwrap();
        assert!((other.ratio.low - 1.2).abs() < 1e-12 && other.p < 1e-12);
        assert_eq!(across_runs(&[vec![]], &side(5.0, 3), 0.95), None);
        assert_eq!(across_runs(&[vec![1.0], vec![]], &side(5.0, 3), 0.95), None);
    }

    /// Regression: of six identical runs, 8 of 15 pairs were called different. The restarts of a
    /// run were close to each other, and the runs were not.
    #[test]
    fn runs_count_once_however_many_restarts_they_have() {
        let run = |level: f64| vec![level - 0.001, level, level + 0.001, level];
        let one =
            across_runs(&[run(0.1), run(0.5), run(0.3)], &[run(0.0), run(0.4), run(0.2)], 0.95);
        let one = one.unwrap();
        assert!((one.ratio.value.ln() - 0.1).abs() < 1e-3 && one.p > 0.5, "{one:?}");
        let single = across_runs(&[run(0.1)], &[run(0.0)], 0.95).unwrap();
        assert_eq!((single.restarts, single.rounds), (1, 4));
        assert!(single.ratio.is_bounded() && single.p < 1e-3, "over restarts: {single:?}");
        let level = level_of_runs(&[run(0.1), run(0.3)], 0.95).unwrap();
        assert!((level.value.ln() - 0.2).abs() < 1e-3 && level.high > 3.0, "{level:?}");
    }

    /// Mean 2, standard error 1/√3, t = 4.302653.
    #[test]
    fn the_interval_over_three_restarts_is_students() {
        let found = effect(&[pair(0, 1.0), pair(1, 2.0), pair(5, 3.0)], 0.95).unwrap();
        assert_eq!((found.restarts, found.rounds), (3, 6));
        assert!((found.ratio.value.ln() - 2.0).abs() < 1e-12);
        assert!((found.ratio.high.ln() - 4.484_137_8).abs() < 1e-6, "{found:?}");
        assert_eq!(effect(&[], 0.95), None);
    }

    /// The shift's standard error of 1 adds to 1/√3: 2/√3, with Welch's degrees of freedom
    /// (4/3)² ÷ ((1/3)² ÷ 2) = 32, for which t is 2.036933.
    #[test]
    fn a_shift_is_taken_off_and_its_error_widens_the_interval() {
        let pairs = [pair(0, 1.0), pair(1, 2.0), pair(2, 3.0)];
        let shift = Shift { log: 0.5, standard_error: 1.0 };
        let found = shifted_effect(&pairs, shift, 0.95).unwrap();
        assert!((found.ratio.value.ln() - 1.5).abs() < 1e-12);
        let half = found.ratio.high.ln() - 1.5;
        assert!((half - 2.036_933 * 2.0 / 3.0_f64.sqrt()).abs() < 1e-4, "{half}");
    }

    #[test]
    fn a_node_counts_once_however_many_restarts_it_has() {
        let readings = readings(&[1.0, 1.0, 1.0, 4.0]);
        let found = level_of_nodes(&readings, &[0, 0, 0, 1], 0.95).unwrap();
        assert!((found.value - 2.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn the_far_end_may_be_either_end_of_the_interval() {
        let far_end = |low: f64, high: f64| {
            let ratio = Estimate { value: 1.0, low, high };
            Effect { ratio, p: 1.0, restarts: 3, rounds: 3 }.far_end()
        };
        assert_eq!(far_end(0.9, 1.05), -f64::ln(0.9));
        assert_eq!(far_end(1.02, 1.05), f64::ln(1.05));
    }

    #[test]
    fn servers_that_never_met_are_compared_through_the_reference() {
        let of = |around: f64| -> Vec<Pair> {
            (0..4).map(|n| pair(n, around + 0.01 * f64::from(n % 2))).collect()
        };
        let found = across_nodes(&of(0.5), &of(0.2), 0.95).unwrap();
        assert!((found.ratio.value.ln() - 0.3).abs() < 1e-9);
        assert!(found.restarts == 4 && found.p < 0.001 && found.ratio.low.ln() > 0.25);
        assert_eq!(across_nodes(&of(0.5), &[], 0.95), None);
    }

    mod location {
        use super::super::*;

        fn location(value: f64, standard_error: f64, df: f64) -> Location {
            Location { value, standard_error, df }
        }

        fn close(ours: f64, theirs: f64) {
            assert!((ours / theirs - 1.0).abs() < 1e-8, "ours {ours:e}, theirs {theirs:e}");
        }

        #[test]
        fn a_single_value_has_no_interval() {
            let one = Location::student(&[3.0]).unwrap();
            assert_eq!((one.value, one.half_width(0.95), one.p()), (3.0, f64::INFINITY, 1.0));
            assert!(Location::student(&[]).is_none());
        }

        #[test]
        fn the_p_value_of_a_location_without_error_says_whether_it_is_zero() {
            assert_eq!(location(0.0, 0.0, 2.0).p(), 1.0);
            assert_eq!(location(0.1, 0.0, 2.0).p(), 0.0);
            assert_eq!(location(0.1, f64::INFINITY, 0.0).p(), 1.0);
            assert_eq!(location(0.1, 0.0, 0.0).half_width(0.95), 0.0);
            close(location(0.2, 0.1, 2.0).half_width(0.95), 0.430_265_272_974_946);
        }

        /// Welch (1947): (a + b)² / (a² / df_a + b² / df_b), of the squared errors a and b.
        #[test]
        fn a_difference_has_welchs_degrees_of_freedom() {
            let of = |a, b| {
                let difference = location(5.0, a, 4.0).minus(&location(3.0, b, 2.0));
                assert_eq!(difference.value, 2.0);
                (difference.standard_error, difference.df)
            };
            let (error, df) = of(3.0, 4.0);
            assert_eq!(error, 5.0);
            close(df, 625.0 / (81.0 / 4.0 + 256.0 / 2.0));
            // An exact one adds nothing; for two exact ones the lower number holds.
            assert_eq!((of(3.0, 0.0), of(0.0, 3.0)), ((3.0, 4.0), (3.0, 2.0)));
            assert_eq!(of(0.0, 0.0), (0.0, 2.0));
            assert_eq!(of(f64::INFINITY, 1.0), (f64::INFINITY, 2.0));
            assert_eq!((welch_term(0.0, 0.0), welch_term(0.0, 4.0)), (0.0, 0.0));
            assert_eq!(welch_term(3.0, 4.0), 2.25);
        }

        #[test]
        fn a_variance_takes_two_values() {
            assert_eq!(variance(&[]), 0.0);
            assert_eq!(variance(&[3.0]), 0.0);
            assert_eq!(variance(&[3.0, 5.0]), 2.0);
        }
    }

    mod amount {
        use super::super::*;

        fn of(values: &[f64]) -> Amount {
            Amount::of((0..).zip(values.iter().copied())).unwrap()
        }

        /// Student's interval, computed in Python: mean 2, standard error 1/√3, t = 4.302653.
        #[test]
        fn the_interval_of_one_value_per_restart_is_students() {
            let amount = of(&[1.0, 2.0, 3.0]);
            let found = amount.estimate(0.95);
            assert_eq!((found.value, amount.restarts), (2.0, 3));
            assert!((found.high - 4.484_137_8).abs() < 1e-6, "{found:?}");
            assert!((found.low + 0.484_137_8).abs() < 1e-6, "{found:?}");
            assert!((amount.p() - 0.074_179_9).abs() < 1e-6, "{}", amount.p());
        }

        #[test]
        fn parts_add_up_to_their_sum() {
            let (one, other) = ([1.0, 7.0, 2.5], [0.5, -3.0, 40.0]);
            let sum: Vec<f64> = one.iter().zip(other).map(|(a, b)| a + b).collect();
            let value = |values: &[f64]| of(values).estimate(0.95).value;
            assert!((value(&one) + value(&other) - value(&sum)).abs() < 1e-12);
        }

        #[test]
        fn equal_values_are_known_exactly_and_a_single_one_is_not() {
            let same = of(&[1.0; 4]);
            assert_eq!((same.estimate(0.95).low, same.p()), (1.0, 0.0));
            assert_eq!(of(&[0.0; 4]).p(), 1.0);
            let single = of(&[1.0]);
            assert_eq!((single.estimate(0.95).is_bounded(), single.p()), (false, 1.0));
            assert!(Amount::of([(0, f64::NAN)]).is_none());
        }

        #[test]
        fn a_difference_has_the_errors_of_both() {
            let difference = of(&[5.0, 6.0, 7.0]).minus(&of(&[1.0, 2.0, 3.0, 2.0]));
            let found = difference.estimate(0.95);
            assert!((found.value - 4.0).abs() < 1e-12 && difference.restarts == 3);
            assert!(found.low > 1.0 && found.low < 3.0, "{found:?}");
        }
    }

    mod node {
        use super::super::*;
        use crate::effect;

        fn pair(restart: u32, log_ratio: f64) -> Pair {
            Pair { restart, log_ratio, rounds: 1 }
        }

        #[test]
        fn each_restart_is_labelled_with_its_node() {
            let pairs = [pair(0, 0.1), pair(1, 0.3), pair(2, 0.5), pair(7, 0.9)];
            assert_eq!(by_node(&pairs, &[4, 4, 6]), [pair(4, 0.1), pair(4, 0.3), pair(6, 0.5)]);
            assert_eq!(by_node(&[], &[0]), []);
        }

        /// Regression: a node was the robust mean of its restarts, which left out slow starts.
        #[test]
        fn a_slow_start_has_its_weight_in_the_mean_of_a_node() {
            let node = |node: u32| (0..5).map(move |n| pair(node, if n == 4 { 0.3 } else { 0.0 }));
            let found = effect(&node(0).chain(node(1)).collect::<Vec<_>>(), 0.95).unwrap();
            assert!((found.ratio.value.ln() - 0.06).abs() < 1e-12, "{found:?}");
        }

        /// Many restarts of two nodes do not make up for there being two nodes.
        #[test]
        fn an_interval_rests_on_nodes_and_not_on_restarts() {
            let restarts = |node: u32, around: f64| {
                (0..8).map(move |i| pair(node * 8 + i, around + 0.001 * f64::from(i)))
            };
            let pairs: Vec<Pair> = restarts(0, 0.10).chain(restarts(1, 0.14)).collect();
            let node_of: Vec<u32> = (0..16).map(|restart| restart / 8).collect();
            let (alone, merged) = (effect(&pairs, 0.95), effect(&by_node(&pairs, &node_of), 0.95));
            let (alone, merged) = (alone.unwrap(), merged.unwrap());
            assert_eq!((alone.restarts, merged.restarts, merged.rounds), (16, 2, 16));
            // Means 0.1035 and 0.1435, standard error 0.02, t(1) = 12.706.
            assert!((merged.ratio.value.ln() - 0.1235).abs() < 1e-9);
            assert!((merged.ratio.high.ln() - 0.1235 - 12.7062 * 0.02).abs() < 1e-4, "{merged:?}");
            assert!(alone.ratio.high.ln() < 0.14);
        }

        /// Nodes of means 0.1, 0.2 and 0.3; restarts scatter by ±0.01 around them. Variance of the
        /// means: 0.01. Of restarts: 0.0002, of which a mean of two has half. F(2, 3) has the
        /// quantiles 16.0441 and 0.0255 (1 ÷ F(3, 2) = 1 ÷ 39.1655), χ²(2) ÷ 2 has −ln 0.025 =
        /// 3.6889 and −ln 0.975 = 0.0253178.
        #[test]
        fn the_spread_of_nodes_is_what_restarts_do_not_explain() {
            let node =
                |node: u32, around: f64| [pair(node, around - 0.01), pair(node, around + 0.01)];
            let pairs = [node(0, 0.1), node(1, 0.2), node(2, 0.3)].concat();
            let found = NodeSpread::of(&pairs, 0.95).unwrap();
            assert!((found.between.value.powi(2) - 0.0099).abs() < 1e-12, "{found:?}");
            assert!((found.within.powi(2) - 0.0001).abs() < 1e-12, "{found:?}");
            let low = (0.01 - 0.0001 * 16.0441) / 3.6889;
            let high = (0.01 - 0.0001 / 39.1655) / 0.025_317_8;
            assert!((found.between.low.powi(2) / low - 1.0).abs() < 1e-3, "{found:?}");
            assert!((found.between.high.powi(2) / high - 1.0).abs() < 1e-3, "{found:?}");
            assert!(found.between.low > 0.0 && found.nodes == 3);
        }

        #[test]
        fn nodes_that_restarts_explain_are_not_proven_to_differ() {
            let pairs: Vec<Pair> =
                (0..12).map(|i| pair(i % 4, [0.0, 0.1, -0.1][(i / 4) as usize])).collect();
            let found = NodeSpread::of(&pairs, 0.95).unwrap();
            assert_eq!((found.between.value, found.between.low), (0.0, 0.0));
            assert!(found.within > 0.05);
        }

        #[test]
        fn one_node_or_one_restart_per_node_says_nothing_about_nodes() {
            assert_eq!(NodeSpread::of(&[pair(0, 0.1), pair(0, 0.2)], 0.95), None);
            assert_eq!(NodeSpread::of(&[pair(0, 0.1), pair(1, 0.2)], 0.95), None);
            assert_eq!(NodeSpread::of(&[], 0.95), None);
        }
    }
}
