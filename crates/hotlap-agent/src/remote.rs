//! Servers on another host, as the controller sees them.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, Target};
use hotlap_observe::{
    Compiler, HardwareCounts, Instrument, Memory, Observation, ObserveError, Switches,
};
use hotlap_servers::build::Unready;
use hotlap_servers::launch::{Certificate, ServerFailure};
use hotlap_servers::machine::Network;
use hotlap_servers::process::{SHORT_GRACE, Stopped};
use hotlap_servers::running::{
    Found, LogWait, RunningServer, Sample, ServerHost, ServerState, StartOrder, Unreachable, Up,
};

use crate::channel::Channel;
use crate::clock::{Clock, Offset, requests_at};
use crate::command::AgentCommand;
use crate::error::{ChannelError, ChannelFault};
use crate::message::{AgentRole, Order};
use crate::reach;
use crate::server::{
    AskCompiler, AskState, BeginBuild, BeginCounting, BeginStart, BeginStop, BuiltThere, CALL,
    CountLines, Describe, Description, Disable, Enable, EndCounting, Find, Freeze, Interrupt,
    KeptThere, ListInstruments, MakeCertificate, News, OpenDoor, PollBuild, PollStart, ReadMemory,
    ReadResident, ReadSwitches, SampledThere, ServerOrder, Spread, StartedThere, Stop, Tail, Take,
    TakeSample, Thaw, Use,
};

/// How long the command may take until its agent answers.
const CONNECT: Duration = Duration::from_secs(30);

/// How long a task may take to end after an interrupt.
const END: Duration = Duration::from_secs(10);

/// How long connecting from this machine may take, once a server responds on its own host.
const REACH: Duration = Duration::from_secs(5);

/// A host on which an agent runs servers. Dropping this value ends the agent and all servers that
/// the agent started.
#[derive(Debug)]
pub struct RemoteHost {
    line: Arc<Line>,
    description: Description,
    /// The address at which this machine reaches the host. `None` if no address is reached, which
    /// is an error only if servers are to be started.
    address: Option<IpAddr>,
}

/// The caller's requirements for a host.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// The host's address. If `None`, hotlap searches for the address.
    pub address: Option<IpAddr>,
    /// The number of cores that the host's servers want. `None` means all cores.
    pub cpus: Option<usize>,
    /// Whether servers will be started on the host. Otherwise the servers are already running, and
    /// their addresses are known.
    pub starts: bool,
}

/// An order to build servers of the catalogue.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// The ids of the servers.
    pub ids: &'a [String],
    /// Whether to only look for the servers' toolchains.
    pub probes: bool,
    /// Setting this flag ends the builds.
    pub stop: &'a AtomicBool,
}

impl RemoteHost {
    /// Starts an agent, and finds the address at which this machine reaches it, or checks the
    /// given address. Setting `stop` ends the wait of every call that began earlier.
    ///
    /// # Errors
    /// Fails if the agent cannot be started, or if servers will be started there and none of the
    /// host's addresses is reached.
    pub fn open(
        command: &AgentCommand,
        wanted: Wanted,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let channel = Channel::open(command, AgentRole::Server, CONNECT, stop);
        Self::over(channel.map_err(|e| e.to_string())?, wanted)
    }

    /// Uses an agent that has already been started, and finds its address like
    /// [`RemoteHost::open`].
    ///
    /// # Errors
    /// Fails like [`RemoteHost::open`].
    pub fn over(channel: Channel, wanted: Wanted) -> Result<Self, String> {
        let Wanted { address, cpus, starts } = wanted;
        let line = Line { channel, offset: Mutex::new(Offset::default()) };
        let description = line.channel.call(Describe { cpus }).map_err(|e| e.to_string())?;
        line.set_offset(line.channel.clock(CALL).map_err(|e| e.to_string())?);
        let mut host = Self { line: Arc::new(line), address: None, description };
        match host.reach(address) {
            Err(why) if starts => Err(why),
            _ => Ok(host),
        }
    }

    /// Finds the host's address, and tells the agent where servers should listen.
    fn reach(&mut self, given: Option<IpAddr>) -> Result<(), String> {
        let secret = reach::secret();
        let port = self.call(OpenDoor { secret: secret.clone() })?;
        let own = &self.description.addresses;
        let found = match given {
            Some(given) => Some(given).filter(|ip| reach::is_door(*ip, port, &secret)),
            None => reach::first(own, port, &secret),
        };
        let Some(address) = found else {
            return Err(self.unreached(given));
        };
        self.address = Some(address);
        let network = Network::at(address, own.contains(&address));
        self.call(Use { network })
    }

    fn unreached(&self, given: Option<IpAddr>) -> String {
        let (command, host) = (self.line.channel.command(), self.line.channel.host());
        let own: Vec<String> = self.description.addresses.iter().map(IpAddr::to_string).collect();
        let cause = match given {
            Some(given) => format!("{host} cannot be reached from here at {given}"),
            None if own.is_empty() => {
                return format!(
                    "{command}: while looking for its address: {host} has no address besides \
                     loopback. Name an address with --server-address"
                );
            }
            None => format!(
                "{host} cannot be reached from here at any of its addresses (tried {})",
                own.join(", ")
            ),
        };
        format!(
            "{command}: while looking for its address: {cause}. Open its ports in the firewall \
             between the hosts, or name another address with --server-address"
        )
    }

    fn call<O: Order<All = ServerOrder>>(&self, order: O) -> Result<O::Report, String> {
        self.line.channel.call(order).map_err(|e| e.to_string())
    }

    /// The command that started the agent, as typed.
    pub fn command(&self) -> &str {
        self.line.channel.command()
    }

    /// The name by which the host calls itself.
    pub fn name(&self) -> &str {
        self.line.channel.host()
    }

    /// The description of the host.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The address at which this machine reaches the host. `None` if no address is reached, which
    /// is an error only if servers are to be started.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// The longest delay from the request for a reading to the reading: a round trip.
    pub fn delay(&self) -> Duration {
        self.line.delay()
    }

    /// The certificate of servers that are started with TLS on the host.
    ///
    /// # Errors
    /// Fails if the certificate cannot be made, or if the agent does not answer.
    pub fn certificate(&self) -> Result<Certificate, String> {
        self.call(MakeCertificate {})
    }

    /// Builds servers of the catalogue, and calls `on` with each step. The results are in the
    /// order of the ids.
    ///
    /// # Errors
    /// Fails if the agent fails or is lost, or if the builds go on for 10 s after an interrupt.
    pub fn build(
        &self,
        build: Build<'_>,
        on: impl FnMut(&str),
    ) -> Result<Vec<Result<BuiltThere, Unready>>, String> {
        let Build { ids, probes, stop } = build;
        let begin = BeginBuild { ids: ids.to_vec(), probes };
        let built = self.run(begin, PollBuild {}, stop, on);
        let built = built.map_err(|why| why.to_string())?;
        match built.len() == ids.len() {
            true => Ok(built),
            false => Err(format!(
                "{} builds were requested, but {} were reported",
                ids.len(),
                built.len()
            )),
        }
    }

    /// Begins a build or a start, and waits for its end. Once `stop` is set, the operation is
    /// interrupted.
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
        self.line.channel.call(begin)?;
        let mut interrupted: Option<Instant> = None;
        loop {
            match self.line.channel.call(poll.clone())? {
                News::Working(steps) => steps.iter().for_each(|step| on(step)),
                News::Ended(ended) => return Ok(ended),
            }
            if stop.load(Ordering::Relaxed) {
                match interrupted {
                    None => {
                        self.line.channel.call(Interrupt {})?;
                        interrupted = Some(Instant::now());
                    }
                    Some(since) if since.elapsed() > END => return Err(self.line.goes_on()),
                    Some(_) => {}
                }
            }
        }
    }

    /// Returns the failure of a server to start.
    fn failed(&self, cause: impl Display, remedy: String, log_tail: Vec<String>) -> ServerFailure {
        ServerFailure { phase: "start".to_owned(), cause: cause.to_string(), log_tail, remedy }
    }

    /// Checks that this machine reaches the server, and returns the server.
    fn up(&self, order: &StartOrder, started: StartedThere) -> Result<Up, ServerFailure> {
        let server = Box::new(RemoteServer::new(&self.line, started.server));
        let address = match self.address {
            Some(ip) if !ip.is_loopback() => SocketAddr::new(ip, started.address.port()),
            _ => started.address,
        };
        if let Err(why) = TcpStream::connect_timeout(&address, REACH) {
            let cause = format!(
                "the server responds on {}, but {address} cannot be reached from here: {why}",
                self.name()
            );
            let remedy = "open the server's port in the firewall between the hosts, or name \
                          another address with --server-address";
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

    /// Returns the failure of a server whose host was lost.
    fn lost(&self, why: &ChannelError) -> ServerFailure {
        let why = unreachable(why);
        self.failed(why.cause, why.remedy, Vec::new())
    }

    /// Compares the clocks of this machine and the host.
    fn compare_clocks(&self) -> Result<(), ServerFailure> {
        let offset = self.line.channel.clock(CALL).map_err(|why| self.lost(&why))?;
        self.line.set_offset(offset);
        Ok(())
    }

    /// Returns the server that responds at this address, if it runs on the host, and what the user
    /// should know.
    fn find_there(
        &self,
        endpoint: &Endpoint,
        observes: bool,
    ) -> Result<(Option<KeptThere>, Vec<String>), ServerFailure> {
        let order = Find { endpoint: endpoint.clone(), observes };
        self.line.channel.call(order).map_err(|why| self.lost(&why))
    }

    /// Whether the host may have this address. Loopback addresses and Unix sockets belong to this
    /// machine, unless the host shares this machine's network.
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

    /// Starts a server, and compares the clocks of both machines for its samples.
    fn start(&self, order: &StartOrder, stop: &AtomicBool) -> Result<Up, ServerFailure> {
        let begin = BeginStart { order: order.clone() };
        let started = self.run(begin, PollStart {}, stop, |_| ());
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
                "CPU time is unknown: {target} is not an address of {name}. Name the server's own \
                 host with --server-on, and give an address of that host"
            );
            return Ok(Found { server: None, notes: vec![note] });
        };
        self.compare_clocks()?;
        Ok(Found { server: Some(Box::new(RemoteServer::new(&self.line, kept))), notes })
    }
}

/// A silence of up to this many round trips is normal, for example after the loss of a packet.
const ROUND_TRIPS: u32 = 3;

/// A channel, and the offset of the clock at its other end.
#[derive(Debug)]
struct Line {
    channel: Channel,
    offset: Mutex<Offset>,
}

impl Line {
    fn offset(&self) -> Offset {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of a round trip.
    fn delay(&self) -> Duration {
        self.offset().error() * 2
    }

    fn set_offset(&self, offset: Offset) {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner) = offset;
    }

    /// Returns the error for a build or a start that goes on after an interrupt.
    fn goes_on(&self) -> ChannelError {
        ChannelError {
            command: self.channel.command().to_owned(),
            phase: Interrupt::PHASE.to_owned(),
            fault: ChannelFault::Refused(
                "some processes did not end. End these processes on that host".to_owned(),
            ),
        }
    }
}

/// A server that an agent keeps on its host.
#[derive(Debug)]
struct RemoteServer {
    line: Arc<Line>,
    kept: KeptThere,
    is_frozen: bool,
    /// The error of the first call that failed. From then on, the server counts as lost.
    lost: Mutex<Option<ChannelError>>,
    /// Whether the server has been stopped.
    is_over: bool,
}

impl RemoteServer {
    fn new(line: &Arc<Line>, kept: KeptThere) -> Self {
        let (line, lost) = (Arc::clone(line), Mutex::new(None));
        Self { line, kept, is_frozen: false, lost, is_over: false }
    }

    /// Sends an order about the server. `None` if the call fails. The server then counts as lost,
    /// unless the user interrupted.
    fn call<O: Order<All = ServerOrder>>(&self, order: O) -> Option<O::Report> {
        let result = self.line.channel.call(order);
        result.map_err(|why| self.lose(why)).ok()
    }

    fn lose(&self, why: ChannelError) {
        if why.fault == ChannelFault::Interrupted {
            return;
        }
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    fn lost(&self) -> Option<Unreachable> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.as_ref().map(unreachable)
    }

    /// Returns why a call was not answered.
    fn unanswered(&self) -> String {
        self.lost().map_or("the agent did not answer".to_owned(), |lost| lost.cause)
    }

    fn unobserved(&self) -> ObserveError {
        ObserveError {
            what: "the server".into(),
            why: self.unanswered(),
            remedy: "repeat the run".to_owned(),
        }
    }
}

/// Describes a host that cannot be reached, with the remedy.
fn unreachable(why: &ChannelError) -> Unreachable {
    let remedy = match why.fault {
        // The agent answered, so its host is reachable.
        ChannelFault::Refused(_) => "finished laps are kept. Repeat the run",
        _ => "finished laps are kept. When the host is reachable again, repeat the run",
    };
    Unreachable { cause: why.to_string(), remedy: remedy.to_owned() }
}

impl RunningServer for RemoteServer {
    fn is_started(&self) -> bool {
        self.kept.is_started
    }

    fn is_known(&self) -> bool {
        self.kept.is_known
    }

    fn has_log(&self) -> bool {
        self.kept.has_log
    }

    fn delay(&self) -> Duration {
        self.line.delay()
    }

    fn state(&mut self) -> ServerState {
        let ended = self.call(AskState { id: self.kept.id }).flatten();
        match (self.lost(), ended) {
            (Some(lost), _) => ServerState::Unreachable(lost),
            (None, Some(exit)) => ServerState::Ended(exit),
            (None, None) => ServerState::Runs,
        }
    }

    fn freeze(&mut self) -> Result<(), String> {
        if self.is_frozen || !self.is_started() {
            return Ok(());
        }
        // Even if the call fails, some of the server's processes may be frozen.
        self.is_frozen = true;
        self.call(Freeze { id: self.kept.id }).unwrap_or_else(|| Err(self.unanswered()))
    }

    fn thaw(&mut self) {
        if std::mem::take(&mut self.is_frozen) {
            self.call(Thaw { id: self.kept.id });
        }
    }

    fn spread(&mut self, on_all: bool) {
        self.call(Spread { id: self.kept.id, on_all });
    }

    fn compiler(&mut self) -> Compiler {
        self.call(AskCompiler { id: self.kept.id }).unwrap_or(Compiler::Unknown)
    }

    fn begin_stop(&mut self, grace: Duration) {
        self.call(BeginStop { id: self.kept.id, grace });
    }

    fn stop(mut self: Box<Self>, grace: Duration) -> Option<Stopped> {
        self.is_over = true;
        self.call(Stop { id: self.kept.id, grace }).flatten()
    }

    fn tail(&self) -> Vec<String> {
        self.call(Tail { id: self.kept.id }).unwrap_or_default()
    }

    /// The agent reads the CPU time and the clock together. The number of requests at that moment
    /// is interpolated between the counts before and after the call.
    fn sample(&mut self, requests: &dyn Fn() -> u64) -> Sample {
        let clock = Clock::default();
        let before = (clock.now_ns(), requests());
        let report = self.call(TakeSample { id: self.kept.id });
        let after = (clock.now_ns(), requests());
        let now = Instant::now();
        let offset = self.line.offset();
        let silence = self.line.channel.silence().saturating_sub(self.delay() * ROUND_TRIPS);
        let Some(SampledThere { at_ns, cpu_ns, gauged }) = report else {
            let (requests, at) = (after.1, now);
            return Sample { silence, ..Sample::of(requests, at) };
        };
        let mut moment = offset.to_local(at_ns);
        if moment < before.0 || moment > after.0 {
            // The clocks have drifted apart since the latest comparison.
            let middle = before.0 + (after.0 - before.0) / 2;
            let ns = at_ns.wrapping_sub(middle) as i64;
            self.line.set_offset(Offset { ns, ..offset });
            moment = middle;
        }
        let age = Duration::from_nanos(after.0.saturating_sub(moment));
        let at = now.checked_sub(age).unwrap_or(now);
        let requests = requests_at(moment, before, after);
        Sample { cpu_ns, gauged, silence, ..Sample::of(requests, at) }
    }

    fn switches(&mut self) -> Option<Switches> {
        self.call(ReadSwitches { id: self.kept.id }).flatten()
    }

    fn memory(&mut self) -> Option<Memory> {
        self.call(ReadMemory { id: self.kept.id }).flatten()
    }

    fn resident(&mut self) -> Option<Memory> {
        self.call(ReadResident { id: self.kept.id }).flatten()
    }

    fn begin_counting(&mut self) -> bool {
        self.call(BeginCounting { id: self.kept.id }).unwrap_or(false)
    }

    fn end_counting(&mut self) -> Option<HardwareCounts> {
        self.call(EndCounting { id: self.kept.id }).flatten()
    }

    fn lines(&mut self, wait: LogWait) -> u64 {
        match self.has_log() {
            true => self.call(CountLines { id: self.kept.id, wait }).unwrap_or(0),
            false => 0,
        }
    }

    fn instruments(&self) -> (Vec<Instrument>, Vec<ObserveError>) {
        let Some((usable, mut missing)) = self.call(ListInstruments { id: self.kept.id }) else {
            return (Vec::new(), vec![self.unobserved()]);
        };
        let host = self.line.channel.host();
        missing.iter_mut().for_each(|error| error.why = format!("{} (on {host})", error.why));
        (usable, missing)
    }

    fn enable(&mut self, instrument: Instrument) -> Result<(), ObserveError> {
        self.call(Enable { id: self.kept.id, instrument }).unwrap_or_else(|| Err(self.unobserved()))
    }

    fn disable(&mut self) {
        self.call(Disable { id: self.kept.id });
    }

    fn take(&mut self, instrument: Instrument) -> Result<Observation, ObserveError> {
        self.call(Take { id: self.kept.id, instrument }).unwrap_or_else(|| Err(self.unobserved()))
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        if !self.is_over {
            self.call(Stop { id: self.kept.id, grace: SHORT_GRACE });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use hotlap_observe::Gauged;

    use super::*;
    use crate::message::{AgentService, Answer, report};
    use crate::serve::serve;

    const LIMIT: Duration = Duration::from_secs(60);

    /// An agent whose clock differs from this machine's clock.
    struct Ahead(Clock);

    impl AgentService for Ahead {
        fn carry_out(&mut self, _: &serde_json::value::RawValue) -> Answer {
            report::<TakeSample>(SampledThere {
                at_ns: self.0.now_ns(),
                cpu_ns: Some(7),
                gauged: Some(Gauged { calls: 8, ns: 900 }),
            })
        }
    }

    #[test]
    fn a_sample_is_at_the_right_moment_however_far_the_clock_is_ahead() {
        const AHEAD_NS: i64 = 3_000_000_000;
        let (input, to_agent) = pipe().unwrap();
        let (from_agent, output) = pipe().unwrap();
        let clock = Clock::shifted(AHEAD_NS);
        let open = move |_| Ok(Box::new(Ahead(clock)) as Box<dyn AgentService>);
        let agent = std::thread::spawn(move || serve(input, output, clock, open, || ()));
        let channel =
            Channel::over("test", AgentRole::Server, LIMIT, to_agent, from_agent).unwrap();
        let offset = Mutex::new(channel.clock(LIMIT).unwrap());
        let kept = KeptThere { id: 0, is_started: true, is_known: true, has_log: false };
        let mut server = RemoteServer::new(&Arc::new(Line { channel, offset }), kept);
        server.is_over = true;
        // The first offset was measured. The second represents clocks that have drifted apart.
        for known in [server.line.offset(), Offset::default()] {
            server.line.set_offset(known);
            let began = Instant::now();
            let sample = server.sample(&|| 5);
            let took = began.elapsed();
            assert_eq!((sample.requests, sample.cpu_ns), (5, Some(7)));
            assert_eq!(sample.gauged, Some(Gauged { calls: 8, ns: 900 }));
            assert!(sample.at >= began && sample.at <= began + took, "{sample:?}");
            let off = server.line.offset().ns.abs_diff(AHEAD_NS);
            assert!(off <= known.error_ns.max(took.as_nanos() as u64), "{off} ns");
        }
        drop(server);
        agent.join().unwrap();
    }
}
