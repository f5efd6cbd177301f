//! Measures servers here or on another machine: runs the experiment, and then any stress scenarios.
//! The scenarios show what overload and misbehaving clients do to servers and to their normal
//! clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hotlap_agent::{LoadHost, ThisProcess};
use hotlap_bench::experiment::{Experiment, Explain, Over};
use hotlap_bench::local::{LocalRunner, Setting, allow_files};
use hotlap_bench::runner::Runner;
use hotlap_bench::stress::{StressEvent, StressSetting, Subject, Timing, stress};
use hotlap_servers::database::{Database, DatabaseSetting};
use hotlap_servers::launch::ServerFailure;
use hotlap_servers::machine::{CpuAllocation, Network, Priority};
use hotlap_servers::process::Supervisor;
use hotlap_servers::running::{LocalHost, ServerHost};

use super::finish::finish;
use super::logs::Logs;
use super::participants::{Participants, is_named};
use super::spec::RunSpec;
use super::{record, resume, timing};
use crate::console::Console;
use crate::exit::Exit;
use crate::export::Exports;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::model::{Question, Run, RunState, Server};
use crate::recorder::Recorder;
use crate::store::Store;
use crate::text::wrap;

/// The number of connections of normal clients. Normal clients keep a single-threaded server busy,
/// and are few enough that each one notices the attackers.
const GOOD: usize = 8;

/// A run that is ready to begin.
pub struct Prepared {
    /// The experiment, or `None` if servers are only stressed.
    pub experiment: Option<Experiment>,
    /// The cores of servers and generator.
    pub cores: CpuAllocation,
    /// The record of the run, which is either new or continued.
    pub run: Run,
}

impl Prepared {
    /// Prepares a new run, or the rest of an earlier one.
    pub fn new(
        spec: &RunSpec,
        participants: &Participants,
        earlier: Option<Run>,
        console: &Console,
    ) -> anyhow::Result<Self> {
        let cores = participants.cores();
        if spec.question == Question::Stress {
            let run = record::begin(spec, participants, &cores, None);
            let run = match earlier {
                None => run,
                Some(earlier) => {
                    resume::same_suite(&earlier, &run)?;
                    Run { state: RunState::UnderWay, servers: run.servers, ..earlier }
                }
            };
            return Ok(Self { experiment: None, cores, run });
        }
        let (ready, loads) = (participants.ready.clone(), participants.hosts.loads.clone());
        let slices = match &earlier {
            None => {
                let slice = participants.hosts.slice(spec.slice, console);
                slice.map_or_else(Vec::new, |slice| vec![slice; loads.len()])
            }
            Some(run) => {
                let slices_ms = run.schedule.slices_ms.iter();
                slices_ms.map(|ms| Duration::from_secs_f64(ms / 1e3)).collect()
            }
        };
        let budget = spec.budget.unwrap_or_default();
        let mut experiment = Experiment {
            growth: spec.growth,
            precision: spec.precision,
            limit: spec.limit,
            restarts: spec.restarts,
            rounds: spec.rounds,
            slices,
            paced: true,
            common_rate: spec.rate,
            objectives: spec.objectives.clone(),
            seed: spec.seed,
            ..Experiment::new(ready, loads, budget)
        };
        experiment.explain = match spec.question {
            Question::Explain => Explain::Only,
            _ if spec.explains_after => Explain::After(timing::explaining(&experiment)),
            _ => Explain::No,
        };
        if spec.budget.is_none() {
            experiment.budget = timing::usual_budget(&experiment);
        }
        allow_files(experiment.participants.len(), &experiment.loads)
            .map_err(anyhow::Error::msg)?;
        let mut run = record::begin(spec, participants, &cores, Some(&experiment));
        if let Some(earlier) = earlier {
            resume::go_on(&mut experiment, &earlier, &run)?;
            run = Run { state: RunState::UnderWay, ..earlier };
        }
        Ok(Self { experiment: Some(experiment), cores, run })
    }
}

/// If the plan asks for it, gives this thread and everything that it starts from now on priority
/// over other programs.
pub fn priority(spec: &RunSpec) -> anyhow::Result<Option<Priority>> {
    let raised = spec.high_priority.then(Priority::raise).transpose();
    raised.map_err(|error| {
        anyhow::anyhow!(
            "cannot raise the priority ({error}): run hotlap as root, give hotlap CAP_SYS_NICE, or \
             leave out --high-priority"
        )
    })
}

/// Runs the experiment and the stress scenarios that the plan has.
pub fn run(
    spec: &RunSpec,
    participants: &Participants,
    earlier: Option<Run>,
    store: Option<Store>,
    exports: &mut Exports,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Exit> {
    let earlier_ms = earlier.as_ref().map_or(0, |earlier| earlier.took_ms);
    let Prepared { experiment, cores, run } = Prepared::new(spec, participants, earlier, console)?;
    let announcement = match &experiment {
        Some(experiment) => timing::announcement(&run, experiment, &spec.scenarios, store.as_ref()),
        None => timing::announcement_of_stress(&participants.ready, &run, &spec.scenarios),
    };
    console.note(wrap(&announcement, 0, console.width).trim_end());
    spec.rules.iter().filter_map(|rule| rule.too_fine(&run)).for_each(|why| console.warn(&why));
    let _priority = priority(spec)?;
    let logs = Logs::new()?;
    let began = Instant::now();
    let host = server_host(participants, &logs, interrupt, console)?;
    let mut runner = match &experiment {
        Some(experiment) => {
            let (servers, loads) = (&experiment.participants, &experiment.loads);
            let setting = setting(spec, participants, experiment, &run, &cores, Arc::clone(&host));
            Some(LocalRunner::new(setting, servers, loads, interrupt.shared()))
        }
        None => None,
    };
    let mut recorder = Recorder::new(run, store, exports, console)?;
    logs.measures(recorder.so_far().number, recorder.store_path());
    let is_measured = !recorder.so_far().stress.is_empty();
    let over = match (&experiment, &mut runner) {
        (Some(_), _) if participants.ready.is_empty() => Over::Nobody,
        (Some(experiment), Some(runner)) if !is_measured => recorder.experiment(experiment, runner),
        _ => Over::Done,
    };
    let stressed = match over != Over::Interrupted && !spec.scenarios.is_empty() {
        true => stress_all(spec, participants, &cores, host, &mut recorder, interrupt, console),
        false => Ok(true),
    };
    let took = match (&experiment, &runner) {
        (Some(experiment), Some(runner)) => experiment.past.spent + runner.elapsed(),
        _ => Duration::from_millis(earlier_ms) + began.elapsed(),
    };
    let kept = match stressed {
        Ok(true) => recorder.end(over, took),
        Ok(false) => recorder.end(Over::Interrupted, took),
        Err(_) => recorder.fail(over, took),
    };
    stressed.and(finish(&kept, spec, exports, console))
}

fn setting(
    spec: &RunSpec,
    participants: &Participants,
    experiment: &Experiment,
    run: &Run,
    cores: &CpuAllocation,
    host: Arc<dyn ServerHost>,
) -> Setting {
    let generator: Arc<dyn LoadHost> = match &participants.hosts.generators {
        Some(started) => Arc::clone(&started.host) as Arc<dyn LoadHost>,
        None => Arc::new(ThisProcess),
    };
    Setting {
        slices: experiment.slices.clone(),
        probe_limit: experiment.budget / timing::PROBING,
        timeout: spec.timeout,
        start_limit: spec.start_timeout,
        level_for: timing::level_for(experiment),
        warm_limit: timing::WARM_LIMIT,
        grace: timing::GRACE,
        freeze: spec.freeze,
        counters: true,
        cores: cores.clone(),
        host,
        generator,
        against: against(run),
    }
}

/// Returns the host that runs the servers: the host of `--server-on`, or this machine.
fn server_host(
    participants: &Participants,
    logs: &Logs,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Arc<dyn ServerHost>> {
    let hosts = &participants.hosts;
    if let Some(host) = &hosts.servers {
        return Ok(Arc::clone(host) as Arc<dyn ServerHost>);
    }
    let network = hosts.generators.as_ref().and_then(|started| started.network.as_ref());
    let supervisor = Supervisor::this_program("__supervisor");
    let supervisor = supervisor.context("cannot find hotlap's own program")?;
    let database = match &hosts.database {
        Some(setting) => Some(start_database(setting, &supervisor, logs, interrupt, console)?),
        None => None,
    };
    Ok(Arc::new(LocalHost {
        supervisor,
        database,
        logs: logs.folder().to_owned(),
        network: network.map_or_else(Network::loopback, |(network, _)| network.clone()),
    }))
}

/// Starts the database of a run or of a check.
pub fn start_database(
    setting: &DatabaseSetting,
    supervisor: &Supervisor,
    logs: &Logs,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Arc<Database>> {
    let DatabaseSetting { programs, schema, url, .. } = setting;
    match url {
        None => console.note(&format!("Starting {} with {schema}.", programs.version())),
        Some(url) => console.warn(&format!(
            "Warning: hotlap creates databases with {schema} in the PostgreSQL at {url}, and drops \
             them at the end of the run. Their names begin with hotlap_, and hotlap touches no \
             other database. It does not count statements there."
        )),
    }
    let started = Database::start(setting.clone(), supervisor, logs.folder(), interrupt.shared());
    started.map(Arc::new).map_err(|failure| anyhow::anyhow!(in_lines(&failure)))
}

/// Formats a failure, the last lines that the program printed, and the remedy, one per line.
fn in_lines(failure: &ServerFailure) -> String {
    let first = failure.to_string();
    let remedy = Some(&failure.remedy).filter(|remedy| !remedy.is_empty());
    let lines = std::iter::once(&first).chain(&failure.log_tail).chain(remedy);
    lines.map(String::as_str).collect::<Vec<_>>().join("\n  ")
}

/// For layers, maps each server to the layer below. The two are compared.
fn against(run: &Run) -> BTreeMap<usize, usize> {
    let is_layers = run.question == Question::Layers;
    let steps = run.servers.iter().enumerate().filter(|_| is_layers);
    steps.filter_map(|(n, server)| Some((n, server.on?))).collect()
}

/// Stresses servers one after the other, so that only one of them runs at a time. Servers that
/// failed, and completed scenarios, are skipped. Returns false if the user interrupted the stress.
fn stress_all(
    spec: &RunSpec,
    participants: &Participants,
    cores: &CpuAllocation,
    host: Arc<dyn ServerHost>,
    recorder: &mut Recorder<'_>,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<bool> {
    let setting = StressSetting {
        scenarios: spec.scenarios.clone(),
        timing: Timing::default(),
        good: GOOD,
        cores: cores.clone(),
        host,
        start_limit: spec.start_timeout,
        grace: timing::GRACE,
        allow_remote: spec.allow_remote,
    };
    let mut live = Live::start(console);
    let named = participants.ready.iter().enumerate().filter(|(_, e)| is_named(e));
    for (number, participant) in named {
        let run = recorder.so_far();
        let is_out = |s: &Server| s.name == participant.name && s.failure.is_some();
        let before = run.stress.iter().find(|s| s.name == participant.name).cloned();
        let before = before.unwrap_or_else(|| Subject::new(participant, GOOD));
        if run.servers.iter().any(is_out) || before.left(&setting.scenarios).is_empty() {
            continue;
        }
        let subject = stress(
            number,
            participant,
            &setting,
            before,
            interrupt.flag(),
            &mut |event| match event {
                StressEvent::Scenario { server, scenario } => {
                    live.phase(format!("{server}: {scenario}"))
                }
                StressEvent::Trial { subject } => {
                    if let Some(trial) = subject.trials.last() {
                        let verdict = trial.judgement.impact.as_str();
                        live.say(&format!("{}: {}: {verdict}", subject.name, trial.scenario));
                    }
                    recorder.stressed((*subject).clone());
                }
            },
        );
        // Completed trials are already stored, but a failure is not.
        if subject.failure.is_some() {
            recorder.stressed(subject);
        }
        if interrupt.asked() {
            live.clear();
            return Ok(false);
        }
    }
    live.clear();
    Ok(true)
}
