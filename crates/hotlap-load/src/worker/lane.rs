//! A lane: one of the load's connections over its whole life, through every socket that carries it.

use std::net::IpAddr;

use crate::connection::Connection;
use crate::io::Socket;
use crate::outcome::Failure;
use crate::tls::Channel;

/// What a lane's socket is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// There is none.
    Down,
    /// There is none, and the lane is among those to be opened again.
    Resting,
    Connecting,
    Handshaking,
    Open,
}

/// One of the load's connections.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) state: State,
    pub(super) talk: Connection,
    socket: Option<Socket>,
    channel: Option<Box<Channel>>,
    /// What did not fit into the socket.
    unsent: Vec<u8>,
    pub(super) source: Option<IpAddr>,
    /// When connecting, or the handshake, began.
    pub(super) since_ns: u64,
    /// Which socket it is, so that an event of an earlier one is not taken for its own.
    pub(super) generation: u32,
    /// How often it failed in a row, without an answer in between.
    pub(super) failed: u32,
    /// When the attempt to connect began that found the server's queue full and is being repeated;
    /// `None` once it has succeeded or was counted as a failure.
    pub(super) busy_since_ns: Option<u64>,
    /// Whether it is among the free ones.
    pub(super) is_listed: bool,
    /// Whether it was open, or failed, once.
    pub(super) is_settled: bool,
}

impl Lane {
    pub(super) fn new(source: Option<IpAddr>) -> Self {
        Self {
            state: State::Down,
            talk: Connection::default(),
            socket: None,
            channel: None,
            unsent: Vec::new(),
            source,
            since_ns: 0,
            generation: 0,
            failed: 0,
            busy_since_ns: None,
            is_listed: false,
            is_settled: false,
        }
    }

    /// The key of its socket's events.
    pub(super) fn key(&self, number: usize) -> usize {
        // 24 bits for the lane (16 million of them), the rest for the socket.
        number | (self.generation as usize) << 24
    }

    /// The lane that a key names, and the low bits of its generation.
    pub(super) fn of_key(key: usize) -> (usize, u32) {
        (key & 0xff_ffff, (key >> 24) as u32)
    }

    pub(super) fn connect(&mut self, socket: Socket, channel: Option<Box<Channel>>, now: u64) {
        self.socket = Some(socket);
        self.channel = channel;
        self.since_ns = now;
        self.state = State::Connecting;
    }

    /// Lets go of the socket and of all that was on it.
    pub(super) fn drop_socket(&mut self) {
        self.socket = None;
        self.channel = None;
        self.unsent = Vec::new();
        self.talk.reset();
        self.generation = self.generation.wrapping_add(1);
        self.state = State::Down;
    }

    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// Whether it speaks without TLS.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.channel.is_none()
    }

    pub(super) fn channel(&mut self) -> Option<&mut Channel> {
        self.channel.as_deref_mut()
    }

    /// Whether the connection ended within a response that its end delimits, and TLS did not
    /// confirm that end with `close_notify`: anyone on the way can cut such a response (RFC 8446
    /// section 6.1, RFC 9112 section 9.8).
    pub(super) fn is_truncated(&self) -> bool {
        self.talk.is_until_close() && self.channel.as_ref().is_some_and(|c| !c.is_closed())
    }

    /// Whether a request is waiting for room in the socket.
    pub(super) fn is_stuck(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends bytes, or keeps those that do not fit; says how many bytes went out.
    #[inline(always)]
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<u64, Failure> {
        if let Some(channel) = &mut self.channel {
            channel.send(bytes).map_err(|_| Failure::Tls)?;
            return self.flush();
        }
        if self.is_stuck() {
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

    /// Sends what waits.
    pub(super) fn flush(&mut self) -> Result<u64, Failure> {
        if let Some(channel) = &mut self.channel {
            channel.drain(&mut self.unsent);
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
            // An idle connection holds no memory that it does not need.
            self.unsent = Vec::new();
        }
        Ok(sent as u64)
    }
}
