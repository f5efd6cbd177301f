//! A suite as it is meant: every list of values is crossed, and every name is resolved.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::entry::{CustomRequest, Entry, Loading};
use super::published::{Absent, Publication};
use crate::stress::Scenario;
use hotlap_servers::contract;

/// What a suite, and a run, asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Which is faster?
    Compare,
    /// What does each step cost?
    Layers,
    /// How does it scale with a parameter?
    Scale,
    /// What happens under overload?
    Stress,
}

/// A suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    /// Its file's name without the ending.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// What it asks.
    pub question: Question,
    /// What its report says of it.
    pub about: String,
    /// What servers of the catalogue are held to; `None`: each to its usual one.
    pub contract: Option<contract::Name>,
    /// The entry that the others are compared with; the first, where it says nothing.
    pub reference: usize,
    /// Time to spend, as it is written: `4m`.
    pub budget: Option<Written>,
    /// The relative half width of the intervals at which it stops early, as written: `1%`.
    pub precision: Option<Written>,
    /// Length of a slice, as written: `48ms`.
    pub slice: Option<Written>,
    /// Cores for the servers that don't say how many.
    pub cpus: Option<usize>,
    /// Whether servers whose toolchain is missing are left out, instead of shown as failed.
    pub leave_out_missing: bool,
    /// What each server meets alone once all is measured; for a stress, what it meets at all.
    pub stress: Vec<Scenario>,
    /// Who takes part.
    pub servers: Vec<Entry>,
    /// How each is loaded; empty: as usual.
    pub loads: Vec<Loading>,
    /// What commands and URLs are asked.
    pub request: Option<CustomRequest>,
    /// What was published for them.
    pub published: Vec<Publication>,
    /// Who was published and takes no part, and why.
    pub absent: Vec<Absent>,
}

/// A text of the file that the reader of the suite has to make sense of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// As it is written.
    pub text: String,
    /// The line, from 1.
    pub line: usize,
}

/// Why a suite cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// What the file says makes no sense.
    #[error("{}{}: {what}", file.display(), line.map(|l| format!(":{l}")).unwrap_or_default())]
    Wrong {
        /// The file.
        file: PathBuf,
        /// Where in it, from 1.
        line: Option<usize>,
        /// What is wrong.
        what: String,
    },
    /// No suite has this name.
    #[error("no suite is called {name:?}: {there}")]
    Unknown {
        /// As typed.
        name: String,
        /// What there is instead.
        there: String,
    },
}

impl Suite {
    /// An error at a line of this file.
    #[must_use]
    pub fn wrong(&self, line: usize, what: String) -> SuiteError {
        SuiteError::Wrong { file: self.file.clone(), line: Some(line), what }
    }
}
