//! Which server is verified, and what is required of it.

use std::time::Duration;

use hotlap_load::plan::Target;

use crate::contract::Contract;
use crate::manifest::ServerKind;

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
        kind: ServerKind,
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
