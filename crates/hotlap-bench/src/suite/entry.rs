//! The servers of a suite, and their loads.

use std::collections::BTreeMap;

use serde::Deserialize;

use hotlap_load::plan::Protocol;
use hotlap_servers::launch::Counts;

/// A server of a suite, with one number of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// A server of the catalogue, a command, or a URL.
    pub run: String,
    /// Its name in tables, if given; without the number of cores.
    pub name: Option<String>,
    /// The entry that this one builds on; in a suite about layers, by default the one before.
    pub on: Option<usize>,
    /// The number of cores that it uses.
    pub cpus: Option<usize>,
    /// A side effect that must happen for each request; by default that of the catalogue server.
    pub counts: Option<Counts>,
    /// The line of the file.
    pub line: usize,
}

/// Default number of streams of a connection.
pub const STREAMS: usize = 10;

/// A load with a single value for each parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Loading {
    /// Its name in tables; empty if it has none.
    pub name: String,
    /// Concurrent connections; 64 by default.
    pub connections: usize,
    /// Generator threads.
    pub threads: Option<usize>,
    /// Opens a new connection for each request.
    pub close: bool,
    /// The version of HTTP.
    pub protocol: Protocol,
    /// Requests in flight per connection: pipelined in HTTP/1.1, streams in HTTP/2.
    pub pipeline: usize,
    /// Which of the contract's requests: by name, or by index from 0.
    pub request: Option<String>,
    /// The offered rate in requests/s; `None`: a closed loop.
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

impl Entry {
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
