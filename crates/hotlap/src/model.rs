//! What is kept of a run, without the secrets that requests carry ([`crate::redact`]).
//!
//! A [`Run`] has the machine that it was measured on ([`Host`]), its servers ([`Server`]) and its
//! loads ([`Load`]). Each server is started and warmed up in every restart ([`Start`]), and then
//! measured in laps ([`Lap`]). Laps that explain a difference ([`ExplainLap`]) are kept apart.
//! Loads, starts, laps and the machine are kept as the experiment has them. A run grows during the
//! experiment: servers fail, starts and laps are added, and the state changes at the end. A run
//! that was merged from several machines names them ([`Pool`]).
//!
//! [`crate::store`] writes and reads runs, and [`crate::analysis`] computes figures from them.
//! Neither module knows the other.

use serde::{Deserialize, Serialize};

pub use hotlap_bench::lap::ExplainLap;
pub use hotlap_bench::lap::{Count, Lap, Violation};
pub use hotlap_bench::participant::{Load, Role};
pub use hotlap_bench::runner::{Probed, Start, Warmup};
pub use hotlap_bench::slo::Objective;
pub use hotlap_bench::stress::Subject;
pub use hotlap_bench::suite::{Absent, Citation, PublishedFigure, Question};
pub use hotlap_servers::database::DatabaseFacts;
pub use hotlap_servers::launch::ServerFailure;
pub use hotlap_servers::machine::Machine;
pub use hotlap_stats::Class;

use hotlap_bench::participant::{Origin, Participant};
use hotlap_observe::ObserveError;

/// One `hotlap run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number in the store. `None` while it is not stored.
    #[serde(skip)]
    pub number: Option<u64>,
    /// When it began, in milliseconds since 1970 (UTC).
    pub began_ms: u64,
    /// How long it took, in milliseconds. 0 while it is running.
    pub took_ms: u64,
    /// How it ended.
    pub state: RunState,
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
    /// The suite's description. Empty without a suite.
    pub about: String,
    /// The requests: the name of a contract, or `GET /path`.
    pub contract: String,
    /// The seed of the order.
    pub seed: u64,
    /// The schedule.
    pub schedule: RunSchedule,
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
    /// The database that hotlap started for the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseFacts>,
    /// The nodes and shards that it was merged from. `None` for a run of one machine. Not stored.
    #[serde(skip)]
    pub pool: Option<Pool>,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSchedule {
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
    /// Cores of the server. Empty: not pinned.
    pub server_cpus: Vec<usize>,
    /// Cores of the generator. Empty: not pinned.
    pub generator_cpus: Vec<usize>,
    /// Whether servers were frozen outside of their slices.
    pub freeze: bool,
    /// Whether servers and generator ran before other programs.
    pub high_priority: bool,
    /// The goals of a search for capacities. Empty in other runs.
    pub objectives: Vec<Objective>,
    /// How servers were observed, to explain differences in cost.
    pub observing: Observing,
}

/// How servers were observed, to explain where a difference in cost comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observing {
    /// What could not be observed.
    pub missing: Vec<Unobserved>,
    /// Environment variables (`NAME=value`) that made a runtime name its functions, with the index
    /// of the server.
    pub env: Vec<(usize, String)>,
}

/// Something of a server that could not be observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unobserved {
    /// The index of the server.
    pub server: usize,
    /// What would have been observed, the cause, and what would permit it.
    #[serde(flatten)]
    pub error: ObserveError,
}

/// The machine of the servers, and what loaded them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// The machine.
    pub machine: Machine,
    /// Properties of all machines that make the figures less reliable.
    pub doubts: Vec<String>,
    /// The name of the machine in a pool, if the run is a shard.
    pub node: Option<String>,
    /// The machine on which hotlap was started, if servers were started on another one. It
    /// generated the load, unless there are `generators`.
    pub controller: Option<Controller>,
    /// The generators of the load, if they were agents.
    pub generators: Vec<GeneratorMachine>,
}

/// The machine on which hotlap was started, if servers were started on another one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Controller {
    /// The command that started the agent on the servers' host: `ssh bench2`.
    pub command: String,
    /// The address at which servers that hotlap started were loaded. `null` if it started none, and
    /// did not reach their host at any.
    pub address: Option<String>,
    /// The machine.
    pub machine: Machine,
}

/// The machine of a generator that is an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GeneratorMachine {
    /// The command that started it: `ssh gen1`.
    pub command: String,
    /// The name of its host, as that host calls itself.
    pub name: String,
    /// The machine.
    pub machine: Machine,
}

/// A server of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its name in tables. Unique in its run.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// How it is started: the command, or the URL of a server that was already running.
    pub command: String,
    /// Its version, as its toolchain reports it. Empty when unknown.
    pub version: String,
    /// One line about it. Empty when unknown.
    pub about: String,
    /// Figures published elsewhere.
    pub published: Vec<Published>,
    /// The index of the server that is the layer below, in a run that compares layers.
    pub on: Option<usize>,
    /// The number of cores that it was told to use, if any, and its name without that number.
    pub cpus: Option<(usize, String)>,
    /// Why it failed, if it did.
    pub failure: Option<ServerFailure>,
}

/// A figure published elsewhere for a server under one load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The figure.
    pub figure: PublishedFigure,
    /// Where it comes from.
    pub citation: Citation,
    /// What it is compared with.
    pub than: Option<Than>,
}

/// The server that a source compares the others with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Than {
    /// The index of the server.
    pub server: usize,
    /// Its published figure.
    pub requests_per_s: f64,
}

/// The part of a suite that a run measured (`--shard`). With the servers and the loads of the run,
/// it is all that [`crate::pool`] needs to merge the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Its number, from 0.
    pub number: usize,
    /// The number of shards.
    pub of: usize,
    /// How many shards measure each server.
    pub nodes_per_server: usize,
    /// The seed of the pool, from which the division and the seeds of all shards follow.
    pub seed: u64,
    /// A hash of the suite: its file, its requests file, and the names of its servers.
    pub suite_hash: u64,
    /// Options that change what is measured, as a user would type them.
    pub options: Vec<String>,
    /// The server that all others are compared with.
    pub reference: String,
    /// The servers that it measures.
    pub servers: Vec<String>,
}

impl Shard {
    /// The most shards of a pool: `hotlap merge` names each one that is missing.
    pub const MOST: usize = 10_000;

    /// Why another shard belongs to another pool. `None` if it belongs to the same one.
    pub fn other_pool(&self, other: &Self) -> Option<String> {
        let facts = |shard: &Self| {
            [
                ("the suite has the hash", format!("{:016x}", shard.suite_hash)),
                ("the number of shards is", shard.of.to_string()),
                ("--nodes-per-server is", shard.nodes_per_server.to_string()),
                ("--seed is", shard.seed.to_string()),
                ("the reference is", shard.reference.clone()),
                ("options are", format!("{:?}", shard.options.join(" "))),
            ]
        };
        let mut both = facts(self).into_iter().zip(facts(other));
        let ((what, own), (_, theirs)) = both.find(|(own, theirs)| own != theirs)?;
        Some(format!("{what} {theirs} instead of {own}"))
    }
}

/// The nodes and shards of a merged run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pool {
    /// The nodes whose shards count, by name.
    pub nodes: Vec<String>,
    /// The node of each restart of the merged run, as an index.
    pub node_of: Vec<u32>,
    /// The shards of the plan that have a result on this kind of machine, by number.
    pub shards: Vec<MergedShard>,
    /// The number of shards of the plan.
    pub planned: usize,
    /// The numbers of the shards without a result.
    pub missing: Vec<usize>,
    /// Other things that the reader must know about the shards.
    pub notes: Vec<String>,
}

/// A shard with a result.
#[derive(Debug, Clone, PartialEq)]
pub struct MergedShard {
    /// Its number, from 0.
    pub shard: usize,
    /// Its node, by name.
    pub node: String,
    /// Restarts that it measured.
    pub restarts: u32,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Its noise floor in CPU time per request, in log units. `None` if unknown.
    pub noise: Option<f64>,
    /// CPU time per request of its ceiling, in nanoseconds. `None` if unknown.
    pub ceiling_ns: Option<f64>,
    /// Why it is set apart and counts for nothing. `None` if it counts.
    pub apart: Option<Apart>,
}

/// Why a shard is set apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Apart {
    /// The reference failed or has no lap that counts, so there is nothing to compare with.
    NoReference,
    /// The A/A control differs from the reference, which is the same program.
    ControlDiffers,
    /// Its noise floor is far above the pool's. Both in log units.
    Noise {
        /// Its own.
        own: f64,
        /// The pool's median.
        pool: f64,
    },
    /// Its ceiling, which is the same program everywhere, costs something else. In nanoseconds per
    /// request.
    Ceiling {
        /// Its own.
        own: f64,
        /// The pool's median.
        pool: f64,
    },
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

impl From<&Participant> for Server {
    fn from(participant: &Participant) -> Self {
        let command = match &participant.start {
            Origin::Launch(launch) => shell_words::join(&launch.argv),
            Origin::Running { url, .. } => url.clone(),
        };
        Self {
            name: participant.name.clone(),
            role: participant.role,
            command,
            version: participant.version.clone(),
            about: String::new(),
            published: Vec::new(),
            on: None,
            cpus: None,
            failure: None,
        }
    }
}

impl Host {
    /// A machine by itself.
    pub fn of(machine: Machine) -> Self {
        let doubts = machine.doubts().iter().map(|d| format!("{}: {}", d.what, d.remedy)).collect();
        Self { machine, doubts, ..Self::default() }
    }
}
