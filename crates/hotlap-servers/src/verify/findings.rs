//! The input of verification, the requirements that apply, and the findings.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_load::plan::{Request, Target};
use serde::{Deserialize, Serialize};

use crate::catalogue::ServerKind;
use crate::contract::{Contract, Response};

/// A server to verify, and how to verify it.
#[derive(Debug, Clone)]
pub struct Verifier<'a> {
    /// Where and how to connect to the server.
    pub target: &'a Target,
    /// The value of the `Host` header.
    pub host: &'a str,
    /// The contract to verify.
    pub contract: &'a Contract,
    /// Which checks are required.
    pub requirements: Requirements,
    /// Whether to send garbage, reset connections and leave mid-request. Set this only for the
    /// user's own servers.
    pub rude: bool,
    /// The time limit for one response.
    pub limit: Duration,
    /// How long to wait between two pieces of a request, and for unexpected bytes after a response.
    /// The wait before the first request is eight times as long. Usually [`PAUSE`].
    pub pause: Duration,
    /// A flag that ends all waits once it is set. The findings are then meaningless.
    pub stop: &'a AtomicBool,
}

/// The minimum time limit for one response. A longer time limit for requests applies to
/// verification, too. A shorter time limit does not apply, because first responses are slower.
pub const LIMIT: Duration = Duration::from_secs(2);

/// The usual pause, which is long enough for a server on this machine to respond to an incomplete
/// request, or to respond twice.
pub const PAUSE: Duration = Duration::from_millis(25);

/// Which checks are required. The others are only reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requirements {
    /// All checks other than HTTP conformance are required, as for a server of the catalogue.
    Catalogue {
        /// The kind of server. A framework must reject unknown paths.
        kind: ServerKind,
        /// Whether the server keeps connections open. A server that closes connections by design
        /// must announce the close in its responses.
        keep_alive: bool,
    },
    /// Only silence before the first request and right responses are required, as for a user's
    /// command or URL.
    Custom,
}

impl Requirements {
    /// Returns how often to send a request before its response counts as wrong. A user's server
    /// that fails now and then is still measured, and its errors are counted.
    pub fn tries(self) -> usize {
        match self {
            Self::Catalogue { .. } => 1,
            Self::Custom => 8,
        }
    }
}

/// The results of verification.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Findings {
    /// Checks that must pass before the server is measured.
    pub required: Vec<Check>,
    /// Checks that are only reported.
    pub conformance: Vec<Check>,
    /// The server's responses to the contract's exchanges, in order. Some may be missing at the
    /// end.
    pub responses: Vec<Response>,
    /// Why no further checks were made: there was no first response, the server is gone, or its
    /// responses cannot be trusted.
    pub ended: Option<String>,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The name, such as `pipelining` or `GET /`.
    pub name: String,
    /// The expected behaviour, and the rule that demands it.
    pub expected: String,
    /// What was observed instead. Empty if the check passed.
    pub got: String,
    /// Whether the check passed.
    pub pass: bool,
}

impl Findings {
    /// Returns whether the server may be measured.
    pub fn passed(&self) -> bool {
        self.required.iter().all(|check| check.pass)
    }

    /// Returns the required checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.required.iter().filter(|check| !check.pass)
    }

    /// Returns how many conformance checks passed, and how many there are.
    pub fn conformance_count(&self) -> (u32, u32) {
        let passed = self.conformance.iter().filter(|check| check.pass).count();
        (u32::try_from(passed).unwrap_or(0), u32::try_from(self.conformance.len()).unwrap_or(0))
    }

    /// Returns the contract's requests as sent under load. Later responses are compared with the
    /// responses in these findings. Empty unless all requests got a response.
    pub fn requests(&self, contract: &Contract, host: &str) -> Vec<Request> {
        if self.responses.len() < contract.exchanges.len() {
            return Vec::new();
        }
        contract.requests(host, &self.responses)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pass {
            true => write!(f, "{}: {}", self.name, self.expected),
            false => write!(f, "{}: expected {}; got {}", self.name, self.expected, self.got),
        }
    }
}
