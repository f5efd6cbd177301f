//! The sources of load: this process, or several generators that are agents.
//!
//! Both sources have the same interface. A load opens connections, counts in windows, is paused
//! before the server is frozen, and returns its outcome. With several generators, each of these
//! steps is an order to all agents ([`Generators`](crate::Generators)).

use std::fmt::Debug;
use std::time::Duration;

use hotlap_load::plan::Plan;
use hotlap_load::{Error, Failure, Outcome, Progress, Session, Window};
use hotlap_servers::running::Sample;

use crate::error::{ChannelError, ChannelFault};
use crate::outcome::Contributions;

/// A source of load.
pub trait LoadHost: Debug + Send + Sync {
    /// Runs a plan with one window.
    ///
    /// # Errors
    /// Fails if the load could not be started.
    fn start(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError>;

    /// Opens the connections of a load that is held between windows.
    ///
    /// # Errors
    /// Fails like [`LoadHost::start`].
    fn hold(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError>;

    /// The longest delay from the request for a reading to the reading: zero or a round trip.
    fn delay(&self) -> Duration;
}

/// A load under way. Dropping the load ends it.
///
/// Like a [`Session`], a load has one window ([`LoadHost::start`]) or any number of windows
/// ([`LoadHost::hold`]).
pub trait RunningLoad: Debug + Send {
    /// Waits until each connection is open or has failed once, and returns the times at which the
    /// window opens and closes. `None` if the load ends first.
    fn wait_for_window(&self) -> Option<Window>;

    /// Opens a window of a held load, after `warmup` and for `length`.
    fn open_window(&self, warmup: Duration, length: Duration);

    /// Stops sending until the next window, and waits until every request in flight has a response
    /// or has failed, for at most `limit`. Returns whether none is left in flight.
    fn pause(&self, limit: Duration) -> bool;

    /// Returns the outcome of a held load's windows since the last call. `None` if the load has
    /// ended, if a generator is lost, or if the user interrupts.
    fn collect(&self) -> Option<LoadOutcome>;

    /// Takes a sample of the server with `take`, and adds the number of requests completed by
    /// then. `take` gets a function that returns this number, or 0 if the generators are agents.
    fn sample(&self, take: &mut dyn FnMut(&dyn Fn() -> u64) -> Sample) -> Sample;

    /// The progress of the load.
    fn progress(&self) -> Progress;

    /// The number of requests that have got a response or failed so far.
    fn answered(&self) -> u64 {
        self.progress().completed()
    }

    /// Whether the load had ended when [`progress`](Self::progress) was last called.
    fn is_finished(&self) -> bool;

    /// Returns a function for an upper bound on the number of field values that the load used,
    /// once it has ended.
    fn values_used(&self) -> ValuesUsed;

    /// Ends the load now and keeps what was measured so far.
    fn stop(&self);

    /// Waits for the end of the load.
    ///
    /// # Errors
    /// Fails if no connection could be opened, or if a generator was lost.
    fn join(self: Box<Self>) -> Result<LoadOutcome, LoadError>;

    /// Why a generator was lost, if one was. The load has then ended.
    fn lost(&self) -> Option<ChannelError>;
}

/// A function that returns an upper bound on the number of field values that a load has used.
pub type ValuesUsed = Box<dyn Fn() -> u64 + Send>;

/// The measurements of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOutcome {
    /// The outcome of the load. For several generators, this is the sum.
    pub outcome: Outcome,
    /// The contributions to the sum. `None` for a load of this process.
    pub contributions: Option<Contributions>,
}

/// Why a load has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The load is impossible, or cannot be divided among the generators.
    #[error("{0}")]
    Unfit(String),
    /// The load cannot be run, for example because the server cannot be reached.
    #[error("{0}")]
    Failed(String),
    /// No local port is free for a connection to the server.
    #[error("{0}")]
    NoPort(String),
    /// A generator was lost, so the counts of the others do not cover the whole load. The next
    /// load starts the generator again.
    #[error(transparent)]
    Lost(ChannelError),
    /// A generator was lost and cannot be started again.
    #[error("a generator was lost and cannot be started again: {0}")]
    Gone(ChannelError),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        match error {
            Error::Plan(error) => Self::Unfit(error.to_string()),
            Error::Unreachable { failure: Failure::NoPort, .. } => Self::NoPort(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<ChannelError> for LoadError {
    fn from(error: ChannelError) -> Self {
        match error.fault {
            ChannelFault::Refused(_) | ChannelFault::Interrupted => Self::Failed(error.to_string()),
            _ => Self::Lost(error),
        }
    }
}

/// The load generator of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisProcess;

impl LoadHost for ThisProcess {
    fn start(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError> {
        Ok(Box::new(Session::start(plan)?))
    }

    fn hold(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError> {
        Ok(Box::new(Session::start_held(plan)?))
    }

    fn delay(&self) -> Duration {
        Duration::ZERO
    }
}

impl RunningLoad for Session {
    fn wait_for_window(&self) -> Option<Window> {
        Self::wait_for_window(self)
    }

    fn open_window(&self, warmup: Duration, length: Duration) {
        let _ = Self::open_window(self, warmup, length);
    }

    fn pause(&self, limit: Duration) -> bool {
        Self::pause(self, limit)
    }

    fn collect(&self) -> Option<LoadOutcome> {
        Some(LoadOutcome { outcome: Self::collect(self)?, contributions: None })
    }

    fn sample(&self, take: &mut dyn FnMut(&dyn Fn() -> u64) -> Sample) -> Sample {
        take(&|| self.answered())
    }

    fn progress(&self) -> Progress {
        Self::progress(self)
    }

    fn is_finished(&self) -> bool {
        Self::is_finished(self)
    }

    fn values_used(&self) -> ValuesUsed {
        let used = Self::values_used(self);
        Box::new(move || used.most())
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn join(self: Box<Self>) -> Result<LoadOutcome, LoadError> {
        Ok(LoadOutcome { outcome: Self::join(*self)?, contributions: None })
    }

    fn lost(&self) -> Option<ChannelError> {
        None
    }
}
