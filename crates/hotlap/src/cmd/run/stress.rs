//! `hotlap run --stress`: what becomes of servers and of their good clients when others misbehave;
//! alone, or after an experiment whose suite asks for it.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use hotlap_bench::experiment::Over;
use hotlap_bench::participant::{Participant, Role};
use hotlap_bench::stress::{Scenario, StressEvent, StressSetting, Subject, Timing, stress};
use hotlap_servers::allocation::{self, CpuAllocation};
use hotlap_servers::machine::Machine;
use hotlap_servers::process::Supervisor;

use super::card::Card;
use super::grid::Grid;
use super::{GRACE, Logs, conclude, resume, store, unpinned};
use crate::cli::RunArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Exports;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::model::{self, Question, Run, State};
use crate::recorder::Recorder;
use crate::text::number::plural;

/// The good clients' connections: enough to keep a server of one thread at work all the time, and
/// few enough that each of them notices who else comes.
const GOOD: usize = 8;

/// What a server's start, its first load and its end take, about, and each scenario.
const TAKES: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(3));

/// What is to be stressed, and how.
#[derive(Debug)]
pub struct Order {
    /// What happens to each.
    pub scenarios: Vec<Scenario>,
    /// Who runs on which cores.
    pub split: CpuAllocation,
    /// A server on another machine may be stressed too.
    pub allow_remote: bool,
    /// How long a server may take from its start to its first answer.
    pub start_limit: Duration,
    /// Where what servers print is kept.
    pub logs: PathBuf,
}

/// What a stress of servers takes, about, that have met some of these scenarios before.
#[must_use]
pub fn takes(participants: &[Participant], met: &[Subject], scenarios: &[Scenario]) -> Duration {
    let left = |participant: &Participant| {
        let subject = met.iter().find(|subject| subject.name == participant.name);
        subject.map_or(scenarios.len(), |subject| subject.left(scenarios).len())
    };
    let takes = |scenarios: usize| match u32::try_from(scenarios) {
        Ok(0) | Err(_) => Duration::ZERO,
        Ok(n) => TAKES.0 + TAKES.1 * n,
    };
    participants.iter().filter(|e| is_named(e)).map(|participant| takes(left(participant))).sum()
}

/// Stresses what the command line names, or a suite does.
///
/// # Errors
/// When the command line makes no sense, a file cannot be written, or the system refuses.
pub fn run(card: &Card, args: &RunArgs, console: &Console) -> anyhow::Result<Exit> {
    let scenarios = match (args.scenarios.as_slice(), card.scenarios()) {
        ([], []) => Scenario::all(),
        ([], suite) => suite.to_vec(),
        (named, _) => chosen(named)?,
    };
    let table = &args.exports;
    let for_tables = [&table.export_csv, &table.export_github_benchmark, &table.export_bencher];
    if for_tables.iter().any(|file| file.is_some()) {
        return usage("a stress is exported with --export-json, --export-markdown, --export-html");
    }
    let mut exports = Exports::open(&args.exports)?;
    let store = store(args, console)?;
    let earlier = resume::asked(args.resume, card, store.as_ref())?;
    let interrupt = Interrupt::listen()?;
    let grid = Grid::of(card, args, &interrupt, console)?;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    let pinned = !args.schedule.no_pin && !grid.all_run_already();
    let logs = Logs::new()?;
    let order = Order {
        scenarios,
        split: if pinned { allocation::split_here(card.cpus) } else { unpinned() },
        allow_remote: args.shape.allow_remote,
        start_limit: args.shape.start_timeout,
        logs: logs.folder().to_owned(),
    };
    let began = Instant::now();
    let mut run = record(card, args, &grid, &order.split);
    let mut spent = Duration::ZERO;
    if let Some(earlier) = earlier {
        resume::same_suite(&earlier, &run)?;
        spent = Duration::from_millis(earlier.took_ms);
        run = Run { state: State::UnderWay, servers: run.servers, ..earlier };
    }
    let count = grid.participants.iter().filter(|e| is_named(e)).count();
    console.note(&format!(
        "Stressing {} with {}: about {} s.",
        plural(count, "server"),
        plural(order.scenarios.len(), "scenario"),
        takes(&grid.participants, &run.stress, &order.scenarios).as_secs()
    ));
    let mut keeper = Recorder::new(run, store, &mut exports, console)?;
    let over = match hold(&order, &grid.participants, &mut keeper, &interrupt, console) {
        Ok(true) => Over::Done,
        Ok(false) => Over::Interrupted,
        Err(error) => {
            keeper.fail(spent + began.elapsed());
            return Err(error);
        }
    };
    let kept = keeper.end(over, spent + began.elapsed());
    conclude(&kept, &[], &mut exports, console)
}

/// The scenarios of these names.
///
/// # Errors
/// When a name means none of them.
pub fn chosen(names: &[String]) -> anyhow::Result<Vec<Scenario>> {
    let all = Scenario::all();
    for name in names {
        if !all.iter().any(|s| s.name == *name) {
            let there: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
            return usage(format!(
                "no scenario is called {name:?}: there are {}",
                there.join(", ")
            ));
        }
    }
    Ok(all.into_iter().filter(|s| names.contains(&s.name)).collect())
}

/// Whether somebody named it: the control and the ceiling are stressed by nobody.
pub(super) fn is_named(participant: &Participant) -> bool {
    matches!(participant.role, Role::Plain | Role::Reference)
}

/// Stresses servers one after the other: only one of them runs at a time. Those that are out, and
/// what they met before, are left out. Whether it came to its end.
///
/// # Errors
/// When the system refuses what it takes.
pub fn hold(
    order: &Order,
    participants: &[Participant],
    keeper: &mut Recorder<'_>,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<bool> {
    let setting = StressSetting {
        scenarios: order.scenarios.clone(),
        timing: Timing::default(),
        good: GOOD,
        cores: order.split.clone(),
        supervisor: Supervisor::this_program("__supervisor")
            .context("cannot find hotlap's own program")?,
        logs: order.logs.clone(),
        start_limit: order.start_limit,
        grace: GRACE,
        allow_remote: order.allow_remote,
    };
    let mut live = Live::start(console);
    for participant in participants.iter().filter(|e| is_named(e)) {
        let run = keeper.so_far();
        let is_out = |s: &model::Server| s.name == participant.name && s.failure.is_some();
        let before = run.stress.iter().find(|s| s.name == participant.name).cloned();
        let before = before.unwrap_or_else(|| Subject::new(participant, GOOD));
        if run.servers.iter().any(is_out) || before.left(&setting.scenarios).is_empty() {
            continue;
        }
        let subject =
            stress(participant, &setting, before, interrupt.flag(), &mut |event| match event {
                StressEvent::Scenario { server, scenario } => {
                    live.phase(format!("{server}: {scenario}"))
                }
                StressEvent::Trial { subject } => {
                    if let Some(trial) = subject.trials.last() {
                        let verdict = trial.judgement.impact.as_str();
                        live.say(&format!("{}: {}: {verdict}", subject.name, trial.scenario));
                    }
                    keeper.stressed((*subject).clone());
                }
            });
        // What it met is kept by now.
        if subject.failure.is_some() {
            keeper.stressed(subject);
        }
        if interrupt.asked() {
            live.clear();
            return Ok(false);
        }
    }
    live.clear();
    Ok(true)
}

/// What is kept of a stress alone.
fn record(card: &Card, args: &RunArgs, grid: &Grid, split: &CpuAllocation) -> Run {
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut host = model::Host::from(&Machine::describe());
    host.doubts.extend(split.notes.iter().cloned());
    let named = |s: &&model::Server| matches!(s.role, Role::Plain | Role::Reference);
    Run {
        number: None,
        began_ms: began.as_millis() as u64,
        took_ms: 0,
        state: State::UnderWay,
        command: model::typed(),
        hotlap: env!("CARGO_PKG_VERSION").to_owned(),
        suite: card.suite.as_ref().map(|s| s.name.clone()),
        baseline: args.save_baseline.clone(),
        question: Question::Stress,
        about: card.about().to_owned(),
        contract: grid.contract.clone(),
        seed: 0,
        schedule: model::Schedule {
            restarts: 0,
            rounds: 0,
            slice_ms: None,
            probed: Vec::new(),
            budget_s: 0.0,
            precision: None,
            server_cpus: split.server.clone(),
            generator_cpus: split.generator.clone(),
            freeze: false,
        },
        host,
        loads: Vec::new(),
        servers: grid.servers.iter().filter(named).cloned().collect(),
        starts: Vec::new(),
        laps: Vec::new(),
        absent: card.absent().to_vec(),
        stress: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_chosen_by_name_and_what_is_none_is_told() {
        let two = chosen(&["garbage".to_owned(), "churn".to_owned()]).unwrap();
        assert_eq!(two.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["churn", "garbage"]);
        let error = chosen(&["garbag".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("no scenario is called \"garbag\": there are overload, churn"));
    }
}
