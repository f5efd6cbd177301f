//! The measurement of a worker: counts inside and outside of windows, and the requests in flight at
//! the edges of a window.
//!
//! Censored latency costs nothing for a correct response. Ages are recorded only when a window
//! opens or closes, and when a request fails.

use super::requests::Requests;
use super::slot::Slots;
use crate::clock;
use crate::outcome::{EdgeAges, Outcome, Totals};
use crate::plan::{Plan, Reuse};
use crate::shared::WorkerProgress;
use crate::tally::Tally;

/// The counts of one worker, inside and outside of windows.
pub(super) struct Measurement {
    /// The counts that are being updated now.
    pub(super) tally: Tally,
    /// The other tally of a held load. While no window is open, it has the counts of the windows.
    /// While a window is open, it has the counts between windows.
    other: Option<Tally>,
    /// The sum of the counts before the window and in collected windows.
    before: Counts,
    ages: EdgeAges,
    /// The age of the oldest request when the last window closed.
    oldest_ns: u64,
    /// The CPU time within windows that have closed and are not collected.
    cpu_ns: u64,
    /// The CPU time of the thread when the window opened.
    cpu_at_open_ns: u64,
    /// The number of connections that were open before the first request. If connections are kept,
    /// the higher of this number and the number when a window opened.
    established: u64,
    /// The number of requests with separate figures.
    requests: usize,
}

/// The counts of a tally that add up to totals.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    responses: u64,
    failed: u64,
    sent: u64,
}

impl Counts {
    fn add(&mut self, tally: &Tally) {
        self.responses += tally.responses;
        self.failed += tally.failed;
        self.sent += tally.sent;
    }
}

/// The state of a worker at one moment.
#[derive(Clone, Copy)]
pub(super) struct Snapshot<'a> {
    pub(super) now: u64,
    pub(super) plan: &'a Plan,
    pub(super) slots: &'a Slots,
    pub(super) requests: &'a Requests,
}

impl Measurement {
    /// Creates the measurement of a load. `requests` is the number of requests with separate
    /// figures.
    pub(super) fn new(is_held: bool, requests: usize) -> Self {
        let now = clock::now();
        Self {
            tally: Tally::new(now, requests),
            other: is_held.then(|| Tally::paused(now, requests)),
            before: Counts::default(),
            ages: EdgeAges::default(),
            oldest_ns: 0,
            cpu_ns: 0,
            cpu_at_open_ns: 0,
            established: 0,
            requests,
        }
    }

    /// Starts the measurement of a load with this many open connections.
    pub(super) fn start(&mut self, open: u64) {
        self.established = open;
    }

    /// Opens a window that should have opened at `opens_ns`.
    pub(super) fn open(&mut self, at: Snapshot, opens_ns: u64) {
        let is_kept = at.plan.shape.reuse == Reuse::KeepAlive;
        if is_kept {
            self.established = self.established.max(at.slots.open);
        }
        if let Some(other) = &mut self.other {
            std::mem::swap(&mut self.tally, other);
            self.tally.resume(at.now);
        } else {
            self.before.add(&self.tally);
            let before = std::mem::replace(&mut self.tally, Tally::new(at.now, self.requests));
            if is_kept {
                // Connections that are kept were opened before the window.
                self.tally.connect_time = before.connect_time;
                self.tally.handshake_time = before.handshake_time;
            }
        }
        self.record_open(at, opens_ns);
        self.cpu_at_open_ns = clock::thread_cpu();
    }

    /// Closes a window of a held load. Nothing counts as part of a window until the next window
    /// opens.
    pub(super) fn close(&mut self, at: Snapshot) {
        self.record_close(at);
        self.tally.pause(at.now);
        if let Some(other) = &mut self.other {
            std::mem::swap(&mut self.tally, other);
        }
    }

    /// Returns the outcome of the windows of a held load since the last call.
    pub(super) fn collect(&mut self, at: Snapshot) -> Option<Outcome> {
        let counted = self.other.replace(Tally::paused(at.now, self.requests))?;
        self.before.add(&counted);
        let mut outcome = self.outcome(counted, at);
        // Requests between windows are part of the whole load.
        outcome.totals.responses += self.tally.responses;
        outcome.totals.sent += self.tally.sent;
        (self.ages, self.cpu_ns) = (EdgeAges::default(), 0);
        if at.plan.shape.reuse == Reuse::KeepAlive {
            self.established = 0;
        }
        Some(outcome)
    }

    /// Returns the outcome at the end of the load, when the window closes.
    pub(super) fn finish(&mut self, at: Snapshot, opens_ns: u64) -> Outcome {
        self.record_close(at);
        let counted = std::mem::replace(&mut self.tally, Tally::new(at.now, self.requests));
        self.before.add(&counted);
        let sent = counted.sent;
        let mut outcome = self.outcome(counted, at);
        outcome.due = at.requests.due_between(opens_ns, at.now, sent);
        outcome.queued = at.requests.queued(at.now).count() as u64;
        outcome
    }

    /// Makes the counts visible to other threads.
    #[inline]
    pub(super) fn publish(&self, progress: &WorkerProgress, open: u64) {
        let (responses, failed) = self.progress();
        progress.store(responses, failed, open);
    }

    /// Returns the number of requests that got a response or failed since the load began. The
    /// number never falls, although the tallies are swapped at the edges of windows.
    #[inline]
    pub(super) fn completed(&self) -> u64 {
        let (responses, failed) = self.progress();
        responses + failed
    }

    /// Returns the numbers of correct responses and of failures since the load began.
    #[inline]
    fn progress(&self) -> (u64, u64) {
        let (mut responses, mut failed) = (self.before.responses, self.before.failed);
        for tally in std::iter::once(&self.tally).chain(&self.other) {
            responses += tally.responses;
            failed += tally.failed;
        }
        (responses, failed)
    }

    /// Records the requests that are in flight or queued as the window opens.
    fn record_open(&mut self, at: Snapshot, opens_ns: u64) {
        let Snapshot { now, requests, .. } = at;
        for request in at.slots.iter().flat_map(|slot| slot.conn.requests()) {
            self.ages.at_open_ns += now.saturating_sub(request.sent_ns);
            self.tally.in_flight_at_open(request, now, requests.is_open_loop);
        }
        // The worker wakes up some microseconds after `opens_ns`. Requests that became due in
        // between count as due in the window.
        for (due_ns, request) in requests.queued(opens_ns.min(now)) {
            self.tally.queued_at_open(request, now - due_ns);
        }
    }

    /// Records the requests without a response as the window closes.
    fn record_close(&mut self, at: Snapshot) {
        let Snapshot { now, plan, slots, requests } = at;
        self.cpu_ns += clock::thread_cpu().saturating_sub(self.cpu_at_open_ns);
        let mut oldest_due_ns = now;
        for request in slots.iter().flat_map(|slot| slot.conn.requests()) {
            self.ages.at_close_ns += now.saturating_sub(request.sent_ns);
            // In a closed loop, a request is due when it is sent.
            oldest_due_ns = oldest_due_ns.min(request.due_ns);
            self.tally.unfinished(request, now, requests.is_open_loop);
        }
        // If a connection is free, a queued request did not wait for the server. It waited for the
        // worker, which woke up only after the window had closed.
        let has_free = slots.listed().any(|slot| slot.can_send(plan));
        for (due_ns, request) in requests.queued(now) {
            oldest_due_ns = oldest_due_ns.min(due_ns);
            self.tally.queued_at_close(request, now - due_ns, has_free);
        }
        self.oldest_ns = now - oldest_due_ns;
    }

    /// Returns the outcome of counts that are already added to `before`.
    fn outcome(&self, counted: Tally, at: Snapshot) -> Outcome {
        let mut outcome = counted.into_outcome(at.now);
        outcome.edge_ages = self.ages;
        outcome.oldest_ns = self.oldest_ns;
        outcome.totals = Totals { responses: self.before.responses, sent: self.before.sent };
        outcome.in_flight = at.requests.in_flight;
        let silent_ns = clock::nanos(at.plan.timeout) / 2;
        let stalled = at.slots.iter().filter(|slot| slot.is_stalled(at.now, silent_ns));
        outcome.stalled = stalled.count() as u64;
        outcome.connections.requested = at.slots.len() as u64;
        outcome.connections.established = self.established;
        outcome.connections.opened = at.slots.attempts;
        outcome.threads[0].cpu_ns = self.cpu_ns;
        outcome
    }
}
