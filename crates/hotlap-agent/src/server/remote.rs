//! The controller's end: a host that starts servers.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, Target};
use hotlap_servers::build::Unready;
use hotlap_servers::launch::{Certificate, ServerFailure};
use hotlap_servers::machine::Network;
use hotlap_servers::running::{Found, ServerHost, StartOrder, Up};

use super::order::{
    BeginBuild, BeginStart, BuiltThere, Describe, Description, Find, Interrupt, KeptThere,
    MakeCertificate, News, OpenDoor, PollBuild, PollStart, ServerOrder, StartedThere, Use,
};
use super::reach;
use super::running::{CALL, Line, RemoteServer, unreachable};
use crate::channel::Channel;
use crate::clock::Offset;
use crate::command::AgentCommand;
use crate::error::ChannelError;
use crate::hello::Role;
use crate::message::Order;

/// How long the command may take until the agent answers.
const CONNECT: Duration = Duration::from_secs(30);

/// How long the agent waits for news of a task before it answers.
const NEWS: Duration = Duration::from_millis(100);

/// How long a task may take to end once it is interrupted.
const END: Duration = Duration::from_secs(10);

/// How long a connection to a server that answers its own host may take.
const REACH: Duration = Duration::from_secs(5);

/// A host on which an agent runs servers. Dropping it ends the agent, and all servers that the
/// agent started.
#[derive(Debug)]
pub struct RemoteHost {
    line: Arc<Line>,
    description: Description,
    /// Where the generator reaches the host; `None` if no server is to be started and no address is
    /// reached.
    address: Option<IpAddr>,
}

/// What a host is needed for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// Its address; `None`: it is looked for.
    pub address: Option<IpAddr>,
    /// The cores that its servers want; `None`: all.
    pub cpus: Option<usize>,
    /// Whether servers will be started there. Others run already, and the address of each is known.
    pub starts: bool,
}

/// Servers of the catalogue to build.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// Their ids.
    pub ids: &'a [String],
    /// Only look for their toolchains.
    pub probes: bool,
    /// Set this to end the builds.
    pub stop: &'a AtomicBool,
}

impl RemoteHost {
    /// Starts an agent, and finds the address at which this machine reaches it, unless it is given.
    ///
    /// # Errors
    /// The agent cannot be started, or none of its addresses is reached: the cause and the remedy.
    pub fn open(command: &AgentCommand, wanted: Wanted) -> Result<Self, String> {
        let channel = Channel::open(command, Role::Server, CONNECT).map_err(|e| e.to_string())?;
        Self::over(channel, wanted)
    }

    /// The same, with an agent that has been started.
    ///
    /// # Errors
    /// As [`RemoteHost::open`].
    pub fn over(channel: Channel, wanted: Wanted) -> Result<Self, String> {
        let Wanted { address, cpus, starts } = wanted;
        let line = Line { channel, offset: Mutex::new(Offset::default()) };
        let description = line.call(Describe { cpus }, CALL).map_err(|e| e.to_string())?;
        line.set_offset(line.channel.clock(CALL).map_err(|e| e.to_string())?);
        let mut host = Self { line: Arc::new(line), address: None, description };
        match host.reach(address) {
            Err(why) if starts => Err(why),
            _ => Ok(host),
        }
    }

    /// Finds the address, and tells the agent where servers shall listen.
    fn reach(&mut self, given: Option<IpAddr>) -> Result<(), String> {
        let secret = reach::secret();
        let port = self.call(OpenDoor { secret: secret.clone() })?;
        let own = &self.description.addresses;
        let found = match given {
            Some(given) => {
                Some(given).filter(|ip| reach::answers(SocketAddr::new(*ip, port), &secret))
            }
            None => reach::first(own, port, &secret),
        };
        let Some(address) = found else {
            let tried = given.map_or_else(|| own.clone(), |given| vec![given]);
            return Err(self.unreached(&tried));
        };
        self.address = Some(address);
        let network = Network::at(address, own.contains(&address));
        self.call(Use { network })
    }

    fn unreached(&self, tried: &[IpAddr]) -> String {
        let tried: Vec<String> = tried.iter().map(IpAddr::to_string).collect();
        let tried = match tried.is_empty() {
            true => "it has none besides loopback".to_owned(),
            false => format!("tried {}", tried.join(", ")),
        };
        format!(
            "{}: while looking for its address: {} is not reached from here at any of its addresses \
             ({tried}). Open its ports in the firewall between the two, or name an address with \
             --server-address",
            self.line.channel.command(),
            self.line.channel.host()
        )
    }

    fn call<O: Order<All = ServerOrder>>(&self, order: O) -> Result<O::Report, String> {
        self.line.call(order, CALL).map_err(|e| e.to_string())
    }

    /// The command that started the agent, as typed.
    pub fn command(&self) -> &str {
        self.line.channel.command()
    }

    /// The name of the host, as it calls itself.
    pub fn name(&self) -> &str {
        self.line.channel.host()
    }

    /// The host.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Where the generator reaches the host; `None` if no server is to be started and no address is
    /// reached.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// How long a reading there may take until it is taken: a round trip.
    pub fn delay(&self) -> Duration {
        self.line.delay()
    }

    /// The certificate of servers that are started with TLS there.
    ///
    /// # Errors
    /// It cannot be made, or the agent does not answer.
    pub fn certificate(&self) -> Result<Certificate, String> {
        self.call(MakeCertificate {})
    }

    /// Builds servers of the catalogue; the results are in their order. `on` is called with each
    /// step.
    ///
    /// # Errors
    /// The agent does not answer.
    pub fn build(
        &self,
        build: Build<'_>,
        on: impl FnMut(&str),
    ) -> Result<Vec<Result<BuiltThere, Unready>>, String> {
        let Build { ids, probes, stop } = build;
        let begin = BeginBuild { ids: ids.to_vec(), probes };
        let built = self.run(begin, PollBuild { wait: NEWS }, stop, on);
        let built = built.map_err(|why| why.to_string())?;
        match built.len() == ids.len() {
            true => Ok(built),
            false => Err(format!("{} builds were asked for, and {} came", ids.len(), built.len())),
        }
    }

    /// Begins a build or a start, and waits for its end. Interrupts it once `stop` is set.
    fn run<B, P, T>(
        &self,
        begin: B,
        poll: P,
        stop: &AtomicBool,
        mut on: impl FnMut(&str),
    ) -> Result<T, ChannelError>
    where
        B: Order<All = ServerOrder, Report = ()>,
        P: Order<All = ServerOrder, Report = News<T>> + Clone,
    {
        self.line.call(begin, CALL)?;
        let mut interrupted: Option<Instant> = None;
        loop {
            match self.line.call(poll.clone(), NEWS + CALL)? {
                News::Working(steps) => steps.iter().for_each(|step| on(step)),
                News::Ended(ended) => return Ok(ended),
            }
            if stop.load(Ordering::Relaxed) {
                match interrupted {
                    None => {
                        self.line.call(Interrupt {}, CALL)?;
                        interrupted = Some(Instant::now());
                    }
                    Some(since) if since.elapsed() > END => return Err(self.line.goes_on()),
                    Some(_) => {}
                }
            }
        }
    }

    /// A failure of a server at its start.
    fn failed(&self, cause: impl Display, remedy: String, log_tail: Vec<String>) -> ServerFailure {
        ServerFailure { phase: "start".to_owned(), cause: cause.to_string(), log_tail, remedy }
    }

    /// The server, once this machine reaches it.
    fn up(&self, order: &StartOrder, started: StartedThere) -> Result<Up, ServerFailure> {
        let server = Box::new(RemoteServer::new(&self.line, started.server));
        let address = match self.address {
            Some(ip) if !ip.is_loopback() => SocketAddr::new(ip, started.address.port()),
            _ => started.address,
        };
        if let Err(why) = TcpStream::connect_timeout(&address, REACH) {
            let cause = format!(
                "it answers on {}, but {address} is not reached from here: {why}",
                self.name()
            );
            let remedy = "open its port in the firewall between the two, or name another address \
                          with --server-address";
            return Err(self.failed(cause, remedy.to_owned(), Vec::new()));
        }
        let target = Target {
            endpoint: Endpoint::Tcp(address),
            tls: order.launch.tls.clone(),
            protocol: order.protocol,
        };
        let StartedThere { fixed_port, ready, uncounted, notes, .. } = started;
        Ok(Up { server, target, fixed_port, ready, uncounted, notes })
    }

    /// The host was lost.
    fn lost(&self, why: &ChannelError) -> ServerFailure {
        let why = unreachable(why);
        self.failed(why.cause, why.remedy, Vec::new())
    }

    /// Compares the clocks of both machines.
    fn compare_clocks(&self) -> Result<(), ServerFailure> {
        let offset = self.line.channel.clock(CALL).map_err(|why| self.lost(&why))?;
        self.line.set_offset(offset);
        Ok(())
    }

    /// The server that answers at this address, if the host has it, and what the user should know.
    fn find_there(
        &self,
        endpoint: &Endpoint,
        observes: bool,
    ) -> Result<(Option<KeptThere>, Vec<String>), ServerFailure> {
        let order = Find { endpoint: endpoint.clone(), observes };
        self.line.call(order, CALL).map_err(|why| self.lost(&why))
    }

    /// Whether the host may have this address. Loopback and unix sockets are those of this machine.
    fn may_have(&self, endpoint: &Endpoint) -> bool {
        let shares_network = self.address.is_some_and(|ip| ip.is_loopback());
        match endpoint {
            Endpoint::Unix(_) => shares_network,
            Endpoint::Tcp(address) => shares_network || !address.ip().is_loopback(),
        }
    }
}

impl ServerHost for RemoteHost {
    fn is_here(&self) -> bool {
        self.description().is_this_machine()
    }

    /// Starts a server, and compares the clocks of both machines for it.
    fn start(&self, order: &StartOrder, stop: &AtomicBool) -> Result<Up, ServerFailure> {
        let begin = BeginStart { order: order.clone() };
        let started = self.run(begin, PollStart { wait: NEWS }, stop, |_| ());
        let started = started.map_err(|why| self.lost(&why))?;
        let up = self.up(order, started?)?;
        self.compare_clocks()?;
        Ok(up)
    }

    fn find(&self, target: &Target, observes: bool) -> Result<Found, ServerFailure> {
        let (kept, notes) = match self.may_have(&target.endpoint) {
            true => self.find_there(&target.endpoint, observes)?,
            false => (None, Vec::new()),
        };
        let Some(kept) = kept else {
            let name = self.name();
            let note = format!(
                "CPU time is unknown: {target} is no address of {name}. Name the server's own host \
                 with --server-on, and use its own address"
            );
            return Ok(Found { server: None, notes: vec![note] });
        };
        self.compare_clocks()?;
        Ok(Found { server: Some(Box::new(RemoteServer::new(&self.line, kept))), notes })
    }
}
