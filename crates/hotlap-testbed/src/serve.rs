//! Serves on loopback, with one event loop per thread.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use mio::net::TcpListener;
use socket2::{Domain, Socket, Type};

use crate::event_loop::{Behaviour, EventLoop};

/// Connections that the system queues for each thread until they are accepted. A bound on
/// resources: Linux caps it at net.core.somaxconn, whose default is the same.
const BACKLOG: i32 = 4096;

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port is taken or not permitted.
    #[error("cannot listen on port {port}: {source}; set PORT to another one")]
    Listen {
        /// The port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused a resource that an event loop needs.
    #[error("cannot create an event loop: {0}")]
    Loop(#[from] io::Error),
}

/// Serves until the process ends, with `threads` threads, each with its own behaviour.
///
/// Each thread has its own listening socket on the same port (`SO_REUSEPORT`), so the threads share
/// nothing.
///
/// # Errors
/// The port is unavailable, or the system refuses an event loop.
pub(crate) fn serve<B: Behaviour>(
    port: u16,
    threads: usize,
    behaviour: impl Fn() -> B + Sync,
) -> Result<(), ServeError> {
    let listeners: Vec<TcpListener> = (0..threads.max(1))
        .map(|_| listen(port).map_err(|source| ServeError::Listen { port, source }))
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

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}
