//! The schedule of a run: restarts of rounds of laps, until the intervals are narrow enough or the
//! budget is spent.
//!
//! A restart starts every server again, in random order, and warms it up. A round runs every server
//! for two laps, slice by slice. With several loads, a round has up to six laps of a server under
//! each load, and warms the servers up right before these laps.
//!
//! A round consists of steps. In each step, every server runs once in random order, and then once
//! in the mirrored order, `C A B · B A C`. The next step has another order, so disturbances affect
//! all servers alike. The ceiling is measured in the first round of each restart, and the A/A
//! control in every fourth round. If requested, the first restarts end with a paced lap of each
//! server at a common rate.

use std::cmp::Reverse;
use std::time::Duration;

use hotlap_observe::{Instrument, Observation};
use hotlap_servers::launch::ServerFailure;
use hotlap_stats::Class;

use crate::budget::{Budget, Next};
use crate::experiment::{Event, Experiment, Explain, Over, Place, order, shuffled};
use crate::lap::{ExplainLap, Lap};
use crate::participant::{Participant, Role};
use crate::runner::{LONG_FREEZE, Runner, UNSTEADY_AGAIN};

mod explain;
mod search;

/// The typical warm-up time after a later start of a server whose first warm-up was flat: three
/// windows and the time of the hardware counters. This estimate is used until the second restart
/// has been timed.
const FLAT_AGAIN: Duration = Duration::from_millis(600);

/// The expected length of a later warm-up of a server with a compiler, as a share of the first
/// one. The medians of ten runs were 0.84 for java/jetty and 0.6 for node/http (2026-11-28).
const COMPILED_AGAIN: f64 = 0.8;

/// The A/A control is measured in one of this many rounds. With the control only in the first round
/// of each restart, one disturbed round in five made the noise floor 17%, while the intervals were
/// 2%. In every round, the control would take a third of the time of a run with two servers.
const CONTROL_EVERY: u32 = 4;

/// With several loads, a round measures each server under a load for at least this long. A shorter
/// time would not be worth the warm-up before it. The second value is the maximum number of pairs
/// of laps.
const SWITCHED: (Duration, f64) = (Duration::from_millis(500), 3.0);

/// The number of windows over which the throughput at the end of a warm-up is measured.
const LAST_WINDOWS: usize = 10;

/// Runs the experiment to its end and reports each event to `watch` as it happens. An experiment
/// with goals is a search for the highest rate at which each server meets them. Laps that explain
/// differences follow the comparison or search, or take its place.
pub fn run(experiment: &Experiment, runner: &mut dyn Runner, watch: &mut dyn FnMut(Event)) -> Over {
    let mut schedule = Schedule {
        experiment,
        runner,
        watch,
        running: vec![false; experiment.participants.len()],
        out: (0..experiment.participants.len()).map(|n| experiment.past.out.contains(&n)).collect(),
        budget: Budget::new(experiment),
        rate: experiment.common_rate.or(experiment.past.rate),
        sliced: vec![false; experiment.loads.len()],
        reached: vec![vec![0.0; experiment.loads.len()]; experiment.participants.len()],
        warmed: vec![vec![Duration::ZERO; experiment.loads.len()]; experiment.participants.len()],
        restarts: 0,
        explains: false,
        usable: Vec::new(),
    };
    let mut over = match experiment.explain {
        Explain::Only => schedule.explain(),
        _ if experiment.objectives.is_empty() => schedule.run(),
        _ => schedule.search(),
    };
    schedule.stop_all();
    let is_whole = !matches!(over, Over::Interrupted | Over::Nobody);
    if is_whole && matches!(experiment.explain, Explain::After(_)) {
        let explained = schedule.explain();
        over = if explained == Over::Interrupted { explained } else { over };
        schedule.stop_all();
    }
    over
}

struct Schedule<'a> {
    experiment: &'a Experiment,
    runner: &'a mut dyn Runner,
    watch: &'a mut dyn FnMut(Event),
    running: Vec<bool>,
    out: Vec<bool>,
    budget: Budget,
    /// The rate of paced laps, in requests/s. Unless it is given, the first paced laps set it.
    rate: Option<f64>,
    /// Whether the slice length of each load has been chosen.
    sliced: Vec<bool>,
    /// Requests/s at the end of the latest warm-up, by participant and load.
    reached: Vec<Vec<f64>>,
    /// How long the latest warm-up took, by participant and load.
    warmed: Vec<Vec<Duration>>,
    /// The number of restarts begun, including restarts of an earlier part of the run.
    restarts: u32,
    /// Whether laps explain differences, so that servers are started to be observed.
    explains: bool,
    /// The instruments that can be used on each participant.
    usable: Vec<Vec<Instrument>>,
}

impl Schedule<'_> {
    fn run(&mut self) -> Over {
        let mut place = self.experiment.from;
        loop {
            if let Err(over) = self.start_restart(place.restart) {
                return over;
            }
            let next = loop {
                if let Err(over) = self.round(place) {
                    return over;
                }
                place.round += 1;
                let before = self.budget.total();
                let next = self.budget.next(place, self.elapsed());
                let budget = self.budget.total();
                if budget > before {
                    (self.watch)(Event::Extended { budget });
                }
                if place == (Place { restart: 0, round: 1 })
                    && let Some(needed) = self.budget.is_too_short()
                {
                    (self.watch)(Event::TooShort { needed });
                }
                let left = self.budget.left(place, self.elapsed());
                (self.watch)(Event::Round { next: place, left });
                if next != Next::Round {
                    break next;
                }
            };
            if self.budget.is_paced(place.restart)
                && let Err(over) = self.paced_laps(place)
            {
                return over;
            }
            if let Next::Stop(over) = next {
                return over;
            }
            self.stop_all();
            place = Place { restart: place.restart + 1, round: 0 };
        }
    }

    /// Starts all remaining servers. Also warms them up, unless each round does.
    fn start_restart(&mut self, restart: u32) -> Result<(), Over> {
        (self.watch)(Event::Restart { restart });
        self.restarts = restart + 1;
        let began = self.elapsed();
        let place = Place { restart, round: 0 };
        let mut starts = shuffled(self.experiment.seed, place, 0, self.running.len());
        // In the first restart, the control starts last. If a program cannot run twice, because of
        // a fixed port or a lock, the control is then the copy that does not start. In later
        // restarts, the control starts in random order like any other server. Otherwise, it would
        // always be the server that started last.
        if restart == 0 {
            starts.sort_by_key(|n| self.experiment.participants[*n].role == Role::Control);
        }
        let mut again = self.bring_up(restart, &starts)?;
        if !self.switches_loads() {
            let all = 0..self.experiment.loads.len();
            let explained = self.experiment.closed_loop().filter(|_| self.explains);
            for load in explained.map_or(all, |load| load..load + 1) {
                let warmed = self.warm_up(place, load, true)?;
                again += warmed.iter().map(|(_, took)| *took).sum::<Duration>();
            }
        }
        self.budget.restart_started(self.elapsed().saturating_sub(began), again);
        self.go_on()
    }

    /// Whether every round warms servers up under a load, right before the laps under that load.
    /// After another load, Node's first laps cost 2 to 6 times as much (docs/lab-notebook.md, *A
    /// load after another load*). Possibly, a server still has requests of the other load in its
    /// queue, and its code is compiled again.
    fn switches_loads(&self) -> bool {
        self.experiment.loads.len() > 1 && self.experiment.objectives.is_empty() && !self.explains
    }

    /// Warms up the remaining servers under a load, in random order, and settles the load's slice
    /// length. Servers whose last warm-up took longer than [`LONG_FREEZE`] come first, so that
    /// fewer warm servers are frozen for that long. Unless `all`, servers that are not measured in
    /// this round are left out. Returns the time that the warm-up of each participant will
    /// probably take after the next start.
    fn warm_up(
        &mut self,
        place: Place,
        load: usize,
        all: bool,
    ) -> Result<Vec<(usize, Duration)>, Over> {
        let mut again = Vec::new();
        let mut order = shuffled(self.experiment.seed, place, 0, self.running.len());
        order.retain(|participant| all || self.takes_part(*participant, place));
        order.sort_by_key(|participant| Reverse(self.warmed[*participant][load].max(LONG_FREEZE)));
        for &participant in &order {
            if self.running[participant] {
                self.go_on()?;
                let since = self.elapsed();
                (self.watch)(Event::Warming { participant, load });
                let Self { runner, watch, .. } = self;
                let mut seen =
                    |requests_per_s| watch(Event::Window { participant, requests_per_s });
                match runner.warm(participant, load, &mut seen) {
                    Ok(warmup) => {
                        let took = self.elapsed().saturating_sub(since);
                        self.warmed[participant][load] = took;
                        let shorter = match warmup.class {
                            Class::NeverSteady => took / UNSTEADY_AGAIN,
                            Class::Flat if !warmup.compiles => took.min(FLAT_AGAIN),
                            _ if warmup.compiles => took.mul_f64(COMPILED_AGAIN),
                            _ => took,
                        };
                        again.push((participant, shorter));
                        let last = warmup.curve.len().saturating_sub(LAST_WINDOWS);
                        let windows = &warmup.curve[last..];
                        let sum: f64 = windows.iter().sum();
                        self.reached[participant][load] = sum / windows.len().max(1) as f64;
                        if place.round == 0 {
                            let (restart, warmup) = (place.restart, &warmup);
                            (self.watch)(Event::Warmed { participant, load, restart, warmup });
                        }
                    }
                    Err(why) => self.retire(participant, &why)?,
                }
            }
        }
        self.wake(load, order)?;
        // A search has no slices.
        if self.experiment.objectives.is_empty() {
            self.settle_slices(place, load)?;
        }
        Ok(again)
    }

    /// Wakes servers that were frozen for long, for example while other servers were warmed up. The
    /// A/A control is also frozen for long, because it is left out of some rounds.
    fn wake(&mut self, load: usize, order: Vec<usize>) -> Result<(), Over> {
        for participant in order {
            self.go_on()?;
            if self.running[participant]
                && let Err(why) = self.runner.wake(participant, load)
            {
                self.retire(participant, &why)?;
            }
        }
        Ok(())
    }

    /// Probes servers until the runner has chosen the slice length of a load. Reports the length
    /// once.
    fn settle_slices(&mut self, place: Place, load: usize) -> Result<(), Over> {
        let mut probes = self.runner.probes(load);
        let mut step = 0;
        while !probes.is_empty() {
            for at in order(self.experiment.seed, place, (load, step), probes.len()) {
                let participant = probes[at];
                self.go_on()?;
                if !self.running[participant] {
                    continue;
                }
                (self.watch)(Event::Probing { participant, load });
                if let Err(why) = self.runner.probe(participant, load) {
                    self.retire(participant, &why)?;
                }
            }
            step += 1;
            probes = self.runner.probes(load);
        }
        if !std::mem::replace(&mut self.sliced[load], true) {
            let mut probed = self.runner.probed();
            probed.retain(|probed| probed.load == load);
            self.budget.probed(&probed);
            (self.watch)(Event::Sliced { load, slice: self.runner.slice_length(load), probed });
        }
        Ok(())
    }

    /// Starts and verifies all remaining servers in this order. Returns the sum of the times that
    /// the servers took to start.
    fn bring_up(&mut self, restart: u32, order: &[usize]) -> Result<Duration, Over> {
        let participants: Vec<usize> = order.iter().copied().filter(|e| !self.out[*e]).collect();
        for &participant in &participants {
            self.go_on()?;
            (self.watch)(Event::Starting { participant });
            match self.runner.start(participant, self.explains) {
                Ok(()) => self.running[participant] = true,
                Err(why) => self.retire(participant, &why)?,
            }
        }
        self.go_on()?;
        (self.watch)(Event::Verifying);
        let started: Vec<usize> = participants.into_iter().filter(|e| self.running[*e]).collect();
        let mut took = Duration::ZERO;
        for (&participant, verified) in started.iter().zip(self.runner.verify(&started)) {
            match verified {
                Ok(ready) => {
                    took += Duration::from_secs_f64(ready.ready_ms.unwrap_or(0.0) / 1e3);
                    (self.watch)(Event::Started { participant, restart, ready: &ready });
                }
                Err(why) => self.retire(participant, &why)?,
            }
        }
        Ok(took)
    }

    /// Runs laps of every server under every load, with warm-ups if there are several loads.
    fn round(&mut self, place: Place) -> Result<(), Over> {
        let began = self.elapsed();
        let mut warming = Duration::ZERO;
        for load in 0..self.experiment.loads.len() {
            if self.switches_loads() {
                let since = self.elapsed();
                let again = self.warm_up(place, load, false)?;
                // The first warm-ups of a restart belong to its start.
                if place.round == 0 {
                    let took = self.elapsed().saturating_sub(since);
                    let later = Place { round: 1, ..place };
                    let is_later = |own: &&(usize, Duration)| self.takes_part(own.0, later);
                    let in_later = again.iter().filter(is_later).map(|(_, took)| *took).sum();
                    let again = again.iter().map(|(_, took)| *took).sum();
                    self.budget.restart_warmed(took, again, in_later);
                    warming += took;
                }
            }
            match self.experiment.loads[load].rate {
                None => self.sliced_laps(place, load, self.pairs(load))?,
                Some(rate) => {
                    let order = self.order(place, (load, 0));
                    for (nth, participant) in (0..).zip(order) {
                        self.paced_lap(place, nth, participant, (load, rate))?;
                    }
                }
            }
        }
        let took = self.elapsed().saturating_sub(began + warming);
        let pairs = self.experiment.closed_loop().map_or(1, |load| self.pairs(load));
        self.budget.round_run(place.round == 0, took, pairs);
        Ok(())
    }

    /// Returns the number of pairs of laps under a load in a round. One pair is enough, unless the
    /// servers were warmed up for these laps.
    fn pairs(&self, load: usize) -> u32 {
        if !self.switches_loads() {
            return 1;
        }
        let (least, most) = SWITCHED;
        let pairs = least.as_secs_f64() / (2.0 * self.lap_length(load).as_secs_f64());
        pairs.ceil().clamp(1.0, most) as u32
    }

    /// The length of a lap under a load: the sum of its slices.
    fn lap_length(&self, load: usize) -> Duration {
        self.runner.slice_length(load) * self.runner.slices(load).max(1)
    }

    /// Returns the order of a step of a round. The ceiling is measured in the first round of each
    /// restart, and the A/A control in some rounds. Both only show how the machine behaves, so
    /// most of the time is spent on the other servers.
    fn order(&self, place: Place, step: (usize, u32)) -> Vec<usize> {
        let mut order = order(self.experiment.seed, place, step, self.running.len());
        order.retain(|n| self.takes_part(*n, place));
        order
    }

    /// Whether a participant is measured in this round.
    fn takes_part(&self, participant: usize, place: Place) -> bool {
        match self.experiment.participants[participant].role {
            Role::Ceiling => place.round == 0,
            Role::Control => place.round.is_multiple_of(CONTROL_EVERY),
            Role::Reference | Role::Plain => true,
        }
    }

    /// Runs this many pairs of laps of every server. A pair takes as many steps as a lap has
    /// slices. In each step, every server runs twice: first in random order and then in the
    /// mirrored order.
    fn sliced_laps(&mut self, place: Place, load: usize, pairs: u32) -> Result<(), Over> {
        self.wake(load, self.order(place, (load, 0)))?;
        let slices = self.runner.slices(load).max(1);
        let mut driven = vec![0_u32; self.running.len()];
        let mut nth = 0;
        for step in 0..slices * pairs {
            for participant in self.order(place, (load, step)) {
                if !self.slice(participant, load)? {
                    continue;
                }
                driven[participant] += 1;
                if driven[participant].is_multiple_of(slices) {
                    let lap = self.runner.lap(participant, load);
                    self.driven(place, nth, participant, lap)?;
                    nth += 1;
                }
            }
        }
        Ok(())
    }

    /// Runs every server once, in random order, at the common rate. The order is not mirrored,
    /// because these laps are not paired. They are merged over the restarts, and each restart has
    /// another order.
    fn paced_laps(&mut self, place: Place) -> Result<(), Over> {
        let began = self.elapsed();
        // The first closed loop represents all loads, so there is only one rate.
        let Some(load) = self.experiment.closed_loop() else { return Ok(()) };
        if self.switches_loads() {
            self.warm_up(place, load, true)?;
        }
        let rate = match self.rate.or_else(|| self.budget.common_rate()) {
            Some(rate) => *self.rate.insert(rate),
            None => return Ok(()),
        };
        let salt = self.experiment.loads.len() as u64 + 1;
        let order = shuffled(self.experiment.seed, place, salt, self.running.len());
        self.wake(load, order.clone())?;
        for (nth, participant) in (0..).zip(order) {
            self.paced_lap(place, nth, participant, (load, rate))?;
        }
        self.budget.paced_run(self.elapsed().saturating_sub(began));
        Ok(())
    }

    fn paced_lap(
        &mut self,
        place: Place,
        nth: u32,
        participant: usize,
        (load, rate): (usize, f64),
    ) -> Result<(), Over> {
        self.go_on()?;
        if !self.running[participant] {
            return Ok(());
        }
        (self.watch)(Event::Lapping { participant, load });
        let lap = self.runner.paced_lap(participant, load, rate);
        self.driven(place, nth, participant, lap)
    }

    /// Runs a slice of a server, if the server is running. Returns whether the server is still
    /// running.
    fn slice(&mut self, participant: usize, load: usize) -> Result<bool, Over> {
        self.go_on()?;
        if !self.running[participant] {
            return Ok(false);
        }
        (self.watch)(Event::Lapping { participant, load });
        if let Err(why) = self.runner.slice(participant, load) {
            self.retire(participant, &why)?;
        }
        Ok(self.running[participant])
    }

    /// Records a lap, or drops the server if it failed.
    fn driven(
        &mut self,
        place: Place,
        nth: u32,
        participant: usize,
        lap: Result<Lap, ServerFailure>,
    ) -> Result<(), Over> {
        match lap {
            Ok(lap) => self.record(place, nth, lap, None),
            Err(why) => self.retire(participant, &why)?,
        }
        Ok(())
    }

    /// Records a lap and its place. A lap that explains differences is used for nothing else.
    fn record(&mut self, place: Place, nth: u32, mut lap: Lap, observation: Option<Observation>) {
        lap.at_ms += u64::try_from(self.experiment.past.spent.as_millis()).unwrap_or(u64::MAX);
        (lap.restart, lap.round, lap.place) = (place.restart, place.round, nth);
        if self.explains {
            (self.watch)(Event::ExplainLap(&ExplainLap { lap, observation }));
        } else {
            self.budget.lap(&lap);
            (self.watch)(Event::Lap(&lap));
        }
    }

    /// Drops a server, while the others continue. After an interrupt, the failure is not the
    /// server's fault, and the run ends.
    fn retire(&mut self, participant: usize, why: &ServerFailure) -> Result<(), Over> {
        if self.runner.interrupted() {
            return Err(Over::Interrupted);
        }
        self.out[participant] = true;
        self.budget.failure(participant);
        if self.running[participant] {
            self.stop(&[participant]);
        }
        (self.watch)(Event::ServerFailure { participant, why });
        Ok(())
    }

    fn stop(&mut self, participants: &[usize]) {
        for (participant, what) in self.runner.stop(participants) {
            (self.watch)(Event::Unclean { participant, what });
        }
        participants.iter().for_each(|participant| self.running[*participant] = false);
    }

    /// Stops all running servers.
    fn stop_all(&mut self) {
        let running: Vec<usize> = (0..self.running.len()).filter(|n| self.running[*n]).collect();
        self.stop(&running);
    }

    /// Time since the experiment began, including earlier parts of the run.
    fn elapsed(&self) -> Duration {
        self.experiment.past.spent + self.runner.elapsed()
    }

    /// Returns an error once there is a reason to stop.
    fn go_on(&self) -> Result<(), Over> {
        let is_plain = |(n, e): (usize, &Participant)| {
            !self.out[n] && matches!(e.role, Role::Plain | Role::Reference)
        };
        if self.runner.interrupted() {
            Err(Over::Interrupted)
        } else if self.experiment.participants.iter().enumerate().any(is_plain) {
            Ok(())
        } else {
            Err(Over::Nobody)
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use hotlap_servers::contract::{Contract, Name};
    use hotlap_servers::launch::Launch;
    use hotlap_stats::Estimate;

    use super::*;
    use crate::experiment::{Growth, Past};
    use crate::lap::LapKind;
    use crate::participant::{Load, Origin};
    use crate::runner::Probed;
    use crate::scripted::{Script, Scripted};

    fn load() -> Load {
        Load::new(64)
    }

    fn participant(name: &str, role: Role) -> Participant {
        let launch =
            Launch { argv: vec![name.to_owned()], cwd: PathBuf::from("/"), ..Launch::default() };
        Participant::new(
            name.to_owned(),
            role,
            Origin::Launch(launch),
            Contract::of(Name::Hello, None),
        )
    }

    pub(crate) fn experiment(restarts: Option<u32>, rounds: Option<u32>) -> Experiment {
        let participants = vec![
            participant("a", Role::Reference),
            participant("a again", Role::Control),
            participant("b", Role::Plain),
        ];
        let plain = Experiment::new(participants, vec![load()], Duration::from_secs(60));
        Experiment { restarts, rounds, seed: 7, ..plain }
    }

    pub(super) fn runner(scripts: Vec<Script>) -> Scripted {
        Scripted::new(scripts, vec![load()], Duration::from_millis(500))
    }

    pub(super) fn three() -> Vec<Script> {
        vec![Script::new(1000.0, 9000.0), Script::new(1000.0, 9000.0), Script::new(900.0, 10_000.0)]
    }

    /// Runs an experiment. Returns each lap as restart, round, place and participant, and why the
    /// experiment ended.
    fn laps(experiment: &Experiment, runner: &mut Scripted) -> (Vec<(u32, u32, u32, usize)>, Over) {
        let mut laps = Vec::new();
        let over = run(experiment, runner, &mut |event| {
            if let Event::Lap(lap) = event {
                laps.push((lap.restart, lap.round, lap.place, lap.server));
            }
        });
        (laps, over)
    }

    #[test]
    fn the_requested_restarts_and_rounds_are_run_and_every_server_is_stopped() {
        let mut runner = runner(three());
        let (laps, over) = laps(&experiment(Some(2), Some(3)), &mut runner);
        assert_eq!(over, Over::Done);
        // The A/A control is measured only in the first of the three rounds of a restart.
        assert_eq!(laps.len(), 2 * (3 + 2 + 2) * 2);
        let count = |what: &str| runner.log.iter().filter(|l| l.starts_with(what)).count();
        assert_eq!((count("start"), count("warm-up"), count("stop")), (6, 6, 6));
    }

    #[test]
    fn the_control_is_measured_in_every_fourth_round() {
        let (laps, _) = laps(&experiment(Some(1), Some(6)), &mut runner(three()));
        let rounds: Vec<u32> = laps.iter().filter(|lap| lap.3 == 1).map(|lap| lap.1).collect();
        assert_eq!(rounds, [0, 0, 4, 4]);
    }

    #[test]
    fn a_resumed_run_continues_in_the_original_order() {
        let whole = laps(&experiment(Some(3), Some(2)), &mut runner(three())).0;
        let from = Place { restart: 1, round: 1 };
        let rest =
            laps(&Experiment { from, ..experiment(Some(3), Some(2)) }, &mut runner(three())).0;
        let left: Vec<_> = whole.into_iter().filter(|l| (l.0, l.1) >= (1, 1)).collect();
        assert_eq!(rest, left);
    }

    #[test]
    fn the_budget_is_kept_and_mostly_spent_on_laps() {
        let mut runner = runner(three());
        let (laps, over) = laps(&experiment(None, None), &mut runner);
        assert_eq!(over, Over::Budget);
        let spent = runner.elapsed().as_secs_f64();
        assert!((50.0..64.0).contains(&spent), "{spent} s of 60");
        let measured = laps.len() as f64 * 0.5;
        assert!(measured / spent > 0.6, "{measured} s measured of {spent} s");
        assert!(laps.last().unwrap().0 >= 3, "cheap starts allow more than three restarts");
    }

    /// Regression: the paced laps of the last restart exceeded the budget.
    #[test]
    fn paced_laps_are_within_the_budget() {
        for (restarts, rounds) in [(None, None), (None, Some(2)), (Some(4), None)] {
            let mut runner = runner(three());
            let experiment = Experiment { paced: true, ..experiment(restarts, rounds) };
            assert_eq!(laps(&experiment, &mut runner).1, Over::Budget);
            let spent = runner.elapsed().as_secs_f64();
            assert!((48.0..61.0).contains(&spent), "{spent} s of 60");
        }
    }

    #[test]
    fn every_server_runs_a_slice_there_and_back_until_each_has_two_laps() {
        let mut runner = runner(three());
        runner.slices = 4;
        let (laps, _) = laps(&experiment(Some(1), Some(1)), &mut runner);
        let slices: Vec<&str> =
            runner.log.iter().filter(|l| l.starts_with("slice")).map(String::as_str).collect();
        let mirrored = |step: &[&str]| {
            let mut back = step.to_vec();
            back.reverse();
            back == step
        };
        // There are four steps of three servers, in both orders. A lap ends with its fourth slice.
        assert_eq!(slices.len(), 4 * 3 * 2);
        assert!(slices.chunks(6).all(mirrored), "{slices:?}");
        for n in 0..3 {
            let own = [format!("slice {n}"), format!("lap {n}")];
            let own = runner.log.iter().filter(|l| own.iter().any(|o| o == *l));
            let ends = own.enumerate().filter(|(_, l)| l.starts_with("lap")).map(|(at, _)| at);
            assert_eq!(ends.collect::<Vec<_>>(), [4, 9]);
        }
        let mut participants: Vec<usize> = laps.iter().map(|l| l.3).collect();
        participants.sort_unstable();
        assert_eq!(participants, [0, 0, 1, 1, 2, 2]);
    }

    /// Regression: after the warm-ups of other loads, Node's first laps cost up to six times as
    /// much.
    #[test]
    fn with_several_loads_each_is_warmed_up_right_before_its_laps() {
        let one = experiment(Some(1), Some(2));
        let loads = vec![load(), Load { request: Some(1), ..load() }];
        let two = Experiment { loads: loads.clone(), ..one };
        let mut runner = Scripted::new(three(), loads, Duration::from_millis(500));
        let mut recorded = Vec::new();
        run(&two, &mut runner, &mut |event| {
            if let Event::Warmed { participant, load, .. } = event {
                recorded.push((participant, load));
            }
        });
        let kind = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
        let mut kinds: Vec<String> = runner.log.iter().map(kind).collect();
        kinds.retain(|kind| kind != "lap");
        kinds.dedup();
        let each = ["warm-up", "slice"];
        let expected = [&["start"][..], &each.repeat(4), &["stop"]].concat();
        assert_eq!(kinds, expected);
        recorded.sort_unstable();
        assert_eq!(recorded, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
    }

    /// Regression: a long warm-up froze the other servers for so long that each had to be loaded
    /// again.
    #[test]
    fn a_long_warm_up_comes_first_once_it_is_known() {
        let mut scripts = three();
        scripts[2].warm_up = Duration::from_secs(6);
        let mut runner = runner(scripts);
        laps(&experiment(Some(5), Some(1)), &mut runner);
        let warm_ups = runner.log.iter().filter_map(|line| line.strip_prefix("warm-up "));
        let order: Vec<&str> = warm_ups.collect();
        assert!(order.chunks(3).skip(1).all(|restart| restart[0] == "2"), "{order:?}");
        let second: BTreeSet<&str> = order.chunks(3).map(|restart| restart[1]).collect();
        assert!(second.len() > 1, "the order of the others is random");
    }

    /// Regression: the first start, before the interruption, counted against the budget of a
    /// resumed run, so the run ended after one round.
    #[test]
    fn a_resumed_run_has_the_rest_of_its_budget() {
        let from = Place { restart: 1, round: 0 };
        let seconds = Duration::from_secs;
        let past = Past { spent: seconds(65), starting: seconds(45), ..Past::default() };
        let mut runner = runner(three());
        let resumed = Experiment { from, past, ..experiment(None, None) };
        assert_eq!(laps(&resumed, &mut runner).1, Over::Budget);
        let spent = runner.elapsed().as_secs_f64();
        assert!((32.0..44.0).contains(&spent), "{spent} s of 40");
    }

    #[test]
    fn the_slice_length_is_settled_once_before_the_first_slice() {
        let mut runner = runner(three());
        runner.probes = 3;
        let mut said = 0;
        run(&experiment(Some(2), Some(1)), &mut runner, &mut |event| {
            said += u32::from(matches!(event, Event::Sliced { .. }));
        });
        let kind = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
        let mut kinds: Vec<String> = runner.log.iter().map(kind).collect();
        kinds.retain(|kind| kind != "lap");
        kinds.dedup();
        let restart = ["start", "warm-up", "slice", "stop"];
        assert_eq!(kinds[..3], ["start", "warm-up", "probe"]);
        assert_eq!(
            (&kinds[3..5], &kinds[5..]),
            (&["slice".to_owned(), "stop".to_owned()][..], &restart.map(str::to_owned)[..])
        );
        // There are three servers, with three probes in both orders.
        assert_eq!(runner.log.iter().filter(|l| l.starts_with("probe")).count(), 3 * 2 * 3);
        assert_eq!(said, 1);
    }

    #[test]
    fn a_server_that_dies_in_its_slice_is_out_and_has_no_lap_of_it() {
        let mut scripts = three();
        // The calls are the server's start, its warm-up, and two slices, and then it dies.
        scripts[1].dies_at = Some(4);
        let mut runner = runner(scripts);
        runner.slices = 4;
        let (laps, over) = laps(&experiment(Some(1), Some(1)), &mut runner);
        assert_eq!(over, Over::Done);
        assert!(laps.iter().all(|l| l.3 != 1), "{laps:?}");
        assert_eq!(laps.iter().filter(|l| l.3 == 0).count(), 2);
    }

    #[test]
    fn a_server_that_dies_is_out_and_the_others_go_on() {
        let mut scripts = three();
        scripts[2].dies_at = Some(4);
        let mut runner = runner(scripts);
        let mut out = Vec::new();
        let over = run(&experiment(Some(2), Some(2)), &mut runner, &mut |event| {
            if let Event::ServerFailure { participant, why } = event {
                out.push((participant, why.cause.clone()));
            }
        });
        assert_eq!(over, Over::Done);
        assert_eq!(out, [(2, "exited with code 3".to_owned())]);
        assert_eq!(runner.log.iter().filter(|l| *l == "start 2").count(), 1);
        assert_eq!(runner.log.iter().filter(|l| *l == "lap 0").count(), 8);
    }

    #[test]
    fn a_run_without_remaining_servers_ends() {
        let mut scripts = three();
        for script in &mut scripts {
            script.dies_at = Some(0);
        }
        assert_eq!(laps(&experiment(None, None), &mut runner(scripts)).1, Over::Nobody);
    }

    #[test]
    fn an_interrupt_ends_the_run_and_stops_the_servers() {
        let mut runner = runner(three());
        runner.interrupted_at = Some(Duration::from_secs(5));
        let (laps, over) = laps(&experiment(None, None), &mut runner);
        assert_eq!(over, Over::Interrupted);
        assert!(!laps.is_empty());
        let count = |what: &str| runner.log.iter().filter(|l| l.starts_with(what)).count();
        assert_eq!(count("start"), count("stop"));
    }

    #[test]
    fn paced_laps_run_at_half_of_the_slowest_throughput() {
        let mut rates = Vec::new();
        let paced = Experiment { paced: true, ..experiment(Some(2), Some(1)) };
        run(&paced, &mut runner(three()), &mut |event| {
            if let Event::Lap(Lap { kind: LapKind::Paced { rate }, .. }) = event {
                rates.push(*rate);
            }
        });
        assert_eq!(rates.len(), 2 * 3);
        assert!(rates.iter().all(|r| (*r - 450.0).abs() < 1e-9), "{rates:?}");
    }

    #[test]
    fn a_run_ends_early_once_it_is_precise_enough() {
        let budget = Duration::from_secs(120);
        let precise = Experiment { precision: Some(0.01), budget, ..experiment(None, None) };
        let mut runner = runner(three());
        assert_eq!(laps(&precise, &mut runner).1, Over::Precise);
        let spent = runner.elapsed().as_secs_f64();
        assert!(spent < 100.0, "{spent} s");
    }

    /// Regression: on cores of changing speed, a run never ended early, although its report had
    /// precise figures.
    #[test]
    fn a_run_ends_early_by_figures_adjusted_for_the_speed_of_the_cores() {
        let budget = Duration::from_secs(120);
        let plain = Experiment { budget, ..experiment(None, None) };
        let precise = Experiment { precision: Some(0.01), ..plain.clone() };
        let certain = Experiment { limit: Some(1.0), ..plain };
        let over = |experiment: &Experiment, has_gauge| {
            let mut scripts = three();
            for (script, slow) in scripts.iter_mut().zip([2.0, 1.8, 1.6]) {
                script.wobble = vec![(1.0, 1.0), (1.0 / slow, slow), (1.0, 1.0)];
            }
            let mut runner = runner(scripts);
            runner.has_gauge = has_gauge;
            laps(experiment, &mut runner).1
        };
        assert_eq!(over(&precise, false), Over::Budget);
        assert_eq!((over(&precise, true), over(&certain, true)), (Over::Precise, Over::Certain));
        // Gauges on different numbers of cores are not compared.
        let mut differing = precise;
        differing.participants[2].cpus = Some(2);
        assert_eq!(over(&differing, true), Over::Budget);
    }

    /// Regression: a run ended early, although its report then corrected the ratios for the slice
    /// bias.
    #[test]
    fn a_run_ends_early_once_its_differences_are_certain() {
        let budget = Duration::from_secs(120);
        let certain = Experiment { limit: Some(1.0), budget, ..experiment(None, None) };
        let ratio = Estimate { value: 1.1, low: 1.08, high: 1.12 };
        let probed = Probed { participant: 2, load: 0, slice_ms: 12.0, ratio, rate: ratio };
        let over = |before: &[Probed], now: &[Probed]| {
            let past = Past { probed: before.to_vec(), ..Past::default() };
            let mut runner = runner(three());
            runner.found = now.to_vec();
            laps(&Experiment { past, ..certain.clone() }, &mut runner).1
        };
        assert_eq!(over(&[], &[]), Over::Certain);
        assert_eq!(over(&[], &[probed]), Over::Budget);
        assert_eq!(over(&[probed], &[]), Over::Budget, "a resumed run does not probe again");
    }

    /// Regression: suites of nine servers with slices of 1 s ended after one restart, without a
    /// verdict.
    #[test]
    fn a_budget_that_may_grow_has_time_for_enough_restarts() {
        let budget = Duration::from_secs(1);
        let restarts = |growth| {
            let mut grown = Vec::new();
            let experiment = Experiment { growth, budget, ..experiment(None, None) };
            let mut runner = runner(three());
            let mut last = Place::default();
            run(&experiment, &mut runner, &mut |event| match event {
                Event::Extended { budget } => grown.push(budget),
                Event::Lap(lap) => last = Place { restart: lap.restart, round: lap.round },
                _ => {}
            });
            (last.restart + 1, last.round + 1, grown.len())
        };
        assert_eq!(restarts(Growth::None), (1, 1, 0));
        // Three restarts of two rounds take about as long as five restarts of one round, which say
        // more.
        assert_eq!(restarts(Growth::Verdict), (5, 1, 1));
        assert_eq!(restarts(Growth::Usual), (5, 3, 1));
    }
}
