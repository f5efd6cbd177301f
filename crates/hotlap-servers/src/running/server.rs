//! The interfaces of hosts that start servers, and of running servers.

use std::fmt::Debug;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotlap_load::plan::{Protocol, Request, Target};
use hotlap_observe::{
    Compiler, Gauged, HardwareCounts, Instrument, Memory, Observation, ObserveError, Switches,
};
use serde::{Deserialize, Serialize};

use crate::contract::{Contract, Exchange};
use crate::database::Proof;
use crate::launch::{Counts, Launch, ServerFailure};
use crate::process::{ProcessExit, Stopped};
use crate::verify::Requirements;

/// The settings for the start of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartOrder {
    /// The server's number in the run, which is also the name of its log.
    pub number: usize,
    /// The command that starts the server.
    pub launch: Launch,
    /// The side effect to count.
    pub counts: Option<Counts>,
    /// The requirements that the server must meet.
    pub requirements: Requirements,
    /// The request that shows whether the server is up.
    pub first: Exchange,
    /// The protocol of that first request.
    pub protocol: Protocol,
    /// Whether to accept a response that is still wrong after half of the time that wrong responses
    /// are allowed. The verifier then describes the fault in more detail.
    pub accepts_wrong: bool,
    /// The value of `CPUS`: the number of cores.
    pub cpus: usize,
    /// The cores that the server is pinned to, sorted. Empty if the server is not pinned.
    pub cores: Vec<usize>,
    /// The cores that the server may use while it is [spread](RunningServer::spread), sorted: its
    /// own cores and the other cores of the run.
    pub all_cores: Vec<usize>,
    /// How long the server may take to respond. Wrong responses are allowed for only a part of
    /// this time: see [`UNREADY`](super::UNREADY).
    pub limit: Duration,
    /// Whether hardware counters are attached.
    pub counters: bool,
    /// Whether instruments are attached. If so, the variables in [`Launch::explain_env`] are added.
    pub observes: bool,
}

/// A server that has been started and responds.
#[derive(Debug)]
pub struct Up<S = Box<dyn RunningServer>> {
    /// The server.
    pub server: S,
    /// The address at which the generator reaches the server.
    pub target: Target,
    /// The port on which the server listens, if it is not `PORT`.
    pub fixed_port: Option<u16>,
    /// The time from the server's start to its first response.
    pub ready: Duration,
    /// Why the hardware counters could not be attached, if they were requested.
    pub uncounted: Option<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// A server that was already running.
#[derive(Debug)]
pub struct Found {
    /// The server. `None` if the server is on a machine other than the one that was searched.
    pub server: Option<Box<dyn RunningServer>>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// A machine on which servers run.
pub trait ServerHost: Debug + Send + Sync {
    /// Returns whether the host is the caller's machine, where core numbers mean the same cores.
    fn is_here(&self) -> bool;

    /// Starts a server and waits until it responds.
    ///
    /// # Errors
    /// Returns the cause, the last lines of the server's log, and a remedy.
    fn start(&self, order: &StartOrder, stop: &AtomicBool) -> Result<Up, ServerFailure>;

    /// Finds the processes of a server that is already running, and that the generator reaches at
    /// this address. The processes are measured, but never frozen or stopped. With `observes`,
    /// instruments are attached to them.
    ///
    /// # Errors
    /// If the machine cannot be reached.
    fn find(&self, target: &Target, observes: bool) -> Result<Found, ServerFailure>;
}

/// The state of a server and of its load at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The number of responses so far.
    pub requests: u64,
    /// The time of the sample, on this machine's clock.
    pub at: Instant,
    /// The server's CPU time in nanoseconds. `None` if unknown.
    pub cpu_ns: Option<u64>,
    /// The CPU time of the server's database in nanoseconds. `None` if no database is known.
    pub database_ns: Option<u64>,
    /// What the gauge of the server's cores has timed so far. `None` without a gauge.
    pub gauged: Option<Gauged>,
    /// The longest time that a message from the server's host has been overdue since the previous
    /// sample. The usual network delay is not included. Zero on this machine.
    pub silence: Duration,
}

impl Sample {
    /// Returns a sample that has only the number of responses and the time.
    pub fn of(requests: u64, at: Instant) -> Self {
        let (cpu_ns, database_ns, gauged) = (None, None, None);
        Self { requests, at, cpu_ns, database_ns, gauged, silence: Duration::ZERO }
    }
}

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// The server runs, or hotlap did not start it and does not know.
    Runs,
    /// The server has ended. The value says how its first process ended.
    Ended(ProcessExit),
    /// The server's host cannot be reached.
    Unreachable(Unreachable),
}

/// Why the host of a server cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    /// The cause, which names the host.
    pub cause: String,
    /// The remedy.
    pub remedy: String,
}

/// How long to wait for the lines of a side effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogWait {
    /// Do not wait.
    No,
    /// Wait until no more lines come. Requests from before a freeze may still be in the server's
    /// queue.
    Settled,
    /// Wait until there are this many lines, or no more come. A log may lag behind.
    Until(u64),
}

/// A running server. Dropping this value ends a server that hotlap started.
pub trait RunningServer: Debug + Send {
    /// Returns whether hotlap started the server. Other servers are never frozen or stopped.
    fn is_started(&self) -> bool;

    /// Returns whether the server's processes, and therefore its CPU time, are known.
    fn is_known(&self) -> bool;

    /// Looks for a database on this machine that the server is connected to. If there is a
    /// database, later samples include the database's CPU time. Call this after the server has
    /// responded to some requests. Returns notes for the user. A server on another machine has no
    /// notes.
    fn find_database(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Counts the statements that the server executes for requests of a contract, and reads back
    /// what they changed. `requests` are the contract's requests, with their verified responses.
    /// Without a database, nothing is checked.
    fn prove(
        &self,
        contract: &Contract,
        requests: &[Request],
        target: &Target,
        stop: &AtomicBool,
    ) -> Proof {
        let _ = (contract, requests, target, stop);
        Proof::default()
    }

    /// Returns whether the server writes a log whose lines are counted.
    fn has_log(&self) -> bool;

    /// Returns the delay before a sample is taken: zero on this machine, and a round trip to
    /// another machine.
    fn delay(&self) -> Duration;

    /// Returns whether the server still runs.
    fn state(&mut self) -> ServerState;

    /// Freezes the server. Does nothing if the server is frozen, or if hotlap did not start it.
    ///
    /// # Errors
    /// If the server cannot be frozen, or its host cannot be reached. The error says why.
    fn freeze(&mut self) -> Result<(), String>;

    /// Thaws the server.
    fn thaw(&mut self);

    /// Allows the server to use all cores of the run, or only its own again. On the server's own
    /// cores, a compiler would compete with the responses for CPU time. Does nothing if the server
    /// is not pinned, or if hotlap did not start it.
    fn spread(&mut self, on_all: bool);

    /// Returns the compiler that compiles the server's code while it runs.
    fn compiler(&mut self) -> Compiler;

    /// Begins to stop the server, without waiting.
    fn begin_stop(&mut self, grace: Duration);

    /// Stops the server. Returns `None` if hotlap did not start the server, or cannot reach its
    /// host.
    fn stop(self: Box<Self>, grace: Duration) -> Option<Stopped>;

    /// Returns the last lines of the server's output.
    fn tail(&self) -> Vec<String>;

    /// Samples the server and its load. `requests` returns the number of responses so far, and is
    /// called close to the reading of the CPU time. The cost per request is then a ratio of two
    /// differences over the same time.
    fn sample(&mut self, requests: &dyn Fn() -> u64) -> Sample;

    /// Returns the number of context switches so far. Reading it thread by thread takes a while if
    /// there are many threads.
    fn switches(&mut self) -> Option<Switches>;

    /// Returns the server's memory with proportional set sizes. Reading them delays the server.
    fn memory(&mut self) -> Option<Memory>;

    /// Returns the server's memory without proportional set sizes.
    fn resident(&mut self) -> Option<Memory>;

    /// Switches the server's hardware counters on. Returns whether they are on.
    fn begin_counting(&mut self) -> bool;

    /// Switches the server's hardware counters off, and returns what they counted.
    fn end_counting(&mut self) -> Option<HardwareCounts>;

    /// Returns the number of lines that the server has logged so far. 0 without a log.
    fn lines(&mut self, wait: LogWait) -> u64;

    /// Returns the instruments that can be used on the server, and what cannot be observed.
    fn instruments(&self) -> (Vec<Instrument>, Vec<ObserveError>);

    /// Switches an instrument on. See [`hotlap_observe::Observer::enable`].
    ///
    /// # Errors
    /// If the instrument cannot be used.
    fn enable(&mut self, instrument: Instrument) -> Result<(), ObserveError>;

    /// Switches all instruments off.
    fn disable(&mut self);

    /// Returns what an instrument saw. See [`hotlap_observe::Observer::take`].
    ///
    /// # Errors
    /// If the instrument cannot be used.
    fn take(&mut self, instrument: Instrument) -> Result<Observation, ObserveError>;
}
