//! Why a server cannot be measured.

use serde::{Deserialize, Serialize};

/// Why a server is out of the experiment: the phase, the cause, its last lines and the remedy.
#[derive(
    Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema, thiserror::Error,
)]
#[error("{phase}: {cause}")]
pub struct ServerFailure {
    /// What was being done (`start`, `verify`, `warm-up`, `lap`).
    pub phase: String,
    /// What happened.
    pub cause: String,
    /// The last lines that it printed.
    pub log_tail: Vec<String>,
    /// What to do about it.
    pub remedy: String,
}
