//! Laps at a rate: those at the common rate that end a restart, and those of loads with a rate of
//! their own.

use super::Schedule;
use crate::experiment::{Event, Over, Place, shuffled};

impl Schedule<'_> {
    /// Runs every server once, in random order, at a rate that all can sustain. Not mirrored: these
    /// laps are not paired, but merged over the restarts, each of which has its own order.
    pub(super) fn paced_laps(&mut self, place: Place) -> Result<(), Over> {
        let began = self.elapsed();
        // The first closed loop represents all: one rate, one question.
        let Some(load) = self.experiment.closed_loop() else { return Ok(()) };
        let rate = match self.rate.or_else(|| self.budget.common_rate()) {
            Some(rate) => *self.rate.insert(rate),
            None => return Ok(()),
        };
        let salt = self.experiment.loads.len() as u64 + 1;
        let order = shuffled(self.experiment.seed, place, salt, self.running.len());
        for (nth, participant) in (0..).zip(order) {
            self.paced_lap(place, nth, participant, (load, rate))?;
        }
        self.budget.paced_run(self.elapsed().saturating_sub(began));
        Ok(())
    }

    pub(super) fn paced_lap(
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
}
