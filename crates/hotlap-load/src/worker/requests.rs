//! The requests of a worker: which request is next, when it is due, how requests are sent, and how
//! responses are received.

use super::slot::{Slot, State, Unread};
use super::{Stage, Worker};
use crate::clock;
use crate::connection::{
    Broken, Completed, Connection, EVIDENCE, FailedStream, Http2, InFlight, Step, Why,
};
use crate::io::{Ready, Received};
use crate::outcome::{Failure, Phase};
use crate::plan::{Plan, Stop};
use crate::requests::{RequestMix, Turn};
use crate::schedule::Schedule;

/// The requests of one worker.
pub(super) struct Requests {
    pub(super) mix: RequestMix,
    /// The due times of an open loop, once the load has started.
    schedule: Option<Schedule>,
    pub(super) is_open_loop: bool,
    /// Whether the plan limits the number of requests.
    is_limited: bool,
    /// The number of requests that may still be sent.
    pub(super) left: u64,
    /// The number of requests in flight, over all slots.
    pub(super) in_flight: u64,
}

impl Requests {
    /// Creates the requests of a worker that may send `limit` requests.
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

    /// Starts the load, with this schedule in an open loop.
    pub(super) fn start(&mut self, schedule: Option<Schedule>) {
        self.schedule = schedule;
    }

    /// Returns whether no request is in flight, and none may be sent.
    #[inline]
    pub(super) fn are_done(&self) -> bool {
        self.left == 0 && self.in_flight == 0
    }

    /// Returns when the next request of the schedule is due, if a request may be sent.
    #[inline]
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.schedule.as_ref().filter(|_| self.left > 0).map(Schedule::next_ns)
    }

    /// Returns whether a request of the schedule is due by `now`.
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.schedule.as_ref().is_some_and(|schedule| schedule.next_ns() <= now)
    }

    /// Takes the request to send now. Returns when it was due, which is now in a closed loop.
    /// Returns `None` if no request is due.
    #[inline]
    pub(super) fn take_due(&mut self, now: u64) -> Option<u64> {
        match &mut self.schedule {
            None => Some(now),
            Some(schedule) => (schedule.next_ns() <= now).then(|| schedule.take()),
        }
    }

    /// Records a request that is being sent.
    #[inline(always)]
    pub(super) fn send(&mut self, due_ns: u64, sent_ns: u64) -> InFlight {
        self.left -= 1;
        self.in_flight += 1;
        InFlight { turn: self.mix.next(), due_ns, sent_ns }
    }

    /// Records that this many requests in flight have failed. If a connection fails without a
    /// request in flight, the failure takes the place of a request, so that a limited load ends.
    pub(super) fn failed(&mut self, in_flight: u64, is_started: bool) {
        self.in_flight -= in_flight;
        if in_flight == 0 && is_started {
            self.left = self.left.saturating_sub(1);
        }
    }

    /// Returns the requests that were due before `end_ns` but not sent, each with its due time and
    /// its index. They are sent in the order in which they became due, on whichever connection is
    /// free.
    pub(super) fn queued(&self, end_ns: u64) -> impl Iterator<Item = (u64, usize)> {
        let limit = usize::try_from(self.left).unwrap_or(usize::MAX);
        let due = self.schedule.iter().flat_map(move |s| s.due_before(end_ns)).take(limit);
        due.zip(self.mix.upcoming())
    }

    /// Returns the number of requests that became due in a window. If the plan limits the number
    /// of requests, the result is at most `sent`, the number of requests sent in the window.
    pub(super) fn due_between(&self, opens_ns: u64, closes_ns: u64, sent: u64) -> u64 {
        let Some(mut schedule) = self.schedule.as_ref().map(Schedule::restarted) else { return 0 };
        schedule.take_until(opens_ns.min(closes_ns));
        let due = schedule.take_until(closes_ns);
        if self.is_limited { due.min(sent) } else { due }
    }
}

/// A worker that sends a request with a longer delay has stalled. The requests behind the delayed
/// request are then late because of the stall too. The delays that other requests cause are
/// shorter.
const STALL_NS: u64 = 2_000_000;

impl Worker {
    /// Sends what may be sent on a slot that is open, or opens the slot if a request needs it.
    /// Inlined into the response path, because a call would add a tenth to the cost of a request.
    #[inline(always)]
    pub(super) fn refill(&mut self, number: usize, now: u64) {
        if self.is_multiplexed {
            return self.refill_streams(number, now);
        }
        let has_room = |conn: &Connection, limit| conn.in_flight() < limit;
        let begun = self.begin_due(number, now, has_room);
        match (begun, self.slots[number].state) {
            (0, _) => {}
            (_, State::Down) => self.connect(number, now),
            (count, _) => self.send(number, count, now),
        }
    }

    /// Begins the requests that are due, as many as there is room for on a slot. Returns their
    /// number.
    #[inline(always)]
    pub(super) fn begin_due(
        &mut self,
        number: usize,
        now: u64,
        has_room: impl Fn(&Connection, usize) -> bool,
    ) -> usize {
        let mut begun = 0;
        while has_room(&self.slots[number].conn, self.plan.shape.pipeline) && self.requests.left > 0
        {
            let Some(due_ns) = self.requests.take_due(now) else {
                self.slots.list(number);
                self.behind_ns = 0;
                break;
            };
            if self.behind_ns > 0 {
                self.begin_behind(now.saturating_sub(due_ns));
            }
            self.begin(number, due_ns, now);
            begun += 1;
        }
        begun
    }

    /// Sends the requests that are due, on the slots that have been free for longest.
    pub(super) fn send_due(&mut self) {
        let now = clock::now();
        while self.requests.left > 0
            && self.requests.is_due(now)
            && let Some(number) = self.slots.take_listed()
        {
            if !self.slots[number].can_send(&self.plan) {
                continue;
            }
            let Some(due_ns) = self.requests.take_due(now) else { return };
            let sent_ns = clock::now();
            // The slot was free when the request was due, so the generator caused the delay.
            self.measurement.tally.lag.record(sent_ns - due_ns);
            self.stalled_for(sent_ns - due_ns);
            self.begin(number, due_ns, sent_ns);
            if self.slots[number].state == State::Down {
                self.connect(number, sent_ns);
                continue;
            }
            self.send_last(number, 1, sent_ns);
            let slot = &self.slots[number];
            if slot.state == State::Open && slot.can_send(&self.plan) {
                self.slots.list(number);
            }
        }
    }

    /// Notices a stall of the worker: the worker woke up late, and a request is due.
    #[inline]
    pub(super) fn notice_stall(&mut self, due_ns: u64, now: u64) {
        if self.requests.is_due(now) {
            self.stalled_for(now.saturating_sub(due_ns));
        }
    }

    /// Remembers a delay of the worker if it is a stall.
    #[inline]
    fn stalled_for(&mut self, late_ns: u64) {
        if late_ns > STALL_NS {
            self.behind_ns = self.behind_ns.max(late_ns);
        }
    }

    /// Records the delay of a request that waited behind a stall. If the server keeps up, no
    /// request waits longer than the stall, or twice as long in a burst. The server causes longer
    /// delays.
    #[cold]
    fn begin_behind(&mut self, late_ns: u64) {
        match late_ns > 2 * self.behind_ns {
            true => self.behind_ns = 0,
            false => self.measurement.tally.lag.record(late_ns),
        }
    }

    /// Adds the next request to the requests in flight on a slot.
    #[inline(always)]
    fn begin(&mut self, number: usize, due_ns: u64, sent_ns: u64) {
        let request = self.requests.send(due_ns, sent_ns);
        self.slots[number].conn.send(request);
    }

    /// Sends the last `count` requests in either protocol.
    pub(super) fn send_last(&mut self, number: usize, count: usize, now: u64) {
        match self.is_multiplexed {
            false => self.send(number, count, now),
            true => self.send_on_streams(number, now),
        }
    }

    /// Sends the bytes of the last `count` requests in HTTP/1.1.
    #[inline(always)]
    fn send(&mut self, number: usize, count: usize, now: u64) {
        let (slot, mix) = (&mut self.slots[number], &mut self.requests.mix);
        self.measurement.tally.sent += count as u64;
        let sent = if count == 1 {
            let request = slot.conn.newest();
            slot.send(mix.bytes(request))
        } else {
            self.scratch.clear();
            for request in slot.conn.last(count) {
                self.scratch.extend_from_slice(mix.bytes(request));
            }
            slot.send(&self.scratch)
        };
        if sent.is_err() {
            self.unsent(count as u64);
        }
        self.sent(number, sent, now);
    }

    /// Counts the bytes sent, or the failure to send.
    #[inline(always)]
    fn sent(&mut self, number: usize, sent: Result<u64, Failure>, now: u64) {
        match sent {
            Ok(bytes) => self.measurement.tally.bytes.sent += bytes,
            Err(failure) => self.fail_in(number, failure, Phase::Send, now, "sending failed"),
        }
    }
}

/// The maximum time for which a worker reads one connection at a stretch, approximately. Then the
/// worker looks at its clock, its commands and its other connections. Without the limit, a server
/// that sends faster than its bytes are parsed would occupy the worker forever. One read of a
/// quarter of a megabyte takes about as long.
const TURN_NS: u64 = 1_000_000;

impl Worker {
    /// Handles a socket that is ready, reading into `buffer`. Returns the time.
    #[inline(always)]
    pub(super) fn handle(&mut self, event: Ready, now: u64, buffer: &mut [u8]) -> u64 {
        let (number, generation) = Slot::of_key(event.key);
        let slot = &mut self.slots[number];
        if slot.key(number) >> 24 != generation as usize {
            return now;
        }
        if slot.state == State::Connecting {
            if !event.writable && !event.ended {
                return now;
            }
            self.finish_connect(number);
        } else if event.writable && slot.has_unsent() {
            let sent = slot.flush();
            let failed = sent.is_err();
            self.sent(number, sent, now);
            if failed {
                return now;
            }
        }
        if event.readable || event.ended {
            return self.receive(number, event.ended, now, buffer);
        }
        now
    }

    /// Continues to read the sockets that had more bytes when their turn ended. Returns the time.
    #[cold]
    pub(super) fn read_on(&mut self, mut now: u64, buffer: &mut [u8]) -> u64 {
        for Unread { key, ended } in std::mem::take(&mut self.unread) {
            now = self.handle(Ready { key, readable: true, writable: false, ended }, now, buffer);
        }
        now
    }

    /// Reads the available bytes, for one turn at most, and processes them. Returns the time.
    #[inline(always)]
    fn receive(&mut self, number: usize, ended: bool, before: u64, buffer: &mut [u8]) -> u64 {
        let mut now = before;
        let generation = self.slots[number].generation;
        while self.slots[number].generation == generation {
            let slot = &self.slots[number];
            let skippable =
                if self.requests.mix.skips_bodies() { slot.conn.skippable() } else { 0 };
            let size = (skippable as usize).min(buffer.len());
            let Some(socket) = slot.socket() else { return now };
            let skips = skippable > 0 && slot.is_plain();
            let received =
                if skips { socket.discard(&mut buffer[..size]) } else { socket.receive(buffer) };
            now = clock::now();
            match received {
                Received::Bytes(count) => {
                    if skips {
                        self.measurement.tally.bytes.received += count as u64;
                        self.slots[number].conn.skip(count as u64);
                        self.process(number, &[], now);
                    } else {
                        self.decode(number, &buffer[..count], now);
                    }
                    // Bytes that arrive after a short read cause another event. Surplus bytes that
                    // came with a skipped body cause no event, and the worker does not read again
                    // just for them. They break the next response, if there is one.
                    let is_short = if skips {
                        count < size || (count as u64 == skippable && self.plan.shape.pipeline == 1)
                    } else {
                        count < buffer.len()
                    };
                    if is_short && !ended {
                        break;
                    }
                    if now - before > TURN_NS {
                        self.set_aside(number, generation, ended);
                        break;
                    }
                }
                Received::WouldBlock => break,
                Received::End => self.peer_closed(number, now),
                Received::Failed(failure) => self.fail(number, failure, now, "receiving failed"),
            }
        }
        now
    }

    /// Remembers a socket to continue reading later, unless it was closed. Bytes that have already
    /// arrived cause no further event. A socket is remembered only once, although other bytes may
    /// cause an event before the socket is read again. Otherwise each event would add a turn.
    #[cold]
    pub(super) fn set_aside(&mut self, number: usize, generation: u32, ended: bool) {
        let slot = &self.slots[number];
        if slot.generation != generation {
            return;
        }
        let key = slot.key(number);
        match self.unread.iter_mut().find(|unread| unread.key == key) {
            Some(unread) => unread.ended |= ended,
            None => self.unread.push(Unread { key, ended }),
        }
    }

    /// Processes bytes from the wire.
    #[inline(always)]
    fn decode(&mut self, number: usize, wire: &[u8], now: u64) {
        if self.slots[number].is_plain() {
            self.measurement.tally.bytes.received += wire.len() as u64;
            self.process(number, wire, now);
        } else {
            self.decrypt(number, wire, now);
        }
    }

    /// Decrypts bytes from the wire and processes them.
    #[inline(never)]
    fn decrypt(&mut self, number: usize, wire: &[u8], now: u64) {
        let mut plain = std::mem::take(&mut self.scratch);
        plain.clear();
        let slot = &mut self.slots[number];
        let Some(tls) = slot.tls() else { return };
        let result = tls.receive(wire, &mut plain);
        self.measurement.tally.bytes.received += plain.len() as u64;
        let is_handshaking = tls.is_handshaking();
        // This sends an alert or the rest of the handshake. If sending fails, so does the next
        // read.
        let _ = slot.flush();
        if let Err(why) = result {
            self.fail(number, Failure::Tls, now, &why);
        } else {
            if slot.state == State::Handshaking && !is_handshaking {
                self.handshake_done(number, now);
            }
            let slot = &self.slots[number];
            let generation = slot.generation;
            if !plain.is_empty() && slot.state == State::Open {
                self.process(number, &plain, now);
            }
            // RFC 8446 section 6.1: after close_notify, the server sends no more data, even if it
            // leaves the TCP connection open.
            let slot = &mut self.slots[number];
            if slot.generation == generation && slot.tls().is_some_and(|t| t.peer_has_closed()) {
                self.peer_closed(number, now);
            }
        }
        self.scratch = plain;
    }

    /// Handles the end of a TLS handshake.
    #[cold]
    fn handshake_done(&mut self, number: usize, now: u64) {
        let slot = &mut self.slots[number];
        let since_ns = slot.since_ns;
        let Some(tls) = slot.tls() else { return };
        if self.is_multiplexed && !tls.speaks_http2() {
            let why = "the server does not offer HTTP/2 (ALPN h2)";
            return self.fail(number, Failure::Tls, now, why);
        }
        if self.negotiated.is_none() {
            self.negotiated = tls.negotiated();
        }
        self.measurement.tally.resumed += u64::from(tls.has_resumed());
        self.measurement.tally.handshake_time.record(now - since_ns);
        self.opened(number, now);
    }

    /// Processes bytes of responses.
    #[inline(always)]
    fn process(&mut self, number: usize, bytes: &[u8], now: u64) {
        let slot = &mut self.slots[number];
        let Some(response) = slot.conn.recognise(bytes, &mut self.requests.mix) else {
            return self.parse(number, bytes, now);
        };
        slot.failed = 0;
        self.requests.in_flight -= 1;
        let (length, is_open_loop) = (bytes.len() as u64, self.requests.is_open_loop);
        let tally = &mut self.measurement.tally;
        tally.correct(response.request, response.status, length, now, is_open_loop);
        if response.keep_alive && !self.closes_connections() {
            self.refill(number, now);
        } else {
            self.close(number, now);
        }
    }

    /// Processes bytes of responses with the state machine of the protocol.
    #[inline(never)]
    fn parse(&mut self, number: usize, bytes: &[u8], now: u64) {
        if let Some(http2) = self.slots[number].conn.http2_mut() {
            http2.received_ns = now;
        }
        let mut rest = bytes;
        loop {
            let conn = &mut self.slots[number].conn;
            match conn.take(&mut rest, &mut self.requests.mix) {
                Step::NeedMore => break,
                Step::Completed(response) => {
                    if !rest.is_empty() && conn.in_flight() == 0 && !self.is_multiplexed {
                        // The rest belongs to no request, so the response cannot be trusted.
                        conn.send(response.request);
                        let broken = Broken {
                            failure: Failure::BadFraming,
                            phase: Phase::Body,
                            why: "more bytes than the response announced",
                            turn: Some(response.request.turn),
                            first_bytes: bytes[..bytes.len().min(EVIDENCE)].to_vec(),
                        };
                        return self.broken(number, broken, now);
                    }
                    if self.completed(number, response, now) {
                        return;
                    }
                }
                Step::Failed(failed) => {
                    self.stream_failed(&failed, now);
                    if self.closes_connections() {
                        // The other bytes that have arrived belong to no request.
                        return self.close(number, now);
                    }
                }
                Step::Refused => self.unsent(1),
                Step::Broken(broken) => return self.broken(number, broken, now),
            }
        }
        if self.slots[number].conn.http2().is_some_and(Http2::is_drained) {
            return self.move_on(number, now);
        }
        self.activate(number, now);
        self.write_frames(number, now);
    }

    /// Gives up a connection that is broken, and keeps the evidence.
    #[cold]
    fn broken(&mut self, number: usize, broken: Broken, now: u64) {
        let Broken { failure, phase, why, turn, first_bytes } = broken;
        // HTTP/2: this sends a GOAWAY with the reason. If sending fails, the connection is gone
        // anyway.
        let _ = self.slots[number].send_frames();
        let is_kept = self.measurement.tally.evidence(|| why.to_owned(), first_bytes);
        if let Some(turn) = turn.filter(|_| is_kept) {
            self.add_request_to_evidence(turn);
        }
        self.fail_in(number, failure, phase, now, why);
    }

    /// Handles a complete response. Returns whether the connection ends with it.
    fn completed(&mut self, number: usize, response: Completed, now: u64) -> bool {
        let keep_alive = response.keep_alive;
        self.count(number, response, now);
        if keep_alive && !self.closes_connections() {
            return false;
        }
        if self.slots[number].conn.in_flight() > 0 {
            // The server announced the close, so later requests get no response.
            let (failure, phase) = (Failure::ClosedEarly, Phase::FirstByte);
            self.fail_in(number, failure, phase, now, "the server closed the connection");
        } else {
            self.close(number, now);
        }
        true
    }

    /// Counts a complete response.
    fn count(&mut self, number: usize, response: Completed, now: u64) {
        self.slots[number].failed = 0;
        self.requests.in_flight -= 1;
        let turn = response.request.turn;
        if self.measurement.tally.completed(response, now, self.requests.is_open_loop) {
            self.add_request_to_evidence(turn);
        }
    }

    /// Adds the request that got a wrong response to the evidence.
    #[cold]
    pub(super) fn add_request_to_evidence(&mut self, turn: Turn) {
        let request = self.requests.mix.bytes(turn);
        self.measurement.tally.evidence_of(request);
    }

    /// Handles a server that has closed its side of a connection.
    #[cold]
    fn peer_closed(&mut self, number: usize, now: u64) {
        let slot = &mut self.slots[number];
        match slot.state {
            State::Open => {}
            State::Handshaking => {
                return self.fail(number, Failure::Tls, now, "closed during the TLS handshake");
            }
            _ => return self.fail(number, Failure::Reset, now, "closed while connecting"),
        }
        if slot.is_truncated() {
            let why = "no TLS close_notify at the end: the response may be truncated";
            return self.fail_in(number, Failure::Truncated, Phase::Body, now, why);
        }
        match slot.conn.close(&mut self.requests.mix) {
            Ok(Some(response)) => {
                // Later requests get no response.
                self.completed(number, Completed { keep_alive: false, ..response }, now);
            }
            Ok(None) => self.close(number, now),
            Err((failure, phase)) => {
                self.fail_in(number, failure, phase, now, "the server closed the connection");
            }
        }
    }
}

impl Worker {
    /// Does the same as [`refill`](Self::refill) in HTTP/2.
    #[inline(never)]
    pub(super) fn refill_streams(&mut self, number: usize, now: u64) {
        let begun = self.begin_due(number, now, Connection::has_room);
        match (begun, self.slots[number].state) {
            (1.., State::Down) => self.connect(number, now),
            _ => self.send_on_streams(number, now),
        }
    }

    /// Opens streams for the requests in flight that have none.
    pub(super) fn send_on_streams(&mut self, number: usize, now: u64) {
        let conn = &mut self.slots[number].conn;
        let opened = conn.open_streams(&mut self.requests.mix);
        let streams = conn.http2().map_or(0, Http2::sent);
        let tally = &mut self.measurement.tally;
        tally.sent += opened as u64;
        tally.streams = tally.streams.max(streams as u64);
        if !self.write_frames(number, now) {
            self.unsent(opened as u64);
        }
    }

    /// Sends the frames that are ready on a slot. Returns whether sending succeeded.
    pub(super) fn write_frames(&mut self, number: usize, now: u64) -> bool {
        let slot = &mut self.slots[number];
        if slot.state != State::Open || !slot.conn.http2().is_some_and(Http2::has_out) {
            return true;
        }
        let sent = slot.send_frames();
        let is_sent = sent.is_ok();
        self.sent(number, sent, now);
        is_sent
    }

    /// Subtracts `count` from the number of requests sent. No byte of these requests was sent, or
    /// the server did not process them. Requests that are sent again are counted again.
    #[cold]
    fn unsent(&mut self, count: u64) {
        let tally = &mut self.measurement.tally;
        tally.sent = tally.sent.saturating_sub(count);
    }

    /// Counts a connection if the server is ending it with an error.
    #[cold]
    pub(super) fn ended(&mut self, number: usize) {
        let http2 = self.slots[number].conn.http2();
        if let Some(reason) = http2.and_then(Http2::ended_because) {
            let why = || format!("the server ended the connection (GOAWAY {reason})");
            self.measurement.tally.evidence(why, Vec::new());
            self.measurement.tally.connection_ended(reason);
        }
    }

    /// Counts a request that failed while its connection continues.
    #[cold]
    fn stream_failed(&mut self, failed: &FailedStream, now: u64) {
        let FailedStream { request, failure, phase, why } = failed;
        let why = match why {
            Why::Malformed(why) => (*why).to_owned(),
            Why::Reset(code) => {
                self.measurement.tally.stream_reset(code.0);
                format!("the server reset the stream: {code}")
            }
        };
        if self.measurement.tally.evidence(|| why, Vec::new()) {
            self.add_request_to_evidence(request.turn);
        }
        self.request_failed(request, *failure, *phase, now);
    }

    /// Counts a failure of a request, but not of its connection.
    fn request_failed(&mut self, request: &InFlight, failure: Failure, phase: Phase, now: u64) {
        let tally = &mut self.measurement.tally;
        tally.unfinished(request, now, self.requests.is_open_loop);
        tally.failed_request(request);
        tally.failure(failure, phase, 1, now);
        self.requests.failed(1, self.stage >= Stage::Unmeasured);
    }

    /// Replaces a connection on which no more requests can be sent. The requests that the server
    /// did not process are sent again on the next connection, unless this connection has had no
    /// response.
    #[cold]
    fn move_on(&mut self, number: usize, now: u64) {
        let slot = &mut self.slots[number];
        // Only requests with a stream were counted as sent. The other requests had no stream yet.
        let sent = slot.conn.http2().map_or(0, Http2::sent);
        let retries = slot.conn.take_retries();
        if slot.conn.in_flight() > 0 {
            let why = "the server ended the connection (GOAWAY) and processed no request";
            return self.fail_in(number, Failure::ClosedEarly, Phase::FirstByte, now, why);
        }
        self.ended(number);
        if retries.is_empty() {
            return self.close(number, now);
        }
        self.slots[number].end_tls();
        self.slots.close(number);
        self.measurement.tally.reopened += 1;
        self.unsent(sent as u64);
        for request in retries {
            self.slots[number].conn.send(request);
        }
        self.connect(number, now);
    }

    /// Handles a timeout of a request, or of an attempt to connect, that began at `sent_ns`. In
    /// HTTP/1.1, or if the server has sent nothing since then, the connection is given up.
    /// Otherwise only the timed-out requests are given up.
    #[cold]
    pub(super) fn time_out(&mut self, number: usize, sent_ns: u64, now: u64) {
        let slot = &self.slots[number];
        let is_alive = slot.state == State::Open
            && slot.conn.http2().is_some_and(|http2| http2.received_ns > sent_ns);
        if !is_alive {
            return self.fail(number, Failure::Timeout, now, "timed out");
        }
        let limit_ns = self.timeout_ns;
        let has_timed_out = |request: &InFlight| now.saturating_sub(request.sent_ns) >= limit_ns;
        while self.slots[number].conn.oldest().is_some_and(has_timed_out) {
            let Some((request, phase)) = self.slots[number].conn.cancel_oldest() else { break };
            self.request_failed(&request, Failure::Timeout, phase, now);
        }
        if self.closes_connections() {
            return self.close(number, now);
        }
        // After a GOAWAY, these requests may have been the last that the server accepted.
        if self.slots[number].conn.http2().is_some_and(Http2::is_drained) {
            return self.move_on(number, now);
        }
        self.activate(number, now);
        self.write_frames(number, now);
    }
}
