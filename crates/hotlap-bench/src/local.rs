//! The real runner: servers as processes, loaded by the generator and sampled from outside.
//!
//! All servers of a restart are running at the same time. Each is loaded and measured for a slice,
//! then frozen while the others run, so that its background work costs them nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Pace, Plan, Request, Stop, Target};
use hotlap_load::{Failure, Outcome, Session};

use crate::lap::{Kind, Lap, Usage, Violation};
use crate::participant::{Load, Participant, Role};
use crate::runner::{Probed, Ready, Runner, TrialWindow, Warmup};
use crate::validity;
use hotlap_servers::contract::Fields;
use hotlap_servers::failure::ServerFailure;
use hotlap_servers::interrupt;
use hotlap_servers::observe::{Instrument, Observation, ObserveError};
use hotlap_servers::running::Sample;
use hotlap_servers::verify::LIMIT;
use instance::{Between, Held, Instance};
use slices::{Needs, Next, Slices, WHOLE};

mod explain;
mod files;
mod instance;
mod open_loop;
mod setting;
mod slices;
mod start;
mod warm_up;

pub use files::allow_files;
pub use setting::Setting;
pub use slices::LENGTHS;

/// Minimum length of a lap (METHODOLOGY, *A run*): 2,000 requests at 20,000 requests/s, and a lap
/// of each of ten servers fits into a second.
const LAP: Duration = Duration::from_millis(100);

/// Minimum length of a lap in mean service times (METHODOLOGY, *A run*). In a shorter lap, requests
/// in flight at its edges would dominate.
const SERVICE_TIMES: u32 = 8;

/// How many servers are verified at once. Verification mostly waits, but a server that has to wait
/// for a core looks slow.
const VERIFIED_AT_ONCE: usize = 4;

/// Runs laps on this machine.
pub struct LocalRunner {
    setting: Setting,
    loads: Vec<Load>,
    instances: Vec<Instance>,
    slices: Slices,
    /// Whether servers are started to be observed.
    observes: bool,
    began: Instant,
    stop: Arc<AtomicBool>,
}

impl LocalRunner {
    /// A runner for these participants. Setting `stop` ends what is under way.
    #[must_use]
    pub fn new(
        setting: Setting,
        participants: &[Participant],
        loads: &[Load],
        stop: Arc<AtomicBool>,
    ) -> Self {
        let instances = (0..)
            .zip(participants)
            .map(|(number, participant)| {
                let mut participant = participant.clone();
                participant.contract.fields.unique = number;
                Instance::new(participant, loads.len())
            })
            .collect();
        let slices = Slices::new(setting.slice, setting.probe_limit);
        let (loads, began) = (loads.to_vec(), Instant::now());
        Self { setting, loads, instances, slices, observes: false, began, stop }
    }

    /// The address of a running server, for other requests to it.
    #[must_use]
    pub fn target(&self, participant: usize) -> Option<&Target> {
        self.instances[participant].target.as_ref()
    }

    /// A load as a plan for one server.
    fn plan(&self, participant: usize, load: usize) -> Result<Plan, ServerFailure> {
        let instance = &self.instances[participant];
        let load = &self.loads[load];
        let target = instance.target.clone();
        let target =
            target.ok_or_else(|| instance.out("lap", "it is not running".to_owned(), ""))?;
        let target = Target { protocol: load.protocol, ..target };
        let mut plan = Plan::new(target, Request::get("/", ""));
        plan.requests = instance.requests(load);
        let Fields { list, seed, unique, order } = instance.participant.contract.fields.clone();
        (plan.fields, plan.seed, plan.order) = (list, seed, order);
        (plan.unique, plan.first_value) = (unique, instance.first_value());
        plan.connections = load.connections;
        plan.threads = load.threads;
        plan.reuse = load.reuse;
        plan.pipeline = load.pipeline;
        plan.timeout = self.setting.timeout;
        plan.cpus = self.setting.cores.generator.clone();
        plan.busy_poll = !self.setting.cores.shared;
        Ok(plan)
    }

    /// Sleeps until the deadline. Returns false if the user interrupted.
    fn wait(&self, session: &Session, until: Instant) -> bool {
        wait(session, until, &self.stop)
    }

    /// A server's mean service time; zero before its warm-up.
    fn service(&self, participant: usize, load: usize) -> Duration {
        self.instances[participant].known[load].map_or(Duration::ZERO, |known| known.service)
    }

    /// The participant whose program this is: the reference for its control.
    fn program(&self, participant: usize) -> usize {
        let is = |role| move |instance: &Instance| instance.participant.role == role;
        let reference = || self.instances.iter().position(is(Role::Reference));
        let is_control = is(Role::Control)(&self.instances[participant]);
        is_control.then(reference).flatten().unwrap_or(participant)
    }

    /// The requirements that running servers have of a slice, by program and load.
    fn needs(&self) -> BTreeMap<(usize, usize), Needs> {
        let mut needs = BTreeMap::new();
        for (participant, instance) in
            self.instances.iter().enumerate().filter(|(_, s)| s.target.is_some())
        {
            for (load, known) in instance.known.iter().enumerate() {
                let Some(known) = known else { continue };
                let own = Needs {
                    service: known.service,
                    whole: self.loads[load].rate.is_some() || instance.has_log(),
                    delay: instance.delay(),
                    known: instance.is_known(),
                };
                needs.entry((self.program(participant), load)).or_insert(own);
            }
        }
        needs
    }

    /// The number of slices per lap.
    fn slices_a_lap(&self, load: usize) -> u32 {
        let running = self.instances.iter().filter(|instance| instance.target.is_some());
        let service =
            running.filter_map(|instance| instance.known[load]).map(|known| known.service).max();
        let lap = LAP.max(service.unwrap_or_default() * SERVICE_TIMES).as_secs_f64();
        (lap / self.slices.length().as_secs_f64()).round().clamp(1.0, 1e3) as u32
    }

    /// Thaws a server and connects to it. Nothing is sent until a window is opened.
    fn hold(&mut self, participant: usize, load: usize) -> Result<Held, ServerFailure> {
        let plan = self.plan(participant, load)?;
        self.instances[participant].thaw();
        let session =
            Session::start_held(&plan).map_err(|e| self.instances[participant].failed("lap", e))?;
        self.instances[participant].uses_values(&session);
        if session.wait_for_window().is_none() {
            return Err(self.instances[participant].unanswered("lap", session.join()));
        }
        Ok(Held::new(load, session))
    }

    /// Loads a server, samples it at the given times, lets it finish requests in flight, and
    /// freezes it.
    fn drive(
        &mut self,
        participant: usize,
        load: usize,
        edges: &[Duration],
    ) -> Result<Vec<Sample>, ServerFailure> {
        let mut held =
            match self.instances[participant].held.take().filter(|held| held.goes_on(load)) {
                Some(held) => held,
                None => self.hold(participant, load)?,
            };
        let [opens, closes, ..] = *edges else { return Ok(Vec::new()) };
        // A call to another host may take long: the window must not open before the server runs.
        if self.instances[participant].is_elsewhere() {
            self.instances[participant].thaw();
        }
        // Start the load before resuming the server: the server may take this thread's core.
        let began = Instant::now();
        let _ = held.session.open_window(opens, closes - opens);
        self.instances[participant].thaw();
        let mut samples = Vec::with_capacity(edges.len());
        for edge in edges {
            // An incomplete slice does not count.
            if !self.wait(&held.session, began + *edge) {
                return Err(self.cut_short(participant, "lap", held.session));
            }
            samples.push(self.instances[participant].sample(&held.session));
        }
        held.pause(slices::lead_in(self.slices.length()));
        self.instances[participant].held = Some(held);
        Ok(samples)
    }

    /// Freezes a server after its slice. If one server cannot be frozen, no server is from then on:
    /// it would take CPU time in the others' slices, while they take none in its own.
    fn freeze(&mut self, participant: usize) {
        if !self.setting.freeze {
            return;
        }
        if let Err(why) = self.instances[participant].freeze() {
            self.setting.freeze = false;
            self.instances.iter_mut().for_each(Instance::thaw);
            self.instances[participant].notes.push(format!(
                "it cannot be frozen, so this run continues as with --no-freeze: {why}"
            ));
        }
    }

    /// The sum of a server's slices.
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
                None => self.instances[participant].out("lap", "interrupted".to_owned(), ""),
            });
        };
        let silence = driven.between.silence;
        // Its connections may not have recovered yet.
        self.instances[participant].held = held.filter(|_| validity::silence(silence).is_none());
        let instance = &mut self.instances[participant];
        let switches = instance.switches_of_lap();
        let usage = instance.usage(&driven.between, switches, requests);
        let side_effect = instance.side_effect(&outcome.totals);
        let outcome = self.unless_it_hangs(participant, outcome)?;
        Ok(Run { at: driven.at, outcome, usage, side_effect, silence })
    }

    /// Why a load ended early: the user interrupted, or one of its threads failed.
    fn cut_short(
        &mut self,
        participant: usize,
        phase: &'static str,
        session: Session,
    ) -> ServerFailure {
        if self.stop.load(Ordering::Relaxed) {
            return self.instances[participant].out(phase, "interrupted".to_owned(), "");
        }
        self.instances[participant].unanswered(phase, session.join())
    }

    /// A lap without a response counts: the server stalled. Once its requests time out, the server
    /// is dropped unless it answers a new one.
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

    /// Judges a run and returns it as a lap.
    fn judged(&self, participant: usize, load: usize, (kind, judge): Judge, run: Run) -> Lap {
        let at_ms = run.at.saturating_duration_since(self.began).as_millis();
        let at_ms = u64::try_from(at_ms).unwrap_or(u64::MAX);
        let mut lap = Lap::new((participant, load), kind, at_ms, run.outcome, run.usage);
        lap.failed = judge(&lap, &self.loads[load]);
        lap.failed.extend(run.side_effect);
        lap.failed.extend(validity::silence(run.silence));
        lap
    }
}

/// Sleeps until the deadline; an interrupt also ends the session. Returns false if the user
/// interrupted.
fn wait(session: &Session, until: Instant, stop: &AtomicBool) -> bool {
    let is_over = interrupt::sleep(until.saturating_duration_since(Instant::now()), stop);
    if !is_over {
        session.stop();
    }
    is_over
}

/// The kind of a lap, and what judges it.
type Judge = (Kind, fn(&Lap, &Load) -> Vec<Violation>);

/// A lap before it is judged.
struct Run {
    at: Instant,
    outcome: Outcome,
    usage: Option<Usage>,
    side_effect: Option<Violation>,
    /// The longest silence of the server's host.
    silence: Duration,
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
                let ended = "interrupted before it was verified";
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
        // Probes are not part of a lap.
        self.instances.iter_mut().for_each(Instance::forget_lap);
        let needs = self.needs();
        let Next::Probe(mut next) = self.slices.next(&needs) else { return Vec::new() };
        // A single server would find its caches as it left them.
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
            self.slices.probed(program, &Between::of(opens, closes), &Between::of(closes, ends));
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
        // A server whose side effect is counted must write its log before it is frozen.
        if !self.instances[participant].has_log() || driven.is_err() {
            self.freeze(participant);
        }
        if let ([before, after], Some(held)) = (&driven?[..], &mut self.instances[participant].held)
        {
            held.add(before.at, &Between::of(before, after));
        }
        Ok(())
    }

    fn lap(&mut self, participant: usize, load: usize) -> Result<Lap, ServerFailure> {
        let run = self.gather(participant);
        // It may have been thawed to find out why it is silent, or to write its log.
        self.freeze(participant);
        Ok(self.judged(participant, load, (Kind::Flat, validity::judge), run?))
    }

    fn paced_lap(
        &mut self,
        participant: usize,
        load: usize,
        rate: f64,
    ) -> Result<Lap, ServerFailure> {
        let window = WHOLE.max(self.slices.length() * self.slices_a_lap(load));
        let run = self.open_loop(participant, load, (Pace::Constant { rate }, window));
        self.freeze(participant);
        Ok(self.judged(participant, load, (Kind::Paced { rate }, validity::judge), run?))
    }

    fn trial_lap(
        &mut self,
        participant: usize,
        load: usize,
        trial: TrialWindow,
    ) -> Result<Lap, ServerFailure> {
        let TrialWindow { rate, length, seed } = trial;
        let run = self.open_loop(participant, load, (Pace::Poisson { rate, seed }, length));
        let recovered = run.and_then(|run| {
            self.recover(participant, load, rate)?;
            Ok(run)
        });
        self.freeze(participant);
        let judge = (Kind::Paced { rate }, validity::judge_trial as _);
        Ok(self.judged(participant, load, judge, recovered?))
    }

    fn begin_explaining(&mut self) {
        self.observes = true;
    }

    fn instruments(&mut self, participant: usize) -> (Vec<Instrument>, Vec<ObserveError>) {
        self.instances[participant].instruments()
    }

    fn observed_lap(
        &mut self,
        participant: usize,
        load: usize,
        instrument: Instrument,
    ) -> Result<(Lap, Result<Observation, ObserveError>), ServerFailure> {
        let observed = self.observed(participant, load, instrument);
        self.freeze(participant);
        let (run, seen) = observed?;
        Ok((self.judged(participant, load, (Kind::Flat, validity::judge), run), seen))
    }

    fn laps_per_observed(&self, load: usize) -> u32 {
        let lap = self.slices.length() * self.slices_a_lap(load);
        (self.observed_window(load).as_secs_f64() / lap.as_secs_f64()).round() as u32
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
