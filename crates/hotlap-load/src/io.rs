//! The system calls of the engine: connect, send, receive, wait, close.
//!
//! A socket is registered once, edge-triggered, for reading and writing. The caller sends at once
//! and reads until a read comes back short. A request therefore costs one send, one receive, and
//! its share of one wait.
//!
//! There is one backend, which is mio's epoll or kqueue. A bare io_uring loop (multishot receive,
//! buffer ring, fixed files, skipped completions) was compared with a bare epoll loop. With
//! io_uring, the CPU time per request was at most 6% lower, and a third higher with large bodies.
//! These figures do not justify a second backend.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Poll, Token, Waker};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, SockAddr, Type};

use crate::outcome::Failure;
use crate::plan::{Endpoint, Plan};

/// The name of the backend in an outcome.
pub(crate) const BACKEND: &str = if cfg!(target_os = "linux") { "epoll" } else { "kqueue" };

const WAKER: Token = Token(usize::MAX);

/// The maximum number of events that are fetched from the kernel at once.
const EVENTS: usize = 1024;

/// A socket, and what it is ready for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// The key that the socket was registered with.
    pub(crate) key: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Whether the peer has closed its side, or the socket has failed. A read says which.
    pub(crate) ended: bool,
}

/// The events of one wake-up, as the kernel delivers them. The thread that waits allocates them, so
/// that it shares no cache lines with another thread.
#[derive(Debug)]
pub(crate) struct Events(mio::Events);

impl Events {
    pub(crate) fn new() -> Self {
        Self(mio::Events::with_capacity(EVENTS))
    }

    /// Returns whether nothing has happened.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the sockets that are ready, without the waker and the timer.
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
    /// Connecting is in progress or done. The socket becomes writable.
    Started(Socket),
    /// The server's accept queue is full (Unix sockets), so the caller must try again.
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
    /// Opens the queue, with a waker for other threads.
    pub(crate) fn new() -> io::Result<(Self, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let timer = Timer::new(&poll)?;
        Ok((Self { poll, timer }, waker))
    }

    /// Starts connecting, and registers the socket with `key`.
    pub(crate) fn connect(&self, plan: &Plan, source: Option<IpAddr>, key: usize) -> Connect {
        let (socket, started) = match connect(plan, source) {
            Ok(begun) => begun,
            Err(e) => return Connect::Failed(Failure::Other, e),
        };
        match started {
            Ok(()) => match self.register(&socket, key) {
                Ok(()) => Connect::Started(Socket::new(socket)),
                Err(e) => Connect::Failed(Failure::Other, e),
            },
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Connect::QueueFull,
            Err(e)
                if e.kind() == io::ErrorKind::AddrNotAvailable
                    && has_address_for(&plan.target.endpoint) =>
            {
                let why = "no local port is free";
                Connect::Failed(Failure::NoPort, io::Error::new(e.kind(), why))
            }
            Err(e) => Connect::Failed(failure(&e), e),
        }
    }

    fn register(&self, socket: &socket2::Socket, key: usize) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(key), interest)
    }

    /// Waits for events until `until_ns` (monotonic), and stores them. With `None`, fetches the
    /// events without waiting.
    pub(crate) fn wait(&mut self, until_ns: Option<u64>, events: &mut Events) {
        let timeout = match until_ns {
            Some(at) => self.timer.arm(at),
            None => Some(Duration::ZERO),
        };
        // The only possible error is an interruption by a signal, which is a wake-up without
        // events.
        if self.poll.poll(&mut events.0, timeout).is_err() {
            events.0.clear();
        }
    }
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes(usize),
    /// No bytes are available now.
    WouldBlock,
    /// The peer has closed its side.
    End,
    Failed(Failure),
}

/// A stream socket that is connected or connecting. It is closed when dropped.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    fn new(socket: socket2::Socket) -> Self {
        Self(socket.into())
    }

    /// Returns whether connecting succeeded. Call this when the socket first becomes writable.
    pub(crate) fn finish_connect(&self) -> Result<(), (Failure, io::Error)> {
        match rustix::net::sockopt::socket_error(self.0.as_fd()) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) | Err(errno) => {
                let error = io::Error::from(errno);
                Err((failure(&error), error))
            }
        }
    }

    /// Sends as many bytes as fit, which may be none. Returns their number.
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

    /// Receives the available bytes, up to the size of the buffer.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        self.receive_with(buffer, RecvFlags::empty())
    }

    /// Discards the available bytes, up to the size of the buffer. On Linux, bytes from TCP are
    /// not copied (tcp(7), `MSG_TRUNC`).
    pub(crate) fn discard(&self, buffer: &mut [u8]) -> Received {
        let can_truncate = cfg!(target_os = "linux");
        self.receive_with(buffer, if can_truncate { RecvFlags::TRUNC } else { RecvFlags::empty() })
    }

    #[inline]
    fn receive_with(&self, buffer: &mut [u8], flags: RecvFlags) -> Received {
        loop {
            return match rustix::net::recv(&self.0, &mut *buffer, flags) {
                Ok((_, 0)) => Received::End,
                Ok((_, count)) => Received::Bytes(count),
                Err(Errno::AGAIN) => Received::WouldBlock,
                Err(Errno::INTR) => continue,
                Err(errno) => Received::Failed(failure(&errno.into())),
            };
        }
    }
}

/// Opens a socket and starts connecting. The outer error comes from setting up the socket, and the
/// inner error comes from connecting.
fn connect(plan: &Plan, source: Option<IpAddr>) -> io::Result<(socket2::Socket, io::Result<()>)> {
    let (domain, address) = match &plan.target.endpoint {
        Endpoint::Tcp(address) => (Domain::for_address(*address), SockAddr::from(*address)),
        Endpoint::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
    };
    let socket = socket2::Socket::new(domain, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if let Endpoint::Tcp(_) = plan.target.endpoint {
        socket.set_tcp_nodelay(true)?;
        if let Some(source) = source {
            bind_address_no_port(&socket)?;
            let refused = |e| io::Error::other(format!("cannot use the address {source} ({e})"));
            socket.bind(&SocketAddr::new(source, 0).into()).map_err(refused)?;
        }
    }
    let started = match socket.connect(&address) {
        Err(e) if e.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok(()),
        other => other,
    };
    Ok((socket, started))
}

/// Returns whether this machine has an address from which it can connect. Without such an address,
/// the error is the same as without a free port. A UDP socket does not need one of the TCP ports,
/// so it can tell the two cases apart.
#[cold]
fn has_address_for(endpoint: &Endpoint) -> bool {
    let Endpoint::Tcp(address) = endpoint else { return false };
    let socket = socket2::Socket::new(Domain::for_address(*address), Type::DGRAM, None);
    socket.and_then(|socket| socket.connect(&SockAddr::from(*address))).is_ok()
}

/// Leaves the choice of the port to `connect`, which knows the peer. One port can then serve
/// several peers (ip(7), `IP_BIND_ADDRESS_NO_PORT`).
#[cfg(target_os = "linux")]
fn bind_address_no_port(socket: &socket2::Socket) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let on: libc::c_int = 1;
    #[expect(unsafe_code, reason = "no safe crate in use offers this option")]
    // SAFETY: the descriptor is open as long as `socket` lives. The value of the option is an int.
    // The pointer and the size describe `on`, which the kernel only reads.
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
fn bind_address_no_port(_socket: &socket2::Socket) -> io::Result<()> {
    Ok(())
}

/// Maps a socket error to a kind of failure.
#[cold]
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

/// The token of the timer's events.
const TIMER: Token = Token(usize::MAX - 1);

/// A timer in the event queue.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Timer {
    fd: std::os::fd::OwnedFd,
    armed_ns: u64,
}

#[cfg(target_os = "linux")]
impl Timer {
    fn new(poll: &Poll) -> io::Result<Self> {
        use mio::Interest;
        use mio::unix::SourceFd;
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        poll.registry().register(&mut SourceFd(&fd.as_raw_fd()), TIMER, Interest::READABLE)?;
        Ok(Self { fd, armed_ns: 0 })
    }

    /// Arms the timer, unless it is already armed for that time. Returns `None`: the timer ends the
    /// wait, so the wait itself needs no timeout.
    fn arm(&mut self, at_ns: u64) -> Option<Duration> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        if self.armed_ns != at_ns {
            self.armed_ns = at_ns;
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let spec = Itimerspec { it_interval: zero, it_value: timespec(at_ns) };
            // This fails only for times out of range, which do not occur.
            let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &spec);
        }
        None
    }
}

/// Converts a monotonic time in nanoseconds. Zero would disarm the timer, so it becomes one.
#[cfg(target_os = "linux")]
fn timespec(at_ns: u64) -> rustix::time::Timespec {
    let at_ns = at_ns.max(1);
    rustix::time::Timespec {
        tv_sec: (at_ns / 1_000_000_000) as _,
        tv_nsec: (at_ns % 1_000_000_000) as _,
    }
}

/// On other systems, the wait itself has a timeout instead of a timer.
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
        let (mut io, _waker) = Io::new().expect("an event queue");
        let at_ns = crate::clock::now() + 1_333_333;
        io.wait(Some(at_ns), &mut Events::new());
        // The wait does not end before that time on the same clock.
        assert!(crate::clock::now() >= at_ns);
    }

    #[test]
    fn a_timer_is_armed_to_the_nanosecond() {
        let parts = |at_ns| (timespec(at_ns).tv_sec, timespec(at_ns).tv_nsec);
        assert_eq!(parts(5_000_333_333), (5, 333_333));
        assert_eq!(parts(999_999_999), (0, 999_999_999));
        assert_eq!(parts(0), (0, 1));
    }
}
