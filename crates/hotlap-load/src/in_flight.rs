//! A request in flight, and how it ends.

use crate::check::Mismatch;
use crate::outcome::{Failure, Phase};
use crate::requests::Turn;

/// The maximum number of bytes of a wrong response to keep as evidence.
pub(crate) const EVIDENCE: usize = 512;

/// A request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlight {
    /// Which one it is.
    pub(crate) turn: Turn,
    /// When it was due; in a closed loop, when it was sent.
    pub(crate) due_ns: u64,
    /// When it was sent, or connecting for it began.
    pub(crate) sent_ns: u64,
}

impl InFlight {
    /// When its latency begins: when it was due in an open loop, else when it was sent.
    pub(crate) fn start_ns(&self, is_open_loop: bool) -> u64 {
        if is_open_loop { self.due_ns } else { self.sent_ns }
    }
}

/// A complete response, with the request that it answers.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) request: InFlight,
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    /// Its bytes on the wire, including interim responses.
    pub(crate) bytes: u64,
    /// How it differs from the expected response, and its first bytes.
    pub(crate) wrong: Option<(Mismatch, Vec<u8>)>,
}

/// Why a connection cannot be used any more.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) failure: Failure,
    pub(crate) phase: Phase,
    pub(crate) why: &'static str,
    /// The first bytes of the malformed response.
    pub(crate) first_bytes: Vec<u8>,
}
