//! The protocol on one connection, as a state machine without sockets or clock. Bytes go in, and
//! responses come out.
//!
//! A connection knows its requests in flight, in order, in either protocol. A state machine for
//! HTTP/1.1 or HTTP/2 decides which of the requests the incoming bytes answer.

mod http1;
mod http2;

use std::collections::VecDeque;

use self::http1::Http1;
pub(crate) use self::http2::Http2;
use crate::expected::Mismatch;
use crate::http2::{ErrorCode, Limits};
use crate::outcome::{Failure, Phase};
use crate::plan::{Plan, Protocol};
use crate::requests::{RequestMix, Turn};

/// The maximum number of bytes of a wrong response to keep as evidence.
pub(crate) const EVIDENCE: usize = 512;

/// A request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlight {
    /// The position of the request in the worker's sequence.
    pub(crate) turn: Turn,
    /// When the request was due. In a closed loop, when it was sent.
    pub(crate) due_ns: u64,
    /// When the request was sent, or when connecting for it began.
    pub(crate) sent_ns: u64,
}

impl InFlight {
    /// Returns when the latency begins: when the request was due in an open loop, and when it was
    /// sent in a closed loop.
    pub(crate) fn start_ns(&self, is_open_loop: bool) -> u64 {
        if is_open_loop { self.due_ns } else { self.sent_ns }
    }
}

/// A complete response, with the request that it answers.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) request: InFlight,
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    /// The number of bytes of the response, including interim responses. TLS is not counted.
    pub(crate) bytes: u64,
    /// How the response is wrong. `None` if it is correct. Boxed to keep a correct response small.
    pub(crate) wrong: Option<Box<Wrong>>,
}

/// A complete response that is not the expected one.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// How the response differs from the expected one.
    pub(crate) mismatch: Mismatch,
    pub(crate) first_bytes: Vec<u8>,
}

/// The reason why a connection cannot be used any more.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) failure: Failure,
    pub(crate) phase: Phase,
    pub(crate) why: &'static str,
    /// The request whose response was malformed, if that request is known.
    pub(crate) turn: Option<Turn>,
    /// The first bytes of the malformed response.
    pub(crate) first_bytes: Vec<u8>,
}

/// A response that matched the template and is therefore correct.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recognised {
    pub(crate) request: InFlight,
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
}

/// The result of [`Connection::take`].
#[derive(Debug)]
pub(crate) enum Step {
    /// All bytes are consumed, and no response is complete yet.
    NeedMore,
    Completed(Completed),
    /// HTTP/2: a request failed, and the connection continues.
    Failed(FailedStream),
    /// HTTP/2: the server did not process a request. The request waits for a new stream.
    Refused,
    /// The connection cannot be used any more.
    Broken(Broken),
}

/// A request that failed while its connection continued.
#[derive(Debug)]
pub(crate) struct FailedStream {
    pub(crate) request: InFlight,
    pub(crate) failure: Failure,
    pub(crate) phase: Phase,
    /// Why the response is malformed, or the error code of a reset.
    pub(crate) why: Why,
}

/// The reason why a request failed while its connection continued.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Why {
    Malformed(&'static str),
    Reset(ErrorCode),
}

/// A connection: its requests in flight and the state of its protocol.
#[derive(Debug)]
pub(crate) struct Connection {
    in_flight: VecDeque<InFlight>,
    machine: Machine,
}

#[derive(Debug)]
enum Machine {
    Http1(Http1),
    Http2(Box<Http2>),
}

/// Returns the limits of HTTP/2 for a plan. Returns `None` for HTTP/1.1.
pub(crate) fn limits(plan: &Plan, mix: &RequestMix) -> Option<Limits> {
    (plan.target.protocol == Protocol::Http2).then(|| Limits {
        streams: plan.shape.pipeline as u32,
        first_streams: 1,
        table_size: mix.table_size(),
        ..Limits::default()
    })
}

impl Connection {
    /// Creates a connection that speaks HTTP/2 within `limits`, or HTTP/1.1 without limits.
    pub(crate) fn new(limits: Option<Limits>) -> Self {
        let machine = match limits {
            None => Machine::Http1(Http1::default()),
            Some(limits) => Machine::Http2(Box::new(Http2::new(limits))),
        };
        Self { in_flight: VecDeque::new(), machine }
    }

    /// Returns the state of HTTP/2, if that is the protocol.
    #[inline]
    pub(crate) fn http2(&self) -> Option<&Http2> {
        match &self.machine {
            Machine::Http1(_) => None,
            Machine::Http2(http2) => Some(http2),
        }
    }

    #[inline]
    pub(crate) fn http2_mut(&mut self) -> Option<&mut Http2> {
        match &mut self.machine {
            Machine::Http1(_) => None,
            Machine::Http2(http2) => Some(http2),
        }
    }

    /// Returns whether another request may be sent, if at most `limit` may be in flight.
    #[inline]
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        let in_flight = self.in_flight.len();
        match &self.machine {
            Machine::Http1(_) => in_flight < limit,
            Machine::Http2(http2) => in_flight < limit && http2.room() > in_flight - http2.sent(),
        }
    }

    /// HTTP/2: opens streams for the requests in flight that have none, as far as the server
    /// allows. The other requests wait. Returns the number of opened streams.
    pub(crate) fn open_streams(&mut self, mix: &mut RequestMix) -> usize {
        let Machine::Http2(http2) = &mut self.machine else { return 0 };
        let before = http2.sent();
        while let Some(request) = self.in_flight.get(http2.sent())
            && http2.send(request, mix)
        {}
        http2.sent() - before
    }

    /// HTTP/2: cancels and removes the oldest request.
    pub(crate) fn cancel_oldest(&mut self) -> Option<(InFlight, Phase)> {
        let Machine::Http2(http2) = &mut self.machine else { return None };
        http2.cancel_oldest(&mut self.in_flight)
    }

    /// HTTP/2: takes the requests to send again on another connection, if there are any. The
    /// server has not processed these requests.
    pub(crate) fn take_retries(&mut self) -> VecDeque<InFlight> {
        match self.http2() {
            Some(http2) if http2.may_retry() => std::mem::take(&mut self.in_flight),
            _ => VecDeque::new(),
        }
    }

    /// Adds a request that is being sent to the requests in flight.
    #[inline]
    pub(crate) fn send(&mut self, request: InFlight) {
        self.in_flight.push_back(request);
    }

    /// Returns the number of requests in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the requests in flight, in the order in which they were sent.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &InFlight> {
        self.in_flight.iter()
    }

    /// Returns the request that was sent first.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<&InFlight> {
        self.in_flight.front()
    }

    /// Returns the request that was sent last.
    #[inline]
    pub(crate) fn newest(&self) -> Turn {
        self.in_flight.back().map_or_else(Turn::default, |r| r.turn)
    }

    /// Returns the last `count` requests that were sent, in order.
    pub(crate) fn last(&self, count: usize) -> impl Iterator<Item = Turn> {
        self.in_flight.iter().skip(self.in_flight.len() - count).map(|r| r.turn)
    }

    /// Moves the due and send times of all requests in flight by a pause, but not beyond `now`. No
    /// time passes for the requests while the server is stopped.
    pub(crate) fn shift(&mut self, pause_ns: u64, now: u64) {
        let shift = |ns: &mut u64| *ns = (*ns + pause_ns).min(now);
        for request in &mut self.in_flight {
            shift(&mut request.due_ns);
            shift(&mut request.sent_ns);
        }
        if let Machine::Http2(http2) = &mut self.machine {
            http2.blocked_since_ns.iter_mut().for_each(shift);
        }
    }

    /// Returns the phase of the oldest request.
    pub(crate) fn phase(&self) -> Phase {
        match &self.machine {
            _ if self.in_flight.is_empty() => Phase::Idle,
            Machine::Http1(http1) => http1.phase(),
            Machine::Http2(http2) => http2.phase(),
        }
    }

    /// Starts over on another socket, with no requests in flight.
    pub(crate) fn reset(&mut self) {
        self.in_flight.clear();
        match &mut self.machine {
            Machine::Http1(http1) => http1.reset(),
            Machine::Http2(http2) => http2.reset(),
        }
    }

    /// Returns the response to the only request in flight, if `input` is exactly one response and
    /// matches the template of the request. Without pipelining, nearly every read of a small
    /// HTTP/1.1 response takes this cheap path. [`Connection::take`] would give the same result.
    #[inline(always)]
    pub(crate) fn recognise(&mut self, input: &[u8], mix: &mut RequestMix) -> Option<Recognised> {
        let Machine::Http1(http1) = &self.machine else { return None };
        if self.in_flight.len() != 1 || !http1.is_between_responses() {
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
        match &mut self.machine {
            Machine::Http1(http1) => http1.take(input, &mut self.in_flight, mix),
            Machine::Http2(http2) => http2.take(input, &mut self.in_flight, mix),
        }
    }

    /// Handles a close by the server. Returns the response that the close completes, if any. A
    /// close without a request in flight is not a failure.
    pub(crate) fn close(
        &mut self,
        mix: &mut RequestMix,
    ) -> Result<Option<Completed>, (Failure, Phase)> {
        let completed = match &mut self.machine {
            _ if self.in_flight.is_empty() => return Ok(None),
            Machine::Http1(http1) => http1.close(&mut self.in_flight, mix),
            Machine::Http2(_) => None,
        };
        completed.map(Some).ok_or_else(|| (Failure::ClosedEarly, self.phase()))
    }

    /// Returns whether the current body is delimited by the end of the connection.
    pub(crate) fn is_until_close(&self) -> bool {
        matches!(&self.machine, Machine::Http1(http1) if http1.is_until_close())
    }

    /// Returns the number of bytes that may be discarded unread. Only a body of known length whose
    /// contents are not checked may be discarded.
    pub(crate) fn skippable(&self) -> u64 {
        match &self.machine {
            Machine::Http1(http1) => http1.skippable(),
            Machine::Http2(_) => 0,
        }
    }

    /// Accounts for bytes that were discarded unread. The next call of [`Connection::take`] tells
    /// whether they completed the response.
    pub(crate) fn skip(&mut self, count: u64) {
        if let Machine::Http1(http1) = &mut self.machine {
            http1.skip(count);
        }
    }
}
