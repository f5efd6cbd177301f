//! The ceiling: the least work with which a correct response can be sent on this machine.

use std::net::SocketAddr;
use std::time::Duration;

use crate::event_loop::Behaviour;
use crate::request::Request;
use crate::serve::{ServeError, serve};

/// Serves the contract `hello` until the process ends, with one event loop per thread.
///
/// # Errors
/// The address is unavailable, or the system refuses an event loop.
pub fn serve_ceiling(address: SocketAddr, threads: usize) -> Result<(), ServeError> {
    serve(address, threads, || Ceiling)
}

struct Ceiling;

impl Behaviour for Ceiling {
    #[inline]
    fn respond(&mut self, request: &Request, out: &mut Vec<u8>) -> Duration {
        request.reply.write(request.close, out);
        Duration::ZERO
    }
}
