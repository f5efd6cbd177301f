//! A lap: what the load generator counted and timed, what the server used, and which validity
//! checks failed.

use hotlap_bench::lap::{self as measured, Share, Violation};
use hotlap_load::outcome::{FailureCount, Tick};
use hotlap_stats::{Censored, Histogram};
use serde::{Deserialize, Serialize};

use crate::redact;

/// One lap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lap {
    /// Which server, as an index.
    pub server: usize,
    /// Which load, as an index.
    pub load: usize,
    /// Which fresh start, from 0.
    pub restart: u32,
    /// Which round of the restart, from 0.
    pub round: u32,
    /// Which place in the round, from 0.
    pub place: u32,
    /// Requests per second that were due; `None` for a closed loop.
    pub rate: Option<f64>,
    /// When its window opened, in milliseconds since the run began.
    pub at_ms: u64,
    /// Length of its window, in nanoseconds.
    pub window_ns: u64,
    /// Right answers.
    pub answers: u64,
    /// Failures by kind and phase.
    pub failures: Vec<FailureCount>,
    /// Answers by status.
    pub statuses: Vec<(u16, u64)>,
    /// Requests that were due; 0 in a closed loop.
    pub due: u64,
    /// In flight when the window closed.
    pub in_flight: u64,
    /// Connections asked for, up when the window opened, opened again.
    pub connections: (u64, u64, u64),
    /// Bytes received and sent.
    pub bytes: (u64, u64),
    /// Service time.
    pub service: Histogram,
    /// Response time from the due moment; empty in a closed loop.
    pub response: Histogram,
    /// Requests whose service time was not seen to its end, or not from its beginning.
    pub service_censored: Censored,
    /// The same of response time; empty in a closed loop.
    pub response_censored: Censored,
    /// How late the generator sent; empty in a closed loop.
    pub lag: Histogram,
    /// Time to connect.
    pub connect: Histogram,
    /// Right answers in each tenth of a second.
    pub series: Vec<Tick>,
    /// The engine that ran.
    pub backend: String,
    /// The generator's CPU time, in nanoseconds, and the share of the window that its busiest
    /// thread was on a core.
    pub generator: (u64, f64),
    /// What the server used; `None` where it cannot be seen.
    pub usage: Option<measured::Usage>,
    /// The validity checks that it failed.
    pub failed: Vec<Violation>,
}

impl From<&measured::Lap> for Lap {
    fn from(lap: &measured::Lap) -> Self {
        let outcome = &lap.outcome;
        let busiest = outcome.threads.iter().map(|t| t.busy()).fold(0.0, f64::max);
        Self {
            server: lap.participant,
            load: lap.load,
            restart: lap.restart,
            round: lap.round,
            place: lap.place,
            rate: match lap.kind {
                measured::Kind::Flat => None,
                measured::Kind::Paced { rate } => Some(rate),
            },
            at_ms: lap.at_ms,
            window_ns: outcome.window_ns,
            answers: outcome.responses,
            failures: outcome.failures.0.clone(),
            statuses: outcome.statuses.iter().map(|(s, n)| (*s, *n)).collect(),
            due: outcome.due,
            in_flight: outcome.in_flight,
            connections: (
                outcome.connections.requested,
                outcome.connections.established,
                outcome.connections.reopened,
            ),
            bytes: (outcome.bytes.received, outcome.bytes.sent),
            service: outcome.service_time.clone(),
            response: outcome.response_time.clone(),
            service_censored: outcome.service_time_censored.clone(),
            response_censored: outcome.response_time_censored.clone(),
            lag: outcome.lag.clone(),
            connect: outcome.connect_time.clone(),
            series: outcome.series.clone(),
            backend: outcome.backend.clone(),
            generator: (outcome.threads.iter().map(|t| t.cpu_ns).sum(), busiest),
            usage: lap.usage,
            failed: lap.failed.iter().cloned().map(redact::record).collect(),
        }
    }
}

impl Lap {
    /// Right answers per second.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        self.rate_share().value().unwrap_or(0.0)
    }

    /// CPU time of the server's tree per request, in nanoseconds.
    #[must_use]
    pub fn cost_ns(&self) -> Option<f64> {
        self.cost_share().and_then(Share::value)
    }

    /// What it adds to the requests/s of its round.
    #[must_use]
    pub fn rate_share(&self) -> Share {
        Share::rate(self.answers, self.window_ns)
    }

    /// What it adds to the CPU time per request of its round, in nanoseconds.
    #[must_use]
    pub fn cost_share(&self) -> Option<Share> {
        self.usage.as_ref()?.cost_share()
    }

    /// Whether it takes part in estimates.
    #[must_use]
    pub fn counts(&self) -> bool {
        !self.failed.iter().any(Violation::invalidates)
    }

    /// Whether the generator may be what was measured: the lap is a lower bound.
    #[must_use]
    pub fn is_generator_limited(&self) -> bool {
        self.failed.iter().any(|g| matches!(g, Violation::Generator { .. }))
    }

    /// Failures of every kind.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.iter().map(|c| c.count).sum()
    }
}
