//! Who starts servers.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_load::plan::{Protocol, Target};
use serde::{Deserialize, Serialize};

use super::here::LocalServer;
use super::server::{LogWait, RunningServer};
use crate::contract::Exchange;
use crate::launch::{Counts, Launch, LogLines, ServerFailure};
use crate::machine::Network;
use crate::process::Supervisor;
use crate::start::Startup;
use crate::verify::Requirements;
use hotlap_observe::Compilers;

/// A server to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartOrder {
    /// Its number in the experiment, after which its log is named.
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
    /// The number of cores for `CPUS`.
    pub cpus: usize,
    /// The cores that it is pinned to, sorted. Empty: not pinned.
    pub cores: Vec<usize>,
    /// The cores that it may use while it is [spread](RunningServer::spread), sorted: its own and
    /// the others of the run.
    pub all_cores: Vec<usize>,
    /// How long it may take to answer.
    pub limit: Duration,
    /// Whether hardware counters are attached.
    pub counters: bool,
    /// Whether instruments are attached.
    pub observes: bool,
}

/// A server that has been started, and answers.
#[derive(Debug)]
pub struct Up {
    /// The server.
    pub server: Box<dyn RunningServer>,
    /// The address at which the generator reaches it.
    pub target: Target,
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
    /// The server; `None` if it is on another machine than the one that was searched.
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

/// This machine.
#[derive(Debug, Clone)]
pub struct LocalHost {
    /// The command that starts a supervisor.
    pub supervisor: Supervisor,
    /// Folder for the servers' logs.
    pub logs: PathBuf,
    /// Where servers listen.
    pub network: Network,
}

impl ServerHost for LocalHost {
    fn is_here(&self) -> bool {
        true
    }

    fn start(&self, order: &StartOrder, stop: &AtomicBool) -> Result<Up, ServerFailure> {
        let lines = order.counts.as_ref().map(|counts| {
            LogLines::of(counts, &order.launch, order.requirements != Requirements::Custom)
        });
        let startup = Startup {
            launch: &order.launch,
            first: &order.first,
            protocol: order.protocol,
            accepts_wrong: false,
            cpus: order.cpus,
            cores: &order.cores,
            supervisor: &self.supervisor,
            log: self.logs.join(format!("{}.log", order.number)),
            limit: order.limit,
            counters: order.counters,
            observes: order.observes,
            elsewhere: order.requirements == Requirements::Custom,
            network: &self.network,
            stop,
        };
        let started = startup.run()?;
        let (counters, uncounted) = match started.counters {
            Ok(counters) => (Some(counters), None),
            Err(why) => (None, order.counters.then_some(why)),
        };
        let mut server = LocalServer {
            process: Some(started.process),
            sampler: started.sampler,
            counters,
            observer: started.observer,
            lines,
            own: order.cores.clone(),
            all: order.all_cores.clone(),
            is_spread: false,
            compilers: Compilers::default(),
        };
        // Open the file before another server of this folder starts and replaces it.
        server.lines(LogWait::No);
        let (target, ready, notes) = (started.target, started.ready, started.notes);
        Ok(Up { server: Box::new(server), target, ready, uncounted, notes })
    }

    fn find(&self, target: &Target, observes: bool) -> Result<Found, ServerFailure> {
        if !hotlap_observe::is_here(&target.endpoint) {
            let note = format!(
                "CPU time is unknown: {target} is on another host. Name that host with --server-on"
            );
            return Ok(Found { server: None, notes: vec![note] });
        }
        let owner = hotlap_observe::owner(&target.endpoint, &[]);
        let server = Box::new(LocalServer::of(&owner, observes));
        Ok(Found { server: Some(server), notes: owner.note().into_iter().collect() })
    }
}
