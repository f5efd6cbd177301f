//! One connection as a state machine: bytes in, answers out; no sockets, no clock.
//!
//! It knows which requests are in flight, in order, and which of them the incoming bytes belong to.

use std::collections::VecDeque;

use crate::book::Book;
use crate::check::{Check, Fault};
use crate::http::{Broken, Event, Head, Reader};
use crate::outcome::{Failure, Phase};

/// The most bytes of a wrong answer that are kept as evidence.
pub(crate) const EVIDENCE: usize = 512;

/// A request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flight {
    /// Which of the book's.
    pub(crate) request: u32,
    /// When it was due; in a closed loop, when it was sent.
    pub(crate) due_ns: u64,
    /// When it was sent, or connecting for it began.
    pub(crate) sent_ns: u64,
}

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) flight: Flight,
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    /// Its bytes on the wire, interim answers included.
    pub(crate) bytes: u64,
    /// What is wrong with it, and its first bytes.
    pub(crate) wrong: Option<(Fault, Vec<u8>)>,
}

/// An answer that was recognised as a whole, and so is right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) flight: Flight,
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
}

/// What came of some bytes.
#[derive(Debug)]
pub(crate) enum Step {
    /// They are taken; no answer is whole.
    More,
    Answer(Answer),
    /// The connection is of no use any more: how, where, why, and the bytes in question.
    Broken(Failure, Phase, &'static str, Vec<u8>),
}

/// One connection's conversation.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    flights: VecDeque<Flight>,
    reader: Reader,
    /// Bytes of the answer under way.
    bytes: u64,
    head: Option<Head>,
    check: Check,
    /// The first bytes of the answer under way, where it does not come in one piece.
    first: Vec<u8>,
}

impl Connection {
    /// A request is sent.
    #[inline]
    pub(crate) fn send(&mut self, flight: Flight) {
        self.flights.push_back(flight);
    }

    /// Requests in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// The one that is answered next.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<&Flight> {
        self.flights.front()
    }

    /// The requests in flight, the one that is answered next first.
    pub(crate) fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter()
    }

    /// All that is in flight was sent so much later, at `now` at the latest: for that long, time
    /// stood still.
    pub(crate) fn shift(&mut self, pause_ns: u64, now: u64) {
        for flight in &mut self.flights {
            flight.due_ns = (flight.due_ns + pause_ns).min(now);
            flight.sent_ns = (flight.sent_ns + pause_ns).min(now);
        }
    }

    /// Which request was sent last.
    #[inline]
    pub(crate) fn newest(&self) -> u32 {
        self.flights.back().map_or(0, |f| f.request)
    }

    /// Which requests were the last `count` to be sent, in order.
    pub(crate) fn last(&self, count: usize) -> impl Iterator<Item = u32> {
        self.flights.iter().skip(self.flights.len() - count).map(|f| f.request)
    }

    /// Where the oldest request stands.
    pub(crate) fn phase(&self) -> Phase {
        match (self.flights.is_empty(), self.bytes) {
            (true, _) => Phase::Idle,
            (false, 0) => Phase::FirstByte,
            (false, _) => Phase::Body,
        }
    }

    /// Starts anew on another socket: nothing is in flight.
    pub(crate) fn reset(&mut self) {
        self.flights.clear();
        self.reader = Reader::default();
        self.bytes = 0;
        self.head = None;
        self.first = Vec::new();
    }

    /// The answer to the only request in flight, if `input` is just that and looks as it always
    /// does: what nearly every read brings, and all that it costs. [`Connection::take`] says the
    /// same of it.
    #[inline(always)]
    pub(crate) fn recognise(&mut self, input: &[u8], book: &mut Book) -> Option<Known> {
        if self.flights.len() != 1 || self.bytes != 0 || !self.reader.is_fresh() {
            return None;
        }
        let flight = *self.flights.front()?;
        let (head, length) = book.entry(flight.request).layout.recognise(input)?;
        if length != input.len() {
            return None;
        }
        self.flights.clear();
        Some(Known { flight, status: head.status, keep_alive: head.keep_alive })
    }

    /// Takes bytes from the front of `input`, up to the end of an answer.
    #[inline]
    pub(crate) fn take(&mut self, input: &mut &[u8], book: &mut Book) -> Step {
        if input.is_empty() && self.reader.is_fresh() {
            return Step::More;
        }
        let Some(&flight) = self.flights.front() else {
            let why = "bytes that nobody asked for";
            return Step::Broken(Failure::BadFraming, Phase::Idle, why, evidence(input));
        };
        if self.reader.is_fresh() && self.bytes == 0 {
            let entry = book.entry(flight.request);
            if let Some((head, length)) = entry.layout.recognise(input) {
                *input = &input[length..];
                self.flights.pop_front();
                let (status, keep_alive) = (head.status, head.keep_alive);
                let bytes = length as u64;
                return Step::Answer(Answer { flight, status, keep_alive, bytes, wrong: None });
            }
        }
        self.parse(input, flight, book)
    }

    fn parse(&mut self, input: &mut &[u8], flight: Flight, book: &mut Book) -> Step {
        let whole = *input;
        let began_here = self.bytes == 0;
        let before = self.bytes;
        let is_head = book.entry(flight.request).is_head;
        loop {
            let event = self.reader.next(input, is_head);
            let taken = whole.len() - input.len();
            self.bytes = before + taken as u64;
            let entry = book.entry(flight.request);
            match event {
                Ok(Event::Head(head)) => {
                    let skips = book.skips_body();
                    let expect = &book.entry(flight.request).expect;
                    self.check = Check::head(&head, expect, is_head, skips);
                    self.head = Some(head);
                }
                Ok(Event::Data(data)) => self.check.data(data, &entry.expect),
                Ok(Event::More) => {
                    let room = EVIDENCE.saturating_sub(self.first.len()).min(taken);
                    self.first.extend_from_slice(&whole[..room]);
                    return Step::More;
                }
                Ok(Event::End) => {
                    let right = self.check.end(&entry.expect, is_head);
                    if let (Ok(()), true, Some(head)) = (right, began_here, &self.head)
                        && !self.check.skips()
                        && starts_with_head(&whole[..taken], head)
                    {
                        entry.layout.learn(&whole[..taken], head, &entry.expect.body);
                    }
                    return Step::Answer(self.end(flight, right, &whole[..taken]));
                }
                Err(broken) => {
                    let mut seen = std::mem::take(&mut self.first);
                    seen.extend_from_slice(whole);
                    let (failure, why) = kind(broken);
                    // Its first byte is here, whatever it is.
                    return Step::Broken(failure, Phase::Body, why, evidence(&seen));
                }
            }
        }
    }

    /// The answer under way is whole.
    fn end(&mut self, flight: Flight, right: Result<(), Fault>, last: &[u8]) -> Answer {
        let head = self.head.take().expect("an answer ends after its head");
        let mut first = std::mem::take(&mut self.first);
        let wrong = right.err().map(|fault| {
            first.extend_from_slice(last);
            first.truncate(EVIDENCE);
            (fault, first)
        });
        self.flights.pop_front();
        let bytes = std::mem::take(&mut self.bytes);
        Answer { flight, status: head.status, keep_alive: head.keep_alive, bytes, wrong }
    }

    /// The other side closed. An answer whose end that is, is whole; otherwise it is told whether
    /// that is a failure: closing while nothing is in flight is none.
    pub(crate) fn close(&mut self, book: &mut Book) -> Result<Option<Answer>, (Failure, Phase)> {
        let Some(&flight) = self.flights.front() else { return Ok(None) };
        match self.reader.close() {
            Ok(()) => {
                let entry = book.entry(flight.request);
                let right = self.check.end(&entry.expect, entry.is_head);
                Ok(Some(self.end(flight, right, &[])))
            }
            Err(_) => Err((Failure::ClosedEarly, self.phase())),
        }
    }

    /// Whether a body is under way that the end of the connection delimits.
    pub(crate) fn is_until_close(&self) -> bool {
        self.reader.is_until_close()
    }

    /// How many bytes of the body under way may be thrown away unread, all of which are certain to
    /// come.
    pub(crate) fn skippable(&self) -> u64 {
        match self.reader.remaining() {
            Some(rest) if self.check.skips() && self.head.is_some() => rest,
            _ => 0,
        }
    }

    /// So many were thrown away. Whether the answer is whole by that, [`Connection::take`] says.
    pub(crate) fn skip(&mut self, count: u64) {
        self.reader.skip(count);
        self.check.skip(count);
        self.bytes += count;
    }
}

/// Whether the answer's own head is at the very start: no interim answer comes before it.
fn starts_with_head(answer: &[u8], head: &Head) -> bool {
    answer.get(9..12).is_some_and(|code| code == head.status.to_string().as_bytes())
}

fn kind(broken: Broken) -> (Failure, &'static str) {
    match broken {
        Broken::Framing(why) => (Failure::BadFraming, why),
        Broken::ClosedEarly => (Failure::ClosedEarly, "closed before the answer was whole"),
    }
}

fn evidence(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len().min(EVIDENCE)].to_vec()
}
