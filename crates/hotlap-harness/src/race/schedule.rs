//! The schedule: heats of blocks of laps, until the intervals are narrow enough or the time is
//! spent.
//!
//! A heat starts every server afresh, in random order, and warms each. A block runs every server
//! once in random order and once more in the mirrored order, `C A B · B A C`, and that some rounds,
//! so that what the machine does meanwhile falls on all alike. Laps are driven in turns where they
//! may be, so that what is compared lies milliseconds apart. Where it is asked for, a heat ends
//! with a paced lap of each: the same rate for all.

use std::time::Duration;

use super::{Event, Over, Place, Race, order, shuffled};
use crate::entrant::{Entrant, Role};
use crate::lap::{Kind, Lap};
use crate::timetable::{Next, Timetable};
use crate::track::{Retired, Track};

mod heat;

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
    };
    let over = schedule.run();
    schedule.stop_all();
    over
}

/// A block of one load, as far as it is driven.
struct Lanes {
    load: usize,
    /// The place of the next lap.
    nth: u32,
    /// Turns of the lap under way, by entrant.
    turns: Vec<u32>,
}

impl Lanes {
    fn next(&mut self) -> u32 {
        self.nth += 1;
        self.nth - 1
    }
}

/// Whether the `at`-th of `of` steps is one of `some` that are spread evenly over them: those in
/// the middles of as many equal parts.
fn spread(some: u32, of: u32, at: u32) -> bool {
    (0..some).any(|part| (2 * part + 1) * of / (2 * some) == at)
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

    /// Every server once in random order, and once more in the mirrored order, and that some times.
    fn block(&mut self, place: Place) -> Result<(), Over> {
        let began = self.elapsed();
        let rounds = self.race.rounds.max(1);
        for load in 0..self.race.loads.len() {
            let mut lanes = Lanes { load, nth: 0, turns: vec![0; self.running.len()] };
            (0..rounds).try_for_each(|round| self.round(place, (round, rounds), &mut lanes))?;
        }
        self.timetable.block_run(self.elapsed().saturating_sub(began));
        Ok(())
    }

    /// Two laps of every server. Those that may be driven in turns are: all take their turns one
    /// after the other, there and back, until each has had its two laps; the others drive theirs in
    /// the middle of that.
    fn round(
        &mut self,
        place: Place,
        (round, rounds): (u32, u32),
        lanes: &mut Lanes,
    ) -> Result<(), Over> {
        let load = lanes.load;
        let kind = self.race.loads[load].rate.map_or(Kind::Flat, |rate| Kind::Paced { rate });
        let turns: Vec<u32> = (0..self.running.len())
            .map(|entrant| match kind {
                Kind::Flat => self.track.turns(entrant, load).max(1),
                Kind::Paced { .. } => 1,
            })
            .collect();
        let most = turns.iter().copied().max().unwrap_or(1);
        for step in 0..most {
            let salt = (load, round * most + step);
            // Laps in one piece first: whose turns these are has driven a whole lap before them,
            // and does not stand still in the middle of one.
            let mut order = order(self.race.seed, place, salt, self.running.len());
            order.sort_by_key(|&entrant| turns[entrant] > 1);
            for entrant in order {
                let is_next = spread(turns[entrant], most, step);
                if !is_next || !self.is_in_round(entrant, (load, kind), (round, rounds)) {
                    continue;
                }
                if turns[entrant] == 1 {
                    self.lap(place, lanes.next(), entrant, load, kind)?;
                } else if self.turn(entrant, load)? {
                    lanes.turns[entrant] += 1;
                    if lanes.turns[entrant] >= turns[entrant] {
                        lanes.turns[entrant] = 0;
                        let lap = self.track.lap_of_turns(entrant, load);
                        self.driven(place, lanes.next(), entrant, lap)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// One turn of a server that runs; whether it took it.
    fn turn(&mut self, entrant: usize, load: usize) -> Result<bool, Over> {
        self.go_on()?;
        if !self.running[entrant] {
            return Ok(false);
        }
        (self.watch)(Event::Lapping { entrant, load });
        if let Err(why) = self.track.turn(entrant, load) {
            self.retire(entrant, &why)?;
        }
        Ok(self.running[entrant])
    }

    /// Whether a server takes part in a round: one whose laps have to be longer, since it answers
    /// so slowly, is measured for as long in fewer of them, spread evenly over all.
    fn is_in_round(&self, entrant: usize, how: (usize, Kind), (round, rounds): (u32, u32)) -> bool {
        let (usual, own) = (self.race.lap, self.track.lap_takes(entrant, how.0, how.1));
        let fits = usual.as_secs_f64() * f64::from(rounds) / own.as_secs_f64().max(1e-3);
        let own = (fits.round() as u32).clamp(1, rounds);
        spread(own, rounds, round)
    }

    /// Every server once, in random order, at a rate that all can carry. Not mirrored: these are
    /// not paired, but merged over the heats, each of which has an order of its own.
    fn paced_laps(&mut self, place: Place) -> Result<(), Over> {
        let began = self.elapsed();
        let rate = match self.rate.or_else(|| self.timetable.common_rate()) {
            Some(rate) => *self.rate.insert(rate),
            None => return Ok(()),
        };
        // The first load stands for all: one rate, one question.
        let salt = self.race.loads.len() as u64 + 1;
        let order = shuffled(self.race.seed, place, salt, self.running.len());
        for (nth, entrant) in (0..).zip(order) {
            self.lap(place, nth, entrant, 0, Kind::Paced { rate })?;
        }
        self.timetable.paced_run(self.elapsed().saturating_sub(began));
        Ok(())
    }

    fn lap(
        &mut self,
        place: Place,
        nth: u32,
        entrant: usize,
        load: usize,
        kind: Kind,
    ) -> Result<(), Over> {
        self.go_on()?;
        if !self.running[entrant] {
            return Ok(());
        }
        (self.watch)(Event::Lapping { entrant, load });
        let lap = self.track.lap(entrant, load, kind);
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

    /// Takes a server out; the others go on. What fails because the user ended the race is no fault
    /// of the server's.
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

    fn stop_all(&mut self) {
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

    use super::super::Past;
    use super::*;
    use crate::contract::{Contract, Name};
    use crate::entrant::{Launch, Load, Start};
    use crate::scripted::{Script, Scripted};
    use crate::verify::Demand;

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
            lap: Duration::from_millis(500),
            rounds: 1,
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

    /// A server that had its practice before others were warmed up was cold again by its first lap.
    #[test]
    fn practice_is_what_comes_last_before_the_first_lap() {
        let mut track = track(three());
        laps(&race(Some(2), Some(1)), &mut track);
        let kind = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
        let mut kinds: Vec<String> = track.log.iter().map(kind).collect();
        kinds.dedup();
        assert_eq!(kinds, ["start", "warm-up", "practice", "lap", "stop"].repeat(2));
    }

    #[test]
    fn servers_take_turns_and_laps_in_one_piece_stand_in_the_middle() {
        let mut scripts = three();
        scripts[0].turns = 4;
        scripts[1].turns = 4;
        let mut track = track(scripts);
        let (laps, _) = laps(&race(Some(1), Some(1)), &mut track);
        let driven = |l: &&String| l.starts_with("turn") || l.starts_with("lap");
        let log: Vec<&str> = track.log.iter().filter(driven).map(String::as_str).collect();
        let mirrored = |step: &[&str]| {
            let mut back = step.to_vec();
            back.reverse();
            back == step
        };
        // Four steps, there and back; a lap ends with its fourth turn.
        let turns: Vec<&str> = log.iter().copied().filter(|l| l.starts_with("turn")).collect();
        assert_eq!(turns.len(), 2 * 2 * 4);
        assert!(turns.chunks(4).all(mirrored), "{turns:?}");
        let ends = |n: usize| {
            let own = [format!("turn {n}"), format!("lap of turns {n}")];
            let own = log.iter().filter(|l| own.iter().any(|o| o == *l));
            own.enumerate().filter(|(_, l)| l.starts_with("lap")).map(|(at, _)| at).collect()
        };
        assert_eq!((ends(0), ends(1)), (vec![4, 9], vec![4, 9]));
        let whole: Vec<usize> = (0..log.len()).filter(|&at| log[at] == "lap 2").collect();
        let before = |at: usize| log[..at].iter().filter(|l| l.starts_with("turn")).count();
        assert!(whole.len() == 2 && whole.iter().all(|&at| before(at) == 8), "{log:?}");
        let mut entrants: Vec<usize> = laps.iter().map(|l| l.3).collect();
        entrants.sort_unstable();
        assert_eq!(entrants, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn a_server_that_dies_in_its_turn_is_out_and_has_no_lap_of_it() {
        let mut scripts = three();
        scripts[0].turns = 4;
        // Its start, its warm-up, two turns.
        scripts[1].turns = 4;
        scripts[1].dies_at = Some(4);
        let mut track = track(scripts);
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
