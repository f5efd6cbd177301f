//! The counts in an outcome.

use hotlap_stats::{Ages, Censored};
use serde::{Deserialize, Serialize};

/// Counts over a whole load, from its first request to its last. Side effects of requests, such as
/// rows in a database, are compared with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Correct responses.
    pub responses: u64,
    /// Requests of which at least one byte was sent.
    pub sent: u64,
}

impl Totals {
    pub(super) fn merge(&mut self, other: Self) {
        self.responses += other.responses;
        self.sent += other.sent;
    }
}

/// The sum of the ages of all requests in flight at the two edges of the window.
///
/// They make Little's law exact: the time that requests spent in the system within the window is
/// the sum of the service times, minus the ages at the opening edge, plus the ages at the closing
/// edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EdgeAges {
    /// When the window opened, in nanoseconds.
    pub at_open_ns: u64,
    /// When the window closed, in nanoseconds.
    pub at_close_ns: u64,
}

impl EdgeAges {
    pub(super) fn merge(&mut self, other: Self) {
        self.at_open_ns += other.at_open_ns;
        self.at_close_ns += other.at_close_ns;
    }
}

/// A tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tick {
    /// Correct responses.
    pub responses: u64,
    /// Failures of any kind.
    pub failures: u64,
    /// The longest service time, in nanoseconds.
    pub max_ns: u64,
    /// The sum of all service times, in nanoseconds.
    pub sum_ns: u64,
}

impl Tick {
    pub(super) fn merge(&mut self, other: Self) {
        self.responses += other.responses;
        self.failures += other.failures;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }
}

/// What a TLS handshake negotiated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiated {
    /// `TLS 1.3`.
    pub version: String,
    /// The cipher suite by its name in the IANA's registry: `TLS_AES_256_GCM_SHA384`.
    pub cipher: String,
}

/// `TLS 1.3, TLS_AES_256_GCM_SHA384`.
impl std::fmt::Display for Negotiated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.version, self.cipher)
    }
}

/// A wrong or malformed response, kept as evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongResponse {
    /// What is wrong with it, in words.
    pub why: String,
    /// Its first bytes, at most 512.
    pub first_bytes: Vec<u8>,
    /// The first bytes of the request that it answered, at most 512; empty if there was none.
    #[serde(default)]
    pub request: Vec<u8>,
}

impl WrongResponse {
    /// Method and path of the request that it answered; `None` if there was none.
    pub fn method_and_path(&self) -> Option<String> {
        let line = self.request.split(|byte| *byte == b'\r').next()?;
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?))
    }
}

/// What happened to one of the plan's requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RequestOutcome {
    /// Correct responses.
    pub responses: u64,
    /// Requests that failed, wrong responses included.
    pub failures: u64,
    /// Latency of correct responses: response time in an open loop, else service time. Only
    /// non-empty buckets are kept, because a run has this for each request of each lap.
    pub latency: Ages,
    /// Ages of requests whose latency was not observed completely.
    pub censored: Censored,
}

impl RequestOutcome {
    pub(super) fn merge(&mut self, other: &Self) {
        self.responses += other.responses;
        self.failures += other.failures;
        self.latency.merge(&other.latency);
        self.censored.merge(&other.censored);
    }
}

/// Counts of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// Connections that the plan requests.
    pub requested: u64,
    /// Open when the window opened; with [`crate::plan::Reuse::Close`], before the first request.
    pub established: u64,
    /// Opened again within the window, because a connection failed or the server closed it.
    pub reopened: u64,
    /// Attempts to connect, over the whole load.
    pub opened: u64,
    /// TLS handshakes within the window that resumed a session.
    #[serde(default)]
    pub resumed: u64,
    /// HTTP/2: the most streams that were open at the same time on one connection.
    #[serde(default)]
    pub streams: u64,
}

impl ConnectionCounts {
    pub(super) fn merge(&mut self, other: Self) {
        self.requested += other.requested;
        self.established += other.established;
        self.reopened += other.reopened;
        self.opened += other.opened;
        self.resumed += other.resumed;
        self.streams = self.streams.max(other.streams);
    }
}

/// Bytes on the wire, including those of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ByteCounts {
    /// All bytes from the server, without those of TLS.
    pub received: u64,
    /// The bytes of correct responses, head and body, without those of TLS.
    pub responses: u64,
    /// All bytes to the server.
    pub sent: u64,
}

impl ByteCounts {
    pub(super) fn merge(&mut self, other: Self) {
        self.received += other.received;
        self.responses += other.responses;
        self.sent += other.sent;
    }
}

/// Usage of one worker thread within the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThreadUsage {
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// Wall time, in nanoseconds.
    pub wall_ns: u64,
    /// How often the thread waited for events, or found some without waiting.
    pub wakeups: u64,
    /// The part of the CPU time in which it waited for events without sleeping, in nanoseconds.
    pub idle_ns: u64,
    /// Requests sent.
    pub sent: u64,
    /// The core that the thread is pinned to.
    pub cpu: Option<usize>,
}

impl ThreadUsage {
    /// The share of the window in which the thread had something to do, from 0 to 1.
    pub fn busy(&self) -> f64 {
        self.cpu_ns.saturating_sub(self.idle_ns) as f64 / self.wall_ns.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_response_names_method_and_path_of_its_request() {
        let of = |request: &[u8]| {
            let (why, first_bytes) = (String::new(), Vec::new());
            WrongResponse { why, first_bytes, request: request.to_vec() }.method_and_path()
        };
        let request = b"POST /orders?id=7 HTTP/1.1\r\nAuthorization: Bearer a\r\n\r\nbody";
        assert_eq!(of(request).as_deref(), Some("POST /orders?id=7"));
        // Only the beginning of a request is kept.
        assert_eq!(of(b"GET /a-long-pa").as_deref(), Some("GET /a-long-pa"));
        assert_eq!(of(b""), None);
    }
}
