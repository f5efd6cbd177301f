//! What to send, how hard, and for how long.
//!
//! A plan is a value: it can be written to a file, read back on another machine and merged with its
//! like. [`Plan::check`] says whether it can be run; [`crate::Session::start`] asks it first.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

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
    /// What is sent before anything counts, after all connections are up.
    pub ramp: Duration,
    /// When it is over.
    pub stop: Stop,
    /// How long one request may take, from its send (or its due moment) to its last byte; connecting
    /// has the same time.
    pub timeout: Duration,
    /// Check every answer's body, or one in so many (status and length are always checked).
    pub check_one_in: u32,
    /// Cores that the worker threads are pinned to, in turn; empty: not pinned.
    pub cpus: Vec<usize>,
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
        "{threads} threads for {connections} connections: a thread needs a connection of its own, so use at most {connections} threads"
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
