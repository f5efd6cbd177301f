//! The streams in flight, and flow control (RFC 9113 sections 5.2 and 6.9).
//!
//! The slot of a stream is half its identifier, modulo the number of slots. The stream of a frame
//! is therefore found without a search. Identifiers whose slot is still taken are skipped, because
//! identifiers must ascend but need not be consecutive (RFC 9113 section 5.1.1). This is rare,
//! because there are at least twice as many slots as streams that may be open at a time.

use super::frame::{MAX_31_BITS, STREAM_WINDOW};

/// The maximum number of streams that a connection may have at a time.
pub(super) const MAX_STREAMS: u32 = 1024;

/// A stream with a request in flight, or a free slot.
#[derive(Debug)]
pub(super) struct Stream {
    /// The identifier of the stream. 0 in a free slot.
    pub(super) id: u32,
    /// The identifier of the last stream in this slot that the client ended early.
    abandoned: u32,
    /// The number that the caller gave to the request.
    pub(super) tag: u32,
    /// Whether the request is a HEAD.
    pub(super) is_head: bool,
    /// Whether the head of the final response has arrived.
    pub(super) has_head: bool,
    /// The number of interim responses so far.
    pub(super) interim: u8,
    /// The length of the response body, if it is known.
    pub(super) length: Option<u64>,
    /// The number of bytes of the response body so far.
    pub(super) received: u64,
    /// The number of bytes of the response's frames so far.
    pub(super) bytes: u64,
    /// The window for what the server may send.
    pub(super) receive: ReceiveWindow,
    /// The window for what the client may send.
    pub(super) send: SendWindow,
    /// The part of the request's body that flow control holds back.
    pub(super) body: Vec<u8>,
    /// The number of bytes of `body` that have been sent.
    pub(super) sent: usize,
}

impl Stream {
    fn new() -> Self {
        Self {
            id: 0,
            abandoned: 0,
            tag: 0,
            is_head: false,
            has_head: false,
            interim: 0,
            length: None,
            received: 0,
            bytes: 0,
            receive: ReceiveWindow::new(STREAM_WINDOW),
            send: SendWindow::new(0),
            body: Vec::new(),
            sent: 0,
        }
    }

    /// Returns whether a part of the request's body has not been sent yet.
    pub(super) fn is_sending(&self) -> bool {
        self.sent < self.body.len()
    }
}

/// The state of the stream with a given identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The stream is open, in this slot.
    Open(usize),
    /// The client ended the stream early. Frames may still arrive.
    Abandoned,
    /// The stream is complete, or the server ended it.
    Closed,
    /// The stream has never been opened.
    Idle,
}

/// The streams of one connection.
#[derive(Debug)]
pub(super) struct Streams {
    slots: Box<[Stream]>,
    mask: u32,
    next: u32,
    open: usize,
    /// The number of streams with a request body that has not been sent completely.
    pub(super) sending: usize,
}

impl Streams {
    /// Creates slots for at most `limit` streams at a time.
    pub(super) fn new(limit: u32) -> Self {
        let slots = (limit * 2).next_power_of_two();
        let all = (0..slots).map(|_| Stream::new());
        Self { slots: all.collect(), mask: slots - 1, next: 1, open: 0, sending: 0 }
    }

    pub(super) fn open_count(&self) -> usize {
        self.open
    }

    /// Returns whether an identifier is left for a further stream.
    pub(super) fn has_identifiers(&self) -> bool {
        self.next <= MAX_31_BITS
    }

    /// Uses up all identifiers except one.
    #[cfg(test)]
    pub(super) fn skip_identifiers(&mut self) {
        self.next = MAX_31_BITS;
    }

    fn slot_of(&self, id: u32) -> usize {
        (id >> 1 & self.mask) as usize
    }

    /// Returns the state of the stream with this identifier.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Found {
        let slot = self.slot_of(id);
        let stream = &self.slots[slot];
        if stream.id == id && id != 0 {
            Found::Open(slot)
        } else if id & 1 == 0 || id >= self.next {
            Found::Idle
        } else if stream.abandoned == id {
            Found::Abandoned
        } else {
            Found::Closed
        }
    }

    /// Returns the stream in a slot.
    #[inline]
    pub(super) fn at(&mut self, slot: usize) -> &mut Stream {
        &mut self.slots[slot]
    }

    /// Opens a stream and returns its slot. Returns `None` if no identifier is left. Fewer streams
    /// than the limit must be open.
    pub(super) fn open(&mut self, tag: u32, is_head: bool, window: u32) -> Option<usize> {
        while self.has_identifiers() {
            let id = self.next;
            self.next += 2;
            let slot = self.slot_of(id);
            let stream = &mut self.slots[slot];
            if stream.id != 0 {
                continue;
            }
            (stream.id, stream.tag, stream.is_head) = (id, tag, is_head);
            (stream.has_head, stream.interim, stream.length) = (false, 0, None);
            (stream.received, stream.bytes) = (0, 0);
            stream.receive = ReceiveWindow::new(STREAM_WINDOW);
            stream.send = SendWindow::new(window);
            self.open += 1;
            return Some(slot);
        }
        None
    }

    /// Frees a slot and returns the tag of its stream. `is_abandoned` means that the client ended
    /// the stream early.
    #[inline]
    pub(super) fn close(&mut self, slot: usize, is_abandoned: bool) -> u32 {
        let stream = &mut self.slots[slot];
        if stream.is_sending() {
            self.sending -= 1;
        }
        stream.body.clear();
        stream.sent = 0;
        if is_abandoned {
            stream.abandoned = stream.id;
        }
        stream.id = 0;
        self.open -= 1;
        stream.tag
    }

    /// Returns the slot of the next open stream above an identifier, starting at slot `from`.
    pub(super) fn next_above(&self, id: u32, from: usize) -> Option<usize> {
        (from..self.slots.len()).find(|slot| self.slots[*slot].id > id)
    }

    /// Returns the slot of the next stream with an unsent part of a body, starting at slot `from`.
    pub(super) fn next_sending(&self, from: usize) -> Option<usize> {
        (from..self.slots.len()).find(|slot| self.slots[*slot].is_sending())
    }

    /// Changes the send windows of all open streams. Returns whether all of the windows are valid.
    pub(super) fn change_windows(&mut self, by: i64) -> bool {
        let mut open = self.slots.iter_mut().filter(|stream| stream.id != 0);
        open.all(|stream| stream.send.change(by))
    }

    /// Returns all open streams.
    pub(super) fn iter(&self) -> impl Iterator<Item = OpenStream> {
        let open = self.slots.iter().filter(|stream| stream.id != 0);
        open.map(|s| OpenStream { tag: s.tag, stream: s.id, bytes: s.bytes })
    }
}

/// A request without a complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenStream {
    /// The number that the caller gave to the request.
    pub tag: u32,
    /// The stream identifier.
    pub stream: u32,
    /// The number of bytes of the response on the wire so far.
    pub bytes: u64,
}

/// The number of bytes that the server may send.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceiveWindow {
    left: u32,
    size: u32,
}

impl ReceiveWindow {
    /// Creates a full window.
    pub(super) const fn new(size: u32) -> Self {
        Self { left: size, size }
    }

    /// Accounts for bytes that the server has sent. Returns whether the window allowed them. The
    /// window always allows the bytes if it is refilled in time and frames are smaller than half
    /// of the window.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> bool {
        let rest = self.left.checked_sub(count);
        self.left = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Refills the window once more than half of it is used. Returns the increment to announce.
    #[inline]
    pub(super) fn refill(&mut self) -> Option<u32> {
        let used = self.size - self.left;
        if used <= self.size / 2 {
            return None;
        }
        self.left = self.size;
        Some(used)
    }
}

/// The number of bytes that the client may send. The number is negative if the server shrank the
/// window after it was used (RFC 9113 section 6.9.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct SendWindow(i64);

impl SendWindow {
    /// Creates a window of this size.
    pub(super) const fn new(size: u32) -> Self {
        Self(size as i64)
    }

    /// Returns the number of bytes that may be sent.
    pub(super) fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// Accounts for bytes that are sent. There must be enough available bytes.
    pub(super) fn take(&mut self, count: usize) {
        self.0 -= count as i64;
    }

    /// Changes the window. Returns whether the new size is valid, which is at most 2^31 - 1.
    pub(super) fn change(&mut self, by: i64) -> bool {
        self.0 += by;
        self.0 <= i64::from(MAX_31_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::INITIAL_WINDOW;

    fn open(streams: &mut Streams) -> u32 {
        let slot = streams.open(0, false, 0).unwrap();
        streams.at(slot).id
    }

    fn close(streams: &mut Streams, id: u32, is_abandoned: bool) {
        let Found::Open(slot) = streams.find(id) else { panic!("{id} is not open") };
        streams.close(slot, is_abandoned);
    }

    #[test]
    fn identifiers_are_odd_and_ascend() {
        // RFC 9113 section 5.1.1.
        let mut streams = Streams::new(2);
        assert_eq!((open(&mut streams), open(&mut streams)), (1, 3));
        for (id, found) in [(0, Found::Idle), (2, Found::Idle), (5, Found::Idle), (4, Found::Idle)]
        {
            assert_eq!(streams.find(id), found, "{id}");
        }
        assert_eq!(streams.find(3), Found::Open(1));
        close(&mut streams, 3, false);
        assert_eq!(streams.find(3), Found::Closed);
        close(&mut streams, 1, true);
        assert_eq!(streams.find(1), Found::Abandoned);
        assert_eq!(streams.open_count(), 0);
    }

    #[test]
    fn an_identifier_whose_slot_is_taken_is_left_out() {
        // There are four slots, so stream 9 would have the slot of stream 1.
        let mut streams = Streams::new(2);
        assert_eq!(open(&mut streams), 1);
        for id in [3, 5, 7, 11, 13, 15, 19] {
            assert_eq!(open(&mut streams), id);
            close(&mut streams, id, false);
        }
        assert_eq!(streams.find(1), Found::Open(0));
        assert_eq!(streams.find(9), Found::Closed);
    }

    #[test]
    fn an_abandoned_stream_is_remembered_while_its_slot_is_used_again() {
        let mut streams = Streams::new(1);
        open(&mut streams);
        close(&mut streams, 1, true);
        for id in [3, 5] {
            assert_eq!(open(&mut streams), id);
            close(&mut streams, id, false);
        }
        assert_eq!((streams.find(1), streams.find(5)), (Found::Abandoned, Found::Closed));
    }

    #[test]
    fn identifiers_end_at_31_bits() {
        let mut streams = Streams::new(1);
        streams.next = MAX_31_BITS;
        assert!(streams.has_identifiers());
        assert_eq!(open(&mut streams), MAX_31_BITS);
        assert!(!streams.has_identifiers());
        close(&mut streams, MAX_31_BITS, false);
        assert_eq!(streams.open(0, false, 0), None);
        assert_eq!(streams.find(MAX_31_BITS), Found::Closed);
    }

    #[test]
    fn a_window_is_refilled_when_more_than_half_of_it_is_used() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.take(50));
        assert_eq!(window.refill(), None);
        assert!(window.take(1));
        assert_eq!(window.refill(), Some(51));
        assert_eq!(window.refill(), None);
        assert!(window.take(100), "it is full again");
        assert!(!window.take(1));
    }

    #[test]
    fn a_send_window_may_be_negative_and_is_at_most_31_bits() {
        // RFC 9113 section 6.9.2: the example of a window that becomes negative.
        let mut window = SendWindow::new(INITIAL_WINDOW);
        window.take(60 * 1024);
        assert!(window.change(16 * 1024 - i64::from(INITIAL_WINDOW)));
        assert_eq!((window.0, window.available()), (-44 * 1024, 0));
        assert!(window.change(44 * 1024 + 5));
        assert_eq!(window.available(), 5);
        // RFC 9113 section 6.9.1.
        let mut window = SendWindow::new(MAX_31_BITS - 1);
        assert!(window.change(1));
        assert!(!window.change(1));
    }
}
