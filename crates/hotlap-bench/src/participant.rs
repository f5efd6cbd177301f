//! The participants of an experiment.

use hotlap_servers::launch::{Counts, Launch};

use hotlap_load::plan::{Protocol, Reuse, Target};
use serde::{Deserialize, Serialize};

use hotlap_servers::contract::Contract;
use hotlap_servers::verify::Requirements;

/// A server's place in a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Participant {
    /// Its name in tables, unique within its run.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// How it is started.
    pub start: Origin,
    /// The contract to verify it against; an unnamed one for a command or a URL, completed from its
    /// first responses.
    pub contract: Contract,
    /// Which checks are required beyond the contract.
    pub requirements: Requirements,
    /// Its version, one line; empty if unknown.
    pub version: String,
    /// A side effect that must happen for each request.
    pub counts: Option<Counts>,
    /// The number of cores that it uses; `None`: as many as the other servers of the run.
    pub cpus: Option<usize>,
}

/// A participant's role in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Compared with the reference.
    Plain,
    /// The server that the others are compared with.
    Reference,
    /// The A/A control: the reference again under a hidden name. How far the two may be apart is
    /// the noise floor.
    Control,
    /// hotlap's own minimal server.
    Ceiling,
}

/// How a server is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// As a process.
    Launch(Launch),
    /// It is already running; hotlap neither starts, stops nor freezes it.
    Running {
        /// Its URL, for tables.
        url: String,
        /// Its address.
        target: Target,
        /// The value of the `Host` header.
        host: String,
    },
}

/// How servers are loaded. An experiment has one or more loads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Its name in tables if an experiment has several: `close`, `POST /bla`; empty if it is the
    /// only one.
    pub name: String,
    /// Concurrent connections.
    pub connections: usize,
    /// Generator threads.
    pub threads: usize,
    /// Whether the number of threads follows from the generator's cores, as the user gave none.
    pub has_usual_threads: bool,
    /// Keep-alive, or a new connection for each request.
    pub reuse: Reuse,
    /// The version of HTTP.
    pub protocol: Protocol,
    /// Whether servers are started with a certificate and spoken to over TLS. All loads of an
    /// experiment agree, because servers are started once for all of them.
    pub https: bool,
    /// Requests in flight per connection: pipelined in HTTP/1.1, streams in HTTP/2.
    pub pipeline: usize,
    /// Index of the contract's request to send; `None`: all of them, by weight.
    pub request: Option<usize>,
    /// The offered rate in requests/s; `None`: a closed loop.
    pub rate: Option<f64>,
}

impl Load {
    /// A closed loop of the contract's first request over HTTP/1.1 without TLS, on so many kept
    /// connections of one thread. It has no name.
    pub fn new(connections: usize) -> Self {
        Self {
            name: String::new(),
            connections,
            threads: 1,
            has_usual_threads: true,
            reuse: Reuse::KeepAlive,
            protocol: Protocol::Http1,
            https: false,
            pipeline: 1,
            request: Some(0),
            rate: None,
        }
    }

    /// Uses one thread for each core of the generator, but at most one for each connection. A
    /// number that the user gave stays.
    pub fn use_cores(&mut self, cores: usize) {
        if self.has_usual_threads {
            self.threads = cores.clamp(1, self.connections.max(1));
        }
    }
}
