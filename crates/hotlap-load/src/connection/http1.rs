//! HTTP/1.1 on one connection: reads the response to the oldest request as it arrives.

use std::collections::VecDeque;

use super::{Broken, Completed, EVIDENCE, InFlight, Step, Wrong};
use crate::expected::{Check, Mismatch};
use crate::http::{Head, ResponseError, ResponseEvent, ResponseReader};
use crate::outcome::{Failure, Phase};
use crate::requests::RequestMix;

/// The state of HTTP/1.1 on one connection.
#[derive(Debug, Default)]
pub(super) struct Http1 {
    reader: ResponseReader,
    /// The number of bytes of the current response so far.
    bytes: u64,
    head: Option<Head>,
    check: Check,
    /// The first bytes of the current response, if it does not arrive in one piece.
    first_bytes: Vec<u8>,
}

impl Http1 {
    /// Returns whether no byte of the next response has arrived.
    #[inline(always)]
    pub(super) fn is_between_responses(&self) -> bool {
        debug_assert!(self.bytes > 0 || self.reader.is_between_responses());
        self.bytes == 0
    }

    /// Returns the phase of the oldest request.
    pub(super) fn phase(&self) -> Phase {
        if self.bytes == 0 { Phase::FirstByte } else { Phase::Body }
    }

    /// Starts over on another socket.
    pub(super) fn reset(&mut self) {
        self.reader = ResponseReader::default();
        self.bytes = 0;
        self.head = None;
        self.first_bytes = Vec::new();
    }

    /// Consumes bytes from the front of `input`, up to the end of a response.
    pub(super) fn take(
        &mut self,
        input: &mut &[u8],
        in_flight: &mut VecDeque<InFlight>,
        mix: &mut RequestMix,
    ) -> Step {
        if input.is_empty() && self.reader.is_between_responses() {
            return Step::NeedMore;
        }
        let Some(&request) = in_flight.front() else {
            return Step::Broken(Broken {
                failure: Failure::BadFraming,
                phase: Phase::Idle,
                why: "unexpected bytes without a request",
                turn: None,
                first_bytes: first_bytes(input),
            });
        };
        let step = self.take_response(input, request, mix);
        mix.done(request.turn);
        if let Step::Completed(_) = step {
            in_flight.pop_front();
        }
        step
    }

    fn take_response(
        &mut self,
        input: &mut &[u8],
        request: InFlight,
        mix: &mut RequestMix,
    ) -> Step {
        if self.is_between_responses() {
            let template = &mut mix.get(request.turn).template;
            if let Some((head, length)) = template.recognise(input) {
                *input = &input[length..];
                let (status, keep_alive) = (head.status, head.keep_alive);
                let bytes = length as u64;
                return Step::Completed(Completed {
                    request,
                    status,
                    keep_alive,
                    bytes,
                    wrong: None,
                });
            }
        }
        self.parse(input, request, mix)
    }

    fn parse(&mut self, input: &mut &[u8], request: InFlight, mix: &mut RequestMix) -> Step {
        let whole = *input;
        let before = self.bytes;
        let is_head = mix.get(request.turn).is_head;
        loop {
            let event = self.reader.next(input, is_head);
            let taken = whole.len() - input.len();
            self.bytes = before + taken as u64;
            let prepared = mix.get(request.turn);
            match event {
                Ok(ResponseEvent::Head(head)) => {
                    let skips_body = mix.skips_next_body();
                    let expect = &mix.get(request.turn).expect;
                    let (status, length) = (head.status, head.length);
                    self.check = Check::new(status, length, expect, is_head, skips_body);
                    self.head = Some(head);
                }
                Ok(ResponseEvent::Data(data)) => self.check.data(data, &prepared.expect),
                Ok(ResponseEvent::NeedMore) => {
                    let room = EVIDENCE.saturating_sub(self.first_bytes.len()).min(taken);
                    self.first_bytes.extend_from_slice(&whole[..room]);
                    return Step::NeedMore;
                }
                Ok(ResponseEvent::End) => {
                    let result = self.check.finish(&prepared.expect, is_head);
                    if let (Ok(()), 0, Some(head)) = (result, before, &self.head)
                        && !self.check.skips_body()
                        && starts_with_head(&whole[..taken], head)
                    {
                        prepared.template.learn(&whole[..taken], head, &prepared.expect.body);
                    }
                    return Step::Completed(self.complete(request, result, &whole[..taken]));
                }
                Err(error) => {
                    let mut seen = std::mem::take(&mut self.first_bytes);
                    seen.extend_from_slice(whole);
                    let (failure, why) = match error {
                        ResponseError::Framing(why) => (Failure::BadFraming, why),
                        ResponseError::ClosedEarly => {
                            (Failure::ClosedEarly, "closed before the response was complete")
                        }
                    };
                    // The phase is the body, because some bytes of a response have arrived.
                    let (phase, first_bytes) = (Phase::Body, first_bytes(&seen));
                    let turn = Some(request.turn);
                    return Step::Broken(Broken { failure, phase, why, turn, first_bytes });
                }
            }
        }
    }

    /// Completes the current response.
    fn complete(
        &mut self,
        request: InFlight,
        result: Result<(), Mismatch>,
        last_bytes: &[u8],
    ) -> Completed {
        let head = self.head.take().expect("a response ends after its head");
        let mut first_bytes = std::mem::take(&mut self.first_bytes);
        let wrong = result.err().map(|mismatch| {
            first_bytes.extend_from_slice(last_bytes);
            first_bytes.truncate(EVIDENCE);
            Box::new(Wrong { mismatch, first_bytes })
        });
        let bytes = std::mem::take(&mut self.bytes);
        Completed { request, status: head.status, keep_alive: head.keep_alive, bytes, wrong }
    }

    /// Handles a close by the server. Returns the response that the close completes, if any.
    pub(super) fn close(
        &mut self,
        in_flight: &mut VecDeque<InFlight>,
        mix: &mut RequestMix,
    ) -> Option<Completed> {
        let request = *in_flight.front()?;
        self.reader.close().ok()?;
        in_flight.pop_front();
        let prepared = mix.get(request.turn);
        let result = self.check.finish(&prepared.expect, prepared.is_head);
        mix.done(request.turn);
        Some(self.complete(request, result, &[]))
    }

    /// Returns whether the current body is delimited by the end of the connection.
    pub(super) fn is_until_close(&self) -> bool {
        self.reader.is_until_close()
    }

    /// Returns the number of bytes that may be discarded unread. Only a body of known length whose
    /// contents are not checked may be discarded.
    pub(super) fn skippable(&self) -> u64 {
        match self.reader.remaining() {
            Some(rest) if self.check.skips_body() && self.head.is_some() => rest,
            _ => 0,
        }
    }

    /// Accounts for bytes that were discarded unread. The next call of [`Http1::take`] tells
    /// whether they completed the response.
    pub(super) fn skip(&mut self, count: u64) {
        self.reader.skip(count);
        self.check.skip(count);
        self.bytes += count;
    }
}

/// Returns whether the bytes start with the final response, without an interim response before it.
fn starts_with_head(response: &[u8], head: &Head) -> bool {
    response.get(9..12).is_some_and(|code| code == head.status.to_string().as_bytes())
}

/// Returns the part of `bytes` to keep as evidence.
fn first_bytes(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len().min(EVIDENCE)].to_vec()
}
