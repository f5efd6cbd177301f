//! The protocol on one connection, as a state machine without sockets or clock: bytes in, responses
//! out.
//!
//! It knows the requests in flight, in order, and therefore which of them incoming bytes answer.
//! What is here is HTTP/1.1; HTTP/2 keeps its streams beside the same requests.

mod http2;

use std::collections::VecDeque;

pub(crate) use self::http2::{FailedStream, FrameStep, Http2, Why};
use crate::check::{Check, Mismatch};
use crate::http::{Head, ResponseError, ResponseEvent, ResponseReader};
use crate::http2::Limits;
pub(crate) use crate::in_flight::{Broken, Completed, EVIDENCE, InFlight};
use crate::outcome::{Failure, Phase};
use crate::requests::{RequestMix, Turn};

/// A response that matched the template and so is correct.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recognised {
    pub(crate) request: InFlight,
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
}

/// The result of taking bytes.
#[derive(Debug)]
pub(crate) enum Step {
    /// All bytes are consumed, and no response is complete.
    NeedMore,
    Completed(Completed),
    /// The connection cannot be used any more.
    Broken(Broken),
}

/// The protocol state of one connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    in_flight: VecDeque<InFlight>,
    reader: ResponseReader,
    /// Bytes of the current response so far.
    bytes: u64,
    head: Option<Head>,
    check: Check,
    /// The first bytes of the current response, if it does not arrive in one piece.
    first_bytes: Vec<u8>,
    /// The streams, if the protocol is HTTP/2.
    http2: Option<Box<Http2>>,
}

impl Connection {
    /// A connection that speaks HTTP/2.
    pub(crate) fn multiplexed(limits: Limits) -> Self {
        Self { http2: Some(Box::new(Http2::new(limits))), ..Self::default() }
    }

    /// The state of HTTP/2, if that is the protocol.
    #[inline]
    pub(crate) fn http2(&mut self) -> Option<&mut Http2> {
        self.http2.as_deref_mut()
    }

    /// Whether the protocol is HTTP/2.
    #[inline]
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.http2.is_some()
    }

    /// Whether another request may be sent, if at most `limit` may be in flight.
    #[inline]
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        let in_flight = self.in_flight.len();
        match &self.http2 {
            None => in_flight < limit,
            Some(http2) => in_flight < limit && http2.room() > in_flight - http2.sent(),
        }
    }

    /// Opens streams for the requests in flight that have none, as far as the server allows;
    /// returns for how many. The others wait.
    pub(crate) fn open_streams(&mut self, mix: &mut RequestMix) -> usize {
        let Some(http2) = &mut self.http2 else { return 0 };
        let before = http2.sent();
        while let Some(request) = self.in_flight.get(http2.sent())
            && http2.room() > 0
        {
            http2.send(request, mix);
        }
        http2.sent() - before
    }

    /// Consumes frames from the front of `input`, up to the end of a response.
    pub(crate) fn take_frames(&mut self, input: &mut &[u8], mix: &mut RequestMix) -> FrameStep {
        match &mut self.http2 {
            Some(http2) => http2.take(input, &mut self.in_flight, mix),
            None => FrameStep::NeedMore,
        }
    }

    /// Gives up the oldest request of a connection that speaks HTTP/2, and removes it.
    pub(crate) fn cancel_oldest(&mut self) -> Option<(InFlight, Phase)> {
        self.http2.as_mut()?.cancel_oldest(&mut self.in_flight)
    }

    /// How many responses have begun, if the protocol is HTTP/2.
    pub(crate) fn begun(&self) -> Option<usize> {
        self.http2.as_ref().map(|http2| http2.begun())
    }

    /// Whether the server takes no more requests on this connection, and all that it takes are
    /// answered.
    pub(crate) fn is_drained(&self) -> bool {
        self.http2.as_ref().is_some_and(|http2| http2.is_drained())
    }

    /// The requests to send again on another connection: those that the server has said it did not
    /// process.
    pub(crate) fn take_retries(&mut self) -> VecDeque<InFlight> {
        match &self.http2 {
            Some(http2) if http2.may_retry() => std::mem::take(&mut self.in_flight),
            _ => VecDeque::new(),
        }
    }

    /// A request is sent.
    #[inline]
    pub(crate) fn send(&mut self, request: InFlight) {
        self.in_flight.push_back(request);
    }

    /// The number of requests in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The requests in flight, in the order in which they are answered.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &InFlight> {
        self.in_flight.iter()
    }

    /// The request that is answered next.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<&InFlight> {
        self.in_flight.front()
    }

    /// The request that was sent last.
    #[inline]
    pub(crate) fn newest(&self) -> Turn {
        self.in_flight.back().map_or_else(Turn::default, |r| r.turn)
    }

    /// The last `count` requests that were sent, in order.
    pub(crate) fn last(&self, count: usize) -> impl Iterator<Item = Turn> {
        self.in_flight.iter().skip(self.in_flight.len() - count).map(|r| r.turn)
    }

    /// Moves the due and send times of all requests in flight by a pause, but not beyond `now`: no
    /// time passes for them while the server is stopped.
    pub(crate) fn shift(&mut self, pause_ns: u64, now: u64) {
        for request in &mut self.in_flight {
            request.due_ns = (request.due_ns + pause_ns).min(now);
            request.sent_ns = (request.sent_ns + pause_ns).min(now);
        }
    }

    /// The phase of the oldest request.
    pub(crate) fn phase(&self) -> Phase {
        if let (Some(http2), false) = (&self.http2, self.in_flight.is_empty()) {
            return http2.phase();
        }
        match (self.in_flight.is_empty(), self.bytes) {
            (true, _) => Phase::Idle,
            (false, 0) => Phase::FirstByte,
            (false, _) => Phase::Body,
        }
    }

    /// Starts over on another socket, with no requests in flight.
    pub(crate) fn reset(&mut self) {
        self.in_flight.clear();
        self.reader = ResponseReader::default();
        self.bytes = 0;
        self.head = None;
        self.first_bytes = Vec::new();
        if let Some(http2) = &mut self.http2 {
            http2.reset();
        }
    }

    /// The response to the only request in flight, if `input` is exactly that and matches its
    /// template. Nearly every read takes this cheap path; [`Connection::take`] would give the same
    /// result.
    #[inline(always)]
    pub(crate) fn recognise(&mut self, input: &[u8], mix: &mut RequestMix) -> Option<Recognised> {
        if self.in_flight.len() != 1 || self.bytes != 0 || !self.reader.is_between_responses() {
            return None;
        }
        let request = *self.in_flight.front()?;
        let (head, length) = mix.template(request.turn).recognise(input)?;
        if length != input.len() {
            return None;
        }
        self.in_flight.clear();
        Some(Recognised { request, status: head.status, keep_alive: head.keep_alive })
    }

    /// Consumes bytes from the front of `input`, up to the end of a response.
    #[inline]
    pub(crate) fn take(&mut self, input: &mut &[u8], mix: &mut RequestMix) -> Step {
        if input.is_empty() && self.reader.is_between_responses() {
            return Step::NeedMore;
        }
        let Some(&request) = self.in_flight.front() else {
            return Step::Broken(Broken {
                failure: Failure::BadFraming,
                phase: Phase::Idle,
                why: "unexpected bytes without a request",
                first_bytes: first_bytes(input),
            });
        };
        let step = self.take_response(input, request, mix);
        mix.done(request.turn);
        step
    }

    fn take_response(
        &mut self,
        input: &mut &[u8],
        request: InFlight,
        mix: &mut RequestMix,
    ) -> Step {
        if self.reader.is_between_responses() && self.bytes == 0 {
            let template = &mut mix.get(request.turn).template;
            if let Some((head, length)) = template.recognise(input) {
                *input = &input[length..];
                self.in_flight.pop_front();
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
                    // Some bytes of a response have arrived.
                    let (phase, first_bytes) = (Phase::Body, first_bytes(&seen));
                    return Step::Broken(Broken { failure, phase, why, first_bytes });
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
            (mismatch, first_bytes)
        });
        self.in_flight.pop_front();
        let bytes = std::mem::take(&mut self.bytes);
        Completed { request, status: head.status, keep_alive: head.keep_alive, bytes, wrong }
    }

    /// Handles the server closing the connection. Returns the response that this completes, if any.
    /// A close without a request in flight is not a failure.
    pub(crate) fn close(
        &mut self,
        mix: &mut RequestMix,
    ) -> Result<Option<Completed>, (Failure, Phase)> {
        let Some(&request) = self.in_flight.front() else { return Ok(None) };
        if self.http2.is_some() {
            return Err((Failure::ClosedEarly, self.phase()));
        }
        match self.reader.close() {
            Ok(()) => {
                let prepared = mix.get(request.turn);
                let result = self.check.finish(&prepared.expect, prepared.is_head);
                mix.done(request.turn);
                Ok(Some(self.complete(request, result, &[])))
            }
            Err(_) => Err((Failure::ClosedEarly, self.phase())),
        }
    }

    /// Whether the current body is delimited by the end of the connection.
    pub(crate) fn is_until_close(&self) -> bool {
        self.reader.is_until_close()
    }

    /// How many bytes may be discarded unread: the rest of a body of known length whose contents
    /// are not checked.
    pub(crate) fn skippable(&self) -> u64 {
        match self.reader.remaining() {
            Some(rest) if self.check.skips_body() && self.head.is_some() => rest,
            _ => 0,
        }
    }

    /// Accounts for bytes that were discarded unread. [`Connection::take`] tells whether they
    /// completed the response.
    pub(crate) fn skip(&mut self, count: u64) {
        self.reader.skip(count);
        self.check.skip(count);
        self.bytes += count;
    }
}

/// Whether bytes start with the head of the final response, without an interim response before it.
fn starts_with_head(response: &[u8], head: &Head) -> bool {
    response.get(9..12).is_some_and(|code| code == head.status.to_string().as_bytes())
}

/// The part of some bytes to keep as evidence.
fn first_bytes(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len().min(EVIDENCE)].to_vec()
}
