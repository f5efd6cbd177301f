//! What to send, how hard, and for how long.
//!
//! A plan is a value: it can be written to a file, read back on another machine and merged with its
//! like. [`Plan::check`] says whether it can be run; [`crate::Session::start`] asks it first.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::http;

/// Everything that the generator needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Whom to load.
    pub target: Target,
    /// What to send; picked by weight.
    pub requests: Vec<Request>,
    /// Connections open at the same time, over all threads.
    pub connections: usize,
    /// Worker threads.
    pub threads: usize,
    /// One connection for many requests, or a new one for each.
    pub reuse: Reuse,
    /// When the next request is due.
    pub pace: Pace,
    /// Requests in flight on one connection; 1 is no pipelining.
    pub pipeline: usize,
    /// How long is sent before anything counts, after all connections are up. None with
    /// [`Stop::Requests`], where the server gets just so many.
    pub ramp: Duration,
    /// When it is over.
    pub stop: Stop,
    /// How long one request may take, from its send to its last byte; connecting has the same time.
    /// Waiting for a free connection in an open loop has no limit: it counts as response time.
    pub timeout: Duration,
    /// Check every answer's body, or one in so many (status and length are always checked).
    pub check_one_in: u32,
    /// Cores that the worker threads are pinned to, in turn; empty: not pinned.
    pub cpus: Vec<usize>,
    /// No one else needs these cores: where each thread has one, an open loop looks for answers and
    /// for the time without sleeping while a request is about to be due or was just sent. To be
    /// woken takes tens of microseconds, more so in a virtual machine, and they would be the
    /// server's.
    pub awake: bool,
    /// Local addresses to connect from, in turn; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Start at this moment, so that generators on several machines start together.
    pub start_at: Option<SystemTime>,
}

/// Where the server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The socket to connect to.
    pub endpoint: Endpoint,
    /// For `https`.
    pub tls: Option<Tls>,
}

/// A socket's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A unix stream socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// Whether a connection to it needs no network.
    #[must_use]
    pub fn is_near(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// How TLS is spoken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// The name that the certificate must carry.
    pub server_name: String,
    /// Take any certificate (`--insecure`).
    pub insecure: bool,
}

/// One request, built once, and the answer that is right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The bytes on the wire: request line, headers, blank line, body.
    pub bytes: Vec<u8>,
    /// Whether the answer has no body whatever its headers say (RFC 9110 section 9.3.2).
    pub is_head: bool,
    /// How often it is sent, relative to the others; at least 1.
    pub weight: u32,
    /// What the answer must be.
    pub expect: Expect,
}

/// What a right answer looks like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// Its status.
    pub status: Status,
    /// Its body.
    pub body: Body,
}

/// Which status is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// 200 to 299.
    Success,
    /// Just this one.
    Exactly(u16),
    /// Whatever comes, as long as it is framed.
    Any,
}

/// Which body is right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Body {
    /// Whatever comes.
    Any,
    /// So many bytes.
    Length(usize),
    /// These bytes, but for the ranges that vary from answer to answer (a clock, an id).
    Bytes {
        /// The body, whole.
        bytes: Vec<u8>,
        /// Ranges of it that may differ; in order, not overlapping.
        varies: Vec<Range<usize>>,
    },
}

/// What becomes of a connection after its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    /// It carries the next request.
    KeepAlive,
    /// It is closed, and a new one opened; connecting is part of the request's time.
    Close,
}

/// When a request is due.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// Closed loop: as soon as a connection is free.
    Closed,
    /// Open loop: every 1/rate seconds over all connections together.
    Constant {
        /// Requests per second.
        rate: f64,
    },
    /// Open loop: exponential gaps with a mean of 1/rate seconds.
    Poisson {
        /// Requests per second.
        rate: f64,
        /// For the gaps: the same seed gives the same moments.
        seed: u64,
    },
}

/// When a load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// So long after the ramp.
    After(Duration),
    /// After so many answers, right or wrong, and failures.
    Requests(u64),
}

impl Plan {
    /// A short load of one request: 64 connections, kept alive, of 1 thread; a closed loop without
    /// pipelining; a ramp of 100 ms, then 10 s; 2 s for each request.
    #[must_use]
    pub fn new(target: Target, request: Request) -> Self {
        Self {
            target,
            requests: vec![request],
            connections: 64,
            threads: 1,
            reuse: Reuse::KeepAlive,
            pace: Pace::Closed,
            pipeline: 1,
            ramp: Duration::from_millis(100),
            stop: Stop::After(Duration::from_secs(10)),
            timeout: Duration::from_secs(2),
            check_one_in: 1,
            cpus: Vec::new(),
            awake: false,
            sources: Vec::new(),
            start_at: None,
        }
    }

    /// Whether its threads stay awake: they may, and each has a core of its own.
    #[must_use]
    pub fn stays_awake(&self) -> bool {
        self.awake && self.threads <= self.cpus.len()
    }

    /// Whether it can be run.
    ///
    /// # Errors
    /// The first reason why not.
    pub fn check(&self) -> Result<(), PlanError> {
        let Self { connections, threads, .. } = *self;
        let out_of_range = |why: String| Err(PlanError::OutOfRange(why));
        if connections == 0 {
            return Err(PlanError::NoConnections);
        }
        if threads == 0 {
            return Err(PlanError::NoThreads);
        }
        if threads > connections {
            return Err(PlanError::MoreThreadsThanConnections { threads, connections });
        }
        if self.requests.is_empty() {
            return Err(PlanError::NoRequests);
        }
        match self.pace {
            Pace::Constant { rate } | Pace::Poisson { rate, .. }
                if !(rate.is_finite() && rate > 0.0) =>
            {
                return Err(PlanError::BadRate(rate.to_string()));
            }
            Pace::Constant { rate } | Pace::Poisson { rate, .. } if rate > RATE => {
                return out_of_range(format!("{rate} requests/s: at most {RATE}"));
            }
            _ => {}
        }
        if connections > CONNECTIONS {
            return out_of_range(format!("{connections} connections: at most {CONNECTIONS}"));
        }
        if self.pipeline == 0 || self.pipeline > PIPELINE {
            return out_of_range(format!("{} requests in flight: 1 to {PIPELINE}", self.pipeline));
        }
        if self.pipeline > 1 && self.reuse == Reuse::Close {
            return out_of_range("a connection for each request cannot pipeline: use 1".to_owned());
        }
        if self.timeout.is_zero() {
            return out_of_range("a timeout of 0 fails every request: use more".to_owned());
        }
        match self.stop {
            Stop::After(Duration::ZERO) => {
                return out_of_range("a duration of 0 measures nothing: use more".to_owned());
            }
            Stop::Requests(0) => {
                return out_of_range("0 requests measure nothing: use at least 1".to_owned());
            }
            _ => {}
        }
        let weights: u64 = self.requests.iter().map(|r| u64::from(r.weight)).sum();
        if self.requests.iter().any(|r| r.weight == 0) || weights > WEIGHTS {
            return out_of_range(format!("weights: at least 1 each, {WEIGHTS} together"));
        }
        if let Some(source) = self.sources.iter().find(|s| misfit(s, &self.target.endpoint)) {
            return out_of_range(format!("{} cannot be reached from {source}", self.target));
        }
        for request in &self.requests {
            request.check()?;
        }
        Ok(())
    }
}

/// An address as it reads in a message.
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match &self.endpoint {
            Endpoint::Tcp(address) => write!(f, "{scheme}://{address}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Whether a socket with this source address cannot connect to the endpoint.
fn misfit(source: &IpAddr, endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Tcp(address) => address.is_ipv4() != source.is_ipv4(),
        Endpoint::Unix(_) => true,
    }
}

/// The most connections of one generator: what a lane's number has room for.
const CONNECTIONS: usize = 1 << 24;

/// The highest rate: some ten times what a generator sends on a large machine. Requests that were
/// due and not sent are counted one by one when a window closes, at about 10 ns each: without a
/// limit, that could take for ever.
const RATE: f64 = 1e7;

/// The most requests in flight on one connection.
const PIPELINE: usize = 1024;

/// The most that all weights make up: the order of requests is laid out beforehand.
const WEIGHTS: u64 = 100_000;

impl Request {
    /// A request whose answer must be a success, with any body.
    #[must_use]
    pub fn build(
        method: &str,
        path: &str,
        host: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Self {
        Self {
            bytes: http::request(method, path, host, headers, body),
            is_head: method.eq_ignore_ascii_case("HEAD"),
            weight: 1,
            expect: Expect { status: Status::Success, body: Body::Any },
        }
    }

    /// A GET, as [`Request::build`] does it.
    #[must_use]
    pub fn get(path: &str, host: &str) -> Self {
        Self::build("GET", path, host, &[], b"")
    }

    /// The same, and its answer must have just these bytes for a body.
    #[must_use]
    pub fn expecting(mut self, body: &[u8]) -> Self {
        self.expect.body = Body::Bytes { bytes: body.to_vec(), varies: Vec::new() };
        self
    }

    fn check(&self) -> Result<(), PlanError> {
        if self.bytes.is_empty() {
            return Err(PlanError::OutOfRange("a request without any bytes".to_owned()));
        }
        let Body::Bytes { bytes, varies } = &self.expect.body else { return Ok(()) };
        let mut at = 0;
        for part in varies {
            if part.start < at || part.end < part.start || part.end > bytes.len() {
                let why = "parts of a body that vary: in order, apart, and within it";
                return Err(PlanError::OutOfRange(why.to_owned()));
            }
            at = part.end;
        }
        Ok(())
    }
}

/// Why a plan cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A load needs at least one connection.
    #[error("0 connections send nothing: use at least 1")]
    NoConnections,
    /// A load needs at least one thread.
    #[error("0 threads send nothing: use at least 1")]
    NoThreads,
    /// A thread without a connection idles.
    #[error(
        "{threads} threads for {connections} connections: a thread needs a connection of its own, \
         so use at most {connections} threads"
    )]
    MoreThreadsThanConnections {
        /// Asked for.
        threads: usize,
        /// Asked for.
        connections: usize,
    },
    /// Nothing to send.
    #[error("no request to send")]
    NoRequests,
    /// A rate is a positive, finite number.
    #[error("a rate of {0} requests/s cannot be kept: use a positive number")]
    BadRate(String),
    /// Something else that is out of range.
    #[error("{0}")]
    OutOfRange(String),
}
