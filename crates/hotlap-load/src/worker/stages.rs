//! Moves a worker through its stages, according to time and the session's commands.

use super::{Stage, Worker};
use crate::clock;
use crate::schedule::Schedule;

impl Worker {
    /// Does everything that is due: edges of the window, timeouts, connections to open, and
    /// commands of the session.
    #[cold]
    pub(super) fn keep_time(&mut self, now: u64) {
        if self.shared.is_stopped() {
            return self.end(now);
        }
        if self.stage <= Stage::Ready
            && let Some(times) = self.shared.times()
        {
            self.times = times;
        }
        if self.stage <= Stage::Ready && now >= self.times.start_ns {
            self.start(now);
        }
        if self.stage == Stage::Measured && now >= self.times.closes_ns {
            // If windows are shorter than the interval between checks, this is the only check for
            // timeouts.
            self.find_timeouts(now);
            if !self.shared.is_held() {
                return self.end(now);
            }
            self.close_window(now);
        }
        // Commands may have come while the window was open, so handle them after closing it.
        if self.stage == Stage::Unmeasured && self.shared.is_held() {
            self.carry_out_commands(now);
        }
        if self.stage == Stage::Unmeasured && now >= self.times.opens_ns {
            self.open_window(now);
        }
        self.reopen_due(now);
        self.retry_full_queues(now);
        if now >= self.scan_ns {
            self.scan_ns = now + self.scan_every_ns;
            self.find_timeouts(now);
        }
    }

    /// Reports, once, that all slots have been open or have failed. The last worker to do so sets
    /// the times.
    pub(super) fn report_ready(&mut self) {
        if self.stage == Stage::Connecting && self.slots.are_settled() {
            self.stage = Stage::Ready;
            self.shared.ready(self.slots.reached);
        }
    }

    /// Starts to send.
    fn start(&mut self, now: u64) {
        self.stage = Stage::Unmeasured;
        self.measurement.start(self.slots.open);
        let (worker, workers) = (self.plan.worker(self.number), self.plan.workers());
        let schedule = Schedule::new(&self.plan.pace, worker, workers, self.times.start_ns);
        self.requests.start(schedule);
        if self.times.opens_ns <= self.times.start_ns {
            self.open_window(now);
        }
        self.activate_all(now);
    }

    /// Handles all permitted requests being answered or failed: the end of the load, or a pause.
    #[cold]
    pub(super) fn requests_done(&mut self) {
        if !self.shared.is_held() {
            self.end(clock::now());
        } else if std::mem::take(&mut self.is_draining) {
            self.shared.idle(self.done.pauses);
        }
    }

    /// Carries out the session's commands to a held load, between two windows.
    fn carry_out_commands(&mut self, now: u64) {
        let commands = self.shared.commands();
        #[cfg(test)]
        if (self.done.collects, self.done.pauses) != (commands.collects, commands.pauses) {
            let planted = self.shared.panics.load(std::sync::atomic::Ordering::Relaxed);
            assert_ne!(planted, self.number, "a deliberate panic");
        }
        let done = std::mem::replace(&mut self.done, commands);
        if done.pauses != commands.pauses {
            self.requests.left = 0;
            self.is_draining = true;
        }
        if done.collects != commands.collects {
            let (measurement, at) = self.measurement_at(now);
            if let Some(outcome) = measurement.collect(at) {
                self.shared.hand_over(self.complete(outcome));
            }
        }
        if done.windows != commands.windows {
            self.prepare_window(now);
        }
    }

    /// Prepares for a window of a held load that opens soon.
    fn prepare_window(&mut self, now: u64) {
        if let Some(times) = self.shared.times() {
            (self.times.opens_ns, self.times.closes_ns) = (times.opens_ns, times.closes_ns);
        }
        if self.closed_ns > 0 {
            // No time passed for requests in flight.
            let since_ns = std::mem::take(&mut self.closed_ns).max(self.shared.paused_ns());
            let pause_ns = now.saturating_sub(since_ns);
            self.slots.iter_mut().for_each(|slot| slot.shift(pause_ns, now));
        }
        // A timeout before the window opens should count in it.
        self.scan_ns = self.times.opens_ns.saturating_add(self.scan_every_ns);
        if self.requests.left == 0 {
            self.requests.left = u64::MAX;
            self.is_draining = false;
            self.activate_all(now);
        }
    }

    fn open_window(&mut self, now: u64) {
        self.stage = Stage::Measured;
        let opens_ns = self.times.opens_ns;
        let (measurement, at) = self.measurement_at(now);
        measurement.open(at, opens_ns);
    }

    /// Closes a window of a held load.
    fn close_window(&mut self, now: u64) {
        self.stage = Stage::Unmeasured;
        let (measurement, at) = self.measurement_at(now);
        measurement.close(at);
        self.closed_ns = now;
        (self.times.opens_ns, self.times.closes_ns) = (u64::MAX, u64::MAX);
        self.scan_ns = u64::MAX;
    }

    /// Ends the load.
    fn end(&mut self, now: u64) {
        if self.stage < Stage::Measured {
            // It was stopped early, so nothing is counted.
            self.open_window(now);
        }
        self.stage = Stage::Done;
        self.times.closes_ns = now;
    }
}
