//! Servers on another host, as their controller sees them: a host that starts servers, and a server
//! that runs there.

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
use hotlap_servers::process::Stopped;
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

/// How long the command may take until the agent answers.
const CONNECT: Duration = Duration::from_secs(30);

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
    /// Where the generator reaches the host. `None` if no server is to be started and no address is
    /// reached.
    address: Option<IpAddr>,
}

/// What a host is needed for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// Its address. `None`: it is looked for.
    pub address: Option<IpAddr>,
    /// The cores that its servers want. `None`: all.
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
    /// Once `stop` is set, calls to the agent end early.
    ///
    /// # Errors
    /// The agent cannot be started, or none of its addresses is reached: the cause and the remedy.
    pub fn open(
        command: &AgentCommand,
        wanted: Wanted,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let channel = Channel::open(command, AgentRole::Server, CONNECT, stop);
        Self::over(channel.map_err(|e| e.to_string())?, wanted)
    }

    /// The same, with an agent that has been started.
    ///
    /// # Errors
    /// As [`RemoteHost::open`].
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

    /// Finds the address, and tells the agent where servers shall listen.
    fn reach(&mut self, given: Option<IpAddr>) -> Result<(), String> {
        let secret = reach::secret();
        let port = self.call(OpenDoor { secret: secret.clone() })?;
        let own = &self.description.addresses;
        let found = match given {
            Some(given) => Some(given).filter(|ip| reach::is_door(*ip, port, &secret)),
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
        self.line.channel.call(order).map_err(|e| e.to_string())
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

    /// Where the generator reaches the host. `None` if no server is to be started and no address is
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

    /// Builds servers of the catalogue. The results are in their order. `on` is called with each
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
        let built = self.run(begin, PollBuild {}, stop, on);
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
        self.line.channel.call(order).map_err(|why| self.lost(&why))
    }

    /// Whether the host may have this address. Loopback and unix sockets belong to this machine.
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
                "CPU time is unknown: {target} is no address of {name}. Name the server's own host \
                 with --server-on, and use its own address"
            );
            return Ok(Found { server: None, notes: vec![note] });
        };
        self.compare_clocks()?;
        Ok(Found { server: Some(Box::new(RemoteServer::new(&self.line, kept))), notes })
    }
}

/// How many round trips an answer takes at most while nothing is wrong, if a packet is lost.
const ROUND_TRIPS: u32 = 3;

/// A channel and what is known of the clock at its other end.
#[derive(Debug)]
struct Line {
    channel: Channel,
    offset: Mutex<Offset>,
}

impl Line {
    fn offset(&self) -> Offset {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A round trip.
    fn delay(&self) -> Duration {
        self.offset().error() * 2
    }

    fn set_offset(&self, offset: Offset) {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner) = offset;
    }

    /// The error for a build or a start that goes on although it was interrupted.
    fn goes_on(&self) -> ChannelError {
        ChannelError {
            command: self.channel.command().to_owned(),
            phase: Interrupt::PHASE.to_owned(),
            fault: ChannelFault::Refused(
                "the build or start goes on: end it on that host".to_owned(),
            ),
        }
    }
}

/// A server that an agent keeps.
#[derive(Debug)]
struct RemoteServer {
    line: Arc<Line>,
    kept: KeptThere,
    is_frozen: bool,
    /// The first call that failed. From then on the server counts as lost.
    lost: Mutex<Option<ChannelError>>,
    /// Whether it has been stopped.
    is_over: bool,
}

impl RemoteServer {
    fn new(line: &Arc<Line>, kept: KeptThere) -> Self {
        let (line, lost) = (Arc::clone(line), Mutex::new(None));
        Self { line, kept, is_frozen: false, lost, is_over: false }
    }

    /// Carries out an order on the server. `None` if the host is lost, or the user interrupts.
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

    /// Why a call was not answered.
    fn unanswered(&self) -> String {
        self.lost().map_or("its agent did not answer".to_owned(), |lost| lost.cause)
    }

    fn unobserved(&self) -> ObserveError {
        ObserveError {
            what: "the server".into(),
            why: self.unanswered(),
            remedy: "repeat it".to_owned(),
        }
    }
}

/// A host that cannot be reached, with the remedy.
fn unreachable(why: &ChannelError) -> Unreachable {
    Unreachable {
        cause: why.to_string(),
        remedy: "finished laps are kept; once the host is reached again, repeat the run".to_owned(),
    }
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

    /// The agent reads CPU time and clock together. How many requests had been answered by then is
    /// interpolated between the moments before and after the call.
    fn sample(&mut self, requests: &dyn Fn() -> u64) -> Sample {
        let clock = Clock::default();
        let before = (clock.now_ns(), requests());
        let report = self.call(TakeSample { id: self.kept.id });
        let after = (clock.now_ns(), requests());
        let now = Instant::now();
        let offset = self.line.offset();
        let silence = self.line.channel.silence().saturating_sub(self.delay() * ROUND_TRIPS);
        let Some(SampledThere { at_ns, cpu_ns }) = report else {
            return Sample { requests: after.1, at: now, cpu_ns: None, database_ns: None, silence };
        };
        let mut moment = offset.to_local(at_ns);
        if moment < before.0 || moment > after.0 {
            // The clocks have drifted apart since they were compared.
            let middle = before.0 + (after.0 - before.0) / 2;
            let ns = at_ns.wrapping_sub(middle) as i64;
            self.line.set_offset(Offset { ns, ..offset });
            moment = middle;
        }
        let age = Duration::from_nanos(after.0.saturating_sub(moment));
        let at = now.checked_sub(age).unwrap_or(now);
        let requests = requests_at(moment, before, after);
        Sample { requests, at, cpu_ns, database_ns: None, silence }
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
        missing.iter_mut().for_each(|error| error.why = format!("on {host}: {}", error.why));
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
            self.call(Stop { id: self.kept.id, grace: Duration::ZERO });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use super::*;
    use crate::message::{AgentService, Answer, report};
    use crate::serve::serve;

    const LIMIT: Duration = Duration::from_secs(60);

    /// An agent whose clock is not this machine's.
    struct Ahead(Clock);

    impl AgentService for Ahead {
        fn carry_out(&mut self, _: &serde_json::value::RawValue) -> Answer {
            report::<TakeSample>(SampledThere { at_ns: self.0.now_ns(), cpu_ns: Some(7) })
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
        // The first offset was measured. The second stands for clocks that have drifted apart.
        for known in [server.line.offset(), Offset::default()] {
            server.line.set_offset(known);
            let began = Instant::now();
            let sample = server.sample(&|| 5);
            let took = began.elapsed();
            assert_eq!((sample.requests, sample.cpu_ns), (5, Some(7)));
            assert!(sample.at >= began && sample.at <= began + took, "{sample:?}");
            let off = server.line.offset().ns.abs_diff(AHEAD_NS);
            assert!(off <= known.error_ns.max(took.as_nanos() as u64), "{off} ns");
        }
        drop(server);
        agent.join().unwrap();
    }
}
