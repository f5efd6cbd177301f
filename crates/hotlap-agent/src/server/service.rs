//! The agent's end: carries out orders with the processes of this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use hotlap_load::plan::{Endpoint, Target};
use hotlap_servers::build::{BuildError, BuildEvent, Builder, Unready, probe_all};
use hotlap_servers::catalogue::{self, Catalogue};
use hotlap_servers::launch::{Certificate, Launch, ServerFailure};
use hotlap_servers::machine::{self, Machine, Network};
use hotlap_servers::process::Supervisor;
use hotlap_servers::running::{LocalHost, RunningServer, ServerHost, ServerState, StartOrder, Up};

use super::door::Door;
use super::order::{
    AskCompiler, AskState, BeginBuild, BeginCounting, BeginStart, BeginStop, BuiltThere,
    CountLines, Describe, Description, Disable, Enable, EndCounting, Find, Freeze, Interrupt,
    KeptThere, ListInstruments, MakeCertificate, News, OpenDoor, PollBuild, PollStart, ReadMemory,
    ReadResident, ReadSwitches, SampledThere, Server, ServerCall, ServerOrder, Spread,
    StartedThere, Stop, Tail, Take, TakeSample, Thaw, Use, boot,
};
use super::task::{Progress, Running, Steps};
use crate::clock::Clock;
use crate::serve::{Answer, Service, report};

/// What an agent needs to run servers.
#[derive(Debug, Clone)]
pub struct ServerSetting {
    /// The command that starts a supervisor.
    pub supervisor: Supervisor,
    /// Folder for the servers' logs; the caller removes it.
    pub logs: PathBuf,
    /// The cache, in which servers are built.
    pub cache: PathBuf,
    /// The folder of the catalogue.
    pub catalogue: PathBuf,
    /// This program.
    pub program: PathBuf,
}

/// Runs servers for one controller. Dropping it ends all of them.
#[derive(Debug)]
pub struct ServerService {
    setting: ServerSetting,
    clock: Clock,
    network: Network,
    door: Option<Door>,
    task: Option<Running<Ended>>,
    servers: BTreeMap<u64, Box<dyn RunningServer>>,
    /// The number of the next server.
    next: u64,
}

/// The result of a task.
#[derive(Debug)]
enum Ended {
    Built(Vec<Result<BuiltThere, Unready>>),
    Started(Box<Result<Up, ServerFailure>>),
}

impl ServerService {
    /// A service without servers. `clock` is the clock of the channel.
    pub fn new(setting: ServerSetting, clock: Clock) -> Self {
        let network = Network::loopback();
        let servers = BTreeMap::new();
        Self { setting, clock, network, door: None, task: None, servers, next: 0 }
    }

    fn describe(&self, cpus: Option<usize>) -> Description {
        let cores = machine::alone(cpus);
        Description {
            machine: Machine::describe(),
            cores: cores.server,
            notes: cores.notes,
            program: self.setting.program.clone(),
            folder: std::env::current_dir().unwrap_or_default(),
            addresses: machine::addresses(),
            boot: boot(),
        }
    }

    /// This machine.
    fn host(&self) -> LocalHost {
        let ServerSetting { supervisor, logs, .. } = self.setting.clone();
        LocalHost { supervisor, logs, network: self.network.clone() }
    }

    fn begin_build(&mut self, ids: Vec<String>, probes: bool) {
        let setting = self.setting.clone();
        self.task = Some(Running::begin(move |stop, steps| {
            Ended::Built(build(&setting, &ids, probes, stop, steps))
        }));
    }

    fn begin_start(&mut self, order: StartOrder) {
        let host = self.host();
        self.task = Some(Running::begin(move |stop, _| {
            Ended::Started(Box::new(start(&host, order, stop)))
        }));
    }

    fn poll(&mut self, wait: std::time::Duration) -> Result<News<Ended>, String> {
        let task = self.task.as_ref().ok_or("there is no task")?;
        let ended = match task.poll(wait) {
            Progress::Working(steps) => return Ok(News::Working(steps)),
            Progress::Ended(ended) => ended,
        };
        self.task = None;
        let ended =
            ended.ok_or("the agent failed: please report its error output as a bug of hotlap")?;
        Ok(News::Ended(ended))
    }

    fn poll_build(&mut self, wait: std::time::Duration) -> Answer {
        match self.poll(wait)? {
            News::Working(steps) => report::<PollBuild>(News::Working(steps)),
            News::Ended(Ended::Built(built)) => report::<PollBuild>(News::Ended(built)),
            News::Ended(Ended::Started(_)) => Err("a server was started".to_owned()),
        }
    }

    fn poll_start(&mut self, wait: std::time::Duration) -> Answer {
        match self.poll(wait)? {
            News::Working(steps) => report::<PollStart>(News::Working(steps)),
            News::Ended(Ended::Started(up)) => {
                report::<PollStart>(News::Ended(up.and_then(|up| self.started(up))))
            }
            News::Ended(Ended::Built(_)) => Err("servers were built".to_owned()),
        }
    }

    /// Keeps a server that was started.
    fn started(&mut self, up: Up) -> Result<StartedThere, ServerFailure> {
        let Endpoint::Tcp(address) = up.target.endpoint else {
            return Err(ServerFailure {
                phase: "start".to_owned(),
                cause: "it listens on a unix socket, which other hosts do not reach".to_owned(),
                log_tail: up.server.tail(),
                remedy: "make it listen on $HOST and $PORT".to_owned(),
            });
        };
        let server = self.keep(up.server);
        let Up { fixed_port, ready, uncounted, notes, .. } = up;
        Ok(StartedThere { server, address, fixed_port, ready, uncounted, notes })
    }

    /// Finds the processes of a server that runs already.
    fn find(&mut self, endpoint: Endpoint, observes: bool) -> Answer {
        let target = Target::plain(endpoint);
        let found = self.host().find(&target, observes).map_err(|failure| failure.cause)?;
        let kept = found.server.map(|server| self.keep(server));
        report::<Find>((kept, found.notes))
    }

    /// Keeps a server under a number.
    fn keep(&mut self, server: Box<dyn RunningServer>) -> KeptThere {
        let id = self.next;
        self.next += 1;
        let (is_started, is_known, has_log) =
            (server.is_started(), server.is_known(), server.has_log());
        self.servers.insert(id, server);
        KeptThere { id, is_started, is_known, has_log }
    }

    #[allow(clippy::unit_arg, reason = "the report of some calls is ()")]
    fn call(&mut self, id: u64, call: ServerCall) -> Answer {
        if let ServerCall::Stop(Stop { grace }) = call {
            let server = self.servers.remove(&id);
            return report::<Stop>(server.and_then(|server| server.stop(grace)));
        }
        let server = self.servers.get_mut(&id).ok_or("this server does not run any more")?;
        match call {
            ServerCall::AskState(_) => report::<AskState>(match server.state() {
                ServerState::Ended(exit) => Some(exit),
                ServerState::Runs | ServerState::Unreachable(_) => None,
            }),
            ServerCall::Freeze(_) => report::<Freeze>(server.freeze()),
            ServerCall::Thaw(_) => report::<Thaw>(server.thaw()),
            ServerCall::Spread(Spread { on_all }) => report::<Spread>(server.spread(on_all)),
            ServerCall::AskCompiler(_) => report::<AskCompiler>(server.compiler()),
            ServerCall::BeginStop(BeginStop { grace }) => {
                report::<BeginStop>(server.begin_stop(grace))
            }
            ServerCall::Stop(_) | ServerCall::Tail(_) => report::<Tail>(server.tail()),
            ServerCall::TakeSample(_) => {
                let sample = server.sample(&|| 0);
                let age = u64::try_from(sample.at.elapsed().as_nanos()).unwrap_or(0);
                let at_ns = self.clock.now_ns().saturating_sub(age);
                report::<TakeSample>(SampledThere { at_ns, cpu_ns: sample.cpu_ns })
            }
            ServerCall::ReadSwitches(_) => report::<ReadSwitches>(server.switches()),
            ServerCall::ReadMemory(_) => report::<ReadMemory>(server.memory()),
            ServerCall::ReadResident(_) => report::<ReadResident>(server.resident()),
            ServerCall::BeginCounting(_) => report::<BeginCounting>(server.begin_counting()),
            ServerCall::EndCounting(_) => report::<EndCounting>(server.end_counting()),
            ServerCall::CountLines(CountLines { wait }) => report::<CountLines>(server.lines(wait)),
            ServerCall::ListInstruments(_) => report::<ListInstruments>(server.instruments()),
            ServerCall::Enable(Enable { instrument }) => {
                report::<Enable>(server.enable(instrument))
            }
            ServerCall::Disable(_) => report::<Disable>(server.disable()),
            ServerCall::Take(Take { instrument }) => report::<Take>(server.take(instrument)),
        }
    }
}

impl Service for ServerService {
    type Orders = ServerOrder;

    #[allow(clippy::unit_arg, reason = "the report of some orders is ()")]
    fn carry_out(&mut self, order: ServerOrder) -> Answer {
        match order {
            ServerOrder::Describe(Describe { cpus }) => report::<Describe>(self.describe(cpus)),
            ServerOrder::OpenDoor(OpenDoor { secret }) => {
                let door = Door::open(secret).map_err(|e| format!("cannot listen: {e}"))?;
                report::<OpenDoor>(self.door.insert(door).port())
            }
            ServerOrder::Use(Use { network }) => {
                self.door = None;
                self.network = network;
                report::<Use>(())
            }
            ServerOrder::MakeCertificate(_) => {
                let kept = Certificate::kept_in(&self.setting.cache.join(Certificate::FOLDER));
                report::<MakeCertificate>(kept.map_err(|e| e.to_string())?)
            }
            ServerOrder::BeginBuild(BeginBuild { ids, probes }) => {
                report::<BeginBuild>(self.begin_build(ids, probes))
            }
            ServerOrder::PollBuild(PollBuild { wait }) => self.poll_build(wait),
            ServerOrder::BeginStart(BeginStart { order }) => {
                report::<BeginStart>(self.begin_start(order))
            }
            ServerOrder::PollStart(PollStart { wait }) => self.poll_start(wait),
            ServerOrder::Interrupt(_) => {
                report::<Interrupt>(self.task.iter().for_each(Running::interrupt))
            }
            ServerOrder::Find(Find { endpoint, observes }) => self.find(endpoint, observes),
            ServerOrder::Server(Server { id, call }) => self.call(id, call),
        }
    }
}

/// Starts a server. A command without a folder runs in the agent's.
fn start(host: &LocalHost, mut order: StartOrder, stop: &AtomicBool) -> Result<Up, ServerFailure> {
    if order.launch.cwd.as_os_str().is_empty() {
        order.launch.cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    }
    host.start(&order, stop)
}

/// Builds servers of the catalogue, or probes their toolchains; the results are in their order.
fn build(
    setting: &ServerSetting,
    ids: &[String],
    probes: bool,
    stop: &AtomicBool,
    steps: &Steps<Ended>,
) -> Vec<Result<BuiltThere, Unready>> {
    let catalogue = Catalogue::open(&setting.catalogue).map_err(|e| e.to_string());
    let find = |id: &String| {
        let catalogue = catalogue.as_ref().map_err(|why| unknown(id, why.clone()))?;
        let why = || unknown(id, "the catalogue there does not have this server".to_owned());
        catalogue.find(id).ok_or_else(why)
    };
    let found: Vec<Result<&catalogue::CatalogueServer, Unready>> = ids.iter().map(find).collect();
    let servers: Vec<&catalogue::CatalogueServer> =
        found.iter().filter_map(|found| found.as_ref().ok().copied()).collect();
    let results: Vec<Result<BuiltThere, Unready>> = if probes {
        let probed = probe_all(&servers, stop).into_iter().zip(&servers);
        let plain = |server: &&catalogue::CatalogueServer| Launch {
            argv: server.command.clone(),
            env: server.env.clone(),
            explain_env: server.explain_env.clone(),
            prepare: None,
            cwd: server.folder.clone(),
            tls: None,
        };
        let ready = |server| BuiltThere { launch: plain(server), version: String::new() };
        probed.map(|(probed, server)| probed.map(|_| ready(server)).map_err(Into::into)).collect()
    } else {
        let on = |event: BuildEvent<'_>| match event {
            BuildEvent::Step { server, command, .. } => {
                steps.say(format!("building {server}: {command}"));
            }
            BuildEvent::Waiting { server } => {
                steps.say(format!("waiting for another build of {server}"));
            }
            BuildEvent::Built { .. } | BuildEvent::Unready { .. } => {}
        };
        let (cache, supervisor) = (&setting.cache, &setting.supervisor);
        let built = Builder { cache, supervisor, stop, on: &on }.build_all(&servers);
        let there = |(server, built): (
            &&catalogue::CatalogueServer,
            Result<hotlap_servers::build::Built, _>,
        )| {
            built.map(|built| BuiltThere { launch: built.launch(server), version: built.version })
        };
        servers.iter().zip(built).map(there).collect()
    };
    let mut results = results.into_iter();
    let result = |found: Result<&catalogue::CatalogueServer, Unready>| {
        found.and_then(|server| {
            results.next().unwrap_or_else(|| Err(unknown(&server.id, "not built".to_owned())))
        })
    };
    found.into_iter().map(result).collect()
}

fn unknown(id: &str, cause: String) -> Unready {
    Unready::Failed(BuildError {
        server: id.to_owned(),
        what: "catalogue".to_owned(),
        cause,
        log_tail: Vec::new(),
        remedy: "install the same hotlap on both hosts; for a catalogue of your own, set \
                 HOTLAP_SERVERS there"
            .to_owned(),
    })
}
