//! Opens and reopens connections, counts their failures, and finds timeouts.

use super::slot::State;
use super::{Stage, Worker};
use crate::clock;
use crate::io::{Connect, Socket};
use crate::outcome::{Failure, Phase};

impl Worker {
    /// Opens slots for the first time, a few at a time.
    #[cold]
    pub(super) fn open_new(&mut self, now: u64) {
        for number in self.slots.take_new(now) {
            self.connect(number, now);
        }
    }

    /// Reopens the slots whose pause is over.
    pub(super) fn reopen_due(&mut self, now: u64) {
        while let Some(number) = self.slots.take_reopen(now) {
            let slot = &self.slots[number];
            if slot.conn.in_flight() > 0 || !slot.is_settled {
                self.connect(number, now);
            } else {
                self.activate(number, now);
            }
        }
    }

    /// Retries connections that have found the server's accept queue full.
    #[cold]
    pub(super) fn retry_full_queues(&mut self, now: u64) {
        for number in self.slots.take_retry(now) {
            if !self.slots.found_queue_full(number, now) {
                continue;
            }
            let slot = &mut self.slots[number];
            let since_ns = *slot.queue_full_since_ns.get_or_insert(slot.since_ns);
            if now < since_ns + self.timeout_ns {
                self.slots.close(number);
                self.connect(number, now);
            } else {
                let why = "timed out, possibly because the server's accept queue is full";
                self.fail(number, Failure::Timeout, now, why);
            }
        }
    }

    /// Puts all slots to use. See [`activate`](Self::activate).
    pub(super) fn activate_all(&mut self, now: u64) {
        for number in 0..self.slots.len() {
            self.activate(number, now);
        }
    }

    /// Puts a slot to use once the load has started: opens the slot if it is down, or sends
    /// requests.
    pub(super) fn activate(&mut self, number: usize, now: u64) {
        if self.stage < Stage::Unmeasured {
            return;
        }
        let slot = &self.slots[number];
        match slot.state {
            State::Open => {}
            State::Down if self.closes_connections() || slot.opens_per_request => {}
            State::Down if self.requests.left > 0 => return self.connect(number, now),
            _ => return,
        }
        self.refill(number, now);
    }

    /// Starts to connect a slot that is down.
    pub(super) fn connect(&mut self, number: usize, now: u64) {
        let tls = match &self.tls {
            None => None,
            Some(config) => match config.connect() {
                Some(tls) => Some(tls),
                None => return self.fail(number, Failure::Tls, now, "cannot start TLS"),
            },
        };
        let slot = &mut self.slots[number];
        match self.io.connect(&self.plan, slot.source, slot.key(number)) {
            Connect::Started(socket) => {
                // The time of the wake-up is not used, because many connections are opened in a
                // row.
                self.slots.started(number, socket, tls, clock::now());
            }
            Connect::QueueFull => {
                let since_ns = *slot.queue_full_since_ns.get_or_insert(now);
                if now < since_ns + self.timeout_ns {
                    slot.failed += 1;
                    self.slots.reopen_later(number, now);
                } else {
                    self.fail(number, Failure::Timeout, now, "the server's accept queue is full");
                }
            }
            Connect::Failed(failure, error) => {
                self.fail(number, failure, now, &error.to_string());
            }
        }
    }

    /// Handles a slot whose socket has connected or has failed to connect.
    #[cold]
    pub(super) fn finish_connect(&mut self, number: usize) {
        let now = clock::now();
        let slot = &mut self.slots[number];
        if let Err((failure, error)) = slot.socket().map_or(Ok(()), Socket::finish_connect) {
            return self.fail(number, failure, now, &error.to_string());
        }
        let began_ns = slot.queue_full_since_ns.take().unwrap_or(slot.since_ns);
        self.measurement.tally.connect_time.record(now - began_ns);
        if slot.is_plain() {
            return self.opened(number, now);
        }
        slot.state = State::Handshaking;
        slot.since_ns = now;
        if let Err(failure) = slot.flush() {
            self.fail(number, failure, now, "the TLS handshake was interrupted");
        }
    }

    /// Handles a slot that has opened. Sends the requests that it was opened for, or any that may
    /// be sent.
    pub(super) fn opened(&mut self, number: usize, now: u64) {
        self.slots.opened(number);
        match self.slots[number].conn.in_flight() {
            0 => {
                self.activate(number, now);
                self.write_frames(number, now);
            }
            waiting => self.send_last(number, waiting, now),
        }
    }

    /// Closes a connection without a failure, and reuses its slot. In HTTP/2, the next connection
    /// opens even without a request to send. There is a pause first if the old connection had no
    /// response, because the server may end each connection at once.
    pub(super) fn close(&mut self, number: usize, now: u64) {
        let slot = &mut self.slots[number];
        slot.end_tls();
        let had_no_response = slot.conn.http2().is_some_and(|http2| !http2.has_answered());
        self.slots.close(number);
        if self.closes_connections() {
            return self.activate(number, now);
        }
        self.measurement.tally.reopened += 1;
        let slot = &mut self.slots[number];
        slot.opens_per_request = !self.is_multiplexed;
        if had_no_response {
            slot.failed += 1;
            self.slots.reopen_later(number, now);
        } else {
            self.activate(number, now);
        }
    }
}

impl Worker {
    /// Fails a connection in its current phase.
    #[cold]
    pub(super) fn fail(&mut self, number: usize, failure: Failure, now: u64, why: &str) {
        let slot = &self.slots[number];
        let phase = match slot.state {
            State::Open => slot.conn.phase(),
            _ => Phase::Connect,
        };
        self.fail_in(number, failure, phase, now, why);
    }

    /// Fails a connection in this phase, and reopens it. Counts a failure for each request in
    /// flight, or one for the connection if no request is in flight.
    #[cold]
    pub(super) fn fail_in(
        &mut self,
        number: usize,
        failure: Failure,
        phase: Phase,
        now: u64,
        why: &str,
    ) {
        self.ended(number);
        let slot = &mut self.slots[number];
        let tally = &mut self.measurement.tally;
        // Until the last byte of a request has left, no response is expected.
        let is_sending = phase == Phase::FirstByte && slot.has_unsent();
        let phase = if is_sending { Phase::Send } else { phase };
        let is_open = slot.state == State::Open;
        // The count also slows down requests to a server that accepts connections but never
        // responds, or that ends idle connections.
        if !is_open || matches!(phase, Phase::FirstByte | Phase::Send | Phase::Idle) {
            slot.failed += 1;
        }
        // The next attempt gets the whole timeout, and a separate connect time.
        slot.queue_full_since_ns = None;
        let in_flight = slot.conn.in_flight() as u64;
        let is_open_loop = self.requests.is_open_loop;
        for request in slot.conn.requests() {
            tally.unfinished(request, now, is_open_loop);
            tally.failed_request(request);
        }
        if in_flight == 0 {
            tally.failure(failure, phase, 1, now);
        } else {
            // In HTTP/1.1, at most one response was being read, and the other requests had only
            // been sent. In HTTP/2, requests without a stream had not even been sent.
            let streams = slot.conn.http2().map(|http2| (http2.begun(), http2.sent()));
            let begun = (usize::from(phase == Phase::Body), slot.conn.in_flight());
            let (begun, sent) = streams.unwrap_or(begun);
            let (begun, sent) = (begun as u64, sent as u64);
            let before = if phase == Phase::Body { Phase::FirstByte } else { phase };
            let unsent = if is_open { Phase::Send } else { phase };
            let counts = [(Phase::Body, begun), (before, sent - begun), (unsent, in_flight - sent)];
            for (phase, count) in counts {
                if count > 0 {
                    tally.failure(failure, phase, count, now);
                }
            }
        }
        let is_started = self.stage >= Stage::Unmeasured;
        self.requests.failed(in_flight, is_started);
        if !is_started {
            self.shared.connect_failed(failure, why);
        }
        if is_open && !self.closes_connections() {
            self.measurement.tally.reopened += 1;
        }
        self.slots.close(number);
        self.slots.settle(number);
        self.slots.reopen_later(number, now);
    }

    /// Fails requests and connections that have timed out.
    pub(super) fn find_timeouts(&mut self, now: u64) {
        for number in 0..self.slots.len() {
            let slot = &self.slots[number];
            let since_ns = match (slot.state, slot.conn.oldest()) {
                (State::Open, None) => {
                    self.find_blocked(number, now);
                    continue;
                }
                (State::Down | State::Reopening, _) => continue,
                (_, Some(request)) => request.sent_ns,
                (State::Connecting | State::Handshaking, None) => slot.since_ns,
            };
            if now.saturating_sub(since_ns) >= self.timeout_ns {
                self.time_out(number, since_ns, now);
            }
        }
    }

    /// Gives up an HTTP/2 connection on which the server has allowed no stream for the whole
    /// timeout. Such a connection has no request in flight that could time out.
    fn find_blocked(&mut self, number: usize, now: u64) {
        let needs_room = self.stage >= Stage::Unmeasured && self.requests.left > 0;
        let has_room = self.slots[number].conn.has_room(1);
        let Some(http2) = self.slots[number].conn.http2_mut() else { return };
        if !needs_room || has_room {
            http2.blocked_since_ns = None;
            return;
        }
        let since_ns = *http2.blocked_since_ns.get_or_insert(now);
        if now.saturating_sub(since_ns) >= self.timeout_ns {
            let why = "the server allows no stream (SETTINGS_MAX_CONCURRENT_STREAMS is 0)";
            self.fail_in(number, Failure::Timeout, Phase::Send, now, why);
        }
    }
}
