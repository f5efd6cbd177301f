//! The beginning of a restart: all servers are started, verified and warmed up; in the first
//! restart, the slice length is chosen too.

use std::time::Duration;

use hotlap_stats::Class;

use super::Schedule;
use crate::experiment::{Event, Over, Place, order, shuffled};
use crate::participant::Role;
use crate::runner::UNSTEADY_AGAIN;

/// Typical warm-up time after a later start of a server whose first warm-up was flat: three windows
/// and the time of the hardware counters. An estimate until the second restart has been timed.
const FLAT_AGAIN: Duration = Duration::from_millis(600);

/// The throughput at the end of a warm-up is that of so many windows.
const LAST_WINDOWS: usize = 10;

impl Schedule<'_> {
    /// Starts and warms up all remaining servers, in random order.
    pub(super) fn start_restart(&mut self, restart: u32) -> Result<(), Over> {
        (self.watch)(Event::Restart { restart });
        self.restarts = restart + 1;
        let began = self.elapsed();
        let mut order =
            shuffled(self.experiment.seed, Place { restart, round: 0 }, 0, self.running.len());
        // The control starts last. If a program cannot run twice, because of a fixed port or a
        // lock, the control is the copy that does not start.
        order.sort_by_key(|n| self.experiment.participants[*n].role == Role::Control);
        let mut again = self.bring_up(restart, &order)?;
        let each =
            |participant| (0..self.experiment.loads.len()).map(move |load| (participant, load));
        let pairs = order.into_iter().flat_map(each);
        for (participant, load) in pairs {
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
                        let expected = match warmup.class {
                            Class::NeverSteady => took / UNSTEADY_AGAIN,
                            Class::Flat if !warmup.compiles => took.min(FLAT_AGAIN),
                            _ => took,
                        };
                        let last = warmup.curve.len().saturating_sub(LAST_WINDOWS);
                        let windows = &warmup.curve[last..];
                        let sum: f64 = windows.iter().sum();
                        self.reached[participant][load] = sum / windows.len().max(1) as f64;
                        again += expected;
                        (self.watch)(Event::Warmed { participant, load, restart, warmup: &warmup });
                    }
                    Err(why) => self.retire(participant, &why)?,
                }
            }
        }
        // A search has no slices.
        if self.experiment.objectives.is_empty() {
            self.settle_slices(restart)?;
        }
        self.budget.restart_started(self.elapsed().saturating_sub(began), again);
        self.go_on()
    }

    /// Probes servers until the runner has chosen the slice length. Does nothing in later restarts.
    fn settle_slices(&mut self, restart: u32) -> Result<(), Over> {
        let place = Place { restart, round: 0 };
        let mut probes = self.runner.probes();
        let mut step = 0;
        while !probes.is_empty() {
            for at in order(self.experiment.seed, place, (0, step), probes.len()) {
                let (participant, load) = probes[at];
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
            probes = self.runner.probes();
        }
        if !std::mem::replace(&mut self.sliced, true) {
            let (slice, probed) = (self.runner.slice_length(), self.runner.probed());
            (self.watch)(Event::Sliced { slice, probed });
        }
        Ok(())
    }

    /// Starts and verifies all remaining servers in this order. Returns the time that the starts
    /// took.
    fn bring_up(&mut self, restart: u32, order: &[usize]) -> Result<Duration, Over> {
        let participants: Vec<usize> = order.iter().copied().filter(|e| !self.out[*e]).collect();
        for &participant in &participants {
            self.go_on()?;
            (self.watch)(Event::Starting { participant });
            match self.runner.start(participant) {
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
}
