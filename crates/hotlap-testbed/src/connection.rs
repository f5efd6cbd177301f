//! One connection of an event loop.

use std::io::{ErrorKind, Write as _};

use mio::net::TcpStream;

use crate::request::Missing;

pub(crate) struct Connection {
    pub stream: TcpStream,
    /// Bytes of a request that is incomplete, or that waits for a delayed response.
    pub input: Vec<u8>,
    /// What is missing from the request in `input`.
    pub missing: Option<Missing>,
    /// Bytes of responses that the socket has not taken yet, or that are delayed.
    pub output: Vec<u8>,
    /// Whether the connection closes once `output` is sent.
    pub closing: bool,
    /// Whether a response is delayed: until then, nothing is read or sent.
    pub delayed: bool,
    /// Whether `100 (Continue)` was sent for the request in `input`.
    pub continued: bool,
    /// Distinguishes this connection from an earlier one with the same index.
    pub serial: u64,
}

/// The result of sending bytes.
pub(crate) enum Sent {
    /// The socket took all.
    All,
    /// The rest is kept until the socket takes more.
    Part,
    /// The connection has failed.
    Broken,
}

impl Connection {
    pub fn new(stream: TcpStream, serial: u64) -> Self {
        Self {
            stream,
            input: Vec::new(),
            missing: None,
            output: Vec::new(),
            closing: false,
            delayed: false,
            continued: false,
            serial,
        }
    }

    /// Sends bytes and keeps those that the socket does not take.
    pub fn send(&mut self, mut bytes: &[u8]) -> Sent {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.output.extend_from_slice(bytes);
                    return Sent::Part;
                }
                Err(_) => return Sent::Broken,
            }
        }
        Sent::All
    }

    /// The same in two parts.
    pub fn send_in_two(&mut self, bytes: &[u8]) -> Sent {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        match self.send(first) {
            Sent::All => self.send(second),
            Sent::Part => {
                self.output.extend_from_slice(second);
                Sent::Part
            }
            Sent::Broken => Sent::Broken,
        }
    }

    /// Sends what was kept.
    pub fn flush(&mut self) -> Sent {
        if self.output.is_empty() {
            return Sent::All;
        }
        let output = std::mem::take(&mut self.output);
        self.send(&output)
    }
}
