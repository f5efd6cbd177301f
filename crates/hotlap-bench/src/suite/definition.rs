//! A resolved suite, in which lists of values are expanded and names are resolved.

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
    /// Which server is faster?
    Compare,
    /// What does each layer cost?
    Layers,
    /// How does a server scale with a parameter?
    Scale,
    /// How many requests/s does a server sustain under a goal?
    Capacity,
    /// Where does the difference in cost come from? Suites cannot ask this question.
    Explain,
    /// What happens under overload, or when clients misbehave?
    Stress,
}

/// A suite: servers × loads, a question, and published figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    /// The file's name without its extension.
    pub name: String,
    /// The path of the file.
    pub file: PathBuf,
    /// The question that the suite answers.
    pub question: Question,
    /// A description for the report.
    pub about: String,
    /// The contracts for servers of the catalogue. Empty: each server has its usual contract.
    pub contracts: Vec<contract::Name>,
    /// The server that the others are compared with. By default, the first one.
    pub reference: usize,
    /// The time to spend, as written: `4m`.
    pub duration: Option<Written>,
    /// The relative half-width of the intervals at which to stop early, as written: `1%`.
    pub precision: Option<Written>,
    /// The length of a slice, as written: `48ms`.
    pub slice: Option<Written>,
    /// The goals of a search for capacities, as written: `p99<10ms`.
    pub slo: Option<Written>,
    /// The number of cores for servers that do not set one.
    pub cpus: Option<usize>,
    /// Whether servers are started with a certificate and reached over TLS.
    pub https: bool,
    /// Whether servers with a missing toolchain are left out instead of shown as failed.
    pub leave_out_missing: bool,
    /// An SQL file with tables and rows. PostgreSQL is started with them for the servers.
    pub with_postgres: Option<PathBuf>,
    /// Stress scenarios to run on each server after the laps. In a stress test, they take the place
    /// of laps.
    pub stress: Vec<Scenario>,
    /// The servers.
    pub servers: Vec<SuiteServer>,
    /// The loads. Empty: the default load.
    pub loads: Vec<Loading>,
    /// The request that is sent to commands and URLs.
    pub request: Option<CustomRequest>,
    /// A file with several requests for commands and URLs, instead of one request.
    pub requests_file: Option<PathBuf>,
    /// An access log whose requests are sent to commands and URLs instead of one request.
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
    /// The server's name in tables, if set. The name does not include the number of cores.
    pub name: Option<String>,
    /// The server that this one builds on. In a suite about layers, the previous server by default.
    pub on: Option<usize>,
    /// The number of cores that the server uses.
    pub cpus: Option<usize>,
    /// A side effect that must happen for each request. By default, the side effect of the
    /// catalogue server.
    pub counts: Option<Counts>,
    /// The server's line in the file.
    pub line: usize,
}

/// The default number of streams on a connection.
pub const STREAMS: usize = 10;

/// A load with a single value for each parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Loading {
    /// The load's name in tables. Empty if the load has none.
    pub name: String,
    /// The connections, and how requests use them.
    pub shape: Shape,
    /// Whether the suite sets no number of threads.
    pub has_usual_threads: bool,
    /// The version of HTTP.
    pub protocol: Protocol,
    /// Which of the contract's requests to send, by name or by index from 0.
    pub request: Option<String>,
    /// The offered rate in requests/s. `None`: a closed loop.
    pub rate: Option<f64>,
    /// The line of the file where the load begins.
    pub line: usize,
}

/// The request that is sent to commands and URLs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomRequest {
    /// The method. By default `GET`, or `POST` with a body.
    pub method: Option<String>,
    /// The path, `/` by default.
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

/// Published figures from one source.
#[derive(Debug, Clone, PartialEq)]
pub struct Publication {
    /// The source of the figures.
    pub citation: Citation,
    /// The server that the others are compared with. `None` if the publication has no figure for
    /// the suite's reference and names no other reference.
    pub reference: Option<usize>,
    /// The published figures.
    pub rows: Vec<PublishedFigure>,
}

/// Where published figures come from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Citation {
    /// The name of the source.
    pub source: String,
    /// The year of publication.
    pub year: u32,
    /// The machine on which the figures were measured.
    pub machine: String,
    /// The command that measured the figures.
    pub command: String,
    /// A caveat about all figures of the publication. Empty if there is none.
    pub doubt: String,
}

/// A figure published for one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigure {
    /// The server, as an index into the suite's servers.
    pub entry: usize,
    /// The load, as an index into the suite's loads.
    pub load: usize,
    /// The server's name in the publication.
    pub called: String,
    /// Requests/s.
    pub requests_per_s: f64,
    /// Latency: mean, standard deviation and maximum, in milliseconds.
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
    /// The server's name in the publication.
    pub name: String,
    /// The server's published requests/s.
    pub requests_per_s: Option<f64>,
    /// Why the server is not part of the suite.
    pub why: String,
}

/// A value that the caller parses: its text, and the line of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The text of the value, as written.
    pub text: String,
    /// The line of the value, from 1.
    pub line: usize,
}

/// Why a suite cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// The file is invalid or cannot be read.
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
        /// The name as typed by the user.
        name: String,
        /// The alternatives, in words.
        there: String,
    },
}

impl Suite {
    /// Returns an error at a line of this file.
    pub fn wrong(&self, line: usize, what: String) -> SuiteError {
        SuiteError::Wrong { file: self.file.clone(), line: Some(line), what }
    }
}

impl SuiteServer {
    /// The server's name in tables: `nim/epoll-parallel (4 threads)`.
    pub fn title(&self) -> String {
        let base = self.name.as_ref().unwrap_or(&self.run);
        match self.cpus {
            None => base.clone(),
            Some(1) => format!("{base} (1 thread)"),
            Some(n) => format!("{base} ({n} threads)"),
        }
    }
}
