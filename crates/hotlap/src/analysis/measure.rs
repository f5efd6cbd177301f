//! The measures in which servers are compared.

use std::ops::{Index, IndexMut};

use hotlap_stats::Better;
use serde::Serialize;

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
