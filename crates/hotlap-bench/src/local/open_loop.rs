//! Laps in an open loop, and what follows those that may overload a server.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hotlap_load::plan::{Pace, Plan, Stop};
use hotlap_servers::failure::ServerFailure;

use super::instance::Between;
use super::trouble::{Run, Trouble};
use super::{LocalRunner, slices};
use crate::load_host::Measured;
use crate::validity;

/// A server is idle if a single request takes no longer than this, or than its mean service time
/// when it was saturated.
const CALM: Duration = Duration::from_millis(50);

/// How long a server may take to recover from overload, if the timeout of a request is not longer.
/// Requests that it had accepted before are abandoned, but many servers still carry them out.
const RECOVERY: Duration = Duration::from_secs(10);

impl LocalRunner {
    /// Runs one lap in an open loop: its pace, and the length of its window. The server stays
    /// thawed.
    pub(super) fn open_loop(
        &mut self,
        participant: usize,
        load: usize,
        (pace, window): (Pace, Duration),
    ) -> Result<Run, Trouble> {
        self.instances[participant].forget_lap();
        let mut plan = self.plan(participant, load)?;
        plan.warmup = slices::lead_in(window);
        plan.stop = Stop::After(window);
        plan.pace = pace;
        self.instances[participant].thaw();
        self.instances[participant].begin_lap();
        let run = self.measure_paced(participant, &plan);
        self.instances[participant].forget_lap();
        run
    }

    /// Waits until a server that was loaded at a rate is idle again: two single requests in a row
    /// take no longer than at the end of its warm-up, when it was saturated.
    pub(super) fn recover(
        &mut self,
        participant: usize,
        load: usize,
        rate: f64,
    ) -> Result<(), ServerFailure> {
        let calm = CALM.max(self.service(participant, load));
        let until = Instant::now() + self.setting.timeout.max(RECOVERY);
        let mut in_a_row = 0;
        while in_a_row < 2 {
            let instance = &mut self.instances[participant];
            instance.still_there("recovery")?;
            let asked = Instant::now();
            let is_calm = instance.asks_safely(calm).is_none_or(|found| found.is_ok());
            in_a_row = if is_calm && asked.elapsed() <= calm { in_a_row + 1 } else { 0 };
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if Instant::now() > until {
                let cause = format!(
                    "after {rate:.0} requests/s, a single request still took longer than {} ms, or \
                     failed",
                    calm.as_millis()
                );
                let remedy = "it does not recover from overload by itself: limit its queue";
                return Err(self.instances[participant].out("recovery", cause, remedy));
            }
        }
        Ok(())
    }

    /// Runs one lap at a rate, on a thawed server.
    fn measure_paced(&mut self, participant: usize, plan: &Plan) -> Result<Run, Trouble> {
        let session = self.setting.generator.start(plan);
        let session = self.begun(participant, "lap", session)?;
        let Some(window) = session.wait_for_window() else {
            return Err(self.cut_short(participant, "lap", session));
        };
        self.wait(&*session, window.opens);
        let at = Instant::now();
        let first = self.instances[participant].switches();
        let before = self.instances[participant].sample(&*session);
        // An incomplete lap does not count.
        if window.closes.is_some_and(|closes| !self.wait(&*session, closes)) {
            return Err(self.cut_short(participant, "lap", session));
        }
        let after = self.instances[participant].sample(&*session);
        let last = self.instances[participant].switches();
        let measured = self.ended(participant, "lap", session)?;
        let Measured { outcome, generators, mut failed } = measured;
        self.instances[participant].still_there("lap")?;
        let outcome = self.unless_it_hangs(participant, outcome)?;
        let instance = &mut self.instances[participant];
        let between = Between::of(&before, &after);
        let usage = instance.usage(&between, first.zip(last), between.requests);
        failed.extend(instance.side_effect(&outcome.totals));
        failed.extend(validity::silence(between.silence));
        Ok(Run { at, outcome, usage, generators, failed })
    }
}
