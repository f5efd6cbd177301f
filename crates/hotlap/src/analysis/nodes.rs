//! What intervals rest on: the restarts of one machine, or the nodes of a pool.

use hotlap_stats::{
    Effect, Estimate, NodeSpread, Pair, Reading, Shift, across_nodes, by_node, level,
    level_of_nodes, shifted_effect,
};

use crate::model::Run;

/// The level that intervals rest on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Level {
    /// The node of each restart; `None` for a run of one machine.
    node_of: Option<Vec<u32>>,
}

impl Level {
    /// That of a run.
    pub fn of(run: &Run) -> Self {
        Self { node_of: run.pool.as_ref().map(|pool| pool.node_of.clone()) }
    }

    /// Whether it is nodes.
    pub fn is_nodes(&self) -> bool {
        self.node_of.is_some()
    }

    /// The ratio from pairs without what the method did to it, with its interval at `confidence`.
    pub fn effect(&self, pairs: &[Pair], shift: Shift, confidence: f64) -> Option<Effect> {
        match &self.node_of {
            None => shifted_effect(pairs, shift, confidence),
            Some(nodes) => shifted_effect(&by_node(pairs, nodes), shift, confidence),
        }
    }

    /// The level of readings, with its interval at `confidence`.
    pub fn level(&self, readings: &[Reading], confidence: f64) -> Option<Estimate> {
        match &self.node_of {
            None => level(readings, confidence),
            Some(nodes) => level_of_nodes(readings, nodes, confidence),
        }
    }

    /// The number of restarts, or nodes, that have readings.
    pub fn count(&self, readings: &[Reading]) -> usize {
        let unit = |reading: &Reading| match &self.node_of {
            None => Some(reading.restart),
            Some(nodes) => nodes.get(reading.restart as usize).copied(),
        };
        let units: std::collections::BTreeSet<u32> = readings.iter().filter_map(unit).collect();
        units.len()
    }

    /// Two servers of a pool that no shard measured together, each compared with the reference of
    /// its shards; `None` in a run of one machine.
    pub(super) fn through_reference(
        &self,
        [one, other]: [&[Pair]; 2],
        confidence: f64,
    ) -> Option<Effect> {
        let nodes = self.node_of.as_ref()?;
        across_nodes(&by_node(one, nodes), &by_node(other, nodes), confidence)
    }

    /// How much nodes differ in the ratio; `None` in a run of one machine.
    pub(super) fn spread(&self, pairs: &[Pair], confidence: f64) -> Option<NodeSpread> {
        NodeSpread::of(&by_node(pairs, self.node_of.as_ref()?), confidence)
    }
}
