//! How servers were observed, to explain where a difference in cost comes from.

use hotlap_observe::ObserveError;
use serde::{Deserialize, Serialize};

use crate::redact;

/// How servers were observed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Observing {
    /// What could not be observed.
    pub missing: Vec<Missing>,
    /// Environment variables (`NAME=value`) that made a runtime name its functions, with the index
    /// of the server.
    pub env: Vec<(usize, String)>,
}

/// Something that could not be observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Missing {
    /// The index of the server.
    pub server: usize,
    /// What would have been observed.
    pub what: String,
    /// The cause.
    pub why: String,
    /// What would permit it.
    pub remedy: String,
}

impl Missing {
    /// Something that could not be observed of a server.
    pub fn new(server: usize, error: &ObserveError) -> Self {
        Self {
            server,
            what: error.what.to_string(),
            why: redact::text(&error.why),
            remedy: redact::text(&error.remedy),
        }
    }
}
