//! Laps that explain where a difference in cost comes from. They count for no other figure.

use hotlap_bench::explain as measured;
use hotlap_bench::lap::Violation;
use hotlap_servers::observe::{Observation, ObserveError};
use hotlap_stats::Share;
use serde::{Deserialize, Serialize};

use crate::redact;

/// A lap that explains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainLap {
    /// The index of the server.
    pub server: usize,
    /// The index of the load.
    pub load: usize,
    /// The restart, from 0.
    pub restart: u32,
    /// The round of the restart, from 0.
    pub round: u32,
    /// The position among the laps with the same instrument in the round, from 0.
    pub place: u32,
    /// When its window opened, in milliseconds since the run began.
    pub at_ms: u64,
    /// Right responses and failures while the server was observed.
    pub requests: u64,
    /// CPU time of the server meanwhile, in nanoseconds; `None` if unknown.
    pub cpu_ns: Option<u64>,
    /// Correct responses in its window.
    pub answers: u64,
    /// Bytes that the server sent and received in its window.
    pub bytes: (u64, u64),
    /// The failed validity checks.
    pub failed: Vec<Violation>,
    /// What an instrument saw; `None` if none was on.
    pub observation: Option<Observation>,
}

/// How servers were observed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Observing {
    /// What could not be observed.
    pub missing: Vec<Missing>,
    /// Environment variables (`NAME=value`) that made a runtime name its functions, with the index
    /// of the server.
    pub env: Vec<(usize, String)>,
}

/// Something that could not be observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Missing {
    /// The index of the server.
    pub server: usize,
    /// What would have been observed.
    pub what: String,
    /// The cause.
    pub why: String,
    /// What would permit it.
    pub remedy: String,
}

impl From<&measured::ExplainLap> for ExplainLap {
    fn from(explains: &measured::ExplainLap) -> Self {
        let lap = &explains.lap;
        Self {
            server: lap.participant,
            load: lap.load,
            restart: lap.restart,
            round: lap.round,
            place: lap.place,
            at_ms: lap.at_ms,
            requests: lap.usage.map_or(0, |usage| usage.requests),
            cpu_ns: lap.usage.and_then(|usage| usage.cpu_ns),
            answers: lap.outcome.responses,
            bytes: (lap.outcome.bytes.received, lap.outcome.bytes.sent),
            failed: lap.failed.iter().cloned().map(redact::record).collect(),
            observation: explains.observation.clone(),
        }
    }
}

impl Missing {
    /// Something that could not be observed of a server.
    #[must_use]
    pub fn new(server: usize, error: &ObserveError) -> Self {
        Self {
            server,
            what: error.what.to_string(),
            why: redact::text(&error.why),
            remedy: redact::text(&error.remedy),
        }
    }
}

impl ExplainLap {
    /// Whether it counts in estimates.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.requests > 0 && !self.failed.iter().any(Violation::invalidates)
    }

    /// Its contribution to the CPU time per request, in nanoseconds.
    #[must_use]
    pub fn cost_share(&self) -> Option<Share> {
        Some(Share { amount: self.cpu_ns? as f64, of: self.requests as f64 })
    }
}
