//! The comparison of two servers, which of them are judged together, and what intervals rest on.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use hotlap_stats::{
    Better, Criterion, Effect, Estimate, NodeSpread, Pair, Reading, Shift, Verdict, across_nodes,
    by_node, level, level_of_nodes, shifted_effect, verdicts,
};
use serde::Serialize;

use crate::model::Run;

/// The effect and verdict of one measure; `None` without a comparison.
pub type Found = Option<(Effect, Verdict)>;

/// Two servers, by index: the first is compared with the second.
pub type ServerPair = (usize, usize);

/// A server compared with another, in each measure.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerComparison {
    /// The ratio of the server's figure to the other's, and the verdict.
    pub found: PerMeasure<Found>,
    /// Why there is no result for requests/s; `None` if there is one, or if the two have no round
    /// in common.
    pub limited: Option<Limited>,
}

/// What is known of requests/s if they are a bound, or follow the rate of an open loop.
#[derive(Debug, Clone, Copy)]
pub enum Limited {
    /// The generator limits the server. The ratio of its lower bound to the other's requests/s, if
    /// the verdict is that it is higher.
    Server(Option<Effect>),
    /// The generator limits the other server. The ratio to the other's lower bound, if the verdict
    /// is that it is lower.
    Other(Option<Effect>),
    /// The generator limits both, or both serve the full rate of an open loop.
    Both,
}

impl ServerComparison {
    /// The ratio in one measure, if the verdict is that the two differ.
    pub fn difference(&self, measure: Measure) -> Option<Estimate> {
        self.found[measure].filter(|(_, verdict)| verdict.differs()).map(|(effect, _)| effect.ratio)
    }
}

/// The verdicts of one table, given the comparisons of its pairs in each measure. [`verdicts`]
/// explains which of them are corrected together.
pub fn found_in_families(
    compared: PerMeasure<Vec<Option<(Criterion, Effect)>>>,
) -> Vec<PerMeasure<Found>> {
    let pairs = compared[Measure::Rate].len();
    let families: [&[Measure]; 2] =
        [&[Measure::Rate, Measure::Cost], &[Measure::P50, Measure::P99, Measure::Memory]];
    let mut found = vec![PerMeasure::default(); pairs];
    for family in families {
        let members: Vec<_> = family.iter().flat_map(|m| compared[*m].iter().copied()).collect();
        for (place, one) in judged(members).into_iter().enumerate() {
            found[place % pairs][family[place / pairs]] = one;
        }
    }
    found
}

/// The verdicts of comparisons that are made together; none if nothing can be compared.
pub(super) fn judged(compared: Vec<Option<(Criterion, Effect)>>) -> Vec<Found> {
    let known: Vec<(Criterion, Effect)> = compared.iter().flatten().copied().collect();
    let mut verdicts = verdicts(&known).into_iter();
    compared
        .into_iter()
        .map(|c| c.and_then(|(_, effect)| Some((effect, verdicts.next()?))))
        .collect()
}

/// A measure in which servers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Requests per second.
    Rate,
    /// CPU time per request.
    Cost,
    /// The median service time.
    P50,
    /// The 99th percentile of service time.
    P99,
    /// Resident memory: the maximum of a round.
    Memory,
}

/// A value for each measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PerMeasure<T> {
    /// Requests per second.
    pub requests_per_s: T,
    /// CPU time per request.
    pub cost: T,
    /// The median service time; response time in an open loop.
    pub p50: T,
    /// The 99th percentile of the same.
    pub p99: T,
    /// Resident memory.
    pub memory: T,
}

impl Measure {
    /// All measures, in the order of tables.
    pub const ALL: [Self; 5] = [Self::Rate, Self::Cost, Self::P50, Self::P99, Self::Memory];

    /// Which direction is better.
    pub fn better(self) -> Better {
        match self {
            Self::Rate => Better::Higher,
            Self::Cost | Self::P50 | Self::P99 | Self::Memory => Better::Lower,
        }
    }

    /// Whether a generator at its limit hides the figure: it hides a server's speed, not its CPU
    /// time.
    pub fn is_hidden_by_generator(self) -> bool {
        matches!(self, Self::Rate | Self::P50 | Self::P99)
    }
}

impl<T> PerMeasure<T> {
    /// Makes the value of each measure in turn, in the order of [`Measure::ALL`].
    pub fn of(mut value: impl FnMut(Measure) -> T) -> Self {
        Self {
            requests_per_s: value(Measure::Rate),
            cost: value(Measure::Cost),
            p50: value(Measure::P50),
            p99: value(Measure::P99),
            memory: value(Measure::Memory),
        }
    }
}

impl<T> Index<Measure> for PerMeasure<T> {
    type Output = T;

    fn index(&self, measure: Measure) -> &T {
        match measure {
            Measure::Rate => &self.requests_per_s,
            Measure::Cost => &self.cost,
            Measure::P50 => &self.p50,
            Measure::P99 => &self.p99,
            Measure::Memory => &self.memory,
        }
    }
}

impl<T> IndexMut<Measure> for PerMeasure<T> {
    fn index_mut(&mut self, measure: Measure) -> &mut T {
        match measure {
            Measure::Rate => &mut self.requests_per_s,
            Measure::Cost => &mut self.cost,
            Measure::P50 => &mut self.p50,
            Measure::P99 => &mut self.p99,
            Measure::Memory => &mut self.memory,
        }
    }
}

/// The level that intervals rest on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Level {
    /// The node of each restart; `None` for a run of one machine.
    node_of: Option<Vec<u32>>,
}

impl Level {
    /// The level of a run.
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
        readings.iter().filter_map(unit).collect::<BTreeSet<u32>>().len()
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
