//! HTTP/2 on one connection: which request each stream carries, and the check of its response.
//!
//! The requests of the connection are in the order in which they were sent. Streams may end in any
//! order. Most streams end in the order in which they began, so a search from the front finds them
//! at once.

use std::collections::VecDeque;

use super::{Broken, Completed, EVIDENCE, FailedStream, InFlight, Step, Why, Wrong};
use crate::expected::Check;
use crate::http2::{ClientConnection, ErrorCode, Limits, StreamEvent};
use crate::outcome::{Failure, Phase};
use crate::requests::{RequestMix, Turn};

/// The state of HTTP/2 on one connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    client: ClientConnection,
    limits: Limits,
    /// The streams of the first requests in flight. The other requests have not been sent yet.
    streams: VecDeque<Stream>,
    next_tag: u32,
    /// Bytes to send.
    out: Vec<u8>,
    /// The error code of the server's GOAWAY. After a GOAWAY, the server accepts no more requests
    /// on this connection.
    goaway: Option<ErrorCode>,
    /// Whether at least one response has been completed on this connection.
    has_answered: bool,
    /// The time at which bytes last arrived.
    pub(crate) received_ns: u64,
    /// When a check for timeouts first found that the server allows no stream on the idle
    /// connection. `None` if the last check found otherwise.
    pub(crate) blocked_since_ns: Option<u64>,
}

/// The stream of a request.
#[derive(Debug)]
struct Stream {
    tag: u32,
    id: u32,
    status: u16,
    /// Whether the head of the response has arrived.
    has_head: bool,
    /// Whether the server has said that it will not process the request.
    is_refused: bool,
    check: Check,
    /// The first bytes of the body, from the first wrong part on.
    evidence: Vec<u8>,
}

impl Stream {
    fn phase(&self) -> Phase {
        if self.has_head { Phase::Body } else { Phase::FirstByte }
    }

    /// Begins to check the response to a request.
    #[inline]
    fn head(&mut self, status: u16, length: Option<u64>, turn: Turn, mix: &mut RequestMix) {
        let skips_body = mix.skips_next_body();
        let prepared = mix.get(turn);
        let is_head = prepared.is_head;
        self.check = Check::new(status, length, &prepared.expect, is_head, skips_body);
        (self.status, self.has_head) = (status, true);
    }

    /// Checks a part of the body.
    #[inline]
    fn data(&mut self, data: &[u8], turn: Turn, mix: &mut RequestMix) {
        self.check.data(data, &mix.get(turn).expect);
        if self.check.is_wrong() {
            let room = EVIDENCE.saturating_sub(self.evidence.len()).min(data.len());
            self.evidence.extend_from_slice(&data[..room]);
        }
    }
}

/// Removes the element at an index. The index is usually 0, where `pop_front` costs less.
#[inline]
fn remove<T>(queue: &mut VecDeque<T>, at: usize) -> Option<T> {
    if at == 0 { queue.pop_front() } else { queue.remove(at) }
}

impl Http2 {
    /// Creates the state of a connection on which nothing has been sent.
    pub(crate) fn new(limits: Limits) -> Self {
        let mut http2 = Self {
            client: ClientConnection::new(limits),
            limits,
            streams: VecDeque::new(),
            next_tag: 0,
            out: Vec::new(),
            goaway: None,
            has_answered: false,
            received_ns: 0,
            blocked_since_ns: None,
        };
        http2.client.open(&mut http2.out);
        http2
    }

    /// Starts over on another socket.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.limits);
    }

    /// Returns the number of further requests that may be sent now.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.client.can_open()
    }

    /// Returns the number of requests in flight that have been sent.
    #[inline]
    pub(crate) fn sent(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of requests in flight whose response has begun.
    pub(crate) fn begun(&self) -> usize {
        self.streams.iter().filter(|stream| stream.has_head).count()
    }

    /// Returns whether a response has been completed on this connection.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Returns the phase of the oldest request. A request without a stream has not been sent yet.
    pub(super) fn phase(&self) -> Phase {
        self.streams.front().map_or(Phase::Send, Stream::phase)
    }

    /// Takes the bytes to send.
    pub(crate) fn take_out(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Gives back the buffer that [`take_out`](Self::take_out) returned, so that its memory is
    /// reused.
    pub(crate) fn give_back(&mut self, empty: Vec<u8>) {
        self.out = empty;
    }

    /// Returns whether there are bytes to send.
    #[inline]
    pub(crate) fn has_out(&self) -> bool {
        !self.out.is_empty()
    }

    /// Opens a stream for the next request that has not been sent. Returns whether a stream could
    /// be opened.
    pub(super) fn send(&mut self, request: &InFlight, mix: &mut RequestMix) -> bool {
        let tag = self.next_tag;
        let (form, is_head) = (self.client.form(), mix.is_head(request.turn));
        let (block, body) = mix.http2(request.turn, form);
        let Some(id) = self.client.request(tag, block, body, is_head, &mut self.out) else {
            return false;
        };
        self.next_tag = tag.wrapping_add(1);
        self.streams.push_back(Stream {
            tag,
            id,
            status: 0,
            has_head: false,
            is_refused: false,
            check: Check::default(),
            evidence: Vec::new(),
        });
        true
    }

    fn position(&self, tag: u32) -> usize {
        // The stream is usually the first. An iterator over both parts of the queue costs more.
        let found = (0..self.streams.len()).find(|at| self.streams[*at].tag == tag);
        found.expect("events have the tag of an open stream")
    }

    /// Consumes frames from the front of `input`, up to the end of a response.
    pub(super) fn take(
        &mut self,
        input: &mut &[u8],
        requests: &mut VecDeque<InFlight>,
        mix: &mut RequestMix,
    ) -> Step {
        loop {
            match self.client.take(input, &mut self.out) {
                StreamEvent::NeedMore => return Step::NeedMore,
                StreamEvent::Head { tag, status, length, .. } => {
                    let at = self.position(tag);
                    self.streams[at].head(status, length, requests[at].turn, mix);
                }
                StreamEvent::Data { tag, data } => {
                    let at = self.position(tag);
                    self.streams[at].data(data, requests[at].turn, mix);
                }
                StreamEvent::End { tag, bytes } => {
                    let at = self.position(tag);
                    self.has_answered = true;
                    let (Some(stream), Some(request)) =
                        (remove(&mut self.streams, at), remove(requests, at))
                    else {
                        continue;
                    };
                    let prepared = mix.get(request.turn);
                    let result = stream.check.finish(&prepared.expect, prepared.is_head);
                    mix.done(request.turn);
                    return Step::Completed(Completed {
                        request,
                        status: stream.status,
                        keep_alive: true,
                        bytes,
                        wrong: result.err().map(|mismatch| {
                            Box::new(Wrong { mismatch, first_bytes: stream.evidence })
                        }),
                    });
                }
                // RFC 9113 section 8.7: a refused request may be sent again. But a server that has
                // answered no request may refuse every request, so its refusals are failures.
                StreamEvent::Reset { tag, code: ErrorCode::REFUSED_STREAM }
                    if self.has_answered =>
                {
                    let at = self.position(tag);
                    self.streams.remove(at);
                    let request = requests.remove(at);
                    requests.extend(request);
                    return Step::Refused;
                }
                StreamEvent::Reset { tag, code } => {
                    return self.failed(tag, requests, Failure::StreamReset, Why::Reset(code));
                }
                StreamEvent::Malformed { tag, why } => {
                    return self.failed(tag, requests, Failure::BadFraming, Why::Malformed(why));
                }
                StreamEvent::GoAway { code, .. } => self.goaway = Some(code),
                StreamEvent::Refused { tag } => {
                    let at = self.position(tag);
                    self.streams[at].is_refused = true;
                }
                StreamEvent::Broken { why, .. } => {
                    let failure = Failure::BadFraming;
                    let phase = if requests.is_empty() { Phase::Idle } else { self.phase() };
                    let (turn, first_bytes) = (None, Vec::new());
                    return Step::Broken(Broken { failure, phase, why, turn, first_bytes });
                }
            }
        }
    }

    /// Removes a stream that failed, and its request.
    fn failed(
        &mut self,
        tag: u32,
        requests: &mut VecDeque<InFlight>,
        failure: Failure,
        why: Why,
    ) -> Step {
        let at = self.position(tag);
        let phase = self.streams[at].phase();
        self.streams.remove(at);
        match requests.remove(at) {
            Some(request) => Step::Failed(FailedStream { request, failure, phase, why }),
            None => Step::NeedMore,
        }
    }

    /// Cancels and removes the oldest request. If no request has a stream, the oldest request has
    /// not been sent yet.
    pub(super) fn cancel_oldest(
        &mut self,
        requests: &mut VecDeque<InFlight>,
    ) -> Option<(InFlight, Phase)> {
        let phase = self.phase();
        let request = requests.pop_front()?;
        if let Some(stream) = self.streams.pop_front() {
            self.client.cancel(stream.id, &mut self.out);
        }
        Some((request, phase))
    }

    /// Returns whether no more requests can be sent on this connection, and the server has
    /// responded to all requests that it accepted. No more requests can be sent after a GOAWAY, or
    /// once the identifiers of streams are used up (RFC 9113 section 5.1.1).
    pub(crate) fn is_drained(&self) -> bool {
        let is_over = self.goaway.is_some() || !self.client.has_identifiers();
        is_over && self.streams.iter().all(|stream| stream.is_refused)
    }

    /// Returns why the server ended the connection, if it sent a GOAWAY with an error code.
    pub(crate) fn ended_because(&self) -> Option<String> {
        let code = self.goaway.filter(|code| *code != ErrorCode::NO_ERROR)?;
        Some(match self.client.goaway_text() {
            "" => code.to_string(),
            text => format!("{code}, {text:?}"),
        })
    }

    /// Returns whether requests that the server did not process may be sent again on another
    /// connection (RFC 9113 section 8.7). This connection must have had a response, so that retries
    /// do not go on forever.
    pub(super) fn may_retry(&self) -> bool {
        self.is_drained() && self.has_answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Endpoint, Plan, Request, Target};

    /// Regression: no stream could be opened on the connection, but the connection was kept.
    #[test]
    fn a_connection_whose_identifiers_are_used_up_is_drained() {
        let target = Target::plain(Endpoint::Tcp(([127, 0, 0, 1], 80).into()));
        let mut mix = RequestMix::new(&Plan::new(target, Request::get("/", "test")), 0);
        let mut http2 = Http2::new(Limits::default());
        let mut requests = VecDeque::from([InFlight { turn: mix.next(), due_ns: 0, sent_ns: 0 }]);
        http2.client.skip_identifiers();
        assert!(!http2.is_drained());
        assert!(http2.send(&requests[0], &mut mix));
        assert!(!http2.is_drained(), "the last request is in flight");
        assert!(http2.cancel_oldest(&mut requests).is_some());
        assert!(http2.is_drained());
    }
}
