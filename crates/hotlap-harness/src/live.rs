//! The real track: servers as processes, loaded by the generator and sampled from outside.
//!
//! All servers of a restart are alive at the same time. Each runs for a slice, in which it is
//! loaded and measured, and is then frozen while the others run theirs, so that its background
//! work costs them nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Pace, Plan, Stop, Target};
use hotlap_load::{Failure, Outcome, Session};
use hotlap_stats::{Class, DetectorSettings, SteadyDetector, SteadyState};

use crate::cores::Split;
use crate::entrant::{Entrant, Load, Role};
use crate::gate;
use crate::lap::{Kind, Lap, Usage};
use crate::process::Warden;
use crate::track::{Probed, Ready, Retired, Track, Warmup};
use crate::verify::LIMIT;
use seat::{Acquaintance, Between, Held, Sample, Seat};
use slices::{Needs, Next, Slices, WHOLE};

mod bring_up;
mod files;
mod lines;
mod seat;
mod slices;

pub(crate) use bring_up::{ask, is_up};
pub use files::allow_files;
pub use slices::LENGTHS;

/// How servers are run and laps are measured.
#[derive(Debug, Clone)]
pub struct Setting {
    /// How long the window of a slice is; none: the shortest at which every server has recovered
    /// from being frozen.
    pub slice: Option<Duration>,
    /// How long servers may be probed for it, at each length that is tried.
    pub probe_limit: Duration,
    /// How long one request may take; in verification at least [`LIMIT`].
    pub timeout: Duration,
    /// How long a server may take from its start to its first correct answer, and wrong answers in
    /// part of that ([`crate::boot::UNREADY`]).
    pub start_limit: Duration,
    /// How long a server may take to become steady.
    pub warm_limit: Duration,
    /// How long a server may take to end in peace.
    pub grace: Duration,
    /// Freeze the servers that are not in their slice.
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

/// A server's cost alone is that of the later half of its warm-up, at most so many windows, if the
/// warm-up had at least as many: the first windows after a start cost more.
const ALONE_WINDOWS: usize = 10;

/// How long the hardware counts after a warm-up, where it can.
const COUNTED: Duration = Duration::from_millis(250);

/// A lap is at least so long. Long enough for 2,000 requests at 20,000 requests/s, and short
/// enough for a lap of each of ten servers to fit into a second.
const LAP: Duration = Duration::from_millis(100);

/// A lap has at least so many mean service times in it, or what is under way at its edges would
/// decide it.
const SERVICE_TIMES: u32 = 8;

/// Servers that are verified at the same time: most of that is waiting, for what should not come.
const VERIFIED_AT_ONCE: usize = 4;

/// Where real laps are run.
pub struct Live {
    setting: Setting,
    loads: Vec<Load>,
    seats: Vec<Seat>,
    slices: Slices,
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
        let slices = Slices::new(setting.slice, setting.probe_limit);
        Self { setting, loads: loads.to_vec(), seats, slices, began: Instant::now(), stop }
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
        let limit =
            usize::try_from(limit).unwrap_or(usize::MAX).max(DetectorSettings::default().stretch);
        let settings = DetectorSettings { max_windows: limit, ..DetectorSettings::default() };
        let known = self.known(entrant, load);
        let settings = known.map_or(settings, |before| settings.for_restart(&before.steady));
        let mut detector = SteadyDetector::new(settings);
        let Some(window) = session.window() else {
            return Err(self.seats[entrant].unanswered("warm-up", session.join()));
        };
        let mut edge = window.opens;
        self.wait(&session, edge);
        let mut before = self.seats[entrant].sample(&session);
        let (mut since, mut class) = (0, Class::NeverSteady);
        let mut windows: Vec<Between> = Vec::new();
        let patience = edge + self.longest_warm_up();
        while edge < patience {
            edge += WARM_WINDOW;
            if !self.wait(&session, edge) {
                // What an interrupted warm-up looked like says nothing of the server.
                return Err(self.cut_short(entrant, "warm-up", session));
            }
            let after = self.seats[entrant].sample(&session);
            let window = after.since(&before);
            before = after;
            windows.push(window);
            // Answers per CPU time where it is known: a neighbour's bursts don't bend that.
            let spent_ns = window.cpu_ns.filter(|ns| *ns > 0).unwrap_or(window.wall_ns);
            let speed = window.requests as f64 / spent_ns.max(1) as f64;
            if let SteadyState::Settled { since: from, class: how } = detector.push(speed) {
                (since, class) = (from, how);
                break;
            }
        }
        let until = Instant::now() + COUNTED;
        let stop = Arc::clone(&self.stop);
        let count = self.seats[entrant].counted(&session, || _ = wait(&session, until, &stop));
        session.stop();
        let outcome = session.join().map_err(|e| self.seats[entrant].failed("warm-up", e))?;
        if outcome.answers == 0 && !self.stop.load(Ordering::Relaxed) {
            return Err(self.seats[entrant].unanswered("warm-up", Ok(outcome)));
        }
        let found = Acquaintance {
            steady: detector.summary(class),
            service: Duration::from_secs_f64(outcome.service.mean() / 1e9),
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
        let steady_ms = since as f64 * window_ms;
        let per_second = |w: &Between| w.requests as f64 * 1e9 / w.wall_ns.max(1) as f64;
        let curve = windows.iter().map(per_second).collect();
        let alone_cost_ns = alone(&windows);
        Ok(Warmup { class, steady_ms, curve, window_ms, alone_cost_ns, count })
    }

    /// What the servers that run need of a slice, by program and load.
    fn needs(&self) -> BTreeMap<(usize, usize), Needs> {
        let mut needs = BTreeMap::new();
        for (entrant, seat) in self.seats.iter().enumerate().filter(|(_, s)| s.target.is_some()) {
            for (load, known) in seat.known.iter().enumerate() {
                let Some(known) = known else { continue };
                let whole = self.loads[load].rate.is_some() || seat.lines.is_some();
                let own = Needs { service: known.service, whole, known: seat.sampler.is_some() };
                needs.entry((self.program(entrant), load)).or_insert(own);
            }
        }
        needs
    }

    /// How many slices a lap has.
    fn slices_a_lap(&self, load: usize) -> u32 {
        let running = self.seats.iter().filter(|seat| seat.target.is_some());
        let service = running.filter_map(|seat| seat.known[load]).map(|known| known.service).max();
        let lap = LAP.max(service.unwrap_or_default() * SERVICE_TIMES).as_secs_f64();
        (lap / self.slices.length().as_secs_f64()).round().clamp(1.0, 1e3) as u32
    }

    /// Loads a server for a while, samples it at these moments, lets it answer what is in flight,
    /// and freezes it.
    fn drive(
        &mut self,
        entrant: usize,
        load: usize,
        edges: &[Duration],
    ) -> Result<Vec<Sample>, Retired> {
        let mut held = match self.seats[entrant].held.take().filter(|held| held.goes_on(load)) {
            Some(held) => held,
            None => {
                let plan = self.plan(entrant, load)?;
                self.seats[entrant].thaw();
                let session =
                    Session::hold(&plan).map_err(|e| self.seats[entrant].failed("lap", e))?;
                if session.window().is_none() {
                    return Err(self.seats[entrant].unanswered("lap", session.join()));
                }
                Held::new(load, session)
            }
        };
        let [opens, closes, ..] = *edges else { return Ok(Vec::new()) };
        // The load first: a server that was just thawed may take the core that this runs on.
        let began = Instant::now();
        let _ = held.session.turn(opens, closes - opens);
        self.seats[entrant].thaw();
        let mut samples = Vec::with_capacity(edges.len());
        for edge in edges {
            // A slice that is cut short is none.
            if !self.wait(&held.session, began + *edge) {
                return Err(self.cut_short(entrant, "lap", held.session));
            }
            samples.push(self.seats[entrant].sample(&held.session));
        }
        held.pause(slices::lead_in(self.slices.length()));
        self.seats[entrant].held = Some(held);
        Ok(samples)
    }

    /// Freezes a server after its slice. If one cannot be frozen, none is from then on: it would
    /// cost the others something in their slices, and they would cost it nothing.
    fn freeze(&mut self, entrant: usize) {
        if !self.setting.freeze {
            return;
        }
        if let Err(why) = self.seats[entrant].freeze() {
            self.setting.freeze = false;
            self.seats.iter_mut().for_each(Seat::thaw);
            self.seats[entrant].notes.push(format!(
                "it cannot be frozen, so this run goes on as with --no-freeze: {why}"
            ));
        }
    }

    /// What a server's slices were together.
    fn gather(&mut self, entrant: usize) -> Result<Run, Retired> {
        self.seats[entrant].still_there("lap")?;
        let mut held = self.seats[entrant].held.take();
        let gathered = held.as_mut().and_then(|held| {
            let outcome = held.session.collect()?;
            Some((outcome, held.end_lap()?))
        });
        let Some((outcome, (driven, requests))) = gathered else {
            return Err(match held {
                Some(held) => self.cut_short(entrant, "lap", held.session),
                None => self.seats[entrant].out("lap", "it was ended".to_owned(), ""),
            });
        };
        self.seats[entrant].held = held;
        let seat = &mut self.seats[entrant];
        let switches = seat.switches_of_lap();
        let usage = seat.usage(&driven.between, switches, requests);
        let side_effect = seat.side_effect(&outcome.whole);
        let outcome = self.unless_it_hangs(entrant, outcome)?;
        Ok(Run { at: driven.at, outcome, usage, side_effect })
    }

    /// Why a load ended before its time: the user ended it, or one of its threads failed.
    fn cut_short(&mut self, entrant: usize, phase: &'static str, session: Session) -> Retired {
        if self.stop.load(Ordering::Relaxed) {
            return self.seats[entrant].out(phase, "it was ended".to_owned(), "");
        }
        self.seats[entrant].unanswered(phase, session.join())
    }

    /// A lap without a response counts: the server stood still. Once its requests time out, it is
    /// out unless it answers a new one.
    fn unless_it_hangs(&mut self, entrant: usize, outcome: Outcome) -> Result<Outcome, Retired> {
        let is_silent = outcome.answers == 0 && outcome.failures.of(Failure::Timeout) > 0;
        if !is_silent || self.stop.load(Ordering::Relaxed) {
            return Ok(outcome);
        }
        let seat = &mut self.seats[entrant];
        seat.held = None;
        seat.thaw();
        match seat.ask_again(self.setting.timeout.max(LIMIT)) {
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

    /// Runs one lap at a rate, on a server that is thawed.
    fn measure_paced(&mut self, entrant: usize, plan: &Plan) -> Result<Run, Retired> {
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
            return Err(self.cut_short(entrant, "lap", session));
        }
        let after = self.seats[entrant].sample(&session);
        let last = self.seats[entrant].switches();
        let outcome = session.join().map_err(|e| self.seats[entrant].failed("lap", e))?;
        self.seats[entrant].still_there("lap")?;
        let outcome = self.unless_it_hangs(entrant, outcome)?;
        let seat = &mut self.seats[entrant];
        let between = after.since(&before);
        let usage = seat.usage(&between, first.zip(last), between.requests);
        let side_effect = seat.side_effect(&outcome.whole);
        Ok(Run { at, outcome, usage, side_effect })
    }
}

/// CPU time per request of a server that runs alone and is warm, in nanoseconds: that of the last
/// windows of its warm-up. `None` where it is not known, or the warm-up was short.
fn alone(windows: &[Between]) -> Option<f64> {
    let count = (windows.len() / 2).min(ALONE_WINDOWS);
    let last = &windows[windows.len() - count..];
    if windows.len() < ALONE_WINDOWS {
        return None;
    }
    let sum = last.iter().copied().reduce(|mut sum, window| {
        sum.add(&window);
        sum
    });
    sum?.cost_ns()
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
        match started {
            Err(_) => _ = seat.stop(Duration::ZERO),
            Ok(()) => self.freeze(entrant),
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
        self.freeze(entrant);
        warmup
    }

    fn probes(&mut self) -> Vec<(usize, usize)> {
        // What was probed is no part of a lap.
        self.seats.iter_mut().for_each(Seat::forget_lap);
        let needs = self.needs();
        let Next::Probe(mut next) = self.slices.next(&needs) else { return Vec::new() };
        // A server alone would find the caches as it left them.
        if let &[(program, load)] = &next[..] {
            let others =
                needs.into_iter().filter(|((other, _), needs)| *other != program && needs.known);
            next.extend(others.map(|((other, _), _)| (other, load)).next());
        }
        next
    }

    fn probe(&mut self, entrant: usize, load: usize) -> Result<(), Retired> {
        let edges = self.slices.probe_edges();
        let driven = self.drive(entrant, load, &edges);
        self.freeze(entrant);
        if let [opens, closes, ends] = &driven?[..] {
            let program = (self.program(entrant), load);
            self.slices.probed(program, &closes.since(opens), &ends.since(closes));
        }
        Ok(())
    }

    fn slice_length(&self) -> Duration {
        self.slices.length()
    }

    fn probed(&self) -> Vec<Probed> {
        let each = |entrant| (0..self.loads.len()).map(move |load| (entrant, load));
        let found = |(entrant, load): (usize, usize)| {
            let found = self.slices.found((self.program(entrant), load))?;
            let slice_ms = found.slice.as_secs_f64() * 1e3;
            Some(Probed { entrant, load, slice_ms, ratio: found.ratio })
        };
        (0..self.seats.len()).flat_map(each).filter_map(found).collect()
    }

    fn slices(&self, load: usize) -> u32 {
        self.slices_a_lap(load)
    }

    fn slice(&mut self, entrant: usize, load: usize) -> Result<(), Retired> {
        self.seats[entrant].begin_lap();
        let (window, service) = (self.slices.length(), self.service(entrant, load));
        let opens = slices::spread_lead_in(window, self.seats[entrant].next_slice(), service);
        let driven = self.drive(entrant, load, &[opens, opens + window]);
        // One whose side effect is counted has its log to write before it is frozen.
        if self.seats[entrant].lines.is_none() || driven.is_err() {
            self.freeze(entrant);
        }
        if let ([before, after], Some(held)) = (&driven?[..], &mut self.seats[entrant].held) {
            held.add(before.at, &after.since(before));
        }
        Ok(())
    }

    fn lap(&mut self, entrant: usize, load: usize) -> Result<Lap, Retired> {
        let run = self.gather(entrant);
        // It may have been thawed to be asked why it is silent, or to write its log.
        self.freeze(entrant);
        Ok(self.judged(entrant, load, Kind::Flat, run?))
    }

    fn paced_lap(&mut self, entrant: usize, load: usize, rate: f64) -> Result<Lap, Retired> {
        let mut plan = self.plan(entrant, load)?;
        let window = WHOLE.max(self.slices.length() * self.slices_a_lap(load));
        plan.ramp = slices::lead_in(window);
        plan.stop = Stop::After(window);
        plan.pace = Pace::Constant { rate };
        self.seats[entrant].forget_lap();
        self.seats[entrant].thaw();
        self.seats[entrant].begin_lap();
        let run = self.measure_paced(entrant, &plan);
        self.seats[entrant].forget_lap();
        self.freeze(entrant);
        Ok(self.judged(entrant, load, Kind::Paced { rate }, run?))
    }

    fn begin_stop(&mut self, entrant: usize) {
        let grace = self.setting.grace;
        self.seats[entrant].begin_stop(grace);
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
