//! The requests of a worker: which one is next, when it is due, and how many may still be sent.

use crate::connection::InFlight;
use crate::plan::{Plan, Stop};
use crate::requests::RequestMix;
use crate::schedule::Schedule;

/// The requests of one worker.
pub(super) struct Requests {
    pub(super) mix: RequestMix,
    /// The due times of an open loop, once the load has started.
    schedule: Option<Schedule>,
    pub(super) is_open_loop: bool,
    /// Whether the plan limits the number of requests.
    is_limited: bool,
    /// Requests that may still be sent.
    pub(super) left: u64,
    /// Requests in flight, over all slots.
    pub(super) in_flight: u64,
}

impl Requests {
    /// The requests of a worker that may send `limit` of them.
    pub(super) fn new(plan: &Plan, worker: usize, limit: u64) -> Self {
        Self {
            mix: RequestMix::new(plan, worker),
            schedule: None,
            is_open_loop: plan.is_open_loop(),
            is_limited: matches!(plan.stop, Stop::Requests(_)),
            left: limit,
            in_flight: 0,
        }
    }

    /// Starts the load, with this schedule if it is an open loop.
    pub(super) fn start(&mut self, schedule: Option<Schedule>) {
        self.schedule = schedule;
    }

    /// Whether no request is in flight, and none may be sent.
    #[inline]
    pub(super) fn are_done(&self) -> bool {
        self.left == 0 && self.in_flight == 0
    }

    /// When the next request of the schedule is due, if one may be sent.
    #[inline]
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.schedule.as_ref().filter(|_| self.left > 0).map(Schedule::next_ns)
    }

    /// Whether a request of the schedule is due by `now`.
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.schedule.as_ref().is_some_and(|schedule| schedule.next_ns() <= now)
    }

    /// Takes the request to send now and returns when it was due, which in a closed loop is now.
    /// `None` if none is due.
    #[inline]
    pub(super) fn take_due(&mut self, now: u64) -> Option<u64> {
        match &mut self.schedule {
            None => Some(now),
            Some(schedule) => (schedule.next_ns() <= now).then(|| schedule.take()),
        }
    }

    /// Records a request that is sent.
    #[inline(always)]
    pub(super) fn send(&mut self, due_ns: u64, sent_ns: u64) -> InFlight {
        self.left -= 1;
        self.in_flight += 1;
        InFlight { turn: self.mix.next(), due_ns, sent_ns }
    }

    /// Records a failed connection with this many requests in flight. Without any, the failure
    /// takes the place of a request, so that a limited load ends.
    pub(super) fn failed(&mut self, in_flight: u64, is_started: bool) {
        self.in_flight -= in_flight;
        if in_flight == 0 && is_started {
            self.left = self.left.saturating_sub(1);
        }
    }

    /// The requests that were due before `end_ns` but not sent: when each was due, and its index.
    /// They are sent in the order in which they became due, on whichever connection is free.
    pub(super) fn queued(&self, end_ns: u64) -> impl Iterator<Item = (u64, usize)> {
        let limit = usize::try_from(self.left).unwrap_or(usize::MAX);
        let due = self.schedule.iter().flat_map(move |s| s.due_before(end_ns)).take(limit);
        due.zip(self.mix.upcoming())
    }

    /// How many requests became due in a window; `sent` were sent in it.
    pub(super) fn due_between(&self, opens_ns: u64, closes_ns: u64, sent: u64) -> u64 {
        let Some(mut schedule) = self.schedule.as_ref().map(Schedule::restarted) else { return 0 };
        schedule.take_until(opens_ns.min(closes_ns));
        let due = schedule.take_until(closes_ns);
        if self.is_limited { due.min(sent) } else { due }
    }
}
