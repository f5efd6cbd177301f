//! What comes before the first block of a heat: all are started, verified and warmed up, practise,
//! and it is tried how long turns and laps have to be.

use std::time::Duration;

use hotlap_stats::steady::Class;

use super::super::{Event, Over, Place, order, shuffled};
use super::Schedule;

/// What the warm-up of a server that was flat takes after a later start, for most of them.
const FLAT_AGAIN: Duration = Duration::from_millis(150);

impl Schedule<'_> {
    /// Starts and warms all that are still in, in random order.
    pub(super) fn start_heat(&mut self, heat: u32) -> Result<(), Over> {
        (self.watch)(Event::Heat { heat });
        let began = self.elapsed();
        let order = shuffled(self.race.seed, Place { heat, block: 0 }, 0, self.running.len());
        let mut again = self.bring_up(heat, &order)?;
        let each = |entrant| (0..self.race.loads.len()).map(move |load| (entrant, load));
        let pairs: Vec<(usize, usize)> = order.into_iter().flat_map(each).collect();
        for &(entrant, load) in &pairs {
            if self.running[entrant] {
                self.go_on()?;
                let since = self.elapsed();
                (self.watch)(Event::Warming { entrant, load });
                match self.track.warm(entrant, load) {
                    Ok(warmup) => {
                        let took = self.elapsed().saturating_sub(since);
                        let is_flat = warmup.class == Class::Flat;
                        again += if is_flat { took.min(FLAT_AGAIN) } else { took };
                        (self.watch)(Event::Warmed { entrant, load, heat, warmup: &warmup });
                    }
                    Err(why) => self.retire(entrant, &why)?,
                }
            }
        }
        again += self.practise(&pairs)?;
        self.try_out(heat)?;
        self.timetable.heat_started(self.elapsed().saturating_sub(began), again);
        self.go_on()
    }

    /// Laps that do not count, of all that need some once all are warm. How long they took.
    fn practise(&mut self, pairs: &[(usize, usize)]) -> Result<Duration, Over> {
        let began = self.elapsed();
        for &(entrant, load) in pairs {
            if self.running[entrant] {
                self.go_on()?;
                (self.watch)(Event::Warming { entrant, load });
                if let Err(why) = self.track.practise(entrant, load) {
                    self.retire(entrant, &why)?;
                }
            }
        }
        Ok(self.elapsed().saturating_sub(began))
    }

    /// Turns and laps that do not count, as long as the track wants some to settle how long they
    /// have to be.
    fn try_out(&mut self, heat: u32) -> Result<(), Over> {
        let place = Place { heat, block: 0 };
        for load in 0..self.race.loads.len() {
            let mut driven = 0;
            while let tries @ 1.. = self.track.tries(load) {
                for step in 0..tries {
                    let salt = (load, driven + step);
                    for entrant in order(self.race.seed, place, salt, self.running.len()) {
                        self.go_on()?;
                        if !self.running[entrant] {
                            continue;
                        }
                        (self.watch)(Event::Lapping { entrant, load });
                        if let Err(why) = self.track.try_out(entrant, load, step) {
                            self.retire(entrant, &why)?;
                        }
                    }
                }
                driven += tries;
            }
        }
        Ok(())
    }

    /// Starts all that are still in, in this order, and verifies them. What their starts took.
    fn bring_up(&mut self, heat: u32, order: &[usize]) -> Result<Duration, Over> {
        let entrants: Vec<usize> = order.iter().copied().filter(|e| !self.out[*e]).collect();
        for &entrant in &entrants {
            self.go_on()?;
            (self.watch)(Event::Starting { entrant });
            match self.track.start(entrant) {
                Ok(()) => self.running[entrant] = true,
                Err(why) => self.retire(entrant, &why)?,
            }
        }
        self.go_on()?;
        (self.watch)(Event::Verifying);
        let started: Vec<usize> = entrants.into_iter().filter(|e| self.running[*e]).collect();
        let mut took = Duration::ZERO;
        for (&entrant, verified) in started.iter().zip(self.track.verify(&started)) {
            match verified {
                Ok(ready) => {
                    took += Duration::from_secs_f64(ready.ready_ms / 1e3);
                    (self.watch)(Event::Started { entrant, heat, ready: &ready });
                }
                Err(why) => self.retire(entrant, &why)?,
            }
        }
        Ok(took)
    }
}
