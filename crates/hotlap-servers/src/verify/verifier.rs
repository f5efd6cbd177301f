//! What is verified, and which requirements apply.

use std::time::Duration;

use hotlap_load::plan::Target;
use serde::{Deserialize, Serialize};

use crate::catalogue::ServerKind;
use crate::contract::Contract;

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
    /// not come; before the first request, eight times as long. Usually [`PAUSE`].
    pub pause: Duration,
}

/// Minimum time limit for one response. A longer time limit for requests applies to verification
/// too; a shorter one does not, because first responses are slower.
pub const LIMIT: Duration = Duration::from_secs(2);

/// Long enough for a server on this machine to answer an incomplete request, or to answer twice.
pub const PAUSE: Duration = Duration::from_millis(25);

/// Which checks are required; the others become conformance checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requirements {
    /// All of them: a server of the catalogue.
    Catalogue {
        /// A framework must reject unknown paths.
        kind: ServerKind,
        /// Whether it keeps connections open; one that closes by design must announce it in each
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
