//! The outcome of a load: counts and histograms that can be stored and merged without loss.

use std::collections::BTreeMap;
use std::fmt;

use hotlap_stats::{Ages, Censored, Histogram};
use serde::{Deserialize, Serialize};

/// What a load sent and what came back, within the measurement window unless a field says
/// otherwise.
///
/// Times are in nanoseconds. Outcomes of generators that ran at the same time can be
/// [merged](Self::merge).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The backend that waited for events (`epoll`, `kqueue`).
    pub backend: String,
    /// The length of the window, or of all collected windows together, in nanoseconds.
    pub window_ns: u64,
    /// The number of correct responses.
    pub responses: u64,
    /// The service time of each correct response, from the first byte sent to the last byte
    /// received. If the request opens a connection, the service time begins when connecting begins.
    pub service_time: Histogram,
    /// The response time of each correct response, from the moment the request was due to the last
    /// byte received. Empty in a closed loop, which has no due times.
    pub response_time: Histogram,
    /// The ages of requests whose service time was not observed completely. An age begins when the
    /// request is sent.
    pub service_time_censored: Censored,
    /// The ages of requests whose response time was not observed completely. An age begins when the
    /// request is due. Empty in a closed loop.
    pub response_time_censored: Censored,
    /// How late the generator itself sent requests. Waiting for a free connection is excluded,
    /// because the server keeps connections busy. Waiting behind a stall of the generator is
    /// included. Empty in a closed loop.
    pub lag: Histogram,
    /// The time to connect. If a load with one window keeps its connections, the histogram covers
    /// all of them. Otherwise it covers only connections opened within a window.
    pub connect_time: Histogram,
    /// The time of the TLS handshakes after connecting, of the same connections as in
    /// `connect_time`.
    pub handshake_time: Histogram,
    /// The failures, by kind and phase.
    pub failures: Failures,
    /// HTTP/2: the number of requests that failed because the server reset their streams, by error
    /// code (RFC 9113 section 7).
    #[serde(default)]
    pub stream_resets: BTreeMap<u32, u64>,
    /// HTTP/2: the number of connections that the server ended with an error, by the code and text
    /// of the GOAWAY (RFC 9113 section 6.8). Only the first few texts are kept.
    #[serde(default)]
    pub goaways: BTreeMap<String, u64>,
    /// What TLS negotiated on the first connection. `None` without TLS.
    #[serde(default)]
    pub tls: Option<Negotiated>,
    /// The number of responses by status code, correct or not.
    pub statuses: BTreeMap<u16, u64>,
    /// The first wrong or malformed response, or the first HTTP/2 error from the server.
    pub first_wrong: Option<WrongResponse>,
    /// Counts of connections, over the whole load unless a field says otherwise.
    pub connections: ConnectionCounts,
    /// Why a connection failed: the first failure before the load started.
    pub first_connect_error: Option<String>,
    /// The numbers of bytes received and sent.
    pub bytes: ByteCounts,
    /// The number of requests in flight when the window closed, or when the outcome of a held load
    /// was collected.
    pub in_flight: u64,
    /// The ages of the requests in flight when the window opened and when it closed.
    pub edge_ages: EdgeAges,
    /// Open loop: the number of requests that were due but not sent when the window closed.
    pub queued: u64,
    /// The age of the oldest request in flight or queued when the window closed. The age begins
    /// when the request was due in an open loop, and when it was sent in a closed loop.
    pub oldest_ns: u64,
    /// The number of stalled connections when the window closed, or when the outcome of a held
    /// load was collected. On a stalled connection, the oldest request has waited more than half
    /// of the timeout for the first byte of its response.
    pub stalled: u64,
    /// Counts for each tenth of a second of the window, in order.
    pub series: Vec<Tick>,
    /// The resource usage of the generator, with one entry per thread.
    pub threads: Vec<ThreadUsage>,
    /// Open loop: the number of requests that became due within the window. 0 in a closed loop.
    pub due: u64,
    /// Counts over the whole load, inside and outside of the window.
    pub totals: Totals,
    /// One entry for each request of the plan, in order. Empty if the plan has only one request, or
    /// more than [`MAX_BY_REQUEST`](crate::plan::MAX_BY_REQUEST).
    #[serde(default)]
    pub by_request: Vec<RequestOutcome>,
}

/// The offered and the achieved rate of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// The number of requests that became due per second.
    pub offered_per_s: f64,
    /// The number of correct responses per second.
    pub reached_per_s: f64,
    /// The number of requests that became due within the windows.
    pub due: u64,
    /// The number of requests that were waiting when the window closed. They were due, sent or not,
    /// and had neither a response nor a failure.
    pub waiting: u64,
    /// The growth of the number of waiting requests during the window, in requests per second.
    pub growth_per_s: f64,
    /// The time since the oldest waiting request was due, in nanoseconds.
    pub oldest_ns: u64,
    /// Whether the server fell behind. If so, some requests found no free connection, and the
    /// number of waiting requests grew by more than 1% of `due`.
    pub is_behind: bool,
}

/// The maximum growth of the number of waiting requests, as a share of the requests that became
/// due. With more growth, the server has fallen behind.
const BEHIND: f64 = 0.01;

impl Outcome {
    /// Returns the histograms: service time, response time, lag, time to connect, time of TLS
    /// handshakes.
    pub fn histograms_mut(&mut self) -> [&mut Histogram; 5] {
        [
            &mut self.service_time,
            &mut self.response_time,
            &mut self.lag,
            &mut self.connect_time,
            &mut self.handshake_time,
        ]
    }

    /// Returns the share of the window in which the busiest thread had something to do, from 0 to
    /// 1.
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

    /// Returns the number of correct responses and failures together.
    pub fn requests(&self) -> u64 {
        self.responses + self.failures.total()
    }

    /// Returns the number of correct responses per second.
    pub fn rate(&self) -> f64 {
        self.responses as f64 * 1e9 / self.window_ns.max(1) as f64
    }

    /// Compares the offered rate with the achieved rate, over one window. Returns `None` if no
    /// request was due, as in a closed loop.
    pub fn open_loop(&self) -> Option<OpenLoop> {
        OpenLoop::over([self])
    }
}

impl OpenLoop {
    /// Compares the offered rate with the achieved rate, over successive windows. Returns `None` if
    /// no request was due, as in a closed loop.
    pub fn over<'a>(windows: impl IntoIterator<Item = &'a Outcome>) -> Option<Self> {
        let [mut window_ns, mut responses, mut due, mut queued, mut waiting, mut before] = [0; 6];
        let mut oldest_ns = 0;
        for window in windows {
            window_ns += window.window_ns;
            responses += window.responses;
            due += window.due;
            queued += window.response_time_censored.waiting.len();
            waiting += window.in_flight + window.queued;
            before += window.response_time_censored.entered.len();
            oldest_ns = oldest_ns.max(window.oldest_ns);
        }
        let growth = waiting as f64 - before as f64;
        let per_second = |count: f64| count * 1e9 / window_ns.max(1) as f64;
        (due > 0).then(|| Self {
            offered_per_s: per_second(due as f64),
            reached_per_s: per_second(responses as f64),
            due,
            waiting,
            growth_per_s: per_second(growth),
            oldest_ns,
            is_behind: queued > 0 && growth > due as f64 * BEHIND,
        })
    }
}

/// How a request or a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The server refused the connection, or its Unix socket does not exist.
    Refused,
    /// The server reset the connection.
    Reset,
    /// The server closed the connection before the response was complete.
    ClosedEarly,
    /// The timeout passed before the connection was open or the response was complete.
    Timeout,
    /// The bytes are not a valid HTTP response, belong to no request, or report a failed gRPC
    /// call.
    BadFraming,
    /// The response is well-formed and has the expected status, but an unexpected body or length.
    WrongBody,
    /// The response is well-formed but has an unexpected status.
    WrongStatus,
    /// The TLS handshake or a TLS record failed.
    Tls,
    /// A TLS connection ended without `close_notify` within a response that the end of the
    /// connection delimits. The response may be incomplete (RFC 8446 section 6.1, RFC 9112 section
    /// 9.8).
    Truncated,
    /// The server reset the stream of the request (HTTP/2). The connection continues.
    StreamReset,
    /// No local port is free for another connection. Each connection that the generator closes
    /// first occupies its port for a minute (TIME_WAIT).
    NoPort,
    /// Any other error of the system, such as too many open files or no route.
    Other,
}

impl Failure {
    /// All kinds, in the order of their numbers: `ALL[kind as usize]` is `kind`.
    pub(crate) const ALL: [Self; 12] = [
        Self::Refused,
        Self::Reset,
        Self::ClosedEarly,
        Self::Timeout,
        Self::BadFraming,
        Self::WrongBody,
        Self::WrongStatus,
        Self::Tls,
        Self::Truncated,
        Self::StreamReset,
        Self::NoPort,
        Self::Other,
    ];
}

/// Writes the name that the failure has in JSON, such as `closed-early`.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The phase of a request in which it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The generator was connecting, including the TLS handshake.
    Connect,
    /// The generator was sending the request.
    Send,
    /// The generator was waiting for the first byte of the response.
    FirstByte,
    /// The generator was reading the rest of the response.
    Body,
    /// The connection was between requests.
    Idle,
}

impl Phase {
    /// All phases, in the order of their numbers: `ALL[phase as usize]` is `phase`.
    pub(crate) const ALL: [Self; 5] =
        [Self::Connect, Self::Send, Self::FirstByte, Self::Body, Self::Idle];
}

/// Writes the name that the phase has in JSON, such as `first-byte`.
impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The failures of a load, counted by kind and phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Failures(pub Vec<FailureCount>);

/// The failures of one kind in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// The kind of the failures.
    pub failure: Failure,
    /// The phase of the failures.
    pub phase: Phase,
    /// The number of failures.
    pub count: u64,
}

impl Failures {
    /// Counts `count` more failures.
    pub fn add(&mut self, failure: Failure, phase: Phase, count: u64) {
        match self.0.iter_mut().find(|c| c.failure == failure && c.phase == phase) {
            Some(c) => c.count += count,
            None => self.0.push(FailureCount { failure, phase, count }),
        }
    }

    /// Returns the number of all failures.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|c| c.count).sum()
    }

    /// Returns the number of failures of one kind, in any phase.
    pub fn of(&self, failure: Failure) -> u64 {
        self.0.iter().filter(|c| c.failure == failure).map(|c| c.count).sum()
    }

    /// Returns the most frequent kind of failure.
    pub fn most(&self) -> Option<Failure> {
        Failure::ALL.into_iter().rev().max_by_key(|kind| self.of(*kind)).filter(|k| self.of(*k) > 0)
    }

    /// Adds all failures of `other`.
    pub fn merge(&mut self, other: &Self) {
        for c in &other.0 {
            self.add(c.failure, c.phase, c.count);
        }
    }
}

/// Counts over a whole load, from its first request to its last. Side effects of requests, such as
/// rows in a database, are compared with these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// The number of correct responses.
    pub responses: u64,
    /// The number of requests sent, except requests that the server refused to process.
    pub sent: u64,
}

impl Totals {
    fn merge(&mut self, other: Self) {
        self.responses += other.responses;
        self.sent += other.sent;
    }
}

/// The sums of the ages of all requests in flight at the two edges of the window.
///
/// If no request fails, the sums make Little's law exact. The time that requests spent in the
/// system within the window has three parts. It is the sum of the service times, minus the ages at
/// the opening edge, plus the ages at the closing edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EdgeAges {
    /// The sum of the ages when the window opened, in nanoseconds.
    pub at_open_ns: u64,
    /// The sum of the ages when the window closed, in nanoseconds.
    pub at_close_ns: u64,
}

impl EdgeAges {
    fn merge(&mut self, other: Self) {
        self.at_open_ns += other.at_open_ns;
        self.at_close_ns += other.at_close_ns;
    }
}

/// The counts of a tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tick {
    /// The number of correct responses.
    pub responses: u64,
    /// The number of failures of any kind.
    pub failures: u64,
    /// The longest service time, in nanoseconds.
    pub max_ns: u64,
    /// The sum of all service times, in nanoseconds.
    pub sum_ns: u64,
}

impl Tick {
    fn merge(&mut self, other: Self) {
        self.responses += other.responses;
        self.failures += other.failures;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }
}

/// What a TLS handshake negotiated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiated {
    /// The version, such as `TLS 1.3`.
    pub version: String,
    /// The cipher suite, by its name in the IANA registry, such as `TLS_AES_256_GCM_SHA384`.
    pub cipher: String,
}

/// Writes the version and the cipher suite, such as `TLS 1.3, TLS_AES_256_GCM_SHA384`.
impl std::fmt::Display for Negotiated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.version, self.cipher)
    }
}

/// A wrong or malformed response, or an HTTP/2 error from the server, kept as evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongResponse {
    /// What is wrong, in words.
    pub why: String,
    /// The first bytes of the response, at most 512. In HTTP/2, these are bytes of the body, from
    /// the first wrong piece on.
    pub first_bytes: Vec<u8>,
    /// The first bytes of the request, at most 512. Empty if the request is not known.
    #[serde(default)]
    pub request: Vec<u8>,
}

impl WrongResponse {
    /// Returns the method and path of the request. Returns `None` if the request is not known.
    pub fn method_and_path(&self) -> Option<String> {
        let line = self.request.split(|byte| *byte == b'\r').next()?;
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?))
    }
}

/// The outcome of one of the plan's requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RequestOutcome {
    /// The number of correct responses.
    pub responses: u64,
    /// The number of requests that failed, including requests with a wrong response.
    pub failures: u64,
    /// The latency of correct responses: the response time in an open loop, and the service time in
    /// a closed loop. Only non-empty buckets are kept, because a run has this field for each
    /// request of each lap.
    pub latency: Ages,
    /// The ages of requests whose latency was not observed completely.
    pub censored: Censored,
}

impl RequestOutcome {
    fn merge(&mut self, other: &Self) {
        self.responses += other.responses;
        self.failures += other.failures;
        self.latency.merge(&other.latency);
        self.censored.merge(&other.censored);
    }
}

/// Counts of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// The number of connections that the plan requests.
    pub requested: u64,
    /// The number of open connections before the first request. With
    /// [`crate::plan::Reuse::KeepAlive`], the higher of this number and the number when the window
    /// opened.
    pub established: u64,
    /// The number of open connections that failed or that the server closed within the window. 0
    /// if each request has its own connection.
    pub reopened: u64,
    /// The number of attempts to connect, over the whole load.
    pub opened: u64,
    /// The number of TLS handshakes within the window that resumed a session.
    #[serde(default)]
    pub resumed: u64,
    /// HTTP/2: the highest number of streams open at the same time on one connection, within the
    /// window.
    #[serde(default)]
    pub streams: u64,
}

impl ConnectionCounts {
    fn merge(&mut self, other: Self) {
        self.requested += other.requested;
        self.established += other.established;
        self.reopened += other.reopened;
        self.opened += other.opened;
        self.resumed += other.resumed;
        self.streams = self.streams.max(other.streams);
    }
}

/// The numbers of bytes received and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ByteCounts {
    /// All bytes from the server, without the bytes that TLS adds.
    pub received: u64,
    /// The bytes of correct responses, head and body, without the bytes that TLS adds.
    pub responses: u64,
    /// The bytes of the largest correct response, head and body, without the bytes that TLS adds.
    #[serde(default)]
    pub largest: u64,
    /// All bytes to the server, including the bytes that TLS adds, but without handshakes.
    pub sent: u64,
}

impl ByteCounts {
    fn merge(&mut self, other: Self) {
        self.received += other.received;
        self.responses += other.responses;
        self.largest = self.largest.max(other.largest);
        self.sent += other.sent;
    }
}

/// The resource usage of one worker thread within the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThreadUsage {
    /// The CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// The wall time in nanoseconds.
    pub wall_ns: u64,
    /// The number of times that the thread slept, or found events when it polled.
    pub wakeups: u64,
    /// The part of the CPU time in which the thread waited for events without sleeping, in
    /// nanoseconds.
    pub idle_ns: u64,
    /// The number of requests sent.
    pub sent: u64,
    /// The core that the thread is pinned to.
    pub cpu: Option<usize>,
}

impl ThreadUsage {
    /// Returns the share of the window in which the thread had something to do, from 0 to 1.
    pub fn busy(&self) -> f64 {
        self.cpu_ns.saturating_sub(self.idle_ns) as f64 / self.wall_ns.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_phases_are_numbered_in_the_order_of_their_lists() {
        for (number, failure) in Failure::ALL.iter().enumerate() {
            assert_eq!(*failure as usize, number);
        }
        for (number, phase) in Phase::ALL.iter().enumerate() {
            assert_eq!(*phase as usize, number);
        }
    }

    #[test]
    fn a_wrong_response_names_method_and_path_of_its_request() {
        let of = |request: &[u8]| {
            let (why, first_bytes) = (String::new(), Vec::new());
            WrongResponse { why, first_bytes, request: request.to_vec() }.method_and_path()
        };
        let request = b"POST /orders?id=7 HTTP/1.1\r\nAuthorization: Bearer a\r\n\r\nbody";
        assert_eq!(of(request).as_deref(), Some("POST /orders?id=7"));
        // Only the beginning of the request is kept.
        assert_eq!(of(b"GET /a-long-pa").as_deref(), Some("GET /a-long-pa"));
        assert_eq!(of(b""), None);
    }
}
