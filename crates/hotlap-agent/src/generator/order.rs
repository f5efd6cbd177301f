//! What is said between the controller and an agent that generates load.

use std::net::IpAddr;
use std::time::Duration;

use hotlap_load::plan::{Plan, Request, Target};
use hotlap_load::{Outcome, Progress};
use hotlap_servers::contract::Contract;
use hotlap_servers::cpus;
use hotlap_servers::machine::Machine;
use serde::{Deserialize, Serialize};

use crate::message::Order;
use crate::server::boot;

/// What a generator is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum GeneratorOrder {
    /// Describe the host.
    Describe,
    /// Say at which of these addresses the controller is reached.
    Reach(Door),
    /// Probe a server for its responses.
    Probe(Box<Probe>),
    /// Open the connections of a load that has one window.
    Prepare(Box<Plan>),
    /// Open the connections of a load that is held between windows, and send between them.
    Hold(Box<Plan>),
    /// Something with a load.
    Load {
        /// Its number.
        id: u64,
        /// What to do.
        call: LoadCall,
    },
}

/// What is done with a load.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum LoadCall {
    /// Begin to send.
    Begin {
        /// When, in nanoseconds of the generator's monotonic clock.
        at_ns: u64,
    },
    /// Open a window of a load that is held.
    Open {
        /// When, in nanoseconds of the generator's monotonic clock.
        at_ns: u64,
        /// For how long.
        length: Duration,
    },
    /// Send nothing until the next window of a load that is held.
    Pause {
        /// How long to wait for requests in flight.
        limit: Duration,
    },
    /// Hand over the outcome of the windows of a load that is held.
    Collect,
    /// Say how far the load has come.
    Status,
    /// End the load now and keep what was measured.
    Stop,
    /// Hand over the outcome of a load that has ended.
    Join,
    /// End the load and close its connections. It has no number any more.
    End,
}

/// What a generator answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum GeneratorReport {
    /// The host.
    Described(Box<HostDescription>),
    /// The addresses that are reached, in the order in which they were asked for.
    Reached(Vec<IpAddr>),
    /// The responses of the server.
    Probed(Box<Probed>),
    /// The order was carried out.
    Done,
    /// The number of a load whose connections are being opened.
    Loading(u64),
    /// The load begins.
    Begun(Begun),
    /// Whether no request is in flight.
    Paused(bool),
    /// How far the load has come.
    Status(Status),
    /// The outcome of the load, or of the windows since the last one.
    Joined(Box<Joined>),
    /// The load has ended, after it used at most this many values of its fields.
    Ended(u64),
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
#[derive(Debug, Serialize, Deserialize)]
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

impl Order for GeneratorOrder {
    type Report = GeneratorReport;

    fn phase(&self) -> &'static str {
        match self {
            Self::Describe => "describing its host",
            Self::Reach(_) => "looking for the servers' address",
            Self::Probe(_) => "probing the server",
            Self::Prepare(_) | Self::Hold(_) => "opening connections",
            Self::Load { call, .. } => match call {
                LoadCall::Begin { .. } => "starting the load",
                LoadCall::Open { .. } => "opening a window",
                LoadCall::Pause { .. } => "pausing the load",
                LoadCall::Collect | LoadCall::Join => "collecting the outcome",
                LoadCall::Status => "loading",
                LoadCall::Stop | LoadCall::End => "stopping the load",
            },
        }
    }
}
