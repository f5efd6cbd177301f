//! What is said between the controller and an agent that generates load.

use std::net::IpAddr;
use std::time::Duration;

use hotlap_load::plan::{Plan, Request, Target};
use hotlap_load::{Outcome, Progress};
use hotlap_observe::cpus;
use hotlap_servers::contract::Contract;
use hotlap_servers::machine::Machine;
use serde::{Deserialize, Serialize};

use crate::server::boot;

orders! {
    /// What a generator is asked to do.
    GeneratorOrder {
        /// The host.
        Describe -> HostDescription, "describing its host";
        /// Find the addresses at which this host reaches the controller, in the order of `door`.
        Reach { door: Door } -> Vec<IpAddr>, "looking for the servers' address";
        /// Probe a server for its responses.
        ProbeServer { probe: Probe } -> Probed, "probing the server";
        /// Open the connections of a load that has one window. Reports the load's number.
        Prepare { plan: Plan } -> u64, "opening connections";
        /// Open the connections of a load that is held between windows, and send between windows
        /// too. Reports the load's number.
        Hold { plan: Plan } -> u64, "opening connections";
        /// Carry out a call on a load. Reports what the call reports.
        OfLoad { id: u64, call: LoadCall } -> (), "calling a load";
    }
}

orders! {
    /// What is done with a load.
    LoadCall {
        /// Begin to send at this time of the generator's clock.
        Begin { at_ns: u64 } -> Begun, "starting the load";
        /// Open a window of a load that is held, at this time of the generator's clock.
        Open { at_ns: u64, length: Duration } -> Begun, "opening a window";
        /// Send nothing until the next window of a load that is held, and wait at most this long
        /// for requests in flight. Reports whether none is left.
        Pause { limit: Duration } -> bool, "pausing the load";
        /// The outcome of the windows of a load that is held.
        Collect -> Joined, "collecting the outcome";
        /// How far the load has come.
        AskStatus -> Status, "loading";
        /// End the load now and keep what was measured.
        StopLoad -> (), "stopping the load";
        /// The outcome of a load that has ended.
        Join -> Joined, "collecting the outcome";
        /// End the load and close its connections. Reports an upper bound on how many values of its
        /// fields the load used.
        End -> u64, "stopping the load";
    }
}

/// The host of a generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostDescription {
    /// The machine.
    pub machine: Machine,
    /// The cores that the generator may use; empty if they are not known.
    pub cores: Vec<usize>,
    /// A number that the kernel made when it started; empty if unknown. Agents in namespaces or
    /// containers of one machine have the same.
    pub boot: String,
}

impl HostDescription {
    /// This host.
    pub fn here() -> Self {
        let cores = cpus::allowed().unwrap_or_default();
        Self { machine: Machine::describe(), cores, boot: boot() }
    }

    /// Whether it is the machine of the caller, so that both share its cores.
    pub fn is_this_machine(&self) -> bool {
        !self.boot.is_empty() && self.boot == boot()
    }
}

/// Where the controller listens, for a search for the address at which it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    /// The addresses to try.
    pub addresses: Vec<IpAddr>,
    /// The port.
    pub port: u16,
    /// What the controller sends to whoever connects.
    pub secret: String,
}

/// A server to probe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Probe {
    /// Its address.
    pub target: Target,
    /// The host that requests name.
    pub host: String,
    /// The time limit for one response.
    pub limit: Duration,
    /// The requests to send.
    pub contract: Contract,
}

/// Requests, and what probes found out about their responses.
#[derive(Debug, Serialize, Deserialize)]
pub struct Probed {
    /// The requests with their expected responses.
    pub requests: Vec<Request>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// The beginning of a load, or of a window of a load that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Begun {
    /// How much later than asked it begins, or its window opens, in nanoseconds.
    pub late_ns: u64,
    /// When its window opens, in nanoseconds of the generator's monotonic clock.
    pub opens_ns: u64,
}

/// How far a load has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// Whether each connection is open or has failed once.
    pub is_ready: bool,
    /// Whether the load has ended.
    pub is_finished: bool,
    /// Its counts.
    pub progress: Progress,
    /// When they were read, in nanoseconds of the generator's monotonic clock.
    pub at_ns: u64,
}

/// The outcome of a load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Joined {
    /// What happened.
    pub outcome: Outcome,
    /// The longest time within the window for which the generator's process did not run, in
    /// nanoseconds, as far as it was noticed: 50 ms and more.
    pub paused_ns: u64,
}
