//! A command that starts a server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A command that starts a server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Launch {
    /// Program and arguments. At the start, `$PORT`, `${PORT}` and `{port}` are replaced as whole
    /// words, as are `$CPUS`, `${CPUS}` and `{cpus}`.
    pub argv: Vec<String>,
    /// Environment variables to add, with the same replacements. `PORT` and `CPUS` are always
    /// added.
    pub env: BTreeMap<String, String>,
    /// Environment variables to add only when the server is observed, with the same replacements:
    /// they make a runtime name the functions that it compiles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub explain_env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: PathBuf,
}

/// A side effect that must happen a known number of times per request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// The file whose lines are counted, in the server's folder. Lines from before the start do not
    /// count.
    pub file: String,
    /// Lines per request.
    pub per_request: u32,
}
