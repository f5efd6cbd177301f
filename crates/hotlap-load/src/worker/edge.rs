//! The edges of a window: which requests are under way, and how old they are.
//!
//! This is all that censored latency costs: a look at each connection when a window opens or
//! closes, and nothing per request.

use super::Worker;
use crate::pace::Schedule;
use crate::plan::Stop;

impl Worker {
    /// Records the requests that are under way as the window opens; returns the time since they
    /// were sent, summed up.
    pub(super) fn enter(&mut self, now: u64) -> u64 {
        let is_paced = self.is_paced();
        let mut sum_ns = 0;
        for flight in self.lanes.iter().flat_map(|lane| lane.talk.flights()) {
            sum_ns += now.saturating_sub(flight.sent_ns);
            self.tally.entered(flight, now, is_paced);
        }
        // The worker is some microseconds late: what is due meanwhile is due in the window.
        let opens = self.opens_ns.min(now);
        let due = self.schedule.iter().flat_map(|s| s.due_before(opens));
        self.tally.waited(due.take(limit(self.left)).map(|due| now - due));
        sum_ns
    }

    /// Records the requests that are unanswered as the window closes; returns the time since they
    /// were sent, summed up.
    pub(super) fn leave(&mut self, now: u64) -> u64 {
        let is_paced = self.is_paced();
        let (mut sum_ns, mut first_ns) = (0, now);
        for flight in self.lanes.iter().flat_map(|lane| lane.talk.flights()) {
            sum_ns += now.saturating_sub(flight.sent_ns);
            // In a closed loop a request is due when it is sent.
            first_ns = first_ns.min(flight.due_ns);
            self.tally.open(flight, now, is_paced);
        }
        if let Some(schedule) = &self.schedule {
            let due = schedule.due_before(now).take(limit(self.left));
            let due = due.inspect(|due| first_ns = first_ns.min(*due));
            let ages = due.map(|due| now - due);
            // Beside a free connection a request does not wait for the server, but for a worker
            // that woke up and found the window closed.
            match self.free.iter().any(|&number| self.can_send(number as usize)) {
                true => self.tally.unsent(ages),
                false => self.tally.waits(ages),
            }
        }
        self.oldest_ns = now - first_ns;
        sum_ns
    }

    /// How many requests were due within the window, and how many of all that were due were not
    /// sent.
    pub(super) fn count_due(&mut self, now: u64, sent: u64) -> (u64, u64) {
        let Some(mut schedule) = self.schedule.take() else { return (0, 0) };
        let (threads, pace) = (self.plan.threads, self.plan.pace);
        let queued = schedule.drain(now).min(self.left);
        let fresh = Schedule::new(pace, self.number, threads, self.go_ns);
        let due = fresh.map_or(0, |mut all| {
            all.drain(self.opens_ns.min(now));
            all.drain(now)
        });
        match self.plan.stop {
            Stop::After(_) => (due, queued),
            Stop::Requests(_) => (due.min(sent), queued),
        }
    }
}

/// Requests that may still be started, for an iterator.
fn limit(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX)
}
