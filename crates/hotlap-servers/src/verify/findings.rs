use hotlap_load::http::Response;
use hotlap_load::plan::Request;

use crate::contract::Contract;

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
    /// What was observed instead; empty if it passed.
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

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pass {
            true => write!(f, "{}: {}", self.name, self.expected),
            false => write!(f, "{}: expected {}; got {}", self.name, self.expected, self.got),
        }
    }
}
