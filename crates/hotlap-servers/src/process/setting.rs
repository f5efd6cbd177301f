//! What a process is started with, and how it came to its end.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a server is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSetting {
    /// Program and arguments; no shell in between. A program with a slash is relative to `cwd`.
    pub argv: Vec<String>,
    /// Added to hotlap's own environment.
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// The cores that it may use; none: not pinned.
    pub cpus: Vec<usize>,
    /// Where stdout and stderr go; an older file is replaced.
    pub log: PathBuf,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessExit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Together with its supervisor, which somebody killed: how is not known.
    Lost,
}

/// How a server was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stopped {
    /// How the server's first process ended.
    pub exit: Option<ProcessExit>,
    /// It was still there when its time to go in peace was over, and had to be killed.
    pub ignored_sigterm: bool,
    /// Processes that outlived the server's first process and had to be ended: `name (pid)`.
    pub left_behind: Vec<String>,
    /// Processes that not even SIGKILL ended: `name (pid)`. The supervisor goes on trying.
    pub survivors: Vec<String>,
}
