//! Turns the events of an experiment into a [`Run`]. Each result is added to the model and stored
//! at once. The live view shows the progress. Exports are rewritten from time to time.
//!
//! A failure to store a run, such as a full disk, is reported and never ends an experiment. The
//! table is still printed. A store that fails during the run is opened again at once and given the
//! whole run. If that fails, the store is tried again at the end. If the store stays unusable, the
//! run is stored in a separate file.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hotlap_bench::experiment::{Event, Experiment, Over};
use hotlap_bench::runner::Runner;
use hotlap_bench::schedule;
use hotlap_stats::MIN_RESTARTS;

use crate::console::Console;
use crate::export::Exports;
use crate::live::Live;
use crate::model::{Question, Role, Run, RunState, Server, Start, Subject, Unobserved, Warmup};
use crate::redact::{self, Redacted};
use crate::report::Report;
use crate::store::{Store, StoreError};
use crate::text::number::duration;

/// The shortest time between two rewrites of the exports. Each rewrite is work between laps.
const REWRITE: Duration = Duration::from_secs(5);

/// The recorder of one run.
pub struct Recorder<'a> {
    run: Redacted<Run>,
    store: Option<Store>,
    exports: &'a mut Exports,
    live: Live,
    rewritten: Instant,
    rewriting_failed: bool,
    /// The path of the store that failed, if the run is not being stored because of the failure.
    failed: Option<PathBuf>,
    /// The notes about servers that were printed, without digits.
    told: Vec<(usize, String)>,
    /// Whether the duration has grown.
    has_grown: bool,
    /// Whether the experiment has begun to measure explain laps.
    explains: bool,
}

/// The result of an experiment.
#[derive(Debug)]
pub struct Kept {
    /// The record of the run.
    pub run: Run,
    /// Why the experiment ended.
    pub over: Over,
    /// Whether the store failed and does not contain the whole run.
    pub store_failed: bool,
    /// The separate store that contains the run, if the intended one failed.
    pub rescued: Option<PathBuf>,
}

impl<'a> Recorder<'a> {
    /// Begins a record, and stores the record if there is a store.
    pub fn new(
        run: Run,
        mut store: Option<Store>,
        exports: &'a mut Exports,
        console: &'a Console,
    ) -> Result<Self, StoreError> {
        let shown = |server: &Server| match server.role {
            Role::Control => String::new(),
            Role::Plain | Role::Reference | Role::Ceiling => server.name.clone(),
        };
        let names = run.servers.iter().map(shown).collect();
        let mut run = redact::run(run);
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

    /// Runs the experiment to its end, and ends the record.
    pub fn keep(mut self, experiment: &Experiment, runner: &mut dyn Runner) -> Kept {
        let over = self.experiment(experiment, runner);
        self.end(over, experiment.past.spent + runner.elapsed())
    }

    /// Runs the experiment, and leaves the record open for a stress test.
    pub fn experiment(&mut self, experiment: &Experiment, runner: &mut dyn Runner) -> Over {
        let over = schedule::run(experiment, runner, &mut |event| self.watch(&event));
        // An interrupted run keeps its planned number of restarts, so that the run can be resumed.
        if over != Over::Interrupted {
            let laps = self.run.laps.iter().map(|l| l.restart);
            let own = self.run.explain.iter().map(|explains| explains.lap.restart);
            let restarts = match self.run.question {
                Question::Explain => own.max(),
                _ => laps.max(),
            };
            let restarts = restarts.map_or(0, |last| last + 1);
            self.run.set(restarts, |run, restarts| run.schedule.restarts = restarts);
        }
        self.live.clear();
        over
    }

    /// Returns the record so far.
    pub fn so_far(&self) -> &Run {
        &self.run
    }

    /// Returns the path of the store that contains the run. `None` if the run is not being stored.
    pub fn store_path(&self) -> Option<&Path> {
        self.store.as_ref().map(Store::path)
    }

    /// Records the stress results of a server so far.
    pub fn stressed(&mut self, subject: Subject) {
        self.run.add(redact::record(subject), |run, subject| {
            match run.stress.iter_mut().find(|known| known.name == subject.name) {
                Some(known) => *known = subject,
                None => run.stress.push(subject),
            }
        });
        self.updated();
        self.rewrite();
    }

    /// Ends the record of a run after an error of hotlap itself. Stored laps are kept.
    pub fn fail(self, over: Over, took: Duration) -> Kept {
        self.ended(RunState::Failed, over, took)
    }

    /// Ends the record.
    pub fn end(self, over: Over, took: Duration) -> Kept {
        let state = match over {
            Over::Interrupted => RunState::Interrupted,
            _ if self.run.has_valid_laps() => RunState::Finished,
            // A run without laps is only a stress test, or all of its servers failed.
            _ if self.run.laps.is_empty() && self.run.question != Question::Explain => {
                RunState::Finished
            }
            Over::Precise | Over::Certain | Over::Budget | Over::Done | Over::Nobody => {
                RunState::Invalid
            }
        };
        self.ended(state, over, took)
    }

    /// Ends the record. If the store has failed, this method tries again to store the run.
    fn ended(mut self, state: RunState, over: Over, took: Duration) -> Kept {
        let took_ms = took.as_millis() as u64;
        self.run.set((state, took_ms), |run, ended| (run.state, run.took_ms) = ended);
        self.updated();
        self.live.clear();
        let (mut store_failed, mut rescued) = (false, None);
        if let Some(store) = self.failed.take() {
            store_failed = saved(&store, &mut self.run).is_err();
            if store_failed {
                rescued = self.rescue(&store);
            }
        }
        Kept { run: self.run.into_inner(), over, store_failed, rescued }
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
            // Servers are started again for observation, with flags that may cost CPU time. These
            // starts are not recorded.
            Event::Started { .. } | Event::Warmed { .. } if self.explains_after() => {}
            Event::Started { participant, restart, ready } => {
                let (server, ready, warmups) = (participant, ready.clone(), Vec::new());
                let start = redact::record(Start { server, restart, ready, warmups });
                self.run.add(start, |run, start| run.starts.push(start));
                self.updated();
            }
            Event::Warming { participant, .. } => {
                self.live.phase(format!("warming up {}", name(&self.run, participant)));
            }
            Event::Window { participant, requests_per_s } => {
                self.live.warming(participant, requests_per_s);
            }
            Event::Warmed { participant, restart, warmup, .. } => {
                self.run.add(redact::record((participant, restart, warmup.clone())), warmed);
                self.updated();
            }
            Event::Probing { participant, .. } => {
                self.live
                    .phase(format!("choosing the slice length: {}", name(&self.run, participant)));
            }
            Event::Sliced { load, slice, ref probed } => {
                let ms = slice.as_secs_f64() * 1e3;
                self.run.set((load, ms), |run, (load, ms)| {
                    // A resumed run may already have this length.
                    match run.schedule.slices_ms.get_mut(load) {
                        Some(own) => *own = ms,
                        None => run.schedule.slices_ms.push(ms),
                    }
                });
                // A load of a resumed run that already has a slice length is not probed.
                for own in probed {
                    self.run.set(*own, |run, own| run.schedule.probed.push(own));
                }
                self.updated();
            }
            Event::Lapping { participant, .. } => {
                self.live.running(participant);
                self.live.phase(format!("measuring {}", name(&self.run, participant)));
            }
            Event::Lap(lap) => {
                self.live.lap(lap);
                self.run.add(redact::lap(lap.clone()), |run, lap| run.laps.push(lap));
                self.stored(Store::add_lap);
            }
            Event::ExplainLap(own) => {
                self.run.add(redact::explain_lap(own.clone()), |run, own| run.explain.push(own));
                self.stored(Store::add_explain_lap);
            }
            Event::Unobserved { participant, why } => {
                let found = Unobserved { server: participant, error: why.clone() };
                self.run.add(redact::record(found), |run, found| {
                    let missing = &mut run.schedule.observing.missing;
                    // Each restart reports the same missing observation again.
                    if !missing.contains(&found) {
                        missing.push(found);
                    }
                });
                self.updated();
            }
            Event::Extended { budget } => {
                let duration_s = budget.as_secs_f64();
                self.run.set(duration_s, |run, duration_s| run.schedule.duration_s = duration_s);
                self.updated();
                self.extended(budget);
            }
            Event::TooShort { needed } => {
                let needed_s = needed.as_secs_f64();
                self.run.set(needed_s, |run, needed_s| run.schedule.needed_s = Some(needed_s));
                self.updated();
                self.live.say(&format!(
                    "A verdict needs {MIN_RESTARTS} restarts, which take longer here than \
                     --duration allows. Use --duration {} for a verdict, or --restarts 1 for \
                     figures without one.",
                    duration(needed)
                ));
            }
            Event::Round { left, .. } => {
                self.live.left(left);
                self.rewrite();
            }
            Event::ServerFailure { participant, why } => {
                let failure = redact::record((participant, why.clone()));
                self.run.add(failure, |run, (server, why)| {
                    run.servers[server].failure = Some(why);
                });
                self.updated();
                self.live.say(&format!("{} failed: {why}", name(&self.run, participant)));
            }
            Event::Unclean { participant, ref what } => self.unclean(participant, what),
        }
    }

    /// Prints a note about a server, such as an unclean stop. Each note is printed once, because
    /// later restarts may repeat the note.
    fn unclean(&mut self, participant: usize, what: &str) {
        let told = (participant, what.replace(|c: char| c.is_ascii_digit(), ""));
        if !self.told.contains(&told) {
            self.live.say(&format!("{}: {what}", self.run.servers[participant].name));
            self.told.push(told);
        }
    }

    /// Whether the current laps explain the results of earlier laps.
    fn explains_after(&self) -> bool {
        self.explains && self.run.question != Question::Explain
    }

    /// Stores what has changed, except for laps.
    fn updated(&mut self) {
        self.stored(Store::update);
    }

    /// Says once that the measurement takes longer than announced.
    fn extended(&mut self, budget: Duration) {
        if std::mem::replace(&mut self.has_grown, true) {
            return;
        }
        self.live.say(&format!(
            "Rounds or starts take longer than expected, so measuring takes about {:.0} s in all, \
             without the first start.",
            budget.as_secs_f64()
        ));
    }

    /// Stores the latest change of the run. If the store fails, it is opened again to store the
    /// whole run.
    fn stored(&mut self, act: fn(&mut Store, &Redacted<Run>) -> Result<(), StoreError>) {
        let Some(store) = &mut self.store else { return };
        let path = store.path().to_owned();
        let error = match store.is_gone() {
            true => format!("the store {} was removed or replaced", path.display()),
            false => match act(store, &self.run) {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
        };
        // The old connection is closed first, because its locks would block the new one.
        self.store = None;
        match saved(&path, &mut self.run) {
            Ok(store) => {
                self.live.say(&format!(
                    "Warning: {error}. hotlap opened the store again, and stored all laps so far."
                ));
                self.store = Some(store);
            }
            Err(_) => {
                self.live
                    .say(&format!("Warning: {error}. The run continues in memory until its end."));
                self.failed = Some(path);
            }
        }
    }

    /// Stores a run in a new file, because its store failed. Tries the folder of the store, then
    /// the current folder, and then the folder for temporary files.
    fn rescue(&mut self, store: &Path) -> Option<PathBuf> {
        let name = format!("hotlap-run-{}-{}.db", self.run.began_ms, std::process::id());
        let beside = store.parent().unwrap_or(Path::new("")).to_owned();
        for folder in [beside, PathBuf::new(), std::env::temp_dir()] {
            let path = folder.join(&name);
            // An existing file, or a symbolic link in a shared folder, is never used.
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
        // The error is reported once. At the end, exports are written again, and an error is
        // reported again.
        if let Err(error) = self.exports.rewrite(&Report::of(&self.run))
            && !std::mem::replace(&mut self.rewriting_failed, true)
        {
            self.live.say(&format!("Warning: {error:#}"));
        }
        self.rewritten = Instant::now();
    }
}

/// Begins a run in a store, or continues a run that already has a number. A store that was removed
/// since it was opened is created again.
fn begun(mut store: Store, run: &mut Redacted<Run>) -> Result<Store, StoreError> {
    if store.is_gone() {
        let path = store.path().to_owned();
        // The locks of the old connection would block the new connection.
        drop(store);
        return saved(&path, run);
    }
    match run.number {
        Some(_) => {
            run.set(RunState::UnderWay, |run, state| (run.state, run.took_ms) = (state, 0));
            store.update(run)?;
        }
        None => run.set(store.begin(run)?, |run, number| run.number = Some(number)),
    }
    Ok(store)
}

/// Opens a store, stores the whole run in it, and notes the number of the run there.
fn saved(path: &Path, run: &mut Redacted<Run>) -> Result<Store, StoreError> {
    let mut store = Store::open(path)?;
    run.set(store.save(run)?, |run, number| run.number = Some(number));
    Ok(store)
}

/// Adds a warm-up to the last start of its server.
fn warmed(run: &mut Run, (server, restart, warmup): (usize, u32, Warmup)) {
    let mut starts = run.starts.iter_mut().rev();
    if let Some(start) = starts.find(|s| s.server == server && s.restart == restart) {
        start.warmups.push(warmup);
    }
}
