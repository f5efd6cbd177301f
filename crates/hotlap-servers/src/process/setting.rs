//! What a process is started with, and how it ended.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a server is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSetting {
    /// Program and arguments, without a shell. A program with a slash is relative to `cwd`.
    pub argv: Vec<String>,
    /// Added to hotlap's environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: PathBuf,
    /// The cores that it may use; empty: not pinned.
    pub cpus: Vec<usize>,
    /// Receives stdout and stderr; an older file is replaced.
    pub log: PathBuf,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessExit {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
    /// Its supervisor was killed and took it along, so its own status is unknown.
    Lost,
}

/// How a server was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stopped {
    /// How the server's first process ended.
    pub exit: Option<ProcessExit>,
    /// It ignored SIGTERM until the grace period was over and had to be killed.
    pub ignored_sigterm: bool,
    /// Processes that outlived the server's first process and had to be ended: `name (pid)`.
    pub left_behind: Vec<String>,
    /// Processes that survived even SIGKILL: `name (pid)`. The supervisor keeps trying.
    pub survivors: Vec<String>,
}
