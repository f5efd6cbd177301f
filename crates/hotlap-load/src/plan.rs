//! A plan: what to send, how fast, and for how long.
//!
//! A plan is a value that can be stored and run on another machine. [`Plan::check`] validates a
//! plan, and [`Session::start`](crate::Session::start) calls it first.

mod field;
mod request;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

pub(crate) use field::{Buffer, mix, number};
pub use field::{DueTimes, Field, MAX_TEXT, OrderEntry, Shared, ValueSource, shuffle};
pub use request::{
    ExpectedBody, ExpectedResponse, ExpectedStatus, Piece, Request, Text, UnknownField, escape,
    fill, first_difference, has_fields,
};

/// A load: everything that the generator needs to know about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The server.
    pub target: Target,
    /// The requests to send, in proportion to their weights unless there is an order.
    pub requests: Vec<Request>,
    /// The order in which requests are sent. After the last entry, the order starts again. `None`
    /// means that the weights decide. Each of n threads sends every n-th entry, so that together
    /// they send the whole order.
    #[serde(default)]
    pub order: Option<Shared<OrderEntry>>,
    /// The fields that requests and expected bodies refer to.
    pub fields: Vec<Field>,
    /// The seed of the random values of fields.
    pub seed: u64,
    /// A number that tells loads with the same seed apart. Their UUIDs differ, and all other values
    /// are the same.
    pub unique: u64,
    /// Where the sequences of all fields begin: the number of values that were used before. With an
    /// order, this is the number of entries that were used before.
    pub first_value: u64,
    /// The connections, and how they carry requests.
    #[serde(flatten)]
    pub shape: Shape,
    /// When requests are sent.
    pub pace: Pace,
    /// How long to send before the measurement window opens, once all connections are open. With
    /// [`Stop::Requests`] there is no warm-up, so that every request counts.
    pub warmup: Duration,
    /// When the load ends.
    pub stop: Stop,
    /// How long a request may take, from its first byte sent to the last byte of the response. If
    /// a request opens its connection, connecting is included. Otherwise, connecting and the TLS
    /// handshake have this limit each. In an open loop, waiting for a free connection has no
    /// limit, and counts as response time.
    pub timeout: Duration,
    /// The body of one response in this many is checked. The status and the length are checked for
    /// every response.
    pub check_one_in: u32,
    /// The cores that the worker threads are pinned to, in turn. If empty, threads are not pinned.
    pub cpus: Vec<usize>,
    /// Whether the threads poll without sleeping while the load is under way, if each has a core of
    /// its own. Waking up takes tens of microseconds, which would count as latency of the server.
    /// The server would also pay for waking the generator. Nothing else should use the cores.
    pub busy_poll: bool,
    /// The local addresses to connect from, in turn. If empty, the system chooses.
    pub sources: Vec<IpAddr>,
    /// The time at which to start, so that generators on several machines start together.
    pub start_at: Option<SystemTime>,
    /// The part of the load that this generator sends. This is the whole load unless several
    /// generators share it.
    #[serde(default)]
    pub part: LoadPart,
}

/// The part of a load that one of several generators sends. The connections, threads, cores and
/// source addresses of a plan belong to this generator. The rate, the number of requests, their
/// order and the values of their fields belong to the whole load. All generators must have the same
/// number of threads. Together they send the load as one generator with all of these threads would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadPart {
    /// The number of this generator, from 0.
    pub index: usize,
    /// The number of generators.
    pub of: usize,
}

impl LoadPart {
    fn check(self) -> Result<(), PlanError> {
        let Self { index, of } = self;
        match index < of {
            true => Ok(()),
            false => {
                let why = format!("part {index} of {of} does not exist: parts are numbered from 0");
                Err(PlanError::OutOfRange(why))
            }
        }
    }
}

/// The default part is the whole load.
impl Default for LoadPart {
    fn default() -> Self {
        Self { index: 0, of: 1 }
    }
}

/// How requests travel: the connections of a load, and what each of them carries. Plans, loads and
/// suites share this type, so a new property of connections is a field here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shape {
    /// Connections open at the same time, over all threads.
    pub connections: usize,
    /// Generator threads.
    pub threads: usize,
    /// Keep-alive, or a new connection for each request.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub reuse: Reuse,
    /// Requests in flight per connection: pipelined in HTTP/1.1, and streams in HTTP/2. A server
    /// may allow fewer streams.
    pub pipeline: usize,
}

/// The default is [`CONNECTIONS`] kept connections on 1 thread, without pipelining.
impl Default for Shape {
    fn default() -> Self {
        Self { connections: CONNECTIONS, threads: 1, reuse: Reuse::KeepAlive, pipeline: 1 }
    }
}

impl Shape {
    /// Returns the maximum number of requests in flight on all connections together.
    pub fn in_flight(&self) -> usize {
        self.connections * self.pipeline
    }

    /// Checks whether a load of this protocol can have this shape.
    ///
    /// # Errors
    /// A number is 0 or too large, or the properties conflict.
    pub fn check(&self, protocol: Protocol) -> Result<(), PlanError> {
        let Self { connections, threads, pipeline, reuse } = *self;
        if connections == 0 {
            return Err(PlanError::NoConnections);
        }
        if threads == 0 {
            return Err(PlanError::NoThreads);
        }
        if threads > connections {
            return Err(PlanError::MoreThreadsThanConnections { threads, connections });
        }
        let out_of_range = |why: String| Err(PlanError::OutOfRange(why));
        if connections > MAX_CONNECTIONS {
            return out_of_range(format!(
                "{connections} connections are too many: use at most {MAX_CONNECTIONS}"
            ));
        }
        if pipeline == 0 || pipeline > MAX_PIPELINE {
            let what = match protocol {
                Protocol::Http1 => format!("a pipeline of {pipeline} requests is"),
                Protocol::Http2 => format!("{pipeline} streams on each connection are"),
            };
            return out_of_range(format!("{what} out of range: use 1 to {MAX_PIPELINE}"));
        }
        if pipeline > 1 && reuse == Reuse::Close {
            let what = match protocol {
                Protocol::Http1 => {
                    "a connection that carries one request cannot be pipelined: use a pipeline of 1"
                }
                Protocol::Http2 => {
                    "a connection that carries one request has one stream: use 1 stream"
                }
            };
            return out_of_range(what.to_owned());
        }
        Ok(())
    }
}

/// What happens to a connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    /// The connection carries the next request.
    KeepAlive,
    /// The connection is closed, and the next request opens another. Connecting is part of the
    /// service time.
    Close,
}

impl Reuse {
    /// Returns `Close` (one request per connection) if `closes` is true, and `KeepAlive` otherwise.
    pub fn of(closes: bool) -> Self {
        if closes { Self::Close } else { Self::KeepAlive }
    }
}

/// The times at which requests are sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// Closed loop: a request is sent as soon as a connection is free.
    Closed,
    /// Open loop: a request is due every 1/rate seconds, over all connections together.
    Constant {
        /// The number of requests per second.
        rate: f64,
    },
    /// Open loop: requests are due at the times of a Poisson process. The gaps are exponential,
    /// with 1/rate seconds on average.
    Poisson {
        /// The average number of requests per second.
        rate: f64,
        /// The seed of the gaps. The same seed gives the same due times.
        seed: u64,
    },
    /// Open loop: each request is due at its own time. Nothing is due after the last request.
    Recorded(DueTimes),
}

impl Pace {
    /// Returns the number of requests per second, on average. Returns `None` for a closed loop.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Self::Closed => None,
            Self::Constant { rate } | Self::Poisson { rate, .. } => Some(*rate),
            Self::Recorded(due) => Some(due.rate()),
        }
    }
}

/// When a load ends: after a time, or after a number of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// The load ends this long after the warm-up.
    After(Duration),
    /// The load ends once this many requests have a response or have failed.
    Requests(u64),
}

/// The maximum number of connections of one generator. The key of a socket's events has 24 bits for
/// the connection.
const MAX_CONNECTIONS: usize = 1 << 24;

/// The highest rate, which is about ten times what a generator can send on a large machine. When a
/// load ends, the requests that were due are counted one by one, at about 10 ns each. Without a
/// limit, counting could take forever.
const MAX_RATE: f64 = 1e7;

/// The maximum number of requests in flight on one connection.
const MAX_PIPELINE: usize = 1024;

/// The highest sum of weights. The sum is limited because the order of requests is laid out in
/// memory.
const MAX_WEIGHTS: u64 = 100_000;

/// The maximum number of requests for which an outcome has separate figures. Each such request
/// needs at least one histogram of 264 KiB in each thread.
pub const MAX_BY_REQUEST: usize = 100;

/// The default number of connections of a load, which is a convention.
pub const CONNECTIONS: usize = 64;

impl Plan {
    /// Creates a closed loop of one request over the usual connections ([`Shape::default`]). The
    /// warm-up takes 100 ms, and the measurement takes 10 s. The timeout is 2 s.
    pub fn new(target: Target, request: Request) -> Self {
        Self {
            target,
            requests: vec![request],
            order: None,
            fields: Vec::new(),
            seed: 0,
            unique: 0,
            first_value: 0,
            shape: Shape::default(),
            pace: Pace::Closed,
            warmup: Duration::from_millis(100),
            stop: Stop::After(Duration::from_secs(10)),
            timeout: Duration::from_secs(2),
            check_one_in: 1,
            cpus: Vec::new(),
            busy_poll: false,
            sources: Vec::new(),
            start_at: None,
            part: LoadPart::default(),
        }
    }

    /// Returns whether the worker threads may poll without sleeping. The plan must allow it, and
    /// each thread must have a core of its own.
    pub fn may_busy_poll(&self) -> bool {
        self.busy_poll && self.shape.threads <= self.cpus.len()
    }

    /// Returns the number of requests with separate figures, which is all of them or none.
    pub(crate) fn by_request(&self) -> usize {
        let count = self.requests.len();
        if (2..=MAX_BY_REQUEST).contains(&count) { count } else { 0 }
    }

    /// Returns the number of threads of all generators that share the load.
    pub(crate) fn workers(&self) -> usize {
        (self.shape.threads * self.part.of).max(1)
    }

    /// Returns the number of a worker thread among the threads of all generators.
    pub(crate) fn worker(&self, thread: usize) -> usize {
        thread * self.part.of + self.part.index
    }

    /// Returns the core that a worker thread is pinned to.
    pub(crate) fn cpu(&self, worker: usize) -> Option<usize> {
        self.cpus.get(worker % self.cpus.len().max(1)).copied()
    }

    /// Returns whether the pace is an open loop.
    pub(crate) fn is_open_loop(&self) -> bool {
        self.pace != Pace::Closed
    }

    /// Checks whether the plan can be run.
    ///
    /// # Errors
    /// Returns the first reason why the plan cannot be run.
    pub fn check(&self) -> Result<(), PlanError> {
        self.shape.check(self.target.protocol)?;
        let out_of_range = |why: String| Err(PlanError::OutOfRange(why));
        if self.requests.is_empty() {
            return Err(PlanError::NoRequests);
        }
        self.part.check()?;
        if let Pace::Constant { rate } | Pace::Poisson { rate, .. } = self.pace {
            if !(rate.is_finite() && rate > 0.0) {
                return Err(PlanError::BadRate(rate.to_string()));
            }
            if rate > MAX_RATE {
                let what = format!("{rate} requests/s is too high: use at most {MAX_RATE}");
                return out_of_range(what);
            }
        }
        if self.timeout.is_zero() {
            return out_of_range(
                "every request fails with a timeout of 0: use a longer timeout".to_owned(),
            );
        }
        match self.stop {
            Stop::After(Duration::ZERO) => {
                return out_of_range(
                    "nothing is measured in a duration of 0: use a longer duration".to_owned(),
                );
            }
            Stop::Requests(0) => {
                return out_of_range("0 requests measure nothing: use at least 1".to_owned());
            }
            _ => {}
        }
        let weights: u64 = self.requests.iter().map(|r| u64::from(r.weight)).sum();
        if self.requests.iter().any(|r| r.weight == 0) || weights > MAX_WEIGHTS {
            return out_of_range(format!(
                "weights must be at least 1 and add up to at most {MAX_WEIGHTS}"
            ));
        }
        self.check_order()?;
        let endpoint = &self.target.endpoint;
        if let Some(source) = self.sources.iter().find(|s| !endpoint.accepts_source(s)) {
            return out_of_range(format!("{} cannot be reached from {source}", self.target));
        }
        for field in &self.fields {
            if let Some(problem) = field.source.problem() {
                return out_of_range(format!("field {}: {problem}", field.name));
            }
        }
        self.requests.iter().try_for_each(|request| request.check(self.fields.len()))
    }

    /// Checks the order of requests, and the due times.
    fn check_order(&self) -> Result<(), PlanError> {
        let out_of_range = |why: String| Err(PlanError::OutOfRange(why));
        if let Some(order) = &self.order {
            let is_known = |entry: &OrderEntry| (entry.request as usize) < self.requests.len();
            if order.is_empty() || !order.iter().all(is_known) {
                return out_of_range("an order must name requests of the plan".to_owned());
            }
        }
        let Pace::Recorded(due) = &self.pace else { return Ok(()) };
        if let Some(problem) = due.problem() {
            return out_of_range(problem.to_owned());
        }
        match self.stop {
            Stop::Requests(count) if count > due.count() as u64 => {
                let all = due.count();
                out_of_range(format!(
                    "{count} requests are too many: the access log has times for {all}, so use \
                     at most {all}"
                ))
            }
            _ => Ok(()),
        }
    }
}

/// The reason why a plan cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A load needs at least one connection.
    #[error("a load needs at least 1 connection")]
    NoConnections,
    /// A load needs at least one thread.
    #[error("a load needs at least 1 thread")]
    NoThreads,
    /// A thread without a connection would be idle.
    #[error(
        "there are more threads ({threads}) than connections ({connections}): each thread needs a \
         connection, so use fewer threads or more connections"
    )]
    MoreThreadsThanConnections {
        /// The requested number of threads.
        threads: usize,
        /// The requested number of connections.
        connections: usize,
    },
    /// The plan has no requests.
    #[error("a load needs at least 1 request")]
    NoRequests,
    /// A rate must be positive and finite.
    #[error("{0} requests/s is not a valid rate: use a positive number")]
    BadRate(String),
    /// Another value cannot be used. The text says which one and why.
    #[error("{0}")]
    OutOfRange(String),
}

/// The server's address, and how the generator talks to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The socket to connect to.
    pub endpoint: Endpoint,
    /// The TLS settings for `https`. `None` for `http`.
    pub tls: Option<Tls>,
    /// The protocol.
    #[serde(default)]
    pub protocol: Protocol,
}

/// The protocol of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// HTTP/1.1 (RFC 9112).
    #[default]
    Http1,
    /// HTTP/2 (RFC 9113). Over TLS, the server must agree to it (ALPN). Without TLS, HTTP/2 is
    /// spoken at once (prior knowledge, section 3.3).
    Http2,
}

/// The address of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix domain socket.
    Unix(PathBuf),
}

/// TLS settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// The name that the certificate must be valid for.
    pub server_name: String,
    /// Whether to accept any certificate (`--insecure`).
    pub insecure: bool,
    /// The certificates to trust instead of the system's, in DER. If empty, the system's are
    /// trusted.
    #[serde(default)]
    pub authorities: Vec<Vec<u8>>,
    /// The client's own certificate. `None` if the client has none.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// Whether a connection resumes the session of an earlier connection (RFC 8446 section 2.2).
    /// Otherwise all handshakes are full.
    #[serde(default)]
    pub resumes: bool,
    /// The cipher suites to offer, by their names in the IANA registry. If empty, all supported
    /// suites are offered.
    #[serde(default)]
    pub ciphers: Vec<String>,
}

/// A certificate that identifies the client.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The certificate in DER, followed by the certificates that lead to an authority.
    pub chain: Vec<Vec<u8>>,
    /// The private key of the certificate, in DER. The key is a secret.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Tls {
    /// Returns settings for full handshakes with a server. The server's certificate must be valid
    /// for this name, and must come from an authority that the system trusts.
    pub fn with(server_name: String) -> Self {
        Self {
            server_name,
            insecure: false,
            authorities: vec![],
            identity: None,
            resumes: false,
            ciphers: vec![],
        }
    }
}

impl Target {
    /// Creates a target for HTTP/1.1 without TLS.
    pub fn plain(endpoint: Endpoint) -> Self {
        Self { endpoint, tls: None, protocol: Protocol::Http1 }
    }
}

impl Endpoint {
    /// Returns whether connections to the endpoint stay on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Returns whether `source` has the IP version of the endpoint. A Unix domain socket has none.
    fn accepts_source(&self, source: &IpAddr) -> bool {
        match self {
            Self::Tcp(address) => address.is_ipv4() == source.is_ipv4(),
            Self::Unix(_) => false,
        }
    }
}

/// Writes the target as it appears in messages, such as `http://127.0.0.1:8080` or `unix:/path`.
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match &self.endpoint {
            Endpoint::Tcp(address) => write!(f, "{scheme}://{address}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_plan_is_rejected_with_the_reason() {
        let address = ([127, 0, 0, 1], 80).into();
        let target = Target::plain(Endpoint::Tcp(address));
        let mut valid = Plan::new(target, Request::get("/", "test"));
        valid.shape.connections = 4;
        assert_eq!(valid.check(), Ok(()));
        let why = |change: &dyn Fn(&mut Plan)| {
            let mut plan = valid.clone();
            change(&mut plan);
            plan.check().expect_err("an error").to_string()
        };
        assert_eq!(why(&|p| p.shape.connections = 0), "a load needs at least 1 connection");
        assert_eq!(why(&|p| p.shape.threads = 0), "a load needs at least 1 thread");
        assert!(why(&|p| p.shape.threads = 5).contains("more threads (5) than connections (4)"));
        assert_eq!(why(&|p| p.requests.clear()), "a load needs at least 1 request");
        assert!(why(&|p| p.part = LoadPart { index: 2, of: 2 }).contains("part 2 of 2"));
        let rate = |rate| move |p: &mut Plan| p.pace = Pace::Constant { rate };
        assert!(why(&rate(0.0)).contains("positive"));
        assert!(why(&rate(f64::NAN)).contains("NaN"));
        assert_eq!(why(&rate(1e12)), "1000000000000 requests/s is too high: use at most 10000000");
        assert!(why(&|p| p.shape.pipeline = 0).contains("1 to 1024"));
        assert!(why(&|p| p.timeout = Duration::ZERO).contains("timeout"));
        assert!(why(&|p| p.stop = Stop::Requests(0)).contains("at least 1"));
        assert!(why(&|p| p.stop = Stop::After(Duration::ZERO)).contains("duration"));
        assert!(why(&|p| p.requests[0].weight = 0).contains("weights"));
        assert!(why(&|p| p.sources = vec![[0; 16].into()]).contains("cannot be reached"));
        let field = |source: ValueSource| {
            move |p: &mut Plan| {
                p.fields = vec![Field::new("id", source.clone())];
            }
        };
        assert!(
            why(&field(ValueSource::Integer { min: 2, max: 1 })).contains("field id: its minimum")
        );
        assert!(why(&field(ValueSource::Text { length: 0 })).contains("length is 0"));
        let id = Field::new("id", ValueSource::Uuid);
        let unknown = Text::parse(b"/${id}", &[id]).unwrap();
        assert!(why(&|p| p.requests[0].path = unknown.clone()).contains("does not exist"));
        let entry = OrderEntry { request: 1, value: 0 };
        assert!(why(&|p| p.order = Some(vec![entry].into())).contains("name requests"));
        let recorded = |times: &[u64], speed| Pace::Recorded(DueTimes::new(times, speed));
        assert!(why(&|p| p.pace = recorded(&[], 1.0)).contains("at least 1 request"));
        assert!(why(&|p| p.pace = recorded(&[0, 1], 0.0)).contains("positive"));
        assert!(why(&|p| p.pace = recorded(&[7_000, 9_000, 8_000], 1.0)).contains("ascend"));
        let longer = |p: &mut Plan| (p.pace, p.stop) = (recorded(&[0, 1], 1.0), Stop::Requests(3));
        assert_eq!(
            why(&longer),
            "3 requests are too many: the access log has times for 2, so use at most 2"
        );
        let closing = |p: &mut Plan| (p.shape.reuse, p.shape.pipeline) = (Reuse::Close, 2);
        assert!(why(&closing).contains("cannot be pipelined"));
    }
}
