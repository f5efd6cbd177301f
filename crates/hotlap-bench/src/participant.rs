//! The participants of an experiment.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_load::plan::{Protocol, Shape, Target};
use serde::{Deserialize, Serialize};

use hotlap_servers::contract::Contract;
use hotlap_servers::launch::{Counts, Launch, ServerFailure};
use hotlap_servers::machine::CpuAllocation;
use hotlap_servers::running::HOST;
use hotlap_servers::running::{RunningServer, ServerHost, StartOrder};
use hotlap_servers::verify::Requirements;

/// A server's place in a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Participant {
    /// The server's name in tables, unique within the run.
    pub name: String,
    /// The server's role.
    pub role: Role,
    /// How the server is started.
    pub start: Origin,
    /// The contract to verify the server against. For a command or a URL, the contract has no name
    /// and is completed from the first responses.
    pub contract: Contract,
    /// The checks that are required beyond the contract.
    pub requirements: Requirements,
    /// The server's version, in one line. Empty if unknown.
    pub version: String,
    /// A side effect that must happen for each request.
    pub counts: Option<Counts>,
    /// The number of cores that the server uses. `None`: as many as the other servers of the run.
    pub cpus: Option<usize>,
}

impl Participant {
    /// Creates a server of unknown version that uses as many cores as the others. Only the checks
    /// of [`Requirements::Custom`] are required.
    pub fn new(name: impl Into<String>, role: Role, start: Origin, contract: Contract) -> Self {
        Self {
            name: name.into(),
            role,
            start,
            contract,
            requirements: Requirements::Custom,
            version: String::new(),
            counts: None,
            cpus: None,
        }
    }
}

/// A participant's role in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A server that is compared with the reference.
    Plain,
    /// The server that the others are compared with.
    Reference,
    /// The A/A control: the reference again under a hidden name. The noise floor is computed from
    /// the difference between the two.
    Control,
    /// hotlap's own minimal server.
    Ceiling,
}

/// Returns the participant whose program this participant runs, given the role of each. For the
/// control, that is the reference.
pub(crate) fn program(roles: impl IntoIterator<Item = Role>, participant: usize) -> usize {
    let roles: Vec<Role> = roles.into_iter().collect();
    let reference = roles.iter().position(|role| *role == Role::Reference);
    reference.filter(|_| roles[participant] == Role::Control).unwrap_or(participant)
}

/// How a server is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The server is started as a process.
    Launch(Launch),
    /// The server is already running. hotlap neither starts, stops nor freezes it.
    Running {
        /// The server's URL as the user gave it, for reports.
        url: String,
        /// The server's address.
        target: Target,
        /// The value of the `Host` header.
        host: String,
    },
}

/// The conditions under which participants are started.
pub(crate) struct Starter<'a> {
    pub(crate) host: &'a dyn ServerHost,
    pub(crate) cores: &'a CpuAllocation,
    /// Time limit from a server's start to its first correct response.
    pub(crate) limit: Duration,
    pub(crate) protocol: Protocol,
    /// Whether hardware counters are attached.
    pub(crate) counters: bool,
    /// Whether instruments are attached.
    pub(crate) observes: bool,
    /// Whether the user has interrupted the run.
    pub(crate) stop: &'a AtomicBool,
}

/// A participant that has responded.
pub(crate) struct Started {
    /// The server. `None` if it runs on a machine other than the one that was searched.
    pub(crate) server: Option<Box<dyn RunningServer>>,
    /// The address at which the generator reaches the server.
    pub(crate) target: Target,
    /// The value of the `Host` header.
    pub(crate) host: String,
    /// The port on which the server listens if it ignores `PORT`.
    pub(crate) fixed_port: Option<u16>,
    /// Time from the server's start to its first response. `None` if it was already running.
    pub(crate) ready: Option<Duration>,
    /// Why the server's instructions are not counted, if counting was requested.
    pub(crate) uncounted: Option<String>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
}

impl Starter<'_> {
    /// Starts a participant and waits until it responds. If it is already running, finds the
    /// processes to measure. The participant's log is named after `number`.
    pub(crate) fn start(
        &self,
        number: usize,
        participant: &Participant,
    ) -> Result<Started, ServerFailure> {
        let protocol = self.protocol;
        let launch = match &participant.start {
            Origin::Launch(launch) => launch,
            Origin::Running { target, host, .. } => {
                let found = self.host.find(target, self.observes)?;
                return Ok(Started {
                    server: found.server,
                    target: Target { protocol, ..target.clone() },
                    host: host.clone(),
                    fixed_port: None,
                    ready: None,
                    uncounted: None,
                    notes: found.notes,
                });
            }
        };
        let (cpus, cores) = self.cores.of_server(participant.cpus);
        let order = StartOrder {
            number,
            launch: launch.clone(),
            counts: participant.counts.clone(),
            requirements: participant.requirements,
            first: participant.contract.with_values(0).exchanges[0].clone(),
            protocol,
            accepts_wrong: false,
            cpus,
            all_cores: match self.host.is_here() {
                true => self.cores.all(),
                false => cores.clone(),
            },
            cores,
            limit: self.limit,
            counters: self.counters,
            observes: self.observes,
        };
        let up = self.host.start(&order, self.stop)?;
        Ok(Started {
            server: Some(up.server),
            target: up.target,
            host: HOST.to_owned(),
            fixed_port: up.fixed_port,
            ready: Some(up.ready),
            uncounted: up.uncounted,
            notes: up.notes,
        })
    }
}

/// How servers are loaded. An experiment has one or more loads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Load {
    /// The load's name in tables, or else the name of its request: `close`, `POST /bla`. Empty if
    /// neither has a name.
    pub name: String,
    /// The connections, and how requests use them.
    #[serde(flatten)]
    pub shape: Shape,
    /// Whether the number of threads follows from the generator's cores, because the user set none.
    pub has_usual_threads: bool,
    /// The version of HTTP.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub protocol: Protocol,
    /// Whether servers are started with a certificate and reached over TLS. All loads of an
    /// experiment agree, because servers are started once for all loads.
    pub https: bool,
    /// The index of the contract's request to send. `None`: all requests, by weight.
    pub request: Option<usize>,
    /// Whether the requests do not use the run's database, so that its CPU time means nothing.
    #[serde(default)]
    pub leaves_database_idle: bool,
    /// The offered rate in requests/s. `None`: a closed loop.
    pub rate: Option<f64>,
    /// The requests that the load sends to servers, in words: `GET /`, `POST /x (request
    /// 1f0c3a55)`. Empty as long as the servers are unknown.
    pub sends: String,
    /// The names of the load's requests, in order. Empty unless the load sends several requests,
    /// and the same ones to all servers.
    pub requests: Vec<String>,
}

impl Load {
    /// Creates a closed loop of the contract's first request over HTTP/1.1 without TLS. The load
    /// has one thread, this many kept connections, and no name.
    pub fn new(connections: usize) -> Self {
        Self {
            name: String::new(),
            shape: Shape { connections, ..Shape::default() },
            has_usual_threads: true,
            protocol: Protocol::Http1,
            https: false,
            request: Some(0),
            leaves_database_idle: false,
            rate: None,
            sends: String::new(),
            requests: Vec::new(),
        }
    }

    /// Whether both are the same load, regardless of their names. The servers of a run may be sent
    /// different requests, and one of the servers may be missing in the other run. One common
    /// request is therefore enough. An unknown request matches any request.
    pub fn is_same(&self, other: &Self) -> bool {
        let shape = |l: &Self| (l.shape, l.protocol, l.https, l.rate);
        let is_unknown = self.sends.is_empty() || other.sends.is_empty();
        let has = |request: &str| other.sends.split(", ").any(|theirs| theirs == request);
        shape(self) == shape(other) && (is_unknown || self.sends.split(", ").any(has))
    }

    /// Uses one thread for each core of the generator, but at most one for each connection. A
    /// number of threads that the user set is kept.
    pub fn use_cores(&mut self, cores: usize) {
        if self.has_usual_threads {
            self.shape.threads = cores.clamp(1, self.shape.connections.max(1));
        }
    }
}
