//! Stands between a race and all that is kept of it: each event becomes a record, each record goes
//! to the store at once, exports are rewritten, the live line is told.
//!
//! What fails here (a full disk) is told once and never ends a race: its table is printed all the
//! same.

use std::time::{Duration, Instant};

use hotlap_harness::race::{self, Event, Over, Race};
use hotlap_harness::track::Track;

use crate::console::Console;
use crate::export::Exports;
use crate::live::{Live, Seen};
use crate::record::{Lap, Role, Run, Server, Start, State, Subject, Warmup};
use crate::report::Report;
use crate::store::{Store, StoreError};

/// How often exports are rewritten while a race is under way: each rewriting is work between laps.
const REWRITE: Duration = Duration::from_secs(5);

/// Keeps the time, and all else.
pub struct Timekeeper<'a> {
    run: Run,
    store: Option<Store>,
    exports: &'a mut Exports,
    console: &'a Console,
    live: Live,
    rewritten: Instant,
    store_failed: bool,
    /// What was said of servers that did not stop as they should have, without its numbers.
    told: Vec<(usize, String)>,
}

/// What is left when a race is over.
#[derive(Debug)]
pub struct Kept {
    /// The record of the run.
    pub run: Run,
    /// Why it is over.
    pub over: Over,
    /// Whether the store failed on the way.
    pub store_failed: bool,
}

impl<'a> Timekeeper<'a> {
    /// Begins a record; stores it if there is a store.
    ///
    /// # Errors
    /// When the store refuses: nothing is measured yet, so nothing is lost.
    pub fn new(
        mut run: Run,
        mut store: Option<Store>,
        exports: &'a mut Exports,
        console: &'a Console,
    ) -> Result<Self, StoreError> {
        let shown = |server: &Server| match server.role {
            Role::Double => String::new(),
            Role::Contestant | Role::Reference | Role::Ceiling => server.name.clone(),
        };
        let names = run.servers.iter().map(shown).collect();
        run.number = match (store.as_mut(), run.number) {
            (None, _) => None,
            (Some(store), None) => Some(store.begin(&run)?),
            // It goes on.
            (Some(store), Some(number)) => store.reopen(number).map(|()| Some(number))?,
        };
        Ok(Self {
            run,
            store,
            exports,
            console,
            live: Live::race(console, names),
            rewritten: Instant::now(),
            store_failed: false,
            told: Vec::new(),
        })
    }

    /// Runs the race to its end.
    pub fn keep(mut self, race: &Race, track: &mut dyn Track) -> Kept {
        let over = self.race(race, track);
        self.end(over, race.past.spent + track.elapsed())
    }

    /// Runs the race, and leaves the record open for what follows it.
    pub fn race(&mut self, race: &Race, track: &mut dyn Track) -> Over {
        let over = race::run(race, track, &mut |event| self.watch(&event));
        self.run.schedule.heats = self.run.laps.iter().map(|l| l.heat + 1).max().unwrap_or(0);
        self.live.clear();
        over
    }

    /// What is recorded by now.
    #[must_use]
    pub fn so_far(&self) -> &Run {
        &self.run
    }

    /// Records what became of a server under stress so far.
    pub fn stressed(&mut self, subject: Subject) {
        let stress = &self.run.stress;
        let known = stress.iter().position(|s| s.name == subject.name);
        let sequence = known.unwrap_or(stress.len());
        self.stored(|store, number| store.stress(number, sequence, &subject));
        match self.run.stress.get_mut(sequence) {
            Some(place) => *place = subject,
            None => self.run.stress.push(subject),
        }
        self.rewrite();
    }

    /// Ends the record of a run that an error of hotlap itself ends; what was measured is kept.
    pub fn fail(mut self, took: Duration) {
        self.run.state = State::Failed;
        let took_ms = took.as_millis() as u64;
        self.stored(|store, number| store.end(number, State::Failed, took_ms));
        self.live.clear();
    }

    /// Ends the record.
    #[must_use]
    pub fn end(mut self, over: Over, took: Duration) -> Kept {
        self.run.took_ms = took.as_millis() as u64;
        self.run.state = match over {
            Over::Interrupted => State::Interrupted,
            // A stress alone has no laps.
            _ if self.run.laps.is_empty() || self.run.has_valid_laps() => State::Finished,
            Over::Precise | Over::Budget | Over::Done | Over::Nobody => State::Invalid,
        };
        let (state, took_ms) = (self.run.state, self.run.took_ms);
        self.stored(|store, number| store.end(number, state, took_ms));
        self.live.clear();
        Kept { run: self.run, over, store_failed: self.store_failed }
    }

    fn watch(&mut self, event: &Event) {
        let name = |run: &Run, i: usize| run.servers[i].name.clone();
        match *event {
            Event::Heat { heat } => self.live.heat(heat),
            Event::Starting { entrant } => {
                self.live.phase(format!("starting {}", name(&self.run, entrant)));
            }
            Event::Verifying => self.live.phase("checking their answers".to_owned()),
            Event::Started { entrant, heat, ready } => {
                let start = Start::new(entrant, heat, ready);
                self.stored(|store, number| store.start(number, &start));
                self.run.starts.push(start);
            }
            Event::Warming { entrant, .. } => {
                self.live.phase(format!("warming up {}", name(&self.run, entrant)));
            }
            Event::Warmed { entrant, load, heat, warmup } => {
                self.warmed(entrant, heat, Warmup::new(load, warmup));
            }
            Event::Probing { entrant, .. } => {
                self.live.phase(format!("settling the slice length: {}", name(&self.run, entrant)));
            }
            Event::Sliced { slice, ref probed } => {
                self.run.schedule.slice_ms = Some(slice.as_secs_f64() * 1e3);
                // A resumed run has a length already, and probes nothing.
                self.run.schedule.probed.extend(probed);
                let schedule = self.run.schedule.clone();
                self.stored(|store, number| store.schedule(number, &schedule));
            }
            Event::Lapping { entrant, .. } => {
                self.live.running(entrant);
                self.live.phase(format!("a lap of {}", name(&self.run, entrant)));
            }
            Event::Lap(lap) => {
                let lap = Lap::from(lap);
                if lap.counts() && lap.load == 0 {
                    self.live.lap(seen(&lap));
                }
                let sequence = self.run.laps.len();
                self.stored(|store, number| store.lap(number, sequence, &lap));
                self.run.laps.push(lap);
            }
            Event::Block { left, .. } => {
                self.live.left(left);
                self.rewrite();
            }
            Event::Retired { entrant, why } => {
                let retired = why.into();
                self.stored(|store, number| store.retire(number, entrant, &retired));
                self.live.say(&format!("{} is out: {why}", name(&self.run, entrant)));
                self.run.servers[entrant].retired = Some(retired);
            }
            Event::Unclean { entrant, ref what } => {
                // It ends the same way in every restart: once is enough.
                let told = (entrant, what.replace(|c: char| c.is_ascii_digit(), ""));
                if !self.told.contains(&told) {
                    self.live.say(&format!("{}: {what}", name(&self.run, entrant)));
                    self.told.push(told);
                }
            }
        }
    }

    fn warmed(&mut self, server: usize, heat: u32, warmup: Warmup) {
        let mut starts = self.run.starts.iter_mut().rev();
        let Some(start) = starts.find(|s| s.server == server && s.heat == heat) else { return };
        start.warmups.push(warmup);
        let start = start.clone();
        self.stored(|store, number| store.start(number, &start));
    }

    fn stored(&mut self, act: impl FnOnce(&mut Store, u64) -> Result<(), StoreError>) {
        let (Some(store), Some(number)) = (self.store.as_mut(), self.run.number) else { return };
        if let Err(error) = act(store, number) {
            self.live.say(&format!("{error}. The race goes on, but is no longer stored."));
            self.store = None;
            self.store_failed = true;
        }
    }

    fn rewrite(&mut self) {
        if self.exports.is_empty() || self.rewritten.elapsed() < REWRITE {
            return;
        }
        if let Err(error) = self.exports.rewrite(&Report::of(&self.run)) {
            self.console.note(&format!("{error:#}"));
        }
        self.rewritten = Instant::now();
    }
}

/// What a lap says to the one who looks on.
fn seen(lap: &Lap) -> Seen {
    Seen {
        server: lap.server,
        heat: lap.heat,
        block: lap.block,
        requests_per_s: lap.requests_per_s(),
        cost_ns: lap.cost_ns(),
        busy: lap.generator.1,
        late_ns: lap.rate.map(|_| lap.lag.quantile(0.99)),
    }
}
