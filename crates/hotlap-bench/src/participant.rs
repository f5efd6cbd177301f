//! Who takes part in an experiment.

use hotlap_servers::launch::{Counts, Launch};

use hotlap_load::plan::{Reuse, Target};
use serde::{Deserialize, Serialize};

use hotlap_servers::contract::Contract;
use hotlap_servers::verify::Requirements;

/// A server that takes part.
#[derive(Debug, Clone, PartialEq)]
pub struct Participant {
    /// What tables call it; unique in its race.
    pub name: String,
    /// Why it takes part.
    pub role: Role,
    /// How it comes to life.
    pub start: Origin,
    /// The contract that it is held to; an unnamed one for a command or a URL, whose first answer
    /// is learned.
    pub contract: Contract,
    /// What is required of it beyond its contract.
    pub requirements: Requirements,
    /// What really runs: the version receipt, one line; empty when unknown.
    pub version: String,
    /// A side effect that must happen once a request.
    pub counts: Option<Counts>,
    /// How many cores it is to use; `None`: as many as the servers of its race have.
    pub cpus: Option<usize>,
}

/// Why a server takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// To be compared.
    Plain,
    /// To be compared with: the others' ratios are to this one.
    Reference,
    /// The reference again, under a hidden name: what separates the two is the noise.
    Control,
    /// The least work with which a correct answer can be given here.
    Ceiling,
}

/// How a server comes to life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// It is started as a process.
    Launch(Launch),
    /// It runs already; it is neither started nor stopped nor frozen nor sampled.
    Running {
        /// Its URL, for tables.
        url: String,
        /// Where it is.
        target: Target,
        /// What the `Host` header says.
        host: String,
    },
}

/// How servers are loaded. An experiment has one or more of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// For tables where an experiment has several: `close`, `POST /bla`; empty for the only one.
    pub name: String,
    /// Open at the same time.
    pub connections: usize,
    /// Generator threads.
    pub threads: usize,
    /// Keep-alive or a new connection each.
    pub reuse: Reuse,
    /// Requests in flight a connection.
    pub pipeline: usize,
    /// Which of the contract's requests is sent: its index.
    pub request: usize,
    /// Requests/s that are due; `None`: a closed loop, as fast as can be.
    pub rate: Option<f64>,
}
