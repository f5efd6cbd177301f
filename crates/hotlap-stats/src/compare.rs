//! The level of one server and the ratio of two servers, each with its interval.
//!
//! A restart is reduced to its totals: all CPU time over all requests, or all responses over all
//! time. The interval is Student's over the n restarts, with n − 1 degrees of freedom. An interval
//! must be based on the highest level that was repeated (Kalibera and Jones, "Rigorous
//! benchmarking in reasonable time", ISMM 2013, section 6). A single restart has no interval. If a
//! comparison was repeated on several nodes or in several runs, [`by_node`] or [`Mean::of_runs`]
//! labels each value with its node or run. Nodes or runs then take the place of restarts. Levels,
//! ratios and amounts are all computed as a [`Mean`].
//!
//! Ratios and levels are computed on logarithms, because they are positive and noise multiplies
//! them. Amounts are added up, so they keep their unit.

use std::collections::BTreeMap;

use crate::estimate::Estimate;
use crate::reading::{ByRestart, Reading, totals};
use crate::student::{self, MANY};

/// The figure of one server relative to the figure of another server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// The ratio server / reference, with its interval.
    pub ratio: Estimate,
    /// The two-sided p-value of the hypothesis that the ratio is 1.
    pub p: f64,
    /// The number of restarts, nodes or runs on which the ratio is based.
    pub restarts: u32,
}

impl Effect {
    /// Returns the distance from a ratio of 1 to the further end of the interval, in log units.
    pub fn far_end(&self) -> f64 {
        self.ratio.low.ln().abs().max(self.ratio.high.ln().abs())
    }
}

/// Returns the level of one server over all restarts, with its interval at `confidence` (0.95).
/// Restarts whose totals are not positive and finite are left out. `None` if no restart remains.
pub fn level(readings: &[Reading], confidence: f64) -> Option<Estimate> {
    Some(Mean::of(totals(readings))?.exp(confidence))
}

/// Returns the ratio of two servers from their [`crate::pairs`], with its interval at `confidence`
/// (0.95). `None` without pairs.
///
/// In a simulation (`tests/coverage`), 94.6 to 98.7% of the 95% intervals contained the true
/// ratio. If a server has rare bursts of its own, fewer do so (docs/evidence.md, *Coverage of
/// intervals*).
pub fn effect(pairs: &ByRestart, confidence: f64) -> Option<Effect> {
    Some(Mean::of(pairs.clone())?.effect(confidence))
}

/// The mean of independent values, with its error. The values are logarithms of levels or ratios,
/// or amounts per request. An amount may be 0 or negative. The mean of an amount is arithmetic, so
/// the means of parts add up to the mean of the whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    value: f64,
    /// The standard error of `value`, which is infinite for a single value.
    standard_error: f64,
    /// The degrees of freedom of the standard error.
    df: f64,
    /// The number of restarts, nodes or runs on which the mean is based.
    pub restarts: u32,
}

impl Mean {
    /// Returns the mean over the restarts, nodes or runs that label the values. Values with the
    /// same label count as one value, their mean. `None` without a finite value.
    pub fn of(values: impl IntoIterator<Item = (u32, f64)>) -> Option<Self> {
        let units: Vec<f64> = by_unit(values).values().map(|values| mean(values)).collect();
        let n = units.len() as f64;
        let standard_error =
            if units.len() < 2 { f64::INFINITY } else { (variance(&units) / n).sqrt() };
        (n > 0.0).then(|| Self {
            value: mean(&units),
            standard_error,
            df: n - 1.0,
            restarts: units.len() as u32,
        })
    }

    /// Returns the mean over runs, or over the restarts of a single run. `None` if a run has no
    /// value.
    ///
    /// Each run is one sample of the machine. Six identical runs within two minutes differed by up
    /// to 47% ± 3% (the interval over restarts), so the interval is computed over runs. A single
    /// run has an interval over its restarts, which is too narrow for a verdict.
    pub fn of_runs(runs: &[ByRestart]) -> Option<Self> {
        let over_restarts = |run: &ByRestart| Self::of(run.clone());
        let label = |(n, run)| Some((n, over_restarts(run)?.value));
        match runs {
            [run] => Some(Self { restarts: 1, ..over_restarts(run)? }),
            _ => Self::of((0..).zip(runs).map(label).collect::<Option<Vec<_>>>()?),
        }
    }

    /// Returns the mean for a value that was measured independently of restarts, by many probes or
    /// windows.
    pub fn known(value: f64, standard_error: f64) -> Self {
        Self { value, standard_error, df: MANY, restarts: u32::MAX }
    }

    /// Returns half the width of Student's interval.
    fn half_width(&self, confidence: f64) -> f64 {
        match self.standard_error {
            0.0 => 0.0,
            error => student::quantile(1.0 - confidence, self.df) * error,
        }
    }

    /// Returns the two-sided p-value of the hypothesis that the mean is 0.
    pub fn p(&self) -> f64 {
        // With an error of 0, the quotient is infinite, or NaN if the value is 0. p is then 0 or 1.
        student::two_sided_p(self.value / self.standard_error, self.df)
    }

    /// Returns the difference of two means that were measured independently. The squared errors add
    /// up, with Welch's degrees of freedom ("The generalization of 'Student's' problem when several
    /// different population variances are involved", Biometrika 34, 1947).
    pub fn minus(&self, other: &Self) -> Self {
        let (a, b) = (self.standard_error.powi(2), other.standard_error.powi(2));
        let df = match a + b {
            sum if sum > 0.0 && sum.is_finite() => {
                sum.powi(2) / (welch_term(a, self.df) + welch_term(b, other.df))
            }
            _ => self.df.min(other.df),
        };
        Self {
            value: self.value - other.value,
            standard_error: (a + b).sqrt(),
            df,
            restarts: self.restarts.min(other.restarts),
        }
    }

    /// Returns the mean with its interval at `confidence` (0.95).
    pub fn estimate(&self, confidence: f64) -> Estimate {
        let half = self.half_width(confidence);
        Estimate { value: self.value, low: self.value - half, high: self.value + half }
    }

    /// Returns the exponential of the mean, which turns log units into a ratio or a level.
    pub fn exp(&self, confidence: f64) -> Estimate {
        let Estimate { value, low, high } = self.estimate(confidence);
        Estimate { value: value.exp(), low: low.exp(), high: high.exp() }
    }

    /// Returns the ratio whose logarithm is this mean.
    pub fn effect(&self, confidence: f64) -> Effect {
        Effect { ratio: self.exp(confidence), p: self.p(), restarts: self.restarts }
    }
}

/// Returns the term of one squared error in the denominator of Welch's degrees of freedom. An error
/// of 0 adds nothing, even without degrees of freedom.
fn welch_term(squared_error: f64, df: f64) -> f64 {
    if squared_error > 0.0 { squared_error.powi(2) / df } else { 0.0 }
}

/// Groups the finite values by restart, node or run.
fn by_unit(values: impl IntoIterator<Item = (u32, f64)>) -> BTreeMap<u32, Vec<f64>> {
    let mut units = BTreeMap::<u32, Vec<f64>>::new();
    for (unit, value) in values.into_iter().filter(|(_, value)| value.is_finite()) {
        units.entry(unit).or_default().push(value);
    }
    units
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the sample variance, or 0 for fewer than two values.
fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    squares / (values.len() - 1) as f64
}

// Nodes are the level above restarts, if a comparison was repeated on several machines.
//
// Restarts on one machine share the machine's peculiarities. An interval for all machines of a kind
// must therefore rest on machines. In the same way, an interval for one machine rests on restarts
// (Kalibera and Jones 2013, section 6: the highest level that was repeated). Each restart is
// labelled with its node. [`Mean::of`] takes the mean of each node's restarts, and Student's
// interval over the nodes.
//
// Nodes have equal weight. A meta-analysis would weight each node by its variance, which rests on
// few restarts here. `tests/nodes` compares both methods.

/// Labels each value with its node in place of its restart. `node_of` contains the node of each
/// restart. Restarts without a node are left out.
pub fn by_node(values: ByRestart, node_of: &[u32]) -> Vec<(u32, f64)> {
    let of_node = |(restart, value)| Some((*node_of.get(restart as usize)?, value));
    values.into_iter().filter_map(of_node).collect()
}

/// How much a ratio differs between nodes: the variance component above restarts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeSpread {
    /// The number of nodes.
    pub nodes: u32,
    /// The standard deviation between nodes, in log units, with its interval. An interval that
    /// begins at 0 does not prove that nodes differ.
    pub between: Estimate,
    /// The part of the differences between nodes that restarts alone explain. The figure is the
    /// standard deviation of a node's mean, in log units (root mean square over nodes).
    pub within: f64,
}

impl NodeSpread {
    /// Computes from pairs by node ([`by_node`]) how much nodes differ, with an interval at
    /// `confidence`. `None` with one node, or if no node has two restarts.
    ///
    /// The variance between nodes is the variance of their means minus the part that restarts
    /// explain, but at least 0. The interval is Williams and Tukey's ("A confidence interval for
    /// variance components", Biometrika 49, 1962). If the numbers of restarts differ, their
    /// harmonic mean is used (Thomas and Hultquist, "Interval estimation for the unbalanced case of
    /// the one-way random effects model", Annals of Statistics 6, 1978).
    pub fn of(pairs: Vec<(u32, f64)>, confidence: f64) -> Option<Self> {
        let nodes = by_unit(pairs);
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

    #[test]
    fn a_level_ignores_values_that_are_not_positive_and_finite() {
        let some = readings(&[100.0, -100.0, f64::INFINITY, f64::NAN, 0.0, 100.0]);
        let found = level(&some, 0.95).unwrap();
        assert!((found.value - 100.0).abs() < 1e-9 && found.is_bounded(), "{found:?}");
        assert_eq!(level(&some[1..3], 0.95), None);
    }

    #[test]
    fn equal_runs_without_noise_are_no_effect() {
        let side = |value: f64, runs: usize| {
            let run = (0..4).map(|restart| (restart, value.ln())).collect();
            Mean::of_runs(&vec![run; runs]).unwrap()
        };
        let same = side(5.0, 3).minus(&side(5.0, 4)).effect(0.95);
        assert_eq!((same.ratio.value, same.p, same.restarts), (1.0, 1.0, 3));
        let other = side(6.0, 3).minus(&side(5.0, 3)).effect(0.95);
        assert!((other.ratio.low - 1.2).abs() < 1e-12 && other.p < 1e-12);
        assert_eq!(Mean::of_runs(&[ByRestart::new()]), None);
        assert_eq!(Mean::of_runs(&[ByRestart::from([(0, 1.0)]), ByRestart::new()]), None);
    }

    /// Regression: of six identical runs, 8 of 15 pairs were called different. The restarts within
    /// a run were close to each other, but the runs were not.
    #[test]
    fn runs_count_once_however_many_restarts_they_have() {
        let runs = |levels: &[f64]| {
            let run = |level: &f64| (0..).zip([level - 0.001, *level, level + 0.001, *level]);
            let runs: Vec<_> = levels.iter().map(|level| run(level).collect()).collect();
            Mean::of_runs(&runs).unwrap()
        };
        let one = runs(&[0.1, 0.5, 0.3]).minus(&runs(&[0.0, 0.4, 0.2])).effect(0.95);
        assert!((one.ratio.value.ln() - 0.1).abs() < 1e-3 && one.p > 0.5, "{one:?}");
        let single = runs(&[0.1]).minus(&runs(&[0.0])).effect(0.95);
        assert_eq!(single.restarts, 1);
        assert!(single.ratio.is_bounded() && single.p < 1e-3, "over restarts: {single:?}");
        let level = runs(&[0.1, 0.3]).exp(0.95);
        assert!((level.value.ln() - 0.2).abs() < 1e-3 && level.high > 3.0, "{level:?}");
    }

    /// The mean is 2, the standard error is 1/√3, and t is 4.302653.
    #[test]
    fn the_interval_over_three_restarts_is_students() {
        let found = effect(&[(0, 1.0), (1, 2.0), (5, 3.0)].into(), 0.95).unwrap();
        assert_eq!(found.restarts, 3);
        assert!((found.ratio.value.ln() - 2.0).abs() < 1e-12);
        assert!((found.ratio.high.ln() - 4.484_137_8).abs() < 1e-6, "{found:?}");
        assert_eq!(effect(&ByRestart::new(), 0.95), None);
    }

    /// The variances of the shift, 1, and of the mean, 1/3, add up to 4/3, so the standard error is
    /// 2/√3. Welch's degrees of freedom are (4/3)² ÷ ((1/3)² ÷ 2) = 32, for which t is 2.036933.
    #[test]
    fn a_shift_is_taken_off_and_its_error_widens_the_interval() {
        let pairs = Mean::of([(0, 1.0), (1, 2.0), (2, 3.0)]).unwrap();
        let found = pairs.minus(&Mean::known(0.5, 1.0)).effect(0.95);
        assert_eq!(found.restarts, 3);
        assert!((found.ratio.value.ln() - 1.5).abs() < 1e-12);
        let half = found.ratio.high.ln() - 1.5;
        assert!((half - 2.036_933 * 2.0 / 3.0_f64.sqrt()).abs() < 1e-4, "{half}");
    }

    #[test]
    fn a_node_counts_once_however_many_restarts_it_has() {
        let readings = readings(&[1.0, 1.0, 1.0, 4.0]);
        let nodes = by_node(totals(&readings), &[0, 0, 0, 1]);
        let found = Mean::of(nodes).unwrap().exp(0.95);
        assert!((found.value - 2.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn the_far_end_may_be_either_end_of_the_interval() {
        let far_end = |low: f64, high: f64| {
            let ratio = Estimate { value: 1.0, low, high };
            Effect { ratio, p: 1.0, restarts: 3 }.far_end()
        };
        assert_eq!(far_end(0.9, 1.05), -f64::ln(0.9));
        assert_eq!(far_end(1.02, 1.05), f64::ln(1.05));
    }

    #[test]
    fn servers_that_never_met_are_compared_through_the_reference() {
        let of =
            |around: f64| Mean::of((0..4).map(|n| (n, around + 0.01 * f64::from(n % 2)))).unwrap();
        let found = of(0.5).minus(&of(0.2)).effect(0.95);
        assert!((found.ratio.value.ln() - 0.3).abs() < 1e-9);
        assert!(found.restarts == 4 && found.p < 0.001 && found.ratio.low.ln() > 0.25);
    }

    mod mean_value {
        use super::super::*;

        fn location(value: f64, standard_error: f64, df: f64) -> Mean {
            Mean { value, standard_error, df, restarts: 3 }
        }

        fn close(ours: f64, theirs: f64) {
            assert!((ours / theirs - 1.0).abs() < 1e-8, "ours {ours:e}, theirs {theirs:e}");
        }

        #[test]
        fn a_single_value_has_no_interval() {
            let one = Mean::of([(0, 3.0)]).unwrap();
            assert_eq!((one.value, one.half_width(0.95), one.p()), (3.0, f64::INFINITY, 1.0));
            assert_eq!(Mean::of([]), None);
        }

        #[test]
        fn the_p_value_of_a_location_without_error_says_whether_it_is_zero() {
            assert_eq!(location(0.0, 0.0, 2.0).p(), 1.0);
            assert_eq!(location(0.1, 0.0, 2.0).p(), 0.0);
            assert_eq!(location(0.1, f64::INFINITY, 0.0).p(), 1.0);
            assert_eq!(location(0.1, 0.0, 0.0).half_width(0.95), 0.0);
            close(location(0.2, 0.1, 2.0).half_width(0.95), 0.430_265_272_974_946);
        }

        /// With the squared errors a and b, the formula of Welch (1947) is (a + b)² / (a² / df_a +
        /// b² / df_b).
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
            // An exact mean adds no term. For two exact means, the lower number of degrees of
            // freedom applies.
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

        fn of(values: &[f64]) -> Mean {
            Mean::of((0..).zip(values.iter().copied())).unwrap()
        }

        /// Student's interval was computed in Python: the mean is 2, the standard error is 1/√3,
        /// and t is 4.302653.
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
            assert!(Mean::of([(0, f64::NAN)]).is_none());
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

        #[test]
        fn each_restart_is_labelled_with_its_node() {
            let pairs = ByRestart::from([(0, 0.1), (1, 0.3), (2, 0.5), (7, 0.9)]);
            assert_eq!(by_node(pairs, &[4, 4, 6]), [(4, 0.1), (4, 0.3), (6, 0.5)]);
            assert_eq!(by_node(ByRestart::new(), &[0]), []);
        }

        /// Regression: the figure of a node was the robust mean of its restarts, which left out
        /// slow starts.
        #[test]
        fn a_slow_start_has_its_weight_in_the_mean_of_a_node() {
            let node = |node: u32| (0..5).map(move |n| (node, if n == 4 { 0.3 } else { 0.0 }));
            let found = Mean::of(node(0).chain(node(1))).unwrap().effect(0.95);
            assert!((found.ratio.value.ln() - 0.06).abs() < 1e-12, "{found:?}");
        }

        /// Many restarts do not make up for having only two nodes.
        #[test]
        fn an_interval_rests_on_nodes_and_not_on_restarts() {
            let restarts = |node: u32, around: f64| {
                (0..8).map(move |i| (node * 8 + i, around + 0.001 * f64::from(i)))
            };
            let pairs: ByRestart = restarts(0, 0.10).chain(restarts(1, 0.14)).collect();
            let node_of: Vec<u32> = (0..16).map(|restart| restart / 8).collect();
            let alone = effect(&pairs, 0.95).unwrap();
            let merged = Mean::of(by_node(pairs, &node_of)).unwrap().effect(0.95);
            assert_eq!((alone.restarts, merged.restarts), (16, 2));
            // The means are 0.1035 and 0.1435, the standard error is 0.02, and t(1) is 12.706.
            assert!((merged.ratio.value.ln() - 0.1235).abs() < 1e-9);
            assert!((merged.ratio.high.ln() - 0.1235 - 12.7062 * 0.02).abs() < 1e-4, "{merged:?}");
            assert!(alone.ratio.high.ln() < 0.14);
        }

        /// Three nodes have means of 0.1, 0.2 and 0.3, and their restarts scatter by ±0.01 around
        /// them. The variance of the means is 0.01. The variance of restarts is 0.0002, and a mean
        /// of two restarts has half of it. F(2, 3) has the quantiles 16.0441 and 0.0255 (1 ÷ F(3,
        /// 2) = 1 ÷ 39.1655). χ²(2) ÷ 2 has the quantiles −ln 0.025 = 3.6889 and −ln 0.975 =
        /// 0.0253178.
        #[test]
        fn the_spread_of_nodes_is_what_restarts_do_not_explain() {
            let node = |node: u32, around: f64| [(node, around - 0.01), (node, around + 0.01)];
            let pairs = [node(0, 0.1), node(1, 0.2), node(2, 0.3)].concat();
            let found = NodeSpread::of(pairs, 0.95).unwrap();
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
            let pairs: Vec<_> =
                (0..12).map(|i| (i % 4, [0.0, 0.1, -0.1][(i / 4) as usize])).collect();
            let found = NodeSpread::of(pairs, 0.95).unwrap();
            assert_eq!((found.between.value, found.between.low), (0.0, 0.0));
            assert!(found.within > 0.05);
        }

        #[test]
        fn one_node_or_one_restart_per_node_says_nothing_about_nodes() {
            assert_eq!(NodeSpread::of(vec![(0, 0.1), (0, 0.2)], 0.95), None);
            assert_eq!(NodeSpread::of(vec![(0, 0.1), (1, 0.2)], 0.95), None);
            assert_eq!(NodeSpread::of(vec![], 0.95), None);
        }
    }
}
