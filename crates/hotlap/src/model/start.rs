//! A fresh start of a server, and its warm-up under each load.

use hotlap_bench::lap::Count;
use hotlap_bench::runner;
use hotlap_load::outcome::Negotiated;
use hotlap_stats::Class;
use serde::{Deserialize, Serialize};

use crate::redact;

/// A start of one server, and how it warmed up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The index of the server.
    pub server: usize,
    /// The restart, from 0.
    pub restart: u32,
    /// Time from the start of the process to the first correct response, in milliseconds; `None`
    /// for a server that was already running.
    pub ready_ms: Option<f64>,
    /// Conformance checks, passed and total.
    pub conformance: (u32, u32),
    /// Resident memory before any load, in bytes; `None` if unknown.
    pub rss_bytes: Option<u64>,
    /// Notes for the user (responses that vary, a port found).
    pub notes: Vec<String>,
    /// Its warm-ups, one per load; empty before the first one.
    pub warmups: Vec<Warmup>,
}

/// The warm-up of a server under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// The index of the load.
    pub load: usize,
    /// Its class, such as steady from the start, or never steady.
    pub class: Class,
    /// Time from the first request to the steady state, in milliseconds.
    pub steady_ms: f64,
    /// Responses per second, in windows of equal length.
    pub curve: Vec<f64>,
    /// Length of one window, in milliseconds.
    pub window_ms: f64,
    /// CPU time per request at its end, when the server ran alone, in nanoseconds; `None` if
    /// unknown.
    #[serde(default)]
    pub alone_cost_ns: Option<f64>,
    /// Hardware counters, read right after it; `None` if the kernel does not permit it.
    #[serde(default)]
    pub count: Option<Count>,
    /// Why instructions are not counted; `None` if they are, or if that was not tried.
    #[serde(default)]
    pub uncounted: Option<String>,
    /// What TLS negotiated; `None` without TLS.
    #[serde(default)]
    pub tls: Option<Negotiated>,
}

impl Start {
    /// A start whose server is ready and not yet warm.
    #[must_use]
    pub fn new(server: usize, restart: u32, ready: &runner::Ready) -> Self {
        Self {
            server,
            restart,
            ready_ms: ready.ready_ms,
            conformance: ready.conformance,
            rss_bytes: ready.rss_bytes,
            notes: ready.notes.iter().map(|note| redact::text(note)).collect(),
            warmups: Vec::new(),
        }
    }
}

impl Warmup {
    /// The warm-up under one load.
    #[must_use]
    pub fn new(load: usize, warmup: &runner::Warmup) -> Self {
        Self {
            load,
            class: warmup.class,
            steady_ms: warmup.steady_ms,
            curve: warmup.curve.clone(),
            window_ms: warmup.window_ms,
            alone_cost_ns: warmup.alone_cost_ns,
            count: warmup.count,
            uncounted: warmup.uncounted.clone(),
            tls: warmup.tls.clone(),
        }
    }
}
