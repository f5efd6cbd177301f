//! Serves at an address, with one event loop per thread.

use std::io;
use std::net::SocketAddr;

use mio::net::TcpListener;
use socket2::{Domain, Socket, Type};

use crate::event_loop::{Behaviour, EventLoop};

/// Connections that the system queues for each thread until they are accepted. A bound on
/// resources: Linux caps it at net.core.somaxconn, whose default is the same.
const BACKLOG: i32 = 4096;

/// Why a server cannot run.
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
/// The address is unavailable, or the system refuses an event loop.
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
