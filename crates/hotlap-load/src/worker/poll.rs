//! Waits for responses without sleeping.
//!
//! What a server pays for a response depends on what its client does meanwhile. If the client
//! sleeps, the server's `write` wakes it, for up to 1 µs. If the client polls all the time, each
//! poll takes the cache lines of its event queue away from the server's core, for 0.2 µs. A client
//! at its limit does neither: it finds a dozen responses whenever it polls. So a fast server would
//! get a bonus over a slow one (METHODOLOGY, *The generator is not in the figure*).
//!
//! A worker with a core of its own therefore never sleeps while a load is under way, and polls at
//! intervals at which it finds several responses, however fast the server is.

use crate::plan::{Plan, Reuse};

/// Polls per mean service time. A response waits for a sixteenth of its service time on average,
/// which a saturated server does not notice. Differences of 0.5 to 4 µs were found within 6%, both
/// with 8 and with 16.
const POLLS: u64 = 8;

/// The longest interval between two polls. It bounds what polling adds to the response of a server
/// that is not saturated: 25 µs on average.
const LONGEST_NS: u64 = 50_000;

/// With fewer requests in flight, a server would run out of work between two polls.
const FEWEST: u64 = 16;

/// How often the interval is adapted to the service time.
const ADAPT_NS: u64 = 1_000_000;

/// When a worker polls.
#[derive(Debug)]
pub(super) struct Polling {
    /// Whether responses may wait for a poll. In an open loop their times are the result; and each
    /// request with its own connection would wait twice.
    may_wait: bool,
    interval_ns: u64,
    last_ns: u64,
    /// When the interval was adapted last, and the requests completed until then.
    adapted: (u64, u64),
}

impl Polling {
    /// Without an interval, until the service time is known.
    pub(super) fn new(plan: &Plan) -> Self {
        let may_wait = !plan.is_open_loop() && plan.reuse == Reuse::KeepAlive;
        Self { may_wait, interval_ns: 0, last_ns: 0, adapted: (0, 0) }
    }

    /// When to poll next.
    #[inline]
    pub(super) fn due_ns(&self) -> u64 {
        self.last_ns + self.interval_ns
    }

    /// Records a poll, with the requests in flight and completed, and adapts the interval.
    #[inline]
    pub(super) fn polled(&mut self, now: u64, in_flight: u64, completed: u64) {
        self.last_ns = now;
        self.adapt(now, in_flight, completed);
    }

    /// Sets the interval to a share of the mean service time, which by Little's law is the number
    /// of requests in flight divided by their rate.
    fn adapt(&mut self, now: u64, in_flight: u64, completed: u64) {
        let (since_ns, before) = self.adapted;
        if !self.may_wait || now < since_ns + ADAPT_NS {
            return;
        }
        self.adapted = (now, completed);
        self.interval_ns = match completed.checked_sub(before) {
            _ if in_flight < FEWEST => 0,
            // The counts began anew with a window.
            None => self.interval_ns,
            Some(0) => LONGEST_NS,
            Some(count) => ((now - since_ns) * in_flight / count / POLLS).min(LONGEST_NS),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Pace, Request};
    use crate::url;

    fn plan() -> Plan {
        let target = url::resolve("http://127.0.0.1:9/").expect("a target").target;
        Plan::new(target, Request::get("/", "test"))
    }

    /// The interval after a millisecond with these requests in flight and completed.
    fn interval_ns(plan: &Plan, in_flight: u64, completed: u64) -> u64 {
        let mut polling = Polling::new(plan);
        polling.adapted = (5 * ADAPT_NS, 100);
        polling.adapt(6 * ADAPT_NS, in_flight, 100 + completed);
        polling.interval_ns
    }

    #[test]
    fn a_worker_polls_eight_times_in_the_mean_service_time() {
        // 64 requests in flight at 320,000/s take 200 µs each.
        assert_eq!(interval_ns(&plan(), 64, 320), 25_000);
        assert_eq!(interval_ns(&plan(), 64, 10), LONGEST_NS);
        assert_eq!(interval_ns(&plan(), 64, 0), LONGEST_NS);
        assert_eq!(interval_ns(&plan(), 15, 320), 0, "the server would run out of work");
    }

    #[test]
    fn responses_whose_times_count_do_not_wait() {
        let paced = Plan { pace: Pace::Constant { rate: 1e5 }, ..plan() };
        let closing = Plan { reuse: Reuse::Close, ..plan() };
        assert_eq!([interval_ns(&paced, 64, 10), interval_ns(&closing, 64, 10)], [0, 0]);
    }

    #[test]
    fn an_interval_lasts_until_it_can_be_adapted() {
        let mut polling = Polling { interval_ns: 7_000, ..Polling::new(&plan()) };
        polling.adapted = (ADAPT_NS, 900);
        polling.adapt(2 * ADAPT_NS - 1, 64, 1_900);
        assert_eq!(polling.interval_ns, 7_000, "too early");
        polling.adapt(2 * ADAPT_NS, 64, 50);
        assert_eq!(polling.interval_ns, 7_000, "a new window");
        polling.adapt(3 * ADAPT_NS, 64, 370);
        assert_eq!(polling.interval_ns, 25_000);
    }
}
