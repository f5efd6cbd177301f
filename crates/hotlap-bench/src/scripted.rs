//! A runner without servers, for tests here and in the tool. The laps and the clock come from a
//! script, so a whole run takes milliseconds and has known figures.

use std::collections::BTreeMap;
use std::time::Duration;

use hotlap_load::outcome::{
    ByteCounts, ConnectionCounts, Failures, Outcome, ThreadUsage, Tick, Totals,
};
use hotlap_load::{Failure, Phase};
use hotlap_stats::Histogram;

use crate::lap::{Lap, LapKind, Usage};
use crate::participant::Load;
use crate::runner::{Probed, Ready, Runner, TrialWindow, Warmup};
use crate::validity;
use hotlap_observe::{
    Events, Frame, Gauged, Instrument, Memory, Observation, ObserveError, Profile, Stack,
};
use hotlap_servers::launch::ServerFailure;

/// The behaviour of a scripted server.
#[derive(Debug, Clone)]
pub struct Script {
    /// The requests/s that the server reaches.
    pub rate: f64,
    /// CPU time per request, in nanoseconds.
    pub cost_ns: f64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Time from the server's start to its first response.
    pub ready: Duration,
    /// How long a warm-up takes.
    pub warm_up: Duration,
    /// Factors for each lap's rate and cost, used in turn and repeated. Empty: always 1.
    pub wobble: Vec<(f64, f64)>,
    /// The number of wrong responses in each lap.
    pub wrong: u64,
    /// How busy the generator is, from 0 to 1.
    pub busy: f64,
    /// The server's profile: stacks of functions, and their shares of the server's cost. Each
    /// function has its library, and the outermost function comes first.
    pub profile: Vec<(Vec<(&'static str, &'static str)>, f64)>,
    /// System calls per request.
    pub calls: BTreeMap<String, f64>,
    /// Page faults and voluntary context switches per request.
    pub faults_and_switches: (f64, f64),
    /// The number of the call, from 0, in which the server dies. Starts, warm-ups, probes, slices
    /// and laps of one slice are counted together.
    pub dies_at: Option<usize>,
}

impl Script {
    /// Creates a server with this rate and cost that never fails.
    pub fn new(rate: f64, cost_ns: f64) -> Self {
        Self {
            rate,
            cost_ns,
            rss_bytes: 8 << 20,
            ready: Duration::from_millis(20),
            warm_up: Duration::from_millis(300),
            wobble: Vec::new(),
            wrong: 0,
            busy: 0.5,
            profile: Vec::new(),
            calls: BTreeMap::new(),
            faults_and_switches: (0.0, 0.0),
            dies_at: None,
        }
    }
}

impl Script {
    /// Returns the server's profile over a lap, sampled every microsecond.
    fn sampled(&self, usage: Usage) -> Profile {
        let mut profile = Profile { period_ns: 1_000, ..Profile::default() };
        let whole: f64 = self.profile.iter().map(|(_, share)| share).sum();
        let cpu_us = usage.cpu_ns.unwrap_or_default() as f64 / 1e3;
        for (functions, share) in &self.profile {
            let mut frames = Vec::new();
            for (function, library) in functions {
                let frame =
                    Frame { function: (*function).to_owned(), library: (*library).to_owned() };
                let known = profile.frames.iter().position(|own| *own == frame);
                frames.push(known.unwrap_or(profile.frames.len()) as u32);
                if known.is_none() {
                    profile.frames.push(frame);
                }
            }
            let samples = (share / whole * cpu_us).round() as u64;
            profile.stacks.push(Stack { process: "scripted".to_owned(), frames, samples });
        }
        profile
    }
}

/// Runs scripted laps.
#[derive(Debug)]
pub struct Scripted {
    scripts: Vec<Script>,
    loads: Vec<Load>,
    lap: Duration,
    clock: Duration,
    calls: Vec<usize>,
    laps: Vec<usize>,
    /// The number of slices per lap.
    pub slices: u32,
    /// The number of probes of each server that are left, in both orders.
    pub probes: u32,
    /// The results of the probes.
    pub found: Vec<Probed>,
    /// Whether each lap has a gauge. The gauge then attributes the wobble of the cost to the core.
    pub has_gauge: bool,
    /// The rate, in requests/s, from which the generator is late in trials.
    pub late_from: Option<f64>,
    /// Whether the generator is late whenever a server is held.
    pub late_when_held: bool,
    /// The capacity in the long window that ends a search, as a share of the capacity in short
    /// windows.
    pub held_share: f64,
    /// The instruments that are not permitted.
    pub forbidden: Vec<Instrument>,
    /// The time on the clock at which the experiment is interrupted.
    pub interrupted_at: Option<Duration>,
    /// The calls, in order: `start 0`, `lap 0`, `stop 0`.
    pub log: Vec<String>,
}

impl Scripted {
    /// Creates a runner for these servers, in the experiment's order.
    pub fn new(scripts: Vec<Script>, loads: Vec<Load>, lap: Duration) -> Self {
        let n = scripts.len();
        Self {
            scripts,
            loads,
            lap,
            clock: Duration::ZERO,
            calls: vec![0; n],
            laps: vec![0; n],
            slices: 1,
            probes: 0,
            found: Vec::new(),
            has_gauge: false,
            late_from: None,
            late_when_held: false,
            held_share: 1.0,
            forbidden: Vec::new(),
            interrupted_at: None,
            log: Vec::new(),
        }
    }

    fn call(&mut self, phase: &str, participant: usize) -> Result<(), ServerFailure> {
        self.log.push(format!("{phase} {participant}"));
        let nth = self.calls[participant];
        self.calls[participant] += 1;
        if self.scripts[participant].dies_at == Some(nth) {
            return Err(ServerFailure {
                phase: phase.to_owned(),
                cause: "exited with code 3".to_owned(),
                log_tail: vec!["out of luck".to_owned()],
                remedy: "see its last lines".to_owned(),
            });
        }
        Ok(())
    }

    /// Returns the next lap of a script.
    fn driven(&mut self, participant: usize, load: usize, kind: LapKind, at_ms: u64) -> Lap {
        let script = self.scripts[participant].clone();
        let nth = self.laps[participant];
        self.laps[participant] += 1;
        let (faster, costlier) = match script.wobble.len() {
            0 => (1.0, 1.0),
            n => script.wobble[nth % n],
        };
        let rate = match kind {
            LapKind::Flat => script.rate * faster,
            LapKind::Paced { rate } | LapKind::Held { rate } => rate,
        };
        let outcome = self.outcome(&script, &self.loads[load], rate);
        let requests = outcome.responses + outcome.failures.total();
        let usage = Usage {
            wall_ns: outcome.window_ns,
            requests,
            cpu_ns: Some((script.cost_ns * costlier * requests as f64) as u64),
            switches: Some(requests / 10),
            preemptions: Some(0),
            memory: Memory {
                rss_bytes: script.rss_bytes,
                pss_bytes: Some(script.rss_bytes),
                ..Memory::default()
            },
            slices: Some(self.slices),
            gauged: self.has_gauge.then_some(Gauged { calls: 1, ns: (1e6 * costlier) as u64 }),
            ..Usage::default()
        };
        let mut lap = Lap::new((participant, load), kind, at_ms, outcome, Some(usage));
        lap.failed = validity::judge(&lap, &self.loads[load]);
        lap
    }

    fn outcome(&self, script: &Script, load: &Load, rate: f64) -> Outcome {
        let window_ns = u64::try_from(self.lap.as_nanos()).unwrap_or(u64::MAX);
        let responses = (rate * self.lap.as_secs_f64()).round() as u64;
        let in_flight = load.shape.in_flight() as f64;
        // Little's law gives the mean latency.
        let mean_ns = (in_flight / rate * 1e9) as u64;
        let mut service = Histogram::new();
        for n in 0..responses {
            service.record(if n % 100 == 99 { mean_ns * 2 } else { mean_ns * 98 / 99 });
        }
        let mut failures = Failures::default();
        if script.wrong > 0 {
            failures.add(Failure::WrongBody, Phase::Body, script.wrong);
        }
        let cpu_ns = (script.busy * window_ns as f64) as u64;
        let threads = vec![ThreadUsage { cpu_ns, wall_ns: window_ns, ..ThreadUsage::default() }];
        let connections = load.shape.connections as u64;
        Outcome {
            backend: "scripted".to_owned(),
            window_ns,
            responses,
            response_time: service.clone(),
            service_time: service,
            failures,
            statuses: BTreeMap::from([(200, responses)]),
            connections: ConnectionCounts {
                requested: connections,
                established: connections,
                reopened: 0,
                opened: connections,
                resumed: 0,
                streams: 0,
            },
            bytes: ByteCounts {
                received: responses * 100,
                responses: responses * 100,
                largest: 100,
                sent: responses * 50,
            },
            in_flight: connections,
            series: vec![Tick {
                responses,
                failures: 0,
                max_ns: mean_ns,
                sum_ns: mean_ns * responses,
            }],
            threads,
            totals: Totals { responses, sent: responses },
            ..Outcome::default()
        }
    }
}

/// The highest share of its rate at which a scripted server meets a latency goal. The limit may be
/// anything between 1 ms and 1 s, and the goal must allow 1% of misses.
pub const KEEPS: f64 = 0.9;

/// The share of requests that miss a goal at a rate. The rate is relative to the highest rate that
/// meets the goal.
fn missed_share(relative_rate: f64) -> f64 {
    let log_odds = (0.01_f64 / 0.99).ln() + 50.0 * relative_rate.ln();
    1.0 / (1.0 + (-log_odds).exp())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Runner for Scripted {
    fn start(&mut self, participant: usize, observes: bool) -> Result<(), ServerFailure> {
        self.clock += self.scripts[participant].ready;
        self.call(if observes { "start observed" } else { "start" }, participant)
    }

    fn verify(&mut self, participants: &[usize]) -> Vec<Result<Ready, ServerFailure>> {
        let ready = |participant: &usize| {
            let script = &self.scripts[*participant];
            Ok(Ready {
                ready_ms: Some(script.ready.as_secs_f64() * 1e3),
                conformance: (14, 14),
                database_work: Vec::new(),
                notes: Vec::new(),
                rss_bytes: Some(script.rss_bytes),
            })
        };
        participants.iter().map(ready).collect()
    }

    fn warm(
        &mut self,
        participant: usize,
        load: usize,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Warmup, ServerFailure> {
        self.clock += self.scripts[participant].warm_up;
        self.call("warm-up", participant)?;
        let rate = self.scripts[participant].rate;
        watch(rate);
        Ok(Warmup {
            curve: vec![rate, rate, rate],
            window_ms: 100.0,
            alone_cost_ns: Some(self.scripts[participant].cost_ns),
            ..Warmup::flat(load)
        })
    }

    fn wake(&mut self, _participant: usize, _load: usize) -> Result<(), ServerFailure> {
        Ok(())
    }

    fn probes(&mut self, load: usize) -> Vec<usize> {
        if self.probes == 0 || load > 0 {
            return Vec::new();
        }
        self.probes -= 1;
        (0..self.scripts.len()).collect()
    }

    fn probe(&mut self, participant: usize, _load: usize) -> Result<(), ServerFailure> {
        self.clock += Duration::from_millis(52);
        self.call("probe", participant)
    }

    fn slice_length(&self, _load: usize) -> Duration {
        self.lap / self.slices
    }

    fn probed(&self) -> Vec<Probed> {
        self.found.clone()
    }

    fn slices(&self, _load: usize) -> u32 {
        self.slices
    }

    fn slice(&mut self, participant: usize, _load: usize) -> Result<(), ServerFailure> {
        self.clock += (self.lap + Duration::from_millis(110)) / self.slices;
        let failure = |why| ServerFailure { phase: "lap".to_owned(), ..why };
        self.call("slice", participant).map_err(failure)
    }

    fn lap(&mut self, participant: usize, load: usize) -> Result<Lap, ServerFailure> {
        self.log.push(format!("lap {participant}"));
        let begun = self.clock.saturating_sub(self.lap);
        Ok(self.driven(participant, load, LapKind::Flat, millis(begun)))
    }

    fn paced_lap(
        &mut self,
        participant: usize,
        load: usize,
        rate: f64,
    ) -> Result<Lap, ServerFailure> {
        let begun = self.clock;
        self.clock += self.lap + Duration::from_millis(110);
        self.call("paced lap", participant)?;
        Ok(self.driven(participant, load, LapKind::Paced { rate }, millis(begun)))
    }

    fn trial_lap(
        &mut self,
        participant: usize,
        load: usize,
        trial: TrialWindow,
    ) -> Result<Lap, ServerFailure> {
        let begun = self.clock;
        self.clock += trial.length + Duration::from_millis(200);
        self.call("trial", participant)?;
        let script = &self.scripts[participant];
        let nth = self.laps[participant];
        let faster = script.wobble.get(nth % script.wobble.len().max(1)).map_or(1.0, |w| w.0);
        let held = if trial.holds { self.held_share } else { 1.0 };
        let share = missed_share(trial.rate / (script.rate * KEEPS * faster * held));
        let mut lap = self.driven(participant, load, trial.kind(), millis(begun));
        let outcome = &mut lap.outcome;
        outcome.window_ns = u64::try_from(trial.length.as_nanos()).unwrap_or(u64::MAX);
        outcome.responses = (trial.rate * trial.length.as_secs_f64()).round() as u64;
        let missed = (share * outcome.responses as f64).round() as u64;
        outcome.response_time = Histogram::new();
        (0..missed).for_each(|_| outcome.response_time.record(1_000_000_000));
        (missed..outcome.responses).for_each(|_| outcome.response_time.record(1_000_000));
        let is_late = self.late_from.is_some_and(|rate| trial.rate >= rate);
        if is_late || (self.late_when_held && trial.holds) {
            outcome.lag.record(1_000_000_000);
        }
        lap.failed = validity::judge_trial(&lap, &self.loads[load]);
        Ok(lap)
    }

    fn instruments(&mut self, _: usize) -> (Vec<Instrument>, Vec<ObserveError>) {
        let all = [Instrument::Profile, Instrument::SystemCalls, Instrument::Events];
        let (forbidden, usable): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|instrument| self.forbidden.contains(instrument));
        let refused = |_| ObserveError {
            what: "the CPU profile".into(),
            why: "the kernel does not permit it".to_owned(),
            remedy: "sysctl kernel.perf_event_paranoid=1 permits it".to_owned(),
        };
        (usable, forbidden.into_iter().map(refused).collect())
    }

    fn observed_lap(
        &mut self,
        participant: usize,
        load: usize,
        instrument: Instrument,
    ) -> Result<(Lap, Result<Observation, ObserveError>), ServerFailure> {
        let begun = self.clock;
        self.clock += self.lap + Duration::from_millis(110);
        self.call("observed lap", participant)?;
        let lap = self.driven(participant, load, LapKind::Flat, millis(begun));
        let usage = lap.usage.expect("scripted");
        let script = &self.scripts[participant];
        let count = |each: f64| (each * usage.requests as f64).round() as u64;
        let seen = match instrument {
            Instrument::Profile => Observation::Profile(script.sampled(usage)),
            Instrument::SystemCalls => {
                let calls = script.calls.iter().map(|(name, each)| (name.clone(), count(*each)));
                Observation::SystemCalls(calls.collect())
            }
            Instrument::Events => {
                let (faults, switches) = script.faults_and_switches;
                Observation::Events(Events {
                    minor_faults: Some(count(faults)),
                    voluntary_switches: Some(count(switches)),
                    ..Events::default()
                })
            }
        };
        Ok((lap, Ok(seen)))
    }

    fn stop(&mut self, participants: &[usize]) -> Vec<(usize, String)> {
        self.log.extend(participants.iter().map(|participant| format!("stop {participant}")));
        Vec::new()
    }

    fn elapsed(&self) -> Duration {
        self.clock
    }

    fn interrupted(&self) -> bool {
        self.interrupted_at.is_some_and(|at| self.clock >= at)
    }
}
