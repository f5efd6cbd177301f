//! The real runner: servers as processes, loaded by the generator and sampled from outside.
//!
//! All servers of a restart are alive at the same time. Each runs for a slice, in which it is
//! loaded and measured, and is then frozen while the others run theirs, so that its background
//! work costs them nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Pace, Plan, Stop, Target};
use hotlap_load::{Failure, Outcome, Session};

use crate::lap::{Kind, Lap, Usage};
use crate::participant::{Load, Participant, Role};
use crate::runner::{Probed, Ready, Runner, Warmup};
use crate::validity;
use hotlap_servers::failure::ServerFailure;
use hotlap_servers::interrupt;
use hotlap_servers::verify::LIMIT;
use instance::{Held, Instance, Sample};
use slices::{Needs, Next, Slices, WHOLE};

mod files;
mod instance;
mod setting;
mod slices;
mod start;
mod warm_up;

pub use files::allow_files;
pub use setting::Setting;
pub use slices::LENGTHS;

/// A lap is at least so long (METHODOLOGY, *A run*). Long enough for 2,000 requests at 20,000
/// requests/s, and short enough for a lap of each of ten servers to fit into a second.
const LAP: Duration = Duration::from_millis(100);

/// A lap has at least so many mean service times in it (METHODOLOGY, *A run*), or what is under way
/// at its edges would decide it.
const SERVICE_TIMES: u32 = 8;

/// Servers that are verified at the same time: most of that is waiting, for what should not come.
/// A bound on resources, since one that waits for a core looks slow.
const VERIFIED_AT_ONCE: usize = 4;

/// Where real laps are run.
pub struct LocalRunner {
    setting: Setting,
    loads: Vec<Load>,
    instances: Vec<Instance>,
    slices: Slices,
    began: Instant,
    stop: Arc<AtomicBool>,
}

impl LocalRunner {
    /// A runner for these participants. Once `stop` is set, what is under way ends at once.
    #[must_use]
    pub fn new(
        setting: Setting,
        participants: &[Participant],
        loads: &[Load],
        stop: Arc<AtomicBool>,
    ) -> Self {
        let instances =
            participants.iter().map(|e| Instance::new(e.clone(), loads.len())).collect();
        let slices = Slices::new(setting.slice, setting.probe_limit);
        Self { setting, loads: loads.to_vec(), instances, slices, began: Instant::now(), stop }
    }

    /// Where a server that is started answers: for those who ask it by other means.
    #[must_use]
    pub fn target(&self, participant: usize) -> Option<&Target> {
        self.instances[participant].target.as_ref()
    }

    /// The plan of a load on a server.
    fn plan(&self, participant: usize, load: usize) -> Result<Plan, ServerFailure> {
        let instance = &self.instances[participant];
        let load = &self.loads[load];
        let target = instance.target.clone();
        let target =
            target.ok_or_else(|| instance.out("lap", "it is not started".to_owned(), ""))?;
        let mut plan = Plan::new(target, instance.request(load));
        plan.connections = load.connections;
        plan.threads = load.threads;
        plan.reuse = load.reuse;
        plan.pipeline = load.pipeline;
        plan.timeout = self.setting.timeout;
        plan.cpus = self.setting.cores.generator.clone();
        plan.busy_poll = !self.setting.cores.shared;
        Ok(plan)
    }

    /// Waits until `until`, or until the user has had enough: whether it came to its end.
    fn wait(&self, session: &Session, until: Instant) -> bool {
        wait(session, until, &self.stop)
    }

    /// A server's mean service time; none before it was warmed up.
    fn service(&self, participant: usize, load: usize) -> Duration {
        self.instances[participant].known[load].map_or(Duration::ZERO, |known| known.service)
    }

    /// The participant that stands for a program: the reference for its control.
    fn program(&self, participant: usize) -> usize {
        let is = |role| move |instance: &Instance| instance.participant.role == role;
        let reference = || self.instances.iter().position(is(Role::Reference));
        let is_control = is(Role::Control)(&self.instances[participant]);
        is_control.then(reference).flatten().unwrap_or(participant)
    }

    /// What the servers that run need of a slice, by program and load.
    fn needs(&self) -> BTreeMap<(usize, usize), Needs> {
        let mut needs = BTreeMap::new();
        for (participant, instance) in
            self.instances.iter().enumerate().filter(|(_, s)| s.target.is_some())
        {
            for (load, known) in instance.known.iter().enumerate() {
                let Some(known) = known else { continue };
                let whole = self.loads[load].rate.is_some() || instance.lines.is_some();
                let own =
                    Needs { service: known.service, whole, known: instance.sampler.is_some() };
                needs.entry((self.program(participant), load)).or_insert(own);
            }
        }
        needs
    }

    /// How many slices a lap has.
    fn slices_a_lap(&self, load: usize) -> u32 {
        let running = self.instances.iter().filter(|instance| instance.target.is_some());
        let service =
            running.filter_map(|instance| instance.known[load]).map(|known| known.service).max();
        let lap = LAP.max(service.unwrap_or_default() * SERVICE_TIMES).as_secs_f64();
        (lap / self.slices.length().as_secs_f64()).round().clamp(1.0, 1e3) as u32
    }

    /// Loads a server for a while, samples it at these moments, lets it answer what is in flight,
    /// and freezes it.
    fn drive(
        &mut self,
        participant: usize,
        load: usize,
        edges: &[Duration],
    ) -> Result<Vec<Sample>, ServerFailure> {
        let mut held =
            match self.instances[participant].held.take().filter(|held| held.goes_on(load)) {
                Some(held) => held,
                None => {
                    let plan = self.plan(participant, load)?;
                    self.instances[participant].thaw();
                    let session = Session::start_held(&plan)
                        .map_err(|e| self.instances[participant].failed("lap", e))?;
                    if session.wait_for_window().is_none() {
                        return Err(self.instances[participant].unanswered("lap", session.join()));
                    }
                    Held::new(load, session)
                }
            };
        let [opens, closes, ..] = *edges else { return Ok(Vec::new()) };
        // The load first: a server that was just thawed may take the core that this runs on.
        let began = Instant::now();
        let _ = held.session.open_window(opens, closes - opens);
        self.instances[participant].thaw();
        let mut samples = Vec::with_capacity(edges.len());
        for edge in edges {
            // A slice that is cut short is none.
            if !self.wait(&held.session, began + *edge) {
                return Err(self.cut_short(participant, "lap", held.session));
            }
            samples.push(self.instances[participant].sample(&held.session));
        }
        held.pause(slices::lead_in(self.slices.length()));
        self.instances[participant].held = Some(held);
        Ok(samples)
    }

    /// Freezes a server after its slice. If one cannot be frozen, none is from then on: it would
    /// cost the others something in their slices, and they would cost it nothing.
    fn freeze(&mut self, participant: usize) {
        if !self.setting.freeze {
            return;
        }
        if let Err(why) = self.instances[participant].freeze() {
            self.setting.freeze = false;
            self.instances.iter_mut().for_each(Instance::thaw);
            self.instances[participant].notes.push(format!(
                "it cannot be frozen, so this run goes on as with --no-freeze: {why}"
            ));
        }
    }

    /// What a server's slices were together.
    fn gather(&mut self, participant: usize) -> Result<Run, ServerFailure> {
        self.instances[participant].still_there("lap")?;
        let mut held = self.instances[participant].held.take();
        let gathered = held.as_mut().and_then(|held| {
            let outcome = held.session.collect()?;
            Some((outcome, held.end_lap()?))
        });
        let Some((outcome, (driven, requests))) = gathered else {
            return Err(match held {
                Some(held) => self.cut_short(participant, "lap", held.session),
                None => self.instances[participant].out("lap", "it was ended".to_owned(), ""),
            });
        };
        self.instances[participant].held = held;
        let instance = &mut self.instances[participant];
        let switches = instance.switches_of_lap();
        let usage = instance.usage(&driven.between, switches, requests);
        let side_effect = instance.side_effect(&outcome.totals);
        let outcome = self.unless_it_hangs(participant, outcome)?;
        Ok(Run { at: driven.at, outcome, usage, side_effect })
    }

    /// Why a load ended before its time: the user ended it, or one of its threads failed.
    fn cut_short(
        &mut self,
        participant: usize,
        phase: &'static str,
        session: Session,
    ) -> ServerFailure {
        if self.stop.load(Ordering::Relaxed) {
            return self.instances[participant].out(phase, "it was ended".to_owned(), "");
        }
        self.instances[participant].unanswered(phase, session.join())
    }

    /// A lap without a response counts: the server stood still. Once its requests time out, it is
    /// out unless it answers a new one.
    fn unless_it_hangs(
        &mut self,
        participant: usize,
        outcome: Outcome,
    ) -> Result<Outcome, ServerFailure> {
        let is_silent = outcome.responses == 0 && outcome.failures.of(Failure::Timeout) > 0;
        if !is_silent || self.stop.load(Ordering::Relaxed) {
            return Ok(outcome);
        }
        let instance = &mut self.instances[participant];
        instance.held = None;
        instance.thaw();
        match instance.ask_again(self.setting.timeout.max(LIMIT)) {
            Ok(_) => Ok(outcome),
            Err(_) => Err(instance.unanswered("lap", Ok(outcome))),
        }
    }

    /// The lap that a run is.
    fn judged(&self, participant: usize, load: usize, kind: Kind, run: Run) -> Lap {
        let at_ms = run.at.saturating_duration_since(self.began).as_millis();
        let at_ms = u64::try_from(at_ms).unwrap_or(u64::MAX);
        let mut lap = Lap::new((participant, load), kind, at_ms, run.outcome, run.usage);
        lap.failed = validity::judge(&lap, &self.loads[load]);
        lap.failed.extend(run.side_effect);
        lap
    }

    /// Runs one lap at a rate, on a server that is thawed.
    fn measure_paced(&mut self, participant: usize, plan: &Plan) -> Result<Run, ServerFailure> {
        let session =
            Session::start(plan).map_err(|e| self.instances[participant].failed("lap", e))?;
        let Some(window) = session.wait_for_window() else {
            return Err(self.instances[participant].unanswered("lap", session.join()));
        };
        self.wait(&session, window.opens);
        let at = Instant::now();
        let first = self.instances[participant].switches();
        let before = self.instances[participant].sample(&session);
        // A lap that is cut short is none.
        if window.closes.is_some_and(|closes| !self.wait(&session, closes)) {
            return Err(self.cut_short(participant, "lap", session));
        }
        let after = self.instances[participant].sample(&session);
        let last = self.instances[participant].switches();
        let outcome = session.join().map_err(|e| self.instances[participant].failed("lap", e))?;
        self.instances[participant].still_there("lap")?;
        let outcome = self.unless_it_hangs(participant, outcome)?;
        let instance = &mut self.instances[participant];
        let between = after.since(&before);
        let usage = instance.usage(&between, first.zip(last), between.requests);
        let side_effect = instance.side_effect(&outcome.totals);
        Ok(Run { at, outcome, usage, side_effect })
    }
}

/// Waits until `until`. An interrupt ends the session and the wait. Returns whether the whole time
/// has passed.
fn wait(session: &Session, until: Instant, stop: &AtomicBool) -> bool {
    let is_over = interrupt::sleep(until.saturating_duration_since(Instant::now()), stop);
    if !is_over {
        session.stop();
    }
    is_over
}

/// A lap as it was run, before it is judged.
struct Run {
    at: Instant,
    outcome: Outcome,
    usage: Option<Usage>,
    side_effect: Option<crate::lap::Violation>,
}

impl Runner for LocalRunner {
    fn start(&mut self, participant: usize) -> Result<(), ServerFailure> {
        let started = self.boot(participant);
        let instance = &mut self.instances[participant];
        match started {
            Err(_) => _ = instance.stop(Duration::ZERO),
            Ok(()) => self.freeze(participant),
        }
        started
    }

    fn verify(&mut self, participants: &[usize]) -> Vec<Result<Ready, ServerFailure>> {
        let mut verified = Vec::new();
        for some in participants.chunks(VERIFIED_AT_ONCE) {
            if self.interrupted() {
                let ended = "it was not asked, since the run was ended";
                let out = |&n: &usize| Err(self.instances[n].out("verify", ended.to_owned(), ""));
                verified.extend(some.iter().map(out));
            } else {
                verified.extend(self.verify_some(some));
            }
        }
        verified
    }

    fn warm(&mut self, participant: usize, load: usize) -> Result<Warmup, ServerFailure> {
        self.instances[participant].held = None;
        self.instances[participant].thaw();
        let mut plan = self.plan(participant, load)?;
        plan.warmup = Duration::ZERO;
        plan.stop = Stop::After(self.longest_warm_up() + Duration::from_secs(1));
        let warmup = self.warm_up(participant, load, &plan);
        self.freeze(participant);
        warmup
    }

    fn probes(&mut self) -> Vec<(usize, usize)> {
        // What was probed is no part of a lap.
        self.instances.iter_mut().for_each(Instance::forget_lap);
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

    fn probe(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure> {
        let edges = self.slices.probe_edges();
        let driven = self.drive(participant, load, &edges);
        self.freeze(participant);
        if let [opens, closes, ends] = &driven?[..] {
            let program = (self.program(participant), load);
            self.slices.probed(program, &closes.since(opens), &ends.since(closes));
        }
        Ok(())
    }

    fn slice_length(&self) -> Duration {
        self.slices.length()
    }

    fn probed(&self) -> Vec<Probed> {
        let each = |participant| (0..self.loads.len()).map(move |load| (participant, load));
        let found = |(participant, load): (usize, usize)| {
            let found = self.slices.found((self.program(participant), load))?;
            let slice_ms = found.slice.as_secs_f64() * 1e3;
            Some(Probed { participant, load, slice_ms, ratio: found.ratio })
        };
        (0..self.instances.len()).flat_map(each).filter_map(found).collect()
    }

    fn slices(&self, load: usize) -> u32 {
        self.slices_a_lap(load)
    }

    fn slice(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure> {
        self.instances[participant].begin_lap();
        let (window, service) = (self.slices.length(), self.service(participant, load));
        let opens =
            slices::spread_lead_in(window, self.instances[participant].next_slice(), service);
        let driven = self.drive(participant, load, &[opens, opens + window]);
        // One whose side effect is counted has its log to write before it is frozen.
        if self.instances[participant].lines.is_none() || driven.is_err() {
            self.freeze(participant);
        }
        if let ([before, after], Some(held)) = (&driven?[..], &mut self.instances[participant].held)
        {
            held.add(before.at, &after.since(before));
        }
        Ok(())
    }

    fn lap(&mut self, participant: usize, load: usize) -> Result<Lap, ServerFailure> {
        let run = self.gather(participant);
        // It may have been thawed to be asked why it is silent, or to write its log.
        self.freeze(participant);
        Ok(self.judged(participant, load, Kind::Flat, run?))
    }

    fn paced_lap(
        &mut self,
        participant: usize,
        load: usize,
        rate: f64,
    ) -> Result<Lap, ServerFailure> {
        let mut plan = self.plan(participant, load)?;
        let window = WHOLE.max(self.slices.length() * self.slices_a_lap(load));
        plan.warmup = slices::lead_in(window);
        plan.stop = Stop::After(window);
        plan.pace = Pace::Constant { rate };
        self.instances[participant].forget_lap();
        self.instances[participant].thaw();
        self.instances[participant].begin_lap();
        let run = self.measure_paced(participant, &plan);
        self.instances[participant].forget_lap();
        self.freeze(participant);
        Ok(self.judged(participant, load, Kind::Paced { rate }, run?))
    }

    fn begin_stop(&mut self, participant: usize) {
        let grace = self.setting.grace;
        self.instances[participant].begin_stop(grace);
    }

    fn stop(&mut self, participant: usize) -> Option<String> {
        self.instances[participant].stop(self.setting.grace)
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
