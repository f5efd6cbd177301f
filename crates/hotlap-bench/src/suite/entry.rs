//! Which servers take part in a suite, and how they are loaded.

use std::collections::BTreeMap;

use serde::Deserialize;

use hotlap_servers::launch::Counts;

/// One who takes part, with one number of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// A server of the catalogue, a command, or a URL.
    pub run: String,
    /// What tables call it, if it says so; without the number of cores.
    pub name: Option<String>,
    /// The entry that it stands on; in a suite about layers by default the one before.
    pub on: Option<usize>,
    /// How many cores it is to use.
    pub cpus: Option<usize>,
    /// A side effect that must happen once a request; a catalogue server's own by default.
    pub counts: Option<Counts>,
    /// The line that names it.
    pub line: usize,
}

/// A load, one value each.
#[derive(Debug, Clone, PartialEq)]
pub struct Loading {
    /// For tables; empty where it has none.
    pub name: String,
    /// Open at the same time; 64 where it is not said.
    pub connections: usize,
    /// Generator threads.
    pub threads: Option<usize>,
    /// A new connection for each request.
    pub close: bool,
    /// Requests in flight a connection.
    pub pipeline: usize,
    /// Which of the contract's requests: by its name, or counted from 0.
    pub request: Option<String>,
    /// Requests/s that are due; `None`: as fast as can be.
    pub rate: Option<f64>,
    /// The line where it begins.
    pub line: usize,
}

/// What commands and URLs are asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomRequest {
    /// `GET`, or `POST` where there is a body.
    pub method: Option<String>,
    /// `/` where it is not said.
    pub path: Option<String>,
    /// By name.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// What is sent.
    pub body: Option<String>,
    /// The right status.
    pub expect_status: Option<u16>,
    /// The right body.
    pub expect_body: Option<String>,
}

impl Entry {
    /// What tables call it: `nim/epoll-parallel (4 threads)`.
    #[must_use]
    pub fn title(&self) -> String {
        let base = self.name.as_ref().unwrap_or(&self.run);
        match self.cpus {
            None => base.clone(),
            Some(1) => format!("{base} (1 thread)"),
            Some(n) => format!("{base} ({n} threads)"),
        }
    }
}
