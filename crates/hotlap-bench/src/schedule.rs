//! The schedule: heats of blocks of laps, until the intervals are narrow enough or the time is
//! spent.
//!
//! A heat starts every server afresh, in random order, and warms each. A block runs every server
//! for two laps, slice by slice: a slice of each in random order and one more in the mirrored
//! order, `C A B · B A C`, then the next in another order, so that what the machine does meanwhile
//! falls on all alike. Where it is asked for, a heat ends with a paced lap of each: the same rate
//! for all.

use std::time::Duration;

use crate::budget::{Next, Timetable};
use crate::experiment::{Event, Over, Place, Race, order, shuffled};
use crate::lap::Lap;
use crate::participant::{Entrant, Role};
use crate::runner::Track;
use hotlap_servers::failure::Retired;

mod restart;

/// Runs the race to its end. What it finds goes to `watch`, as it happens.
pub fn run(race: &Race, track: &mut dyn Track, watch: &mut dyn FnMut(Event)) -> Over {
    let mut schedule = Schedule {
        race,
        track,
        watch,
        running: vec![false; race.entrants.len()],
        out: (0..race.entrants.len()).map(|n| race.past.out.contains(&n)).collect(),
        timetable: Timetable::new(race),
        rate: race.rate.or(race.past.rate),
        sliced: false,
    };
    let over = schedule.run();
    schedule.stop_all();
    over
}

struct Schedule<'a> {
    race: &'a Race,
    track: &'a mut dyn Track,
    watch: &'a mut dyn FnMut(Event),
    running: Vec<bool>,
    out: Vec<bool>,
    timetable: Timetable,
    /// Of paced laps; settled in the first heat, so that all heats share it.
    rate: Option<f64>,
    /// It is settled how long slices are.
    sliced: bool,
}

impl Schedule<'_> {
    fn run(&mut self) -> Over {
        let mut place = self.race.from;
        loop {
            if let Err(over) = self.start_heat(place.heat) {
                return over;
            }
            let next = loop {
                if let Err(over) = self.block(place) {
                    return over;
                }
                place.block += 1;
                let next = self.timetable.next(place, self.elapsed());
                let left = self.timetable.left(place, self.elapsed());
                (self.watch)(Event::Block { next: place, left });
                if next != Next::Block {
                    break next;
                }
            };
            if self.timetable.is_paced(place.heat)
                && let Err(over) = self.paced_laps(place)
            {
                return over;
            }
            if let Next::Stop(over) = next {
                return over;
            }
            self.stop_all();
            place = Place { heat: place.heat + 1, block: 0 };
        }
    }

    /// Two laps of every server under every load.
    fn block(&mut self, place: Place) -> Result<(), Over> {
        let began = self.elapsed();
        for load in 0..self.race.loads.len() {
            match self.race.loads[load].rate {
                None => self.sliced_laps(place, load)?,
                Some(rate) => {
                    let order = order(self.race.seed, place, (load, 0), self.running.len());
                    for (nth, entrant) in (0..).zip(order) {
                        self.paced_lap(place, nth, entrant, (load, rate))?;
                    }
                }
            }
        }
        self.timetable.block_run(self.elapsed().saturating_sub(began));
        Ok(())
    }

    /// Two laps of every server: as many steps, there and back, as a lap has slices.
    fn sliced_laps(&mut self, place: Place, load: usize) -> Result<(), Over> {
        let slices = self.track.slices(load).max(1);
        let mut driven = vec![0_u32; self.running.len()];
        let mut nth = 0;
        for step in 0..slices {
            for entrant in order(self.race.seed, place, (load, step), self.running.len()) {
                if !self.slice(entrant, load)? {
                    continue;
                }
                driven[entrant] += 1;
                if driven[entrant].is_multiple_of(slices) {
                    let lap = self.track.lap(entrant, load);
                    self.driven(place, nth, entrant, lap)?;
                    nth += 1;
                }
            }
        }
        Ok(())
    }

    /// A slice of a server, if it is running; whether it had one.
    fn slice(&mut self, entrant: usize, load: usize) -> Result<bool, Over> {
        self.go_on()?;
        if !self.running[entrant] {
            return Ok(false);
        }
        (self.watch)(Event::Lapping { entrant, load });
        if let Err(why) = self.track.slice(entrant, load) {
            self.retire(entrant, &why)?;
        }
        Ok(self.running[entrant])
    }

    /// Every server once, in random order, at a rate that all can carry. Not mirrored: these are
    /// not paired, but merged over the heats, each of which has an order of its own.
    fn paced_laps(&mut self, place: Place) -> Result<(), Over> {
        let began = self.elapsed();
        // The first closed loop stands for all: one rate, one question.
        let Some(load) = self.race.closed_loop() else { return Ok(()) };
        let rate = match self.rate.or_else(|| self.timetable.common_rate()) {
            Some(rate) => *self.rate.insert(rate),
            None => return Ok(()),
        };
        let salt = self.race.loads.len() as u64 + 1;
        let order = shuffled(self.race.seed, place, salt, self.running.len());
        for (nth, entrant) in (0..).zip(order) {
            self.paced_lap(place, nth, entrant, (load, rate))?;
        }
        self.timetable.paced_run(self.elapsed().saturating_sub(began));
        Ok(())
    }

    fn paced_lap(
        &mut self,
        place: Place,
        nth: u32,
        entrant: usize,
        (load, rate): (usize, f64),
    ) -> Result<(), Over> {
        self.go_on()?;
        if !self.running[entrant] {
            return Ok(());
        }
        (self.watch)(Event::Lapping { entrant, load });
        let lap = self.track.paced_lap(entrant, load, rate);
        self.driven(place, nth, entrant, lap)
    }

    /// A lap is driven, or that was the end of it.
    fn driven(
        &mut self,
        place: Place,
        nth: u32,
        entrant: usize,
        lap: Result<Lap, Retired>,
    ) -> Result<(), Over> {
        match lap {
            Ok(mut lap) => {
                lap.at_ms += u64::try_from(self.race.past.spent.as_millis()).unwrap_or(u64::MAX);
                lap.heat = place.heat;
                lap.block = place.block;
                lap.place = nth;
                self.timetable.lap(&lap);
                (self.watch)(Event::Lap(&lap));
            }
            Err(why) => self.retire(entrant, &why)?,
        }
        Ok(())
    }

    /// Takes a server out; the others go on. What fails because the user ended the race is no
    /// fault of the server's.
    fn retire(&mut self, entrant: usize, why: &Retired) -> Result<(), Over> {
        if self.track.interrupted() {
            return Err(Over::Interrupted);
        }
        self.out[entrant] = true;
        self.timetable.retired(entrant);
        self.stop(entrant);
        (self.watch)(Event::Retired { entrant, why });
        Ok(())
    }

    fn stop(&mut self, entrant: usize) {
        if std::mem::take(&mut self.running[entrant])
            && let Some(what) = self.track.stop(entrant)
        {
            (self.watch)(Event::Unclean { entrant, what });
        }
    }

    /// Stops all that run: one after the other, so that each has the machine to itself and the time
    /// to end; all at once where the user waits for it.
    fn stop_all(&mut self) {
        if self.track.interrupted() {
            let running = (0..self.running.len()).filter(|n| self.running[*n]);
            running.for_each(|entrant| self.track.begin_stop(entrant));
        }
        for entrant in 0..self.running.len() {
            self.stop(entrant);
        }
    }

    /// Since the race began, with what was run before.
    fn elapsed(&self) -> Duration {
        self.race.past.spent + self.track.elapsed()
    }

    /// Whether there is a reason to go on.
    fn go_on(&self) -> Result<(), Over> {
        let contestant = |(n, e): (usize, &Entrant)| {
            !self.out[n] && matches!(e.role, Role::Contestant | Role::Reference)
        };
        if self.track.interrupted() {
            Err(Over::Interrupted)
        } else if self.race.entrants.iter().enumerate().any(contestant) {
            Ok(())
        } else {
            Err(Over::Nobody)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use hotlap_load::plan::Reuse;

    use super::*;
    use crate::experiment::Past;
    use crate::lap::Kind;
    use crate::participant::{Load, Start};
    use crate::scripted::{Script, Scripted};
    use hotlap_servers::contract::{Contract, Name};
    use hotlap_servers::launch::Launch;
    use hotlap_servers::verify::Demand;

    fn load() -> Load {
        Load {
            name: String::new(),
            connections: 64,
            threads: 1,
            reuse: Reuse::KeepAlive,
            pipeline: 1,
            request: 0,
            rate: None,
        }
    }

    fn entrant(name: &str, role: Role) -> Entrant {
        let launch =
            Launch { argv: vec![name.to_owned()], env: BTreeMap::new(), cwd: PathBuf::from("/") };
        Entrant {
            name: name.to_owned(),
            role,
            start: Start::Launch(launch),
            contract: Contract::of(Name::Hello, None),
            demand: Demand::Stranger,
            version: String::new(),
            counts: None,
            cpus: None,
        }
    }

    fn race(heats: Option<u32>, blocks: Option<u32>) -> Race {
        Race {
            entrants: vec![
                entrant("a", Role::Reference),
                entrant("a again", Role::Double),
                entrant("b", Role::Contestant),
            ],
            loads: vec![load()],
            budget: Duration::from_secs(60),
            precision: None,
            heats,
            blocks,
            slice: None,
            paced: false,
            rate: None,
            seed: 7,
            from: Place::default(),
            past: Past::default(),
        }
    }

    fn track(scripts: Vec<Script>) -> Scripted {
        Scripted::new(scripts, vec![load()], Duration::from_millis(500))
    }

    fn three() -> Vec<Script> {
        vec![Script::new(1000.0, 9000.0), Script::new(1000.0, 9000.0), Script::new(900.0, 10_000.0)]
    }

    /// Runs a race and returns each lap as heat, block, place and entrant, and why it was over.
    fn laps(race: &Race, track: &mut Scripted) -> (Vec<(u32, u32, u32, usize)>, Over) {
        let mut laps = Vec::new();
        let over = run(race, track, &mut |event| {
            if let Event::Lap(lap) = event {
                laps.push((lap.heat, lap.block, lap.place, lap.entrant));
            }
        });
        (laps, over)
    }

    #[test]
    fn the_heats_and_blocks_asked_for_are_run_and_every_server_is_stopped() {
        let mut track = track(three());
        let (laps, over) = laps(&race(Some(2), Some(3)), &mut track);
        assert_eq!(over, Over::Done);
        assert_eq!(laps.len(), 2 * 3 * 3 * 2);
        let count = |what: &str| track.log.iter().filter(|l| l.starts_with(what)).count();
        assert_eq!((count("start"), count("warm-up"), count("stop")), (6, 6, 6));
    }

    #[test]
    fn a_race_that_is_resumed_runs_what_was_left_in_the_order_it_would_have_had() {
        let whole = laps(&race(Some(3), Some(2)), &mut track(three())).0;
        let from = Place { heat: 1, block: 1 };
        let rest = laps(&Race { from, ..race(Some(3), Some(2)) }, &mut track(three())).0;
        let left: Vec<_> = whole.into_iter().filter(|l| (l.0, l.1) >= (1, 1)).collect();
        assert_eq!(rest, left);
    }

    #[test]
    fn the_budget_is_kept_and_mostly_spent_on_laps() {
        let mut track = track(three());
        let (laps, over) = laps(&race(None, None), &mut track);
        assert_eq!(over, Over::Budget);
        let spent = track.elapsed().as_secs_f64();
        assert!((50.0..64.0).contains(&spent), "{spent} s of 60");
        let measured = laps.len() as f64 * 0.5;
        assert!(measured / spent > 0.6, "{measured} s measured of {spent} s");
        assert!(laps.last().unwrap().0 >= 3, "more than three heats where starts are cheap");
    }

    /// The paced laps of the last heat used to come on top.
    #[test]
    fn paced_laps_are_within_the_budget() {
        for (heats, blocks) in [(None, None), (None, Some(2)), (Some(4), None)] {
            let mut track = track(three());
            let race = Race { paced: true, ..race(heats, blocks) };
            assert_eq!(laps(&race, &mut track).1, Over::Budget);
            let spent = track.elapsed().as_secs_f64();
            assert!((48.0..61.0).contains(&spent), "{spent} s of 60");
        }
    }

    #[test]
    fn every_server_runs_a_slice_there_and_back_until_each_has_two_laps() {
        let mut track = track(three());
        track.slices = 4;
        let (laps, _) = laps(&race(Some(1), Some(1)), &mut track);
        let slices: Vec<&str> =
            track.log.iter().filter(|l| l.starts_with("slice")).map(String::as_str).collect();
        let mirrored = |step: &[&str]| {
            let mut back = step.to_vec();
            back.reverse();
            back == step
        };
        // Four steps of three servers, there and back; a lap ends with its fourth slice.
        assert_eq!(slices.len(), 4 * 3 * 2);
        assert!(slices.chunks(6).all(mirrored), "{slices:?}");
        for n in 0..3 {
            let own = [format!("slice {n}"), format!("lap {n}")];
            let own = track.log.iter().filter(|l| own.iter().any(|o| o == *l));
            let ends = own.enumerate().filter(|(_, l)| l.starts_with("lap")).map(|(at, _)| at);
            assert_eq!(ends.collect::<Vec<_>>(), [4, 9]);
        }
        let mut entrants: Vec<usize> = laps.iter().map(|l| l.3).collect();
        entrants.sort_unstable();
        assert_eq!(entrants, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn the_slice_length_is_settled_once_before_the_first_slice() {
        let mut track = track(three());
        track.probes = 3;
        let mut said = 0;
        run(&race(Some(2), Some(1)), &mut track, &mut |event| {
            said += u32::from(matches!(event, Event::Sliced { .. }));
        });
        let kind = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
        let mut kinds: Vec<String> = track.log.iter().map(kind).collect();
        kinds.retain(|kind| kind != "lap");
        kinds.dedup();
        let restart = ["start", "warm-up", "slice", "stop"];
        assert_eq!(kinds[..3], ["start", "warm-up", "probe"]);
        assert_eq!(
            (&kinds[3..5], &kinds[5..]),
            (&["slice".to_owned(), "stop".to_owned()][..], &restart.map(str::to_owned)[..])
        );
        // Three times, there and back, each of the three.
        assert_eq!(track.log.iter().filter(|l| l.starts_with("probe")).count(), 3 * 2 * 3);
        assert_eq!(said, 1);
    }

    #[test]
    fn a_server_that_dies_in_its_slice_is_out_and_has_no_lap_of_it() {
        let mut scripts = three();
        // Its start, its warm-up, two slices.
        scripts[1].dies_at = Some(4);
        let mut track = track(scripts);
        track.slices = 4;
        let (laps, over) = laps(&race(Some(1), Some(1)), &mut track);
        assert_eq!(over, Over::Done);
        assert!(laps.iter().all(|l| l.3 != 1), "{laps:?}");
        assert_eq!(laps.iter().filter(|l| l.3 == 0).count(), 2);
    }

    #[test]
    fn a_server_that_dies_is_out_and_the_others_go_on() {
        let mut scripts = three();
        scripts[2].dies_at = Some(4);
        let mut track = track(scripts);
        let mut out = Vec::new();
        let over = run(&race(Some(2), Some(2)), &mut track, &mut |event| {
            if let Event::Retired { entrant, why } = event {
                out.push((entrant, why.cause.clone()));
            }
        });
        assert_eq!(over, Over::Done);
        assert_eq!(out, [(2, "exited with code 3".to_owned())]);
        assert_eq!(track.log.iter().filter(|l| *l == "start 2").count(), 1);
        assert_eq!(track.log.iter().filter(|l| *l == "lap 0").count(), 8);
    }

    #[test]
    fn a_race_without_servers_left_is_over() {
        let mut scripts = three();
        for script in &mut scripts {
            script.dies_at = Some(0);
        }
        assert_eq!(laps(&race(None, None), &mut track(scripts)).1, Over::Nobody);
    }

    #[test]
    fn an_interruption_ends_the_race_and_stops_the_servers() {
        let mut track = track(three());
        track.interrupted_at = Some(Duration::from_secs(5));
        let (laps, over) = laps(&race(None, None), &mut track);
        assert_eq!(over, Over::Interrupted);
        assert!(!laps.is_empty());
        let count = |what: &str| track.log.iter().filter(|l| l.starts_with(what)).count();
        assert_eq!(count("start"), count("stop"));
    }

    #[test]
    fn paced_laps_run_at_half_of_what_the_slowest_reaches() {
        let mut rates = Vec::new();
        let paced = Race { paced: true, ..race(Some(2), Some(1)) };
        run(&paced, &mut track(three()), &mut |event| {
            if let Event::Lap(Lap { kind: Kind::Paced { rate }, .. }) = event {
                rates.push(*rate);
            }
        });
        assert_eq!(rates.len(), 2 * 3);
        assert!(rates.iter().all(|r| (*r - 450.0).abs() < 1e-9), "{rates:?}");
    }

    #[test]
    fn a_race_ends_early_once_it_is_precise_enough() {
        let budget = Duration::from_secs(120);
        let precise = Race { precision: Some(0.01), budget, ..race(None, None) };
        let mut track = track(three());
        assert_eq!(laps(&precise, &mut track).1, Over::Precise);
        let spent = track.elapsed().as_secs_f64();
        assert!(spent < 100.0, "{spent} s");
    }
}
