//! Where load comes from: this process, or several generators that are agents.
//!
//! Both offer the same interface. A load opens connections, counts in windows, is paused before the
//! server is frozen, and returns its outcome. With several generators, each of these steps is an
//! order to all agents ([`Generators`](crate::Generators)).

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
    /// The load could not be started.
    fn start(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError>;

    /// Opens the connections of a load that is held between windows.
    ///
    /// # Errors
    /// As [`LoadHost::start`].
    fn hold(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError>;

    /// How long a reading may take until it is taken: zero on this machine, a round trip to others.
    fn delay(&self) -> Duration;
}

/// A load under way. Dropping it ends the load.
///
/// As a [`Session`], it has one window ([`LoadHost::start`]) or any number of them
/// ([`LoadHost::hold`]).
pub trait RunningLoad: Debug + Send {
    /// Waits until each connection is open or has failed once, and returns when the window opens
    /// and closes. `None` if the load ends before.
    fn wait_for_window(&self) -> Option<Window>;

    /// Opens a window of a held load, after `warmup` and for `length`.
    fn open_window(&self, warmup: Duration, length: Duration);

    /// Stops sending until the next window, and waits until every request in flight is answered or
    /// has failed, for at most `limit`. Returns whether all are.
    fn pause(&self, limit: Duration) -> bool;

    /// The outcome of the windows of a held load since the last call. `None` if the load has ended.
    fn collect(&self) -> Option<LoadOutcome>;

    /// Takes a sample of the server, with the requests that were answered at its moment. `take` is
    /// given what returns the number so far.
    fn sample(&self, take: &mut dyn FnMut(&dyn Fn() -> u64) -> Sample) -> Sample;

    /// How far the load has come.
    fn progress(&self) -> Progress;

    /// The requests that were answered, or failed, so far.
    fn answered(&self) -> u64 {
        self.progress().completed()
    }

    /// Whether the load had ended when its progress was last asked for.
    fn is_finished(&self) -> bool;

    /// What tells an upper bound of the values of fields that the load has used, once it has ended.
    fn values_used(&self) -> ValuesUsed;

    /// Ends the load now and keeps what was measured so far.
    fn stop(&self);

    /// Waits for the end of the load.
    ///
    /// # Errors
    /// No connection could be opened, or a generator was lost.
    fn join(self: Box<Self>) -> Result<LoadOutcome, LoadError>;

    /// Why a generator was lost, if one was. The load has ended then.
    fn lost(&self) -> Option<ChannelError>;
}

/// What tells how many values of fields a load has used.
pub type ValuesUsed = Box<dyn Fn() -> u64 + Send>;

/// What a load measured.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOutcome {
    /// What happened: for several generators, the sum.
    pub outcome: Outcome,
    /// What the sum consists of. `None` for the load of this process.
    pub contributions: Option<Contributions>,
}

/// Why a load has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The load is impossible, or cannot be divided among the generators.
    #[error("{0}")]
    Unfit(String),
    /// It cannot be run, for example because the server cannot be reached.
    #[error("{0}")]
    Failed(String),
    /// No local port is free for a connection to the server.
    #[error("{0}")]
    NoPort(String),
    /// A generator was lost, so the counts of the others are not the counts of the whole load. The
    /// next load starts the generator again.
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
