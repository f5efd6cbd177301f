//! What somebody published for the servers of a suite, elsewhere.

use serde::{Deserialize, Serialize};

/// Somebody's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Publication {
    /// Where they stand.
    pub source: String,
    /// The year.
    pub year: u32,
    /// The machine.
    pub machine: String,
    /// How they were measured.
    pub command: String,
    /// What speaks against all of them.
    pub doubt: String,
    /// The entry that the others are set against; `None`: it has no figure for the suite's
    /// reference, and names no other.
    pub reference: Option<usize>,
    /// A figure each.
    pub rows: Vec<PublishedFigure>,
}

/// What was published for one server.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedFigure {
    /// Whose, as an index of the suite's entries.
    pub entry: usize,
    /// Under which load, as an index of the suite's loads.
    pub load: usize,
    /// What it was called there.
    pub called: String,
    /// Requests/s.
    pub requests_per_s: f64,
    /// Average, standard deviation and longest, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// Memory, in MB.
    pub memory_mb: Option<f64>,
    /// CPU use, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// Socket errors under overload: connect, read, write, timeout.
    pub socket_errors: Option<[u64; 4]>,
    /// What speaks against this one.
    pub doubt: String,
}

/// Somebody who was published and takes no part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// What it was called.
    pub name: String,
    /// Requests/s that were published for it.
    pub requests_per_s: Option<f64>,
    /// Why it takes no part.
    pub why: String,
}
