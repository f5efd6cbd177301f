//! What happened: counts and histograms, by kind, merged without loss.

use std::collections::BTreeMap;

use hotlap_stats::{Censored, Histogram};
use serde::{Deserialize, Serialize};

/// What a load did and what came back, of the measured window only, except where it says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which engine ran (`epoll`, `kqueue`).
    pub backend: String,
    /// How long the window was, in nanoseconds.
    pub window_ns: u64,
    /// Right answers.
    pub answers: u64,
    /// Time of each answer from the first byte sent (with [`crate::plan::Reuse::Close`], from the
    /// start of connecting) to the last byte received: service time.
    pub service: Histogram,
    /// Time of each answer from the moment it was due to the last byte received: response time.
    /// Empty in a closed loop, where nothing is due.
    pub response: Histogram,
    /// Requests whose service time was not seen to its end, or not from its beginning: ages since
    /// sent.
    #[serde(default)]
    pub service_censored: Censored,
    /// The same of response times: ages since due. Empty in a closed loop.
    #[serde(default)]
    pub response_censored: Censored,
    /// How late requests were sent, against the moment they were due, by the generator's own fault
    /// (a request that waits for a free connection is the server's doing). Empty in a closed loop.
    pub lag: Histogram,
    /// Time to connect, of all connections where they are kept; of those in the window where each
    /// request has its own.
    pub connect: Histogram,
    /// Time of TLS handshakes, after connecting, of the same connections.
    pub handshake: Histogram,
    /// What went wrong.
    pub failures: Failures,
    /// Answers by status, right or wrong.
    pub statuses: BTreeMap<u16, u64>,
    /// The first wrong or broken answer: why, and its first bytes.
    pub first_wrong: Option<Wrong>,
    /// Connections of the whole load, ramp included.
    pub connections: Connections,
    /// Why the first connection failed that did before any was loaded.
    #[serde(default)]
    pub first_failure: Option<String>,
    /// Bytes received and sent.
    pub bytes: Bytes,
    /// Requests in flight when the window closed: neither answered nor failed.
    pub in_flight: u64,
    /// What was under way when the window opened, and when it closed.
    #[serde(default)]
    pub edges: Edges,
    /// Open loop: requests that were due when the window closed, and not sent yet since no
    /// connection was free.
    pub queued: u64,
    /// Age of the oldest request that was in flight or queued when the window closed, in
    /// nanoseconds: since it was due in an open loop, since it was sent in a closed one.
    #[serde(default)]
    pub oldest_ns: u64,
    /// In flight at the end and silent for longer than the timeout's half.
    pub unanswered: u64,
    /// Right answers in each tenth of a second of the window, in order.
    pub series: Vec<Tick>,
    /// What the generator itself spent, a thread each.
    pub threads: Vec<ThreadUse>,
    /// Open loop: requests that were due in the window. 0 in a closed loop.
    pub due: u64,
    /// All of the load, what is outside of the window included.
    pub whole: Whole,
}

/// The offered rate is not reached if more than this share of the requests that became due in the
/// window were added to the queue.
const BEHIND: f64 = 0.01;

/// What became of an offered rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Requests that became due per second.
    pub offered_per_s: f64,
    /// Right answers per second.
    pub reached_per_s: f64,
    /// Requests that became due in the window.
    pub due: u64,
    /// Requests that were due and neither answered nor failed when the window closed, sent or not.
    pub waiting: u64,
    /// By how many requests per second their number grew during the window.
    pub growth_per_s: f64,
    /// Time since the oldest of them was due, in nanoseconds.
    pub oldest_ns: u64,
    /// The server did not keep up: no connection was free for some requests, and the queue grew by
    /// more than 1 % of what became due.
    pub is_behind: bool,
}

/// A whole load, from its first request to its last: what a side effect is counted against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Whole {
    /// Right answers.
    pub answers: u64,
    /// Requests of which at least one byte was sent.
    pub sent: u64,
}

/// How long the requests that were under way at the window's two edges had been so, summed up. With
/// them Little's law is exact: the sum of all times in the system that lie within the window is the
/// sum of service times, less what of them lies before it, and what those have behind them that are
/// answered after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Edges {
    /// When it opened, in nanoseconds.
    pub opens_ns: u64,
    /// When it closed, in nanoseconds.
    pub closes_ns: u64,
}

/// One tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tick {
    /// Right answers.
    pub answers: u64,
    /// Failures of any kind.
    pub failures: u64,
    /// The longest service time in it, in nanoseconds.
    pub max_ns: u64,
    /// The sum of service times in it, in nanoseconds.
    pub sum_ns: u64,
}

/// How a request or a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// Nobody listens.
    Refused,
    /// The other side reset the connection.
    Reset,
    /// The other side closed before the answer was whole.
    ClosedEarly,
    /// No whole answer in time.
    Timeout,
    /// The bytes are no HTTP answer, or more bytes than asked for.
    BadFraming,
    /// A well-framed answer with the right status, but not the right body or length.
    WrongAnswer,
    /// A well-framed answer with the wrong status.
    WrongStatus,
    /// The TLS handshake or a record failed.
    Tls,
    /// A TLS connection ended without `close_notify` within a response that its end delimits, so
    /// that the response may be cut (RFC 8446 section 6.1, RFC 9112 section 9.8).
    Truncated,
    /// Anything else that the system reported (out of ports, out of files, unreachable).
    Other,
}

/// Where in a request's life it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Opening the connection, TLS included.
    Connect,
    /// Sending the request.
    Send,
    /// Waiting for the first byte.
    FirstByte,
    /// Reading the rest.
    Body,
    /// Between requests: nothing was asked.
    Idle,
}

/// Failures, counted by kind and phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Failures(pub Vec<FailureCount>);

/// One kind in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// How.
    pub failure: Failure,
    /// Where.
    pub phase: Phase,
    /// How often.
    pub count: u64,
}

impl Failures {
    /// Counts `count` more.
    pub fn add(&mut self, failure: Failure, phase: Phase, count: u64) {
        match self.0.iter_mut().find(|c| c.failure == failure && c.phase == phase) {
            Some(c) => c.count += count,
            None => self.0.push(FailureCount { failure, phase, count }),
        }
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|c| c.count).sum()
    }

    /// Those of one kind, whatever the phase.
    #[must_use]
    pub fn of(&self, failure: Failure) -> u64 {
        self.0.iter().filter(|c| c.failure == failure).map(|c| c.count).sum()
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        for c in &other.0 {
            self.add(c.failure, c.phase, c.count);
        }
    }
}

/// A wrong answer, kept as evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// What is wrong with it, in words.
    pub why: String,
    /// Its first bytes, at most 512.
    pub head: Vec<u8>,
}

/// Connections, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Connections {
    /// Asked for by the plan.
    pub asked: u64,
    /// Up when the window opened; with [`crate::plan::Reuse::Close`], before the first request.
    pub established: u64,
    /// Opened again within the window, because one failed or was closed by the server.
    pub reopened: u64,
    /// Opened in all.
    pub opened: u64,
}

impl Connections {
    fn merge(&mut self, other: Self) {
        self.asked += other.asked;
        self.established += other.established;
        self.reopened += other.reopened;
        self.opened += other.opened;
    }
}

/// Bytes on the wire; with TLS, its own included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bytes {
    /// From the server, all of it.
    pub received: u64,
    /// Of these, the bytes of right answers (head and body).
    pub answered: u64,
    /// To the server.
    pub sent: u64,
}

/// What one worker thread spent within the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThreadUse {
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// Wall time, in nanoseconds.
    pub wall_ns: u64,
    /// How often it waited for events.
    pub wakeups: u64,
    /// Requests that it sent.
    pub sent: u64,
    /// The core that it is pinned to.
    pub cpu: Option<usize>,
}

impl ThreadUse {
    /// The share of the window that it was on a core, 0 to 1.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.cpu_ns as f64 / self.wall_ns.max(1) as f64
    }
}

impl Outcome {
    /// Adds what another generator, or another thread, did at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.window_ns = self.window_ns.max(other.window_ns);
        self.answers += other.answers;
        self.service.merge(&other.service);
        self.response.merge(&other.response);
        self.service_censored.merge(&other.service_censored);
        self.response_censored.merge(&other.response_censored);
        self.lag.merge(&other.lag);
        self.connect.merge(&other.connect);
        self.handshake.merge(&other.handshake);
        self.failures.merge(&other.failures);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
        if self.first_wrong.is_none() {
            self.first_wrong.clone_from(&other.first_wrong);
        }
        self.connections.merge(other.connections);
        self.bytes.received += other.bytes.received;
        self.bytes.answered += other.bytes.answered;
        self.bytes.sent += other.bytes.sent;
        self.in_flight += other.in_flight;
        self.edges.opens_ns += other.edges.opens_ns;
        self.edges.closes_ns += other.edges.closes_ns;
        self.queued += other.queued;
        self.oldest_ns = self.oldest_ns.max(other.oldest_ns);
        self.unanswered += other.unanswered;
        self.due += other.due;
        self.whole.answers += other.whole.answers;
        self.whole.sent += other.whole.sent;
        self.threads.extend_from_slice(&other.threads);
        let ticks = self.series.len().max(other.series.len());
        self.series.resize(ticks, Tick::default());
        for (own, more) in self.series.iter_mut().zip(&other.series) {
            own.answers += more.answers;
            own.failures += more.failures;
            own.max_ns = own.max_ns.max(more.max_ns);
            own.sum_ns += more.sum_ns;
        }
    }

    /// Right answers per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.per_second(self.answers as f64)
    }

    /// Open loop: how the offered rate compares with what was answered, over one window. `None` in
    /// a closed loop.
    #[must_use]
    pub fn open_loop(&self) -> Option<OpenLoop> {
        // A request is due before it is anything else.
        let at_open = self.response_censored.entered.len();
        let at_close = self.in_flight + self.queued;
        let grown = at_close as f64 - at_open as f64;
        (self.due > 0).then(|| OpenLoop {
            offered_per_s: self.per_second(self.due as f64),
            reached_per_s: self.rate(),
            due: self.due,
            waiting: at_close,
            growth_per_s: self.per_second(grown),
            oldest_ns: self.oldest_ns,
            is_behind: !self.response_censored.waiting.is_empty()
                && grown > self.due as f64 * BEHIND,
        })
    }

    fn per_second(&self, count: f64) -> f64 {
        count * 1e9 / self.window_ns.max(1) as f64
    }
}
