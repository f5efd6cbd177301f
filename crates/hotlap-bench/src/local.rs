//! The real runner: servers as processes, loaded by the generator and sampled from outside.
//!
//! All servers of a restart are running at the same time. Each is loaded and measured for a slice,
//! then frozen while the others run, so that its background work costs them nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Pace, Target};

use crate::lap::{Kind, Lap};
use crate::load_host::Measured;
use crate::participant::{Load, Participant, Role};
use crate::runner::{Probed, Ready, Runner, TrialWindow, Warmup};
use crate::validity;
use hotlap_servers::failure::ServerFailure;
use hotlap_servers::observe::{Instrument, Observation, ObserveError};
use hotlap_servers::running::Sample;
use instance::{Between, Instance};
use slices::{Needs, Next, Slices};
use trouble::{Run, Trouble, unloaded};

mod bursts;
mod explain;
mod files;
mod instance;
mod load;
mod open_loop;
mod setting;
mod slices;
mod start;
mod trouble;
mod warm_up;

pub use files::allow_files;
pub use setting::Setting;
pub use slices::{LENGTHS, TOLERANCE, shortest_slice};

/// Minimum length of a lap (METHODOLOGY, *A run*): 2,000 requests at 20,000 requests/s, and a lap
/// of each of ten servers fits into a second.
const LAP: Duration = Duration::from_millis(100);

/// Minimum length of a lap in mean service times (METHODOLOGY, *A run*). In a shorter lap, requests
/// in flight at its edges would dominate.
const SERVICE_TIMES: u32 = 8;

/// Minimum length of a lap at a rate: its percentiles need more requests than a mean.
const PACED: Duration = Duration::from_millis(500);

/// The fewest requests that a lap at a rate has on average.
const PACED_REQUESTS: f64 = 20.0;

/// The lowest rate of laps, in requests/s: such a lap takes 10 s.
pub const LEAST_RATE: f64 = 2.0;

/// How often a warm-up is begun if generators are lost in it.
const WARM_UPS: u32 = 3;

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
    pub fn target(&self, participant: usize) -> Option<&Target> {
        self.instances[participant].target.as_ref()
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
                    delay: instance.delay() + self.setting.generator.delay(),
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

    /// Loads a server, samples it at the given times, lets it finish requests in flight, and
    /// freezes it.
    fn drive(
        &mut self,
        participant: usize,
        load: usize,
        edges: &[Duration],
    ) -> Result<Vec<Sample>, Trouble> {
        let mut held =
            match self.instances[participant].held.take().filter(|held| held.goes_on(load)) {
                Some(held) => held,
                None => self.hold(participant, load)?,
            };
        let (Some(&opens), Some(&closes)) = (edges.first(), edges.last()) else {
            return Ok(Vec::new());
        };
        // The window must not open before the server runs: a call to another host takes a while,
        // and a generator that never sleeps may keep this thread from its core for milliseconds.
        // If they share a core, it is the server that may keep this thread from it.
        let is_apart = !self.setting.cores.shared || self.instances[participant].is_elsewhere();
        if is_apart {
            self.instances[participant].thaw();
        }
        let began = Instant::now();
        held.session.open_window(opens, closes - opens);
        self.instances[participant].thaw();
        let mut samples = Vec::with_capacity(edges.len());
        for edge in edges {
            // An incomplete slice does not count.
            let is_lost = held.session.lost().is_some();
            if is_lost || !self.wait(&*held.session, began + *edge) {
                return Err(self.cut_short(participant, "lap", held.session));
            }
            samples.push(self.instances[participant].sample(&*held.session));
        }
        held.pause(slices::lead_in(self.slices.length()));
        if held.session.lost().is_some() {
            return Err(self.cut_short(participant, "lap", held.session));
        }
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
    fn gather(&mut self, participant: usize) -> Result<Run, Trouble> {
        if let Some(why) = self.instances[participant].lost.take() {
            return Err(Trouble::Generator(why));
        }
        self.instances[participant].still_there("lap")?;
        let mut held = self.instances[participant].held.take();
        let gathered = held.as_mut().and_then(|held| {
            let measured = held.session.collect()?;
            Some((measured, held.end_lap()?))
        });
        let Some((measured, (driven, requests))) = gathered else {
            return Err(match held {
                Some(held) => self.cut_short(participant, "lap", held.session),
                None => self.instances[participant].out("lap", "interrupted".to_owned(), "").into(),
            });
        };
        let Measured { outcome, generators, mut failed } = measured;
        let silence = validity::silence(driven.between.silence);
        // Its connections may not have recovered yet.
        self.instances[participant].held = held.filter(|_| silence.is_none());
        failed.extend(silence);
        let instance = &mut self.instances[participant];
        let switches = instance.switches_of_lap();
        let usage = instance.usage(&driven.between, switches, requests);
        failed.extend(instance.side_effect(&outcome.totals));
        let outcome = self.unless_it_hangs(participant, outcome)?;
        Ok(Run { at: driven.at, outcome, usage, generators, failed })
    }
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

    fn warm(
        &mut self,
        participant: usize,
        load: usize,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Warmup, ServerFailure> {
        let mut tries = 1;
        let warmup = loop {
            match self.warm_up(participant, load, watch) {
                // The next try starts the generator again.
                Err(Trouble::Generator(_)) if tries < WARM_UPS => tries += 1,
                warmup => break warmup,
            }
        };
        self.freeze(participant);
        let instance = &self.instances[participant];
        warmup.map_err(|trouble| trouble.into_failure(instance, "warm-up"))
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
        match driven {
            Ok(samples) => {
                if let [opens, closes, ends] = &samples[..] {
                    let program = (self.program(participant), load);
                    let (within, after) = (Between::of(opens, closes), Between::of(closes, ends));
                    self.slices.probed(program, &within, &after);
                }
                Ok(())
            }
            // One probe less.
            Err(Trouble::Generator(_)) => Ok(()),
            Err(Trouble::Server(failure)) => Err(failure),
        }
    }

    fn slice_length(&self) -> Duration {
        self.slices.length()
    }

    fn probed(&self) -> Vec<Probed> {
        let each = |participant| (0..self.loads.len()).map(move |load| (participant, load));
        let found = |(participant, load): (usize, usize)| {
            let found = self.slices.found((self.program(participant), load))?;
            let slice_ms = found.slice.as_secs_f64() * 1e3;
            Some(Probed { participant, load, slice_ms, ratio: found.ratio, rate: found.rate })
        };
        (0..self.instances.len()).flat_map(each).filter_map(found).collect()
    }

    fn slices(&self, load: usize) -> u32 {
        self.slices_a_lap(load)
    }

    fn slice(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure> {
        if self.instances[participant].lost.is_some() {
            // The lap does not count.
            return Ok(());
        }
        self.instances[participant].begin_lap();
        let (window, service) = (self.slices.length(), self.service(participant, load));
        let opens =
            slices::spread_lead_in(window, self.instances[participant].next_slice(), service);
        let driven = self.drive(participant, load, &[opens, opens + window]);
        // A server whose side effect is counted must write its log before it is frozen.
        if !self.instances[participant].has_log() || driven.is_err() {
            self.freeze(participant);
        }
        let instance = &mut self.instances[participant];
        match driven {
            Ok(samples) => {
                if let ([before, after], Some(held)) = (&samples[..], &mut instance.held) {
                    held.add(before.at, &Between::of(before, after));
                }
                Ok(())
            }
            Err(Trouble::Generator(why)) => {
                instance.lost = Some(why);
                Ok(())
            }
            Err(Trouble::Server(failure)) => Err(failure),
        }
    }

    fn lap(&mut self, participant: usize, load: usize) -> Result<Lap, ServerFailure> {
        let run = self.gather(participant);
        // It may have been thawed to find out why it is silent, or to write its log.
        self.freeze(participant);
        self.judged((participant, load, Kind::Flat), run, validity::judge)
    }

    fn paced_lap(
        &mut self,
        participant: usize,
        load: usize,
        rate: f64,
    ) -> Result<Lap, ServerFailure> {
        let some = Duration::from_secs_f64(PACED_REQUESTS / rate.max(LEAST_RATE));
        let window = PACED.max(some).max(self.slices.length() * self.slices_a_lap(load));
        // The n-th paced laps of all servers have the same arrivals.
        let seed = self.instances[participant].next_paced();
        let run = self.open_loop(participant, load, (Pace::Poisson { rate, seed }, window));
        self.freeze(participant);
        self.judged((participant, load, Kind::Paced { rate }), run, validity::judge)
    }

    fn trial_lap(
        &mut self,
        participant: usize,
        load: usize,
        trial: TrialWindow,
    ) -> Result<Lap, ServerFailure> {
        let TrialWindow { rate, length, seed, .. } = trial;
        let run = self.open_loop(participant, load, (Pace::Poisson { rate, seed }, length));
        let recovered = run.and_then(|run| {
            self.recover(participant, load, rate)?;
            Ok(run)
        });
        self.freeze(participant);
        self.judged((participant, load, trial.kind()), recovered, validity::judge_trial)
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
        let (run, seen) = match observed {
            Ok((run, seen)) => (Ok(run), seen),
            Err(trouble) => (Err(trouble), Err(unloaded())),
        };
        Ok((self.judged((participant, load, Kind::Flat), run, validity::judge)?, seen))
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
