//! A fresh start of a server, and its warm-up under each load.

use hotlap_bench::lap::Count;
use hotlap_bench::runner;
use hotlap_stats::Class;
use serde::{Deserialize, Serialize};

use crate::redact;

/// A fresh start of one server, and how it warmed up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Which server, as an index.
    pub server: usize,
    /// Which restart, from 0.
    pub restart: u32,
    /// From the start of the process to the first correct answer, in milliseconds; `None` for a
    /// server that ran already.
    pub ready_ms: Option<f64>,
    /// Conformance checks passed and made: those that are reported and not required.
    pub conformance: (u32, u32),
    /// Resident memory before any load, in bytes; `None` where it is not known.
    pub rss_bytes: Option<u64>,
    /// Notes for the user (responses that vary, a port found).
    pub notes: Vec<String>,
    /// Its warm-ups, one per load; empty before the first.
    pub warmups: Vec<Warmup>,
}

/// The warm-up of a server under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// Which load, as an index.
    pub load: usize,
    /// Which way it went.
    pub class: Class,
    /// From the first request to the steady state, in milliseconds.
    pub steady_ms: f64,
    /// Answers per second, in windows of equal length.
    pub curve: Vec<f64>,
    /// Length of one window, in milliseconds.
    pub window_ms: f64,
    /// CPU time per request at its end, when the server ran alone, in nanoseconds; `None` where it
    /// is not known.
    #[serde(default)]
    pub alone_cost_ns: Option<f64>,
    /// What the hardware counted right after it; `None` where the kernel does not permit it.
    #[serde(default)]
    pub count: Option<Count>,
    /// Why instructions are not counted; `None` where they are, and where that was not tried.
    #[serde(default)]
    pub uncounted: Option<String>,
}

impl Start {
    /// A start that is ready and not yet warm.
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
        }
    }
}
