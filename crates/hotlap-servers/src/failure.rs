//! Why a server cannot be measured.

use serde::{Deserialize, Serialize};

/// Why a server is out of the race: the phase, the cause, its last words and the cure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{phase}: {cause}")]
pub struct Retired {
    /// What was being done (`start`, `verify`, `warm-up`, `lap`).
    pub phase: String,
    /// What happened.
    pub cause: String,
    /// The last lines that it printed.
    pub last_words: Vec<String>,
    /// What to do about it.
    pub cure: String,
}
