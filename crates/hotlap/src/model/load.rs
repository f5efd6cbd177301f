//! A load: connections, threads, keep-alive, pipelining, rate and requests; and which loads of two
//! runs are the same.

use hotlap_bench::participant;
use hotlap_load::plan::{Protocol, Reuse};
use serde::{Deserialize, Serialize};

/// A load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Load {
    /// Its name, if the run has several loads; empty for the only one.
    pub name: String,
    /// Connections open at the same time.
    pub connections: usize,
    /// Generator threads.
    pub threads: usize,
    /// Keep-alive, or a new connection for each request.
    pub keep_alive: bool,
    /// Whether the protocol is HTTP/2; HTTP/1.1 otherwise.
    pub http2: bool,
    /// Whether the servers were started with a certificate and spoken to over TLS. A URL says so
    /// itself.
    pub https: bool,
    /// Requests in flight on each connection: pipelined in HTTP/1.1, streams in HTTP/2.
    pub pipeline: usize,
    /// The request in words: `GET /`, `POST /x (request 1f0c3a55)`.
    pub request: String,
    /// The rate of an open loop, in requests/s; `None` in a closed loop.
    pub rate: Option<f64>,
    /// The names of its requests, in order, if it sends several; empty otherwise.
    pub requests: Vec<String>,
}

impl From<&participant::Load> for Load {
    fn from(load: &participant::Load) -> Self {
        Self {
            name: load.name.clone(),
            connections: load.connections,
            threads: load.threads,
            keep_alive: load.reuse == Reuse::KeepAlive,
            http2: load.protocol == Protocol::Http2,
            https: load.https,
            pipeline: load.pipeline,
            request: String::new(),
            rate: load.rate,
            requests: Vec::new(),
        }
    }
}

impl Load {
    /// Whether both are the same load, whatever their names. The servers of a run may be sent
    /// different requests, and one of the servers may be missing in the other run, so one common
    /// request is enough. An unknown request, as in runs stored by earlier versions, matches any.
    pub fn is_same(&self, other: &Self) -> bool {
        let protocol = |l: &Self| (l.http2, l.https);
        let shape =
            |l: &Self| (l.connections, l.threads, l.keep_alive, protocol(l), l.pipeline, l.rate);
        let is_unknown = self.request.is_empty() || other.request.is_empty();
        let has = |request: &str| other.request.split(", ").any(|theirs| theirs == request);
        shape(self) == shape(other) && (is_unknown || self.request.split(", ").any(has))
    }
}
