//! Figures published elsewhere for the servers of a suite.

use serde::{Deserialize, Serialize};

/// One publication.
#[derive(Debug, Clone, PartialEq)]
pub struct Publication {
    /// Where its figures come from.
    pub citation: Citation,
    /// The entry that the others are compared with; `None` if it has no figure for the suite's
    /// reference and names no other.
    pub reference: Option<usize>,
    /// Its figures.
    pub rows: Vec<PublishedFigure>,
}

/// Where published figures come from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Citation {
    /// The source.
    pub source: String,
    /// The year.
    pub year: u32,
    /// The machine.
    pub machine: String,
    /// The measuring command.
    pub command: String,
    /// What speaks against all of its figures; empty if nothing is known.
    pub doubt: String,
}

/// A figure published for one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigure {
    /// The server, as an index of the suite's entries.
    pub entry: usize,
    /// The load, as an index of the suite's loads.
    pub load: usize,
    /// The server's name in the publication.
    pub called: String,
    /// Requests/s.
    pub requests_per_s: f64,
    /// Mean, standard deviation and maximum, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// Memory, in MB.
    pub memory_mb: Option<f64>,
    /// CPU use, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// Socket errors under overload: connect, read, write, timeout.
    pub socket_errors: Option<[u64; 4]>,
    /// What speaks against this figure; empty if nothing is known.
    pub doubt: String,
}

/// A server that was published but is not part of the suite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// Its name in the publication.
    pub name: String,
    /// Its published requests/s.
    pub requests_per_s: Option<f64>,
    /// Why it is not part of the suite.
    pub why: String,
}
