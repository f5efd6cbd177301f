//! Nodes: the level above restarts, where a comparison was repeated on several machines.
//!
//! Restarts on one machine share whatever is particular to it, so an interval that is to hold for
//! machines of a kind must rest on machines, as one within a machine rests on restarts (Kalibera
//! and Jones 2013, section 6: the highest level that was repeated). Each restart is labelled with
//! its node, and [`crate::effect`] takes the mean of a node's restarts and Student's interval over
//! the nodes.
//!
//! Nodes have equal weight. Weights from each node's own variance, as in a meta-analysis, rest on
//! the few restarts of a node; `tests/nodes` compares both.

use std::collections::BTreeMap;

use super::location::{mean, variance};
use super::reading::Pair;
use crate::estimate::Estimate;
use crate::fisher::{self, MANY};

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
    /// The variance is that of the nodes' means minus what restarts explain, at least 0. Its
    /// interval is Williams's and Tukey's ("A confidence interval for variance components",
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
            let f = fisher::quantile(alpha, above, below);
            ((found - within * f) / fisher::quantile(alpha, above, MANY)).max(0.0).sqrt()
        };
        let tail = (1.0 - confidence) / 2.0;
        let value = (found - within).max(0.0).sqrt();
        let between = Estimate { value, low: end(tail), high: end(1.0 - tail) };
        Some(Self { nodes: count as u32, between, within: within.sqrt() })
    }

    /// Whether it is proven that nodes differ by more than restarts.
    pub fn is_proven(&self) -> bool {
        self.between.low > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    /// means: 0.01. Of restarts: 0.0002, of which a mean of two has half. F(2, 3) has the quantiles
    /// 16.0441 and 0.0255 (1 ÷ F(3, 2) = 1 ÷ 39.1655), χ²(2) ÷ 2 has −ln 0.025 = 3.6889 and −ln
    /// 0.975 = 0.0253178.
    #[test]
    fn the_spread_of_nodes_is_what_restarts_do_not_explain() {
        let node = |node: u32, around: f64| [pair(node, around - 0.01), pair(node, around + 0.01)];
        let pairs = [node(0, 0.1), node(1, 0.2), node(2, 0.3)].concat();
        let found = NodeSpread::of(&pairs, 0.95).unwrap();
        assert!((found.between.value.powi(2) - 0.0099).abs() < 1e-12, "{found:?}");
        assert!((found.within.powi(2) - 0.0001).abs() < 1e-12, "{found:?}");
        let low = (0.01 - 0.0001 * 16.0441) / 3.6889;
        let high = (0.01 - 0.0001 / 39.1655) / 0.025_317_8;
        assert!((found.between.low.powi(2) / low - 1.0).abs() < 1e-3, "{found:?}");
        assert!((found.between.high.powi(2) / high - 1.0).abs() < 1e-3, "{found:?}");
        assert!(found.is_proven() && found.nodes == 3);
    }

    #[test]
    fn nodes_that_restarts_explain_are_not_proven_to_differ() {
        let pairs: Vec<Pair> =
            (0..12).map(|i| pair(i % 4, [0.0, 0.1, -0.1][(i / 4) as usize])).collect();
        let found = NodeSpread::of(&pairs, 0.95).unwrap();
        assert_eq!((found.between.value, found.between.low), (0.0, 0.0));
        assert!(!found.is_proven() && found.within > 0.05);
    }

    #[test]
    fn one_node_or_one_restart_per_node_says_nothing_about_nodes() {
        assert_eq!(NodeSpread::of(&[pair(0, 0.1), pair(0, 0.2)], 0.95), None);
        assert_eq!(NodeSpread::of(&[pair(0, 0.1), pair(1, 0.2)], 0.95), None);
        assert_eq!(NodeSpread::of(&[], 0.95), None);
    }
}
