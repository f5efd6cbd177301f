//! A load under way: started, watched, ended.
//!
//! [`run`] is the short way. A [`Session`] is for those who sample the server at the window's two
//! edges, or draw while it runs.

use std::time::Instant;

use crate::{Outcome, Plan, PlanError};

/// What keeps a load from being run at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The system refused something that the generator needs.
    #[error("{what}: {source}")]
    System {
        /// What was wanted, and what to do about it.
        what: String,
        /// The system's word.
        source: std::io::Error,
    },
    /// No connection could be opened at all.
    #[error("no connection to {target}: {why}")]
    Unreachable {
        /// The address.
        target: String,
        /// The first failure.
        why: String,
    },
}

/// The measured window: after the ramp, before the end.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// It opens.
    pub opens: Instant,
    /// It closes, where the plan names a duration.
    pub closes: Option<Instant>,
}

/// Where a session stands now; summed over the workers, each of which publishes at every wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Right answers so far, ramp included.
    pub answers: u64,
    /// Failures so far, ramp included.
    pub failures: u64,
    /// Connections up now.
    pub connected: u64,
}

/// A load under way.
pub struct Session {}

impl Session {
    /// Starts the worker threads and opens the connections.
    ///
    /// # Errors
    /// When the plan makes no sense or the system refuses.
    pub fn start(_plan: &Plan) -> Result<Self, Error> {
        Ok(Self {})
    }

    /// Waits until all connections are up (or have failed), and says when the window is. `None`
    /// when the session ends before that.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        None
    }

    /// How far it is. Cheap, from any thread, at any time.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress::default()
    }

    /// Ends it now; what is measured so far stays.
    pub fn stop(&self) {}

    /// Waits for the end.
    ///
    /// # Errors
    /// When no connection could be opened at all.
    pub fn join(self) -> Result<Outcome, Error> {
        unimplemented!()
    }
}

/// Runs a plan to its end.
///
/// # Errors
/// As [`Session::start`] and [`Session::join`].
pub fn run(plan: &Plan) -> Result<Outcome, Error> {
    Session::start(plan)?.join()
}
