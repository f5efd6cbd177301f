//! What a worker does with its connections: opens them, serves them, lets them go.

use std::cmp::Reverse;

use super::lane::{Lane, State};
use super::{OPENING, OPENING_NS, QUEUED_NS, Stage, Worker};
use crate::clock;
use crate::connection::{Answer, Flight, Step};
use crate::io::{Connecting, Ready, Received};
use crate::outcome::{Failure, Phase};
use crate::pace::Schedule;
use crate::plan::{Pace, Reuse};

/// The first pause before a connection that was refused is tried again, and the most doublings of
/// it: 1 ms to 128 ms.
const PAUSE_NS: u64 = 1_000_000;
const DOUBLINGS: u32 = 7;

impl Worker {
    /// Opens lanes for the first time, some at once.
    pub(super) fn open_next(&mut self, now: u64) {
        self.open_ns = now + OPENING_NS;
        let end = (self.next_lane + OPENING.saturating_sub(self.opening)).min(self.lanes.len());
        for lane in std::mem::replace(&mut self.next_lane, end)..end {
            self.connect(lane, now);
        }
    }

    /// Starts to connect a lane that is down.
    fn connect(&mut self, number: usize, now: u64) {
        let lane = &mut self.lanes[number];
        let channel = match &self.secure {
            Some(secure) => match secure.open() {
                Some(channel) => Some(channel),
                None => return self.fail(number, Failure::Tls, now, "TLS refuses to start"),
            },
            None => None,
        };
        match self.io.connect(&self.plan.target.endpoint, lane.source, lane.key(number)) {
            Connecting::Begun(socket) => {
                self.opened += 1;
                self.opening += 1;
                // Not the wake-up's time: many are opened in a row.
                lane.connect(socket, channel, clock::now());
            }
            Connecting::Busy => {
                let since_ns = *lane.busy_since_ns.get_or_insert(now);
                if now < since_ns + self.timeout_ns {
                    lane.failed += 1;
                    self.rest(number, now);
                } else {
                    self.fail(number, Failure::Timeout, now, "the server's queue is full");
                }
            }
            Connecting::Failed(failure, error) => {
                self.fail(number, failure, now, &error.to_string());
            }
        }
    }

    /// Puts a lane that is down among those to be opened again, later the more often it failed.
    fn rest(&mut self, number: usize, now: u64) {
        let lane = &mut self.lanes[number];
        lane.state = State::Resting;
        let pause = match lane.failed {
            0 => 0,
            failed => PAUSE_NS << (failed - 1).min(DOUBLINGS),
        };
        self.reopen.push(Reverse((now + pause, number as u32)));
    }

    /// A lane has rested.
    pub(super) fn retry(&mut self, number: usize, now: u64) {
        if self.lanes[number].state != State::Resting {
            return;
        }
        let lane = &mut self.lanes[number];
        lane.state = State::Down;
        if lane.talk.in_flight() > 0 || !lane.is_settled {
            self.connect(number, now);
        } else {
            self.employ(number, now);
        }
    }

    /// Gives a lane what there is to do: opens it if it is down, and sends what is due.
    pub(super) fn employ(&mut self, number: usize, now: u64) {
        if self.stage < Stage::Ramp {
            return;
        }
        match self.lanes[number].state {
            State::Open => {}
            State::Down if self.is_closing() => {}
            State::Down if self.left > 0 => return self.connect(number, now),
            _ => return,
        }
        self.refill(number, now);
    }

    /// Sends what is due on a lane that is open, or is opened for it. In line with the answer that
    /// made room: a call each would cost a tenth of what a request does.
    #[inline(always)]
    fn refill(&mut self, number: usize, now: u64) {
        let mut begun = 0;
        while self.lanes[number].talk.in_flight() < self.plan.pipeline && self.left > 0 {
            let Some(due_ns) = self.next_due(now) else {
                self.list(number);
                break;
            };
            self.begin(number, due_ns, now);
            begun += 1;
        }
        match (begun, self.lanes[number].state) {
            (0, _) => {}
            (_, State::Down) => self.connect(number, now),
            (count, _) => self.send(number, count, now),
        }
    }

    /// When the request that is to be sent now was due; `None` when none is yet.
    #[inline]
    fn next_due(&mut self, now: u64) -> Option<u64> {
        match &mut self.schedule {
            None => Some(now),
            Some(schedule) => (schedule.next_ns() <= now).then(|| schedule.take()),
        }
    }

    /// Puts a lane among the free ones.
    fn list(&mut self, number: usize) {
        let lane = &mut self.lanes[number];
        if !lane.is_listed {
            lane.is_listed = true;
            self.free.push_back(number as u32);
        }
    }

    /// Sends what is due, on free lanes, the one that is free for longest first.
    pub(super) fn send_due(&mut self) {
        let now = clock::now();
        while self.left > 0
            && self.is_due(now)
            && let Some(number) = self.free.pop_front()
        {
            let number = number as usize;
            self.lanes[number].is_listed = false;
            if !self.can_send(number) {
                continue;
            }
            let Some(due_ns) = self.schedule.as_mut().map(Schedule::take) else { return };
            let sent_ns = clock::now();
            // A lane was free when it was due: whatever is between is the generator's own.
            self.tally.lag.record(sent_ns - due_ns);
            self.due_sent_ns = sent_ns;
            self.begin(number, due_ns, sent_ns);
            if self.lanes[number].state == State::Down {
                self.connect(number, sent_ns);
            } else {
                self.send(number, 1, sent_ns);
                let lane = &self.lanes[number];
                if Self::is_open(lane) && lane.talk.in_flight() < self.plan.pipeline {
                    self.list(number);
                }
            }
        }
    }

    /// Whether a request may be sent on a lane now.
    #[inline]
    pub(super) fn can_send(&self, number: usize) -> bool {
        let lane = &self.lanes[number];
        match lane.state {
            State::Open => lane.talk.in_flight() < self.plan.pipeline,
            State::Down => self.is_closing(),
            _ => false,
        }
    }

    /// A request begins.
    #[inline(always)]
    fn begin(&mut self, number: usize, due_ns: u64, sent_ns: u64) {
        let request = self.book.pick();
        self.lanes[number].talk.send(Flight { request, due_ns, sent_ns });
        self.left -= 1;
        self.in_flight += 1;
    }

    /// Sends the bytes of the `count` requests that began last.
    #[inline(always)]
    fn send(&mut self, number: usize, count: usize, now: u64) {
        let lane = &mut self.lanes[number];
        self.tally.sent += count as u64;
        let sent = if count == 1 {
            let request = lane.talk.newest();
            lane.send(&self.book.entry(request).bytes)
        } else {
            self.plain.clear();
            for request in lane.talk.last(count) {
                self.plain.extend_from_slice(&self.book.entry(request).bytes);
            }
            lane.send(&self.plain)
        };
        match sent {
            Ok(bytes) => self.tally.bytes.sent += bytes,
            Err(failure) => self.fail_in(number, failure, Phase::Send, now, "sending failed"),
        }
    }

    /// Serves a socket that is ready, reading into `buffer`; returns the time.
    #[inline(always)]
    pub(super) fn serve(&mut self, event: Ready, now: u64, buffer: &mut [u8]) -> u64 {
        let (number, generation) = Lane::of_key(event.key);
        let lane = &mut self.lanes[number];
        if lane.key(number) >> 24 != generation as usize {
            return now;
        }
        if lane.state == State::Connecting {
            if !event.writable && !event.ended {
                return now;
            }
            self.connected(number);
        } else if event.writable && lane.is_stuck() {
            match lane.flush() {
                Ok(bytes) => self.tally.bytes.sent += bytes,
                Err(failure) => {
                    self.fail_in(number, failure, Phase::Send, now, "sending failed");
                    return now;
                }
            }
        }
        if event.readable || event.ended {
            return self.receive(number, event.ended, now, buffer);
        }
        now
    }

    /// A lane's socket says that connecting is over, one way or the other.
    #[cold]
    fn connected(&mut self, number: usize) {
        let now = clock::now();
        let lane = &mut self.lanes[number];
        let result = lane.socket().map_or(Ok(()), crate::io::Socket::connected);
        if let Err((failure, error)) = result {
            return self.fail(number, failure, now, &error.to_string());
        }
        let began_ns = lane.busy_since_ns.take().unwrap_or(lane.since_ns);
        self.tally.connect.record(now - began_ns);
        if lane.is_plain() {
            return self.opened(number, now);
        }
        lane.state = State::Handshaking;
        lane.since_ns = now;
        if let Err(failure) = lane.flush() {
            self.fail(number, failure, now, "the TLS handshake broke off");
        }
    }

    /// Tries those lanes again that are still connecting: the server's queue was full.
    #[cold]
    pub(super) fn knock_again(&mut self, now: u64) {
        for number in 0..self.next_lane {
            let lane = &mut self.lanes[number];
            if lane.state != State::Connecting || now < lane.since_ns + QUEUED_NS {
                continue;
            }
            let since_ns = *lane.busy_since_ns.get_or_insert(lane.since_ns);
            if now >= since_ns + self.timeout_ns {
                self.fail(number, Failure::Timeout, now, "the server's queue is full");
            } else {
                lane.drop_socket();
                self.opening -= 1;
                self.connect(number, now);
            }
        }
    }

    /// A lane is open.
    fn opened(&mut self, number: usize, now: u64) {
        let lane = &mut self.lanes[number];
        lane.state = State::Open;
        self.opening -= 1;
        self.connected += 1;
        self.reached += u64::from(!lane.is_settled);
        self.settled(number);
        let waiting = self.lanes[number].talk.in_flight();
        if waiting > 0 {
            self.send(number, waiting, now);
        } else {
            self.employ(number, now);
        }
    }

    /// A lane was open, or failed, once.
    fn settled(&mut self, number: usize) {
        if !self.lanes[number].is_settled {
            self.lanes[number].is_settled = true;
            self.unsettled -= 1;
        }
    }

    /// Reads all that there is, and hands it to the conversation; returns the time.
    #[inline(always)]
    fn receive(&mut self, number: usize, ended: bool, before: u64, buffer: &mut [u8]) -> u64 {
        let mut now = before;
        let generation = self.lanes[number].generation;
        while self.lanes[number].generation == generation {
            let lane = &mut self.lanes[number];
            let skippable = if self.book.samples() { lane.talk.skippable() } else { 0 };
            let size = (skippable as usize).min(buffer.len());
            let Some(socket) = lane.socket() else { return now };
            let is_skip = skippable > 0 && lane.is_plain();
            let received =
                if is_skip { socket.discard(&mut buffer[..size]) } else { socket.receive(buffer) };
            now = clock::now();
            match received {
                Received::Bytes(count) => {
                    self.tally.bytes.received += count as u64;
                    if is_skip {
                        self.lanes[number].talk.skip(count as u64);
                        self.hear(number, &[], now);
                    } else {
                        self.take(number, &buffer[..count], now);
                    }
                    // What comes after a short read, or after the end of the only answer that is
                    // under way, is an event of its own.
                    let is_short = if is_skip {
                        count < size || (count as u64 == skippable && self.plan.pipeline == 1)
                    } else {
                        count < buffer.len()
                    };
                    if is_short && !ended {
                        break;
                    }
                }
                Received::Later => break,
                Received::End => self.ended(number, now),
                Received::Failed(failure) => self.fail(number, failure, now, "receiving failed"),
            }
        }
        now
    }

    /// Bytes from the wire.
    #[inline(always)]
    fn take(&mut self, number: usize, wire: &[u8], now: u64) {
        if self.lanes[number].is_plain() {
            self.hear(number, wire, now);
        } else {
            self.decrypt(number, wire, now);
        }
    }

    /// Bytes from a wire that speaks TLS.
    #[inline(never)]
    fn decrypt(&mut self, number: usize, wire: &[u8], now: u64) {
        let lane = &mut self.lanes[number];
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let Some(channel) = lane.channel() else { return };
        let result = channel.receive(wire, &mut plain);
        let is_shaking = channel.is_shaking();
        // An alert or the rest of the handshake; a failure shows at the next read.
        let _ = lane.flush();
        if let Err(why) = result {
            self.fail(number, Failure::Tls, now, &why);
        } else {
            if lane.state == State::Handshaking && !is_shaking {
                self.tally.handshake.record(now - lane.since_ns);
                self.opened(number, now);
            }
            let generation = self.lanes[number].generation;
            if !plain.is_empty() {
                self.hear(number, &plain, now);
            }
            // RFC 8446 section 6.1: after close_notify the server sends no more, whether or not
            // it closes the TCP connection.
            let lane = &mut self.lanes[number];
            if lane.generation == generation && lane.channel().is_some_and(|c| c.is_closed()) {
                self.ended(number, now);
            }
        }
        self.plain = plain;
    }

    /// Bytes of the conversation.
    #[inline(always)]
    fn hear(&mut self, number: usize, bytes: &[u8], now: u64) {
        let lane = &mut self.lanes[number];
        let Some(known) = lane.talk.recognise(bytes, &mut self.book) else {
            return self.read(number, bytes, now);
        };
        lane.failed = 0;
        self.in_flight -= 1;
        let (length, is_paced) = (bytes.len() as u64, self.is_paced());
        self.tally.right(known.flight, known.status, length, now, is_paced);
        if known.keep_alive && !self.is_closing() {
            self.refill(number, now);
        } else {
            self.let_go(number, now);
        }
    }

    /// Bytes of the conversation, as the parser reads them.
    #[inline(never)]
    fn read(&mut self, number: usize, bytes: &[u8], now: u64) {
        let mut rest = bytes;
        loop {
            match self.lanes[number].talk.take(&mut rest, &mut self.book) {
                Step::More => break,
                Step::Answer(answer) => {
                    let is_last = self.lanes[number].talk.in_flight() == 0;
                    if is_last && !rest.is_empty() {
                        // Nobody asked for what follows, so what came is not the answer.
                        self.lanes[number].talk.send(answer.flight);
                        let why = "an answer is longer than it says";
                        self.tally
                            .evidence(|| why.to_owned(), bytes[..bytes.len().min(512)].to_vec());
                        return self.fail_in(number, Failure::BadFraming, Phase::Body, now, why);
                    }
                    if self.answered(number, answer, now) {
                        return;
                    }
                }
                Step::Broken(failure, phase, why, head) => {
                    self.tally.evidence(|| why.to_owned(), head);
                    return self.fail_in(number, failure, phase, now, why);
                }
            }
        }
        self.employ(number, now);
    }

    /// An answer is whole; true when the connection ends with it.
    fn answered(&mut self, number: usize, answer: Answer, now: u64) -> bool {
        self.in_flight -= 1;
        self.lanes[number].failed = 0;
        let keep_alive = answer.keep_alive;
        let is_paced = self.is_paced();
        self.tally.answer(answer, now, is_paced);
        if keep_alive && !self.is_closing() {
            return false;
        }
        let waiting = self.lanes[number].talk.in_flight();
        if waiting > 0 {
            // The server announced the end: what was sent behind it is not answered.
            self.fail_in(
                number,
                Failure::ClosedEarly,
                Phase::FirstByte,
                now,
                "closed by the server",
            );
        } else {
            self.let_go(number, now);
        }
        true
    }

    /// The other side sends no more.
    #[cold]
    fn ended(&mut self, number: usize, now: u64) {
        let lane = &mut self.lanes[number];
        match lane.state {
            State::Open => {}
            State::Handshaking => {
                return self.fail(number, Failure::Tls, now, "closed within the TLS handshake");
            }
            _ => return self.fail(number, Failure::Reset, now, "closed while connecting"),
        }
        if lane.is_truncated() {
            let why = "the connection ended without TLS's close_notify: the response may be cut";
            return self.fail_in(number, Failure::Truncated, Phase::Body, now, why);
        }
        match lane.talk.close(&mut self.book) {
            Ok(Some(answer)) => {
                self.in_flight -= 1;
                lane.failed = 0;
                let is_paced = self.is_paced();
                self.tally.answer(answer, now, is_paced);
                self.let_go(number, now);
            }
            Ok(None) => self.let_go(number, now),
            Err((failure, phase)) => {
                self.fail_in(number, failure, phase, now, "the server closed the connection");
            }
        }
    }

    /// Closes a lane's socket in peace, and opens another if there is need.
    fn let_go(&mut self, number: usize, now: u64) {
        self.connected -= 1;
        self.lanes[number].drop_socket();
        if !self.is_closing() && self.stage >= Stage::Ramp {
            self.tally.reopened += 1;
        }
        self.employ(number, now);
    }

    /// A lane failed, wherever it is.
    #[cold]
    fn fail(&mut self, number: usize, failure: Failure, now: u64, why: &str) {
        let lane = &self.lanes[number];
        let phase = match lane.state {
            State::Open => lane.talk.phase(),
            _ => Phase::Connect,
        };
        self.fail_in(number, failure, phase, now, why);
    }

    /// Counts a failure for every request in flight, or one for the connection, and opens it again.
    #[cold]
    fn fail_in(&mut self, number: usize, failure: Failure, phase: Phase, now: u64, why: &str) {
        let lane = &mut self.lanes[number];
        let in_flight = lane.talk.in_flight() as u64;
        // Before the last byte of a request has left, its response is not being waited for.
        let phase = if phase == Phase::FirstByte && lane.is_stuck() { Phase::Send } else { phase };
        match lane.state {
            State::Open => self.connected -= 1,
            State::Connecting | State::Handshaking => self.opening -= 1,
            State::Down | State::Resting => {}
        }
        if lane.state == State::Open {
            self.tally.reopened += u64::from(!matches!(self.plan.reuse, Reuse::Close));
        }
        // A server that takes connections and answers nothing is not hammered, either.
        if lane.state != State::Open || matches!(phase, Phase::FirstByte | Phase::Send) {
            lane.failed += 1;
        }
        // The next attempt has the whole timeout, and its own time to connect.
        lane.busy_since_ns = None;
        self.in_flight -= in_flight;
        let is_paced = !matches!(self.plan.pace, Pace::Closed);
        lane.talk.flights().for_each(|flight| self.tally.open(flight, now, is_paced));
        lane.drop_socket();
        if self.stage < Stage::Ramp {
            self.shared.failed(failure, why);
        }
        self.tally.failure(failure, phase, 1, now);
        if in_flight > 1 {
            // The others got as far as being sent.
            let phase = if phase == Phase::Body { Phase::FirstByte } else { phase };
            self.tally.failure(failure, phase, in_flight - 1, now);
        }
        if in_flight == 0 && self.stage >= Stage::Ramp {
            // A connection's failure takes the place of a request's, where these are numbered.
            self.left = self.left.saturating_sub(u64::from(self.left != u64::MAX));
        }
        self.settled(number);
        self.rest(number, now);
    }

    /// Lets requests and connections fail whose time is up.
    pub(super) fn find_overdue(&mut self, now: u64) {
        for number in 0..self.lanes.len() {
            let lane = &self.lanes[number];
            let since = match (lane.state, lane.talk.oldest()) {
                (State::Open, None) | (State::Down | State::Resting, _) => continue,
                (_, Some(flight)) => flight.sent_ns,
                (State::Connecting | State::Handshaking, None) => lane.since_ns,
            };
            if now.saturating_sub(since) >= self.timeout_ns {
                self.fail(number, Failure::Timeout, now, "no answer in time");
            }
        }
    }
}
