//! What comes before the first block of a heat: all servers are started, verified and warmed up,
//! and in the first one it is settled how long slices are.

use std::time::Duration;

use hotlap_stats::Class;

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
        let pairs = order.into_iter().flat_map(each);
        for (entrant, load) in pairs {
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
        self.settle_slices(heat)?;
        self.timetable.heat_started(self.elapsed().saturating_sub(began), again);
        self.go_on()
    }

    /// Probes servers as long as the track needs it to settle how long slices are. In later heats
    /// it is settled.
    fn settle_slices(&mut self, heat: u32) -> Result<(), Over> {
        let place = Place { heat, block: 0 };
        let mut probes = self.track.probes();
        let mut step = 0;
        while !probes.is_empty() {
            for at in order(self.race.seed, place, (0, step), probes.len()) {
                let (entrant, load) = probes[at];
                self.go_on()?;
                if !self.running[entrant] {
                    continue;
                }
                (self.watch)(Event::Probing { entrant, load });
                if let Err(why) = self.track.probe(entrant, load) {
                    self.retire(entrant, &why)?;
                }
            }
            step += 1;
            probes = self.track.probes();
        }
        if !std::mem::replace(&mut self.sliced, true) {
            let (slice, probed) = (self.track.slice_length(), self.track.probed());
            (self.watch)(Event::Sliced { slice, probed });
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
                    took += Duration::from_secs_f64(ready.ready_ms.unwrap_or(0.0) / 1e3);
                    (self.watch)(Event::Started { entrant, heat, ready: &ready });
                }
                Err(why) => self.retire(entrant, &why)?,
            }
        }
        Ok(took)
    }
}
