//! The slots of one worker: which ones are open, which are free, and which to open next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::ops::{Index, IndexMut, Range};

use super::slot::{Slot, State};
use crate::http2::Limits;
use crate::io::Socket;
use crate::tls::TlsConnection;

/// At the start, a worker opens this many connections at once and waits this long before the next
/// batch. A server's accept queue may hold only 50 connections, and a connection that finds it full
/// is retried by the system only after a second (tcp(7), RFC 6298 section 2).
const BATCH: usize = 16;
const BATCH_INTERVAL_NS: u64 = 1_000_000;

/// On this machine a connection opens within microseconds. One that takes longer than this has
/// found the accept queue full, and is retried at once instead of after the system's second.
const QUEUE_FULL_NS: u64 = 25_000_000;

/// The pause before a failed connection is reopened, and how often it doubles: 1 ms to 128 ms.
const PAUSE_NS: u64 = 1_000_000;
const MAX_DOUBLINGS: u32 = 7;

/// The slots of one worker.
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Slots that wait for a request to be due, longest wait first.
    free: VecDeque<u32>,
    /// Slots to be reopened, as (time, slot), earliest on top.
    reopen: BinaryHeap<Reverse<(u64, u32)>>,
    /// The next slot to open for the first time, and when.
    next_new: usize,
    next_new_ns: u64,
    /// When to check for connections that found the accept queue full; never if the server is on
    /// another machine, where connecting may take longer.
    retry_ns: u64,
    /// Slots that are connecting, TLS handshake included.
    connecting: usize,
    /// Slots that are open.
    pub(super) open: u64,
    /// Slots that have been open at least once.
    pub(super) reached: u64,
    /// Slots that have neither been open nor failed yet.
    unsettled: usize,
    /// Attempts to connect.
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
    /// A slot for each of these local addresses. With `limits`, connections speak HTTP/2.
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

    /// Whether all slots have been open, or have failed, at least once.
    #[inline]
    pub(super) fn are_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// When to open a slot next.
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        let new = if self.next_new < self.slots.len() { self.next_new_ns } else { u64::MAX };
        let retry = if self.are_settled() { u64::MAX } else { self.retry_ns };
        let reopen = self.reopen.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        new.min(retry).min(reopen)
    }

    /// Whether there are slots to open for the first time now.
    #[inline]
    pub(super) fn has_new(&self, now: u64) -> bool {
        self.next_new < self.slots.len() && now >= self.next_new_ns
    }

    /// The slots to open for the first time now.
    pub(super) fn take_new(&mut self, now: u64) -> Range<usize> {
        self.next_new_ns = now + BATCH_INTERVAL_NS;
        let room = BATCH.saturating_sub(self.connecting);
        let end = (self.next_new + room).min(self.slots.len());
        std::mem::replace(&mut self.next_new, end)..end
    }

    /// Queues a slot for reopening; the pause grows with its failures.
    pub(super) fn reopen_later(&mut self, number: usize, now: u64) {
        let slot = &mut self.slots[number];
        slot.state = State::Reopening;
        let pause = match slot.failed {
            0 => 0,
            failed => PAUSE_NS << (failed - 1).min(MAX_DOUBLINGS),
        };
        self.reopen.push(Reverse((now + pause, number as u32)));
    }

    /// A slot to reopen now.
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

    /// The slots to check for connections that found the accept queue full.
    pub(super) fn take_retry(&mut self, now: u64) -> Range<usize> {
        if self.are_settled() || now < self.retry_ns {
            return 0..0;
        }
        self.retry_ns = now + QUEUE_FULL_NS;
        0..self.next_new
    }

    /// Whether a slot has been connecting for so long that the accept queue must be full.
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

    /// Adds a slot to the list of free ones.
    pub(super) fn list(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        if !slot.is_listed {
            slot.is_listed = true;
            self.free.push_back(number as u32);
        }
    }

    /// Takes the slot that has been free for longest. It may have been closed since.
    pub(super) fn take_listed(&mut self) -> Option<usize> {
        let number = self.free.pop_front()? as usize;
        self.slots[number].is_listed = false;
        Some(number)
    }

    /// Whether any slot waits for a request to be due.
    #[inline]
    pub(super) fn has_listed(&self) -> bool {
        !self.free.is_empty()
    }

    /// The slots in the list of free ones.
    pub(super) fn listed(&self) -> impl Iterator<Item = &Slot> {
        self.free.iter().map(|&number| &self.slots[number as usize])
    }
}
