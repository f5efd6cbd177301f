//! What is kept of a run, without the secrets that requests carry ([`crate::redact`]).
//!
//! A [`Run`] has the machine that it was measured on ([`host`]), its servers ([`server`]) and its
//! loads ([`load`]). Each server is started and warmed up in every restart ([`Start`]), and then
//! measured in laps ([`Lap`]). Laps that explain a difference ([`ExplainLap`]) are kept apart.
//! Starts and both kinds of laps are the records of the measurement itself. A run grows during the
//! experiment: servers fail, starts and laps are added, and the state changes at the end. A run
//! that was merged from several machines says so ([`pool`]).
//!
//! [`crate::store`] writes and reads runs, and [`crate::analysis`] computes figures from them.
//! Neither module knows the other.

pub mod explain;
pub mod host;
pub mod load;
pub mod pool;
pub mod server;

use serde::{Deserialize, Serialize};

use crate::redact;

pub use explain::{Missing, Observing};
pub use host::{GeneratorHost, Host, RemoteGenerator};
pub use hotlap_bench::explain::ExplainLap;
pub use hotlap_bench::lap::{Count, Lap, Violation};
pub use hotlap_bench::participant::Role;
pub use hotlap_bench::runner::{Probed, Start, Warmup};
pub use hotlap_bench::slo::Objective;
pub use hotlap_bench::stress::Subject;
pub use hotlap_bench::suite::{Absent, Question};
pub use hotlap_servers::launch::ServerFailure;
pub use hotlap_stats::Class;
pub use load::Load;
pub use pool::{Apart, MergedShard, Pool, Shard};
pub use server::{Part, Published, Server, Than};

/// One `hotlap run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number in the store; `None` while it is not stored.
    #[serde(skip)]
    pub number: Option<u64>,
    /// When it began, in milliseconds since 1970 (UTC).
    pub began_ms: u64,
    /// How long it took, in milliseconds; 0 while it is running.
    pub took_ms: u64,
    /// How it ended.
    pub state: State,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The version of hotlap.
    pub hotlap: String,
    /// The baseline that it was saved as, if any.
    pub baseline: Option<String>,
    /// The suite, if there was one.
    pub suite: Option<String>,
    /// The question.
    pub question: Question,
    /// The suite's description; empty without a suite.
    pub about: String,
    /// The requests: the name of a contract, or `GET /path`.
    pub contract: String,
    /// The seed of the order.
    pub seed: u64,
    /// The schedule.
    pub schedule: Schedule,
    /// Where it ran.
    pub host: Host,
    /// The loads.
    pub loads: Vec<Load>,
    /// The servers, in the order of the command line.
    pub servers: Vec<Server>,
    /// The starts of all servers.
    pub starts: Vec<Start>,
    /// The laps, in the order of measurement. They are stored one by one.
    #[serde(skip)]
    pub laps: Vec<Lap>,
    /// Servers with published figures that are not part of the run.
    pub absent: Vec<Absent>,
    /// The part of a suite that it measured, if a pool of machines measures the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Stress results, in the order in which servers were stressed.
    pub stress: Vec<Subject>,
    /// Laps that explain differences in cost, in the order of measurement. They are stored one by
    /// one.
    #[serde(skip)]
    pub explain: Vec<ExplainLap>,
    /// The nodes and shards that it was merged from; `None` for a run of one machine. Not stored.
    #[serde(skip)]
    pub pool: Option<Pool>,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is running, or hotlap was killed while it ran.
    UnderWay,
    /// It ended as planned: by budget, precision, or the number of rounds.
    Finished,
    /// By Ctrl-C or a signal.
    Interrupted,
    /// It ended as planned, but no lap passed its validity checks.
    Invalid,
    /// It was ended by an error of hotlap itself.
    Failed,
}

/// The schedule of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Schedule {
    /// Planned number of restarts.
    pub restarts: u32,
    /// Planned number of rounds per restart.
    pub rounds: u32,
    /// Length of a slice in milliseconds, once it is chosen.
    pub slice_ms: Option<f64>,
    /// The bias of each server's CPU time in slices, as found by probes.
    pub probed: Vec<Probed>,
    /// Time to spend, in seconds.
    pub budget_s: f64,
    /// The relative half width of the intervals at which it stops early, if any.
    pub precision: Option<f64>,
    /// Cores of the server; empty: not pinned.
    pub server_cpus: Vec<usize>,
    /// Cores of the generator; empty: not pinned.
    pub generator_cpus: Vec<usize>,
    /// Whether servers were frozen outside of their slices.
    pub freeze: bool,
    /// Whether servers and generator ran before other programs.
    pub high_priority: bool,
    /// The goals of a search for capacities; empty in other runs.
    pub objectives: Vec<Objective>,
    /// How servers were observed, to explain differences in cost.
    pub observing: Observing,
}

/// The words of this command line, with secrets redacted, as they can be typed again; the program
/// is called `hotlap`, whatever its path.
pub fn typed() -> Vec<String> {
    let typed = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    redact::words(&std::iter::once("hotlap".to_owned()).chain(typed).collect::<Vec<_>>())
}

impl Run {
    /// Whether a lap is of the kind that its load specifies: in a closed loop, or at the load's own
    /// rate. Laps at a common rate, which follow those of a closed loop and measure response times,
    /// are not. All laps of a search are.
    pub fn is_main(&self, lap: &Lap) -> bool {
        if self.is_search() {
            return true;
        }
        let own = self.loads.get(lap.load).and_then(|load| load.rate);
        lap.rate().is_some() == own.is_some()
    }

    /// Whether it searched capacities.
    pub fn is_search(&self) -> bool {
        self.question == Question::Capacity
    }

    /// Whether its question is the cost of layers.
    pub fn asks_for_layers(&self) -> bool {
        self.question == Question::Layers
    }

    /// Whether a server takes part in comparisons: not the ceiling, not the A/A control, not one
    /// that failed.
    pub fn is_compared(&self, server: usize) -> bool {
        let server = &self.servers[server];
        matches!(server.role, Role::Plain | Role::Reference) && server.failure.is_none()
    }

    /// Whether tables show a server: not the A/A control, not one that failed.
    pub fn is_shown(&self, server: usize) -> bool {
        let server = &self.servers[server];
        server.role != Role::Control && server.failure.is_none()
    }

    /// How many restarts have laps under a load.
    pub fn restarts(&self, load: usize) -> u32 {
        self.laps.iter().filter(|l| l.load == load).map(|l| l.restart + 1).max().unwrap_or(0)
    }

    /// Whether any lap passed its validity checks.
    pub fn has_valid_laps(&self) -> bool {
        let mut own = self.explain.iter().filter(|_| self.question == Question::Explain);
        self.laps.iter().any(|lap| self.is_main(lap) && lap.counts()) || own.any(ExplainLap::counts)
    }
}
