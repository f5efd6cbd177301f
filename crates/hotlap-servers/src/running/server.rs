//! Who starts servers, and what is done with one until it stops.

use std::fmt::Debug;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotlap_load::plan::{Protocol, Target};
use hotlap_observe::{
    Compiler, HardwareCounts, Instrument, Memory, Observation, ObserveError, Switches,
};
use serde::{Deserialize, Serialize};

use crate::contract::Exchange;
use crate::launch::{Counts, Launch, ServerFailure};
use crate::process::{ProcessExit, Stopped};
use crate::verify::Requirements;

/// A server to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartOrder {
    /// Its number among the servers of a run, after which its log is named.
    pub number: usize,
    /// Its command.
    pub launch: Launch,
    /// The side effect to count.
    pub counts: Option<Counts>,
    /// What is required of it.
    pub requirements: Requirements,
    /// The request that shows whether it is up.
    pub first: Exchange,
    /// The protocol in which it is asked.
    pub protocol: Protocol,
    /// Whether to accept a wrong response after half of the time that it may take to become right,
    /// because the verifier describes the fault better.
    pub accepts_wrong: bool,
    /// The number of cores for `CPUS`.
    pub cpus: usize,
    /// The cores that it is pinned to, sorted. Empty: not pinned.
    pub cores: Vec<usize>,
    /// The cores that it may use while it is [spread](RunningServer::spread), sorted: its own and
    /// the others of the run.
    pub all_cores: Vec<usize>,
    /// How long it may take to respond.
    /// [`UNREADY`](super::UNREADY) is for wrong responses at first.
    pub limit: Duration,
    /// Whether hardware counters are attached.
    pub counters: bool,
    /// Whether instruments are attached, and the variables added that make a runtime name the
    /// functions that it compiles.
    pub observes: bool,
}

/// A server that has been started, and answers.
#[derive(Debug)]
pub struct Up<S = Box<dyn RunningServer>> {
    /// The server.
    pub server: S,
    /// The address at which the generator reaches it.
    pub target: Target,
    /// The port on which it listens instead of `PORT`, if it does.
    pub fixed_port: Option<u16>,
    /// Time from its start to its first response.
    pub ready: Duration,
    /// Why its instructions are not counted, if they should be.
    pub uncounted: Option<String>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A server that runs already.
#[derive(Debug)]
pub struct Found {
    /// The server. `None` if it is on another machine than the one that was searched.
    pub server: Option<Box<dyn RunningServer>>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A machine on which servers run.
pub trait ServerHost: Debug + Send + Sync {
    /// Whether it is the machine of the caller, so that both number the same cores.
    fn is_here(&self) -> bool;

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// The cause, the last lines of its log, and a remedy.
    fn start(&self, order: &StartOrder, stop: &AtomicBool) -> Result<Up, ServerFailure>;

    /// Finds the processes of a server that runs already, and that the generator reaches at this
    /// address. They are measured, but never frozen or stopped. With `observes`, instruments are
    /// attached to them.
    ///
    /// # Errors
    /// The machine cannot be reached.
    fn find(&self, target: &Target, observes: bool) -> Result<Found, ServerFailure>;
}

/// The state of a server and of its load at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The requests that were answered by then.
    pub requests: u64,
    /// The moment, on this machine's clock.
    pub at: Instant,
    /// The server's CPU time in nanoseconds. `None` if unknown.
    pub cpu_ns: Option<u64>,
    /// The CPU time of the run's database in nanoseconds. `None` without one.
    pub database_ns: Option<u64>,
    /// The longest time since the sample before in which an answer from the server's host was due
    /// and did not come, beyond what is normal on the way. Zero on this machine.
    pub silence: Duration,
}

/// Whether a server still runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
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
    /// The cause. Names the host.
    pub cause: String,
    /// The remedy.
    pub remedy: String,
}

/// How long to wait for the lines of a side effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Looks for a database on this machine that the server is connected to, and samples the
    /// database too. Call this after the server has answered some requests. Returns notes for the
    /// user. A server on another machine has none.
    fn find_database(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Whether it writes a log whose lines are counted.
    fn has_log(&self) -> bool;

    /// How long a reading may take until it is taken: zero on this machine, a round trip to
    /// another.
    fn delay(&self) -> Duration;

    /// Whether it still runs.
    fn state(&mut self) -> ServerState;

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

    /// The lines that it has logged so far. 0 without a log.
    fn lines(&mut self, wait: LogWait) -> u64;

    /// The instruments that can be used on it, and what they cannot see.
    fn instruments(&self) -> (Vec<Instrument>, Vec<ObserveError>);

    /// Switches an instrument on. See [`hotlap_observe::Observer::enable`].
    ///
    /// # Errors
    /// It cannot be used.
    fn enable(&mut self, instrument: Instrument) -> Result<(), ObserveError>;

    /// Switches all instruments off.
    fn disable(&mut self);

    /// What an instrument saw. See [`hotlap_observe::Observer::take`].
    ///
    /// # Errors
    /// It cannot be used.
    fn take(&mut self, instrument: Instrument) -> Result<Observation, ObserveError>;
}
