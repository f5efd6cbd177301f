//! Defines how two servers are compared, which verdicts form a family, and what intervals rest on.

use std::ops::Index;

use hotlap_stats::{
    Better, ByRestart, Criterion, Effect, Estimate, Inconclusive, Mean, NodeSpread, Verdict,
    by_node, verdicts,
};
use serde::Serialize;

use crate::model::Run;

/// The effect in one measure, and the criterion for its verdict. `None` without a comparison.
pub type Compared = Option<(Criterion, Effect)>;

/// The effect in one measure, and its verdict. `None` without a comparison.
pub type Found = Option<(Effect, Verdict)>;

/// The indices of two servers. The first server is compared with the second.
pub type ServerPair = (usize, usize);

/// The comparison of a server with another server, in each measure.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerComparison {
    /// The ratio of the server's figure to the other server's figure, and the verdict.
    pub found: PerMeasure<Found>,
    /// What is known instead of a ratio of requests/s. `None` unless the generator limits a server,
    /// or both servers serve the full rate of an open loop.
    pub limited: Option<Limited>,
}

/// What is known about requests/s that are a bound, or that follow the rate of an open loop.
#[derive(Debug, Clone, Copy)]
pub enum Limited {
    /// The generator limits the server. The effect is the ratio of the server's lower bound to the
    /// other server's requests/s, if the verdict is that the server is faster.
    Server(Option<Effect>),
    /// The generator limits the other server. The effect is the ratio of the server's requests/s to
    /// the other server's lower bound, if the verdict is that the server is slower.
    Other(Option<Effect>),
    /// The generator limits both servers, or both serve the full rate of an open loop.
    Both,
}

impl ServerComparison {
    /// Returns the ratio in one measure, if the verdict is that the two servers differ.
    pub fn difference(&self, measure: Measure) -> Option<Estimate> {
        self.found[measure].filter(|(_, verdict)| verdict.differs()).map(|(effect, _)| effect.ratio)
    }
}

/// Returns the verdicts of one table, given the comparisons of its pairs of servers. [`verdicts`]
/// explains which verdicts are corrected together.
pub fn found_in_families(compared: &[PerMeasure<Compared>]) -> Vec<PerMeasure<Found>> {
    let family = |in_sentences: bool| {
        let is_own = move |measure: &Measure| measure.is_in_sentences() == in_sentences;
        let pairs = compared.iter();
        judged(
            pairs.flat_map(|of| Measure::ALL.into_iter().filter(is_own).map(|m| of[m])).collect(),
        )
        .into_iter()
    };
    let (mut sentences, mut others) = (family(true), family(false));
    let mut next = |measure: Measure| {
        let family = if measure.is_in_sentences() { &mut sentences } else { &mut others };
        family.next().flatten()
    };
    compared.iter().map(|_| PerMeasure::of(&mut next)).collect()
}

/// Returns the verdicts of comparisons that form one family, or `None` without a comparison.
pub(super) fn judged(compared: Vec<Compared>) -> Vec<Found> {
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
    /// CPU time of the run's database per request.
    Database,
    /// CPU time of the server and of the database per request.
    Total,
    /// The median service time, or response time in an open loop.
    P50,
    /// The 99th percentile of service time, or of response time in an open loop.
    P99,
    /// The maximum resident memory in a restart.
    Memory,
}

/// A value for each measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PerMeasure<T> {
    /// Requests per second.
    pub requests_per_s: T,
    /// CPU time per request.
    pub cost: T,
    /// CPU time of the run's database per request.
    pub database: T,
    /// CPU time of the server and of the database per request.
    pub total: T,
    /// The median service time, or the median response time in an open loop.
    pub p50: T,
    /// The 99th percentile of service time, or of response time in an open loop.
    pub p99: T,
    /// Resident memory.
    pub memory: T,
}

impl Measure {
    /// All measures, in the order of tables.
    pub const ALL: [Self; 7] =
        [Self::Rate, Self::Cost, Self::Database, Self::Total, Self::P50, Self::P99, Self::Memory];

    /// Returns which direction is better in this measure.
    pub fn better(self) -> Better {
        match self {
            Self::Rate => Better::Higher,
            _ => Better::Lower,
        }
    }

    /// Returns the criterion for verdicts in this measure. `withheld` is the reason why no verdict
    /// can be given.
    pub fn criterion(self, confidence: f64, withheld: Option<Inconclusive>) -> Criterion {
        Criterion { alpha: 1.0 - confidence, withheld, better: self.better() }
    }

    /// Whether the sentences of a table mention this measure.
    fn is_in_sentences(self) -> bool {
        matches!(self, Self::Rate) || self.is_cost()
    }

    /// Whether this measure is CPU time per request.
    pub fn is_cost(self) -> bool {
        matches!(self, Self::Cost | Self::Database | Self::Total)
    }

    /// Whether a generator at its limit hides figures in this measure. Such a generator hides the
    /// speed of a server, but not its CPU time.
    pub fn is_hidden_by_generator(self) -> bool {
        matches!(self, Self::Rate | Self::P50 | Self::P99)
    }
}

impl<T> PerMeasure<T> {
    /// Computes the value of each measure in turn, in the order of [`Measure::ALL`].
    pub fn of(mut value: impl FnMut(Measure) -> T) -> Self {
        Self {
            requests_per_s: value(Measure::Rate),
            cost: value(Measure::Cost),
            database: value(Measure::Database),
            total: value(Measure::Total),
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
            Measure::Database => &self.database,
            Measure::Total => &self.total,
            Measure::P50 => &self.p50,
            Measure::P99 => &self.p99,
            Measure::Memory => &self.memory,
        }
    }
}

/// What intervals rest on: restarts, or nodes in a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Level {
    /// The node of each restart. `None` for a run on one machine.
    node_of: Option<Vec<u32>>,
}

impl Level {
    /// Returns what the intervals of a run rest on.
    pub fn of(run: &Run) -> Self {
        Self { node_of: run.pool.as_ref().map(|pool| pool.node_of.clone()) }
    }

    /// Whether intervals rest on nodes.
    pub fn is_nodes(&self) -> bool {
        self.node_of.is_some()
    }

    /// Returns the mean of a figure over restarts, or over nodes in a pool.
    pub fn mean(&self, values: ByRestart) -> Option<Mean> {
        match &self.node_of {
            None => Mean::of(values),
            Some(nodes) => Mean::of(by_node(values, nodes)),
        }
    }

    /// Returns how much nodes differ in a ratio. `None` in a run on one machine, and with too few
    /// nodes or restarts.
    pub(super) fn spread(&self, pairs: ByRestart, confidence: f64) -> Option<NodeSpread> {
        NodeSpread::of(by_node(pairs, self.node_of.as_ref()?), confidence)
    }
}
