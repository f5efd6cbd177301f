//! One event loop a core: accept, read, answer, and nothing that is not needed for it.
//!
//! Each thread has a listening socket of its own on the same port (`SO_REUSEPORT`), so the threads
//! share nothing. Sockets are registered once, edge-triggered; a read that does not fill the buffer
//! is the last one; all answers to what one read brought leave in one write.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use crate::request::{self, Ask, Missing, Read, Request};
use crate::timer::Timer;

/// What is answered, and when.
pub trait Behaviour {
    /// Appends the answer to one request; returns how long it is held back.
    fn answer(&mut self, request: &Request, out: &mut Vec<u8>) -> Duration;

    /// Called after each round of events: the place to be slow on purpose.
    fn round(&mut self) {}

    /// Whether the loop looks for requests all the time while it has a connection, so that waking
    /// up is no part of what it takes.
    fn is_awake(&self) -> bool {
        false
    }
}

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port is taken or not permitted.
    #[error("cannot listen on port {port}: {source}; choose another with PORT")]
    Listen {
        /// The port asked for.
        port: u16,
        /// The system's word.
        source: io::Error,
    },
    /// The system refused what an event loop needs.
    #[error("event loop: {0}")]
    Loop(#[from] io::Error),
}

/// The plain greeting of the `hello` contract.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hello;

impl Behaviour for Hello {
    #[inline]
    fn answer(&mut self, request: &Request, out: &mut Vec<u8>) -> Duration {
        greet(request, out);
        Duration::ZERO
    }
}

/// Appends the contract's answer to `request`.
pub fn greet(request: &Request, out: &mut Vec<u8>) {
    out.extend_from_slice(match (request.ask, request.close) {
        (Ask::Get, false) => {
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\n\
              Hello, World!"
        }
        (Ask::Get, true) => {
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\
              Connection: close\r\n\r\nHello, World!"
        }
        (Ask::Head, false) => {
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\n"
        }
        (Ask::Head, true) => {
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\
              Connection: close\r\n\r\n"
        }
        (Ask::Elsewhere | Ask::HeadElsewhere, _) => {
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        }
        (Ask::Other, _) => {
            b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\n\r\n"
        }
    });
}

/// Serves on loopback until the process is ended, with one thread for each of `threads`; each gets
/// a behaviour of its own from `make`.
///
/// # Errors
/// When the port cannot be had or the system refuses an event loop.
pub fn serve<B: Behaviour>(
    port: u16,
    threads: usize,
    make: impl Fn(usize) -> B + Sync,
) -> Result<(), ServeError> {
    let listeners: Vec<TcpListener> = (0..threads.max(1))
        .map(|_| listen(port).map_err(|source| ServeError::Listen { port, source }))
        .collect::<Result<_, _>>()?;
    let make = &make;
    std::thread::scope(|scope| {
        let rounds: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(n, listener)| scope.spawn(move || Loop::new(listener, make(n))?.run()))
            .collect();
        rounds
            .into_iter()
            .try_for_each(|r| r.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(())
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    socket.listen(4096)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// How long before an answer is due the loop begins to wait actively: about what waking up takes.
/// Longer would be unkind to itself, too: a server that waits actively uses up its share of a busy
/// core, and is made to wait when its answer is due.
const AWAKE: Duration = Duration::from_micros(if cfg!(target_os = "linux") { 60 } else { 2_000 });

/// How long to sleep when an answer is due in `left`.
fn sleep_before(left: Duration) -> Duration {
    left.saturating_sub(AWAKE)
}

/// How soon accepting is tried again after it failed: often enough to go unnoticed by a client,
/// seldom enough to cost next to nothing (100 system calls a second).
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);

/// Whether the next client in the queue may be accepted although accepting failed (accept(2),
/// *Error handling*).
fn is_of_one_client(kind: ErrorKind) -> bool {
    use ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, NetworkDown,
        NetworkUnreachable, TimedOut,
    };
    matches!(
        kind,
        ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
            | TimedOut
    )
}

const LISTENER: Token = Token(usize::MAX);
const TIMER: Token = Token(usize::MAX - 1);

/// What one read may bring; larger requests take several.
const READ_BYTES: usize = 64 * 1024;

struct Loop<B> {
    poll: Poll,
    listener: TcpListener,
    behaviour: B,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
    out: Vec<u8>,
    held: BinaryHeap<Reverse<(Instant, usize, u64)>>,
    serial: u64,
    timer: Timer,
    /// Clients may still wait in the listener's queue although their event was taken: accepting
    /// failed before the queue was empty.
    unaccepted: bool,
}

struct Connection {
    stream: TcpStream,
    /// Bytes of a request that is not whole yet, or that waits behind a held answer.
    rest: Vec<u8>,
    /// What the request in `rest` lacks.
    missing: Option<Missing>,
    /// Answer bytes that the socket did not take yet, or that are held back.
    unsent: Vec<u8>,
    /// Close once all is sent.
    closing: bool,
    /// An answer is held back: nothing is read or sent until then.
    held: bool,
    /// Tells this connection from an earlier one in the same place.
    serial: u64,
    continued: bool,
}

impl<B: Behaviour> Loop<B> {
    fn new(mut listener: TcpListener, behaviour: B) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            timer: Timer::new(&poll, TIMER)?,
            poll,
            listener,
            behaviour,
            connections: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; READ_BYTES],
            out: Vec::with_capacity(READ_BYTES),
            held: BinaryHeap::new(),
            serial: 0,
            unaccepted: false,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            let wait = self.wait();
            match self.poll.poll(&mut events, wait) {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.unaccepted = true,
                    TIMER => {}
                    Token(place) => self.ready(place),
                }
            }
            if self.unaccepted {
                self.accept();
            }
            self.release();
            self.behaviour.round();
        }
    }

    /// How long the poll may wait; none: until something comes, or the timer that was armed.
    fn wait(&mut self) -> Option<Duration> {
        let wait = self.wait_for_answers();
        match self.unaccepted {
            true => Some(wait.map_or(ACCEPT_AGAIN, |wait| wait.min(ACCEPT_AGAIN))),
            false => wait,
        }
    }

    fn wait_for_answers(&mut self) -> Option<Duration> {
        if self.behaviour.is_awake() && self.connections.len() > self.free.len() {
            return Some(Duration::ZERO);
        }
        let Reverse((due, ..)) = *self.held.peek()?;
        match sleep_before(due.saturating_duration_since(Instant::now())) {
            Duration::ZERO => Some(Duration::ZERO),
            sleep => self.timer.arm(sleep),
        }
    }

    /// Accepts every client in the queue. Events are edge-triggered: for those that are left there,
    /// no further one comes, so the loop tries again.
    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(stream),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.unaccepted = false;
                    return;
                }
                // accept(2): such an error is that of one client, or of a signal.
                Err(e) if is_of_one_client(e.kind()) => {}
                // Out of files or of memory, until a connection is closed.
                Err(_) => return,
            }
        }
    }

    /// Serves a client from now on. One that the system does not watch is dropped, and sees that.
    fn admit(&mut self, mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let place = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut stream, Token(place), interest).is_err() {
            self.free.push(place);
            return;
        }
        self.serial += 1;
        self.connections[place] = Some(Connection {
            stream,
            rest: Vec::new(),
            missing: None,
            unsent: Vec::new(),
            closing: false,
            held: false,
            serial: self.serial,
            continued: false,
        });
    }

    fn ready(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        if connection.held {
            return;
        }
        match connection.flush() {
            Sent::Part => {}
            Sent::All if !connection.closing => self.read(place),
            Sent::All | Sent::Broken => self.remove(place),
        }
    }

    fn read(&mut self, place: usize) {
        loop {
            let Some(connection) = self.connections[place].as_mut() else { return };
            let n = match connection.stream.read(&mut self.buffer) {
                Ok(0) => return self.remove(place),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return self.remove(place),
            };
            // A read that leaves room took all there was; the next edge tells of more.
            let whole = n < self.buffer.len();
            let more = if connection.rest.is_empty() {
                let buffer = std::mem::take(&mut self.buffer);
                let more = self.take(place, &buffer[..n]);
                self.buffer = buffer;
                more
            } else {
                connection.rest.extend_from_slice(&self.buffer[..n]);
                let len = connection.rest.len();
                if connection.missing.is_some_and(|m| !m.may_be_in(&self.buffer[..n], len)) {
                    true
                } else {
                    let bytes = std::mem::take(&mut connection.rest);
                    self.take(place, &bytes)
                }
            };
            if !more || whole {
                return;
            }
        }
    }

    /// Answers every whole request in `bytes`; false when the connection is not to be read now.
    fn take(&mut self, place: usize, bytes: &[u8]) -> bool {
        let Some(connection) = self.connections[place].as_mut() else { return false };
        let mut at = 0;
        connection.missing = None;
        self.out.clear();
        while at < bytes.len() && !connection.closing && !connection.held {
            match request::read(&bytes[at..]) {
                Read::Whole(request) => {
                    let delay = self.behaviour.answer(&request, &mut self.out);
                    connection.closing = request.close;
                    connection.continued = false;
                    at += request.len;
                    if !delay.is_zero() {
                        connection.held = true;
                        let due = Instant::now() + delay;
                        self.held.push(Reverse((due, place, connection.serial)));
                    }
                }
                Read::Part(missing) => {
                    let expects = matches!(missing, Missing::Body { expects: true, .. });
                    if expects && !connection.continued {
                        connection.continued = true;
                        self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    connection.missing = Some(missing);
                    break;
                }
                Read::Bad(status) => {
                    refuse(status, &mut self.out);
                    connection.closing = true;
                    at = bytes.len();
                }
            }
        }
        if at < bytes.len() && !connection.closing {
            connection.rest = bytes[at..].to_vec();
        }
        if connection.held {
            connection.unsent.extend_from_slice(&self.out);
            return false;
        }
        match connection.send(&self.out) {
            Sent::Part => false,
            Sent::All if !connection.closing => true,
            Sent::All | Sent::Broken => {
                self.remove(place);
                false
            }
        }
    }

    /// Sends the answers whose time has come, and reads on.
    fn release(&mut self) {
        let now = Instant::now();
        while let Some(&Reverse((due, place, serial))) = self.held.peek() {
            if due > now {
                return;
            }
            self.held.pop();
            let Some(connection) = self.connections[place].as_mut() else { continue };
            if connection.serial != serial {
                continue;
            }
            connection.held = false;
            match connection.flush() {
                Sent::Part => continue,
                Sent::All if !connection.closing => {}
                Sent::All | Sent::Broken => {
                    self.remove(place);
                    continue;
                }
            }
            let rest = std::mem::take(&mut connection.rest);
            if rest.is_empty() || self.take(place, &rest) {
                self.read(place);
            }
        }
    }

    fn remove(&mut self, place: usize) {
        if self.connections[place].take().is_some() {
            self.free.push(place);
        }
    }
}

/// What became of bytes to send.
enum Sent {
    /// The socket took all.
    All,
    /// The rest is kept until the socket takes more.
    Part,
    /// The socket is of no use any more.
    Broken,
}

impl Connection {
    /// Sends `bytes`, keeping what the socket does not take.
    fn send(&mut self, mut bytes: &[u8]) -> Sent {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.unsent.extend_from_slice(bytes);
                    return Sent::Part;
                }
                Err(_) => return Sent::Broken,
            }
        }
        Sent::All
    }

    fn flush(&mut self) -> Sent {
        if self.unsent.is_empty() {
            return Sent::All;
        }
        let unsent = std::mem::take(&mut self.unsent);
        self.send(&unsent)
    }
}

fn refuse(status: u16, out: &mut Vec<u8>) {
    let reason = match status {
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Bad Request",
    };
    out.extend_from_slice(
        format!("HTTP/1.1 {status} {reason}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .as_bytes(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A held answer used to leave one or two milliseconds late.
    #[test]
    fn the_loop_is_awake_when_an_answer_is_due() {
        assert_eq!(sleep_before(AWAKE), Duration::ZERO);
        assert_eq!(sleep_before(AWAKE + Duration::from_millis(50)), Duration::from_millis(50));
    }
}
