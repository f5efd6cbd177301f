//! Attackers: clients that violate or abuse HTTP, on one thread with one event loop and a bounded
//! number of sockets.
//!
//! The load generator cannot send such requests, and the verifier opens only one connection at a
//! time. Over TLS, an attacker completes the handshake and then attacks as it does without TLS.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, Target};
use hotlap_load::tls::{TlsConfig, TlsConnection};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde::{Deserialize, Serialize};

use super::scenario::{Message, Rude};
use hotlap_observe::cpus;

/// How the attackers' connections ended. Each connection counts once in `answered`, `closed`,
/// `silent` or `refused`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fate {
    /// Connections that were established.
    pub connected: u64,
    /// The number of first responses, by status. The status is 0 for bytes that are not HTTP.
    pub answered: BTreeMap<u16, u64>,
    /// Connections that the server closed without a response.
    pub closed: u64,
    /// Connections that got no response and stayed open until the client closed them.
    pub silent: u64,
    /// Connections that were never established.
    pub refused: u64,
    /// Connections that were still open when the scenario ended, with or without a response.
    pub open: u64,
}

/// The interval at which the loop looks for clients with something to do.
const TICK: Duration = Duration::from_millis(10);

/// The number of new connections per tick. At this pace, 2,000 clients take 0.2 s to connect, so
/// they do not overflow the accept queue all at once.
const NEW_PER_TICK: usize = 100;

/// Running attackers, which stop when this value is dropped.
#[derive(Debug)]
pub(super) struct Attackers {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Fate>>,
}

impl Attackers {
    /// Starts the attackers, or returns why that is not possible.
    pub(super) fn start(
        rude: &Rude,
        messages: Vec<Message>,
        target: &Target,
        cpus: &[usize],
    ) -> Result<Self, String> {
        let Endpoint::Tcp(address) = target.endpoint else {
            return Err("a stress test needs a TCP address".to_owned());
        };
        let over = Arc::new(AtomicBool::new(false));
        let failed = |e: io::Error| format!("cannot start the attackers: {e}");
        let mut attack = AttackLoop {
            poll: Poll::new().map_err(failed)?,
            tls: TlsConfig::of(target).map_err(|e| e.to_string())?,
            rude: rude.clone(),
            messages,
            address,
            clients: (0..rude.clients).map(|_| Attacker::default()).collect(),
            fate: Fate::default(),
        };
        let (flag, cpus) = (over.clone(), cpus.to_vec());
        let work = move || {
            if !cpus.is_empty() {
                // If pinning is not permitted, the thread runs on any core.
                let _ = cpus::pin(&cpus);
            }
            attack.run(&flag);
            attack.fate
        };
        let thread = std::thread::Builder::new().name("attackers".to_owned()).spawn(work);
        let thread = thread.map_err(failed)?;
        Ok(Self { over, thread: Some(thread) })
    }

    /// Stops the attackers, and returns how their connections ended.
    pub(super) fn stop(mut self) -> Fate {
        self.over.store(true, Ordering::Relaxed);
        let fate = self.thread.take().map(JoinHandle::join);
        match fate {
            Some(Ok(fate)) => fate,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Fate::default(),
        }
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the attackers' thread.
struct AttackLoop {
    poll: Poll,
    /// The configuration of TLS. `None` without TLS.
    tls: Option<TlsConfig>,
    rude: Rude,
    messages: Vec<Message>,
    address: SocketAddr,
    clients: Vec<Attacker>,
    fate: Fate,
}

#[derive(Default)]
struct Attacker {
    stream: Option<Stream>,
    is_established: bool,
    /// Bytes sent so far, of the part sent at once and of the part sent slowly.
    sent: (usize, usize),
    /// When to send the next byte or open the next connection.
    due: Option<Instant>,
    /// When the client began to connect.
    since: Option<Instant>,
    is_answered: bool,
    /// Whether the client's connection has ended and the client opens no other.
    is_done: bool,
}

/// A connection that never blocks.
struct Stream {
    tcp: TcpStream,
    /// The TLS connection. `None` without TLS.
    channel: Option<Box<TlsConnection>>,
    /// Encrypted bytes that the socket has not taken yet.
    sealed: Vec<u8>,
}

impl Read for Stream {
    /// Over TLS, bytes beyond the end of `plain` are lost. An attacker looks only at the first
    /// bytes.
    fn read(&mut self, plain: &mut [u8]) -> io::Result<usize> {
        self.flush()?;
        let Some(channel) = &mut self.channel else { return self.tcp.read(plain) };
        if channel.peer_has_closed() {
            return Ok(0);
        }
        let count = self.tcp.read(plain)?;
        if count == 0 {
            return Ok(0);
        }
        let mut opened = Vec::new();
        let received = channel.receive(&plain[..count], &mut opened);
        self.flush()?;
        received.map_err(io::Error::other)?;
        if opened.is_empty() {
            return Err(ErrorKind::Interrupted.into());
        }
        let length = opened.len().min(plain.len());
        plain[..length].copy_from_slice(&opened[..length]);
        Ok(length)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(channel) = &mut self.channel else { return self.tcp.write(bytes) };
        if channel.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        channel.send(bytes).map_err(io::Error::other)?;
        self.flush()?;
        Ok(bytes.len())
    }

    /// Sends the encrypted bytes, and keeps the bytes that the socket does not take.
    fn flush(&mut self) -> io::Result<()> {
        if let Some(channel) = &mut self.channel {
            channel.drain(&mut self.sealed);
        }
        while !self.sealed.is_empty() {
            match self.tcp.write(&self.sealed) {
                Ok(count) => drop(self.sealed.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What to do after the events of a socket.
enum Next {
    Wait,
    /// The server closed the connection, or it was never established.
    Close,
    Reset,
}

impl AttackLoop {
    fn run(&mut self, over: &AtomicBool) {
        let mut events = Events::with_capacity(1024);
        let mut buffer = vec![0; 64 << 10];
        while !over.load(Ordering::Relaxed) {
            self.tick();
            if let Err(error) = self.poll.poll(&mut events, Some(TICK))
                && error.kind() != ErrorKind::Interrupted
            {
                break;
            }
            for event in &events {
                let number = event.token().0;
                match self.ready(number, &mut buffer) {
                    Next::Wait => {}
                    Next::Close => self.close(number, true),
                    Next::Reset => self.reset(number),
                }
            }
        }
        for number in 0..self.clients.len() {
            if self.clients[number].stream.is_some() {
                self.fate.open += u64::from(self.clients[number].is_established);
                self.close(number, false);
            }
        }
    }

    /// Handles every client that is due: connects, gives up, or sends the next byte.
    fn tick(&mut self) {
        let now = Instant::now();
        let mut new = 0;
        for number in 0..self.clients.len() {
            let client = &self.clients[number];
            let is_due = client.due.is_none_or(|due| due <= now);
            match (&client.stream, client.since) {
                (None, _) if !client.is_done && is_due && new < NEW_PER_TICK => {
                    new += 1;
                    self.connect(number, now);
                }
                (Some(_), Some(since))
                    if self.rude.patience().is_some_and(|p| since + p <= now) =>
                {
                    self.close(number, false);
                }
                (Some(_), _) if client.is_established && is_due => {
                    let message = &self.messages[number % self.messages.len()];
                    if client.sent.1 < message.slowly.len() {
                        let byte = [message.slowly[client.sent.1]];
                        self.send_byte(number, &byte, now);
                    }
                }
                _ => {}
            }
        }
    }

    fn connect(&mut self, number: usize, now: Instant) {
        let connected = TcpStream::connect(self.address).and_then(|mut stream| {
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(number), both)?;
            Ok(stream)
        });
        match connected {
            Ok(tcp) => {
                let channel = self.tls.as_ref().and_then(TlsConfig::connect);
                let stream = Some(Stream { tcp, channel, sealed: Vec::new() });
                self.clients[number] = Attacker { stream, since: Some(now), ..Attacker::default() };
            }
            Err(_) => {
                self.fate.refused += 1;
                self.reconnect_later(number);
            }
        }
    }

    /// Sends the next byte of a slow client.
    fn send_byte(&mut self, number: usize, byte: &[u8], now: Instant) {
        let pause = self.rude.pause();
        let client = &mut self.clients[number];
        let Some(stream) = &mut client.stream else { return };
        client.due = Some(now + pause);
        // If the connection has failed, the next event reports it.
        if let Ok(1) = stream.write(byte) {
            client.sent.1 += 1;
        }
    }

    /// Handles an event on a client's socket.
    fn ready(&mut self, number: usize, buffer: &mut [u8]) -> Next {
        let message = &self.messages[number % self.messages.len()];
        let client = &mut self.clients[number];
        let Some(stream) = &mut client.stream else { return Next::Wait };
        if !client.is_established {
            if !matches!(stream.tcp.take_error(), Ok(None)) {
                return Next::Close;
            }
            match stream.tcp.peer_addr() {
                Ok(_) => {
                    let _ = stream.tcp.set_nodelay(true);
                    client.is_established = true;
                    self.fate.connected += 1;
                }
                Err(_) => return Next::Wait,
            }
        }
        loop {
            // A handshake may have ended with the last read, so try to send again.
            while client.sent.0 < message.at_once.len() {
                match stream.write(&message.at_once[client.sent.0..]) {
                    Ok(sent) => client.sent.0 += sent,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // The server may still have sent a response.
                    Err(_) => break,
                }
            }
            match stream.read(buffer) {
                Ok(0) => return Next::Close,
                Ok(length) => {
                    if !client.is_answered {
                        client.is_answered = true;
                        *self.fate.answered.entry(status(&buffer[..length])).or_default() += 1;
                    }
                    if self.rude.resets {
                        return Next::Reset;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Wait,
                Err(_) => return Next::Close,
            }
        }
    }

    /// Resets the connection, like a client that is killed with unread bytes.
    fn reset(&mut self, number: usize) {
        if let Some(stream) = &self.clients[number].stream {
            // Closing with a linger time of 0 aborts the connection (RFC 9293 section 3.10.5).
            let linger = Some(Duration::ZERO);
            let _ = rustix::net::sockopt::set_socket_linger(stream.tcp.as_fd(), linger);
        }
        self.close(number, false);
    }

    /// Counts a connection that the server or the client has ended.
    fn close(&mut self, number: usize, by_server: bool) {
        let client = &mut self.clients[number];
        client.stream = None;
        match (client.is_answered, client.is_established) {
            (true, _) => {}
            (false, false) => self.fate.refused += 1,
            (false, true) if by_server => self.fate.closed += 1,
            (false, true) => self.fate.silent += 1,
        }
        self.reconnect_later(number);
    }

    /// Schedules another connection if this kind of client reconnects.
    fn reconnect_later(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.is_done = self.rude.patience_ms.is_none();
        client.due = Some(Instant::now() + self.rude.pause());
    }
}

/// Returns the status of a response, given its first bytes. 0 if they are not HTTP.
fn status(bytes: &[u8]) -> u16 {
    let is_http = bytes.starts_with(b"HTTP/1.");
    let digits = bytes.get(9..12).filter(|_| is_http);
    digits.and_then(|d| std::str::from_utf8(d).ok()?.parse().ok()).unwrap_or(0)
}

impl Fate {
    /// The number of connections that have ended.
    pub fn total(&self) -> u64 {
        self.answered.values().sum::<u64>() + self.closed + self.silent + self.refused
    }

    /// The number of first responses with a status of this class: 4 for 400 to 499.
    pub fn of_class(&self, hundred: u16) -> u64 {
        let of = self.answered.iter().filter(|(status, _)| *status / 100 == hundred);
        of.map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_from_the_first_bytes_and_is_0_for_other_protocols() {
        assert_eq!(status(b"HTTP/1.1 431 Request Header Fields Too Large\r\n"), 431);
        assert_eq!(status(b"HTTP/1.0 400"), 400);
        assert_eq!(status(b"HTTP/1.1 4"), 0);
        assert_eq!(status(b"SSH-2.0-OpenSSH"), 0);
    }

    #[test]
    fn responses_are_counted_by_class() {
        let answered = BTreeMap::from([(200, 3), (400, 5), (431, 2), (0, 1)]);
        let fate = Fate { answered, closed: 4, ..Fate::default() };
        assert_eq!((fate.of_class(4), fate.of_class(2), fate.of_class(0)), (7, 3, 1));
        assert_eq!(fate.total(), 15);
    }
}
