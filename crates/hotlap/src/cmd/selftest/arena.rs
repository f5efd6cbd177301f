//! The setup of the selftest's experiments: the runner of `run`, with hotlap's own test servers.
//! The benchmarks of the method use this setup too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use hotlap_agent::ThisProcess;
use hotlap_bench::experiment::Experiment;
use hotlap_bench::local::{LocalRunner, Setting};
use hotlap_bench::participant::{Load, Origin, Participant, Role};
use hotlap_observe::cpus;
use hotlap_servers::contract::{Contract, Name};
use hotlap_servers::launch::Launch;
use hotlap_servers::machine::{self, CpuAllocation, Network};
use hotlap_servers::process::Supervisor;
use hotlap_servers::running::LocalHost;
use hotlap_servers::verify::Requirements;

use crate::cmd::run::logs::Logs;
use crate::cmd::run::timing::{GRACE, START_LIMIT};
use crate::console::Console;
use crate::export::Exports;
use crate::model::{Host, Observing, Question, Run, RunSchedule, RunState, Server};
use crate::recorder::Recorder;
use crate::redact;

/// The timeout of a request, which is longer than the longest pause of a test server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit for probing the servers at each slice length.
const PROBE_LIMIT: Duration = Duration::from_secs(12);

/// How long a server must be steady before its warm-up ends. Test servers compile nothing.
const LEVEL: Duration = Duration::from_secs(1);

/// Everything that the experiments of the selftest share.
pub struct Arena {
    program: PathBuf,
    /// The cores. The server gets one, since each of its threads would count requests separately.
    pub cores: CpuAllocation,
    logs: Logs,
}

/// Runs a task on the given cores. Processes that the task starts stay on these cores.
pub fn pinned<T: Send>(cpus: &[usize], task: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Where threads cannot be pinned, servers are not pinned either.
            let _ = cpus::pin(cpus);
            task()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Arena {
    /// Creates the setup. `program` is hotlap's own executable, which contains the test servers.
    pub fn new(program: &Path) -> anyhow::Result<Self> {
        let cores = machine::split_here(Some(1));
        Ok(Self { program: program.to_owned(), cores, logs: Logs::new()? })
    }

    /// A participant that runs the test server `known` (a [`hotlap_testbed::CalibratedServer`]).
    pub fn participant(&self, name: &str, known: &str, role: Role) -> Participant {
        let program = self.program.to_string_lossy().into_owned();
        let argv = vec![program, "__known".to_owned(), known.to_owned()];
        Participant {
            name: name.to_owned(),
            role,
            start: Origin::Launch(Launch { argv, cwd: std::env::temp_dir(), ..Launch::default() }),
            contract: Contract::of(Name::Hello, None),
            // Responses are checked as for a command or a URL, not against a contract. One of the
            // test servers sends wrong responses on purpose.
            requirements: Requirements::Custom,
            version: format!("hotlap {}", env!("CARGO_PKG_VERSION")),
            counts: None,
            cpus: None,
        }
    }

    /// The nanoseconds per request that a test server's work takes without a server, in a process
    /// on the server's core. The work is timed in stretches of `requests` requests.
    pub fn alone_ns(&self, known: &str, requests: u64) -> anyhow::Result<f64> {
        let mut command = Command::new(&self.program);
        command.args(["__known", "--alone", &requests.to_string(), known]);
        let timed = pinned(&self.cores.server, || command.output())?;
        let text = String::from_utf8_lossy(&timed.stdout);
        text.trim().parse().with_context(|| format!("{known} was not timed alone: {text:?}"))
    }

    /// The host that runs the servers: this machine.
    pub fn host(&self) -> LocalHost {
        LocalHost {
            database: None,
            supervisor: Supervisor::new(&self.program, &["__supervisor"]),
            logs: self.logs.folder().to_owned(),
            network: Network::loopback(),
        }
    }

    /// The settings for laps in slices of the given lengths, one for each load. If no length is
    /// given, probes choose the lengths.
    pub fn setting(&self, slices: &[Duration], warm_limit: Duration) -> Setting {
        Setting {
            slices: slices.to_vec(),
            probe_limit: PROBE_LIMIT,
            timeout: TIMEOUT,
            start_limit: START_LIMIT,
            level_for: LEVEL,
            warm_limit,
            grace: GRACE,
            freeze: true,
            counters: false,
            cores: self.cores.clone(),
            host: Arc::new(self.host()),
            generator: Arc::new(ThisProcess),
            against: BTreeMap::new(),
        }
    }

    /// An experiment that measures these servers for `budget`. Fixed-rate laps are left out, since
    /// they do not affect CPU time.
    pub fn experiment(
        &self,
        participants: Vec<Participant>,
        connections: usize,
        slice: Option<Duration>,
        budget: Duration,
        seed: u64,
    ) -> Experiment {
        let loads = vec![Load::new(connections)];
        let slices = slice.into_iter().collect();
        Experiment { slices, seed, ..Experiment::new(participants, loads, budget) }
    }

    /// Carries out an experiment as `run` does.
    pub fn measure(
        &self,
        experiment: &Experiment,
        warm_limit: Duration,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Run> {
        let mut runner = LocalRunner::new(
            self.setting(&experiment.slices, warm_limit),
            &experiment.participants,
            &experiment.loads,
            Arc::clone(stop),
        );
        let mut exports = Exports::default();
        let quiet = Console { quiet: true, ..Console::plain(80) };
        let recorder = Recorder::new(self.record(experiment), None, &mut exports, &quiet)?;
        Ok(recorder.keep(experiment, &mut runner).run)
    }

    /// The record of an experiment, which is not stored.
    pub fn record(&self, experiment: &Experiment) -> Run {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (server_cpus, generator_cpus) = self.cores.by_number();
        Run {
            number: None,
            began_ms: began.as_millis() as u64,
            took_ms: 0,
            state: RunState::UnderWay,
            command: redact::command_line(),
            hotlap: env!("CARGO_PKG_VERSION").to_owned(),
            baseline: None,
            suite: None,
            question: Question::Compare,
            about: String::new(),
            contract: Name::Hello.to_string(),
            seed: experiment.seed,
            schedule: RunSchedule {
                restarts: 0,
                rounds: 0,
                slices_ms: experiment.slices_ms(),
                probed: Vec::new(),
                duration_s: experiment.budget.as_secs_f64(),
                needed_s: None,
                precision: experiment.precision,
                limit: experiment.limit,
                server_cpus,
                generator_cpus,
                freeze: true,
                high_priority: false,
                objectives: experiment.objectives.clone(),
                observing: Observing::default(),
            },
            host: Host::default(),
            loads: experiment.loads.clone(),
            servers: experiment.participants.iter().map(Server::from).collect(),
            starts: Vec::new(),
            laps: Vec::new(),
            absent: Vec::new(),
            stress: Vec::new(),
            explain: Vec::new(),
            shard: None,
            database: None,
            pool: None,
        }
    }
}
