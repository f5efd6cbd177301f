//! Verification: its subject, the requirements that apply, and the findings.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_load::plan::{Request, Target};
use serde::{Deserialize, Serialize};

use crate::catalogue::ServerKind;
use crate::contract::{Contract, Response};

/// A server to verify.
#[derive(Debug, Clone)]
pub struct Verifier<'a> {
    /// Where it listens.
    pub target: &'a Target,
    /// The value of the `Host` header.
    pub host: &'a str,
    /// The contract to verify.
    pub contract: &'a Contract,
    /// Which checks are required.
    pub requirements: Requirements,
    /// Whether to send garbage, reset connections and leave mid-request: only for the user's own
    /// servers.
    pub rude: bool,
    /// Time limit for one response.
    pub limit: Duration,
    /// How long to wait between two pieces of a request and after a response for bytes that should
    /// not come. Before the first request, eight times as long. Usually [`PAUSE`].
    pub pause: Duration,
    /// Ends all waits once it is set. The findings then mean nothing.
    pub stop: &'a AtomicBool,
}

/// Minimum time limit for one response. A longer time limit for requests applies to verification
/// too. A shorter one does not, because first responses are slower.
pub const LIMIT: Duration = Duration::from_secs(2);

/// Long enough for a server on this machine to answer an incomplete request, or to answer twice.
pub const PAUSE: Duration = Duration::from_millis(25);

/// Which checks are required. The others become conformance checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requirements {
    /// All of them: a server of the catalogue.
    Catalogue {
        /// A framework must reject unknown paths.
        kind: ServerKind,
        /// Whether it keeps connections open. One that closes by design must announce it in each
        /// response.
        keep_alive: bool,
    },
    /// Silence before the first request, and a framed response: a user's command or URL.
    Custom,
}

impl Requirements {
    /// How often to send a request before its response counts as wrong: a user's server that fails
    /// now and then is measured, and its errors are counted.
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
    /// Its responses to the contract's exchanges, in order, as far as they came.
    pub answers: Vec<Response>,
    /// Why no further checks were made: the server is gone, or its responses cannot be trusted.
    pub ended: Option<String>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name: `pipelining`, `GET /`.
    pub name: String,
    /// The expected behaviour, and the rule that demands it.
    pub expected: String,
    /// What was observed instead. Empty if it passed.
    pub got: String,
    /// Whether it passed.
    pub pass: bool,
}

impl Findings {
    /// Whether the server may be measured.
    pub fn passed(&self) -> bool {
        self.required.iter().all(|check| check.pass)
    }

    /// The required checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.required.iter().filter(|check| !check.pass)
    }

    /// Conformance checks: passed, and total.
    pub fn conformance_count(&self) -> (u32, u32) {
        let passed = self.conformance.iter().filter(|check| check.pass).count();
        (u32::try_from(passed).unwrap_or(0), u32::try_from(self.conformance.len()).unwrap_or(0))
    }

    /// The contract's requests as sent under load, to be compared with the responses found here.
    /// Empty unless all of them got one.
    pub fn requests(&self, contract: &Contract, host: &str) -> Vec<Request> {
        if self.answers.len() < contract.exchanges.len() {
            return Vec::new();
        }
        contract.requests(host, &self.answers)
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
