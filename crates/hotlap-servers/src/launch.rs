//! A command that starts a server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Program and arguments. `$PORT`, `${PORT}` and `{port}` are replaced as whole words when it
    /// starts, as are `$CPUS`, `${CPUS}` and `{cpus}`.
    pub argv: Vec<String>,
    /// Added to the environment, replaced likewise. `PORT` and `CPUS` are always added.
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    pub cwd: PathBuf,
}

/// A side effect that must happen a known number of times a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// The file whose lines are counted, in the server's folder. Lines from before do not count.
    pub file: String,
    /// Lines a request.
    pub per_request: u32,
}
