//! A slot: one of the load's connections throughout the load, over all sockets that it uses.

use std::net::IpAddr;

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
    /// Whether the bytes of the socket are HTTP/1.1 as they are: there is neither TLS nor HTTP/2.
    is_direct: bool,
    /// Bytes that did not fit into the socket.
    unsent: Vec<u8>,
    /// The local address to connect from.
    pub(super) source: Option<IpAddr>,
    /// When connecting or the TLS handshake began.
    pub(super) since_ns: u64,
    /// Counts the sockets, so that events of earlier ones are recognised.
    pub(super) generation: u32,
    /// Failures in a row, without a response in between.
    pub(super) failed: u32,
    /// When the first attempt to connect found the server's accept queue full; `None` once an
    /// attempt has succeeded or failed.
    pub(super) queue_full_since_ns: Option<u64>,
    /// Whether the slot is in the list of free ones.
    pub(super) is_listed: bool,
    /// Whether the slot has been open, or has failed, at least once.
    pub(super) is_settled: bool,
    /// Whether a connection is opened for a request rather than before the request, because the
    /// server closed the last connection after a response. A user would wait for the connection
    /// too.
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
    /// A slot that connects from this address; with `limits`, its connections speak HTTP/2.
    pub(super) fn new(source: Option<IpAddr>, limits: Option<Limits>) -> Self {
        Self {
            state: State::Down,
            conn: limits.map_or_else(Connection::default, Connection::multiplexed),
            socket: None,
            tls: None,
            is_direct: false,
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

    /// The key for the events of the socket: 24 bits for the slot (16 million), the rest for the
    /// socket.
    pub(super) fn key(&self, number: usize) -> usize {
        number | (self.generation as usize) << 24
    }

    /// The number of the slot that a key belongs to, and the low bits of its generation.
    pub(super) fn of_key(key: usize) -> (usize, u32) {
        (key & 0xff_ffff, (key >> 24) as u32)
    }

    /// Assigns a socket that is connecting.
    pub(super) fn connect(&mut self, socket: Socket, tls: Option<Box<TlsConnection>>, now: u64) {
        self.socket = Some(socket);
        self.is_direct = tls.is_none() && !self.conn.is_multiplexed();
        self.tls = tls;
        self.since_ns = now;
        self.state = State::Connecting;
    }

    /// Closes the socket and discards all of its state.
    pub(super) fn drop_socket(&mut self) {
        self.socket = None;
        self.tls = None;
        self.unsent = Vec::new();
        self.conn.reset();
        self.generation = self.generation.wrapping_add(1);
        self.state = State::Down;
    }

    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// Whether the connection does not use TLS.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Whether the bytes of the socket are HTTP/1.1 as they are.
    #[inline]
    pub(super) fn is_direct(&self) -> bool {
        self.is_direct
    }

    pub(super) fn tls(&mut self) -> Option<&mut TlsConnection> {
        self.tls.as_deref_mut()
    }

    /// Whether the connection ended within a response that its end delimits, and TLS did not
    /// confirm the end with `close_notify`: anyone on the path can truncate such a response
    /// (RFC 8446 section 6.1, RFC 9112 section 9.8).
    pub(super) fn is_truncated(&self) -> bool {
        self.conn.is_until_close() && self.tls.as_ref().is_some_and(|tls| !tls.peer_has_closed())
    }

    /// Whether a request may be sent on the slot now.
    #[inline]
    pub(super) fn can_send(&self, plan: &Plan) -> bool {
        match self.state {
            State::Open => self.conn.has_room(plan.pipeline),
            State::Down => plan.reuse == Reuse::Close || self.opens_per_request,
            _ => false,
        }
    }

    /// Whether the oldest request was sent more than `after_ns` ago, and no byte of its response
    /// has arrived.
    pub(super) fn is_stalled(&self, now: u64, after_ns: u64) -> bool {
        self.conn.phase() != Phase::Body
            && self.conn.oldest().is_some_and(|r| now.saturating_sub(r.sent_ns) > after_ns)
    }

    /// Whether bytes are waiting for room in the socket.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Moves all times by a pause, but not beyond `now`.
    pub(super) fn shift(&mut self, pause_ns: u64, now: u64) {
        let shift = |ns: u64| (ns + pause_ns).min(now);
        self.conn.shift(pause_ns, now);
        self.since_ns = shift(self.since_ns);
        self.queue_full_since_ns = self.queue_full_since_ns.map(shift);
    }

    /// Sends bytes, and keeps those that do not fit; returns how many were sent.
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

    /// Sends the frames that are ready; returns how many bytes were sent.
    pub(super) fn send_frames(&mut self) -> Result<u64, Failure> {
        let Some(http2) = self.conn.http2() else { return Ok(0) };
        let mut frames = http2.take_out();
        let sent = self.send(&frames);
        frames.clear();
        if let Some(http2) = self.conn.http2() {
            http2.give_back(frames);
        }
        sent
    }

    /// Sends the bytes that are waiting; returns how many were sent.
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
            // An idle connection should not hold a large buffer.
            self.unsent = Vec::new();
        }
        Ok(sent as u64)
    }
}
