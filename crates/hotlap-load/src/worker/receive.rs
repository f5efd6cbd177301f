//! Receiving responses.

use super::Worker;
use super::slot::{Slot, State, Unread};
use crate::clock;
use crate::connection::{Completed, EVIDENCE, Step};
use crate::io::{Ready, Received};
use crate::outcome::{Failure, Phase};
use crate::requests::Turn;

/// A worker reads one connection for about this long at most. Then it looks at its clock, its
/// commands and its other connections. Without the limit, a server that sends faster than its bytes
/// are parsed would occupy the worker for ever. One read, a quarter of a megabyte, takes about as
/// long.
const TURN_NS: u64 = 1_000_000;

impl Worker {
    /// Handles a socket that is ready, reading into `buffer`; returns the time.
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

    /// Reads what is available, for one turn at most, and processes it; returns the time.
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
                    // Bytes that arrive after a short read, or after the end of the only expected
                    // response, cause another event.
                    let is_short = if skips {
                        count < size || (count as u64 == skippable && self.plan.pipeline == 1)
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

    /// Remembers a socket to continue reading later, unless it was closed. No event reports bytes
    /// that have already arrived.
    #[cold]
    fn set_aside(&mut self, number: usize, generation: u32, ended: bool) {
        let slot = &self.slots[number];
        if slot.generation == generation {
            self.unread.push(Unread { key: slot.key(number), ended });
        }
    }

    /// Processes bytes from the wire.
    #[inline(always)]
    fn decode(&mut self, number: usize, wire: &[u8], now: u64) {
        if self.slots[number].is_direct() {
            self.measurement.tally.bytes.received += wire.len() as u64;
            self.process(number, wire, now);
        } else if self.slots[number].is_plain() {
            self.measurement.tally.bytes.received += wire.len() as u64;
            self.process_frames(number, wire, now);
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
        // An alert or the rest of the handshake. If this fails, so does the next read.
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
                match slot.conn.is_multiplexed() {
                    false => self.process(number, &plain, now),
                    true => self.process_frames(number, &plain, now),
                }
            }
            // RFC 8446 section 6.1: after close_notify the server sends no more data, whether or
            // not it closes the TCP connection.
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
        let is_multiplexed = slot.conn.is_multiplexed();
        let since_ns = slot.since_ns;
        let Some(tls) = slot.tls() else { return };
        if is_multiplexed && !tls.speaks_http2() {
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

    /// Processes bytes of responses with the parser.
    #[inline(never)]
    fn parse(&mut self, number: usize, bytes: &[u8], now: u64) {
        let mut rest = bytes;
        loop {
            match self.slots[number].conn.take(&mut rest, &mut self.requests.mix) {
                Step::NeedMore => break,
                Step::Completed(response) => {
                    let is_last = self.slots[number].conn.in_flight() == 0;
                    if is_last && !rest.is_empty() {
                        // More bytes than requested: the response cannot be trusted.
                        self.slots[number].conn.send(response.request);
                        let why = "more bytes than the response announced";
                        let first_bytes = bytes[..bytes.len().min(EVIDENCE)].to_vec();
                        let tally = &mut self.measurement.tally;
                        if tally.evidence(|| why.to_owned(), first_bytes) {
                            self.add_request_to_evidence(response.request.turn);
                        }
                        return self.fail_in(number, Failure::BadFraming, Phase::Body, now, why);
                    }
                    if self.completed(number, response, now) {
                        return;
                    }
                }
                Step::Broken(broken) => {
                    let why = broken.why;
                    let turn = self.slots[number].conn.oldest().map(|request| request.turn);
                    let tally = &mut self.measurement.tally;
                    let is_kept = tally.evidence(|| why.to_owned(), broken.first_bytes);
                    if let Some(turn) = turn.filter(|_| is_kept) {
                        self.add_request_to_evidence(turn);
                    }
                    return self.fail_in(number, broken.failure, broken.phase, now, why);
                }
            }
        }
        self.activate(number, now);
    }

    /// A response is complete. Returns whether the connection ends with it.
    pub(super) fn completed(&mut self, number: usize, response: Completed, now: u64) -> bool {
        let keep_alive = response.keep_alive;
        self.count(number, response, now);
        if keep_alive && !self.closes_connections() {
            return false;
        }
        if self.slots[number].conn.in_flight() > 0 {
            // The server announced the close, so requests sent after this one get no response.
            let (failure, phase) = (Failure::ClosedEarly, Phase::FirstByte);
            self.fail_in(number, failure, phase, now, "the server closed the connection");
        } else {
            self.close(number, now);
        }
        true
    }

    /// Counts a complete response.
    pub(super) fn count(&mut self, number: usize, response: Completed, now: u64) {
        self.slots[number].failed = 0;
        self.requests.in_flight -= 1;
        let turn = response.request.turn;
        if self.measurement.tally.completed(response, now, self.requests.is_open_loop) {
            self.add_request_to_evidence(turn);
        }
    }

    /// Keeps the request that a wrong response answered.
    #[cold]
    pub(super) fn add_request_to_evidence(&mut self, turn: Turn) {
        let request = self.requests.mix.bytes(turn);
        self.measurement.tally.evidence_of(request);
    }

    /// Handles the server closing its side of a connection.
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
                self.count(number, response, now);
                self.close(number, now);
            }
            Ok(None) => self.close(number, now),
            Err((failure, phase)) => {
                self.fail_in(number, failure, phase, now, "the server closed the connection");
            }
        }
    }
}
