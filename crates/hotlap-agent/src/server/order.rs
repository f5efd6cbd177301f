//! What is said between the controller and an agent that runs servers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use hotlap_load::plan::Endpoint;
use hotlap_servers::certificate::Certificate;
use hotlap_servers::compilers::Compiler;
use hotlap_servers::counters::Counted;
use hotlap_servers::failure::ServerFailure;
use hotlap_servers::launch::Launch;
use hotlap_servers::machine::Machine;
use hotlap_servers::network::Network;
use hotlap_servers::observe::{Instrument, Observation, ObserveError};
use hotlap_servers::process::{ProcessExit, Stopped};
use hotlap_servers::running::{LogWait, StartOrder};
use hotlap_servers::sample::{Memory, Switches};
use hotlap_servers::toolchain::Unready;
use serde::{Deserialize, Serialize};

use crate::message::Order;

/// What an agent that runs servers is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum ServerOrder {
    /// Describe the machine, with the cores for servers that want `cpus` of them.
    Describe { cpus: Option<usize> },
    /// Listen on all addresses, and send these bytes to whoever connects.
    OpenDoor { secret: String },
    /// No longer listen, and let servers listen as this says.
    Use(Network),
    /// The certificate of servers that are started with TLS.
    Certificate,
    /// Begin a task.
    Begin(Task),
    /// Wait this long for news of the task.
    Poll { wait: Duration },
    /// End the task.
    Interrupt,
    /// Find the processes of a server that runs already.
    Find { endpoint: Endpoint, observes: bool },
    /// Something with a running server.
    Server { id: u64, call: ServerCall },
}

/// What takes longer than a call may.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    /// Build servers of the catalogue, or with `probes`, only look for their toolchains.
    Build { ids: Vec<String>, probes: bool },
    /// Start a server and wait until it answers.
    Start(Box<StartOrder>),
}

/// What is done with a running server.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum ServerCall {
    State,
    Freeze,
    Thaw,
    Spread { on_all: bool },
    Compiler,
    BeginStop { grace: Duration },
    Stop { grace: Duration },
    Tail,
    Sample,
    Switches,
    Memory,
    Resident,
    BeginCounting,
    EndCounting,
    Lines(LogWait),
    Instruments,
    Enable(Instrument),
    Disable,
    Take(Instrument),
}

/// What the agent answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum ServerReport {
    Done,
    Described(Box<Description>),
    Door {
        port: u16,
    },
    Certificate(Certificate),
    /// The task goes on; the steps that it began since the last poll.
    Working(Vec<String>),
    Built(Vec<Result<BuiltThere, Unready>>),
    Started(Result<StartedThere, ServerFailure>),
    /// The server, if it runs there, and what the user should know.
    Found(Option<KeptThere>, Vec<String>),
    State(Option<ProcessExit>),
    Frozen(Result<(), String>),
    Compiler(Compiler),
    Stopped(Option<Stopped>),
    Tail(Vec<String>),
    /// The moment on the agent's clock, and the CPU time.
    Sample {
        at_ns: u64,
        cpu_ns: Option<u64>,
    },
    Switches(Option<Switches>),
    Memory(Option<Memory>),
    Counting(bool),
    Counted(Option<Counted>),
    Lines(u64),
    Instruments(Vec<Instrument>, Vec<ObserveError>),
    Enabled(Result<(), ObserveError>),
    Seen(Result<Observation, ObserveError>),
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
    pub(super) ready: Duration,
    pub(super) uncounted: Option<String>,
    pub(super) notes: Vec<String>,
}

impl Order for ServerOrder {
    type Report = ServerReport;

    fn phase(&self) -> &'static str {
        match self {
            Self::Describe { .. } => "describing its host",
            Self::OpenDoor { .. } | Self::Use(_) => "looking for its address",
            Self::Certificate => "making a certificate",
            Self::Begin(Task::Build { .. }) => "building servers",
            Self::Begin(Task::Start(_)) => "starting a server",
            Self::Poll { .. } => "waiting for a task",
            Self::Interrupt => "interrupting it",
            Self::Find { .. } => "finding a server",
            Self::Server { call, .. } => match call {
                ServerCall::Freeze => "freezing a server",
                ServerCall::Thaw => "thawing a server",
                ServerCall::BeginStop { .. } | ServerCall::Stop { .. } => "stopping a server",
                ServerCall::Enable(_) | ServerCall::Disable | ServerCall::Take(_) => {
                    "observing a server"
                }
                _ => "sampling a server",
            },
        }
    }
}
