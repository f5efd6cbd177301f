//! An edge-triggered event loop: accept, read, respond, and nothing else.
//!
//! Sockets are registered once. A read that does not fill the buffer is the last one until the next
//! event; all responses to the requests of one read are sent in one write.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read as _};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::connection::{Connection, Sent};
use crate::request::{self, Missing, Parsed, Request};
use crate::response::refuse;
use crate::timer::Timer;

/// Which responses are sent, and when.
pub(crate) trait Behaviour {
    /// Appends the response to one request. Returns its delay.
    fn respond(&mut self, request: &Request, out: &mut Vec<u8>) -> Duration;

    /// Whether what would be sent in one write is sent in two.
    fn sends_in_two(&self) -> bool {
        false
    }

    /// Called after each set of events; a server may stall here on purpose.
    fn after_events(&mut self) {}

    /// When it wants to be called again, even if there are no events.
    fn wakes_at(&self) -> Option<Instant> {
        None
    }

    /// Whether the loop polls without sleeping while it has a connection, so that no wake-up adds
    /// to the time of a response.
    fn busy_polls(&self) -> bool {
        false
    }
}

/// How long before a delayed response is due the loop polls without sleeping: slightly longer than
/// a wake-up takes (30 to 40 µs on the virtual machines of METHODOLOGY; timers of other systems are
/// coarser). Longer would do harm: on a busy core, a polling thread uses up its share and then has
/// to wait when the response is due.
const BUSY: Duration = Duration::from_micros(if cfg!(target_os = "linux") { 60 } else { 2_000 });

/// Until when to sleep if a response is due then.
fn sleep_until(due: Instant) -> Instant {
    due.checked_sub(BUSY).unwrap_or(due)
}

/// How soon to retry after accepting failed: soon enough that clients do not notice, with at most
/// 100 system calls per second.
const RETRY_ACCEPT: Duration = Duration::from_millis(10);

/// Whether accepting failed for one client only, so that the next one in the queue can be accepted
/// (accept(2), *Error handling*).
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

/// Maximum size of one read, in bytes.
const READ_BYTES: usize = 64 * 1024;

pub(crate) struct EventLoop<B> {
    poll: Poll,
    listener: TcpListener,
    behaviour: B,
    connections: Vec<Option<Connection>>,
    /// Free indices of `connections`.
    free: Vec<usize>,
    buffer: Vec<u8>,
    out: Vec<u8>,
    /// When each delayed response is due, with the index and serial number of its connection.
    delayed: BinaryHeap<Reverse<(Instant, usize, u64)>>,
    serial: u64,
    timer: Timer,
    /// When the timer will fire, if the wait for events needs no timeout in addition.
    armed: Option<Instant>,
    /// Whether clients may still be in the listener's queue without an event to come, because
    /// accepting failed before the queue was empty.
    unaccepted: bool,
}

impl<B: Behaviour> EventLoop<B> {
    pub fn new(mut listener: TcpListener, behaviour: B) -> io::Result<Self> {
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

    pub fn run(&mut self) -> io::Result<()> {
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

    /// Maximum time to wait for events; `None` if unlimited or if the timer was armed.
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

    /// Accepts every client in the queue. Events are edge-triggered, so there will be none for
    /// clients left in the queue; the loop retries later.
    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.add(stream),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.unaccepted = false;
                    return;
                }
                Err(e) if concerns_one_client(e.kind()) => {}
                // Out of file descriptors or memory until a connection closes.
                Err(_) => return,
            }
        }
    }

    /// Serves a new client. If its socket cannot be registered, the connection is closed.
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
            // A read that leaves room in the buffer took everything.
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

    /// Responds to every complete request in `bytes`; false if the connection must not be read now.
    fn process(&mut self, index: usize, bytes: &[u8]) -> bool {
        let Some(connection) = self.connections[index].as_mut() else { return false };
        let mut at = 0;
        connection.missing = None;
        self.out.clear();
        while at < bytes.len() && !connection.closing && !connection.delayed {
            match request::parse(&bytes[at..]) {
                Parsed::Complete(request) => {
                    let delay = self.behaviour.respond(&request, &mut self.out);
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

    /// Sends the delayed responses that are due, and continues reading.
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
