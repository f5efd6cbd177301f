//! Laps that explain where the difference in cost between servers comes from.
//!
//! A restart begins like the restart of a comparison. Each round then runs plain laps of each
//! server, which measure the difference, and two laps of each server with the profiler on. These
//! laps are interleaved and mirrored as in a run. Some rounds also have a lap with each of the
//! other instruments, which count events. Counts per request are nearly exact, so these
//! instruments need little time.

use std::time::Duration;

use hotlap_observe::Instrument;
use hotlap_stats::MIN_RESTARTS;

use super::Schedule;
use crate::experiment::{Event, Experiment, Explain, Over, Place, order};
use crate::participant::Role;
use crate::runner::OBSERVED;

/// The number of restarts, unless the user sets it. Intervals are computed over restarts. With
/// eight restarts, the difference of one of six groups counts if it is 3.6 standard errors or more.
/// The limit is 4.2 with six restarts, and 10.9 with three. More restarts leave too little time for
/// rounds.
const RESTARTS: u32 = 8;

/// The first of every group of this many rounds has laps with the instruments that count.
const COUNTS_EVERY: u32 = 3;

/// The instruments, and whether a round has two mirrored laps of each server with the instrument,
/// or only one.
const INSTRUMENTS: [(Instrument, bool); 3] =
    [(Instrument::Profile, true), (Instrument::SystemCalls, false), (Instrument::Events, false)];

/// The distance between the step numbers of two kinds of laps within a round, so that each kind has
/// its own order. No kind has as many steps in a round.
const STEPS_APART: u32 = 1 << 16;

impl Schedule<'_> {
    /// Runs the laps that explain differences, in separate restarts. The first start does not count
    /// against the budget.
    pub(super) fn explain(&mut self) -> Over {
        let Experiment { budget, restarts, rounds, .. } = *self.experiment;
        let (budget, restarts, rounds) = match self.experiment.explain {
            Explain::No => return Over::Done,
            Explain::After(budget) => (budget, None, None),
            Explain::Only => (budget, restarts, rounds),
        };
        (self.watch)(Event::Explaining);
        self.explains = true;
        for (participant, its) in self.experiment.participants.iter().enumerate() {
            self.out[participant] |= !matches!(its.role, Role::Plain | Role::Reference);
        }
        let first = self.restarts;
        let planned = restarts.unwrap_or(RESTARTS);
        let mut opened = None;
        for nth in 0..planned {
            let began = self.elapsed();
            if let Err(over) = self.start_restart(first + nth) {
                return over;
            }
            let opened = *opened.get_or_insert_with(|| self.elapsed());
            let until = opened + budget * (nth + 1) / planned;
            let start = self.elapsed().saturating_sub(began);
            let round = match self.explain_rounds(first + nth, (rounds, until), opened + budget) {
                Ok(round) => round,
                Err(over) => return over,
            };
            self.stop_all();
            // The number of restarts matters most, so half of the last restart may exceed the
            // budget.
            let has_time = self.elapsed() + (start + round) / 2 <= opened + budget;
            let is_enough = restarts.is_none() && (MIN_RESTARTS..planned).contains(&(nth + 1));
            if is_enough && !has_time {
                return Over::Budget;
            }
        }
        Over::Done
    }

    /// Runs the rounds of a restart: this many, or until this time. Returns how long the first
    /// round took.
    fn explain_rounds(
        &mut self,
        restart: u32,
        (rounds, until): (Option<u32>, Duration),
        end: Duration,
    ) -> Result<Duration, Over> {
        let Some(load) = self.experiment.closed_loop() else { return Ok(Duration::ZERO) };
        self.find_instruments();
        let mut first = Duration::ZERO;
        for round in 0.. {
            let (place, began) = (Place { restart, round }, self.elapsed());
            self.plain_laps(place, load)?;
            for (instrument, is_mirrored) in INSTRUMENTS {
                if instrument == Instrument::Profile || round % COUNTS_EVERY == 0 {
                    self.observed_laps(place, load, (instrument, is_mirrored))?;
                }
            }
            let took = self.elapsed().saturating_sub(began);
            first = if round == 0 { took } else { first };
            let left = end.saturating_sub(self.elapsed());
            (self.watch)(Event::Round { next: Place { restart, round: round + 1 }, left });
            let is_over = match rounds {
                Some(rounds) => round + 1 >= rounds,
                None => self.elapsed() + took > until,
            };
            if is_over {
                break;
            }
        }
        // Some limits of an instrument show only once a profile has been taken.
        self.find_instruments();
        Ok(first)
    }

    /// Finds out which instruments can be used on each server.
    fn find_instruments(&mut self) {
        self.usable = vec![Vec::new(); self.running.len()];
        for participant in (0..self.running.len()).filter(|n| self.running[*n]) {
            let (usable, missing) = self.runner.instruments(participant);
            self.usable[participant] = usable;
            for why in &missing {
                (self.watch)(Event::Unobserved { participant, why });
            }
        }
    }

    /// Runs laps of every server without an instrument, in slices as in a run. The laps take about
    /// as much time as the profiled laps.
    fn plain_laps(&mut self, place: Place, load: usize) -> Result<(), Over> {
        self.go_on_comparing()?;
        let lap = self.lap_length(load).as_secs_f64();
        let pairs = (OBSERVED.as_secs_f64() / lap).max(1.0).round() as u32;
        self.sliced_laps(place, load, pairs)
    }

    /// Runs one lap of every server with an instrument on, or two laps if they are mirrored. A lap
    /// whose instrument failed is dropped.
    fn observed_laps(
        &mut self,
        place: Place,
        load: usize,
        (instrument, is_mirrored): (Instrument, bool),
    ) -> Result<(), Over> {
        self.go_on_comparing()?;
        let salt = (load, (1 + instrument as u32) * STEPS_APART);
        let mut order = order(self.experiment.seed, place, salt, self.running.len());
        if !is_mirrored {
            order.truncate(self.running.len());
        }
        for (nth, participant) in (0..).zip(order) {
            self.go_on()?;
            if !self.running[participant] || !self.usable[participant].contains(&instrument) {
                continue;
            }
            (self.watch)(Event::Lapping { participant, load });
            match self.runner.observed_lap(participant, load, instrument) {
                Ok((lap, Ok(seen))) => self.record(place, nth, lap, Some(seen)),
                Ok((_, Err(why))) => {
                    (self.watch)(Event::Unobserved { participant, why: &why });
                }
                Err(why) => self.retire(participant, &why)?,
            }
        }
        Ok(())
    }

    /// Returns an error once there is a reason to stop. An explanation needs at least two servers.
    fn go_on_comparing(&self) -> Result<(), Over> {
        self.go_on()?;
        match self.running.iter().filter(|is_running| **is_running).count() {
            0 | 1 => Err(Over::Nobody),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hotlap_observe::Observation;

    use super::super::tests::{experiment, runner, three};
    use super::*;
    use crate::lap::ExplainLap;
    use crate::runner::Runner;
    use crate::scripted::{Script, Scripted};

    fn only(restarts: Option<u32>, rounds: Option<u32>) -> Experiment {
        Experiment { explain: Explain::Only, ..experiment(restarts, rounds) }
    }

    /// Runs an experiment. Returns the explaining laps, the number of other laps, and why the run
    /// ended.
    fn laps(experiment: &Experiment, runner: &mut Scripted) -> (Vec<ExplainLap>, usize, Over) {
        let (mut laps, mut others) = (Vec::new(), 0);
        let over = super::super::run(experiment, runner, &mut |event| match event {
            Event::ExplainLap(lap) => laps.push(lap.clone()),
            Event::Lap(_) => others += 1,
            _ => {}
        });
        (laps, others, over)
    }

    fn is_with(instrument: Option<Instrument>) -> impl Fn(&&ExplainLap) -> bool {
        let of = |seen: &Observation| match seen {
            Observation::Profile(_) => Instrument::Profile,
            Observation::SystemCalls(_) => Instrument::SystemCalls,
            Observation::Events(_) => Instrument::Events,
        };
        move |lap| lap.observation.as_ref().map(of) == instrument
    }

    #[test]
    fn a_round_has_mirrored_plain_and_profiled_laps_and_counts_once() {
        let mut runner = runner(three());
        runner.slices = 4;
        let (laps, others, over) = laps(&only(Some(2), Some(4)), &mut runner);
        assert_eq!((over, others), (Over::Done, 0));
        // The control is participant 1, which does not take part.
        assert!(laps.iter().all(|lap| [0, 2].contains(&lap.lap.server)));
        let count = |instrument| laps.iter().filter(is_with(instrument)).count();
        assert_eq!(count(None), 2 * 4 * 2 * 2);
        assert_eq!(count(Some(Instrument::Profile)), 2 * 4 * 2 * 2);
        // The first and the fourth round of each restart have one such lap of each server.
        assert_eq!(count(Some(Instrument::SystemCalls)), 2 * 2 * 2);
        assert_eq!(count(Some(Instrument::Events)), 2 * 2 * 2);
        let plain: Vec<&String> = runner.log.iter().filter(|l| l.starts_with("slice")).collect();
        let (there, back) = plain[..4].split_at(2);
        assert_eq!(there.iter().rev().collect::<Vec<_>>(), back.iter().collect::<Vec<_>>());
    }

    #[test]
    fn an_instrument_that_is_not_permitted_is_left_out_and_the_rest_goes_on() {
        let mut runner = runner(three());
        runner.forbidden = vec![Instrument::Profile];
        let mut told = Vec::new();
        let mut laps = 0;
        let experiment = only(Some(1), Some(1));
        super::super::run(&experiment, &mut runner, &mut |event| match event {
            Event::Unobserved { participant, why } => {
                told.push((participant, why.what.to_string()))
            }
            Event::ExplainLap(_) => laps += 1,
            _ => {}
        });
        let once = [0, 2].map(|server| (server, "the CPU profile".to_owned()));
        // The limit is reported before the rounds of a restart, and again after them.
        assert_eq!(told, [once.clone(), once].concat());
        assert_eq!(laps, 2 * 2 + 2 + 2);
    }

    #[test]
    fn eight_restarts_share_the_budget() {
        let mut runner = runner(three());
        let experiment = Experiment { budget: Duration::from_secs(80), ..only(None, None) };
        let (laps, _, over) = laps(&experiment, &mut runner);
        assert_eq!(over, Over::Done);
        let spent = runner.elapsed().as_secs_f64();
        assert!((70.0..85.0).contains(&spent), "{spent} s of 80");
        assert_eq!(laps.iter().map(|lap| lap.lap.restart).max(), Some(7));
    }

    #[test]
    fn slow_rounds_leave_time_for_three_restarts() {
        let experiment = Experiment { budget: Duration::from_secs(15), ..only(None, None) };
        let mut runner = runner(three());
        let (laps, _, over) = laps(&experiment, &mut runner);
        assert_eq!(over, Over::Budget);
        assert_eq!(laps.iter().map(|lap| lap.lap.restart).max(), Some(2));
    }

    #[test]
    fn laps_after_an_experiment_come_in_restarts_of_their_own() {
        let explain = Explain::After(Duration::from_secs(80));
        let experiment = Experiment { explain, ..experiment(Some(3), Some(2)) };
        let mut runner = runner(three());
        let (laps, others, over) = laps(&experiment, &mut runner);
        assert_eq!((over, others), (Over::Done, 3 * (3 + 2) * 2));
        let restarts: Vec<u32> = laps.iter().map(|lap| lap.lap.restart).collect();
        assert_eq!((restarts.iter().min(), restarts.iter().max()), (Some(&3), Some(&10)));
        let calls = |call: &str| runner.log.iter().filter(|line| *line == call).count();
        assert_eq!((calls("start 1"), calls("start observed 1")), (3, 0));
        assert_eq!((calls("start 0"), calls("start observed 0")), (3, 8));
    }

    #[test]
    fn a_server_that_is_left_alone_is_not_explained() {
        let mut scripts = three();
        scripts[2] = Script { dies_at: Some(4), ..scripts[2].clone() };
        let (laps, _, over) = laps(&only(Some(3), Some(2)), &mut runner(scripts));
        assert_eq!(over, Over::Nobody);
        assert!(laps.len() < 8, "{}", laps.len());
    }

    #[test]
    fn scripted_calls_are_observed() {
        let mut scripts = three();
        scripts[0].calls = BTreeMap::from([("getpid".to_owned(), 2.0)]);
        let (laps, _, _) = laps(&only(Some(1), Some(1)), &mut runner(scripts));
        let mut counted = laps.iter().filter(is_with(Some(Instrument::SystemCalls)));
        let seen = counted.find(|own| own.lap.server == 0).unwrap();
        let Some(Observation::SystemCalls(calls)) = &seen.observation else { panic!() };
        let requests = seen.lap.usage.unwrap().requests;
        assert_eq!(calls["getpid"], 2 * requests);
    }
}
