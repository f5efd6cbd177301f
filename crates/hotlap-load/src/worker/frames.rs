//! HTTP/2: receiving and sending frames.

use super::slot::State;
use super::{Stage, Worker};
use crate::connection::{Connection, FailedStream, FrameStep, InFlight, Why};
use crate::outcome::{Failure, Phase};

impl Worker {
    /// Processes frames.
    #[inline(never)]
    pub(super) fn process_frames(&mut self, number: usize, bytes: &[u8], now: u64) {
        if let Some(http2) = self.slots[number].conn.http2() {
            http2.received_ns = now;
        }
        let mut rest = bytes;
        loop {
            match self.slots[number].conn.take_frames(&mut rest, &mut self.requests.mix) {
                FrameStep::NeedMore => break,
                FrameStep::Completed(response) => {
                    self.count(number, response, now);
                    if self.closes_connections() {
                        return self.close(number, now);
                    }
                }
                FrameStep::Failed(failed) => self.stream_failed(&failed, now),
                FrameStep::Refused => self.unsent(1),
                FrameStep::Broken(broken) => {
                    // A GOAWAY with the reason. If this fails, the connection is gone anyway.
                    let _ = self.slots[number].send_frames();
                    let why = broken.why;
                    self.measurement.tally.evidence(|| why.to_owned(), broken.first_bytes);
                    return self.fail_in(number, broken.failure, broken.phase, now, why);
                }
            }
        }
        if self.slots[number].conn.is_drained() {
            return self.move_on(number, now);
        }
        self.activate(number, now);
        self.write_frames(number, now);
    }

    /// Sends what may be sent on a slot that is open or has just opened.
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
        let streams = conn.http2().map_or(0, |http2| http2.sent());
        let tally = &mut self.measurement.tally;
        tally.sent += opened as u64;
        tally.streams = tally.streams.max(streams as u64);
        self.write_frames(number, now);
    }

    /// Sends the frames that are ready on a slot.
    pub(super) fn write_frames(&mut self, number: usize, now: u64) {
        let slot = &mut self.slots[number];
        if slot.state == State::Open && slot.conn.http2().is_some_and(|http2| http2.has_out()) {
            let sent = slot.send_frames();
            self.sent(number, sent, now);
        }
    }

    /// Takes back the count of requests that the server did not process. They are counted again
    /// when they are sent again.
    #[cold]
    fn unsent(&mut self, count: u64) {
        let tally = &mut self.measurement.tally;
        tally.sent = tally.sent.saturating_sub(count);
    }

    /// Counts a connection if the server is ending it with an error.
    #[cold]
    pub(super) fn ended(&mut self, number: usize) {
        let http2 = self.slots[number].conn.http2();
        if let Some(reason) = http2.and_then(|http2| http2.ended_because()) {
            let why = || format!("the server ended the connection (GOAWAY {reason})");
            self.measurement.tally.evidence(why, Vec::new());
            self.measurement.tally.connection_ended(reason);
        }
    }

    /// Counts a request that failed while its connection goes on.
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

    /// Counts a request that failed, without its connection.
    fn request_failed(&mut self, request: &InFlight, failure: Failure, phase: Phase, now: u64) {
        let tally = &mut self.measurement.tally;
        tally.unfinished(request, now, self.requests.is_open_loop);
        tally.failed_request(request);
        tally.failure(failure, phase, 1, now);
        self.requests.failed(1, self.stage >= Stage::Unmeasured);
    }

    /// Replaces a connection on which the server takes no more requests. Those that it did not
    /// process are sent again on the next connection, unless this one has answered none.
    #[cold]
    fn move_on(&mut self, number: usize, now: u64) {
        let slot = &mut self.slots[number];
        let retries = slot.conn.take_retries();
        if slot.conn.in_flight() > 0 {
            let why = "the server ended the connection (GOAWAY) and processed no request";
            return self.fail_in(number, Failure::ClosedEarly, Phase::FirstByte, now, why);
        }
        self.ended(number);
        self.slots.close(number);
        self.measurement.tally.reopened += 1;
        self.unsent(retries.len() as u64);
        if retries.is_empty() {
            return self.activate(number, now);
        }
        for request in retries {
            self.slots[number].conn.send(request);
        }
        self.connect(number, now);
    }

    /// Handles a request that has timed out; it was sent at `sent_ns`. If the server has sent
    /// nothing since, the connection is given up, else only the request.
    #[cold]
    pub(super) fn time_out(&mut self, number: usize, sent_ns: u64, now: u64) {
        let slot = &mut self.slots[number];
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
        self.activate(number, now);
        self.write_frames(number, now);
    }
}
