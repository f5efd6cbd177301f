//! One thread that owns its connections and its counts, and shares nothing that is written per
//! request: what others may see, it publishes at each wake-up, on a cache line of its own.
//!
//! Its loop: wait, look at the clock, serve what is ready, send what is due, do what time demands.
//!
//! The clock is read once per wake-up, and once after each receive: that moment ends one request
//! and starts the next, whose bytes go out a fraction of a microsecond later. With one read per
//! wake-up alone, the hundredth answer of a wake-up would be stamped 0.6 ms early, and the service
//! time of its successor would be too long by as much; the second read costs some 50 of 14,000
//! instructions.

mod edge;
mod lane;
mod traffic;

use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::book::Book;
use crate::clock;
use crate::io::{self, Io, Round};
use crate::outcome::{Edges, Outcome, Phase, Whole};
use crate::pace::Schedule;
use crate::plan::{Pace, Plan, Reuse, Stop};
use crate::session::Shared;
use crate::tally::Tally;
use crate::tls::Secure;

use lane::{Lane, State};

/// Where all connections of a worker read to: what comes fits, or is handled in pieces. A worker
/// needs one, a connection none.
const BUFFER: usize = 256 * 1024;

/// Connections that one worker opens at once while none is loaded yet, and how long it waits
/// before the next: a server has a queue of connections that it has not accepted yet, of 50 for
/// instance, and whoever finds it full tries again after a second (tcp(7), RFC 6298 section 2).
const OPENING: usize = 16;
const OPENING_NS: u64 = 1_000_000;

/// On loopback a connection is up within microseconds. One that is not after so long has found the
/// server's queue full, and is tried again at once instead of when the system would.
const QUEUED_NS: u64 = 25_000_000;

/// How long before a request is due, and after it was sent, a worker whose core is its own does
/// not sleep ([`Plan::awake`]): longer than it takes to be woken.
const AWAKE_NS: u64 = 100_000;

/// What others may see of a worker; 128 bytes, since processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Board {
    pub(crate) answers: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) connected: AtomicU64,
}

/// What was counted before the window.
#[derive(Debug, Default)]
struct Before {
    answers: u64,
    failed: u64,
    sent: u64,
}

impl Before {
    fn add(&mut self, tally: &Tally) {
        self.answers += tally.answers;
        self.failed += tally.failed;
        self.sent += tally.sent;
    }
}

/// Where a worker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Connections are being opened, none is loaded.
    Opening,
    /// All of them are open or have failed once; other workers are waited for.
    Ready,
    /// Loaded; nothing counts.
    Ramp,
    /// Everything counts.
    Window,
    Over,
}

/// One worker.
pub(crate) struct Worker {
    number: usize,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    secure: Option<Secure>,
    io: Io,
    book: Book,
    lanes: Vec<Lane>,
    tally: Tally,
    /// Of a load that is held, and of no other: the counts of its windows while none is open, and
    /// what is not to count while one is.
    other: Option<Tally>,
    /// Of a load that is held: which window it was last, since when there is none (0: while one is
    /// open, and before the first), and how often its counts were asked for.
    turn: u64,
    closed_ns: u64,
    asked: u64,
    /// Which pause of a held load it was last, and whether requests of before it are in flight.
    pause: u64,
    draining: bool,
    /// CPU time within windows that have closed.
    cpu_ns: u64,
    stage: Stage,
    /// What TLS made of what came.
    plain: Vec<u8>,
    /// Lanes that wait for a request to be due.
    free: VecDeque<u32>,
    /// Lanes to be opened again, by time, as (moment, lane), earliest on top.
    reopen: BinaryHeap<std::cmp::Reverse<(u64, u32)>>,
    schedule: Option<Schedule>,
    /// Requests that may be started still.
    left: u64,
    /// Requests in flight, and lanes that are open, over all lanes.
    in_flight: u64,
    connected: u64,
    /// Lanes that were open once.
    reached: u64,
    /// Lanes that were neither open nor failed yet.
    unsettled: usize,
    /// Lanes that are connecting, and the next that is opened for the first time.
    opening: usize,
    next_lane: usize,
    /// When more lanes may be opened.
    open_ns: u64,
    /// When lanes that are still connecting are looked at; never where that may take its time.
    knock_ns: u64,
    /// Next look for requests whose time is up.
    scan_ns: u64,
    scan_every_ns: u64,
    timeout_ns: u64,
    go_ns: u64,
    opens_ns: u64,
    closes_ns: u64,
    /// When a request of the schedule was sent last.
    due_sent_ns: u64,
    cpu_at_open_ns: u64,
    /// How long what was under way when the window opened had been so, summed up.
    carried_ns: u64,
    /// The same, when it closed.
    left_ns: u64,
    /// Age of the oldest request that was unanswered then.
    oldest_ns: u64,
    before: Before,
    opened: u64,
    established: u64,
}

impl Worker {
    /// A worker with its share of the plan's connections, the remainder spread over the first.
    pub(crate) fn new(
        number: usize,
        plan: &Arc<Plan>,
        shared: &Arc<Shared>,
        secure: Option<Secure>,
        io: Io,
    ) -> Self {
        let share = |all: u64| {
            let of = plan.threads as u64;
            all / of + u64::from((number as u64) < all % of)
        };
        let lanes = share(plan.connections as u64) as usize;
        // Lane l of worker w of t is connection l·t + w of all.
        let source = |lane: usize| -> Option<IpAddr> {
            let of = plan.sources.len();
            (of > 0).then(|| plan.sources[(lane * plan.threads + number) % of])
        };
        let timeout_ns = u64::try_from(plan.timeout.as_nanos()).unwrap_or(u64::MAX >> 2);
        Self {
            number,
            plan: plan.clone(),
            shared: shared.clone(),
            secure,
            io,
            book: Book::new(plan, number),
            lanes: (0..lanes).map(|lane| Lane::new(source(lane))).collect(),
            tally: Tally::new(clock::now()),
            other: shared.is_held().then(|| Tally::paused(clock::now())),
            turn: 0,
            closed_ns: 0,
            asked: 0,
            pause: 0,
            draining: false,
            cpu_ns: 0,
            stage: Stage::Opening,
            plain: Vec::new(),
            free: VecDeque::new(),
            reopen: BinaryHeap::new(),
            schedule: None,
            left: match plan.stop {
                _ if shared.is_held() => u64::MAX,
                Stop::After(_) => u64::MAX,
                Stop::Requests(count) => share(count),
            },
            in_flight: 0,
            connected: 0,
            reached: 0,
            unsettled: lanes,
            opening: 0,
            next_lane: 0,
            open_ns: 0,
            knock_ns: if plan.target.endpoint.is_near() { 0 } else { u64::MAX },
            scan_ns: 0,
            // A request is found overdue at most a 32nd of the timeout late.
            scan_every_ns: (timeout_ns / 32).clamp(1_000_000, 100_000_000),
            timeout_ns: timeout_ns.min(u64::MAX >> 2),
            go_ns: u64::MAX,
            opens_ns: u64::MAX,
            closes_ns: u64::MAX,
            due_sent_ns: 0,
            cpu_at_open_ns: 0,
            carried_ns: 0,
            left_ns: 0,
            oldest_ns: 0,
            before: Before::default(),
            opened: 0,
            established: 0,
        }
    }

    /// Works until the window closes or the session is stopped.
    pub(crate) fn run(mut self) -> Outcome {
        let (mut round, mut buffer) = (Round::new(), vec![0; BUFFER]);
        let mut now = clock::now();
        self.scan_ns = now + self.scan_every_ns;
        while self.stage != Stage::Over {
            if self.next_lane < self.lanes.len() && now >= self.open_ns {
                self.open_next(now);
            }
            let until = self.next_moment();
            let sleeps = self.sleeps_until(until, now);
            self.io.wait(sleeps, &mut round);
            self.tally.wakeups += u64::from(sleeps.is_some());
            now = clock::now();
            if now >= until || self.stage <= Stage::Ready || self.is_called() {
                self.keep_time(now);
            }
            if self.stage == Stage::Over {
                break;
            }
            for event in round.iter() {
                // What is due waits for one answer to be read at most, not for all that are there.
                if self.is_due(now) {
                    self.send_due();
                }
                now = self.serve(event, now, &mut buffer);
            }
            // The last connection may just have come up: whoever waits for that is told at once,
            // and not when the next moment of this worker's own comes.
            self.settle();
            if self.is_due(now) {
                self.send_due();
            }
            if self.left == 0 && self.in_flight == 0 && self.stage >= Stage::Ramp {
                self.all_answered();
            }
            self.publish();
        }
        self.finish()
    }

    /// Whether somebody wants it to stop, to open a window or to tell what it has counted.
    #[inline]
    fn is_called(&self) -> bool {
        self.shared.is_stopped()
            || (self.other.is_some() && self.shared.calls() != (self.turn, self.asked, self.pause))
    }

    /// Whether a request of the schedule should have been sent by `now`.
    #[inline]
    fn is_due(&self, now: u64) -> bool {
        self.schedule.as_ref().is_some_and(|schedule| schedule.next_ns() <= now)
    }

    /// How long to sleep, if something is to be done at `until`; `None`: not at all.
    #[inline]
    fn sleeps_until(&self, until: u64, now: u64) -> Option<u64> {
        if self.schedule.is_none() || !self.plan.stays_awake() {
            return (until > now).then_some(until);
        }
        sleeps_between((self.in_flight > 0).then_some(self.due_sent_ns), now, until)
    }

    /// The next moment at which something is to be done, ready or not.
    fn next_moment(&self) -> u64 {
        let edge = match self.stage {
            Stage::Opening | Stage::Ready => self.go_ns,
            Stage::Ramp => self.opens_ns,
            Stage::Window | Stage::Over => self.closes_ns,
        };
        let mut moment = self.scan_ns.min(edge);
        if self.next_lane < self.lanes.len() {
            moment = moment.min(self.open_ns);
        }
        if self.stage == Stage::Opening {
            moment = moment.min(self.knock_ns);
        }
        if let Some(std::cmp::Reverse((at, _))) = self.reopen.peek() {
            moment = moment.min(*at);
        }
        if let Some(schedule) = &self.schedule
            && !self.free.is_empty()
            && self.left > 0
        {
            moment = moment.min(schedule.next_ns());
        }
        moment
    }

    /// Does what time demands: edges of the window, overdue requests, lanes to open again.
    #[cold]
    fn keep_time(&mut self, now: u64) {
        if self.shared.is_stopped() {
            self.over(now);
            return;
        }
        if self.stage <= Stage::Ready
            && let Some((go, opens, closes)) = self.shared.times()
        {
            (self.go_ns, self.opens_ns, self.closes_ns) = (go, opens, closes);
        }
        if self.stage <= Stage::Ready && now >= self.go_ns {
            self.stage = Stage::Ramp;
            self.established = self.connected;
            let (pace, threads) = (self.plan.pace, self.plan.threads);
            self.schedule = Schedule::new(pace, self.number, threads, self.go_ns);
            if self.opens_ns <= self.go_ns {
                self.open_window(now);
            }
            for lane in 0..self.lanes.len() {
                self.employ(lane, now);
            }
        }
        if self.stage == Stage::Window && now >= self.closes_ns {
            // Between windows nobody looks: a request that takes longer than the timeout fails in
            // a window, however short windows are.
            self.find_overdue(now);
            if !self.shared.is_held() {
                return self.over(now);
            }
            self.close_window(now);
        }
        // After the closing: what was asked for meanwhile would go unheard until the next wake-up.
        if self.stage == Stage::Ramp && self.shared.is_held() {
            self.hold(now);
        }
        if self.stage == Stage::Ramp && now >= self.opens_ns {
            self.open_window(now);
        }
        while let Some(std::cmp::Reverse((at, lane))) = self.reopen.peek().copied()
            && at <= now
        {
            self.reopen.pop();
            self.retry(lane as usize, now);
        }
        if self.stage == Stage::Opening && now >= self.knock_ns {
            self.knock_ns = now + QUEUED_NS;
            self.knock_again(now);
        }
        if now >= self.scan_ns {
            self.scan_ns = now + self.scan_every_ns;
            self.find_overdue(now);
        }
    }

    /// All own lanes are settled: the last worker of whom that is true says when it goes on.
    fn settle(&mut self) {
        if self.stage == Stage::Opening && self.unsettled == 0 {
            self.stage = Stage::Ready;
            self.shared.ready(self.reached);
        }
    }

    /// All requests that may be sent are answered or have failed: the end, or that of a pause.
    #[cold]
    fn all_answered(&mut self) {
        if !self.shared.is_held() {
            self.over(clock::now());
        } else if std::mem::take(&mut self.draining) {
            self.shared.idle(self.pause);
        }
    }

    /// Between the windows of a load that is held: tells what it has counted, pauses, and gets
    /// ready for the next.
    fn hold(&mut self, now: u64) {
        let (turn, asked, pause) = self.shared.calls();
        #[cfg(test)]
        if (self.asked, self.pause) != (asked, pause) {
            self.shared.planted_panic(self.number);
        }
        if self.pause != pause {
            (self.pause, self.draining, self.left) = (pause, true, 0);
        }
        if self.asked != asked {
            self.asked = asked;
            if let Some(counted) = self.other.replace(Tally::paused(now)) {
                self.before.add(&counted);
                let mut outcome = self.outcome(counted, now);
                // What was sent between windows is part of the whole load.
                outcome.whole.answers += self.tally.answers;
                outcome.whole.sent += self.tally.sent;
                self.shared.give(outcome);
            }
            (self.carried_ns, self.left_ns, self.cpu_ns) = (0, 0, 0);
            self.established = 0;
        }
        if self.turn != turn {
            self.turn = turn;
            (self.opens_ns, self.closes_ns) = self.shared.edges();
            if self.closed_ns > 0 {
                let since_ns = std::mem::take(&mut self.closed_ns).max(self.shared.paused_ns());
                let pause_ns = now.saturating_sub(since_ns);
                for lane in &mut self.lanes {
                    lane.talk.shift(pause_ns, now);
                    lane.since_ns = (lane.since_ns + pause_ns).min(now);
                    lane.busy_since_ns = lane.busy_since_ns.map(|ns| (ns + pause_ns).min(now));
                }
            }
            // What is overdue before the window opens counts in it.
            self.scan_ns = self.opens_ns.saturating_add(self.scan_every_ns);
            if self.left == 0 {
                (self.left, self.draining) = (u64::MAX, false);
                for lane in 0..self.lanes.len() {
                    self.employ(lane, now);
                }
            }
        }
    }

    /// Closes a window of a load that is held. Responses and failures before the next one opens do
    /// not count.
    fn close_window(&mut self, now: u64) {
        self.stage = Stage::Ramp;
        self.cpu_ns += clock::thread_cpu().saturating_sub(self.cpu_at_open_ns);
        self.left_ns += self.leave(now);
        self.tally.pause(now);
        if let Some(other) = &mut self.other {
            std::mem::swap(&mut self.tally, other);
        }
        self.closed_ns = now;
        (self.opens_ns, self.closes_ns, self.scan_ns) = (u64::MAX, u64::MAX, u64::MAX);
    }

    fn open_window(&mut self, now: u64) {
        self.stage = Stage::Window;
        if !self.is_closing() {
            self.established = self.established.max(self.connected);
        }
        if let Some(other) = &mut self.other {
            std::mem::swap(&mut self.tally, other);
            self.tally.resume(now);
            self.carried_ns += self.enter(now);
            self.cpu_at_open_ns = clock::thread_cpu();
            return;
        }
        self.before.add(&self.tally);
        let before = std::mem::replace(&mut self.tally, Tally::new(now));
        if !self.is_closing() {
            // Connections that are kept were opened before; that is all there is to know of it.
            (self.tally.connect, self.tally.handshake) = (before.connect, before.handshake);
        }
        self.carried_ns = self.enter(now);
        self.cpu_at_open_ns = clock::thread_cpu();
    }

    fn over(&mut self, now: u64) {
        if self.stage < Stage::Window {
            // Ended before anything counted.
            self.open_window(now);
        }
        self.stage = Stage::Over;
        self.closes_ns = now;
    }

    #[inline]
    fn publish(&self) {
        let board = &self.shared.boards[self.number];
        let (mut answers, mut failed) = (self.before.answers, self.before.failed);
        for tally in std::iter::once(&self.tally).chain(&self.other) {
            answers += tally.answers;
            failed += tally.failed;
        }
        board.answers.store(answers, Ordering::Relaxed);
        board.failures.store(failed, Ordering::Relaxed);
        board.connected.store(self.connected, Ordering::Relaxed);
    }

    fn finish(mut self) -> Outcome {
        self.publish();
        let now = self.closes_ns;
        self.cpu_ns += clock::thread_cpu().saturating_sub(self.cpu_at_open_ns);
        self.left_ns += self.leave(now);
        let counted = std::mem::replace(&mut self.tally, Tally::new(now));
        self.before.add(&counted);
        self.outcome(counted, now)
    }

    /// What was counted, which is among what was before already, and how things stand at `now`.
    fn outcome(&mut self, counted: Tally, now: u64) -> Outcome {
        let silent = self.timeout_ns / 2;
        let oldest = self.lanes.iter().filter_map(|lane| lane.talk.oldest().map(|f| (lane, f)));
        let unanswered = oldest
            .filter(|(lane, flight)| {
                lane.talk.phase() != Phase::Body && now.saturating_sub(flight.sent_ns) > silent
            })
            .count() as u64;
        let sent = counted.sent;
        let (due, queued) = self.count_due(now, sent);
        let mut outcome = counted.into_outcome(now, io::NAME);
        outcome.in_flight = self.in_flight;
        outcome.edges = Edges { opens_ns: self.carried_ns, closes_ns: self.left_ns };
        outcome.unanswered = unanswered;
        outcome.due = due;
        outcome.queued = queued;
        outcome.oldest_ns = self.oldest_ns;
        outcome.whole = Whole { answers: self.before.answers, sent: self.before.sent };
        outcome.connections.asked = self.lanes.len() as u64;
        outcome.connections.established = self.established;
        outcome.connections.opened = self.opened;
        let cpu = self.plan.cpus.get(self.number % self.plan.cpus.len().max(1)).copied();
        outcome.threads[0].cpu_ns = self.cpu_ns;
        outcome.threads[0].cpu = cpu;
        outcome
    }

    fn is_closing(&self) -> bool {
        self.plan.reuse == Reuse::Close
    }

    fn is_paced(&self) -> bool {
        !matches!(self.plan.pace, Pace::Closed)
    }

    fn is_open(lane: &Lane) -> bool {
        lane.state == State::Open
    }
}

/// How long a worker may sleep that is awake for [`AWAKE_NS`] after what it `sent` and what has no
/// answer yet, and before what is to be done at `until`.
#[inline]
fn sleeps_between(sent: Option<u64>, now: u64, until: u64) -> Option<u64> {
    let listens = sent.is_some_and(|sent| now < sent + AWAKE_NS);
    (!listens && until > now + AWAKE_NS).then(|| until - AWAKE_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_awake_sleeps_neither_before_what_is_due_nor_after_what_was_sent() {
        const NOW: u64 = 5_000_000;
        let due = NOW + 3 * AWAKE_NS;
        assert_eq!(sleeps_between(None, NOW, due), Some(due - AWAKE_NS));
        assert_eq!(sleeps_between(Some(NOW - 2 * AWAKE_NS), NOW, due), Some(due - AWAKE_NS));
        assert_eq!(sleeps_between(Some(NOW - AWAKE_NS / 2), NOW, due), None);
        assert_eq!(sleeps_between(None, NOW, NOW + AWAKE_NS), None);
        assert_eq!(sleeps_between(None, NOW, NOW - 1), None);
    }

    /// What a thread writes at each wake-up shares no cache line with what another reads or
    /// writes: boards stand beside each other in one allocation, and are all that two threads
    /// share and write while a load runs. A worker itself is moved onto the stack of its thread,
    /// which also makes its lanes, its counts and its round of events.
    #[test]
    fn no_two_boards_share_a_line_or_a_pair_of_lines() {
        const PAIR: usize = 128;
        assert_eq!(align_of::<Board>(), PAIR);
        assert_eq!(size_of::<Board>() % PAIR, 0);
        let boards: Vec<Board> = (0..4).map(|_| Board::default()).collect();
        let lines = boards.iter().map(|b| std::ptr::from_ref(b).addr() / PAIR);
        let apart: std::collections::BTreeSet<usize> = lines.collect();
        assert_eq!(apart.len(), boards.len());
    }
}
