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
    /// Its name in tables, unique within its run.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// How it is started.
    pub start: Origin,
    /// The contract to verify it against. An unnamed one for a command or a URL, completed from its
    /// first responses.
    pub contract: Contract,
    /// Which checks are required beyond the contract.
    pub requirements: Requirements,
    /// Its version, one line. Empty if unknown.
    pub version: String,
    /// A side effect that must happen for each request.
    pub counts: Option<Counts>,
    /// The number of cores that it uses. `None`: as many as the other servers of the run.
    pub cpus: Option<usize>,
}

impl Participant {
    /// A server of unknown version that uses as many cores as the others. Nothing is required of it
    /// beyond the contract.
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
    /// Compared with the reference.
    Plain,
    /// The server that the others are compared with.
    Reference,
    /// The A/A control: the reference again under a hidden name. How far the two may be apart is
    /// the noise floor.
    Control,
    /// hotlap's own minimal server.
    Ceiling,
}

/// The participant whose program this one is, given the role of each: the reference, for its
/// control.
pub(crate) fn program(roles: impl IntoIterator<Item = Role>, participant: usize) -> usize {
    let roles: Vec<Role> = roles.into_iter().collect();
    let reference = roles.iter().position(|role| *role == Role::Reference);
    reference.filter(|_| roles[participant] == Role::Control).unwrap_or(participant)
}

/// How a server is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// As a process.
    Launch(Launch),
    /// It is already running. hotlap neither starts, stops nor freezes it.
    Running {
        /// Its URL, for tables.
        url: String,
        /// Its address.
        target: Target,
        /// The value of the `Host` header.
        host: String,
    },
}

/// How participants are started.
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
    /// Set when the user interrupts.
    pub(crate) stop: &'a AtomicBool,
}

/// A participant that answers.
pub(crate) struct Started {
    /// `None` if it runs on another machine than the one that was searched.
    pub(crate) server: Option<Box<dyn RunningServer>>,
    /// The address at which the generator reaches it.
    pub(crate) target: Target,
    /// The value of the `Host` header.
    pub(crate) host: String,
    /// The port on which it listens instead of `PORT`, if it does.
    pub(crate) fixed_port: Option<u16>,
    /// Time from its start to its first response. `None` if it ran already.
    pub(crate) ready: Option<Duration>,
    /// Why its instructions are not counted, if they should be.
    pub(crate) uncounted: Option<String>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
}

impl Starter<'_> {
    /// Starts a participant and waits until it answers. For one that is already running, finds its
    /// processes, which are measured. Its log is named after `number`.
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
            cores: cores.to_vec(),
            all_cores: match self.host.is_here() {
                true => self.cores.all(),
                false => cores.to_vec(),
            },
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
    /// Its name in tables if an experiment has several: `close`, `POST /bla`; empty if it is the
    /// only one.
    pub name: String,
    /// How requests travel.
    #[serde(flatten)]
    pub shape: Shape,
    /// Whether the number of threads follows from the generator's cores, as the user gave none.
    pub has_usual_threads: bool,
    /// The version of HTTP.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub protocol: Protocol,
    /// Whether servers are started with a certificate and spoken to over TLS. All loads of an
    /// experiment agree, because servers are started once for all of them.
    pub https: bool,
    /// Index of the contract's request to send. `None`: all of them, by weight.
    pub request: Option<usize>,
    /// The offered rate in requests/s. `None`: a closed loop.
    pub rate: Option<f64>,
    /// The requests that it sends to servers, in words: `GET /`, `POST /x (request 1f0c3a55)`;
    /// empty as long as the servers are unknown.
    pub sends: String,
    /// The names of its requests, in order, if it sends several, and the same to all servers.
    pub requests: Vec<String>,
}

impl Load {
    /// A closed loop of the contract's first request over HTTP/1.1 without TLS, on so many kept
    /// connections of one thread. It has no name.
    pub fn new(connections: usize) -> Self {
        Self {
            name: String::new(),
            shape: Shape { connections, ..Shape::default() },
            has_usual_threads: true,
            protocol: Protocol::Http1,
            https: false,
            request: Some(0),
            rate: None,
            sends: String::new(),
            requests: Vec::new(),
        }
    }

    /// Whether both are the same load, whatever their names. The servers of a run may be sent
    /// different requests, and one of the servers may be missing in the other run, so one common
    /// request is enough. An unknown request matches any.
    pub fn is_same(&self, other: &Self) -> bool {
        let shape = |l: &Self| (l.shape, l.protocol, l.https, l.rate);
        let is_unknown = self.sends.is_empty() || other.sends.is_empty();
        let has = |request: &str| other.sends.split(", ").any(|theirs| theirs == request);
        shape(self) == shape(other) && (is_unknown || self.sends.split(", ").any(has))
    }

    /// Uses one thread for each core of the generator, but at most one for each connection. A
    /// number that the user gave stays.
    pub fn use_cores(&mut self, cores: usize) {
        if self.has_usual_threads {
            self.shape.threads = cores.clamp(1, self.shape.connections.max(1));
        }
    }
}
