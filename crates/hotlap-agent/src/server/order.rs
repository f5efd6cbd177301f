//! What is said between the controller and an agent that runs servers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use hotlap_load::plan::Endpoint;
use hotlap_observe::Compiler;
use hotlap_observe::HardwareCounts;
use hotlap_observe::{Instrument, Observation, ObserveError};
use hotlap_observe::{Memory, Switches};
use hotlap_servers::build::Unready;
use hotlap_servers::launch::{Certificate, Launch, ServerFailure};
use hotlap_servers::machine::{Machine, Network};
use hotlap_servers::process::{ProcessExit, Stopped};
use hotlap_servers::running::{LogWait, StartOrder};
use serde::{Deserialize, Serialize};

orders! {
    /// What an agent that runs servers is asked to do.
    ServerOrder {
        /// The machine, with the cores for servers that want `cpus` of them.
        Describe { cpus: Option<usize> } -> Description, "describing its host";
        /// Listen on all addresses, and send these bytes to whoever connects. Reports the port.
        OpenDoor { secret: String } -> u16, "looking for its address";
        /// Stop listening, and let servers listen as `network` says.
        Use { network: Network } -> (), "looking for its address";
        /// The certificate of servers that are started with TLS.
        MakeCertificate -> Certificate, "making a certificate";
        /// Begin to build servers of the catalogue. With `probes`, only look for their toolchains.
        BeginBuild { ids: Vec<String>, probes: bool } -> (), "building servers";
        /// Wait this long for news of the builds.
        PollBuild { wait: Duration } -> News<Vec<Result<BuiltThere, Unready>>>, "building servers";
        /// Begin to start a server. The start ends when the server responds.
        BeginStart { order: StartOrder } -> (), "starting a server";
        /// Wait this long for news of the start.
        PollStart { wait: Duration } -> News<Result<StartedThere, ServerFailure>>,
            "starting a server";
        /// Interrupt the build or the start that is under way.
        Interrupt -> (), "interrupting it";
        /// Find a server that runs already. Reports the server, if it runs on the agent's host, and
        /// what the user should know.
        Find { endpoint: Endpoint, observes: bool } -> (Option<KeptThere>, Vec<String>),
            "finding a server";
        /// Carry out a call on a running server. Reports what the call reports.
        Server { id: u64, call: ServerCall } -> (), "calling a server";
    }
}

orders! {
    /// What is done with a running server.
    ServerCall {
        /// How it ended, if it did.
        AskState -> Option<ProcessExit>, "sampling a server";
        Freeze -> Result<(), String>, "freezing a server";
        Thaw -> (), "thawing a server";
        Spread { on_all: bool } -> (), "sampling a server";
        AskCompiler -> Compiler, "sampling a server";
        BeginStop { grace: Duration } -> (), "stopping a server";
        Stop { grace: Duration } -> Option<Stopped>, "stopping a server";
        Tail -> Vec<String>, "sampling a server";
        TakeSample -> SampledThere, "sampling a server";
        ReadSwitches -> Option<Switches>, "sampling a server";
        ReadMemory -> Option<Memory>, "sampling a server";
        ReadResident -> Option<Memory>, "sampling a server";
        BeginCounting -> bool, "sampling a server";
        EndCounting -> Option<HardwareCounts>, "sampling a server";
        CountLines { wait: LogWait } -> u64, "sampling a server";
        /// The usable instruments, and why the others are not usable.
        ListInstruments -> (Vec<Instrument>, Vec<ObserveError>), "sampling a server";
        Enable { instrument: Instrument } -> Result<(), ObserveError>, "observing a server";
        Disable -> (), "observing a server";
        Take { instrument: Instrument } -> Result<Observation, ObserveError>, "observing a server";
    }
}

/// News of a build or a start.
#[derive(Debug, Serialize, Deserialize)]
pub enum News<T> {
    /// The work goes on. These steps began since the last poll.
    Working(Vec<String>),
    /// The work has ended, with this result.
    Ended(T),
}

/// CPU time, and the moment on the agent's clock at which it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledThere {
    pub(super) at_ns: u64,
    pub(super) cpu_ns: Option<u64>,
}

/// The machine of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The machine.
    pub machine: Machine,
    /// The cores for servers; empty if they are not known.
    pub cores: Vec<usize>,
    /// What the user should know about the cores: sentences.
    pub notes: Vec<String>,
    /// The path of hotlap there, whose minimal server is the ceiling.
    pub program: PathBuf,
    /// The folder in which commands are started.
    pub folder: PathBuf,
    /// The machine's addresses besides loopback.
    pub addresses: Vec<IpAddr>,
    /// A number that the kernel made when it started; empty if unknown. Agents in namespaces or
    /// containers of one machine have the same.
    pub boot: String,
}

/// The number that this machine's kernel made when it started; empty if unknown.
pub fn boot() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|id| id.trim().to_owned()).unwrap_or_default()
}

impl Description {
    /// Whether this is the machine of the caller, so that both share its cores.
    pub fn is_this_machine(&self) -> bool {
        !self.boot.is_empty() && self.boot == boot()
    }
}

/// A server of the catalogue that an agent has built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltThere {
    /// The command that starts it there.
    pub launch: Launch,
    /// Its version.
    pub version: String,
}

/// A server that an agent keeps.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct KeptThere {
    /// The number by which it is called.
    pub(super) id: u64,
    pub(super) is_started: bool,
    pub(super) is_known: bool,
    pub(super) has_log: bool,
}

/// A server that an agent has started.
#[derive(Debug, Serialize, Deserialize)]
pub struct StartedThere {
    pub(super) server: KeptThere,
    /// Where it answers, as the agent's host sees it.
    pub(super) address: SocketAddr,
    pub(super) fixed_port: Option<u16>,
    pub(super) ready: Duration,
    pub(super) uncounted: Option<String>,
    pub(super) notes: Vec<String>,
}
