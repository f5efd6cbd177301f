//! The system calls of the engine: connect, send, receive, wait, close.
//!
//! A socket is registered once, edge-triggered, for reading and writing. The caller sends at once
//! and reads until a read comes back short, so that a request costs one send, one receive, and its
//! share of one wait.
//!
//! There is one backend, mio's epoll or kqueue. A bare io_uring loop (multishot receive, buffer
//! ring, fixed files, skipped completions) was compared with a bare epoll loop, by CPU time per
//! request: equal with 10 and with 1,000 connections, 6 % less with 100, and a third more with
//! bodies of 64 KiB and 1 MiB. That does not justify a second backend.

mod socket;
mod timer;

pub(crate) use socket::{Received, Socket};

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Poll, Token, Waker};

use crate::outcome::Failure;
use crate::plan::Endpoint;
use timer::{TIMER, Timer};

/// The name of the backend in an outcome.
pub(crate) const BACKEND: &str = if cfg!(target_os = "linux") { "epoll" } else { "kqueue" };

const WAKER: Token = Token(usize::MAX);

/// Events fetched from the kernel at once.
const EVENTS: usize = 1024;

/// What a socket is ready for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// The key that the socket was registered with.
    pub(crate) key: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has closed its side, or the socket has failed; a read says which.
    pub(crate) ended: bool,
}

/// The events of one wake-up, as the kernel delivers them. Allocated by the thread that waits, so
/// that it shares no cache lines with another.
#[derive(Debug)]
pub(crate) struct Events(mio::Events);

impl Events {
    pub(crate) fn new() -> Self {
        Self(mio::Events::with_capacity(EVENTS))
    }

    /// Whether nothing has happened.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sockets that are ready, without the waker and the timer.
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Ready> + '_ {
        let is_socket = |e: &&Event| e.token() != WAKER && e.token() != TIMER;
        self.0.iter().filter(is_socket).map(|event| Ready {
            key: event.token().0,
            readable: event.is_readable(),
            writable: event.is_writable(),
            ended: event.is_read_closed() || event.is_error(),
        })
    }
}

/// The result of starting to connect.
#[derive(Debug)]
pub(crate) enum Connect {
    /// In progress, or done: the socket becomes writable.
    Started(Socket),
    /// The server's accept queue is full (Unix sockets): try again.
    QueueFull,
    Failed(Failure, io::Error),
}

/// The event queue of one worker.
#[derive(Debug)]
pub(crate) struct Io {
    poll: Poll,
    timer: Timer,
}

impl Io {
    /// Opens the queue, and a waker for other threads.
    pub(crate) fn new() -> io::Result<(Self, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let timer = Timer::new(&poll)?;
        Ok((Self { poll, timer }, waker))
    }

    /// Starts connecting, and registers the socket with `key`.
    pub(crate) fn connect(
        &self,
        endpoint: &Endpoint,
        source: Option<IpAddr>,
        key: usize,
    ) -> Connect {
        let (socket, started) = match socket::connect(endpoint, source) {
            Ok(begun) => begun,
            Err(e) => return Connect::Failed(Failure::Other, e),
        };
        match started {
            Ok(()) => match self.register(&socket, key) {
                Ok(()) => Connect::Started(Socket::new(socket)),
                Err(e) => Connect::Failed(Failure::Other, e),
            },
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Connect::QueueFull,
            Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable => {
                let why = "no local port is free: connect from several source addresses";
                Connect::Failed(Failure::NoPort, io::Error::new(e.kind(), why))
            }
            Err(e) => Connect::Failed(socket::failure(&e), e),
        }
    }

    fn register(&self, socket: &socket2::Socket, key: usize) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(key), interest)
    }

    /// Waits until a socket is ready or `until_ns` (monotonic) has passed, and stores the events.
    /// With `None` it fetches events without waiting.
    pub(crate) fn wait(&mut self, until_ns: Option<u64>, events: &mut Events) {
        let timeout = match until_ns {
            Some(at) => self.timer.arm(at),
            None => Some(Duration::ZERO),
        };
        // The only possible error is an interruption by a signal: a wake-up without events.
        if self.poll.poll(&mut events.0, timeout).is_err() {
            events.0.clear();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn wrk2_sleeps_whole_milliseconds() {
        let (mut io, _waker) = Io::new().expect("an event queue");
        let at_ns = crate::clock::now() + 1_333_333;
        io.wait(Some(at_ns), &mut Events::new());
        // The wait ends at that time by the same clock, not earlier.
        assert!(crate::clock::now() >= at_ns);
    }
}
