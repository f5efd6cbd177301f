//! What happened: counts and histograms that can be stored and merged without loss.

mod counts;
mod failure;

pub use counts::{
    ByteCounts, ConnectionCounts, EdgeAges, Negotiated, RequestOutcome, ThreadUsage, Tick, Totals,
    WrongResponse,
};
pub use failure::{Failure, FailureCount, Failures, Phase};

use std::collections::BTreeMap;

use hotlap_stats::{Censored, Histogram};
use serde::{Deserialize, Serialize};

/// What a load sent and what came back, within the measurement window unless a field says
/// otherwise.
///
/// Times are in nanoseconds. Outcomes of generators that ran at the same time, and of successive
/// windows of one load, can be [merged](Self::merge).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Which backend waited for events (`epoll`, `kqueue`).
    pub backend: String,
    /// Length of the window.
    pub window_ns: u64,
    /// Correct responses.
    pub responses: u64,
    /// Service time of each correct response: from the first byte sent (from the start of
    /// connecting, with [`crate::plan::Reuse::Close`]) to the last byte received.
    pub service_time: Histogram,
    /// Response time of each correct response: from the moment the request was due to the last byte
    /// received. Empty in a closed loop, which has no due times.
    pub response_time: Histogram,
    /// Ages, since they were sent, of requests whose service time was not observed completely.
    pub service_time_censored: Censored,
    /// The same for response times: ages since they were due. Empty in a closed loop.
    pub response_time_censored: Censored,
    /// How late the generator itself sent requests. Waiting for a free connection does not count,
    /// because the server keeps connections busy. Waiting behind a stall of the generator does
    /// count. Empty in a closed loop.
    pub lag: Histogram,
    /// Time to connect: of all connections if they are kept, of those opened within the window if
    /// each request has its own.
    pub connect_time: Histogram,
    /// Time of the TLS handshakes of the same connections, after connecting.
    pub handshake_time: Histogram,
    /// Failures.
    pub failures: Failures,
    /// HTTP/2: streams that the server reset, by error code (RFC 9113 section 7).
    #[serde(default)]
    pub stream_resets: BTreeMap<u32, u64>,
    /// HTTP/2: connections that the server ended with an error, by the code and text of its GOAWAY
    /// (RFC 9113 section 6.8).
    #[serde(default)]
    pub goaways: BTreeMap<String, u64>,
    /// What TLS negotiated on the first connection; `None` without TLS.
    #[serde(default)]
    pub tls: Option<Negotiated>,
    /// Responses by status code, correct or not.
    pub statuses: BTreeMap<u16, u64>,
    /// The first wrong or malformed response.
    pub first_wrong: Option<WrongResponse>,
    /// Connections, over the whole load unless a field says otherwise.
    pub connections: ConnectionCounts,
    /// Why the first connection attempt failed, among those made before any load was sent.
    pub first_connect_error: Option<String>,
    /// Bytes received and sent.
    pub bytes: ByteCounts,
    /// Requests in flight when the window closed.
    pub in_flight: u64,
    /// Ages of the requests in flight when the window opened and when it closed.
    pub edge_ages: EdgeAges,
    /// Open loop: requests that were due when the window closed but not sent, because no connection
    /// was free.
    pub queued: u64,
    /// Age of the oldest request in flight or queued when the window closed: since it was due in an
    /// open loop, since it was sent in a closed loop.
    pub oldest_ns: u64,
    /// Connections on which, when the window closed, no byte of a response had arrived for more
    /// than half of the timeout.
    pub stalled: u64,
    /// Counts for each tenth of a second of the window, in order.
    pub series: Vec<Tick>,
    /// The generator's own usage, one entry per thread.
    pub threads: Vec<ThreadUsage>,
    /// Open loop: requests that became due within the window. 0 in a closed loop.
    pub due: u64,
    /// Counts over the whole load, inside and outside of the window.
    pub totals: Totals,
    /// One entry for each request of the plan, in order; empty if the plan has one request, or over
    /// [`MAX_BY_REQUEST`](crate::plan::MAX_BY_REQUEST).
    #[serde(default)]
    pub by_request: Vec<RequestOutcome>,
}

/// How the offered rate of an open loop compares with the achieved rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Requests that became due per second.
    pub offered_per_s: f64,
    /// Correct responses per second.
    pub reached_per_s: f64,
    /// Requests that became due within the window.
    pub due: u64,
    /// Requests that were due and neither answered nor failed when the window closed, sent or not.
    pub waiting: u64,
    /// Growth of that number during the window, in requests per second.
    pub growth_per_s: f64,
    /// Time since the oldest of them was due, in nanoseconds.
    pub oldest_ns: u64,
    /// The server did not keep up: some requests found no free connection, and the queue grew by
    /// more than 1 % of the requests that became due.
    pub is_behind: bool,
}

/// The offered rate is not reached if the queue grew by more than this share of the requests that
/// became due.
const BEHIND: f64 = 0.01;

/// The histograms of an outcome.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histograms {
    /// Service time.
    pub service: Histogram,
    /// Response time.
    pub response: Histogram,
    /// How late the generator sent.
    pub lag: Histogram,
    /// Time to connect.
    pub connect: Histogram,
    /// Time of TLS handshakes.
    pub handshake: Histogram,
}

impl Outcome {
    /// Takes the histograms out, and leaves empty ones.
    pub fn take_histograms(&mut self) -> Histograms {
        Histograms {
            service: std::mem::take(&mut self.service_time),
            response: std::mem::take(&mut self.response_time),
            lag: std::mem::take(&mut self.lag),
            connect: std::mem::take(&mut self.connect_time),
            handshake: std::mem::take(&mut self.handshake_time),
        }
    }

    /// Puts histograms back.
    pub fn put_histograms(&mut self, times: Histograms) {
        self.service_time = times.service;
        self.response_time = times.response;
        self.lag = times.lag;
        self.connect_time = times.connect;
        self.handshake_time = times.handshake;
    }

    /// The share of the window in which the busiest thread had something to do, from 0 to 1.
    pub fn busiest(&self) -> f64 {
        self.threads.iter().map(|thread| thread.busy()).fold(0.0, f64::max)
    }

    /// Adds the outcome of another thread or generator that ran at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.window_ns = self.window_ns.max(other.window_ns);
        self.responses += other.responses;
        self.service_time.merge(&other.service_time);
        self.response_time.merge(&other.response_time);
        self.service_time_censored.merge(&other.service_time_censored);
        self.response_time_censored.merge(&other.response_time_censored);
        self.lag.merge(&other.lag);
        self.connect_time.merge(&other.connect_time);
        self.handshake_time.merge(&other.handshake_time);
        self.failures.merge(&other.failures);
        for (code, count) in &other.stream_resets {
            *self.stream_resets.entry(*code).or_default() += count;
        }
        for (reason, count) in &other.goaways {
            *self.goaways.entry(reason.clone()).or_default() += count;
        }
        if self.tls.is_none() {
            self.tls.clone_from(&other.tls);
        }
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        if self.first_wrong.is_none() {
            self.first_wrong.clone_from(&other.first_wrong);
        }
        self.connections.merge(other.connections);
        if self.first_connect_error.is_none() {
            self.first_connect_error.clone_from(&other.first_connect_error);
        }
        self.bytes.merge(other.bytes);
        self.in_flight += other.in_flight;
        self.edge_ages.merge(other.edge_ages);
        self.queued += other.queued;
        self.oldest_ns = self.oldest_ns.max(other.oldest_ns);
        self.stalled += other.stalled;
        let ticks = self.series.len().max(other.series.len());
        self.series.resize(ticks, Tick::default());
        for (tick, more) in self.series.iter_mut().zip(&other.series) {
            tick.merge(*more);
        }
        self.threads.extend_from_slice(&other.threads);
        self.due += other.due;
        self.totals.merge(other.totals);
        let requests = self.by_request.len().max(other.by_request.len());
        self.by_request.resize_with(requests, RequestOutcome::default);
        for (request, more) in self.by_request.iter_mut().zip(&other.by_request) {
            request.merge(more);
        }
    }

    /// Correct responses per second.
    pub fn rate(&self) -> f64 {
        self.per_second(self.responses as f64)
    }

    /// How the offered rate compares with the achieved rate, over one window. `None` in a closed
    /// loop.
    pub fn open_loop(&self) -> Option<OpenLoop> {
        let waiting_at_open = self.response_time_censored.entered.len();
        let waiting = self.in_flight + self.queued;
        let growth = waiting as f64 - waiting_at_open as f64;
        (self.due > 0).then(|| OpenLoop {
            offered_per_s: self.per_second(self.due as f64),
            reached_per_s: self.rate(),
            due: self.due,
            waiting,
            growth_per_s: self.per_second(growth),
            oldest_ns: self.oldest_ns,
            is_behind: !self.response_time_censored.waiting.is_empty()
                && growth > self.due as f64 * BEHIND,
        })
    }

    fn per_second(&self, count: f64) -> f64 {
        count * 1e9 / self.window_ns.max(1) as f64
    }
}
