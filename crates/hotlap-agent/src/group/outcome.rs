//! What several generators measured, and why that may not be the outcome of one load.

use std::fmt;
use std::time::Duration;

use hotlap_load::Outcome;
use serde::Serialize;

use crate::clock::Offset;

/// What several generators measured.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupOutcome {
    /// The sum of all outcomes.
    pub outcome: Outcome,
    /// What it consists of.
    pub contributions: Contributions,
}

/// What each of several generators contributed, and whether they measured one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Contributions {
    /// The generators.
    pub generators: Vec<GeneratorOutcome>,
    /// The one that sampled latency meanwhile; it is not part of the sum.
    pub sampled: Option<Sampled>,
    /// The share of the time of all windows together in which all of them were open for certain, 0
    /// to 1.
    pub overlap: f64,
    /// Why the sum is not the outcome of one load; empty if it is.
    pub invalid: Vec<Invalid>,
}

/// What a generator saw that sampled latency while others loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The generator.
    pub generator: GeneratorOutcome,
    /// What happened to its requests.
    pub outcome: Outcome,
}

/// What one generator contributed.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct GeneratorOutcome {
    /// The command that started it, as typed.
    pub command: String,
    /// The name of its host.
    pub host: String,
    /// Its connections.
    pub connections: usize,
    /// Its threads.
    pub threads: usize,
    /// The share of the requests that it should complete, 0 to 1; 0 if it samples latency.
    pub share: f64,
    /// Correct responses within the window.
    pub responses: u64,
    /// Failures within the window.
    pub failures: u64,
    /// Requests sent, inside and outside of the window.
    pub sent: u64,
    /// The offset of its clock before the load.
    pub before: Offset,
    /// The offset of its clock after the load.
    pub after: Offset,
    /// How much later than agreed it began, in nanoseconds.
    pub late_ns: u64,
    /// When its window opened, in nanoseconds of the controller's monotonic clock.
    pub opened_ns: u64,
    /// When its window closed.
    pub closed_ns: u64,
    /// The longest time for which it stood still within the window, in nanoseconds.
    pub paused_ns: u64,
    /// The longest time for which it got no response while the others did, in nanoseconds.
    pub silent_ns: u64,
    /// The share of the window that its busiest thread was on a core, 0 to 1.
    pub busy: f64,
}

impl GeneratorOutcome {
    /// Requests that were answered or failed.
    pub fn completed(&self) -> u64 {
        self.responses + self.failures
    }

    /// How well its clock is known, in nanoseconds.
    pub fn error_ns(&self) -> u64 {
        self.before.error_ns.max(self.after.error_ns)
    }
}

/// Why the figures of several generators are not those of one load.
#[derive(Debug, Clone, PartialEq)]
pub enum Invalid {
    /// A generator began too late.
    Late {
        /// Its command.
        command: String,
        /// By how much.
        by: Duration,
    },
    /// The windows were not open at the same time.
    Overlap {
        /// The share of the time in which all of them were open, for certain.
        share: f64,
        /// How well the clocks are known.
        error: Duration,
    },
    /// A generator completed too few requests.
    Share {
        /// Its command.
        command: String,
        /// What it completed, as a part of its share.
        of: f64,
    },
    /// A generator got no response for a while, but the others did.
    Silent {
        /// Its command.
        command: String,
        /// For how long.
        time: Duration,
    },
    /// A generator stood still.
    Paused {
        /// Its command.
        command: String,
        /// For how long.
        time: Duration,
    },
}

impl Invalid {
    /// What happened, as a clause.
    pub fn cause(&self) -> String {
        match self {
            Self::Late { command, by } => {
                format!("{command} began {:.0} ms late", by.as_secs_f64() * 1e3)
            }
            Self::Overlap { share, error } => format!(
                "all generators measured together for {:.0} % of the time only (clocks are known \
                 to within {:.1} ms)",
                share * 100.0,
                error.as_secs_f64() * 1e3
            ),
            Self::Share { command, of } => {
                format!("{command} completed {:.0} % of its share of the requests", of * 100.0)
            }
            Self::Silent { command, time } => format!(
                "{command} got no response for {:.1} s while the others did",
                time.as_secs_f64()
            ),
            Self::Paused { command, time } => {
                format!("{command} stood still for {:.0} ms", time.as_secs_f64() * 1e3)
            }
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Late { .. } => "Check that its host is not overloaded, and measure for longer",
            Self::Overlap { .. } => {
                "Measure for longer, or use a faster connection to the generators"
            }
            Self::Share { .. } => {
                "Check its host and its connection to the server, or leave it out"
            }
            Self::Silent { .. } => "Check its connection to the server",
            Self::Paused { .. } => "Check that its host is not overloaded or suspended",
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.cause(), self.remedy())
    }
}
