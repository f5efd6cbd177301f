//! Turns the events of an experiment into a [`Run`]. Each event becomes part of the model and goes
//! to the store and the live view at once; exports are rewritten from time to time.
//!
//! A failure to store (a full disk) is reported once and never ends an experiment: the table is
//! still printed. A store that fails during the run is opened again and given the whole run, at
//! once and, if that fails, at the end. If it stays unusable, the run is stored in a file of its
//! own.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hotlap_bench::experiment::{Event, Experiment, Over};
use hotlap_bench::runner::Runner;
use hotlap_bench::schedule;
use hotlap_stats::MIN_RESTARTS;

use crate::console::Console;
use crate::export::Exports;
use crate::live::{Live, Seen};
use crate::model::{
    ExplainLap, Lap, Missing, Question, Role, Run, Server, ServerFailure, Start, State, Subject,
    Warmup,
};
use crate::redact;
use crate::report::Report;
use crate::store::{Store, StoreError};
use crate::text::number::duration;

/// How often exports are rewritten during an experiment, since each rewrite is work between laps.
const REWRITE: Duration = Duration::from_secs(5);

/// The recorder of one run.
pub struct Recorder<'a> {
    run: Run,
    store: Option<Store>,
    exports: &'a mut Exports,
    live: Live,
    rewritten: Instant,
    rewriting_failed: bool,
    /// The store that failed, if runs are not being stored at the moment.
    failed: Option<PathBuf>,
    /// Notes about servers that did not stop in time, without their numbers; each is printed once.
    told: Vec<(usize, String)>,
    /// Whether the budget has grown.
    has_grown: bool,
    /// Whether laps explain by now.
    explains: bool,
}

/// The result of an experiment.
#[derive(Debug)]
pub struct Kept {
    /// The record of the run.
    pub run: Run,
    /// Why it ended.
    pub over: Over,
    /// Whether the store failed and does not contain the run.
    pub store_failed: bool,
    /// The separate store that contains the run, if the intended one failed.
    pub rescued: Option<PathBuf>,
}

impl<'a> Recorder<'a> {
    /// Begins a record, and stores it if there is a store.
    pub fn new(
        mut run: Run,
        mut store: Option<Store>,
        exports: &'a mut Exports,
        console: &'a Console,
    ) -> Result<Self, StoreError> {
        let shown = |server: &Server| match server.role {
            Role::Control => String::new(),
            Role::Plain | Role::Reference | Role::Ceiling => server.name.clone(),
        };
        let names = run.servers.iter().map(shown).collect();
        if let Some(open) = store.take() {
            store = Some(begun(open, &mut run)?);
        }
        Ok(Self {
            run,
            store,
            exports,
            live: Live::experiment(console, names),
            rewritten: Instant::now(),
            rewriting_failed: false,
            failed: None,
            told: Vec::new(),
            has_grown: false,
            explains: false,
        })
    }

    /// Runs the experiment to its end.
    pub fn keep(mut self, experiment: &Experiment, runner: &mut dyn Runner) -> Kept {
        let over = self.experiment(experiment, runner);
        self.end(over, experiment.past.spent + runner.elapsed())
    }

    /// Runs the experiment, and leaves the record open for a stress run after it.
    pub fn experiment(&mut self, experiment: &Experiment, runner: &mut dyn Runner) -> Over {
        let over = schedule::run(experiment, runner, &mut |event| self.watch(&event));
        let laps = self.run.laps.iter().map(|l| l.restart);
        let own = self.run.explain.iter().map(|explains| explains.lap.restart);
        let restarts = match self.run.question {
            Question::Explain => own.max(),
            _ => laps.max(),
        };
        self.run.schedule.restarts = restarts.map_or(0, |last| last + 1);
        self.live.clear();
        over
    }

    /// The record so far.
    pub fn so_far(&self) -> &Run {
        &self.run
    }

    /// The store that the run goes to, if any.
    pub fn store_path(&self) -> Option<&Path> {
        self.store.as_ref().map(Store::path)
    }

    /// Records the stress results of a server so far.
    pub fn stressed(&mut self, subject: Subject) {
        let stress = &self.run.stress;
        let known = stress.iter().position(|s| s.name == subject.name);
        let sequence = known.unwrap_or(stress.len());
        let subject = redact::record(subject);
        match self.run.stress.get_mut(sequence) {
            Some(place) => *place = subject,
            None => self.run.stress.push(subject),
        }
        self.updated();
        self.rewrite();
    }

    /// Ends the record of a run that an error of hotlap itself ends; finished laps are kept.
    pub fn fail(mut self, took: Duration) {
        self.run.state = State::Failed;
        self.run.took_ms = took.as_millis() as u64;
        self.updated();
        self.live.clear();
    }

    /// Ends the record.
    pub fn end(mut self, over: Over, took: Duration) -> Kept {
        self.run.took_ms = took.as_millis() as u64;
        self.run.state = match over {
            Over::Interrupted => State::Interrupted,
            // A stress run without a measurement has no laps.
            _ if self.run.has_valid_laps() => State::Finished,
            _ if self.run.laps.is_empty() && self.run.question != Question::Explain => {
                State::Finished
            }
            Over::Precise | Over::Budget | Over::Done | Over::Nobody => State::Invalid,
        };
        self.updated();
        self.live.clear();
        let (mut store_failed, mut rescued) = (false, None);
        if let Some(store) = self.failed.take() {
            store_failed = saved(&store, &mut self.run).is_err();
            if store_failed {
                rescued = self.rescue(&store);
            }
        }
        Kept { run: self.run, over, store_failed, rescued }
    }

    fn watch(&mut self, event: &Event) {
        let name = |run: &Run, i: usize| run.servers[i].name.clone();
        match *event {
            Event::Restart { restart } => self.live.restart(restart),
            Event::Starting { participant } => {
                self.live.phase(format!("starting {}", name(&self.run, participant)));
            }
            Event::Verifying => self.live.phase("verifying responses".to_owned()),
            Event::Explaining => self.explains = true,
            // Servers that are started to be observed may have flags that cost something.
            Event::Started { .. } | Event::Warmed { .. } if self.explains_after() => {}
            Event::Started { participant, restart, ready } => {
                let (ready, warmups) = (redact::record(ready.clone()), Vec::new());
                self.run.starts.push(Start { server: participant, restart, ready, warmups });
                self.updated();
            }
            Event::Warming { participant, .. } => {
                self.live.phase(format!("warming up {}", name(&self.run, participant)));
            }
            Event::Window { participant, requests_per_s } => {
                self.live.warming(participant, requests_per_s);
            }
            Event::Warmed { participant, restart, warmup, .. } => {
                self.warmed(participant, restart, warmup.clone());
            }
            Event::Probing { participant, .. } => {
                self.live
                    .phase(format!("choosing the slice length: {}", name(&self.run, participant)));
            }
            Event::Sliced { slice, ref probed } => {
                self.run.schedule.slice_ms = Some(slice.as_secs_f64() * 1e3);
                // A resumed run already has a slice length and does not probe.
                self.run.schedule.probed.extend(probed);
                self.updated();
            }
            Event::Lapping { participant, .. } => {
                self.live.running(participant);
                self.live.phase(format!("measuring {}", name(&self.run, participant)));
            }
            Event::Lap(lap) => {
                let lap = redact::lap(lap.clone());
                if lap.counts() && lap.load == 0 {
                    self.live.lap(seen(&lap));
                }
                let sequence = self.run.laps.len();
                self.run.laps.push(lap);
                self.stored(|store, run, number| store.lap(number, sequence, &run.laps[sequence]));
            }
            Event::ExplainLap(explains) => self.explained(explains),
            Event::Unobserved { participant, why } => {
                self.unobserved(Missing::new(participant, why));
            }
            Event::Extended { budget } => {
                self.run.schedule.budget_s = budget.as_secs_f64();
                self.updated();
                self.extended(budget);
            }
            Event::TooShort { needed } => self.live.say(&format!(
                "A verdict needs {MIN_RESTARTS} restarts, which take longer here than --duration \
                 allows. Use --duration {} for a verdict, or --restarts 1 for figures without one.",
                duration(needed)
            )),
            Event::Round { left, .. } => {
                self.live.left(left);
                self.rewrite();
            }
            Event::ServerFailure { participant, why } => {
                let failure: ServerFailure = redact::record(why.clone());
                self.run.servers[participant].failure = Some(failure);
                self.updated();
                self.live.say(&format!("{} failed: {why}", name(&self.run, participant)));
            }
            Event::Unclean { participant, ref what } => self.unclean(participant, what),
        }
    }

    /// Says that a server did not stop as it should have. The note is the same in every restart:
    /// once is enough.
    fn unclean(&mut self, participant: usize, what: &str) {
        let told = (participant, what.replace(|c: char| c.is_ascii_digit(), ""));
        if !self.told.contains(&told) {
            self.live.say(&format!("{}: {what}", self.run.servers[participant].name));
            self.told.push(told);
        }
    }

    /// Whether the laps under way explain the results of earlier ones.
    fn explains_after(&self) -> bool {
        self.explains && self.run.question != Question::Explain
    }

    fn explained(&mut self, explains: &ExplainLap) {
        let lap = redact::lap(explains.lap.clone());
        let sequence = self.run.explain.len();
        self.run.explain.push(ExplainLap { lap, observation: explains.observation.clone() });
        self.stored(|store, run, number| {
            store.explain_lap(number, sequence, &run.explain[sequence])
        });
    }

    /// Records once that something of a server cannot be observed.
    fn unobserved(&mut self, missing: Missing) {
        if self.run.schedule.observing.missing.contains(&missing) {
            return;
        }
        self.run.schedule.observing.missing.push(missing);
        self.updated();
    }

    /// Stores what has changed, except for laps.
    fn updated(&mut self) {
        self.stored(|store, run, _| store.update(run));
    }

    /// Says once that the measurement takes longer than announced.
    fn extended(&mut self, budget: Duration) {
        if std::mem::replace(&mut self.has_grown, true) {
            return;
        }
        self.live.say(&format!(
            "Rounds and starts take longer than expected: enough of them for a verdict take about \
             {} s. --duration limits it.",
            budget.as_secs()
        ));
    }

    fn warmed(&mut self, server: usize, restart: u32, warmup: Warmup) {
        let mut starts = self.run.starts.iter_mut().rev();
        let Some(start) = starts.find(|s| s.server == server && s.restart == restart) else {
            return;
        };
        start.warmups.push(warmup);
        self.updated();
    }

    /// Stores the latest addition, which is already in the run.
    fn stored(&mut self, act: impl FnOnce(&mut Store, &Run, u64) -> Result<(), StoreError>) {
        let (Some(store), Some(number)) = (self.store.as_mut(), self.run.number) else { return };
        let path = store.path().to_owned();
        let error = match store.is_gone() {
            true => format!("the store {} was removed or replaced", path.display()),
            false => match act(store, &self.run, number) {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
        };
        // The old connection is closed first, because its locks would block the new one.
        self.store = None;
        match saved(&path, &mut self.run) {
            Ok(store) => {
                self.live.say(&format!("Warning: {error}. It was created again; nothing is lost."));
                self.store = Some(store);
            }
            Err(_) => {
                self.live
                    .say(&format!("Warning: {error}. The run continues in memory until its end."));
                self.failed = Some(path);
            }
        }
    }

    /// Stores a run whose store failed in a new file: in the same folder, the current one, or the
    /// one for temporary files, whichever works first.
    fn rescue(&mut self, store: &Path) -> Option<PathBuf> {
        let name = format!("hotlap-run-{}-{}.db", self.run.began_ms, std::process::id());
        let beside = store.parent().unwrap_or(Path::new("")).to_owned();
        for folder in [beside, PathBuf::new(), std::env::temp_dir()] {
            let path = folder.join(&name);
            // Never an existing file, nor a symbolic link in a shared folder.
            let fresh = OpenOptions::new().write(true).create_new(true).open(&path);
            if fresh.is_ok() && saved(&path, &mut self.run).is_ok() {
                return Some(path);
            }
            if fresh.is_ok() {
                let _ = std::fs::remove_file(&path);
            }
        }
        None
    }

    fn rewrite(&mut self) {
        if self.exports.is_empty() || self.rewritten.elapsed() < REWRITE {
            return;
        }
        // Reported once; storing is tried again, and reported again, at the end.
        if let Err(error) = self.exports.rewrite(&Report::of(&self.run))
            && !std::mem::replace(&mut self.rewriting_failed, true)
        {
            self.live.say(&format!("Warning: {error:#}"));
        }
        self.rewritten = Instant::now();
    }
}

/// Begins a run in a store, or continues one that has a number. A store that was removed since it
/// was opened is created again.
fn begun(mut store: Store, run: &mut Run) -> Result<Store, StoreError> {
    if store.is_gone() {
        let path = store.path().to_owned();
        // Its locks would block the new connection.
        drop(store);
        return saved(&path, run);
    }
    match run.number {
        Some(_) => {
            (run.state, run.took_ms) = (State::UnderWay, 0);
            store.update(run)?;
        }
        None => run.number = Some(store.begin(run)?),
    }
    Ok(store)
}

/// Opens a store and stores the whole run in it, under a new number there.
fn saved(path: &Path, run: &mut Run) -> Result<Store, StoreError> {
    let mut store = Store::open(path)?;
    run.number = Some(store.save(run)?);
    Ok(store)
}

/// What the live view shows of a lap.
fn seen(lap: &Lap) -> Seen {
    Seen {
        server: lap.server,
        restart: lap.restart,
        round: lap.round,
        requests_per_s: lap.requests_per_s(),
        cost_ns: lap.cost_ns(),
        busy: lap.outcome.busiest(),
        late_ns: lap.rate().map(|_| lap.outcome.lag.quantile(0.99)),
    }
}
