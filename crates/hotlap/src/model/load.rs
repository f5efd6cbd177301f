//! A load: connections, threads, keep-alive, pipelining, rate and requests; and which loads of two
//! runs are the same.

use hotlap_bench::participant;
use hotlap_load::plan::Reuse;
use serde::{Deserialize, Serialize};

/// How servers are loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Load {
    /// For tables where a run has several; empty for the only one.
    pub name: String,
    /// Open at the same time.
    pub connections: usize,
    /// Generator threads.
    pub threads: usize,
    /// Keep-alive, or a new connection each.
    pub keep_alive: bool,
    /// Requests in flight a connection.
    pub pipeline: usize,
    /// The request, in words: `GET /`, `POST /x (request 1f0c3a55)`; empty in runs that were stored
    /// before it was kept.
    pub request: String,
    /// Requests/s that are offered; `None`: a closed loop.
    #[serde(default)]
    pub rate: Option<f64>,
}

impl From<&participant::Load> for Load {
    fn from(load: &participant::Load) -> Self {
        Self {
            name: load.name.clone(),
            connections: load.connections,
            threads: load.threads,
            keep_alive: load.reuse == Reuse::KeepAlive,
            pipeline: load.pipeline,
            request: String::new(),
            rate: load.rate,
        }
    }
}

impl Load {
    /// Whether both are the same load, whatever they are called. Servers of a run may be sent
    /// requests of their own, and one of them may be missing in the other run, so one request in
    /// common is enough. An unknown request, as in runs that were stored before it was kept, fits
    /// any.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let shape = |l: &Self| (l.connections, l.threads, l.keep_alive, l.pipeline, l.rate);
        let is_unknown = self.request.is_empty() || other.request.is_empty();
        let has = |request: &str| other.request.split(", ").any(|theirs| theirs == request);
        shape(self) == shape(other) && (is_unknown || self.request.split(", ").any(has))
    }
}
