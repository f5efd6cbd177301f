//! `hotlap run`: servers named, an experiment held, a table and a sentence.

pub mod announcement;
pub mod card;
pub mod grid;
mod logs;
pub mod named;
pub mod resume;
pub mod rule;
pub mod stress;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use hotlap_bench::experiment::{Experiment, Over, Place};
use hotlap_bench::local::{LocalRunner, Setting, allow_files};
use hotlap_bench::participant::Role;
use hotlap_bench::runner::Runner;
use hotlap_bench::suite;
use hotlap_servers::allocation::{self, CpuAllocation};
use hotlap_servers::machine;
use hotlap_servers::process::Supervisor;

use crate::cli::RunArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Exports;
use crate::interrupt::Interrupt;
use crate::model::{self, Run, State};
use crate::paths;
use crate::recorder::{Kept, Recorder};
use crate::render::terminal;
use crate::report::Report;
use crate::store::Store;
use card::Card;
use grid::Grid;
pub use logs::Logs;
use rule::{Rule, Ruling};
use stress::Order;

/// The time to spend where nobody says: for up to so many servers, double and ceiling included, and
/// for each further one. Four take 3 s a round and 4 s a restart, so a minute has five restarts of
/// three rounds in it.
const BUDGET: (Duration, usize, Duration) = (Duration::from_secs(60), 4, Duration::from_secs(25));

/// Probes that settle how long slices are may take this part of the budget, at each length that is
/// tried: one in so many.
pub const PROBING: u32 = 5;

/// How long a server may take to its first answer where `--start-timeout` says nothing else: a JVM
/// that compiles a language first takes many seconds on a busy machine.
pub const START_LIMIT: Duration = Duration::from_secs(120);

/// How long a server may take to end in peace.
pub const GRACE: Duration = Duration::from_secs(5);

/// What was typed, and what of it is meant.
struct Meant {
    card: Card,
    experiment: Experiment,
    split: CpuAllocation,
    rules: Vec<Rule>,
    exports: Exports,
    store: Option<Store>,
}

/// Holds an experiment.
///
/// # Errors
/// When the command line makes no sense, a file or the store cannot be written, or the system
/// refuses.
pub fn run(args: RunArgs, console: &Console) -> anyhow::Result<Exit> {
    let card = Card::of(&args)?;
    if args.stress || card.question == suite::Question::Stress {
        return stress::run(&card, &args, console);
    }
    let mut meant = meant(&args, card, console)?;
    let earlier = resume::asked(args.resume, &meant.card, meant.store.as_ref())?;
    let interrupt = Interrupt::listen()?;
    let grid = Grid::of(&meant.card, &args, &interrupt, console)?;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    let is_named = |s: &&model::Server| !matches!(s.role, Role::Control | Role::Ceiling);
    if !meant.rules.is_empty() && grid.servers.iter().filter(is_named).count() < 2 {
        return usage("--fail-if compares servers with each other: name at least two");
    }
    let host = machine::Machine::describe();
    let (pinned, anyone) = (!grid.all_run_already(), !grid.participants.is_empty());
    if !pinned {
        meant.split = unpinned();
    }
    meant.experiment.participants = grid.participants.clone();
    allow_files(meant.experiment.participants.len(), &meant.experiment.loads)
        .map_err(anyhow::Error::msg)?;
    meant.experiment.budget = meant.card.budget.unwrap_or_else(|| usual_budget(&meant.experiment));
    let mut run = record(&args, &meant, &grid, &host);
    if let Some(earlier) = earlier {
        resume::go_on(&mut meant.experiment, &earlier, &run)?;
        run = Run { state: State::UnderWay, ..earlier };
    }
    let scenarios = meant.card.scenarios();
    console.note(&announcement::of(&run, &meant.experiment, scenarios, meant.store.as_ref()));
    let logs = Logs::new()?;
    let setting = setting(&args, &meant, &run, logs.folder().to_owned())?;
    let mut runner = LocalRunner::new(
        setting,
        &meant.experiment.participants,
        &meant.experiment.loads,
        interrupt.shared(),
    );
    let mut keeper = Recorder::new(run, meant.store.take(), &mut meant.exports, console)?;
    let is_raced = !keeper.so_far().stress.is_empty();
    let mut over = match anyone {
        false => Over::Nobody,
        true if is_raced => Over::Done,
        true => keeper.experiment(&meant.experiment, &mut runner),
    };
    let then = Order {
        scenarios: meant.card.scenarios().to_vec(),
        split: meant.split.clone(),
        allow_remote: args.shape.allow_remote,
        start_limit: args.shape.start_timeout,
        logs: logs.folder().to_owned(),
    };
    if over != Over::Interrupted && !then.scenarios.is_empty() {
        match stress::hold(&then, &grid.participants, &mut keeper, &interrupt, console) {
            Ok(true) => {}
            Ok(false) => over = Over::Interrupted,
            Err(error) => {
                keeper.fail(meant.experiment.past.spent + runner.elapsed());
                return Err(error);
            }
        }
    }
    let took = meant.experiment.past.spent + runner.elapsed();
    let kept = keeper.end(over, took);
    conclude(&kept, &meant.rules, &mut meant.exports, console)
}

/// Prints the table and the exports of an experiment that is over, and says how it ended.
///
/// # Errors
/// When standard output or an export cannot be written.
pub fn conclude(
    kept: &Kept,
    rules: &[Rule],
    exports: &mut Exports,
    console: &Console,
) -> anyhow::Result<Exit> {
    let mut report = Report::of(&kept.run);
    let ruling = Ruling::on(&report, rules);
    report.broken.clone_from(&ruling.broken);
    let printed = console.result(exports.to_stdout(), |color| {
        let mut text = terminal::render(&report, console.width, color);
        if let Some(number) = kept.run.number.filter(|_| !kept.store_failed && !console.quiet) {
            text += &format!(
                "  Run {number} stored. Look at it: hotlap report {number} --export-html \
                 report.html\n"
            );
        }
        text
    });
    // Each of these is tried, whatever becomes of the others.
    let exported = exports.finish(&report);
    if kept.store_failed {
        console.warn(&match &kept.rescued {
            Some(path) => format!(
                "Warning: the store failed. The run is in a store of its own: hotlap report --store \
                 {}",
                shell_words::quote(&path.to_string_lossy())
            ),
            None => "Warning: the store failed, and no other place took the run: what is printed \
                     and exported here is all that is left of it"
                .to_owned(),
        });
    }
    exported?;
    // With `hotlap run | head`, or a terminal that was closed, nobody reads the table. Exports and
    // the exit code are as they would have been.
    if let Err(error) = printed
        && error.kind() != std::io::ErrorKind::BrokenPipe
        && kept.over != Over::Interrupted
    {
        return Err(error.into());
    }
    let mut exit = match () {
        () if kept.over == Over::Interrupted => Exit::Interrupted,
        () if kept.run.servers.iter().any(|s| s.failure.is_some()) => Exit::ServerFailed,
        () if has_wrong_responses(&report) => Exit::ServerFailed,
        () if report.stress.as_ref().is_some_and(|s| !s.all_stand()) => Exit::ServerFailed,
        () if kept.run.question == suite::Question::Stress => Exit::Ok,
        () if !is_measured(&report) => Exit::Invalid,
        () => Exit::Ok,
    };
    if kept.store_failed {
        exit = exit.and(Exit::Error);
    }
    ruling.sentences().for_each(|sentence| console.warn(sentence));
    Ok(exit.and(ruling.exit()))
}

/// Whether a server sent wrong responses.
fn has_wrong_responses(report: &Report) -> bool {
    report.tables.iter().flat_map(|t| &t.rows).any(|row| row.wrong_responses > 0)
}

/// Whether every server that took part has a figure under every load.
fn is_measured(report: &Report) -> bool {
    let rows = || report.tables.iter().flat_map(|t| &t.rows);
    rows().next().is_some() && rows().all(|row| row.requests_per_s.is_some())
}

/// Everything that can be wrong with the command line is found here, before anything is started.
fn meant(args: &RunArgs, card: Card, console: &Console) -> anyhow::Result<Meant> {
    let schedule = &args.schedule;
    let split = if schedule.no_pin { unpinned() } else { allocation::split_here(card.cpus) };
    if schedule.restarts == Some(0) || schedule.rounds == Some(0) {
        return usage("0 restarts or rounds measure nothing: use at least 1");
    }
    let experiment = Experiment {
        participants: Vec::new(),
        loads: card.loads(split.generator.len().max(1))?,
        budget: card.budget.unwrap_or(BUDGET.0),
        precision: card.precision,
        restarts: schedule.restarts,
        rounds: schedule.rounds,
        slice: card.slice,
        paced: true,
        rate: args.shape.rate,
        seed: schedule.seed.unwrap_or_else(fresh_seed),
        from: Place::default(),
        past: hotlap_bench::experiment::Past::default(),
    };
    let is_rated = experiment.loads.iter().all(|load| load.rate.is_some());
    if experiment.rate.is_some() && is_rated {
        return usage(
            "--rate is for closed loops, and the suite gives each load a rate: leave it out",
        );
    }
    let rules = args.fail_if.iter().map(|r| Rule::parse(r)).collect::<anyhow::Result<Vec<_>>>()?;
    let exports = Exports::open(&args.exports)?;
    let store = store(args, console)?;
    Ok(Meant { card, experiment, split, rules, exports, store })
}

/// The store of a run, unless it is to have none. The usual one is a convenience: where it cannot
/// be written (no home, a read-only home), the run goes on without it. One that was named must
/// work.
///
/// # Errors
/// When the store was named and cannot be used, or is damaged or of a newer hotlap.
fn store(args: &RunArgs, console: &Console) -> anyhow::Result<Option<Store>> {
    if args.no_store {
        return Ok(None);
    }
    let Some(path) = args.store.store.clone().or_else(paths::store) else {
        console.warn(
            "Warning: this run will not be stored, as neither HOME nor XDG_DATA_HOME says where: \
             name a file with --store",
        );
        return Ok(None);
    };
    match Store::open(&path) {
        Ok(store) => Ok(Some(store)),
        Err(why) if args.store.store.is_none() && why.is_about_its_place() => {
            console.warn(&format!("Warning: this run will not be stored: {why}"));
            Ok(None)
        }
        Err(why) => Err(anyhow::anyhow!("{why}; --no-store runs without one")),
    }
}

/// What an experiment takes that nobody gave a budget.
fn usual_budget(experiment: &Experiment) -> Duration {
    let (least, servers, each) = BUDGET;
    let rows = experiment.participants.len() * experiment.loads.len().max(1);
    least + each * u32::try_from(rows.saturating_sub(servers)).unwrap_or(u32::MAX)
}

fn unpinned() -> CpuAllocation {
    CpuAllocation { server: Vec::new(), generator: Vec::new(), shared: false, notes: Vec::new() }
}

/// A seed that nobody chose; it is stored, so the order can be had again.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // Below 2⁵³, so that it survives every reader of JSON.
    RandomState::new().hash_one(std::process::id()) >> 11
}

/// How long one of so many warm-ups of the first restart may take: its part of a quarter of the
/// budget, or what a virtual machine needs that compiles on the core on which it answers, as far as
/// a quarter of the budget pays for one of these. Most servers are steady after two seconds.
fn warm_limit(budget: Duration, warm_ups: u32) -> Duration {
    const COMPILED: Duration = Duration::from_secs(12);
    let quarter = budget / 4;
    (quarter / warm_ups)
        .max(quarter.min(COMPILED))
        .clamp(Duration::from_secs(2), Duration::from_secs(20))
}

fn setting(args: &RunArgs, meant: &Meant, run: &Run, logs: PathBuf) -> anyhow::Result<Setting> {
    let experiment = &meant.experiment;
    let laps = (experiment.participants.len() * experiment.loads.len()).max(1) as u32;
    Ok(Setting {
        slice: experiment.slice,
        probe_limit: experiment.budget / PROBING,
        timeout: args.shape.timeout,
        start_limit: args.shape.start_timeout,
        warm_limit: warm_limit(experiment.budget, laps),
        grace: GRACE,
        freeze: !args.schedule.no_freeze,
        counters: true,
        cores: meant.split.clone(),
        supervisor: Supervisor::this_program("__supervisor")
            .context("cannot find hotlap's own program")?,
        logs,
        against: against(run),
    })
}

/// Which servers the steps are compared with: those they stand on.
fn against(run: &Run) -> BTreeMap<usize, usize> {
    let is_layers = run.question == suite::Question::Layers;
    let steps = run.servers.iter().enumerate().filter(|_| is_layers);
    steps.filter_map(|(n, server)| Some((n, server.part.on?))).collect()
}

fn record(args: &RunArgs, meant: &Meant, grid: &Grid, host: &machine::Machine) -> Run {
    let experiment = &meant.experiment;
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut host = model::Host::from(host);
    host.doubts.extend(meant.split.notes.iter().cloned());
    Run {
        number: None,
        began_ms: began.as_millis() as u64,
        took_ms: 0,
        state: State::UnderWay,
        command: model::typed().into_iter().chain(args.from_config.iter().cloned()).collect(),
        hotlap: env!("CARGO_PKG_VERSION").to_owned(),
        baseline: args.save_baseline.clone(),
        suite: meant.card.suite.as_ref().map(|s| s.name.clone()),
        question: meant.card.question,
        about: meant.card.about().to_owned(),
        contract: grid.contract.clone(),
        seed: experiment.seed,
        schedule: model::Schedule {
            restarts: experiment.restarts.unwrap_or(0),
            rounds: experiment.rounds.unwrap_or(0),
            slice_ms: experiment.slice.map(|slice| slice.as_secs_f64() * 1e3),
            probed: Vec::new(),
            budget_s: experiment.budget.as_secs_f64(),
            precision: experiment.precision,
            server_cpus: meant.split.server.clone(),
            generator_cpus: meant.split.generator.clone(),
            freeze: !args.schedule.no_freeze,
        },
        host,
        loads: meant.card.described(&experiment.loads, &experiment.participants),
        servers: grid.servers.clone(),
        starts: Vec::new(),
        laps: Vec::new(),
        absent: meant.card.absent().to_vec(),
        stress: Vec::new(),
    }
}
