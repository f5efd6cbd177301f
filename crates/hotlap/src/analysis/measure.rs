//! What servers are compared by.

use std::ops::{Index, IndexMut};

use hotlap_stats::Better;
use serde::Serialize;

/// A figure that servers are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Requests per second.
    Rate,
    /// CPU time per request.
    Cost,
    /// Half of the service times are shorter.
    P50,
    /// 99 % of the service times are shorter.
    P99,
    /// Resident memory, the most of a round.
    Memory,
}

/// A value for each measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PerMeasure<T> {
    /// Requests per second.
    pub requests_per_s: T,
    /// CPU time per request.
    pub cost: T,
    /// The median service time; under a load that offers a rate, response time.
    pub p50: T,
    /// The 99th percentile of the same.
    pub p99: T,
    /// Resident memory.
    pub memory: T,
}

impl Measure {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 5] = [Self::Rate, Self::Cost, Self::P50, Self::P99, Self::Memory];

    /// Which way it is better.
    #[must_use]
    pub fn better(self) -> Better {
        match self {
            Self::Rate => Better::Higher,
            Self::Cost | Self::P50 | Self::P99 | Self::Memory => Better::Lower,
        }
    }

    /// Whether a busy generator hides the figure: it hides how fast a server is, not what it
    /// spends.
    #[must_use]
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
