//! Forecasts how long an experiment takes.
//!
//! The schedule itself runs the experiment, with a runner that only adds up the time of each step.
//! The forecast therefore has the restarts, rounds, probes and paced laps of the real run.

use std::collections::BTreeMap;
use std::time::Duration;

use hotlap_load::Outcome;
use hotlap_observe::{Instrument, Observation, ObserveError};
use hotlap_servers::launch::ServerFailure;

use super::instance::{Between, COUNTED, WARM_WINDOW};
use super::slices::{AWAKE, LENGTHS, Needs, PROBE_WINDOWS, Slices, WHOLE, lead_in};
use super::{VERIFIED_AT_ONCE, paced_window, slices_a_lap};
use crate::experiment::{Event, Experiment, Explain};
use crate::lap::{Lap, LapKind};
use crate::participant;
use crate::runner::{LONG_FREEZE, Probed, Ready, Runner, TOLERANCE, TrialWindow, Warmup};
use crate::schedule;

/// The approximate time to verify a group of servers at the same time. The first value is for the
/// first restart, in which some checks wait for a second. The second value is for later restarts.
const VERIFYING: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(200)];

/// The approximate time to thaw and freeze a server, in addition to its slice.
const SWITCHING: Duration = Duration::from_millis(5);

/// The approximate time to connect and settle before a warm-up.
const CONNECTING: Duration = Duration::from_millis(100);

/// The approximate time that a server takes to stop.
const STOPPING: Duration = Duration::from_millis(100);

/// What the forecast assumes about a participant.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Time from the server's start to its first response.
    pub ready: Duration,
    /// What the forecast assumes about the participant under each load.
    pub loads: Vec<ExpectedLoad>,
}

/// What the forecast assumes about a participant under a load.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedLoad {
    /// Time of the server's first warm-up.
    pub warm_up: Duration,
    /// The server's mean service time.
    pub service: Duration,
    /// Whether the server recovers in the shortest slices. If all servers do, no longer slices are
    /// tried.
    pub recovers: bool,
}

/// The forecast length of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// The time until all servers are started, warmed up and probed.
    pub starting: Duration,
    /// The time until the last server is stopped.
    pub whole: Duration,
    /// The number of restarts, if servers are compared.
    pub restarts: u32,
    /// The number of rounds in all restarts, if servers are compared.
    pub rounds: u32,
}

/// Forecasts an experiment with these participants. All of them together are probed for at most
/// `probe_limit` at each length. A search, or an experiment that only explains, takes its whole
/// budget. Laps that explain differences after a comparison or search are left out.
pub fn forecast(experiment: &Experiment, expected: &[Expected], probe_limit: Duration) -> Forecast {
    let is_compared = experiment.objectives.is_empty() && experiment.explain != Explain::Only;
    let mut plain = Experiment {
        // A forecast cannot know whether the run will end early.
        precision: None,
        limit: None,
        objectives: Vec::new(),
        explain: Explain::No,
        ..experiment.clone()
    };
    if !is_compared {
        plain.restarts = Some(1);
        plain.rounds = Some(1);
        plain.from = crate::experiment::Place::default();
    }
    // A search runs whole laps without slices.
    let loads = experiment.loads.len();
    let is_search = !experiment.objectives.is_empty();
    let chosen = if is_search { vec![WHOLE; loads] } else { experiment.slices.clone() };
    let mut runner = Forecaster {
        experiment: &plain,
        expected,
        slices: Slices::of_loads(&chosen, loads, probe_limit),
        clock: Duration::ZERO,
        starting: None,
        further: Duration::ZERO,
        warm_ups: vec![0; expected.len()],
        frozen: vec![Duration::ZERO; expected.len()],
        is_verified: false,
    };
    let (mut restarts, mut rounds) = (0, 0);
    schedule::run(&plain, &mut runner, &mut |event| match event {
        Event::Restart { .. } => restarts += 1,
        Event::Round { .. } => rounds += 1,
        _ => {}
    });
    let whole = runner.clock;
    let starting = runner.starting.map_or(whole, |starting| starting + runner.further);
    match is_compared {
        true => Forecast { starting, whole, restarts, rounds },
        false => {
            let whole =
                starting + experiment.budget.saturating_sub(experiment.past.of_the_budget());
            Forecast { starting, whole, restarts, rounds }
        }
    }
}

/// A runner that has no servers and only advances a clock.
struct Forecaster<'a> {
    experiment: &'a Experiment,
    expected: &'a [Expected],
    slices: Vec<Slices>,
    clock: Duration,
    /// When the first slice began.
    starting: Option<Duration>,
    /// The time of first warm-ups after the first slice, under further loads.
    further: Duration,
    /// The number of warm-ups so far, by participant.
    warm_ups: Vec<usize>,
    /// When each participant was last frozen.
    frozen: Vec<Duration>,
    /// Whether the servers of the first restart have been verified.
    is_verified: bool,
}

impl Forecaster<'_> {
    fn program(&self, participant: usize) -> usize {
        participant::program(self.experiment.participants.iter().map(|e| e.role), participant)
    }

    fn needs(&self, load: usize) -> BTreeMap<usize, Needs> {
        let whole = self.experiment.loads[load].rate.is_some();
        let own = |(participant, expected): (usize, &Expected)| {
            let service = expected.loads[load].service;
            let needs = Needs { service, whole, delay: Duration::ZERO, known: true };
            (self.program(participant), needs)
        };
        self.expected.iter().enumerate().map(own).collect()
    }

    fn service(&self, load: usize) -> Duration {
        self.expected.iter().map(|own| own.loads[load].service).max().unwrap_or_default()
    }

    fn lap_length(&self, load: usize) -> Duration {
        self.slices[load].length() * self.slices(load)
    }

    /// Adds the time of a window, with what comes before and after it.
    fn window(&mut self, (participant, load): (usize, usize), window: Duration) {
        self.starting.get_or_insert(self.clock);
        let service = self.expected[participant].loads[load].service;
        self.clock += SWITCHING + lead_in(window) + service + window + service;
        self.frozen[participant] = self.clock;
    }

    fn measured(&self, participant: usize, load: usize, kind: LapKind, window: Duration) -> Lap {
        let plan = &self.experiment.loads[load];
        let in_flight = plan.shape.in_flight() as f64;
        // Little's law gives the rate.
        let service = self.expected[participant].loads[load].service;
        let rate = in_flight / service.as_secs_f64().max(1e-6);
        let outcome = Outcome {
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            responses: (rate * window.as_secs_f64()) as u64,
            ..Outcome::default()
        };
        Lap::new((participant, load), kind, 0, outcome, None)
    }
}

impl Runner for Forecaster<'_> {
    fn start(&mut self, participant: usize, _observes: bool) -> Result<(), ServerFailure> {
        self.clock += self.expected[participant].ready;
        Ok(())
    }

    fn verify(&mut self, participants: &[usize]) -> Vec<Result<Ready, ServerFailure>> {
        let again = usize::from(std::mem::replace(&mut self.is_verified, true));
        let groups = participants.len().div_ceil(VERIFIED_AT_ONCE);
        self.clock += VERIFYING[again] * u32::try_from(groups).unwrap_or(u32::MAX);
        let ready = |participant: &usize| {
            let ready_ms = Some(self.expected[*participant].ready.as_secs_f64() * 1e3);
            Ok(Ready {
                ready_ms,
                conformance: (0, 0),
                database_work: Vec::new(),
                notes: Vec::new(),
                rss_bytes: None,
            })
        };
        participants.iter().map(ready).collect()
    }

    fn warm(
        &mut self,
        participant: usize,
        load: usize,
        _watch: &mut dyn FnMut(f64),
    ) -> Result<Warmup, ServerFailure> {
        let first = self.expected[participant].loads[load].warm_up;
        let is_first = self.warm_ups[participant] < self.experiment.loads.len();
        let warm_up = if is_first { first } else { WARM_WINDOW.min(first) };
        let took = CONNECTING + warm_up + COUNTED;
        self.clock += took;
        if is_first && self.starting.is_some() {
            self.further += took;
        }
        self.warm_ups[participant] += 1;
        self.frozen[participant] = self.clock;
        Ok(Warmup::flat(load))
    }

    fn wake(&mut self, participant: usize, _load: usize) -> Result<(), ServerFailure> {
        if self.clock - self.frozen[participant] >= LONG_FREEZE {
            self.clock += SWITCHING + lead_in(AWAKE) + AWAKE;
            self.frozen[participant] = self.clock;
        }
        Ok(())
    }

    fn probes(&mut self, load: usize) -> Vec<usize> {
        let needs = self.needs(load);
        self.slices[load].next(&needs)
    }

    fn probe(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure> {
        let length = self.slices[load].length();
        self.clock += SWITCHING + length.mul_f64(PROBE_WINDOWS);
        self.frozen[participant] = self.clock;
        let is_short = length == LENGTHS[0] && !self.expected[participant].loads[load].recovers;
        let beyond = if is_short { TOLERANCE * TOLERANCE } else { 1.0 };
        let cost = |cpu_ns: f64| Between {
            requests: 1_000,
            wall_ns: 1_000_000,
            cpu_ns: Some(cpu_ns as u64),
            slices: 1,
            ..Between::default()
        };
        let program = self.program(participant);
        self.slices[load].probed(program, &cost(1e6 * beyond), &cost(1e6));
        Ok(())
    }

    fn probed(&self) -> Vec<Probed> {
        Vec::new()
    }

    fn slice_length(&self, load: usize) -> Duration {
        self.slices[load].length()
    }

    fn slices(&self, load: usize) -> u32 {
        slices_a_lap(self.slices[load].length(), self.service(load))
    }

    fn slice(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure> {
        self.window((participant, load), self.slices[load].length());
        Ok(())
    }

    fn lap(&mut self, participant: usize, load: usize) -> Result<Lap, ServerFailure> {
        Ok(self.measured(participant, load, LapKind::Flat, self.lap_length(load)))
    }

    fn paced_lap(
        &mut self,
        participant: usize,
        load: usize,
        rate: f64,
    ) -> Result<Lap, ServerFailure> {
        let window = paced_window(rate).max(self.lap_length(load));
        self.window((participant, load), window);
        Ok(self.measured(participant, load, LapKind::Paced { rate }, window))
    }

    fn trial_lap(
        &mut self,
        participant: usize,
        load: usize,
        trial: TrialWindow,
    ) -> Result<Lap, ServerFailure> {
        Ok(self.measured(participant, load, trial.kind(), trial.length))
    }

    fn instruments(&mut self, _participant: usize) -> (Vec<Instrument>, Vec<ObserveError>) {
        (Vec::new(), Vec::new())
    }

    fn observed_lap(
        &mut self,
        participant: usize,
        load: usize,
        _instrument: Instrument,
    ) -> Result<(Lap, Result<Observation, ObserveError>), ServerFailure> {
        let lap = self.measured(participant, load, LapKind::Flat, self.lap_length(load));
        Ok((lap, Ok(Observation::SystemCalls(BTreeMap::new()))))
    }

    fn stop(&mut self, participants: &[usize]) -> Vec<(usize, String)> {
        self.clock += STOPPING * u32::try_from(participants.len()).unwrap_or(u32::MAX);
        Vec::new()
    }

    fn elapsed(&self) -> Duration {
        self.clock
    }

    fn interrupted(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use hotlap_servers::contract::{Contract, Name};
    use hotlap_servers::launch::Launch;

    use super::*;
    use crate::participant::{Load, Origin, Participant, Role};

    const READY: Duration = Duration::from_millis(300);
    const WARM_UP: Duration = Duration::from_secs(2);

    /// Returns an experiment with two servers, the control and the ceiling.
    fn experiment(restarts: Option<u32>, rounds: Option<u32>, budget: Duration) -> Experiment {
        let participant = |role| {
            let launch = Launch { cwd: PathBuf::from("."), ..Launch::default() };
            let contract = Contract::of(Name::Hello, None);
            Participant::new("a".to_owned(), role, Origin::Launch(launch), contract)
        };
        let roles = [Role::Reference, Role::Plain, Role::Control, Role::Ceiling];
        let participants = roles.map(participant).to_vec();
        Experiment {
            restarts,
            rounds,
            ..Experiment::new(participants, vec![Load::new(64)], budget)
        }
    }

    fn expected(service_ms: u64, recovers: bool) -> [Expected; 4] {
        let service = Duration::from_millis(service_ms);
        let load = ExpectedLoad { warm_up: WARM_UP, service, recovers };
        [(); 4].map(|()| Expected { ready: READY, loads: vec![load] })
    }

    /// Regression: probes, laps at the common rate and the end of the servers were left out. A run
    /// that was announced as 26 s took 35 s.
    #[test]
    fn a_forecast_is_the_sum_of_all_steps_of_the_schedule() {
        let limit = Duration::from_secs(60);
        let own = Experiment { paced: true, ..experiment(Some(2), Some(2), limit) };
        let found = forecast(&own, &expected(0, true), limit);
        // Each of three programs recovers after four probes in both orders.
        let probe = SWITCHING + LENGTHS[0].mul_f64(PROBE_WINDOWS);
        // The first two servers are frozen for more than 5 s while the others are warmed up.
        let awake = SWITCHING + lead_in(AWAKE) + AWAKE;
        let warm_ups = (CONNECTING + WARM_UP + COUNTED) * 4 + awake * 2;
        let starting = READY * 4 + VERIFYING[0] + warm_ups + probe * 24;
        let slice = SWITCHING + lead_in(LENGTHS[0]) + LENGTHS[0];
        // A lap has eight slices. All four servers take part in the first round of a restart.
        let rounds = slice * 16 * (4 + 2) * 2;
        let paced = SWITCHING + lead_in(super::super::PACED) + super::super::PACED;
        let again = READY * 4 + VERIFYING[1] + (CONNECTING + WARM_WINDOW + COUNTED) * 4;
        let whole = starting + rounds + paced * 4 * 2 + again + STOPPING * 4 * 2;
        assert_eq!(found, Forecast { starting, whole, restarts: 2, rounds: 4 });
    }

    #[test]
    fn a_server_that_does_not_recover_in_short_slices_takes_longer_to_probe() {
        let (budget, limit) = (Duration::from_secs(60), Duration::from_secs(12));
        let own = experiment(None, None, budget);
        let starting = |expected: [Expected; 4]| forecast(&own, &expected, limit).starting;
        let longer = starting(expected(0, false)) - starting(expected(0, true));
        // The control is not probed, and meanwhile stays frozen for more than 5 s.
        let awake = SWITCHING + lead_in(AWAKE) + AWAKE;
        assert_eq!(longer, (SWITCHING + LENGTHS[1].mul_f64(PROBE_WINDOWS)) * 24 + awake);
    }

    /// The budget starts with the first lap, and the servers are stopped after it is spent.
    #[test]
    fn a_run_takes_its_first_start_its_budget_and_the_end_of_its_servers() {
        let budget = Duration::from_secs(60);
        let own = Experiment { paced: true, ..experiment(None, None, budget) };
        for service_ms in [0, 5, 40] {
            let found = forecast(&own, &expected(service_ms, false), budget / 5);
            let measuring = found.whole - found.starting;
            assert!(measuring > budget * 9 / 10, "{service_ms} ms: {found:?}");
            assert!(measuring < budget * 11 / 10, "{service_ms} ms: {found:?}");
        }
    }
}
