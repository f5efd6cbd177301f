//! The protocol on one connection, as a state machine without sockets or clock: bytes in, responses
//! out.
//!
//! A connection knows the requests in flight, in order, whatever the protocol. One of two machines
//! says which of them the incoming bytes answer.

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
    /// Which one it is.
    pub(crate) turn: Turn,
    /// When it was due. In a closed loop, when it was sent.
    pub(crate) due_ns: u64,
    /// When it was sent, or connecting for it began.
    pub(crate) sent_ns: u64,
}

impl InFlight {
    /// When its latency begins: when it was due in an open loop, else when it was sent.
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
    /// Its bytes on the wire, including interim responses.
    pub(crate) bytes: u64,
    /// How it is wrong, if it is. Boxed, so that a correct response is small.
    pub(crate) wrong: Option<Box<Wrong>>,
}

/// A complete response that is not the expected one.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// How it differs from the expected response.
    pub(crate) mismatch: Mismatch,
    pub(crate) first_bytes: Vec<u8>,
}

/// Why a connection cannot be used any more.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) failure: Failure,
    pub(crate) phase: Phase,
    pub(crate) why: &'static str,
    /// The request whose response was malformed, if that is known, and the first bytes of the
    /// response.
    pub(crate) turn: Option<Turn>,
    pub(crate) first_bytes: Vec<u8>,
}

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
    /// All bytes are consumed.
    NeedMore,
    Completed(Completed),
    /// HTTP/2: a request failed; the connection goes on.
    Failed(FailedStream),
    /// HTTP/2: the server did not process a request, which waits for a stream again.
    Refused,
    /// The connection cannot be used any more.
    Broken(Broken),
}

/// A request that failed alone.
#[derive(Debug)]
pub(crate) struct FailedStream {
    pub(crate) request: InFlight,
    pub(crate) failure: Failure,
    pub(crate) phase: Phase,
    /// Why the response is malformed, or the code of a reset.
    pub(crate) why: Why,
}

/// Why a request failed alone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Why {
    Malformed(&'static str),
    Reset(ErrorCode),
}

/// One connection.
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

/// The limits of HTTP/2 for a plan, or `None` in HTTP/1.1.
pub(crate) fn limits(plan: &Plan, mix: &RequestMix) -> Option<Limits> {
    (plan.target.protocol == Protocol::Http2).then(|| Limits {
        streams: plan.shape.pipeline as u32,
        first_streams: 1,
        table_size: mix.table_size(),
        ..Limits::default()
    })
}

impl Connection {
    /// A connection that speaks HTTP/2 within limits. Without any, HTTP/1.1.
    pub(crate) fn new(limits: Option<Limits>) -> Self {
        let machine = match limits {
            None => Machine::Http1(Http1::default()),
            Some(limits) => Machine::Http2(Box::new(Http2::new(limits))),
        };
        Self { in_flight: VecDeque::new(), machine }
    }

    /// The state of HTTP/2, if that is the protocol.
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

    /// Whether another request may be sent, if at most `limit` may be in flight.
    #[inline]
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        let in_flight = self.in_flight.len();
        match &self.machine {
            Machine::Http1(_) => in_flight < limit,
            Machine::Http2(http2) => in_flight < limit && http2.room() > in_flight - http2.sent(),
        }
    }

    /// HTTP/2: opens streams for the requests in flight that have none, as far as the server
    /// allows; returns for how many. The others wait.
    pub(crate) fn open_streams(&mut self, mix: &mut RequestMix) -> usize {
        let Machine::Http2(http2) = &mut self.machine else { return 0 };
        let before = http2.sent();
        while let Some(request) = self.in_flight.get(http2.sent())
            && http2.send(request, mix)
        {}
        http2.sent() - before
    }

    /// HTTP/2: gives up the oldest request, and removes it.
    pub(crate) fn cancel_oldest(&mut self) -> Option<(InFlight, Phase)> {
        let Machine::Http2(http2) = &mut self.machine else { return None };
        http2.cancel_oldest(&mut self.in_flight)
    }

    /// HTTP/2: the requests to send again on another connection, which are those that the server
    /// has said it did not process.
    pub(crate) fn take_retries(&mut self) -> VecDeque<InFlight> {
        match self.http2() {
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

    /// The response to the only request in flight, if `input` is exactly that and matches its
    /// template. Nearly every read in HTTP/1.1 takes this cheap path. [`Connection::take`] would
    /// give the same result.
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

    /// Handles the server closing the connection. Returns the response that this completes, if any.
    /// A close without a request in flight is not a failure.
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

    /// Whether the current body is delimited by the end of the connection.
    pub(crate) fn is_until_close(&self) -> bool {
        matches!(&self.machine, Machine::Http1(http1) if http1.is_until_close())
    }

    /// How many bytes may be discarded unread: the rest of a body of known length whose contents
    /// are not checked.
    pub(crate) fn skippable(&self) -> u64 {
        match &self.machine {
            Machine::Http1(http1) => http1.skippable(),
            Machine::Http2(_) => 0,
        }
    }

    /// Accounts for bytes that were discarded unread. [`Connection::take`] tells whether they
    /// completed the response.
    pub(crate) fn skip(&mut self, count: u64) {
        if let Machine::Http1(http1) = &mut self.machine {
            http1.skip(count);
        }
    }
}
