//! Servers with one edge-triggered event loop per thread, which accepts, reads and responds. The
//! ceiling does nothing else.
//!
//! Each socket is registered once. A read that does not fill the buffer is the last one until the
//! next event. The ceiling sends all responses to the requests of one read in one write.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use crate::request::{self, Missing, Parsed, Request, refuse};

/// What a server responds, and when.
pub(crate) trait Behaviour {
    /// Appends the response to a request with these bytes. Returns the delay of the response.
    fn respond(&mut self, request: &Request, bytes: &[u8], out: &mut Vec<u8>) -> Duration;

    /// Returns whether each write is split into two writes.
    fn sends_in_two(&self) -> bool {
        false
    }

    /// Called after each set of events. A server may stall here on purpose.
    fn after_events(&mut self) {}

    /// Returns when the loop must wake up even if there are no events.
    fn wakes_at(&self) -> Option<Instant> {
        None
    }

    /// Returns whether the loop polls without sleeping while it has a connection, so that no
    /// wake-up adds to a response time.
    fn busy_polls(&self) -> bool {
        false
    }
}

/// The number of connections that the system queues for each thread until they are accepted. Linux
/// caps this number at net.core.somaxconn, whose default is 4096 too.
const BACKLOG: i32 = 4096;

/// The error for a text that names no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no server; use {known}")]
pub struct NotAServer {
    pub(crate) text: String,
    pub(crate) known: String,
}

impl NotAServer {
    /// Returns the variant whose own name in lower case is `text`.
    pub(crate) fn or_named<T: Copy + Debug>(text: &str, all: &[T]) -> Result<T, Self> {
        let name = |one: &T| format!("{one:?}").to_lowercase();
        let known = || all.iter().map(name).collect::<Vec<_>>().join(", ");
        let found = all.iter().copied().find(|one| name(one) == text);
        found.ok_or_else(|| Self { text: text.to_owned(), known: known() })
    }
}

/// The reason why a server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not permitted.
    #[error("cannot listen on {address}: {source}; set PORT and HOST to another one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The database or a folder of files cannot be used.
    #[error("cannot open what the contracts need: {0}")]
    Data(io::Error),
    /// The system refused a resource that an event loop needs.
    #[error("cannot create an event loop: {0}")]
    Loop(#[from] io::Error),
}

/// Serves until the process ends, with `threads` threads, each with its own behaviour.
///
/// Each thread has its own listening socket on the same address (`SO_REUSEPORT`), so the threads
/// share nothing.
///
/// # Errors
/// The address is unavailable, or the system cannot create an event loop.
pub(crate) fn serve<B: Behaviour>(
    address: SocketAddr,
    threads: usize,
    behaviour: impl Fn() -> B + Sync,
) -> Result<(), ServeError> {
    let listeners: Vec<TcpListener> = (0..threads.max(1))
        .map(|_| listen(address).map_err(|source| ServeError::Listen { address, source }))
        .collect::<Result<_, _>>()?;
    let behaviour = &behaviour;
    std::thread::scope(|scope| {
        let threads: Vec<_> = listeners
            .into_iter()
            .map(|listener| scope.spawn(move || EventLoop::new(listener, behaviour())?.run()))
            .collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(())
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Serves the contract `hello` until the process ends, with one event loop per thread. The server
/// does only the work that a correct response needs on this machine.
///
/// # Errors
/// The address is unavailable, or the system cannot create an event loop.
pub fn serve_ceiling(address: SocketAddr, threads: usize) -> Result<(), ServeError> {
    serve(address, threads, || Ceiling)
}

struct Ceiling;

impl Behaviour for Ceiling {
    #[inline]
    fn respond(&mut self, request: &Request, _: &[u8], out: &mut Vec<u8>) -> Duration {
        request.reply.write(request.close, out);
        Duration::ZERO
    }
}

/// The loop stops sleeping and polls for this long before a delayed response is due. A wake-up
/// takes 30 to 40 µs on the Xeon of docs/load-generator.md, and timers of other systems are
/// coarser. A longer time would do harm on a busy core. A polling thread would use up its share of
/// CPU time and have to wait when the response is due.
const BUSY: Duration = Duration::from_micros(if cfg!(target_os = "linux") { 60 } else { 2_000 });

/// Returns the time at which the loop must stop sleeping if a response is due at `due`.
fn sleep_until(due: Instant) -> Instant {
    due.checked_sub(BUSY).unwrap_or(due)
}

/// The longest wait before the server tries to accept again. Without other events, the server
/// tries 100 times per second.
const RETRY_ACCEPT: Duration = Duration::from_millis(10);

/// Returns whether accepting failed for one client only, so that the server can accept the next
/// client in the queue (accept(2), *Error handling*).
fn concerns_one_client(kind: ErrorKind) -> bool {
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

/// The maximum size of one read, in bytes.
const READ_BYTES: usize = 64 * 1024;

struct EventLoop<B> {
    poll: Poll,
    listener: TcpListener,
    behaviour: B,
    connections: Vec<Option<Connection>>,
    /// The free indices of `connections`.
    free: Vec<usize>,
    buffer: Vec<u8>,
    out: Vec<u8>,
    /// When each delayed response is due, with the index and serial number of its connection.
    delayed: BinaryHeap<Reverse<(Instant, usize, u64)>>,
    serial: u64,
    timer: Timer,
    /// When the armed timer will fire. `None` if no timer is armed.
    armed: Option<Instant>,
    /// Whether the listener's queue may hold clients for which no further event will come.
    /// Accepting may have failed before the queue was empty.
    unaccepted: bool,
}

impl<B: Behaviour> EventLoop<B> {
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
            delayed: BinaryHeap::new(),
            serial: 0,
            armed: None,
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
                    TIMER => self.armed = None,
                    Token(index) => self.handle(index),
                }
            }
            if self.unaccepted {
                self.accept();
            }
            self.send_due();
            self.behaviour.after_events();
        }
    }

    /// Returns the maximum time to wait for events. `None` means that there is no limit or that
    /// the timer is armed.
    fn wait(&mut self) -> Option<Duration> {
        let wait = self.wait_for_responses();
        match self.unaccepted {
            true => Some(wait.map_or(RETRY_ACCEPT, |wait| wait.min(RETRY_ACCEPT))),
            false => wait,
        }
    }

    fn wait_for_responses(&mut self) -> Option<Duration> {
        if self.behaviour.busy_polls() && self.connections.len() > self.free.len() {
            return Some(Duration::ZERO);
        }
        let response = self.delayed.peek().map(|Reverse((due, ..))| sleep_until(*due));
        let until = response.into_iter().chain(self.behaviour.wakes_at()).min()?;
        if self.armed == Some(until) {
            return None;
        }
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Some(Duration::ZERO),
            sleep => {
                let wait = self.timer.set(sleep);
                self.armed = wait.is_none().then_some(until);
                wait
            }
        }
    }

    /// Accepts every client in the queue. Events are edge-triggered, so a client that is left in
    /// the queue causes no further event. The loop therefore tries again later.
    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.add(stream),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.unaccepted = false;
                    return;
                }
                Err(e) if concerns_one_client(e.kind()) => {}
                // The process possibly lacks file descriptors or memory until a connection closes.
                Err(_) => return,
            }
        }
    }

    /// Adds the connection of a new client. The connection is closed if its socket cannot be
    /// registered.
    fn add(&mut self, mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut stream, Token(index), interest).is_err() {
            self.free.push(index);
            return;
        }
        self.serial += 1;
        self.connections[index] = Some(Connection::new(stream, self.serial));
    }

    fn handle(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if connection.delayed {
            return;
        }
        match connection.flush() {
            Sent::Part => {}
            Sent::All if !connection.closing => self.read(index),
            Sent::All | Sent::Broken => self.remove(index),
        }
    }

    fn read(&mut self, index: usize) {
        loop {
            let Some(connection) = self.connections[index].as_mut() else { return };
            let n = match connection.stream.read(&mut self.buffer) {
                Ok(0) => return self.remove(index),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return self.remove(index),
            };
            // A read that leaves room in the buffer has taken all available bytes.
            let drained = n < self.buffer.len();
            let more = if connection.input.is_empty() {
                let buffer = std::mem::take(&mut self.buffer);
                let more = self.process(index, &buffer[..n]);
                self.buffer = buffer;
                more
            } else {
                connection.input.extend_from_slice(&self.buffer[..n]);
                let len = connection.input.len();
                if connection.missing.is_some_and(|m| !m.may_be_in(&self.buffer[..n], len)) {
                    true
                } else {
                    let bytes = std::mem::take(&mut connection.input);
                    self.process(index, &bytes)
                }
            };
            if !more || drained {
                return;
            }
        }
    }

    /// Responds to every complete request in `bytes`. Returns false if the connection must not be
    /// read now.
    fn process(&mut self, index: usize, bytes: &[u8]) -> bool {
        let Some(connection) = self.connections[index].as_mut() else { return false };
        let mut at = 0;
        connection.missing = None;
        self.out.clear();
        while at < bytes.len() && !connection.closing && !connection.delayed {
            match request::parse(&bytes[at..]) {
                Parsed::Complete(request) => {
                    let own = &bytes[at..at + request.len];
                    let delay = self.behaviour.respond(&request, own, &mut self.out);
                    connection.closing = request.close;
                    connection.continued = false;
                    at += request.len;
                    if !delay.is_zero() {
                        connection.delayed = true;
                        let due = Instant::now() + delay;
                        self.delayed.push(Reverse((due, index, connection.serial)));
                    }
                }
                Parsed::Incomplete(missing) => {
                    let expects = matches!(missing, Missing::Body { expects: true, .. });
                    if expects && !connection.continued {
                        connection.continued = true;
                        self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    connection.missing = Some(missing);
                    break;
                }
                Parsed::Invalid(status) => {
                    refuse(status, &mut self.out);
                    connection.closing = true;
                    at = bytes.len();
                }
            }
        }
        if at < bytes.len() && !connection.closing {
            connection.input = bytes[at..].to_vec();
        }
        if connection.delayed {
            connection.output.extend_from_slice(&self.out);
            return false;
        }
        let sent = match self.behaviour.sends_in_two() {
            true => connection.send_in_two(&self.out),
            false => connection.send(&self.out),
        };
        match sent {
            Sent::Part => false,
            Sent::All if !connection.closing => true,
            Sent::All | Sent::Broken => {
                self.remove(index);
                false
            }
        }
    }

    /// Sends the delayed responses that are due and continues reading from their connections.
    fn send_due(&mut self) {
        let now = Instant::now();
        while let Some(&Reverse((due, index, serial))) = self.delayed.peek() {
            if due > now {
                return;
            }
            self.delayed.pop();
            let Some(connection) = self.connections[index].as_mut() else { continue };
            if connection.serial != serial {
                continue;
            }
            connection.delayed = false;
            match connection.flush() {
                Sent::Part => continue,
                Sent::All if !connection.closing => {}
                Sent::All | Sent::Broken => {
                    self.remove(index);
                    continue;
                }
            }
            let input = std::mem::take(&mut connection.input);
            if input.is_empty() || self.process(index, &input) {
                self.read(index);
            }
        }
    }

    fn remove(&mut self, index: usize) {
        if self.connections[index].take().is_some() {
            self.free.push(index);
        }
    }
}

/// One connection of an event loop.
struct Connection {
    stream: TcpStream,
    /// Bytes of requests that are incomplete or that wait for a delayed response.
    input: Vec<u8>,
    /// What is missing from the request in `input`.
    missing: Option<Missing>,
    /// Bytes of responses that the socket has not taken yet, or that are delayed.
    output: Vec<u8>,
    /// Whether the connection closes once `output` is sent.
    closing: bool,
    /// Whether a response is delayed. Until the response is due, nothing is read or sent.
    delayed: bool,
    /// Whether `100 (Continue)` was sent for the request in `input`.
    continued: bool,
    /// A number that distinguishes this connection from earlier ones with the same index.
    serial: u64,
}

/// The result of sending bytes.
enum Sent {
    /// The socket took all bytes.
    All,
    /// The socket took some bytes or none. The rest is kept until the socket takes more.
    Part,
    /// The connection has failed.
    Broken,
}

impl Connection {
    fn new(stream: TcpStream, serial: u64) -> Self {
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

    /// Sends bytes and keeps the bytes that the socket does not take.
    fn send(&mut self, mut bytes: &[u8]) -> Sent {
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

    /// Sends bytes in two writes and keeps the bytes that the socket does not take.
    fn send_in_two(&mut self, bytes: &[u8]) -> Sent {
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

    /// Sends the bytes that were kept.
    fn flush(&mut self) -> Sent {
        if self.output.is_empty() {
            return Sent::All;
        }
        let output = std::mem::take(&mut self.output);
        self.send(&output)
    }
}

/// A timer with nanosecond resolution, where the system has one. The timeout of a wait for events
/// has a resolution of milliseconds only.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Timer(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Timer {
    fn new(poll: &Poll, token: Token) -> io::Result<Self> {
        use std::os::fd::AsRawFd;

        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let mut source = mio::unix::SourceFd(&fd.as_raw_fd());
        poll.registry().register(&mut source, token, mio::Interest::READABLE)?;
        Ok(Self(fd))
    }

    /// Arms the timer to fire after `left`. Returns `left` as the timeout for the wait if the
    /// timer cannot be armed.
    fn set(&self, left: Duration) -> Option<Duration> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // A time of 0 would disarm the timer.
        let left = left.max(Duration::from_nanos(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value =
            Timespec { tv_sec: left.as_secs() as _, tv_nsec: i64::from(left.subsec_nanos()) as _ };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        match timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec) {
            Ok(_) => None,
            Err(_) => Some(left),
        }
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    fn new(_poll: &Poll, _token: Token) -> io::Result<Self> {
        Ok(Self)
    }

    fn set(&self, left: Duration) -> Option<Duration> {
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a delayed response was sent one or two milliseconds late.
    #[test]
    fn the_loop_does_not_sleep_when_a_response_is_due() {
        let now = Instant::now();
        assert_eq!(sleep_until(now + BUSY), now);
        assert_eq!(
            sleep_until(now + BUSY + Duration::from_millis(50)),
            now + Duration::from_millis(50)
        );
    }
}
