//! Why a server cannot be measured.

use serde::{Deserialize, Serialize};

/// Why a server was dropped from the experiment: phase, cause, its last log lines and a remedy.
#[derive(
    Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema, thiserror::Error,
)]
#[error("{phase}: {cause}")]
pub struct ServerFailure {
    /// The phase: `toolchain`, `build`, `start`, `verify`, `warm-up`, `lap` or `stress`.
    pub phase: String,
    /// What happened.
    pub cause: String,
    /// The last lines that the server printed.
    pub log_tail: Vec<String>,
    /// What to do about it.
    pub remedy: String,
}
