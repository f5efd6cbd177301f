//! The only system calls of the engine: connect, send, receive, wait, close.
//!
//! A socket is registered once, edge-triggered, for everything; the caller sends straight away and
//! reads until a read comes back short, so that a request costs one send, one receive, and its part
//! of one wait.
//!
//! There is one backend, mio's epoll or kqueue. A bare io_uring loop (multishot receive, buffer
//! ring, fixed files, skipped completions) was measured beside a bare epoll loop, in CPU time per
//! request: the same with 10 connections, 6 % less with 100, the same with 1,000, and a third more
//! with bodies of 64 KiB and 1 MiB. That does not pay for a second backend.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, SockAddr, Socket as RawSocket, Type};

use crate::outcome::Failure;
use crate::plan::Endpoint;

/// What this backend is called in an outcome.
pub(crate) const NAME: &str = if cfg!(target_os = "linux") { "epoll" } else { "kqueue" };

const WAKER: Token = Token(usize::MAX);
const TIMER: Token = Token(usize::MAX - 1);

/// Events taken from the kernel at a time.
const EVENTS: usize = 1024;

/// What a socket is ready for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// The number that it was registered under.
    pub(crate) key: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The other side sends no more, or the socket failed: a read says which.
    pub(crate) ended: bool,
}

/// All that was ready at a wake-up, in the kernel's own form; made by the thread that waits, so
/// that no other's memory is beside it.
#[derive(Debug)]
pub(crate) struct Round(Events);

impl Round {
    /// Room for what is ready at a time.
    pub(crate) fn new() -> Self {
        Self(Events::with_capacity(EVENTS))
    }

    /// What is ready, without what only wakes.
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

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes(usize),
    /// Nothing is there now.
    Later,
    /// The other side sends no more.
    End,
    Failed(Failure),
}

/// A connected or connecting stream socket; closed when dropped.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// How connecting began.
#[derive(Debug)]
pub(crate) enum Connecting {
    /// It is under way, or done: the socket becomes writable.
    Begun(Socket),
    /// The other side's queue is full; to be tried again.
    Busy,
    Failed(Failure, io::Error),
}

/// One worker's view of the kernel.
#[derive(Debug)]
pub(crate) struct Io {
    poll: Poll,
    timer: Timer,
}

impl Io {
    /// Opens the queue of events, and what wakes it from another thread.
    pub(crate) fn new() -> io::Result<(Self, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let timer = Timer::new(&poll)?;
        Ok((Self { poll, timer }, waker))
    }

    /// Starts to connect, and registers the socket under `key`.
    pub(crate) fn connect(
        &self,
        endpoint: &Endpoint,
        source: Option<IpAddr>,
        key: usize,
    ) -> Connecting {
        match begin(endpoint, source) {
            Ok((socket, Ok(()))) => match self.register(&socket, key) {
                Ok(()) => Connecting::Begun(Socket(socket.into())),
                Err(e) => Connecting::Failed(Failure::Other, e),
            },
            Ok((_, Err(e))) if e.kind() == io::ErrorKind::WouldBlock => Connecting::Busy,
            Ok((_, Err(e))) if e.kind() == io::ErrorKind::AddrNotAvailable => {
                let why = "no local port is left: connect from several source addresses";
                Connecting::Failed(Failure::Other, io::Error::new(e.kind(), why))
            }
            Ok((_, Err(e))) => Connecting::Failed(failure(&e), e),
            Err(e) => Connecting::Failed(Failure::Other, e),
        }
    }

    fn register(&self, socket: &RawSocket, key: usize) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(key), interest)
    }

    /// Waits until something is ready or `until_ns` is over (monotonic; `None`: does not wait), and
    /// puts what is ready into `round`.
    pub(crate) fn wait(&mut self, until_ns: Option<u64>, round: &mut Round) {
        let timeout = match until_ns {
            Some(at) => self.timer.arm(at),
            None => Some(Duration::ZERO),
        };
        // Being interrupted is being woken with nothing to do; no other failure is possible here.
        if self.poll.poll(&mut round.0, timeout).is_err() {
            round.0.clear();
        }
    }
}

/// A socket that began to connect, and how that went.
type Begun = (RawSocket, io::Result<()>);

fn begin(endpoint: &Endpoint, source: Option<IpAddr>) -> io::Result<Begun> {
    let (domain, address) = match endpoint {
        Endpoint::Tcp(address) => (Domain::for_address(*address), SockAddr::from(*address)),
        Endpoint::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
    };
    let socket = RawSocket::new(domain, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if let Endpoint::Tcp(_) = endpoint {
        socket.set_tcp_nodelay(true)?;
        if let Some(source) = source {
            bind_late(&socket)?;
            let foreign = |e| io::Error::other(format!("cannot connect from {source}: {e}"));
            socket.bind(&SocketAddr::new(source, 0).into()).map_err(foreign)?;
        }
    }
    let begun = match socket.connect(&address) {
        Err(e) if e.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok(()),
        other => other,
    };
    Ok((socket, begun))
}

/// Leaves the choice of the port to `connect`, which knows the other side, so that the same port
/// serves several (ip(7), `IP_BIND_ADDRESS_NO_PORT`).
#[cfg(target_os = "linux")]
fn bind_late(socket: &RawSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    #[expect(unsafe_code, reason = "no safe crate in use offers this option")]
    // SAFETY: the descriptor is open for as long as `socket` lives; the option's value is an int,
    // its pointer and size are those of `on`, which the kernel only reads.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            std::ptr::from_ref(&on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn bind_late(_socket: &RawSocket) -> io::Result<()> {
    Ok(())
}

impl Socket {
    /// Whether connecting succeeded; asked when the socket becomes writable for the first time.
    pub(crate) fn connected(&self) -> Result<(), (Failure, io::Error)> {
        match rustix::net::sockopt::socket_error(self.0.as_fd()) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) | Err(errno) => {
                let error = io::Error::from(errno);
                Err((failure(&error), error))
            }
        }
    }

    /// Sends what fits, which may be nothing.
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize, Failure> {
        loop {
            match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(count),
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failure(&errno.into())),
            }
        }
    }

    /// Receives what is there, up to the buffer's size.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        self.receive_with(buffer, RecvFlags::empty())
    }

    /// Throws away what is there, up to `buffer`'s size, without copying where the system can
    /// (tcp(7), `MSG_TRUNC`).
    pub(crate) fn discard(&self, buffer: &mut [u8]) -> Received {
        let is_able = cfg!(target_os = "linux");
        self.receive_with(buffer, if is_able { RecvFlags::TRUNC } else { RecvFlags::empty() })
    }

    #[inline]
    fn receive_with(&self, buffer: &mut [u8], flags: RecvFlags) -> Received {
        loop {
            return match rustix::net::recv(&self.0, &mut *buffer, flags) {
                Ok((_, 0)) => Received::End,
                Ok((_, count)) => Received::Bytes(count),
                Err(Errno::AGAIN) => Received::Later,
                Err(Errno::INTR) => continue,
                Err(errno) => Received::Failed(failure(&errno.into())),
            };
        }
    }
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Failure::Refused,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted => Failure::Reset,
        io::ErrorKind::TimedOut => Failure::Timeout,
        _ => Failure::Other,
    }
}

/// Wakes the queue of events at a moment, to the nanosecond where the system can: epoll's own
/// timeout counts milliseconds.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Timer {
    fd: OwnedFd,
    armed_ns: u64,
}

#[cfg(target_os = "linux")]
impl Timer {
    fn new(poll: &Poll) -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        poll.registry().register(&mut SourceFd(&fd.as_raw_fd()), TIMER, Interest::READABLE)?;
        Ok(Self { fd, armed_ns: 0 })
    }

    /// Arms it, unless it is armed for that moment already. The wait itself needs no timeout then.
    fn arm(&mut self, at_ns: u64) -> Option<Duration> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        if self.armed_ns != at_ns {
            self.armed_ns = at_ns;
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let spec = Itimerspec { it_interval: zero, it_value: moment(at_ns) };
            // It fails for moments out of range only, and those are never reached.
            let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &spec);
        }
        None
    }
}

/// A moment of the monotonic clock, to the nanosecond. Zero would switch a timer off.
#[cfg(target_os = "linux")]
fn moment(at_ns: u64) -> rustix::time::Timespec {
    let at_ns = at_ns.max(1);
    rustix::time::Timespec {
        tv_sec: (at_ns / 1_000_000_000) as _,
        tv_nsec: (at_ns % 1_000_000_000) as _,
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    fn new(_poll: &Poll) -> io::Result<Self> {
        Ok(Self)
    }

    fn arm(&mut self, at_ns: u64) -> Option<Duration> {
        Some(Duration::from_nanos(at_ns.saturating_sub(crate::clock::now())))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn wrk2_sleeps_whole_milliseconds() {
        let parts = |at_ns| (moment(at_ns).tv_sec, moment(at_ns).tv_nsec);
        assert_eq!(parts(5_000_333_333), (5, 333_333));
        assert_eq!(parts(999_999_999), (0, 999_999_999));
        assert_eq!(parts(0), (0, 1));
        // The wait ends at that moment of the same clock, and not before.
        let (mut io, _waker) = Io::new().expect("a queue of events");
        let at_ns = crate::clock::now() + 1_333_333;
        io.wait(Some(at_ns), &mut Round::new());
        assert!(crate::clock::now() >= at_ns);
    }
}
