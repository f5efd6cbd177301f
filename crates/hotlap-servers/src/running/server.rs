//! What a runner does with a running server.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use crate::process::{ProcessExit, Stopped};
use hotlap_observe::Compiler;
use hotlap_observe::HardwareCounts;
use hotlap_observe::{Instrument, Observation, ObserveError};
use hotlap_observe::{Memory, Switches};

/// The state of a server and of its load at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The requests that were answered by then.
    pub requests: u64,
    /// The moment, on this machine's clock.
    pub at: Instant,
    /// The server's CPU time in nanoseconds; `None` if unknown.
    pub cpu_ns: Option<u64>,
    /// The longest time since the sample before in which an answer from the server's host was due
    /// and did not come, beyond what is normal on the way; zero on this machine.
    pub silence: Duration,
}

/// Whether a server still runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It does, or hotlap did not start it and does not know.
    Runs,
    /// Its first process ended.
    Ended(ProcessExit),
    /// Its host cannot be reached.
    Unreachable(Unreachable),
}

/// Why the host of a server cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    /// The cause; names the host.
    pub cause: String,
    /// The remedy.
    pub remedy: String,
}

/// How long to wait for the lines of a side effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LogWait {
    /// Not at all.
    No,
    /// Until no more come: requests from before a freeze may still be in the server's queue.
    Settled,
    /// Until there are this many, or no more come: a log may lag behind.
    Until(u64),
}

/// A server while it runs. Dropping it ends one that hotlap started.
pub trait RunningServer: Debug + Send {
    /// Whether hotlap started it. Another one is never frozen or stopped.
    fn is_started(&self) -> bool;

    /// Whether its processes are known, and so its CPU time.
    fn is_known(&self) -> bool;

    /// Whether it writes a log whose lines are counted.
    fn has_log(&self) -> bool;

    /// How long a reading may take until it is taken: zero on this machine, a round trip to
    /// another.
    fn delay(&self) -> Duration;

    /// Whether it still runs.
    fn state(&mut self) -> State;

    /// Freezes it. Does nothing if it is frozen, if hotlap did not start it, or if its host cannot
    /// be reached, which [`state`](Self::state) returns.
    ///
    /// # Errors
    /// It cannot be frozen and keeps running: why.
    fn freeze(&mut self) -> Result<(), String>;

    /// Thaws it.
    fn thaw(&mut self);

    /// Lets it use all cores of the run, or only its own again. On its own cores, a compiler
    /// competes with the responses. Does nothing if it is not pinned, or if hotlap did not start
    /// it.
    fn spread(&mut self, on_all: bool);

    /// What compiles it while it runs.
    fn compiler(&mut self) -> Compiler;

    /// Begins to stop it, without waiting.
    fn begin_stop(&mut self, grace: Duration);

    /// Stops it. `None` if hotlap did not start it, or its host cannot be reached.
    fn stop(self: Box<Self>, grace: Duration) -> Option<Stopped>;

    /// The last lines of its output.
    fn tail(&self) -> Vec<String>;

    /// Samples the server and its load. `requests` returns the number of requests answered so far,
    /// and is called close to the reading of the CPU time, so that cost per request is a ratio of
    /// two differences over the same time.
    fn sample(&mut self, requests: &dyn Fn() -> u64) -> Sample;

    /// Context switches so far. They are read thread by thread, which takes a while if there are
    /// many.
    fn switches(&mut self) -> Option<Switches>;

    /// Its memory with proportional set sizes. The kernel holds it up meanwhile.
    fn memory(&mut self) -> Option<Memory>;

    /// Its memory without proportional set sizes.
    fn resident(&mut self) -> Option<Memory>;

    /// Switches its hardware counters on. Returns whether they are.
    fn begin_counting(&mut self) -> bool;

    /// Switches its hardware counters off, and returns what they counted.
    fn end_counting(&mut self) -> Option<HardwareCounts>;

    /// The lines that it has logged so far; 0 without a log.
    fn lines(&mut self, wait: LogWait) -> u64;

    /// The instruments that can be used on it, and what they cannot see.
    fn instruments(&self) -> (Vec<Instrument>, Vec<ObserveError>);

    /// Switches an instrument on; see [`hotlap_observe::Observer::enable`].
    ///
    /// # Errors
    /// It cannot be used.
    fn enable(&mut self, instrument: Instrument) -> Result<(), ObserveError>;

    /// Switches all instruments off.
    fn disable(&mut self);

    /// What an instrument saw; see [`hotlap_observe::Observer::take`].
    ///
    /// # Errors
    /// It cannot be used.
    fn take(&mut self, instrument: Instrument) -> Result<Observation, ObserveError>;
}
