//! How the rate that an open loop offers compares with what was answered.

use hotlap_load::OpenLoop;
use serde::Serialize;

use crate::text::number::{rate, rounded};

/// How the rate that an open loop offers compares with what was answered.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct OpenLoopView {
    /// Requests that became due per second.
    pub offered_per_s: f64,
    /// Correct responses per second.
    pub reached_per_s: f64,
    /// The server did not keep up: requests found no free connection, and the queue grew.
    pub is_behind: bool,
    /// Requests that became due.
    pub due: u64,
    /// Requests that were due and neither answered nor failed at the end.
    pub waiting: u64,
    /// Growth of that number, in requests per second.
    pub growth_per_s: f64,
    /// Time since the oldest of them was due, in milliseconds.
    pub oldest_ms: f64,
}

impl From<OpenLoop> for OpenLoopView {
    fn from(found: OpenLoop) -> Self {
        Self {
            offered_per_s: found.offered_per_s,
            reached_per_s: found.reached_per_s,
            is_behind: found.is_behind,
            due: found.due,
            waiting: found.waiting,
            growth_per_s: found.growth_per_s,
            oldest_ms: found.oldest_ns as f64 / 1e6,
        }
    }
}

impl OpenLoopView {
    /// The same in figures for a report.
    pub(super) fn rounded(self) -> Self {
        Self {
            offered_per_s: rounded(self.offered_per_s),
            reached_per_s: rounded(self.reached_per_s),
            growth_per_s: rounded(self.growth_per_s),
            oldest_ms: rounded(self.oldest_ms),
            ..self
        }
    }
}

/// States that a rate was not reached, as the end of a sentence; both figures in requests/s.
pub fn not_reached(offered_per_s: f64, reached_per_s: f64) -> String {
    format!(
        "of {} requests/s offered, {} were answered, and the queue grew. Response times depend on \
         how long this runs; those with ≥ are lower bounds.",
        rate(offered_per_s),
        rate(reached_per_s),
    )
}
