//! A non-blocking stream socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, SockAddr, Type};

use crate::outcome::Failure;
use crate::plan::Endpoint;

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

/// A stream socket that is connected or connecting; closed when dropped.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(super) fn new(socket: socket2::Socket) -> Self {
        Self(socket.into())
    }

    /// Whether connecting succeeded. Call this when the socket first becomes writable.
    pub(crate) fn finish_connect(&self) -> Result<(), (Failure, io::Error)> {
        match rustix::net::sockopt::socket_error(self.0.as_fd()) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) | Err(errno) => {
                let error = io::Error::from(errno);
                Err((failure(&error), error))
            }
        }
    }

    /// Sends as much as fits, which may be nothing.
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

    /// Receives what is available, up to the size of the buffer.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        self.receive_with(buffer, RecvFlags::empty())
    }

    /// Discards what is available, up to the size of the buffer, without copying it where the
    /// system can (tcp(7), `MSG_TRUNC`).
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

/// Opens a socket and starts connecting. The outer error is a local one; the inner one is that of
/// connecting.
pub(super) fn connect(
    endpoint: &Endpoint,
    source: Option<IpAddr>,
) -> io::Result<(socket2::Socket, io::Result<()>)> {
    let (domain, address) = match endpoint {
        Endpoint::Tcp(address) => (Domain::for_address(*address), SockAddr::from(*address)),
        Endpoint::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
    };
    let socket = socket2::Socket::new(domain, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if let Endpoint::Tcp(_) = endpoint {
        socket.set_tcp_nodelay(true)?;
        if let Some(source) = source {
            bind_address_no_port(&socket)?;
            let refused = |e| io::Error::other(format!("cannot connect from {source}: {e}"));
            socket.bind(&SocketAddr::new(source, 0).into()).map_err(refused)?;
        }
    }
    let started = match socket.connect(&address) {
        Err(e) if e.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok(()),
        other => other,
    };
    Ok((socket, started))
}

/// Leaves the choice of the port to `connect`, which knows the peer, so that one port can serve
/// several peers (ip(7), `IP_BIND_ADDRESS_NO_PORT`).
#[cfg(target_os = "linux")]
fn bind_address_no_port(socket: &socket2::Socket) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let on: libc::c_int = 1;
    #[expect(unsafe_code, reason = "no safe crate in use offers this option")]
    // SAFETY: the descriptor is open as long as `socket` lives; the option's value is an int, and
    // pointer and size are those of `on`, which the kernel only reads.
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
pub(super) fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Failure::Refused,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted => Failure::Reset,
        io::ErrorKind::TimedOut => Failure::Timeout,
        _ => Failure::Other,
    }
}
