//! A worker is one thread with its own connections and counts.
//!
//! A worker loops: it waits for events, reads the clock, handles ready sockets, and sends due
//! requests. Nothing that a worker writes per request is shared. Other threads see only what the
//! worker publishes at each wake-up. While a load is under way, a worker that may busy-poll does
//! not sleep (`Polling`).
//!
//! The worker reads the clock at each wake-up and after each read, when one request ends and the
//! next begins. The bytes of the next request leave a fraction of a microsecond later. If the
//! worker read the clock only at wake-ups, the hundredth response of a wake-up would be recorded
//! 0.6 ms early. The service time of the next request would be too long by the same amount. The
//! second reading costs about 50 of 14,000 instructions.

mod connect;
mod measurement;
mod requests;
mod slot;

use std::net::IpAddr;
use std::sync::Arc;

use measurement::{Measurement, Snapshot};
use requests::Requests;
use slot::{Slots, Unread};

use crate::clock;
use crate::connection;
use crate::io::{self, Events, Io};
use crate::outcome::{Negotiated, Outcome};
use crate::plan::{Plan, Protocol, Reuse, Stop};
use crate::schedule::Schedule;
use crate::shared::Times;
use crate::shared::{Commands, Shared};
use crate::tls::TlsConfig;

/// The size of the buffer into which all connections of a worker are read. Longer responses are
/// handled in pieces.
const BUFFER: usize = 256 * 1024;

/// A worker, which sends its share of the requests over its share of the connections.
pub(crate) struct Worker {
    number: usize,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    tls: Option<TlsConfig>,
    /// Whether the protocol is HTTP/2.
    is_multiplexed: bool,
    io: Io,
    stage: Stage,
    /// The start of the load, and the times at which its window opens and closes.
    times: Times,
    slots: Slots,
    requests: Requests,
    measurement: Measurement,
    /// What TLS negotiated on the first connection.
    negotiated: Option<Negotiated>,
    /// A buffer for decrypted bytes, or for the bytes of several requests.
    scratch: Vec<u8>,
    /// The sockets that have more to read.
    unread: Vec<Unread>,
    /// When to poll. `None` if the worker sleeps instead.
    polling: Option<Polling>,
    /// The length of the worker's stall that still delays requests, in nanoseconds. 0 if requests
    /// wait only for the server.
    behind_ns: u64,
    timeout_ns: u64,
    /// When to check for timed-out requests next.
    scan_ns: u64,
    /// The interval between two checks for timed-out requests.
    scan_every_ns: u64,
    /// The commands of a held load that have been carried out.
    done: Commands,
    /// When the last window of a held load closed. 0 before the first window, and from the command
    /// to open a window until the window closes.
    closed_ns: u64,
    /// Whether requests that were sent before a pause are still in flight.
    is_draining: bool,
}

/// The stages of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Connections are being opened. No requests are sent.
    Connecting,
    /// All connections are open or have failed once. The load has not started yet.
    Ready,
    /// Requests are sent but do not count: before the window, and between the windows of a held
    /// load.
    Unmeasured,
    /// Requests are sent and count.
    Measured,
    /// The load has ended.
    Done,
}

impl Worker {
    /// Creates a worker with its share of the plan's connections and requests. If the plan cannot
    /// be divided evenly, the first workers take one more connection or request each.
    pub(crate) fn new(
        number: usize,
        plan: &Arc<Plan>,
        shared: &Arc<Shared>,
        tls: Option<TlsConfig>,
        io: Io,
    ) -> Self {
        let share = |all: u64, number: usize, workers: usize| {
            let (number, workers) = (number as u64, workers as u64);
            all / workers + u64::from(number < all % workers)
        };
        // Slot s of worker w of n is connection s·n + w overall.
        let source = |slot: usize| -> Option<IpAddr> {
            let connection = slot * plan.shape.threads + number;
            plan.sources.get(connection % plan.sources.len().max(1)).copied()
        };
        let connections = share(plan.shape.connections as u64, number, plan.shape.threads) as usize;
        let limit = match plan.stop {
            Stop::Requests(count) if !shared.is_held() => {
                share(count, plan.worker(number), plan.workers())
            }
            _ => u64::MAX,
        };
        let timeout_ns = clock::nanos(plan.timeout);
        let requests = Requests::new(plan, number, limit);
        Self {
            number,
            plan: plan.clone(),
            shared: shared.clone(),
            tls,
            is_multiplexed: plan.target.protocol == Protocol::Http2,
            io,
            stage: Stage::Connecting,
            times: Times::UNKNOWN,
            slots: Slots::new(
                (0..connections).map(source),
                plan.target.endpoint.is_local(),
                connection::limits(plan, &requests.mix),
            ),
            requests,
            negotiated: None,
            measurement: Measurement::new(shared.is_held(), plan.by_request()),
            scratch: Vec::new(),
            unread: Vec::new(),
            polling: plan.may_busy_poll().then(|| Polling::new(plan)),
            behind_ns: 0,
            timeout_ns,
            scan_ns: 0,
            // A timeout is detected at most a 32nd of its length late, or 1 ms if it is short.
            scan_every_ns: (timeout_ns / 32).clamp(1_000_000, 100_000_000),
            done: Commands::default(),
            closed_ns: 0,
            is_draining: false,
        }
    }

    /// Runs the load until it ends or the session stops it. Returns the outcome.
    pub(crate) fn run(mut self) -> Outcome {
        let (mut events, mut buffer) = (Events::new(), vec![0; BUFFER]);
        let mut now = clock::now();
        let mut woke_ns = now;
        self.scan_ns = now + self.scan_every_ns;
        while self.stage != Stage::Done {
            if self.slots.has_new(now) {
                self.open_new(now);
            }
            let next_ns = self.next_ns(now);
            now = match &self.polling {
                Some(polling) if self.is_under_way() => {
                    self.poll(polling.due_ns().min(next_ns), &mut events)
                }
                _ => self.sleep(next_ns, now, &mut events),
            };
            self.notice_stall(next_ns.max(woke_ns), now);
            woke_ns = now;
            if now >= next_ns || self.stage <= Stage::Ready || self.has_commands() {
                self.keep_time(now);
            }
            if self.stage == Stage::Done {
                break;
            }
            for event in events.iter() {
                // Due requests are sent between sockets, rather than after all of them.
                if self.requests.is_due(now) {
                    self.send_due();
                }
                now = self.handle(event, now, &mut buffer);
            }
            if !self.unread.is_empty() {
                now = self.read_on(now, &mut buffer);
            }
            // The sockets are read first, so that no request times out only because the worker
            // itself was late.
            if now >= self.scan_ns {
                self.scan_ns = now + self.scan_every_ns;
                self.find_timeouts(now);
            }
            // The last connection may have just opened, so tell the other workers at once.
            self.report_ready();
            if self.requests.is_due(now) {
                self.send_due();
            }
            // The counts must be complete before the session is told that no request is in flight.
            self.publish();
            if self.requests.are_done() && self.stage >= Stage::Unmeasured {
                self.requests_done();
            }
        }
        self.finish()
    }

    /// Returns whether the session has ended the load or given a new command.
    #[inline]
    fn has_commands(&self) -> bool {
        self.shared.is_stopped() || (self.shared.is_held() && self.shared.commands() != self.done)
    }

    /// Returns when the next task is due, regardless of sockets. The worker wakes up when a request
    /// becomes due, even if no connection is free. Otherwise the server would be blamed for the
    /// worker's own lateness.
    fn next_ns(&self, now: u64) -> u64 {
        if !self.unread.is_empty() {
            return 0;
        }
        let edge = match self.stage {
            Stage::Connecting | Stage::Ready => self.times.start_ns,
            Stage::Unmeasured => self.times.opens_ns,
            Stage::Measured | Stage::Done => self.times.closes_ns,
        };
        let mut next = self.scan_ns.min(edge).min(self.slots.next_ns());
        if let Some(due_ns) = self.requests.next_due_ns()
            && (self.slots.has_listed() || due_ns > now)
        {
            next = next.min(due_ns);
        }
        next
    }

    /// Returns whether requests are sent now or soon: the times of a window are known, and the
    /// window has not closed. At other times, the server may be stopped.
    #[inline]
    fn is_under_way(&self) -> bool {
        self.times.start_ns < clock::FAR_NS && self.times.opens_ns < clock::FAR_NS
    }

    /// Polls at `poll_ns`, or once the session has a command, and stores the events. Returns the
    /// time. Not inlined, because a worker that sleeps should not pay for polling.
    #[inline(never)]
    fn poll(&mut self, poll_ns: u64, events: &mut Events) -> u64 {
        let began_ns = clock::now();
        let mut now = began_ns;
        while now < poll_ns && !self.has_commands() {
            std::hint::spin_loop();
            now = clock::now();
        }
        self.io.wait(None, events);
        let after_ns = clock::now();
        let tally = &mut self.measurement.tally;
        if events.is_empty() {
            tally.idle_ns += after_ns - began_ns;
        } else {
            tally.idle_ns += now - began_ns;
            tally.wakeups += 1;
        }
        if let Some(polling) = &mut self.polling {
            polling.polled(now, self.requests.in_flight, self.measurement.completed());
        }
        after_ns
    }

    /// Sleeps until something happens or the next task is due, and stores the events. Returns the
    /// time.
    #[inline(always)]
    fn sleep(&mut self, next_ns: u64, now: u64, events: &mut Events) -> u64 {
        let wake_ns = (next_ns > now).then_some(next_ns);
        self.io.wait(wake_ns, events);
        self.measurement.tally.wakeups += u64::from(wake_ns.is_some());
        clock::now()
    }

    #[inline]
    fn publish(&self) {
        self.measurement.publish(&self.shared.progress[self.number], self.slots.open);
    }

    /// Returns the outcome at the end of the load.
    fn finish(mut self) -> Outcome {
        self.publish();
        let opens_ns = self.times.opens_ns;
        let (measurement, at) = self.measurement_at(self.times.closes_ns);
        let outcome = measurement.finish(at, opens_ns);
        self.complete(outcome)
    }

    /// Adds the backend, the core and the negotiated TLS to an outcome.
    fn complete(&self, mut outcome: Outcome) -> Outcome {
        outcome.backend = io::BACKEND.to_owned();
        outcome.tls.clone_from(&self.negotiated);
        outcome.threads[0].cpu = self.plan.cpu(self.number);
        outcome
    }

    /// Returns the measurement, and the state that it needs.
    fn measurement_at(&mut self, now: u64) -> (&mut Measurement, Snapshot<'_>) {
        let (plan, slots, requests) = (&*self.plan, &self.slots, &self.requests);
        (&mut self.measurement, Snapshot { now, plan, slots, requests })
    }

    /// Returns whether each request has its own connection.
    #[inline]
    fn closes_connections(&self) -> bool {
        self.plan.shape.reuse == Reuse::Close
    }
}

impl Worker {
    /// Does what is due, apart from requests and regular checks for timeouts: edges of the window,
    /// connections to reopen, and commands of the session.
    #[cold]
    fn keep_time(&mut self, now: u64) {
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
        // Commands may have come while the window was open, so they are handled after the window
        // closes.
        if self.stage == Stage::Unmeasured && self.shared.is_held() {
            self.carry_out_commands(now);
        }
        if self.stage == Stage::Unmeasured && now >= self.times.opens_ns {
            self.open_window(now);
        }
        self.reopen_due(now);
        self.retry_full_queues(now);
    }

    /// Reports once that all slots have been open or have failed.
    fn report_ready(&mut self) {
        if self.stage == Stage::Connecting && self.slots.are_settled() {
            self.stage = Stage::Ready;
            self.shared.ready(self.slots.reached);
        }
    }

    /// Starts to send requests.
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

    /// Ends the load, or reports that it is paused. Called once every permitted request has a
    /// response or has failed.
    #[cold]
    fn requests_done(&mut self) {
        if !self.shared.is_held() {
            self.end(clock::now());
        } else if std::mem::take(&mut self.is_draining) {
            self.shared.idle(self.done.pauses);
        }
    }

    /// Carries out the session's commands to a held load. No window is open.
    fn carry_out_commands(&mut self, now: u64) {
        let commands = self.shared.commands().next_after(self.done);
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

    /// Prepares for a window of a held load.
    fn prepare_window(&mut self, now: u64) {
        if let Some(times) = self.shared.times() {
            (self.times.opens_ns, self.times.closes_ns) = (times.opens_ns, times.closes_ns);
        }
        if self.closed_ns > 0 {
            // During a pause, no time passes for requests in flight.
            let since_ns = std::mem::take(&mut self.closed_ns).max(self.shared.paused_ns());
            let pause_ns = now.saturating_sub(since_ns);
            self.slots.iter_mut().for_each(|slot| slot.shift(pause_ns, now));
        }
        if let Some(polling) = &mut self.polling {
            polling.restart(now, self.measurement.completed());
        }
        // A timeout before the window opens should count in the window.
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

    fn end(&mut self, now: u64) {
        if self.stage < Stage::Measured {
            // The load was stopped early, so nothing is counted.
            self.open_window(now);
        }
        self.stage = Stage::Done;
        self.times.closes_ns = now;
    }
}

/// The number of polls per mean service time. On average, a response waits for a sixteenth of its
/// service time, which a saturated server does not notice. In a test, extra costs of 0.5 to 4 µs
/// were measured to within 6%, both with 8 and with 16 polls.
const POLLS: u64 = 8;

/// The longest interval between two polls. It limits how much polling adds to the response time of
/// a server that is not saturated: 25 µs on average.
const LONGEST_NS: u64 = 50_000;

/// The minimum number of requests in flight for an interval between polls. With fewer requests, a
/// server would run out of work between two polls.
const FEWEST: u64 = 16;

/// The interval at which polling is adapted to the service time.
const ADAPT_NS: u64 = 1_000_000;

/// Decides when a worker polls while it waits for responses without sleeping.
///
/// What a response costs a server depends on what the client does meanwhile. If the client sleeps,
/// the server's `write` wakes it, which can take microseconds. If the client polls all the time,
/// each poll takes the cache lines of its event queue away from the server's core. This costs 0.2
/// µs per response. A client at its limit causes neither cost, because it finds a dozen responses
/// whenever it polls. A fast server would therefore get a bonus over a slow server (METHODOLOGY,
/// *The generator is not in the figure*).
///
/// For this reason, a worker that may busy-poll never sleeps while a load is under way. In a
/// closed loop with many requests in flight, each poll finds several responses, however fast the
/// server is.
#[derive(Debug)]
struct Polling {
    /// Whether responses may wait for a poll. They must not wait in an open loop, where their times
    /// are the result. They must not wait if each request has its own connection either, because
    /// each request would wait twice.
    may_wait: bool,
    interval_ns: u64,
    last_ns: u64,
    /// When the interval was last adapted, and the number of requests completed until then.
    adapted: (u64, u64),
}

impl Polling {
    /// Creates the state without an interval, because the service time is not known yet.
    fn new(plan: &Plan) -> Self {
        let may_wait = !plan.is_open_loop() && plan.shape.reuse == Reuse::KeepAlive;
        Self { may_wait, interval_ns: 0, last_ns: 0, adapted: (0, 0) }
    }

    /// Returns when to poll next.
    #[inline]
    fn due_ns(&self) -> u64 {
        self.last_ns + self.interval_ns
    }

    /// Records a poll, with the numbers of requests in flight and completed. Adapts the interval.
    #[inline]
    fn polled(&mut self, now: u64, in_flight: u64, completed: u64) {
        self.last_ns = now;
        self.adapt(now, in_flight, completed);
    }

    /// Restarts the adaptation after a pause, during which the server may have been frozen. The
    /// interval stays the same.
    fn restart(&mut self, now: u64, completed: u64) {
        self.adapted = (now, completed);
    }

    /// Sets the interval to a share of the mean service time. By Little's law, the mean service
    /// time is the number of requests in flight divided by their rate.
    fn adapt(&mut self, now: u64, in_flight: u64, completed: u64) {
        let (since_ns, before) = self.adapted;
        if !self.may_wait || now < since_ns + ADAPT_NS {
            return;
        }
        self.adapted = (now, completed);
        self.interval_ns = match completed - before {
            _ if in_flight < FEWEST => 0,
            0 => LONGEST_NS,
            count => ((now - since_ns) * in_flight / count / POLLS).min(LONGEST_NS),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Pace, Request};
    use crate::shared::Mode;
    use crate::url;

    fn plan() -> Plan {
        let target = url::resolve("http://127.0.0.1:9/").expect("a target").target;
        Plan::new(target, Request::get("/", "test"))
    }

    /// Returns the interval after a millisecond with these requests in flight and completed.
    fn interval_ns(plan: &Plan, in_flight: u64, completed: u64) -> u64 {
        let mut polling = Polling::new(plan);
        polling.adapted = (5 * ADAPT_NS, 100);
        polling.adapt(6 * ADAPT_NS, in_flight, 100 + completed);
        polling.interval_ns
    }

    #[test]
    fn a_worker_polls_eight_times_in_the_mean_service_time() {
        // With 64 requests in flight at 320,000/s, each takes 200 µs.
        assert_eq!(interval_ns(&plan(), 64, 320), 25_000);
        assert_eq!(interval_ns(&plan(), 64, 10), LONGEST_NS);
        assert_eq!(interval_ns(&plan(), 64, 0), LONGEST_NS);
        assert_eq!(interval_ns(&plan(), 15, 320), 0, "the server would run out of work");
    }

    #[test]
    fn responses_whose_times_count_do_not_wait() {
        let paced = Plan { pace: Pace::Constant { rate: 1e5 }, ..plan() };
        let mut closing = plan();
        closing.shape.reuse = Reuse::Close;
        assert_eq!([interval_ns(&paced, 64, 10), interval_ns(&closing, 64, 10)], [0, 0]);
    }

    #[test]
    fn an_interval_lasts_until_it_can_be_adapted() {
        let mut polling = Polling { interval_ns: 7_000, ..Polling::new(&plan()) };
        polling.adapted = (ADAPT_NS, 900);
        polling.adapt(2 * ADAPT_NS - 1, 64, 1_900);
        assert_eq!(polling.interval_ns, 7_000, "too early");
        polling.adapt(2 * ADAPT_NS, 64, 1_220);
        assert_eq!(polling.interval_ns, 25_000);
        // Regression: a pause between two windows counted as service time.
        polling.restart(500 * ADAPT_NS, 1_230);
        polling.adapt(501 * ADAPT_NS - 1, 64, 1_600);
        assert_eq!(polling.interval_ns, 25_000, "too early after a pause");
        polling.adapt(501 * ADAPT_NS, 64, 1_870);
        assert_eq!(polling.interval_ns, 12_500);
    }

    /// Regression: the count of completed requests jumped at each edge of a window, which made the
    /// polling interval wrong.
    #[test]
    fn the_count_of_completed_requests_does_not_fall_at_the_edges_of_windows() {
        let mut worker = paced();
        worker.measurement = Measurement::new(true, 1);
        for responses in 1..5 {
            worker.measurement.tally.responses += 1;
            assert_eq!(worker.measurement.completed(), responses);
            let (measurement, at) = worker.measurement_at(clock::now());
            match responses % 2 {
                0 => measurement.close(at),
                _ => measurement.open(at, at.now),
            }
            assert_eq!(worker.measurement.completed(), responses);
        }
        let (measurement, at) = worker.measurement_at(clock::now());
        assert!(measurement.collect(at).is_some());
        assert_eq!(worker.measurement.completed(), 4);
    }

    const MS: u64 = 1_000_000;

    /// Creates a worker with one connection, and with a request due every 5 ms from 2.5 ms on.
    fn paced() -> Worker {
        let mut plan = Plan { pace: Pace::Constant { rate: 200.0 }, ..plan() };
        plan.shape.connections = 1;
        let (io, waker) = Io::new().expect("a queue");
        let shared = Shared::new(&plan, Mode::Once, vec![waker]);
        let mut worker = Worker::new(0, &Arc::new(plan), &Arc::new(shared), None, io);
        worker.requests.start(Schedule::new(&worker.plan.pace, 0, 1, 0));
        // Apart from requests, nothing becomes due.
        worker.scan_ns = clock::FAR_NS;
        worker.slots.take_new(0).for_each(drop);
        worker.slots.settle(0);
        worker
    }

    /// Begins the requests that are due on the connection, which a response has just freed.
    fn responded(worker: &mut Worker, now: u64) {
        worker.slots[0].conn.reset();
        worker.begin_due(0, now, |conn, limit| conn.in_flight() < limit);
    }

    fn late(worker: &Worker) -> (u64, u64) {
        let lag = &worker.measurement.tally.lag;
        (lag.len(), lag.max() / MS)
    }

    /// Regression: requests waited for a busy connection while the generator was stopped. Their
    /// lateness was blamed on the server.
    #[test]
    fn requests_behind_a_stall_of_the_generator_are_late_because_of_it() {
        let mut worker = paced();
        responded(&mut worker, 3 * MS);
        assert_eq!(worker.next_ns(3 * MS), 7_500_000, "it wakes though its connection is busy");
        worker.notice_stall(7_500_000, 7_600_000);
        // The server took long, so this request waited for the server.
        responded(&mut worker, 12 * MS);
        assert_eq!(late(&worker), (0, 0));
        // Then the worker is stopped for a second. In that time, 200 requests become due. Another
        // 50 become due while one response arrives each millisecond.
        worker.notice_stall(worker.next_ns(12 * MS), 1_012 * MS);
        for ms in 1_012..1_312 {
            responded(&mut worker, ms * MS);
        }
        assert_eq!(late(&worker), (250, 999));
        assert_eq!(worker.behind_ns, 0, "no request waits");
    }

    /// Without this rule, the queue of a server that is too slow would count as the generator's
    /// forever.
    #[test]
    fn a_queue_that_outgrows_a_stall_is_the_servers() {
        let mut worker = paced();
        responded(&mut worker, 3 * MS);
        worker.notice_stall(worker.next_ns(3 * MS), 13 * MS);
        for response in 1..100 {
            responded(&mut worker, (3 + 10 * response) * MS);
        }
        assert_eq!(late(&worker), (2, 10));
    }

    /// Regression: each event added the socket again, so each pass of the loop took longer.
    #[test]
    fn a_socket_with_more_to_read_is_remembered_once() {
        let mut worker = paced();
        let generation = worker.slots[0].generation;
        worker.set_aside(0, generation, false);
        worker.set_aside(0, generation, true);
        worker.set_aside(0, generation, false);
        assert_eq!(worker.unread.len(), 1);
        assert!(worker.unread[0].ended);
        worker.set_aside(0, generation + 1, false);
        assert_eq!(worker.unread.len(), 1, "the socket was closed");
    }
}
