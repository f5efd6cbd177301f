//! Sending requests.

use super::Worker;
use super::slot::State;
use crate::clock;
use crate::connection::Connection;
use crate::outcome::{Failure, Phase};

/// A worker that sends a request this late has stalled, and the requests behind that one are late
/// because of the stall too. Sending other requests first takes less time.
const STALL_NS: u64 = 2_000_000;

impl Worker {
    /// Sends what may be sent on a slot that is open or has just opened. Inlined into the response
    /// path, because calls would cost a tenth of a request.
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

    /// Begins the requests that are due, as many as there is room for on a slot; returns their
    /// number.
    #[inline(always)]
    pub(super) fn begin_due(
        &mut self,
        number: usize,
        now: u64,
        has_room: impl Fn(&Connection, usize) -> bool,
    ) -> usize {
        let mut begun = 0;
        while has_room(&self.slots[number].conn, self.plan.pipeline) && self.requests.left > 0 {
            let Some(due_ns) = self.requests.take_due(now) else {
                self.slots.list(number);
                self.is_behind = false;
                break;
            };
            if self.is_behind {
                self.measurement.tally.lag.record(now.saturating_sub(due_ns));
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
            // The slot was free when the request was due, so the delay is the generator's.
            self.measurement.tally.lag.record(sent_ns - due_ns);
            self.is_behind |= sent_ns - due_ns > STALL_NS;
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

    /// Adds the next request to those in flight on a slot.
    #[inline(always)]
    fn begin(&mut self, number: usize, due_ns: u64, sent_ns: u64) {
        let request = self.requests.send(due_ns, sent_ns);
        self.slots[number].conn.send(request);
    }

    /// Sends the last `count` requests, whatever the protocol.
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
        self.sent(number, sent, now);
    }

    /// Counts the bytes sent, or the failure to send.
    #[inline(always)]
    pub(super) fn sent(&mut self, number: usize, sent: Result<u64, Failure>, now: u64) {
        match sent {
            Ok(bytes) => self.measurement.tally.bytes.sent += bytes,
            Err(failure) => self.fail_in(number, failure, Phase::Send, now, "sending failed"),
        }
    }
}
