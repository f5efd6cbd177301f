//! A lap: what the load generator counted and timed, what the server used, and which validity
//! checks failed.

use hotlap_bench::lap::{self as measured, Violation, rate_share};
use hotlap_load::outcome::{FailureCount, RequestOutcome, Tick};
use hotlap_stats::Share;
use hotlap_stats::{Ages, Censored, Histogram};
use serde::{Deserialize, Serialize};

use crate::redact;

/// One lap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lap {
    /// The index of the server.
    pub server: usize,
    /// The index of the load.
    pub load: usize,
    /// The restart, from 0.
    pub restart: u32,
    /// The round of the restart, from 0.
    pub round: u32,
    /// The position in the round, from 0.
    pub place: u32,
    /// The rate of an open loop, in requests per second; `None` for a closed loop.
    pub rate: Option<f64>,
    /// Whether its server was held at the rate that a search found, for longer than in other
    /// windows.
    #[serde(default)]
    pub is_held: bool,
    /// When its window opened, in milliseconds since the run began.
    pub at_ms: u64,
    /// Length of its window, in nanoseconds.
    pub window_ns: u64,
    /// Correct responses.
    pub answers: u64,
    /// Failures by kind and phase.
    pub failures: Vec<FailureCount>,
    /// Responses by status.
    pub statuses: Vec<(u16, u64)>,
    /// Requests that became due; 0 in a closed loop.
    pub due: u64,
    /// Requests in flight when the window closed.
    pub in_flight: u64,
    /// Connections: requested, open when the window opened, opened again.
    pub connections: (u64, u64, u64),
    /// Bytes received and sent.
    pub bytes: (u64, u64),
    /// Service time.
    pub service: Histogram,
    /// Response time since a request was due; empty in a closed loop.
    pub response: Histogram,
    /// Ages of requests whose service time was not observed completely.
    pub service_censored: Censored,
    /// The same for response time; empty in a closed loop.
    pub response_censored: Censored,
    /// How late the generator sent; empty in a closed loop.
    pub lag: Histogram,
    /// Time to connect.
    pub connect: Histogram,
    /// Correct responses in each tenth of a second.
    pub series: Vec<Tick>,
    /// How the generator waited for events.
    pub backend: String,
    /// The generator's CPU time, in nanoseconds, and the share of the window that its busiest
    /// thread was on a core.
    pub generator: (u64, f64),
    /// Usage of the server; `None` if it cannot be measured.
    pub usage: Option<measured::Usage>,
    /// The failed validity checks.
    pub failed: Vec<Violation>,
    /// The outcome of each request, in order; empty if the load sends one request, and in laps
    /// stored by versions that did not keep it.
    #[serde(default)]
    pub by_request: Vec<LapRequest>,
    /// What each of several generators contributed, in the order of the host's list; empty if there
    /// was one, and in laps stored by versions that had one.
    #[serde(default)]
    pub generators: Vec<measured::Contribution>,
}

/// The outcome of one request in a lap. Its latency is kept as non-empty buckets: a histogram takes
/// 256 KiB, and a run has one for each request of each lap.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LapRequest {
    /// Correct responses.
    pub answers: u64,
    /// Requests that failed, wrong responses included.
    pub failures: u64,
    /// Latency of correct responses: response time in an open loop, else service time.
    pub latency: Ages,
    /// Ages of requests whose latency was not observed completely.
    pub censored: Censored,
}

impl From<&RequestOutcome> for LapRequest {
    fn from(own: &RequestOutcome) -> Self {
        Self {
            answers: own.responses,
            failures: own.failures,
            latency: Ages::from(&own.latency),
            censored: own.censored.clone(),
        }
    }
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
            rate: lap.kind.rate(),
            is_held: matches!(lap.kind, measured::Kind::Held { .. }),
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
            by_request: outcome.by_request.iter().map(LapRequest::from).collect(),
            generators: lap.generators.clone(),
        }
    }
}

impl Lap {
    /// Correct responses per second.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        self.rate_share().value().unwrap_or(0.0)
    }

    /// CPU time of the server's tree per request, in nanoseconds.
    #[must_use]
    pub fn cost_ns(&self) -> Option<f64> {
        self.cost_share().and_then(Share::value)
    }

    /// Its contribution to the requests/s of its round.
    #[must_use]
    pub fn rate_share(&self) -> Share {
        rate_share(self.answers, self.window_ns)
    }

    /// Its contribution to the CPU time per request of its round, in nanoseconds.
    #[must_use]
    pub fn cost_share(&self) -> Option<Share> {
        self.usage.as_ref()?.cost_share()
    }

    /// Whether it counts in estimates.
    #[must_use]
    pub fn counts(&self) -> bool {
        !self.failed.iter().any(Violation::invalidates)
    }

    /// Whether the generator may have been the limit, so that the lap is a lower bound.
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
