//! A server's place in a run: its name, its role, how it is started, and what was published for it.

use hotlap_bench::participant::{self, Role};
use hotlap_servers::failure::ServerFailure;
use serde::{Deserialize, Serialize};

use crate::redact;

/// A server of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// What tables call it; unique in its run.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// How it is started: the command, or the URL of one that runs.
    pub command: String,
    /// The version receipt; empty when unknown.
    pub version: String,
    /// One line about it; empty when unknown.
    pub about: String,
    /// What was published for it elsewhere.
    pub published: Vec<Published>,
    /// Its part in the question.
    pub part: Part,
    /// Why it failed, if it did.
    pub failure: Option<ServerFailure>,
}

/// A server's part in a layers or scaling question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// The server of the layer below, as an index.
    pub on: Option<usize>,
    /// The number of cores that it was told to use, if any.
    pub cpus: Option<usize>,
    /// Its name without the number of cores; empty if it has no such number.
    pub base: String,
}

/// A figure published elsewhere for a server under one load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Under which load, as an index.
    pub load: usize,
    /// What it was called there.
    pub called: String,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Average, standard deviation and longest latency, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// Memory, in MB.
    pub memory_mb: Option<f64>,
    /// CPU use, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// What it is set against.
    pub than: Option<Than>,
    /// The year.
    pub year: u32,
    /// Where.
    pub source: String,
    /// On which machine.
    pub machine: String,
    /// How it was measured.
    pub command: String,
    /// Why it cannot be trusted; empty when nothing speaks against it.
    pub doubt: String,
    /// What speaks against all that its source published; empty when nothing does.
    #[serde(default)]
    pub source_doubt: String,
    /// Socket errors under overload: connect, read, write, timeout.
    #[serde(default)]
    pub socket_errors: Option<[u64; 4]>,
}

/// The server of a source that its others are set against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Than {
    /// Which, as an index.
    pub server: usize,
    /// What was published for it.
    pub requests_per_s: f64,
}

impl From<&participant::Participant> for Server {
    fn from(participant: &participant::Participant) -> Self {
        let command = match &participant.start {
            participant::Origin::Launch(launch) => shell_words::join(&launch.argv),
            participant::Origin::Running { url, .. } => url.clone(),
        };
        Self {
            name: participant.name.clone(),
            role: participant.role,
            command: redact::text(&command),
            version: redact::text(&participant.version),
            about: String::new(),
            published: Vec::new(),
            part: Part::default(),
            failure: None,
        }
    }
}
