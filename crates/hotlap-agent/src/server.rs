//! The agent that runs servers. It builds, starts, freezes, samples, observes and stops them.
//! Requests to the servers do not pass through the agent.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use hotlap_load::plan::{Endpoint, Target};
use hotlap_observe::{
    Compiler, Gauged, HardwareCounts, Instrument, Memory, Observation, ObserveError, Switches,
};
use hotlap_servers::build::{BuildError, BuildEvent, Builder, Built, Unready, probe_all};
use hotlap_servers::catalogue::{Catalogue, CatalogueServer};
use hotlap_servers::launch::{Certificate, LINES_LIMIT, Launch, ServerFailure};
use hotlap_servers::machine::{self, Machine, Network};
use hotlap_servers::process::{ProcessExit, Stopped, Supervisor};
use hotlap_servers::running::{
    LocalHost, LogWait, RunningServer, ServerHost, ServerState, StartOrder, Up,
};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::reach::{Door, boot};

/// The time limit for a call that the agent answers at once. The agent's host may be busy for a
/// moment.
pub(crate) const CALL: Duration = Duration::from_secs(10);

/// The time limit for reading an instrument. Reading the symbols of a large program takes seconds.
const SYMBOLS: Duration = Duration::from_secs(60);

/// How long the agent waits for news of a task before it answers a poll.
const NEWS: Duration = Duration::from_millis(100);

orders! {
    /// The orders to an agent that runs servers. Each server that the agent keeps has a number.
    ServerOrder, carried out by service: ServerService {
        /// Describe the machine, with the cores for servers that want `cpus` cores.
        Describe { cpus: Option<usize> } -> Description,
            "describing its host", CALL => service.describe(cpus);
        /// Listen on all addresses, and send this secret to every client that connects. Reports
        /// the port.
        OpenDoor { secret: String } -> u16,
            "looking for its address", CALL => service.open_door(secret)?;
        /// Close the door, and let servers listen as `network` says.
        Use { network: Network } -> (),
            "looking for its address", CALL => service.use_network(network);
        /// Make the certificate of servers that are started with TLS.
        MakeCertificate -> Certificate,
            "making a certificate", CALL => service.setting.certificate()?;
        /// Begin to build servers of the catalogue. With `probes`, only look for their toolchains.
        BeginBuild { ids: Vec<String>, probes: bool } -> (),
            "building servers", CALL => service.begin_build(ids, probes);
        /// Wait a moment for news of the builds.
        PollBuild -> News<Vec<Result<BuiltThere, Unready>>>,
            "building servers", NEWS + CALL => poll(&mut service.build)?;
        /// Begin to start a server. The start ends once the server responds or has failed.
        BeginStart { order: StartOrder } -> (),
            "starting a server", CALL => service.begin_start(order);
        /// Wait a moment for news of the start.
        PollStart -> News<Result<StartedThere, ServerFailure>>,
            "starting a server", NEWS + CALL => service.poll_start()?;
        /// Interrupt the build or the start that is under way.
        Interrupt -> (), "interrupting a build or start", CALL => service.interrupt();
        /// Find a server that is already running. Reports the server, if it runs on the agent's
        /// host, and what the user should know.
        Find { endpoint: Endpoint, observes: bool } -> (Option<KeptThere>, Vec<String>),
            "finding a server", CALL => service.find(endpoint, observes)?;
        /// Report how the server ended, if it has ended.
        AskState { id: u64 } -> Option<ProcessExit>,
            "sampling a server", CALL => service.ended(id)?;
        Freeze { id: u64 } -> Result<(), String>,
            "freezing a server", CALL => service.server(id)?.freeze();
        Thaw { id: u64 } -> (), "thawing a server", CALL => service.server(id)?.thaw();
        Spread { id: u64, on_all: bool } -> (),
            "sampling a server", CALL => service.server(id)?.spread(on_all);
        AskCompiler { id: u64 } -> Compiler,
            "sampling a server", CALL => service.server(id)?.compiler();
        BeginStop { id: u64, grace: Duration } -> (),
            "stopping a server", CALL => service.server(id)?.begin_stop(grace);
        Stop { id: u64, grace: Duration } -> Option<Stopped>,
            "stopping a server", CALL + *grace => service.stop(id, grace);
        Tail { id: u64 } -> Vec<String>, "sampling a server", CALL => service.server(id)?.tail();
        TakeSample { id: u64 } -> SampledThere,
            "sampling a server", CALL => service.sample(id)?;
        ReadSwitches { id: u64 } -> Option<Switches>,
            "sampling a server", CALL => service.server(id)?.switches();
        ReadMemory { id: u64 } -> Option<Memory>,
            "sampling a server", CALL => service.server(id)?.memory();
        ReadResident { id: u64 } -> Option<Memory>,
            "sampling a server", CALL => service.server(id)?.resident();
        BeginCounting { id: u64 } -> bool,
            "sampling a server", CALL => service.server(id)?.begin_counting();
        EndCounting { id: u64 } -> Option<HardwareCounts>,
            "sampling a server", CALL => service.server(id)?.end_counting();
        CountLines { id: u64, wait: LogWait } -> u64,
            "sampling a server", CALL + LINES_LIMIT => service.server(id)?.lines(wait);
        /// List the usable instruments, and why other instruments are not usable.
        ListInstruments { id: u64 } -> (Vec<Instrument>, Vec<ObserveError>),
            "sampling a server", CALL => service.server(id)?.instruments();
        Enable { id: u64, instrument: Instrument } -> Result<(), ObserveError>,
            "observing a server", CALL => service.server(id)?.enable(instrument);
        Disable { id: u64 } -> (), "observing a server", CALL => service.server(id)?.disable();
        Take { id: u64, instrument: Instrument } -> Result<Observation, ObserveError>,
            "observing a server", SYMBOLS => service.server(id)?.take(instrument);
    }
}

/// The progress of a build or a start.
#[derive(Debug, Serialize, Deserialize)]
pub enum News<T> {
    /// The work is not done yet. These steps began since the last poll.
    Working(Vec<String>),
    /// The work has ended, with this result.
    Ended(T),
}

/// CPU time and the gauge, and the time on the agent's clock at which both were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledThere {
    pub(crate) at_ns: u64,
    pub(crate) cpu_ns: Option<u64>,
    pub(crate) gauged: Option<Gauged>,
}

/// A description of an agent's machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The machine.
    pub machine: Machine,
    /// The cores for servers. Empty if the cores are not known.
    pub cores: Vec<usize>,
    /// What the user should know about the cores, as sentences.
    pub notes: Vec<String>,
    /// The path of hotlap on the machine. hotlap's own minimal server is the ceiling.
    pub program: PathBuf,
    /// The folder in which commands are started.
    pub folder: PathBuf,
    /// The machine's addresses other than loopback.
    pub addresses: Vec<IpAddr>,
    /// The random ID that the kernel chose at boot. Empty if unknown. Agents in namespaces or
    /// containers of one machine report the same ID.
    pub boot: String,
}

impl Description {
    /// Whether the described machine is the caller's, so that both share its cores.
    pub fn is_this_machine(&self) -> bool {
        !self.boot.is_empty() && self.boot == boot()
    }
}

/// A server of the catalogue that an agent has built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltThere {
    /// The command that starts the server on the agent's host.
    pub launch: Launch,
    /// The server's version.
    pub version: String,
}

/// A server that an agent keeps.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct KeptThere {
    /// The number that identifies the server in orders.
    pub(crate) id: u64,
    pub(crate) is_started: bool,
    pub(crate) is_known: bool,
    pub(crate) has_log: bool,
}

/// A server that an agent has started.
#[derive(Debug, Serialize, Deserialize)]
pub struct StartedThere {
    pub(crate) server: KeptThere,
    /// The address at which the server responds, as the agent's host sees it.
    pub(crate) address: SocketAddr,
    pub(crate) fixed_port: Option<u16>,
    pub(crate) ready: Duration,
    pub(crate) uncounted: Option<String>,
    pub(crate) notes: Vec<String>,
}

/// The settings of an agent that runs servers.
#[derive(Debug, Clone)]
pub struct ServerSetting {
    /// The command that starts a supervisor.
    pub supervisor: Supervisor,
    /// The folder for the servers' logs, which the caller removes.
    pub logs: PathBuf,
    /// The cache folder, in which servers are built.
    pub cache: PathBuf,
    /// The folder of the catalogue.
    pub catalogue: PathBuf,
    /// The path of this program.
    pub program: PathBuf,
}

/// Runs servers for one controller. Dropping the service ends all servers that it started.
#[derive(Debug)]
pub struct ServerService {
    setting: ServerSetting,
    clock: Clock,
    network: Network,
    door: Option<Door>,
    build: Option<Task<Vec<Result<BuiltThere, Unready>>>>,
    start: Option<Task<Result<Up, ServerFailure>>>,
    servers: BTreeMap<u64, Box<dyn RunningServer>>,
    /// The number of the next server.
    next: u64,
}

impl ServerSetting {
    fn certificate(&self) -> Result<Certificate, String> {
        let kept = Certificate::kept_in(&self.cache.join(Certificate::FOLDER));
        kept.map_err(|e| e.to_string())
    }
}

impl ServerService {
    /// Creates a service without servers. `clock` is the clock of the channel.
    pub fn new(setting: ServerSetting, clock: Clock) -> Self {
        let (network, servers) = (Network::loopback(), BTreeMap::new());
        let (door, build, start) = (None, None, None);
        Self { setting, clock, network, door, build, start, servers, next: 0 }
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

    /// Returns the host for servers on this machine.
    fn host(&self) -> LocalHost {
        let ServerSetting { supervisor, logs, .. } = self.setting.clone();
        LocalHost { supervisor, logs, network: self.network.clone(), database: None }
    }

    fn open_door(&mut self, secret: String) -> Result<u16, String> {
        let door = Door::open(secret).map_err(|e| format!("cannot listen: {e}"))?;
        Ok(self.door.insert(door).port())
    }

    fn use_network(&mut self, network: Network) {
        self.door = None;
        self.network = network;
    }

    fn begin_build(&mut self, ids: Vec<String>, probes: bool) {
        let setting = self.setting.clone();
        let build = move |stop: &_, steps: &_| build(&setting, &ids, probes, stop, steps);
        self.build = Some(Task::begin(build));
    }

    /// Begins to start a server. A command without a folder runs in the agent's folder.
    fn begin_start(&mut self, mut order: StartOrder) {
        if order.launch.cwd.as_os_str().is_empty() {
            order.launch.cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        }
        let host = self.host();
        self.start = Some(Task::begin(move |stop, _| host.start(&order, stop)));
    }

    fn poll_start(&mut self) -> Result<News<Result<StartedThere, ServerFailure>>, String> {
        Ok(match poll(&mut self.start)? {
            News::Working(steps) => News::Working(steps),
            News::Ended(up) => News::Ended(up.and_then(|up| self.started(up))),
        })
    }

    fn interrupt(&self) {
        self.build.iter().for_each(Task::interrupt);
        self.start.iter().for_each(Task::interrupt);
    }

    /// Keeps a server that has been started.
    fn started(&mut self, up: Up) -> Result<StartedThere, ServerFailure> {
        let Endpoint::Tcp(address) = up.target.endpoint else {
            return Err(ServerFailure {
                phase: "start".to_owned(),
                cause: "the server listens on a Unix socket, which other hosts cannot reach"
                    .to_owned(),
                log_tail: up.server.tail(),
                remedy: "make the server listen on $PORT at the address in $HOST".to_owned(),
            });
        };
        let server = self.keep(up.server);
        let Up { fixed_port, ready, uncounted, notes, .. } = up;
        Ok(StartedThere { server, address, fixed_port, ready, uncounted, notes })
    }

    /// Finds the processes of a server that is already running.
    fn find(
        &mut self,
        endpoint: Endpoint,
        observes: bool,
    ) -> Result<(Option<KeptThere>, Vec<String>), String> {
        let target = Target::plain(endpoint);
        let found = self.host().find(&target, observes).map_err(|failure| failure.cause)?;
        Ok((found.server.map(|server| self.keep(server)), found.notes))
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

    fn server(&mut self, id: u64) -> Result<&mut Box<dyn RunningServer>, String> {
        self.servers.get_mut(&id).ok_or_else(|| "this server is no longer running".to_owned())
    }

    fn ended(&mut self, id: u64) -> Result<Option<ProcessExit>, String> {
        Ok(match self.server(id)?.state() {
            ServerState::Ended(exit) => Some(exit),
            ServerState::Runs | ServerState::Unreachable(_) => None,
        })
    }

    fn stop(&mut self, id: u64, grace: Duration) -> Option<Stopped> {
        self.servers.remove(&id)?.stop(grace)
    }

    fn sample(&mut self, id: u64) -> Result<SampledThere, String> {
        let sample = self.server(id)?.sample(&|| 0);
        let age = u64::try_from(sample.at.elapsed().as_nanos()).unwrap_or(0);
        let at_ns = self.clock.now_ns().saturating_sub(age);
        Ok(SampledThere { at_ns, cpu_ns: sample.cpu_ns, gauged: sample.gauged })
    }
}

/// Builds servers of the catalogue, or looks for their toolchains. The results are in the order of
/// the ids.
fn build(
    setting: &ServerSetting,
    ids: &[String],
    probes: bool,
    stop: &AtomicBool,
    steps: &Steps<Vec<Result<BuiltThere, Unready>>>,
) -> Vec<Result<BuiltThere, Unready>> {
    let catalogue = Catalogue::open(&setting.catalogue).map_err(|e| e.to_string());
    let find = |id: &String| {
        let catalogue = catalogue.as_ref().map_err(|why| unknown(id, why.clone()))?;
        let why = || unknown(id, "the catalogue on that host does not have this server".to_owned());
        catalogue.find(id).ok_or_else(why)
    };
    let found: Vec<Result<&CatalogueServer, Unready>> = ids.iter().map(find).collect();
    let servers: Vec<&CatalogueServer> =
        found.iter().filter_map(|found| found.as_ref().ok().copied()).collect();
    let results: Vec<Result<BuiltThere, Unready>> = if probes {
        let probed = probe_all(&servers, stop).into_iter().zip(&servers);
        let ready = |server: &CatalogueServer| BuiltThere {
            launch: server.launch(server.folder.clone()),
            version: String::new(),
        };
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
        let there = |(server, built): (&&CatalogueServer, Result<Built, _>)| {
            built.map(|built| BuiltThere { launch: built.launch(server), version: built.version })
        };
        servers.iter().zip(built).map(there).collect()
    };
    let mut results = results.into_iter();
    let result = |found: Result<&CatalogueServer, Unready>| {
        found.and_then(|server| {
            results.next().unwrap_or_else(|| Err(unknown(&server.id, "no result".to_owned())))
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
        remedy: "install the same hotlap on both hosts. For a catalogue of your own, set \
                 HOTLAP_SERVERS there"
            .to_owned(),
    })
}

/// Work that may take longer than a call. The work runs in a separate thread, and the controller
/// polls for news. Dropping the task interrupts the work.
#[derive(Debug)]
struct Task<T> {
    stop: Arc<AtomicBool>,
    news: Receiver<News<T>>,
}

/// Reports the steps of a task, from any thread.
struct Steps<T>(Sender<News<T>>);

impl<T> Steps<T> {
    fn say(&self, step: String) {
        // If the channel has closed, nobody listens.
        let _ = self.0.send(News::Working(vec![step]));
    }
}

impl<T: Send + 'static> Task<T> {
    /// Begins a task. The task should end soon after its flag is set.
    fn begin(act: impl FnOnce(&AtomicBool, &Steps<T>) -> T + Send + 'static) -> Self {
        let (sender, news) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            let result = act(&stopped, &Steps(sender.clone()));
            let _ = sender.send(News::Ended(result));
        });
        Self { stop, news }
    }
}

impl<T> Task<T> {
    fn interrupt(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.interrupt();
    }
}

/// Waits a moment for news of a task. Removes a task that has ended or failed.
fn poll<T>(task: &mut Option<Task<T>>) -> Result<News<T>, String> {
    let waiting = task.as_ref().ok_or("there is no task")?;
    let news = match waiting.news.recv_timeout(NEWS) {
        Err(RecvTimeoutError::Timeout) => return Ok(News::Working(Vec::new())),
        Ok(News::Working(steps)) => return Ok(News::Working(steps)),
        Ok(ended) => Ok(ended),
        Err(RecvTimeoutError::Disconnected) => {
            Err("the agent failed: please report this bug in hotlap, with the agent's error output"
                .to_owned())
        }
    };
    *task = None;
    news
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of a task, and its steps.
    fn outcome<T>(task: Task<T>) -> (Result<T, String>, Vec<String>) {
        let (mut task, mut all) = (Some(task), Vec::new());
        loop {
            match poll(&mut task) {
                Ok(News::Working(steps)) => all.extend(steps),
                Ok(News::Ended(result)) => return (Ok(result), all),
                Err(why) => return (Err(why), all),
            }
        }
    }

    #[test]
    fn steps_come_before_the_result() {
        let task = Task::begin(|_, steps| {
            steps.say("one".to_owned());
            2
        });
        assert_eq!(outcome(task), (Ok(2), vec!["one".to_owned()]));
        assert_eq!(poll::<u8>(&mut None).err().as_deref(), Some("there is no task"));
    }

    #[test]
    fn a_task_sees_the_interrupt_and_a_panic_is_an_end() {
        let task = Task::begin(|stop, _| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        task.interrupt();
        assert_eq!(outcome(task).0, Ok(()));
        let (failed, _) = outcome(Task::<()>::begin(|_, _| panic!("planted")));
        assert!(failed.unwrap_err().starts_with("the agent failed: "));
    }
}
