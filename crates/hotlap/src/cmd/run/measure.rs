//! Measures: runs the experiment, with servers here or on another machine, then the stress
//! scenarios of a suite, if any.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use hotlap_bench::experiment::{Experiment, Over, Past, Place};
use hotlap_bench::explain::Explain;
use hotlap_bench::load_host::{LoadHost, ThisProcess};
use hotlap_bench::local::{LocalRunner, Setting, allow_files};
use hotlap_bench::runner::Runner;
use hotlap_servers::machine::{CpuAllocation, Network, Priority};
use hotlap_servers::process::Supervisor;
use hotlap_servers::running::{LocalHost, ServerHost};

use super::finish::finish;
use super::logs::Logs;
use super::participants::Participants;
use super::spec::RunSpec;
use super::{announcement, record, resume, stress, timing};
use crate::console::Console;
use crate::exit::Exit;
use crate::export::Exports;
use crate::interrupt::Interrupt;
use crate::model::{Question, Run, State};
use crate::recorder::Recorder;
use crate::store::Store;
use crate::text::wrap;

/// An experiment, ready to begin.
pub struct Prepared {
    /// The experiment.
    pub experiment: Experiment,
    /// The cores of servers and generator.
    pub cores: CpuAllocation,
    /// The record of the run, new or continued.
    pub run: Run,
}

impl Prepared {
    /// Prepares an experiment.
    pub fn new(spec: &RunSpec, participants: &Participants) -> anyhow::Result<Self> {
        let mut experiment = Experiment {
            participants: participants.ready.clone(),
            loads: spec.loads.clone(),
            budget: spec.budget.unwrap_or_default(),
            may_grow: spec.budget.is_none(),
            precision: spec.precision,
            restarts: spec.restarts,
            rounds: spec.rounds,
            slice: spec.slice,
            paced: true,
            rate: spec.rate,
            objectives: spec.objectives.clone(),
            explain: Explain::No,
            seed: spec.seed,
            from: Place::default(),
            past: Past::default(),
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
        let cores = participants.cores(spec);
        let mut run = record::begin(spec, participants, &cores, Some(&experiment));
        if let Some(earlier) = &spec.earlier {
            resume::go_on(&mut experiment, earlier, &run)?;
            run = Run { state: State::UnderWay, ..earlier.clone() };
        }
        Ok(Self { experiment, cores, run })
    }
}

/// Gives this thread, and what it starts from now on, priority over other programs, if the plan
/// says so.
pub fn priority(spec: &RunSpec) -> anyhow::Result<Option<Priority>> {
    let raised = spec.high_priority.then(Priority::raise).transpose();
    raised.map_err(|error| {
        anyhow::anyhow!(
            "--high-priority: cannot raise the priority ({error}): run hotlap as root, give it \
             CAP_SYS_NICE, or leave out the option"
        )
    })
}

/// Measures.
pub fn run(
    spec: &RunSpec,
    participants: &Participants,
    store: Option<Store>,
    exports: &mut Exports,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Exit> {
    let Prepared { experiment, cores, run } = Prepared::new(spec, participants)?;
    let announcement = announcement::of(&run, &experiment, &spec.scenarios, store.as_ref());
    console.note(wrap(&announcement, 0, console.width).trim_end());
    let _priority = priority(spec)?;
    let logs = Logs::new()?;
    let host = server_host(participants, &logs)?;
    let generator = match &participants.generators {
        Some(started) => Arc::clone(&started.host) as Arc<dyn LoadHost>,
        None => Arc::new(ThisProcess),
    };
    let setting = setting(spec, &experiment, &run, &cores, (Arc::clone(&host), generator));
    let (servers, loads) = (&experiment.participants, &experiment.loads);
    let mut runner = LocalRunner::new(setting, servers, loads, interrupt.shared());
    let mut recorder = Recorder::new(run, store, exports, console)?;
    logs.measures(recorder.so_far().number, recorder.store_path());
    let is_measured = !recorder.so_far().stress.is_empty();
    let mut over = match participants.ready.is_empty() {
        true => Over::Nobody,
        false if is_measured => Over::Done,
        false => recorder.experiment(&experiment, &mut runner),
    };
    if over != Over::Interrupted && !spec.scenarios.is_empty() {
        let stressed =
            stress::stress_all(spec, participants, &cores, host, &mut recorder, interrupt, console);
        match stressed {
            Ok(true) => {}
            Ok(false) => over = Over::Interrupted,
            Err(error) => {
                recorder.fail(experiment.past.spent + runner.elapsed());
                return Err(error);
            }
        }
    }
    let kept = recorder.end(over, experiment.past.spent + runner.elapsed());
    finish(&kept, spec, &spec.rules, exports, console)
}

/// Where servers run: on the host of `--server-on`, or on this machine.
pub fn server_host(
    participants: &Participants,
    logs: &Logs,
) -> anyhow::Result<Arc<dyn ServerHost>> {
    if let Some(host) = &participants.elsewhere {
        return Ok(Arc::clone(host) as Arc<dyn ServerHost>);
    }
    let generators = participants.generators.as_ref();
    let network = generators.and_then(|started| started.network.as_ref());
    Ok(Arc::new(LocalHost {
        supervisor: Supervisor::this_program("__supervisor")
            .context("cannot find hotlap's own program")?,
        logs: logs.folder().to_owned(),
        network: network.map_or_else(Network::loopback, |(network, _)| network.clone()),
    }))
}

fn setting(
    spec: &RunSpec,
    experiment: &Experiment,
    run: &Run,
    cores: &CpuAllocation,
    (host, generator): (Arc<dyn ServerHost>, Arc<dyn LoadHost>),
) -> Setting {
    Setting {
        slice: experiment.slice,
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

/// For layers, each server's layer below; comparisons are made with that one.
fn against(run: &Run) -> BTreeMap<usize, usize> {
    let is_layers = run.question == Question::Layers;
    let steps = run.servers.iter().enumerate().filter(|_| is_layers);
    steps.filter_map(|(n, server)| Some((n, server.on?))).collect()
}
