//! Whether a server is one: its answers held against its contract, and its manners against HTTP.
//!
//! A server that answers wrongly, or without being asked, is fast for the wrong reason. So before
//! it is raced, each request of its contract is held against the exact answer, and some twenty
//! checks say whether it speaks HTTP/1.1 with clients that are slow, impatient, old or rude. What a
//! server cannot be raced without is [`Report::required`]; the rest is told as conformance checks.
//!
//! One connection at a time, closed before the next is opened, because a server that serves one at
//! a time is slow and not wrong; every wait is bounded.

use std::time::Duration;

use hotlap_load::http::Response;
use hotlap_load::plan::{Request, Target};

use crate::contract::Contract;
use crate::manifest::Kind;

mod checks;
pub(crate) mod client;
mod conformance;

/// Whom to verify, and how.
#[derive(Debug, Clone)]
pub struct Verifier<'a> {
    /// Where it listens.
    pub target: &'a Target,
    /// What the `Host` header says.
    pub host: &'a str,
    /// What it is held to.
    pub contract: &'a Contract,
    /// What is required of it.
    pub requirements: Requirements,
    /// Whether clients that send garbage, reset or go away halfway are tried: with servers of one's
    /// own.
    pub rude: bool,
    /// How long one answer may take.
    pub limit: Duration,
    /// How long a server is watched between two pieces of a request and after an answer, for what
    /// should not come; before the first request, eight times as long. Usually [`PAUSE`].
    pub pause: Duration,
}

/// How long one answer may take at least. A longer time limit for requests applies to verification
/// too; a shorter one does not, since first answers are slower.
pub const LIMIT: Duration = Duration::from_secs(2);

/// Long enough for a server on this machine to show that it answers what is not whole, or twice.
pub const PAUSE: Duration = Duration::from_millis(25);

/// What is required; what is not becomes a conformance check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirements {
    /// All of it: a server of the catalogue.
    Catalogue {
        /// A framework must know an unknown path.
        kind: Kind,
        /// Whether it keeps connections; one that does not by design must say so with each answer.
        keep_alive: bool,
    },
    /// Silence before it is asked, and a framed answer: somebody's command or URL.
    Custom,
}

impl Requirements {
    /// How often a request is sent before its answer counts as wrong: somebody's server that fails
    /// now and then is measured, and its errors are counted.
    pub fn tries(self) -> usize {
        match self {
            Self::Catalogue { .. } => 1,
            Self::Custom => 8,
        }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// What it cannot be raced without.
    pub required: Vec<Check>,
    /// What is told.
    pub conformance: Vec<Check>,
    /// Its answers to the contract's exchanges, in order, as far as they came.
    pub answers: Vec<Response>,
    /// Why no further check was made: the server is gone, or nothing can be relied on.
    pub ended: Option<String>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Which one: `pipelining`, `GET /`.
    pub name: String,
    /// What is right, and by which rule.
    pub expected: String,
    /// What came instead; empty when it passed.
    pub got: String,
    /// Whether it passed.
    pub pass: bool,
}

impl Report {
    /// Whether it may be raced.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.required.iter().all(|check| check.pass)
    }

    /// The required checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.required.iter().filter(|check| !check.pass)
    }

    /// Conformance checks: passed, and made.
    #[must_use]
    pub fn conformance_count(&self) -> (u32, u32) {
        let passed = self.conformance.iter().filter(|check| check.pass).count();
        (u32::try_from(passed).unwrap_or(0), u32::try_from(self.conformance.len()).unwrap_or(0))
    }

    /// The contract's requests as they are sent under load, held against the answers found here.
    /// Empty unless all of them were answered.
    #[must_use]
    pub fn requests(&self, contract: &Contract, host: &str) -> Vec<Request> {
        if self.answers.len() < contract.exchanges.len() {
            return Vec::new();
        }
        contract.requests(host, &self.answers)
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pass {
            true => write!(f, "{}: {}", self.name, self.expected),
            false => write!(f, "{}: expected {}; got {}", self.name, self.expected, self.got),
        }
    }
}

/// Makes all checks.
#[must_use]
pub fn verify(verifier: &Verifier<'_>) -> Report {
    let mut bench = checks::Bench::new(verifier);
    bench.run();
    if bench.report.ended.is_none() {
        let conformance = conformance::run(verifier, &bench);
        bench.report.conformance.splice(0..0, conformance);
    }
    bench.report
}
