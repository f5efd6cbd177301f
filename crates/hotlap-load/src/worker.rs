//! A worker: one thread with its own connections and counts.
//!
//! It loops: wait for events, read the clock, handle ready sockets, send due requests. Nothing that
//! it writes per request is shared; other threads see what it publishes at each wake-up. While a
//! window is open it does not sleep if it has a core of its own (`poll`).
//!
//! The clock is read once per wake-up and once after each read, which is when one request ends and
//! the next begins; its bytes leave a fraction of a microsecond later. With one reading per
//! wake-up, the hundredth response of a wake-up would be recorded 0.6 ms early, and the service
//! time of the next request would be too long by as much. The second reading costs about 50 of
//! 14,000 instructions.

mod connect;
mod fail;
mod frames;
mod measurement;
mod poll;
mod receive;
mod requests;
mod send;
mod slot;
mod slots;
mod stages;

use std::net::IpAddr;
use std::sync::Arc;

use crate::clock;
use crate::http2::Limits;
use crate::io::{self, Events, Io};
use crate::outcome::{Negotiated, Outcome};
use crate::plan::{Plan, Protocol, Reuse, Stop};
use crate::shared::{Commands, Shared};
use crate::tls::TlsConfig;
use crate::window::Times;

use measurement::{Measurement, Snapshot};
use poll::Polling;
use requests::Requests;
use slot::Unread;
use slots::Slots;

/// Size of the buffer that all connections of a worker read into; longer responses are handled in
/// pieces.
const BUFFER: usize = 256 * 1024;

/// A worker.
pub(crate) struct Worker {
    number: usize,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    tls: Option<TlsConfig>,
    /// Whether the protocol is HTTP/2.
    is_multiplexed: bool,
    io: Io,
    stage: Stage,
    /// When the load starts, and when its window opens and closes.
    times: Times,
    slots: Slots,
    requests: Requests,
    measurement: Measurement,
    /// What TLS negotiated on the first connection.
    negotiated: Option<Negotiated>,
    /// Decrypted bytes, or the bytes of several requests.
    scratch: Vec<u8>,
    /// Sockets that have more to read.
    unread: Vec<Unread>,
    /// Whether requests wait because the worker itself was late, and not because of the server.
    /// True from a stall until no request is overdue.
    is_behind: bool,
    timeout_ns: u64,
    /// When to check for timed-out requests, and how often.
    scan_ns: u64,
    scan_every_ns: u64,
    /// The commands of a held load that have been carried out.
    done: Commands,
    /// When the last window of a held load closed; 0 while one is open, and before the first.
    closed_ns: u64,
    /// Whether requests are in flight that were sent before a pause.
    is_draining: bool,
}

/// The stages of a worker's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Connections are being opened; nothing is sent.
    Connecting,
    /// All connections are open or have failed once; other workers are not ready yet.
    Ready,
    /// Requests are sent, and nothing counts: before the window, and between those of a held load.
    Unmeasured,
    /// Everything counts.
    Measured,
    /// The load has ended.
    Done,
}

impl Worker {
    /// A worker with its share of the plan's connections and requests. If they cannot be divided
    /// evenly, the first workers take one more each.
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
            let connection = slot * plan.threads + number;
            plan.sources.get(connection % plan.sources.len().max(1)).copied()
        };
        let connections = share(plan.connections as u64, number, plan.threads) as usize;
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
                (plan.target.protocol == Protocol::Http2).then(|| Limits {
                    streams: plan.pipeline as u32,
                    first_streams: 1,
                    table_size: requests.mix.table_size(),
                    ..Limits::default()
                }),
            ),
            requests,
            negotiated: None,
            measurement: Measurement::new(shared.is_held(), plan.by_request()),
            scratch: Vec::new(),
            unread: Vec::new(),
            is_behind: false,
            timeout_ns,
            scan_ns: 0,
            // A timeout is detected at most a 32nd of its length late.
            scan_every_ns: (timeout_ns / 32).clamp(1_000_000, 100_000_000),
            done: Commands::default(),
            closed_ns: 0,
            is_draining: false,
        }
    }

    /// Runs until the window closes or the session is stopped.
    pub(crate) fn run(mut self) -> Outcome {
        let (mut events, mut buffer) = (Events::new(), vec![0; BUFFER]);
        let mut polling = self.plan.may_busy_poll().then(|| Polling::new(&self.plan));
        let mut now = clock::now();
        self.scan_ns = now + self.scan_every_ns;
        while self.stage != Stage::Done {
            if self.slots.has_new(now) {
                self.open_new(now);
            }
            let next_ns = self.next_ns();
            now = match &mut polling {
                Some(polling) if self.is_under_way() => self.poll(polling, next_ns, &mut events),
                _ => self.sleep(next_ns, now, &mut events),
            };
            if now >= next_ns || self.stage <= Stage::Ready || self.has_commands() {
                self.keep_time(now);
            }
            if self.stage == Stage::Done {
                break;
            }
            for event in events.iter() {
                // A due request waits for one response to be read, not for all of them.
                if self.requests.is_due(now) {
                    self.send_due();
                }
                now = self.handle(event, now, &mut buffer);
            }
            if !self.unread.is_empty() {
                now = self.read_on(now, &mut buffer);
            }
            // The last connection may just have opened; tell the other workers at once.
            self.report_ready();
            if self.requests.is_due(now) {
                self.send_due();
            }
            if self.requests.are_done() && self.stage >= Stage::Unmeasured {
                self.requests_done();
            }
            self.publish();
        }
        self.finish()
    }

    /// Whether the session has ended the load or given a command.
    #[inline]
    fn has_commands(&self) -> bool {
        self.shared.is_stopped() || (self.shared.is_held() && self.shared.commands() != self.done)
    }

    /// When the next task is due, regardless of sockets.
    fn next_ns(&self) -> u64 {
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
            && self.slots.has_listed()
        {
            next = next.min(due_ns);
        }
        next
    }

    /// Whether requests are sent, or will be soon: from the command to open a window until the
    /// window closes. The server may be stopped at other times.
    #[inline]
    fn is_under_way(&self) -> bool {
        self.times.start_ns < clock::FAR_NS && self.times.opens_ns < clock::FAR_NS
    }

    /// Polls once it is time to, and stores the events; returns the time. Not inlined, because a
    /// worker that sleeps should not pay for it.
    #[inline(never)]
    fn poll(&mut self, polling: &mut Polling, next_ns: u64, events: &mut Events) -> u64 {
        let began_ns = clock::now();
        let poll_ns = polling.due_ns().min(next_ns);
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
        let completed = tally.responses + tally.failed;
        polling.polled(now, self.requests.in_flight, completed);
        after_ns
    }

    /// Sleeps until something happens or the next task is due, and stores the events; returns the
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

    /// The outcome at the end of the load.
    fn finish(mut self) -> Outcome {
        self.publish();
        let opens_ns = self.times.opens_ns;
        let (measurement, at) = self.measurement_at(self.times.closes_ns);
        let outcome = measurement.finish(at, opens_ns);
        self.complete(outcome)
    }

    /// Adds the worker's own usage to an outcome.
    fn complete(&self, mut outcome: Outcome) -> Outcome {
        outcome.backend = io::BACKEND.to_owned();
        outcome.tls.clone_from(&self.negotiated);
        outcome.threads[0].cpu = self.plan.cpu(self.number);
        outcome
    }

    /// The measurement, and the state that it looks at.
    fn measurement_at(&mut self, now: u64) -> (&mut Measurement, Snapshot<'_>) {
        let (plan, slots, requests) = (&*self.plan, &self.slots, &self.requests);
        (&mut self.measurement, Snapshot { now, plan, slots, requests })
    }

    /// Whether each request has its own connection.
    #[inline]
    fn closes_connections(&self) -> bool {
        self.plan.reuse == Reuse::Close
    }
}
