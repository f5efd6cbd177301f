//! A resolved suite: lists of values are expanded, and names are resolved.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hotlap_load::plan::{Protocol, Shape};
use hotlap_servers::contract;
use hotlap_servers::launch::Counts;
use serde::{Deserialize, Serialize};

use crate::stress::Scenario;

/// The question that a suite or a run answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The contract for servers of the catalogue. `None`: each its usual one.
    pub contract: Option<contract::Name>,
    /// The entry that the others are compared with. The first by default.
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
    /// An SQL file. PostgreSQL is started for the servers with its tables and rows.
    pub with_postgres: Option<PathBuf>,
    /// Stress scenarios to run on each server after the laps, or instead of laps in a stress.
    pub stress: Vec<Scenario>,
    /// The servers.
    pub servers: Vec<SuiteServer>,
    /// The loads. Empty: the default load.
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

/// A server of a suite, with one number of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuiteServer {
    /// A server of the catalogue, a command, or a URL.
    pub run: String,
    /// Its name in tables, if given. Without the number of cores.
    pub name: Option<String>,
    /// The entry that this one builds on. In a suite about layers, by default the one before.
    pub on: Option<usize>,
    /// The number of cores that it uses.
    pub cpus: Option<usize>,
    /// A side effect that must happen for each request. By default that of the catalogue server.
    pub counts: Option<Counts>,
    /// The line of the file.
    pub line: usize,
}

/// Default number of streams of a connection.
pub const STREAMS: usize = 10;

/// A load with a single value for each parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Loading {
    /// Its name in tables. Empty if it has none.
    pub name: String,
    /// How requests travel.
    pub shape: Shape,
    /// Whether the suite gives no number of threads.
    pub has_usual_threads: bool,
    /// The version of HTTP.
    pub protocol: Protocol,
    /// Which of the contract's requests: by name, or by index from 0.
    pub request: Option<String>,
    /// The offered rate in requests/s. `None`: a closed loop.
    pub rate: Option<f64>,
    /// The line where it begins.
    pub line: usize,
}

/// The request to commands and URLs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomRequest {
    /// `GET`, or `POST` with a body.
    pub method: Option<String>,
    /// `/` by default.
    pub path: Option<String>,
    /// Headers by name.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body to send.
    pub body: Option<String>,
    /// The expected status.
    pub expect_status: Option<u16>,
    /// The expected body.
    pub expect_body: Option<String>,
}

/// One publication.
#[derive(Debug, Clone, PartialEq)]
pub struct Publication {
    /// Where its figures come from.
    pub citation: Citation,
    /// The entry that the others are compared with. `None` if it has no figure for the suite's
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
    /// A caveat about all of its figures. Empty if there is none.
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
    /// A caveat about this figure. Empty if there is none.
    pub doubt: String,
}

/// A server that was published but is not part of the suite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// Its name in the publication.
    pub name: String,
    /// Its published requests/s.
    pub requests_per_s: Option<f64>,
    /// Why it is not part of the suite.
    pub why: String,
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

impl SuiteServer {
    /// Its name in tables: `nim/epoll-parallel (4 threads)`.
    pub fn title(&self) -> String {
        let base = self.name.as_ref().unwrap_or(&self.run);
        match self.cpus {
            None => base.clone(),
            Some(1) => format!("{base} (1 thread)"),
            Some(n) => format!("{base} ({n} threads)"),
        }
    }
}
