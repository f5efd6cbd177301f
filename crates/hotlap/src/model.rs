//! Defines the stored record of a run, without the secrets that requests carry ([`crate::redact`]).
//!
//! A [`Run`] has the machine on which it was measured, its servers and its loads: [`Host`],
//! [`Server`] and [`Load`]. Each server is started and warmed up in every restart ([`Start`]), and
//! then measured in laps ([`Lap`]). Laps that explain a difference are stored separately
//! ([`ExplainLap`]). The crates `hotlap_bench` and `hotlap_servers` define loads, starts, laps and
//! the machine. A run grows during the experiment: servers fail, starts and laps are added, and
//! the state changes at the end. A run that was merged from several machines names these machines
//! ([`Pool`]).
//!
//! [`crate::store`] writes and reads runs, and [`crate::analysis`] computes figures from them.
//! Neither module depends on the other.

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

/// The record of one `hotlap run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The number of the run in the store. `None` if the run is not stored.
    #[serde(skip)]
    pub number: Option<u64>,
    /// When the run began, in milliseconds since 1970 (UTC).
    pub began_ms: u64,
    /// How long the run took, in milliseconds. 0 until the run ends.
    pub took_ms: u64,
    /// The state of the run.
    pub state: RunState,
    /// The words of the command line.
    pub command: Vec<String>,
    /// The version of hotlap.
    pub hotlap: String,
    /// The baseline that the run was saved as, if any.
    pub baseline: Option<String>,
    /// The suite of the run, if any.
    pub suite: Option<String>,
    /// The question that the run answers.
    pub question: Question,
    /// The suite's description. Empty without a suite.
    pub about: String,
    /// The requests: the name of a contract, or `GET /path`.
    pub contract: String,
    /// The seed of random choices, such as the order of servers.
    pub seed: u64,
    /// The schedule.
    pub schedule: RunSchedule,
    /// The machines of the run.
    pub host: Host,
    /// The loads.
    pub loads: Vec<Load>,
    /// The servers, in the order of the command line.
    pub servers: Vec<Server>,
    /// The starts of all servers.
    pub starts: Vec<Start>,
    /// The laps, in the order of measurement. Each lap is stored separately.
    #[serde(skip)]
    pub laps: Vec<Lap>,
    /// Servers with published figures that are not part of the run.
    pub absent: Vec<Absent>,
    /// The part of a suite that the run measured, if a pool of machines measures the whole suite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Stress results, in the order in which servers were stressed.
    pub stress: Vec<Subject>,
    /// Laps that explain differences in cost, in the order of measurement. Each is stored
    /// separately.
    #[serde(skip)]
    pub explain: Vec<ExplainLap>,
    /// The database that hotlap started for the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseFacts>,
    /// The nodes and shards that the run was merged from. `None` for other runs. Never stored.
    #[serde(skip)]
    pub pool: Option<Pool>,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// The run is under way, or hotlap was killed during the run.
    UnderWay,
    /// The run ended as planned or early, or because too few servers were left.
    Finished,
    /// Ctrl-C or a signal ended the run.
    Interrupted,
    /// The run ended without an interruption, but no lap passed its validity checks.
    Invalid,
    /// An error of hotlap itself ended the run.
    Failed,
}

/// The schedule of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSchedule {
    /// The planned number of restarts, or the measured number after an uninterrupted run. 0 if no
    /// number is planned.
    pub restarts: u32,
    /// The planned number of rounds per restart. 0 if no number is planned.
    pub rounds: u32,
    /// The length of a slice under each load, in milliseconds. A load has no entry until its length
    /// is chosen. Empty if the shards of a pool have different lengths.
    #[serde(default)]
    pub slices_ms: Vec<f64>,
    /// The slice bias of each server, as found by probes.
    pub probed: Vec<Probed>,
    /// The planned duration, in seconds.
    pub duration_s: f64,
    /// The duration in seconds that verdicts need, if the planned duration is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_s: Option<f64>,
    /// The relative half width of the intervals at which the run stops early, if any.
    pub precision: Option<f64>,
    /// The limit, if any: the run stops early once every cost ratio is certainly above or below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// The cores of the server. Empty if the server is not pinned.
    pub server_cpus: Vec<usize>,
    /// The cores of the generator. Empty if the generator is not pinned.
    pub generator_cpus: Vec<usize>,
    /// Whether servers were frozen outside of their slices.
    pub freeze: bool,
    /// Whether servers and generator ran at a higher priority than other programs.
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
    /// Environment variables (`NAME=value`) that made a runtime name its functions. Each has the
    /// index of its server.
    pub env: Vec<(usize, String)>,
}

/// An observation of a server that was not possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unobserved {
    /// The index of the server.
    pub server: usize,
    /// What could not be observed, why, and what would permit the observation.
    #[serde(flatten)]
    pub error: ObserveError,
}

/// The machine of the servers, and the machines that generated the load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// The machine of the servers.
    pub machine: Machine,
    /// Properties of the run's machines that make the figures less reliable.
    pub doubts: Vec<String>,
    /// The name of the machine in a pool, if the run is a shard.
    pub node: Option<String>,
    /// The machine on which hotlap was started, if servers were started on another machine. This
    /// machine generated the load, unless there are `generators`.
    pub controller: Option<Controller>,
    /// The machines of the generators, if agents generated the load.
    pub generators: Vec<GeneratorMachine>,
    /// How small a difference this machine can find, if `hotlap selftest --power` measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PowerCertificate>,
}

/// How small a difference runs on a machine can find, according to trials with known differences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PowerCertificate {
    /// The end of the last trial, in milliseconds since 1970 (UTC).
    pub made_ms: u64,
    /// The version of hotlap.
    pub hotlap: String,
    /// The `--duration` of the runs of two servers that the figures are about, in seconds.
    pub pair_s: f64,
    /// The number of trials.
    pub trials: u32,
    /// The number of trials in which a server that costs as much as the reference got a verdict on
    /// CPU time per request.
    pub false_alarms: u32,
    /// The planted differences, from the smallest to the largest.
    pub planted: Vec<PlantedDifference>,
    /// The smallest difference in CPU time per request that 9 of 10 runs find, as a share. `null`
    /// if more than 1 in 10 trials would not even have found a difference of 50%.
    pub smallest: Option<f64>,
    /// The median noise floor in CPU time per request, as a share. `null` if it is unknown.
    pub noise: Option<f64>,
}

/// A planted difference in CPU time per request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlantedDifference {
    /// The difference, in per cent.
    pub percent: u32,
    /// The median ratio that was measured. `null` if it is unknown.
    pub ratio: Option<f64>,
    /// The number of trials that found the difference.
    pub found: u32,
}

/// The machine on which hotlap was started, if servers were started on another machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Controller {
    /// The command that started the agent on the servers' host, such as `ssh bench2`.
    pub command: String,
    /// The address at which servers that hotlap started were loaded. `null` if hotlap started no
    /// server, and did not reach the servers' host at any address.
    pub address: Option<String>,
    /// The facts about the machine.
    pub machine: Machine,
}

/// The machine of a generator that runs as an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GeneratorMachine {
    /// The command that started the agent, such as `ssh gen1`.
    pub command: String,
    /// The name of the host, as the host reports it.
    pub name: String,
    /// The facts about the machine.
    pub machine: Machine,
}

/// A server of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The name of the server in tables, which is unique in the run.
    pub name: String,
    /// The role of the server.
    pub role: Role,
    /// How the server is started: the command, or the URL of a server that was already running.
    pub command: String,
    /// The version of the server, as its toolchain reports it. Empty if unknown.
    pub version: String,
    /// One line about the server. Empty if unknown.
    pub about: String,
    /// Figures for the server that were published elsewhere.
    pub published: Vec<Published>,
    /// The index of the server that is the layer below, in a run that compares layers.
    pub on: Option<usize>,
    /// The number of cores that the server was told to use, if any, and the server's name without
    /// that number.
    pub cpus: Option<(usize, String)>,
    /// Why the server failed. `None` if the server did not fail.
    pub failure: Option<ServerFailure>,
}

/// A figure published elsewhere for a server under one load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The figure.
    pub figure: PublishedFigure,
    /// The source of the figure.
    pub citation: Citation,
    /// The server that the source compares the figure with, if any.
    pub than: Option<Than>,
}

/// The server that a source compares other servers with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Than {
    /// The index of the server.
    pub server: usize,
    /// The published requests/s of the server.
    pub requests_per_s: f64,
}

/// The part of a suite that a run measured (`--shard`). `hotlap merge` finds out from this record
/// which runs belong to one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The number of the shard, from 0.
    pub number: usize,
    /// The number of shards in the pool.
    pub of: usize,
    /// The number of shards that measure each server.
    pub nodes_per_server: usize,
    /// The seed of the pool, from which the division and the seeds of all shards follow.
    pub seed: u64,
    /// A hash of the suite: its file, its requests file, and the names of its servers.
    pub suite_hash: u64,
    /// Options that change what is measured, as a user would type them.
    pub options: Vec<String>,
    /// The server that all other servers are compared with.
    pub reference: String,
    /// The servers that the shard measures.
    pub servers: Vec<String>,
}

impl Shard {
    /// The largest number of shards in a pool. The number is limited because `hotlap merge` names
    /// each missing shard.
    pub const MOST: usize = 10_000;

    /// Returns why another shard belongs to another pool. `None` if both belong to the same pool.
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
    /// The number of the shard, from 0.
    pub shard: usize,
    /// The name of the shard's node.
    pub node: String,
    /// The number of restarts that the shard measured.
    pub restarts: u32,
    /// How long the shard took, in milliseconds.
    pub took_ms: u64,
    /// The noise floor in CPU time per request or else requests/s, in log units. `None` if unknown.
    pub noise: Option<f64>,
    /// The ceiling's CPU time per request, in nanoseconds. `None` if unknown.
    pub ceiling_ns: Option<f64>,
    /// Why the shard is set apart and is not merged. `None` if the shard counts.
    pub apart: Option<Apart>,
}

/// Why a shard is set apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Apart {
    /// The reference failed, or has no lap that counts under some load, so there is nothing to
    /// compare with.
    NoReference,
    /// The A/A control differs from the reference, although both are the same program.
    ControlDiffers,
    /// The noise floor is far above the pool's median. Both are in log units.
    Noise {
        /// The noise floor of the shard.
        own: f64,
        /// The median of the pool.
        pool: f64,
    },
    /// The cost of the ceiling is unusual, although the ceiling is the same program in all shards.
    /// Costs are in nanoseconds per request.
    Ceiling {
        /// The cost of the ceiling in the shard.
        own: f64,
        /// The median of the pool.
        pool: f64,
    },
}

impl Run {
    /// Whether a lap is a main lap: a lap in a closed loop, or at the load's own rate. Laps at a
    /// common rate are not main laps. Such laps follow the laps of a closed loop, and measure
    /// response times. All laps of a search are main laps.
    pub fn is_main(&self, lap: &Lap) -> bool {
        if self.is_search() {
            return true;
        }
        let own = self.loads.get(lap.load).and_then(|load| load.rate);
        lap.rate().is_some() == own.is_some()
    }

    /// Whether the run searched for capacities.
    pub fn is_search(&self) -> bool {
        self.question == Question::Capacity
    }

    /// Whether the run asks what each layer costs.
    pub fn asks_for_layers(&self) -> bool {
        self.question == Question::Layers
    }

    /// Whether a server takes part in comparisons. The ceiling, the A/A control and failed servers
    /// do not.
    pub fn is_compared(&self, server: usize) -> bool {
        let server = &self.servers[server];
        matches!(server.role, Role::Plain | Role::Reference) && server.failure.is_none()
    }

    /// Whether tables show a server. They show neither the A/A control nor failed servers.
    pub fn is_shown(&self, server: usize) -> bool {
        let server = &self.servers[server];
        server.role != Role::Control && server.failure.is_none()
    }

    /// Returns the number of restarts up to the last restart that has laps under a load.
    pub fn restarts(&self, load: usize) -> u32 {
        self.laps.iter().filter(|l| l.load == load).map(|l| l.restart + 1).max().unwrap_or(0)
    }

    /// Whether any lap that answers the question passed its validity checks.
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
    /// Creates a host of one machine, with the doubts about that machine.
    pub fn of(machine: Machine) -> Self {
        let doubts = machine.doubts().iter().map(|d| format!("{}: {}", d.what, d.remedy)).collect();
        Self { machine, doubts, ..Self::default() }
    }
}
