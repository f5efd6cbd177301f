//! A slot is one of the load's connections. It may use several sockets, one after another. This
//! module tracks which slots of a worker are open and free, and decides which to open next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::ops::{Index, IndexMut, Range};

use crate::connection::Connection;
use crate::http2::Limits;
use crate::io::Socket;
use crate::outcome::{Failure, Phase};
use crate::plan::{Plan, Reuse};
use crate::tls::TlsConnection;

/// The state of a slot's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// There is no socket.
    Down,
    /// There is no socket, and the slot is in the queue to be reopened.
    Reopening,
    Connecting,
    Handshaking,
    Open,
}

/// One of the load's connections.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) state: State,
    pub(super) conn: Connection,
    socket: Option<Socket>,
    tls: Option<Box<TlsConnection>>,
    /// The bytes that did not fit into the socket.
    unsent: Vec<u8>,
    /// The local address to connect from.
    pub(super) source: Option<IpAddr>,
    /// When connecting or the TLS handshake began.
    pub(super) since_ns: u64,
    /// The number of times that the slot was closed, so that events of earlier sockets are
    /// recognised.
    pub(super) generation: u32,
    /// The number of failures in a row, without a response in between.
    pub(super) failed: u32,
    /// The start of the first attempt to connect that found the server's accept queue full. `None`
    /// once an attempt has succeeded or failed.
    pub(super) queue_full_since_ns: Option<u64>,
    /// Whether the slot is in the list of free slots.
    pub(super) is_listed: bool,
    /// Whether the slot has been open, or has failed, at least once.
    pub(super) is_settled: bool,
    /// Whether a connection is opened only when a request needs it. In HTTP/1.1, this is the case
    /// once the server has closed a kept connection without a failure. A user would wait for the
    /// connection too.
    pub(super) opens_per_request: bool,
}

/// A socket that has more to read than one turn permits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unread {
    pub(super) key: usize,
    /// Whether the peer has closed its side.
    pub(super) ended: bool,
}

impl Slot {
    /// Creates a slot that connects from this address. With `limits`, its connections speak HTTP/2.
    pub(super) fn new(source: Option<IpAddr>, limits: Option<Limits>) -> Self {
        Self {
            state: State::Down,
            conn: Connection::new(limits),
            socket: None,
            tls: None,
            unsent: Vec::new(),
            source,
            since_ns: 0,
            generation: 0,
            failed: 0,
            queue_full_since_ns: None,
            is_listed: false,
            is_settled: false,
            opens_per_request: false,
        }
    }

    /// Returns the key of the socket's events. It has 24 bits for the slot (16 million slots), and
    /// the rest for the generation of the socket.
    pub(super) fn key(&self, number: usize) -> usize {
        number | (self.generation as usize) << 24
    }

    /// Returns the number of the slot that a key belongs to, and the generation in the key.
    pub(super) fn of_key(key: usize) -> (usize, u32) {
        (key & 0xff_ffff, (key >> 24) as u32)
    }

    /// Assigns a socket that is connecting.
    pub(super) fn connect(&mut self, socket: Socket, tls: Option<Box<TlsConnection>>, now: u64) {
        self.socket = Some(socket);
        self.tls = tls;
        self.since_ns = now;
        self.state = State::Connecting;
    }

    /// Closes the socket and discards all state of the connection.
    pub(super) fn drop_socket(&mut self) {
        self.socket = None;
        self.tls = None;
        self.unsent = Vec::new();
        self.conn.reset();
        self.generation = self.generation.wrapping_add(1);
        self.state = State::Down;
    }

    /// Tells the server that the client ends TLS, as RFC 8446 section 6.1 demands.
    pub(super) fn end_tls(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        if self.state == State::Open {
            tls.close();
            // The server may have closed the connection already. The socket is closed in any case.
            let _ = self.flush();
        }
    }

    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// Returns whether the connection does not use TLS.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    pub(super) fn tls(&mut self) -> Option<&mut TlsConnection> {
        self.tls.as_deref_mut()
    }

    /// Returns whether the connection ended within a response that its end delimits, without a
    /// `close_notify` from TLS. Anyone on the path can truncate such a response (RFC 8446 section
    /// 6.1, RFC 9112 section 9.8).
    pub(super) fn is_truncated(&self) -> bool {
        self.conn.is_until_close() && self.tls.as_ref().is_some_and(|tls| !tls.peer_has_closed())
    }

    /// Returns whether a request may be sent on the slot now.
    #[inline]
    pub(super) fn can_send(&self, plan: &Plan) -> bool {
        match self.state {
            State::Open => self.conn.has_room(plan.shape.pipeline),
            State::Down => plan.shape.reuse == Reuse::Close || self.opens_per_request,
            _ => false,
        }
    }

    /// Returns whether the oldest request was sent more than `after_ns` ago, and no byte of its
    /// response has arrived.
    pub(super) fn is_stalled(&self, now: u64, after_ns: u64) -> bool {
        self.conn.phase() != Phase::Body
            && self.conn.oldest().is_some_and(|r| now.saturating_sub(r.sent_ns) > after_ns)
    }

    /// Returns whether bytes are waiting for room in the socket.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Moves all times of the slot by a pause, but not beyond `now`.
    pub(super) fn shift(&mut self, pause_ns: u64, now: u64) {
        let shift = |ns: u64| (ns + pause_ns).min(now);
        self.conn.shift(pause_ns, now);
        self.since_ns = shift(self.since_ns);
        self.queue_full_since_ns = self.queue_full_since_ns.map(shift);
    }

    /// Sends bytes, and keeps the bytes that do not fit. Returns the number of bytes sent.
    #[inline(always)]
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<u64, Failure> {
        if let Some(tls) = &mut self.tls {
            tls.send(bytes).map_err(|_| Failure::Tls)?;
            return self.flush();
        }
        if self.has_unsent() {
            self.unsent.extend_from_slice(bytes);
            return Ok(0);
        }
        let Some(socket) = &self.socket else { return Err(Failure::Other) };
        let sent = socket.send(bytes)?;
        if sent < bytes.len() {
            self.unsent.extend_from_slice(&bytes[sent..]);
        }
        Ok(sent as u64)
    }

    /// Sends the frames that are ready. Returns the number of bytes sent.
    pub(super) fn send_frames(&mut self) -> Result<u64, Failure> {
        let Some(http2) = self.conn.http2_mut() else { return Ok(0) };
        let mut frames = http2.take_out();
        let sent = self.send(&frames);
        frames.clear();
        if let Some(http2) = self.conn.http2_mut() {
            http2.give_back(frames);
        }
        sent
    }

    /// Sends the bytes that are waiting. Returns the number of bytes sent.
    pub(super) fn flush(&mut self) -> Result<u64, Failure> {
        if let Some(tls) = &mut self.tls {
            tls.drain(&mut self.unsent);
        }
        let Some(socket) = &self.socket else { return Ok(0) };
        let mut sent = 0;
        while sent < self.unsent.len() {
            match socket.send(&self.unsent[sent..])? {
                0 => break,
                count => sent += count,
            }
        }
        self.unsent.drain(..sent);
        if self.unsent.is_empty() && self.unsent.capacity() > 4096 {
            // An idle connection should not keep a large buffer.
            self.unsent = Vec::new();
        }
        Ok(sent as u64)
    }
}

/// The number of connections that a worker opens at once at the start. A server's accept queue may
/// hold only 50 connections. If a connection finds the queue full, the system retries it only after
/// a second (tcp(7), RFC 6298 section 2).
const BATCH: usize = 16;
/// The time to wait before the next batch of connections.
const BATCH_INTERVAL_NS: u64 = 1_000_000;

/// The time after which a connection on this machine must have found the accept queue full, because
/// connections open within microseconds. The worker then retries the connection at once, instead of
/// waiting for the system's retry after a second.
const QUEUE_FULL_NS: u64 = 25_000_000;

/// The first pause before a failed connection is reopened: 1 ms.
const PAUSE_NS: u64 = 1_000_000;
/// The number of times that the pause doubles, up to 128 ms.
const MAX_DOUBLINGS: u32 = 7;

/// The slots of one worker.
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// The slots that wait for a request to be due, the longest wait first.
    free: VecDeque<u32>,
    /// The slots to be reopened, as (time, slot), the earliest on top.
    reopen: BinaryHeap<Reverse<(u64, u32)>>,
    /// The next slot to open for the first time.
    next_new: usize,
    /// When to open the next batch of slots.
    next_new_ns: u64,
    /// When to check for connections that found the accept queue full. Never if the server is on
    /// another machine, where connecting may take longer.
    retry_ns: u64,
    /// The number of slots that are connecting, including the TLS handshake.
    connecting: usize,
    /// The number of slots that are open.
    pub(super) open: u64,
    /// The number of slots that opened without failing first.
    pub(super) reached: u64,
    /// The number of slots that have neither been open nor failed yet.
    unsettled: usize,
    /// The number of attempts to connect.
    pub(super) attempts: u64,
}

impl Index<usize> for Slots {
    type Output = Slot;

    #[inline(always)]
    fn index(&self, number: usize) -> &Slot {
        &self.slots[number]
    }
}

impl IndexMut<usize> for Slots {
    #[inline(always)]
    fn index_mut(&mut self, number: usize) -> &mut Slot {
        &mut self.slots[number]
    }
}

impl Slots {
    /// Creates a slot for each of these local addresses. With `limits`, the connections speak
    /// HTTP/2.
    pub(super) fn new(
        sources: impl Iterator<Item = Option<IpAddr>>,
        is_local: bool,
        limits: Option<Limits>,
    ) -> Self {
        let slots: Vec<Slot> = sources.map(|source| Slot::new(source, limits)).collect();
        Self {
            free: VecDeque::new(),
            reopen: BinaryHeap::new(),
            next_new: 0,
            next_new_ns: 0,
            retry_ns: if is_local { 0 } else { u64::MAX },
            connecting: 0,
            open: 0,
            reached: 0,
            unsettled: slots.len(),
            attempts: 0,
            slots,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut()
    }

    /// Returns whether all slots have been open, or have failed, at least once.
    #[inline]
    pub(super) fn are_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// Returns when to open or retry a slot next.
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        let new = if self.next_new < self.slots.len() { self.next_new_ns } else { u64::MAX };
        let retry = if self.are_settled() { u64::MAX } else { self.retry_ns };
        let reopen = self.reopen.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        new.min(retry).min(reopen)
    }

    /// Returns whether there are slots to open for the first time now.
    #[inline]
    pub(super) fn has_new(&self, now: u64) -> bool {
        self.next_new < self.slots.len() && now >= self.next_new_ns
    }

    /// Takes the slots to open for the first time now.
    pub(super) fn take_new(&mut self, now: u64) -> Range<usize> {
        self.next_new_ns = now + BATCH_INTERVAL_NS;
        let room = BATCH.saturating_sub(self.connecting);
        let end = (self.next_new + room).min(self.slots.len());
        std::mem::replace(&mut self.next_new, end)..end
    }

    /// Queues a slot for reopening. The pause grows with the slot's failures in a row.
    pub(super) fn reopen_later(&mut self, number: usize, now: u64) {
        let slot = &mut self.slots[number];
        slot.state = State::Reopening;
        let pause = match slot.failed {
            0 => 0,
            failed => PAUSE_NS << (failed - 1).min(MAX_DOUBLINGS),
        };
        self.reopen.push(Reverse((now + pause, number as u32)));
    }

    /// Takes a slot to reopen now.
    pub(super) fn take_reopen(&mut self, now: u64) -> Option<usize> {
        let Reverse((at, number)) = *self.reopen.peek()?;
        if at > now {
            return None;
        }
        self.reopen.pop();
        let slot = &mut self.slots[number as usize];
        debug_assert_eq!(slot.state, State::Reopening);
        slot.state = State::Down;
        Some(number as usize)
    }

    /// Takes the slots to check for connections that found the accept queue full.
    pub(super) fn take_retry(&mut self, now: u64) -> Range<usize> {
        if self.are_settled() || now < self.retry_ns {
            return 0..0;
        }
        self.retry_ns = now + QUEUE_FULL_NS;
        0..self.next_new
    }

    /// Returns whether a slot has been connecting for so long that the accept queue must be full.
    pub(super) fn found_queue_full(&self, number: usize, now: u64) -> bool {
        let slot = &self.slots[number];
        slot.state == State::Connecting && now >= slot.since_ns + QUEUE_FULL_NS
    }

    /// Records that a slot starts connecting.
    pub(super) fn started(
        &mut self,
        number: usize,
        socket: Socket,
        tls: Option<Box<TlsConnection>>,
        now: u64,
    ) {
        self.attempts += 1;
        self.connecting += 1;
        self.slots[number].connect(socket, tls, now);
    }

    /// Records that a slot is open.
    pub(super) fn opened(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        slot.state = State::Open;
        self.connecting -= 1;
        self.open += 1;
        self.reached += u64::from(!slot.is_settled);
        self.settle(number);
    }

    /// Closes the socket of a slot, if it has one.
    pub(super) fn close(&mut self, number: usize) {
        match self.slots[number].state {
            State::Open => self.open -= 1,
            State::Connecting | State::Handshaking => self.connecting -= 1,
            State::Down | State::Reopening => {}
        }
        self.slots[number].drop_socket();
    }

    /// Records that a slot has been open or has failed.
    pub(super) fn settle(&mut self, number: usize) {
        if !self.slots[number].is_settled {
            self.slots[number].is_settled = true;
            self.unsettled -= 1;
        }
    }

    /// Adds a slot to the list of free slots.
    pub(super) fn list(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        if !slot.is_listed {
            slot.is_listed = true;
            self.free.push_back(number as u32);
        }
    }

    /// Takes the slot that has been free for longest. The slot may have been closed since.
    pub(super) fn take_listed(&mut self) -> Option<usize> {
        let number = self.free.pop_front()? as usize;
        self.slots[number].is_listed = false;
        Some(number)
    }

    /// Returns whether any slot waits for a request to be due.
    #[inline]
    pub(super) fn has_listed(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the slots in the list of free slots.
    pub(super) fn listed(&self) -> impl Iterator<Item = &Slot> {
        self.free.iter().map(|&number| &self.slots[number as usize])
    }
}
