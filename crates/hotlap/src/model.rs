//! What is kept of a run, without the secrets that requests carry ([`crate::redact`]).
//!
//! A [`Run`] has the machine that it was measured on ([`host`]), its servers ([`server`]) and its
//! loads ([`load`]). Each server is started afresh and warmed up in every restart ([`start`]), and
//! then measured in laps ([`lap`]). A run grows as the experiment goes on: servers fail, starts and
//! laps are added, and the state changes at its end.
//!
//! [`crate::store`] writes and reads it, [`crate::analysis`] makes figures of it; neither knows the
//! other.

pub mod host;
pub mod lap;
pub mod load;
pub mod server;
pub mod start;

use serde::{Deserialize, Serialize};

use crate::redact;

pub use host::Host;
pub use hotlap_bench::lap::{Count, Violation};
pub use hotlap_bench::participant::Role;
pub use hotlap_bench::runner::Probed;
pub use hotlap_bench::stress::Subject;
pub use hotlap_bench::suite::{Absent, Question};
pub use hotlap_servers::failure::ServerFailure;
pub use hotlap_stats::Class;
pub use lap::Lap;
pub use load::Load;
pub use server::{Part, Published, Server, Than};
pub use start::{Start, Warmup};

/// One `hotlap run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number in the store; `None` while it is not stored.
    pub number: Option<u64>,
    /// When it began, in milliseconds since 1970 (UTC).
    pub began_ms: u64,
    /// How long it took, in milliseconds; 0 while it is under way.
    pub took_ms: u64,
    /// How it ended.
    pub state: State,
    /// The words of the command line.
    pub command: Vec<String>,
    /// The version of hotlap.
    pub hotlap: String,
    /// The baseline that it was kept as, if it was.
    #[serde(default)]
    pub baseline: Option<String>,
    /// The suite, if it was one.
    pub suite: Option<String>,
    /// The question.
    pub question: Question,
    /// The suite's description; empty without a suite.
    pub about: String,
    /// The requests: a contract's name, or `GET /path`.
    pub contract: String,
    /// The seed of the order.
    pub seed: u64,
    /// How it was planned.
    pub schedule: Schedule,
    /// Where it ran.
    pub host: Host,
    /// How servers were loaded.
    pub loads: Vec<Load>,
    /// The servers, in the order of the command line.
    pub servers: Vec<Server>,
    /// The fresh starts.
    pub starts: Vec<Start>,
    /// The laps, in the order in which they were run.
    pub laps: Vec<Lap>,
    /// Servers with published figures that are not part of the run.
    pub absent: Vec<Absent>,
    /// Stress results, in the order in which servers were stressed.
    pub stress: Vec<Subject>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It runs, or hotlap was killed while it did.
    UnderWay,
    /// By its own rule: budget, precision, or the number of rounds.
    Finished,
    /// By Ctrl-C or a signal.
    Interrupted,
    /// By its own rule, but no lap of it passed its validity checks.
    Invalid,
    /// By an error of hotlap itself.
    Failed,
}

/// How a run was planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Schedule {
    /// Restarts, as planned.
    pub restarts: u32,
    /// Rounds a restart, as planned.
    pub rounds: u32,
    /// Length of a slice in milliseconds, once it is settled.
    #[serde(default)]
    pub slice_ms: Option<f64>,
    /// What slices do to the cost of each server, as found by probes.
    #[serde(default)]
    pub probed: Vec<Probed>,
    /// Time to spend, in seconds.
    pub budget_s: f64,
    /// The relative half width of the intervals at which it stops early, if any.
    pub precision: Option<f64>,
    /// Cores of the server; empty: not pinned.
    pub server_cpus: Vec<usize>,
    /// Cores of the generator; empty: not pinned.
    pub generator_cpus: Vec<usize>,
    /// Servers out of their lap were frozen.
    pub freeze: bool,
}

/// The words of this command line, as they can be typed again but for secrets, which are redacted:
/// wherever it lies, it is `hotlap`.
#[must_use]
pub fn typed() -> Vec<String> {
    let typed = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    redact::words(&std::iter::once("hotlap".to_owned()).chain(typed).collect::<Vec<_>>())
}

impl Run {
    /// Whether a lap is of the kind that its load asks for: in a closed loop, or at the load's own
    /// rate. Laps at a common rate, which follow those in a closed loop for their response times,
    /// are not.
    #[must_use]
    pub fn is_main(&self, lap: &Lap) -> bool {
        let own = self.loads.get(lap.load).and_then(|load| load.rate);
        lap.rate.is_some() == own.is_some()
    }

    /// Whether it asks what each layer costs.
    #[must_use]
    pub fn asks_for_layers(&self) -> bool {
        self.question == Question::Layers
    }

    /// Whether a server takes part in comparisons: not the ceiling, not the A/A control, not one
    /// that failed.
    #[must_use]
    pub fn is_compared(&self, server: usize) -> bool {
        let server = &self.servers[server];
        matches!(server.role, Role::Plain | Role::Reference) && server.failure.is_none()
    }

    /// Whether tables show a server: not the A/A control, not one that failed.
    #[must_use]
    pub fn is_shown(&self, server: usize) -> bool {
        let server = &self.servers[server];
        server.role != Role::Control && server.failure.is_none()
    }

    /// How many restarts have laps under a load.
    #[must_use]
    pub fn restarts(&self, load: usize) -> u32 {
        self.laps.iter().filter(|l| l.load == load).map(|l| l.restart + 1).max().unwrap_or(0)
    }

    /// Whether any lap passed its validity checks.
    #[must_use]
    pub fn has_valid_laps(&self) -> bool {
        self.laps.iter().any(|lap| self.is_main(lap) && lap.counts())
    }
}
