//! The plan of a run, as plain values. The plan is made once, from the suite and from the flags,
//! which [`crate::config`] has completed. All later steps read the plan, and see neither the flags
//! nor the suite. With `--resume`, the stored run replaces parts of the plan later.
//!
//! This module probes, builds, starts and writes nothing, so errors in a command line or a suite
//! are reported at once.

pub mod command_name;
mod entry;
pub mod loads;
mod options;
pub mod request;
pub mod server;
mod shard;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hotlap_agent::AgentCommand;
use hotlap_bench::experiment::Growth;
use hotlap_bench::participant::Load;
use hotlap_bench::slo::Objective;
use hotlap_bench::stress::Scenario;
use hotlap_bench::suite::{Absent, Question, Suite, Written};
use hotlap_load::plan::{Protocol, Reuse, Tls};
use hotlap_servers::database::{ClusterUrl, Schema};

use super::rule::Rule;
use crate::cli::{ExportArgs, RunArgs};
use crate::cmd::load::requests::ask_to_close;
use crate::cmd::tls;
use crate::exit::usage;
use crate::model::Shard;
use crate::{assets, quantity};
use entry::Entry;
use server::ServerSpec;

/// The suite that runs if neither a suite nor a server is named.
const QUICK: &str = "quick";

/// The plan of a run.
#[derive(Debug)]
pub struct RunSpec {
    /// The command that repeats the run, with the options from the configuration file.
    pub command: Vec<String>,
    /// The question that the run answers.
    pub question: Question,
    /// The name of the suite, if any.
    pub suite: Option<String>,
    /// The description of the suite. Empty without a suite.
    pub about: String,
    /// Servers with published figures that are not part of the run.
    pub absent: Vec<Absent>,
    /// The baseline that the run is saved as.
    pub baseline: Option<String>,

    /// The arguments, or the entries of the suite.
    pub entries: Vec<Entry>,
    /// The servers of all entries.
    pub servers: Vec<ServerSpec>,
    /// Notes about what was left out of an access log.
    pub notes: Vec<String>,
    /// The server that the others are compared with.
    pub reference: Reference,
    /// The goals of a search for capacities. Empty for other questions.
    pub objectives: Vec<Objective>,
    /// Whether the run also explains the differences in cost.
    pub explains_after: bool,
    /// Whether the ceiling is measured, if hotlap starts the servers. The ceiling only speaks
    /// HTTP/1.1 without TLS.
    pub has_ceiling: bool,
    /// Whether missing toolchains are installed first.
    pub install: bool,
    /// A shell command that runs before each start of a server that the user named.
    pub prepare: Option<String>,
    /// The database to start for the servers.
    pub database: Option<DatabaseSpec>,
    /// Whether servers without a toolchain are left out instead of shown as failed.
    pub leaves_out_missing: bool,
    /// Whether servers on other machines may be loaded.
    pub allow_remote: bool,

    /// The loads that servers are measured under, at least one.
    pub loads: Vec<Load>,
    /// The rate of fixed-rate laps, in requests/s. `None` means half of what the slowest server
    /// reaches.
    pub rate: Option<f64>,
    /// The TLS settings for servers that hotlap starts. `None` means that the run does not use TLS.
    pub tls: Option<Tls>,
    /// The time limit of a request.
    pub timeout: Duration,
    /// The time limit from a server's start to its first correct response.
    pub start_timeout: Duration,

    /// The time to spend on measuring. `None` means the default for this number of servers.
    pub budget: Option<Duration>,
    /// How far the measuring time may grow.
    pub growth: Growth,
    /// The relative half-width of the intervals at which the run stops early.
    pub precision: Option<f64>,
    /// The cost ratio of `--stop-early`. The run stops early once every cost ratio is certainly
    /// above or certainly below this limit.
    pub limit: Option<f64>,
    /// The length of a slice. `None` means that probes choose the length.
    pub slice: Option<Duration>,
    /// The number of restarts. `None` means that the duration determines it.
    pub restarts: Option<u32>,
    /// The number of rounds in each restart. `None` means that the duration determines it.
    pub rounds: Option<u32>,
    /// The seed of the random order.
    pub seed: u64,
    /// The number of cores that servers are told to use, if given. The entry of a server takes
    /// precedence.
    pub server_cpus: Option<usize>,
    /// Whether servers and generator get separate cores, if hotlap starts the servers.
    pub pins: bool,
    /// Whether servers are frozen outside their slices.
    pub freeze: bool,
    /// Whether servers and generator have priority over other programs.
    pub high_priority: bool,
    /// The command that starts the agent on the servers' host, if servers run on another host.
    pub server_host: Option<AgentCommand>,
    /// The commands that start the generators. If there are none, this process generates the load.
    pub generators: Vec<AgentCommand>,
    /// The address at which the load reaches the servers' host, if given.
    pub server_address: Option<IpAddr>,

    /// Stress scenarios to run after the measurement, or instead of it.
    pub scenarios: Vec<Scenario>,
    /// The differences that count as a failure (`--fail-if`).
    pub rules: Vec<Rule>,
    /// Whether to print everything known about each server.
    pub has_details: bool,
    /// Files that the report is written to.
    pub exports: ExportArgs,
    /// Where the run is stored.
    pub storage: Storage,
    /// The part of the suite that this run measures, if a pool of machines measures the suite.
    pub shard: Option<Shard>,
    /// Whether to continue the last run of the suite.
    pub resumes: bool,
    /// Whether to print only the plan.
    pub is_dry: bool,
}

/// The server that the others are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// The server with this index. If it cannot take part, there is no reference.
    Server(usize),
    /// The first server of this entry that takes part, or else the first server of all.
    Entry(usize),
}

/// The database to start for the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseSpec {
    /// The source of the tables and rows.
    pub schema: Schema,
    /// A PostgreSQL that already runs, if one is given.
    pub url: Option<ClusterUrl>,
    /// The folder with PostgreSQL's programs, if one is given.
    pub programs: Option<PathBuf>,
}

/// Where a run is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// The run is not stored.
    None,
    /// The run is stored in the default store, if that store is usable.
    Usual,
    /// The run is stored in this file, which must be usable.
    File(PathBuf),
}

impl RunSpec {
    /// Builds the plan from the command line.
    pub fn new(args: &RunArgs) -> anyhow::Result<Self> {
        let suite = suite(args)?;
        let suite = suite.as_ref();
        options::check(args, suite)?;
        let objectives = options::goals(args, suite)?;
        let question = match objectives.is_empty() {
            true if args.explain_only => Question::Explain,
            true => question(args, suite),
            false => Question::Capacity,
        };
        let contracts = request::contracts(&args.common.request, suite)?;
        let entries = match suite {
            Some(suite) => entry::of_suite(suite),
            None => {
                let servers = entry::expanded(&args.servers, &args.common.start.parameters)?;
                entry::typed(&servers, args.layers)
            }
        };
        let (shape, schedule) = (&args.common.shape, &args.schedule);
        let placement = &args.common.placement;
        let server_cpus = placement.server_cpus.or_else(|| suite?.cpus);
        let seed = shard::seed(args).or(placement.seed).unwrap_or_else(fresh_seed);
        let rules = options::rules(args, question)?;
        let limit = options::limit(schedule, &rules);
        let (requests, mut notes) = request::requests(&args.common.request, suite, seed)?;
        if schedule.stop_early && limit.is_none() {
            notes.push(
                "--stop-early has no effect here. It works with a single rule about CPU time per \
                 request, such as --fail-if 'cost +3%', or without a rule."
                    .to_owned(),
            );
        }
        let https = shape.https || suite.is_some_and(|suite| suite.https);
        let mut servers = server::servers(&entries, args, suite, &contracts, &requests, https)?;
        let sends_all = requests.asks.len() > 1
            || !requests.fields.list.is_empty()
            || servers.iter().any(ServerSpec::has_a_mix);
        let mut loads = loads::loads(args, suite, &contracts, sends_all)?;
        if ask_to_close(&args.common.request.ask.headers) {
            loads.iter_mut().for_each(|load| load.shape.reuse = Reuse::Close);
        }
        for load in &loads {
            load.shape.check(load.protocol).or_else(|error| usage(error.to_string()))?;
        }
        let mut reference = reference(args, suite, &entries, &servers)?;
        let shard = match (args.shard, suite) {
            (Some(number), Some(suite)) => {
                let reference = match reference {
                    Reference::Server(server) => servers.get(server),
                    Reference::Entry(entry) => servers.iter().find(|server| server.entry == entry),
                };
                Some(shard::shard(number, args, suite, question, &servers, reference)?)
            }
            _ => None,
        };
        if let Some(shard) = &shard {
            servers.retain(|server| shard.servers.contains(&server.name));
            let place = servers.iter().position(|server| server.name == shard.reference);
            reference = Reference::Server(place.unwrap_or(0));
        }
        let budget = or_written(schedule.duration, suite, |s| &s.duration, quantity::span)?;
        let database = options::database(args, suite, &servers)?;
        let scenarios = scenarios(args, suite, question, sends_all)?;
        options::have_hosts(args, &loads, &scenarios)?;
        Ok(Self {
            command: crate::redact::command_line()
                .into_iter()
                .chain(args.common.from_config.iter().cloned())
                .collect(),
            question,
            suite: suite.map(|s| s.name.clone()),
            about: suite.map_or_else(String::new, |s| s.about.clone()),
            absent: suite.map_or_else(Vec::new, |s| s.absent.clone()),
            baseline: args.save_baseline.clone(),
            reference,
            entries,
            servers,
            notes,
            explains_after: options::explains_after(args, question)?,
            has_ceiling: !schedule.no_ceiling
                && objectives.is_empty()
                && !https
                && loads.iter().all(|load| load.protocol == Protocol::Http1),
            install: args.common.setup,
            prepare: args.common.start.prepare.clone(),
            database,
            leaves_out_missing: suite.is_some_and(|s| s.leave_out_missing),
            allow_remote: shape.allow_remote,
            tls: if https { Some(tls::settings(&args.common.tls)?) } else { None },
            loads,
            rate: args.rate,
            timeout: options::timeout(shape.connection.timeout, &objectives),
            start_timeout: shape.start.start_timeout,
            budget,
            growth: match (schedule.duration, budget) {
                (Some(_), _) => Growth::None,
                (None, Some(_)) => Growth::Verdict,
                (None, None) => Growth::Usual,
            },
            precision: or_written(schedule.precision, suite, |s| &s.precision, quantity::share)?
                .or((!objectives.is_empty()).then_some(options::PRECISION)),
            limit,
            slice: or_written(schedule.slice, suite, |s| &s.slice, quantity::span)?,
            restarts: schedule.restarts,
            rounds: schedule.rounds,
            seed,
            server_cpus,
            pins: !placement.no_pin,
            freeze: !placement.no_freeze,
            high_priority: placement.high_priority,
            server_host: placement.server_on.clone(),
            generators: placement.generator_on.clone(),
            server_address: placement.server_address,
            scenarios,
            rules,
            has_details: args.common.details,
            exports: options::exports(args, question)?,
            storage: match &args.common.store.store {
                _ if args.common.no_store => Storage::None,
                None => Storage::Usual,
                Some(file) => Storage::File(file.clone()),
            },
            shard,
            resumes: args.resume,
            is_dry: args.common.dry_run,
            objectives,
        })
    }

    /// Whether hotlap starts any of the servers.
    pub fn starts_servers(&self) -> bool {
        !self.servers.iter().all(ServerSpec::runs_already)
    }
}

/// Opens the named suite, or the quick suite if nothing is named.
fn suite(args: &RunArgs) -> anyhow::Result<Option<Suite>> {
    let named = match (&args.suite, args.servers.is_empty()) {
        (Some(suite), _) => suite,
        (None, true) => {
            options::need_servers(args)?;
            QUICK
        }
        (None, false) => return Ok(None),
    };
    Suite::open(named, &assets::suites()?).map(Some).or_else(|error| usage(error.to_string()))
}

fn question(args: &RunArgs, suite: Option<&Suite>) -> Question {
    match suite {
        _ if args.stress => Question::Stress,
        Some(suite) => suite.question,
        None if args.layers => Question::Layers,
        None => Question::Compare,
    }
}

/// Finds the reference by its name in tables or by the text that was typed.
fn reference(
    args: &RunArgs,
    suite: Option<&Suite>,
    entries: &[Entry],
    servers: &[ServerSpec],
) -> anyhow::Result<Reference> {
    let Some(name) = &args.reference else {
        return Ok(Reference::Entry(suite.map_or(0, |suite| suite.reference)));
    };
    let known = crate::redact::text(name);
    let is_meant = |server: &ServerSpec| server.name == known || entries[server.entry].run == *name;
    match servers.iter().position(is_meant) {
        Some(server) => Ok(Reference::Server(server)),
        None => usage(format!("--reference names {name}, which is not one of the servers")),
    }
}

/// Returns the scenarios of a stress run, or the scenarios that a suite runs after the measurement.
fn scenarios(
    args: &RunArgs,
    suite: Option<&Suite>,
    question: Question,
    sends_all: bool,
) -> anyhow::Result<Vec<Scenario>> {
    let own = suite.map_or_else(Vec::new, |suite| suite.stress.clone());
    let scenarios = match args.scenarios.as_slice() {
        [] if own.is_empty() && question == Question::Stress => Scenario::all(),
        [] => own,
        names => chosen(names)?,
    };
    match sends_all && !scenarios.is_empty() {
        false => Ok(scenarios),
        true => usage(
            "the clients of a stress test send one fixed request: use one request without fields \
             that vary, or run without stress scenarios",
        ),
    }
}

/// Returns the scenarios with these names.
fn chosen(names: &[String]) -> anyhow::Result<Vec<Scenario>> {
    let all = Scenario::all();
    for name in names {
        if !all.iter().any(|s| s.name == *name) {
            let there: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
            return usage(format!("unknown scenario {name:?}: choose from {}", there.join(", ")));
        }
    }
    Ok(all.into_iter().filter(|s| names.contains(&s.name)).collect())
}

/// Returns the parsed value from the flag or the suite. An error names the line in the suite.
fn or_written<T>(
    typed: Option<T>,
    suite: Option<&Suite>,
    said: impl Fn(&Suite) -> &Option<Written>,
    read: fn(&str) -> Result<T, String>,
) -> anyhow::Result<Option<T>> {
    match (typed, suite) {
        (None, Some(suite)) => match said(suite).as_ref() {
            None => Ok(None),
            Some(said) => match read(&said.text) {
                Ok(value) => Ok(Some(value)),
                Err(error) => usage(suite.wrong(said.line, error).to_string()),
            },
        },
        (typed, _) => Ok(typed),
    }
}

/// Returns a random seed. The seed is stored, so that the order can be repeated.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // The seed is below 2⁵³, so that every JSON reader keeps it exactly.
    RandomState::new().hash_one(std::process::id()) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Command};

    fn spec(line: &str) -> anyhow::Result<RunSpec> {
        let Command::Run(args) = cli::typed(line).command else { panic!("not a run") };
        RunSpec::new(&args)
    }

    #[test]
    fn flags_become_values() {
        let line = "hotlap run sh http://127.0.0.1:1/x -c 8 --pipeline 2 --seed 7 --no-store";
        let spec = spec(line).unwrap();
        assert_eq!((spec.seed, spec.storage), (7, Storage::None));
        assert_eq!((spec.loads[0].shape.connections, spec.loads[0].shape.pipeline), (8, 2));
        let names: Vec<&str> = spec.servers.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["sh", "http://127.0.0.1:1/x"]);
        assert_eq!((spec.question, spec.reference), (Question::Compare, Reference::Entry(0)));
    }

    /// Regression: loads that are not possible were refused only when the first load began.
    #[test]
    fn a_load_that_no_generator_can_make_is_refused_at_once() {
        let error = |flags: &str| spec(&format!("hotlap run sh {flags}")).unwrap_err().to_string();
        assert_eq!(
            error("--pipeline 2 --disable-keepalive"),
            "a connection that carries one request cannot be pipelined: use a pipeline of 1"
        );
        assert_eq!(
            error("--pipeline 2000"),
            "a pipeline of 2000 requests is out of range: use 1 to 1024"
        );
        assert_eq!(error("-c 0"), "a load needs at least 1 connection");
    }

    #[test]
    fn the_reference_is_one_of_the_servers() {
        let found = spec("hotlap run sh cat --reference cat").unwrap().reference;
        assert_eq!(found, Reference::Server(1));
        let error = spec("hotlap run sh cat --reference other").unwrap_err().to_string();
        assert_eq!(error, "--reference names other, which is not one of the servers");
    }

    #[test]
    fn scenarios_are_chosen_by_name_and_an_unknown_one_is_an_error() {
        let two = chosen(&["garbage".to_owned(), "churn".to_owned()]).unwrap();
        assert_eq!(two.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["churn", "garbage"]);
        let error = chosen(&["garbag".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("unknown scenario \"garbag\": choose from overload, churn"));
        let spec = spec("hotlap run sh --stress").unwrap();
        assert_eq!(
            (spec.question, spec.scenarios.len()),
            (Question::Stress, Scenario::all().len())
        );
    }
}
