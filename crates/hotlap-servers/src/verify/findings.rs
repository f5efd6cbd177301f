//! What verification found.

use hotlap_load::http::Response;
use hotlap_load::plan::Request;

use crate::contract::Contract;

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Findings {
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

impl Findings {
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
