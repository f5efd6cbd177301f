//! Counting failures, and recovering from them.

use super::slot::State;
use super::{Stage, Worker};
use crate::outcome::{Failure, Phase};

impl Worker {
    /// Fails a connection in its present phase.
    #[cold]
    pub(super) fn fail(&mut self, number: usize, failure: Failure, now: u64, why: &str) {
        let slot = &self.slots[number];
        let phase = match slot.state {
            State::Open => slot.conn.phase(),
            _ => Phase::Connect,
        };
        self.fail_in(number, failure, phase, now, why);
    }

    /// Fails a connection in this phase: counts a failure for each request in flight, or one for
    /// the connection if there is none, and reopens it.
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
        // This also slows down requests to a server that accepts connections but never responds.
        if !is_open || matches!(phase, Phase::FirstByte | Phase::Send) {
            slot.failed += 1;
        }
        // The next attempt has the whole timeout, and its own connect time.
        slot.queue_full_since_ns = None;
        let in_flight = slot.conn.in_flight() as u64;
        let is_open_loop = self.requests.is_open_loop;
        for request in slot.conn.requests() {
            tally.unfinished(request, now, is_open_loop);
            tally.failed_request(request);
        }
        if let (Some(begun), true) = (slot.conn.begun(), in_flight > 0) {
            let before = if phase == Phase::Body { Phase::FirstByte } else { phase };
            for (phase, count) in [(Phase::Body, begun as u64), (before, in_flight - begun as u64)]
            {
                if count > 0 {
                    tally.failure(failure, phase, count, now);
                }
            }
        } else {
            tally.failure(failure, phase, 1, now);
        }
        if in_flight > 1 && !slot.conn.is_multiplexed() {
            // The first response was being read; the other requests had only been sent.
            let phase = if phase == Phase::Body { Phase::FirstByte } else { phase };
            tally.failure(failure, phase, in_flight - 1, now);
        }
        let is_started = self.stage >= Stage::Unmeasured;
        self.requests.failed(in_flight, is_started);
        if !is_started {
            self.shared.connect_failed(why);
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
                (State::Open, None) | (State::Down | State::Reopening, _) => continue,
                (_, Some(request)) => request.sent_ns,
                (State::Connecting | State::Handshaking, None) => slot.since_ns,
            };
            if now.saturating_sub(since_ns) >= self.timeout_ns {
                self.time_out(number, since_ns, now);
            }
        }
    }
}
