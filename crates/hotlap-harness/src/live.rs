//! The real track: servers as processes, loaded by the generator and sampled from outside.
//!
//! All servers of a heat are alive at the same time; those that are not in their lap are frozen, so
//! that their background work costs the others nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Pace, Plan, Reuse, Stop, Target};
use hotlap_load::{Outcome, Session};
use hotlap_stats::estimate::median;
use hotlap_stats::steady::{Class, State, Test, Warmup as WarmupTest};

use crate::cores::Split;
use crate::entrant::{Entrant, Load, Role};
use crate::gate;
use crate::lap::{Kind, Lap, Usage};
use crate::process::Warden;
use crate::track::{Ready, Retired, Track, Warmup};
use seat::{Acquaintance, Between, Held, Seat};
use turns::{LONG_LAP, Turns};

mod bring_up;
mod seat;
mod turns;

pub(crate) use bring_up::ask;

/// How servers are run and laps are measured.
#[derive(Debug, Clone)]
pub struct Setting {
    /// How long a lap's window is.
    pub lap: Duration,
    /// What is sent before a window opens, after a server was thawed and all connections are up.
    pub ramp: Duration,
    /// How long one request may take.
    pub timeout: Duration,
    /// How long a server may take from its start to its first answer.
    pub start_limit: Duration,
    /// How long a server may take to become steady.
    pub warm_limit: Duration,
    /// How long a server may take to end in peace.
    pub grace: Duration,
    /// Freeze the servers that are not in their lap.
    pub freeze: bool,
    /// Count instructions where the kernel permits it.
    pub counters: bool,
    /// Who runs on which cores.
    pub cores: Split,
    /// How a warden is started.
    pub warden: Warden,
    /// Where what servers print is kept.
    pub logs: PathBuf,
    /// Whom each server is held against, and is to do the same work as; those that are not named
    /// here, against the reference.
    pub against: BTreeMap<usize, usize>,
}

/// How long one window of a warm-up is.
const WARM_WINDOW: Duration = Duration::from_millis(100);

/// What a request costs a server that is warm is told by so many windows.
const LAST: usize = 10;

/// How long the hardware counts after a warm-up, where it can.
const COUNTED: Duration = Duration::from_millis(250);

/// A server that works for less of the time waits for something else than a core: what it waits for
/// does not stop when it is stopped, so its laps are driven in one piece.
const BUSY: f64 = 0.4;

/// A lap has at least so many mean service times in it, or what is under way at its edges would
/// decide it.
const SERVICE_TIMES: f64 = 8.0;

/// Servers that are verified at the same time: most of that is waiting, for what should not come.
const VERIFIED_AT_ONCE: usize = 4;

/// Laps before the first that counts, of a server that was not flat. A lap opens and closes
/// connections, and to a compiler that is code of its own, which a warm-up hardly runs. And a Java
/// machine that was stopped while all others were warmed up is half as dear again for some tenths
/// of a second.
const PRACTICE: u32 = 8;

/// A lap at a rate is at least so long: it has fewer requests, and they are not paired.
const PACED_LAP: Duration = Duration::from_millis(300);

/// A lap whose side effect is counted is at least so long: before and after it somebody waits for
/// the last lines.
const COUNTED_LAP: Duration = Duration::from_millis(300);

/// No lap is longer, unless all are.
const LONGEST_LAP: Duration = Duration::from_secs(10);

/// Where real laps are run.
pub struct Live {
    setting: Setting,
    loads: Vec<Load>,
    seats: Vec<Seat>,
    /// How long turns are, by load.
    turns: Vec<Turns>,
    began: Instant,
    stop: Arc<AtomicBool>,
}

impl Live {
    /// A track for these entrants. Once `stop` is set, what is under way ends at once.
    #[must_use]
    pub fn new(
        setting: Setting,
        entrants: &[Entrant],
        loads: &[Load],
        stop: Arc<AtomicBool>,
    ) -> Self {
        let seats = entrants.iter().map(|e| Seat::new(e.clone(), loads.len())).collect();
        let turns = loads.iter().map(|_| Turns::new(setting.lap)).collect();
        Self { setting, loads: loads.to_vec(), seats, turns, began: Instant::now(), stop }
    }

    /// Where a server that is started answers: for those who ask it by other means.
    #[must_use]
    pub fn target(&self, entrant: usize) -> Option<&Target> {
        self.seats[entrant].target.as_ref()
    }

    /// The plan of a load on a server.
    fn plan(&self, entrant: usize, load: usize) -> Result<Plan, Retired> {
        let seat = &self.seats[entrant];
        let load = &self.loads[load];
        let target = seat.target.clone();
        let target = target.ok_or_else(|| seat.out("lap", "it is not started".to_owned(), ""))?;
        let mut plan = Plan::new(target, seat.request(load));
        plan.connections = load.connections;
        plan.threads = load.threads;
        plan.reuse = load.reuse;
        plan.pipeline = load.pipeline;
        plan.timeout = self.setting.timeout;
        plan.cpus = self.setting.cores.generator.clone();
        plan.awake = !self.setting.cores.shared;
        Ok(plan)
    }

    /// Waits until `until`, or until the user has had enough: whether it came to its end.
    fn wait(&self, session: &Session, until: Instant) -> bool {
        wait(session, until, &self.stop)
    }

    /// How long a server is warmed up at most: as long as its first answer may take, at least.
    fn longest_warm_up(&self) -> Duration {
        self.setting.warm_limit.max(self.setting.timeout) + WARM_WINDOW
    }

    /// What earlier warm-ups tell of a server; the reference and its double are one program.
    fn known(&self, entrant: usize, load: usize) -> Option<Acquaintance> {
        let is_reference = |role| matches!(role, Role::Reference | Role::Double);
        let role = self.seats[entrant].entrant.role;
        let same = |seat: &&Seat| is_reference(role) && is_reference(seat.entrant.role);
        let of = |seat: &Seat| seat.known[load];
        of(&self.seats[entrant]).or_else(|| self.seats.iter().filter(same).find_map(of))
    }

    /// A server's mean service time; none before it was warmed up.
    fn service(&self, entrant: usize, load: usize) -> Duration {
        self.seats[entrant].known[load].map_or(Duration::ZERO, |known| known.service)
    }

    /// A server has driven a turn, or a lap in one piece, beside which it is known what a request
    /// costs when it runs alone.
    fn tried(&mut self, entrant: usize, load: usize, run: &Between, in_turns: bool) {
        let program = self.program(entrant);
        if let Some(known) = self.seats[entrant].known[load] {
            self.turns[load].driven(program, run, known.warm_ns, in_turns);
        }
    }

    /// The entrant that stands for a program: the reference for its double.
    fn program(&self, entrant: usize) -> usize {
        let is = |role| move |seat: &Seat| seat.entrant.role == role;
        let reference = || self.seats.iter().position(is(Role::Reference));
        let is_double = is(Role::Double)(&self.seats[entrant]);
        is_double.then(reference).flatten().unwrap_or(entrant)
    }

    /// Loads a server until its windows are steady; the windows are answers per second.
    fn warm_up(&mut self, entrant: usize, load: usize, plan: &Plan) -> Result<Warmup, Retired> {
        let session = Session::start(plan).map_err(|e| self.seats[entrant].failed("warm-up", e))?;
        let limit = self.setting.warm_limit.as_nanos() / WARM_WINDOW.as_nanos();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).max(Test::default().stretch);
        let test = Test { limit, ..Test::default() };
        let known = self.known(entrant, load);
        let test = known.map_or(test, |before| test.again(&before.steady));
        let mut test = WarmupTest::new(test);
        let mut curve = Vec::new();
        let Some(window) = session.window() else {
            return Err(self.seats[entrant].unanswered("warm-up", session.join()));
        };
        let mut edge = window.opens;
        self.wait(&session, edge);
        let mut before = self.seats[entrant].sample(&session);
        let (mut since, mut class) = (0, Class::NeverSteady);
        let first = before;
        let patience = edge + self.longest_warm_up();
        while !self.stop.load(Ordering::Relaxed) && edge < patience {
            edge += WARM_WINDOW;
            self.wait(&session, edge);
            let after = self.seats[entrant].sample(&session);
            let usage = after.since(&before);
            before = after;
            curve.push(usage.requests as f64 * 1e9 / usage.wall_ns.max(1) as f64);
            // Answers per CPU time where it can be seen: a neighbour's bursts don't bend that.
            let spent_ns = if usage.cpu_ns > 0 { usage.cpu_ns } else { usage.wall_ns };
            let speed = usage.requests as f64 / spent_ns.max(1) as f64;
            if let State::Settled { since: from, class: how } = test.push(speed) {
                (since, class) = (from, how);
                break;
            }
        }
        let whole = before.since(&first);
        let until = Instant::now() + COUNTED;
        let stop = Arc::clone(&self.stop);
        let count = self.seats[entrant].counted(&session, || _ = wait(&session, until, &stop));
        session.stop();
        let outcome = session.join().map_err(|e| self.seats[entrant].failed("warm-up", e))?;
        if outcome.answers == 0 && !self.stop.load(Ordering::Relaxed) {
            return Err(self.seats[entrant].unanswered("warm-up", Ok(outcome)));
        }
        let speeds = test.windows();
        let found = Acquaintance {
            steady: test.precedent(class),
            service: Duration::from_secs_f64(outcome.service.mean() / 1e9),
            warm_ns: median(&speeds[speeds.len().saturating_sub(LAST)..])
                .map_or(f64::INFINITY, f64::recip),
            keeps: !gate::is_reopened(&outcome),
            is_busy: whole.cpu_ns as f64 >= BUSY * whole.wall_ns.max(1) as f64,
        };
        let now = match known {
            // One window is no judge.
            Some(before) if before.steady.class == Class::Flat => before,
            // What compiles does so at every start, wherever this one's noise says that it began.
            Some(before) if before.steady.compiles && before.steady.class != Class::NeverSteady => {
                Acquaintance { steady: before.steady, ..found }
            }
            _ => found,
        };
        if now.steady.class == Class::Flat {
            since = 0;
        }
        class = now.steady.class;
        self.seats[entrant].known[load] = Some(now);
        let window_ms = WARM_WINDOW.as_secs_f64() * 1e3;
        Ok(Warmup { class, steady_ms: since as f64 * window_ms, curve, window_ms, count })
    }

    /// How long a turn of a server is, where its laps may be driven in turns: it is stopped between
    /// them with all that it has under way, and nothing of it is seen from outside.
    fn turn_takes(&self, entrant: usize, load: usize) -> Option<Duration> {
        let seat = &self.seats[entrant];
        let is_kept = self.loads[load].reuse == Reuse::KeepAlive;
        let fits = self.setting.freeze && is_kept && seat.process.is_some() && seat.lines.is_none();
        let known = seat.known[load].filter(|known| fits && known.is_busy && known.keeps)?;
        self.turns[load].length(self.program(entrant), known.service)
    }

    /// How long a lap of a server is at least, and what is sent before one in one piece.
    fn least(&self, entrant: usize, load: usize) -> (Duration, Duration) {
        match self.turn_takes(entrant, load) {
            Some(_) => (Duration::ZERO, Duration::ZERO),
            None => self.turns[load].least(),
        }
    }

    /// Runs one turn on a server, which goes on where it was stopped.
    fn drive(&mut self, entrant: usize, load: usize, length: Duration) -> Result<(), Retired> {
        let seat = &mut self.seats[entrant];
        let mut held = match seat.held.take().filter(|held| held.goes_on(load)) {
            Some(held) => held,
            None => {
                let plan = self.plan(entrant, load)?;
                self.seats[entrant].thaw();
                let session =
                    Session::hold(&plan).map_err(|e| self.seats[entrant].failed("lap", e))?;
                if session.window().is_none() {
                    return Err(self.seats[entrant].unanswered("lap", session.join()));
                }
                Held::new(load, session, plan.connections)
            }
        };
        let ramp = self.turns[load].ramp(held.next_turn(), self.service(entrant, load));
        // The load first: a server that was just thawed may take the core that this runs on.
        let window = held.session.turn(ramp, length);
        self.seats[entrant].thaw();
        self.wait(&held.session, window.opens);
        let before = self.seats[entrant].sample(&held.session);
        if let Some(closes) = window.closes {
            self.wait(&held.session, closes);
        }
        let after = self.seats[entrant].sample(&held.session);
        let turn = after.since(&before);
        self.tried(entrant, load, &turn, true);
        held.add(before.at, &turn);
        self.seats[entrant].held = Some(held);
        Ok(())
    }

    /// What a server's turns were together.
    fn gather(&mut self, entrant: usize) -> Result<Run, Retired> {
        let seat = &mut self.seats[entrant];
        seat.still_there("lap")?;
        let gathered = seat.held.as_mut().and_then(|held| {
            let outcome = held.session.collect()?;
            Some((outcome, held.end_lap()?))
        });
        let Some((outcome, (driven, requests))) = gathered else {
            return Err(seat.out("lap", "it was ended".to_owned(), ""));
        };
        let switches = seat.switches_of_lap();
        let usage = seat.usage(&driven.between, switches, requests);
        let outcome = self.unless_it_hangs(entrant, outcome)?;
        Ok(Run { at: driven.at, outcome, usage, side_effect: None })
    }

    /// A lap without an answer is marked and left out. It says that the server hangs only if the
    /// server does not answer now either: on a busy machine half a second can go by.
    fn unless_it_hangs(&mut self, entrant: usize, outcome: Outcome) -> Result<Outcome, Retired> {
        if outcome.answers > 0 || self.stop.load(Ordering::Relaxed) {
            return Ok(outcome);
        }
        let seat = &mut self.seats[entrant];
        seat.held = None;
        seat.thaw();
        match seat.ask_again() {
            Ok(_) => Ok(outcome),
            Err(_) => Err(seat.unanswered("lap", Ok(outcome))),
        }
    }

    /// The lap that a run is.
    fn judged(&self, entrant: usize, load: usize, kind: Kind, run: Run) -> Lap {
        let at_ms = run.at.saturating_duration_since(self.began).as_millis();
        let at_ms = u64::try_from(at_ms).unwrap_or(u64::MAX);
        let mut lap = Lap::new((entrant, load), kind, at_ms, run.outcome, run.usage);
        lap.failed = gate::judge(&lap, &self.loads[load]);
        lap.failed.extend(run.side_effect);
        lap
    }

    /// Runs one lap on a server that is thawed.
    fn measure(&mut self, entrant: usize, plan: &Plan, counted: u64) -> Result<Run, Retired> {
        let session = Session::start(plan).map_err(|e| self.seats[entrant].failed("lap", e))?;
        let Some(window) = session.window() else {
            return Err(self.seats[entrant].unanswered("lap", session.join()));
        };
        self.wait(&session, window.opens);
        let at = Instant::now();
        let first = self.seats[entrant].switches();
        let before = self.seats[entrant].sample(&session);
        // A lap that is cut short is none.
        if window.closes.is_some_and(|closes| !self.wait(&session, closes)) {
            return Err(self.seats[entrant].out("lap", "it was ended".to_owned(), ""));
        }
        let after = self.seats[entrant].sample(&session);
        let last = self.seats[entrant].switches();
        let outcome = session.join().map_err(|e| self.seats[entrant].failed("lap", e))?;
        self.seats[entrant].still_there("lap")?;
        let outcome = self.unless_it_hangs(entrant, outcome)?;
        let seat = &mut self.seats[entrant];
        let between = after.since(&before);
        let usage = seat.usage(&between, (first, last), between.requests);
        let side_effect = seat.side_effect(counted, &outcome.whole);
        Ok(Run { at, outcome, usage, side_effect })
    }
}

/// Waits until `until`; ends the session and the wait once `stop` is set. Whether it came to its
/// end.
fn wait(session: &Session, until: Instant, stop: &AtomicBool) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        if stop.load(Ordering::Relaxed) {
            session.stop();
            return false;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// A lap as it was run, before it is judged.
struct Run {
    at: Instant,
    outcome: Outcome,
    usage: Option<Usage>,
    side_effect: Option<crate::lap::Gate>,
}

impl Track for Live {
    fn start(&mut self, entrant: usize) -> Result<(), Retired> {
        let started = self.boot(entrant);
        let seat = &mut self.seats[entrant];
        if started.is_err() {
            seat.stop(Duration::ZERO);
        } else if self.setting.freeze {
            seat.freeze();
        }
        started
    }

    fn verify(&mut self, entrants: &[usize]) -> Vec<Result<Ready, Retired>> {
        let mut verified = Vec::new();
        for some in entrants.chunks(VERIFIED_AT_ONCE) {
            if self.interrupted() {
                let ended = "it was not asked, since the run was ended";
                let out = |&n: &usize| Err(self.seats[n].out("verify", ended.to_owned(), ""));
                verified.extend(some.iter().map(out));
            } else {
                verified.extend(self.verify_some(some));
            }
        }
        verified
    }

    fn warm(&mut self, entrant: usize, load: usize) -> Result<Warmup, Retired> {
        self.seats[entrant].held = None;
        self.seats[entrant].thaw();
        let mut plan = self.plan(entrant, load)?;
        plan.ramp = Duration::ZERO;
        plan.stop = Stop::After(self.longest_warm_up() + Duration::from_secs(1));
        let warmup = self.warm_up(entrant, load, &plan);
        if self.setting.freeze {
            self.seats[entrant].freeze();
        }
        warmup
    }

    fn practise(&mut self, entrant: usize, load: usize) -> Result<(), Retired> {
        let known = self.seats[entrant].known[load];
        if known.is_none_or(|known| known.steady.class == Class::Flat) {
            return Ok(());
        }
        let mut plan = self.plan(entrant, load)?;
        plan.ramp = self.setting.ramp;
        plan.stop = Stop::After(self.setting.lap);
        self.seats[entrant].thaw();
        for _ in 0..PRACTICE {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            hotlap_load::run(&plan).map_err(|e| self.seats[entrant].failed("warm-up", e))?;
        }
        if self.setting.freeze {
            self.seats[entrant].freeze();
        }
        Ok(())
    }

    fn lap(&mut self, entrant: usize, load: usize, kind: Kind) -> Result<Lap, Retired> {
        let mut plan = self.plan(entrant, load)?;
        plan.ramp = self.setting.ramp.max(self.least(entrant, load).1);
        plan.stop = Stop::After(self.lap_takes(entrant, load, kind));
        if let Kind::Paced { rate } = kind {
            plan.pace = Pace::Constant { rate };
        }
        // What was held for turns would go on beside it.
        self.seats[entrant].held = None;
        self.seats[entrant].thaw();
        let counted = self.seats[entrant].settled_lines();
        let run = self.measure(entrant, &plan, counted);
        if self.setting.freeze {
            self.seats[entrant].freeze();
        }
        Ok(self.judged(entrant, load, kind, run?))
    }

    fn tries(&mut self, load: usize) -> u32 {
        let tries = self.turns[load].tries();
        // What was driven is no part of a lap.
        self.seats.iter_mut().for_each(Seat::forget_lap);
        tries
    }

    fn try_out(&mut self, entrant: usize, load: usize, step: u32) -> Result<(), Retired> {
        if self.turns(entrant, load) > 1 {
            return self.turn(entrant, load);
        }
        // Who waits for something else than a core has none to find warm.
        let is_busy = self.seats[entrant].known[load].is_some_and(|known| known.is_busy);
        if step == 0 && is_busy && self.lap_takes(entrant, load, Kind::Flat) < LONG_LAP {
            let lap = self.lap(entrant, load, Kind::Flat)?;
            let Usage { requests, wall_ns, cpu_ns, pieces, .. } = lap.usage.unwrap_or_default();
            let cpu_ns = cpu_ns.unwrap_or(0);
            self.tried(entrant, load, &Between { requests, wall_ns, cpu_ns, pieces }, false);
        }
        Ok(())
    }

    fn turns(&self, entrant: usize, load: usize) -> u32 {
        let lap = self.lap_takes(entrant, load, Kind::Flat);
        self.turn_takes(entrant, load)
            .map_or(1, |turn| (lap.as_secs_f64() / turn.as_secs_f64().max(1e-3)).round() as u32)
    }

    fn turn(&mut self, entrant: usize, load: usize) -> Result<(), Retired> {
        let length = self.turn_takes(entrant, load).unwrap_or(self.setting.lap);
        self.seats[entrant].begin_lap();
        let driven = self.drive(entrant, load, length);
        self.seats[entrant].freeze();
        driven
    }

    fn lap_of_turns(&mut self, entrant: usize, load: usize) -> Result<Lap, Retired> {
        let run = self.gather(entrant);
        // It was thawed to be asked why it is silent.
        self.seats[entrant].freeze();
        Ok(self.judged(entrant, load, Kind::Flat, run?))
    }

    fn lap_takes(&self, entrant: usize, load: usize, kind: Kind) -> Duration {
        let seat = &self.seats[entrant];
        let least = if seat.lines.is_some() { COUNTED_LAP } else { Duration::ZERO };
        let answers = self.service(entrant, load).mul_f64(SERVICE_TIMES).min(LONGEST_LAP);
        let usual = self.setting.lap.max(self.least(entrant, load).0);
        let flat = answers.max(usual).max(least);
        match kind {
            Kind::Flat => flat,
            Kind::Paced { .. } => flat.max(PACED_LAP),
        }
    }

    fn stop(&mut self, entrant: usize) -> Option<String> {
        self.seats[entrant].stop(self.setting.grace)
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
