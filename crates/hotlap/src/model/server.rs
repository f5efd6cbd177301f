//! A server's place in a run: its name, its role, how it is started, and what was published for it.

use hotlap_bench::participant::{self, Role};
use hotlap_servers::launch::ServerFailure;
use serde::{Deserialize, Serialize};

use crate::redact;

/// A server of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its name in tables; unique in its run.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// How it is started: the command, or the URL of a server that was already running.
    pub command: String,
    /// Its version, as its toolchain reports it; empty when unknown.
    pub version: String,
    /// One line about it; empty when unknown.
    pub about: String,
    /// Figures published elsewhere.
    pub published: Vec<Published>,
    /// Its layer or thread count, by the question of the run.
    pub part: Part,
    /// Why it failed, if it did.
    pub failure: Option<ServerFailure>,
}

/// A server's layer or thread count, by the question of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The index of the server that is the layer below.
    pub on: Option<usize>,
    /// The number of cores that it was told to use, if any.
    pub cpus: Option<usize>,
    /// Its name without the number of cores; empty if it has no such number.
    pub base: String,
}

/// A figure published elsewhere for a server under one load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The index of the load.
    pub load: usize,
    /// The name of the server in the source.
    pub called: String,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Average, standard deviation and longest latency, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// Memory, in MB.
    pub memory_mb: Option<f64>,
    /// CPU use, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// What it is compared with.
    pub than: Option<Than>,
    /// The year.
    pub year: u32,
    /// The source.
    pub source: String,
    /// The machine.
    pub machine: String,
    /// How it was measured.
    pub command: String,
    /// Why it cannot be trusted; empty if there is no known reason.
    pub doubt: String,
    /// Why the whole source cannot be trusted; empty if there is no known reason.
    pub source_doubt: String,
    /// Socket errors under overload: connect, read, write, timeout.
    pub socket_errors: Option<[u64; 4]>,
}

/// The server that a source compares the others with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Than {
    /// The index of the server.
    pub server: usize,
    /// Its published figure.
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
