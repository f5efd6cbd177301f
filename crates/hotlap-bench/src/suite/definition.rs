//! A resolved suite: lists of values are expanded, and names are resolved.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::entry::{CustomRequest, Entry, Loading};
use super::published::{Absent, Publication};
use crate::stress::Scenario;
use hotlap_servers::contract;

/// The question that a suite or a run answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Which is faster?
    Compare,
    /// What does each step cost?
    Layers,
    /// How does it scale with a parameter?
    Scale,
    /// How many requests/s does it hold under a goal?
    Capacity,
    /// Where does the difference in cost come from? Not a question of suites.
    Explain,
    /// What happens under overload?
    Stress,
}

/// A suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    /// The file's name without its extension.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// The question.
    pub question: Question,
    /// A description for the report.
    pub about: String,
    /// The contract for servers of the catalogue; `None`: each its usual one.
    pub contract: Option<contract::Name>,
    /// The entry that the others are compared with; the first by default.
    pub reference: usize,
    /// Time budget, as written: `4m`.
    pub budget: Option<Written>,
    /// Relative half-width of the intervals at which to stop early, as written: `1%`.
    pub precision: Option<Written>,
    /// Length of a slice, as written: `48ms`.
    pub slice: Option<Written>,
    /// The goals of a search for capacities, as written: `p99<10ms`.
    pub slo: Option<Written>,
    /// Cores for servers that do not set a number.
    pub cpus: Option<usize>,
    /// Whether servers are started with a certificate and spoken to over TLS.
    pub https: bool,
    /// Whether servers with a missing toolchain are left out instead of shown as failed.
    pub leave_out_missing: bool,
    /// Stress scenarios to run on each server after the laps, or instead of laps in a stress.
    pub stress: Vec<Scenario>,
    /// The servers.
    pub servers: Vec<Entry>,
    /// The loads; empty: the default load.
    pub loads: Vec<Loading>,
    /// The request to commands and URLs.
    pub request: Option<CustomRequest>,
    /// A file with the requests to commands and URLs, instead of one request.
    pub requests_file: Option<PathBuf>,
    /// An access log whose requests are sent to commands and URLs instead.
    pub access_log: Option<PathBuf>,
    /// Published figures for the servers.
    pub published: Vec<Publication>,
    /// Servers that were published but are not part of the suite, and why.
    pub absent: Vec<Absent>,
}

/// A value that is parsed by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The text, as written.
    pub text: String,
    /// The line, from 1.
    pub line: usize,
}

/// Why a suite cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// The file is invalid.
    #[error("{}{}: {what}", file.display(), line.map(|l| format!(":{l}")).unwrap_or_default())]
    Wrong {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: Option<usize>,
        /// What is wrong.
        what: String,
    },
    /// There is no suite with this name.
    #[error("there is no suite {name:?}: {there}")]
    Unknown {
        /// The name as typed.
        name: String,
        /// The alternatives.
        there: String,
    },
}

impl Suite {
    /// An error at a line of this file.
    pub fn wrong(&self, line: usize, what: String) -> SuiteError {
        SuiteError::Wrong { file: self.file.clone(), line: Some(line), what }
    }
}
