//! A suite, read strictly: which servers under which loads, which question, and what somebody
//! published for them elsewhere.
//!
//! What is written and what is meant are two types, as for a manifest: the keys stay in
//! `suite/keys.rs`, and what leaves this room has every list of values crossed out into single
//! entries and loads. An unknown key, a name that means nothing or a published figure for nobody is
//! an error with file and line.

mod keys;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::stress::Scenario;
use hotlap_servers::contract;
use hotlap_servers::launch::Counts;

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
    pub request: Option<Asked>,
    /// What was published for them.
    pub published: Vec<Source>,
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

/// One who takes part, with one number of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// A server of the catalogue, a command, or a URL.
    pub run: String,
    /// What tables call it, if it says so; without the number of cores.
    pub name: Option<String>,
    /// The entry that it stands on; in a suite about layers by default the one before.
    pub on: Option<usize>,
    /// How many cores it is to use.
    pub cpus: Option<usize>,
    /// A side effect that must happen once a request; a catalogue server's own by default.
    pub counts: Option<Counts>,
    /// The line that names it.
    pub line: usize,
}

/// A load, one value each.
#[derive(Debug, Clone, PartialEq)]
pub struct Loading {
    /// For tables; empty where it has none.
    pub name: String,
    /// Open at the same time; 64 where it is not said.
    pub connections: usize,
    /// Generator threads.
    pub threads: Option<usize>,
    /// A new connection for each request.
    pub close: bool,
    /// Requests in flight a connection.
    pub pipeline: usize,
    /// Which of the contract's requests: by its name, or counted from 0.
    pub request: Option<String>,
    /// Requests/s that are due; `None`: as fast as can be.
    pub rate: Option<f64>,
    /// The line where it begins.
    pub line: usize,
}

/// What commands and URLs are asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// `GET`, or `POST` where there is a body.
    pub method: Option<String>,
    /// `/` where it is not said.
    pub path: Option<String>,
    /// By name.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// What is sent.
    pub body: Option<String>,
    /// The right status.
    pub expect_status: Option<u16>,
    /// The right body.
    pub expect_body: Option<String>,
}

/// Somebody's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Where they stand.
    pub source: String,
    /// The year.
    pub year: u32,
    /// The machine.
    pub machine: String,
    /// How they were measured.
    pub command: String,
    /// What speaks against all of them.
    pub doubt: String,
    /// The entry that the others are set against; `None`: it has no figure for the suite's
    /// reference, and names no other.
    pub reference: Option<usize>,
    /// A figure each.
    pub rows: Vec<Figure>,
}

/// What was published for one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Whose, as an index of the suite's entries.
    pub entry: usize,
    /// Under which load, as an index of the suite's loads.
    pub load: usize,
    /// What it was called there.
    pub called: String,
    /// Requests/s.
    pub requests_per_s: f64,
    /// Average, standard deviation and longest, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// Memory, in MB.
    pub memory_mb: Option<f64>,
    /// CPU use, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// Socket errors under overload: connect, read, write, timeout.
    pub socket_errors: Option<[u64; 4]>,
    /// What speaks against this one.
    pub doubt: String,
}

/// Somebody who was published and takes no part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// What it was called.
    pub name: String,
    /// Requests/s that were published for it.
    pub requests_per_s: Option<f64>,
    /// Why it takes no part.
    pub why: String,
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
    /// Opens a suite of the folder by its name, or a file by its path: whatever holds a `/` or ends
    /// in `.toml`.
    ///
    /// # Errors
    /// When there is none, with the nearest names, or it makes no sense.
    pub fn open(named: &str, folder: &Path) -> Result<Self, SuiteError> {
        if named.contains('/') || named.ends_with(".toml") {
            return Self::read(Path::new(named));
        }
        let file = folder.join(format!("{named}.toml"));
        match file.is_file() {
            true => Self::read(&file),
            false => Err(unknown(named, folder)),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// With file and line.
    pub fn read(file: &Path) -> Result<Self, SuiteError> {
        let text = std::fs::read_to_string(file).map_err(|error| SuiteError::Wrong {
            file: file.to_owned(),
            line: None,
            what: format!("cannot be read: {error}"),
        })?;
        Self::parse(&text, file)
    }

    /// Makes sense of a file's text.
    ///
    /// # Errors
    /// With file and line.
    pub fn parse(text: &str, file: &Path) -> Result<Self, SuiteError> {
        keys::parse(text, file)
    }

    /// An error at a line of this file.
    #[must_use]
    pub fn wrong(&self, line: usize, what: String) -> SuiteError {
        SuiteError::Wrong { file: self.file.clone(), line: Some(line), what }
    }
}

impl Entry {
    /// What tables call it: `nim/epoll-parallel (4 threads)`.
    #[must_use]
    pub fn title(&self) -> String {
        let base = self.name.as_ref().unwrap_or(&self.run);
        match self.cpus {
            None => base.clone(),
            Some(1) => format!("{base} (1 thread)"),
            Some(n) => format!("{base} ({n} threads)"),
        }
    }
}

/// The names of the suites in a folder, sorted.
#[must_use]
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

fn unknown(name: &str, folder: &Path) -> SuiteError {
    let names = names(folder);
    let nearest = hotlap_servers::catalogue::nearest_of(name, names.iter().map(String::as_str));
    let there = match nearest.as_slice() {
        [] => format!(
            "there are {}; a file of your own is named by its path, ./{name}.toml",
            names.join(", ")
        ),
        near => format!("did you mean {}?", near.join(" or ")),
    };
    SuiteError::Unknown { name: name.to_owned(), there }
}
