//! Where the load of a lap comes from: this machine, or several generators that are agents.
//!
//! What a runner asks of a load is the same for both: it opens connections, counts in windows, is
//! paused before the server is frozen, and hands its outcome over. With agents, each of these is an
//! order to all of them.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotlap_agent::{ChannelError, Fault, GroupError, GroupOutcome, Running};
use hotlap_load::plan::Plan;
use hotlap_load::{Outcome, Session, Window};
use hotlap_servers::running::Sample;

use crate::lap::{Contribution, Violation};

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
pub trait RunningLoad: Debug + Send {
    /// Waits until each connection is open or has failed once, and returns when the window opens
    /// and closes. `None` if the load ends before.
    fn wait_for_window(&self) -> Option<Window>;

    /// Opens a window of a held load, after `warmup` and for `length`.
    fn open_window(&self, warmup: Duration, length: Duration);

    /// Stops sending until the next window, and waits until every request in flight is answered or
    /// has failed, for at most `limit`. Returns whether all are.
    fn pause(&self, limit: Duration) -> bool;

    /// The outcome of the windows of a held load since the last call; `None` if the load has ended.
    fn collect(&self) -> Option<Measured>;

    /// Takes a sample of the server, with the requests that were answered at its moment. `take` is
    /// given what returns the number so far.
    fn sample(&self, take: &mut dyn FnMut(&dyn Fn() -> u64) -> Sample) -> Sample;

    /// The requests that were answered, or failed, so far.
    fn answered(&self) -> u64;

    /// What tells an upper bound of the values of fields that the load has used, once it has ended.
    fn values_used(&self) -> ValuesUsed;

    /// Ends the load now and keeps what was measured so far.
    fn stop(&self);

    /// Waits for the end of the load.
    ///
    /// # Errors
    /// No connection could be opened, or a generator was lost.
    fn join(self: Box<Self>) -> Result<Measured, LoadError>;

    /// Why a generator was lost, if one was. The load has ended then.
    fn lost(&self) -> Option<String>;
}

/// What tells how many values of fields a load has used.
pub type ValuesUsed = Box<dyn Fn() -> u64 + Send>;

/// What a load measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// What happened.
    pub outcome: Outcome,
    /// What each of several generators contributed.
    pub generators: Vec<Contribution>,
    /// Why the generators did not measure one load together.
    pub failed: Vec<Violation>,
}

/// Why a load has no outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// It cannot be run, for example because the server cannot be reached.
    Failed(String),
    /// A generator was lost; the next load starts it again.
    Lost(String),
    /// A generator was lost and cannot be started again.
    Gone(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(why) | Self::Lost(why) | Self::Gone(why)) = self;
        f.write_str(why)
    }
}

impl From<hotlap_load::Error> for LoadError {
    fn from(error: hotlap_load::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<GroupError> for LoadError {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::Start(ChannelError { fault: Fault::Refused(_), .. })
            | GroupError::Division(_) => Self::Failed(error.to_string()),
            GroupError::Start(error) | GroupError::Lost(error) => Self::Lost(error.to_string()),
            GroupError::Gone(_) => Self::Gone(error.to_string()),
        }
    }
}

impl From<Outcome> for Measured {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, ..Self::default() }
    }
}

impl From<GroupOutcome> for Measured {
    fn from(GroupOutcome { outcome, contributions }: GroupOutcome) -> Self {
        let invalid = contributions.invalid.iter();
        Self {
            outcome,
            generators: contributions.generators.iter().map(Contribution::from).collect(),
            failed: invalid.map(|why| Violation::Generators { why: why.cause() }).collect(),
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

    fn collect(&self) -> Option<Measured> {
        Self::collect(self).map(Measured::from)
    }

    fn sample(&self, take: &mut dyn FnMut(&dyn Fn() -> u64) -> Sample) -> Sample {
        take(&|| self.answered())
    }

    fn answered(&self) -> u64 {
        self.progress().completed()
    }

    fn values_used(&self) -> ValuesUsed {
        let used = Self::values_used(self);
        Box::new(move || used.most())
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn join(self: Box<Self>) -> Result<Measured, LoadError> {
        Ok(Self::join(*self)?.into())
    }

    fn lost(&self) -> Option<String> {
        None
    }
}

/// Generators that are agents, on other hosts or on this one.
#[derive(Debug, Clone)]
pub struct Generators {
    group: Arc<hotlap_agent::Generators>,
    delay: Duration,
}

impl Generators {
    /// These generators.
    ///
    /// # Errors
    /// One of them is lost.
    pub fn new(group: Arc<hotlap_agent::Generators>) -> Result<Self, GroupError> {
        let delay = group.round_trip()?;
        Ok(Self { group, delay })
    }
}

impl LoadHost for Generators {
    fn start(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError> {
        Ok(Box::new(self.group.start(plan)?))
    }

    fn hold(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError> {
        Ok(Box::new(self.group.hold(plan)?))
    }

    fn delay(&self) -> Duration {
        self.delay
    }
}

impl RunningLoad for Running {
    fn wait_for_window(&self) -> Option<Window> {
        let now = Window { opens: Instant::now(), closes: None };
        self.lost().is_none().then(|| self.window().unwrap_or(now))
    }

    fn open_window(&self, warmup: Duration, length: Duration) {
        Self::open_window(self, warmup, length);
    }

    fn pause(&self, limit: Duration) -> bool {
        Self::pause(self, limit)
    }

    fn collect(&self) -> Option<Measured> {
        Self::collect(self).map(Measured::from)
    }

    fn sample(&self, take: &mut dyn FnMut(&dyn Fn() -> u64) -> Sample) -> Sample {
        let mut sample = None;
        let requests = self.completed_at(|| sample.insert(take(&|| 0)).at);
        Sample { requests, ..sample.expect("it was taken") }
    }

    fn answered(&self) -> u64 {
        self.progress().completed()
    }

    fn values_used(&self) -> ValuesUsed {
        let used = Self::values_used(self);
        Box::new(move || used.most())
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn join(self: Box<Self>) -> Result<Measured, LoadError> {
        Ok(Self::join(*self)?.into())
    }

    fn lost(&self) -> Option<String> {
        Self::lost(self).map(|error| error.to_string())
    }
}
