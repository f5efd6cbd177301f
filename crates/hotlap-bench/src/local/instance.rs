//! One server during a run: its state between slices, and queries about it.
//!
//! Between two slices of a server, the server is frozen (if freezing is on) and the connections of
//! its load are open and idle. [`Held`] has the sum of the lap's slices so far. The submodules
//! start and verify the server, warm it up, and load it for laps.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hotlap_agent::{LoadError, LoadHost, RunningLoad, ValuesUsed};
use hotlap_load::outcome::Totals;
use hotlap_load::plan::{Protocol, Request, Target};
use hotlap_load::{Failure, Outcome};
use hotlap_observe::{Compiler, Gauged, Memory, Switches};
use hotlap_servers::contract::Response;
use hotlap_servers::database::DatabaseWork;
use hotlap_servers::infer;
use hotlap_servers::interrupt;
use hotlap_servers::launch::{NamedFile, ServerFailure};
use hotlap_servers::machine::CpuAllocation;
use hotlap_servers::process::Stopped;
use hotlap_servers::running::{LogWait, RunningServer, Sample, ServerHost, ServerState};
use hotlap_servers::running::{NO_PORT, RUN_BY_HAND};
use hotlap_servers::verify::ask;
use hotlap_stats::PreviousWarmup;

use crate::lap::{Count, Usage, Violation};
use crate::participant::{Load, Participant};
use crate::validity;

mod laps;
mod start;
mod warm_up;

pub(super) use warm_up::{COUNTED, WARM_WINDOW};

/// How long a reading of a server's memory is reused, to bound the time spent on readings.
const MEMORY_EVERY: Duration = Duration::from_millis(300);

/// The number of laps over one set of connections: one pair. The cost of a request depends on the
/// set of connections (docs/lab-notebook.md, *Connections held for a whole restart*).
const LAPS_A_SET: u32 = 2;

/// Connections that were idle for longer than this are replaced before the next lap, because many
/// servers close idle connections after a few seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What to do if the cause of a failure is not known.
const SEE_LOG: &str = "look for the reason in the server's log";

/// The largest share of requests for which it may be unknown whether the hardware counters saw
/// them. A slow call to another host makes this share large.
const UNSURE: f64 = 0.03;

/// How servers are run and laps are measured.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The length of a slice's window under each load. The runner chooses any missing length.
    pub slices: Vec<Duration>,
    /// How long all servers together may be probed at each length that is tried.
    pub probe_limit: Duration,
    /// The timeout of a request. At least [`hotlap_servers::verify::LIMIT`] during verification.
    pub timeout: Duration,
    /// Time limit from a server's start to its first correct response. Wrong responses are allowed
    /// for part of that time ([`hotlap_servers::running::UNREADY`]).
    pub start_limit: Duration,
    /// How long a server must be level to count as steady, unless it is as fast as after an earlier
    /// start.
    pub level_for: Duration,
    /// Time limit for a server to become steady.
    pub warm_limit: Duration,
    /// Time from SIGTERM to SIGKILL when a server is stopped.
    pub grace: Duration,
    /// Whether servers are frozen outside of their slices.
    pub freeze: bool,
    /// Whether instructions are counted, if the kernel permits it.
    pub counters: bool,
    /// The cores that servers and generator use.
    pub cores: CpuAllocation,
    /// The host on which servers are started.
    pub host: Arc<dyn ServerHost>,
    /// The source of the load.
    pub generator: Arc<dyn LoadHost>,
    /// For each participant, the participant whose responses should be the same. By default, the
    /// reference.
    pub against: BTreeMap<usize, usize>,
}

/// The conditions that all servers of a run share.
pub(super) struct Conditions {
    pub setting: Setting,
    pub loads: Vec<Load>,
    pub began: Instant,
    /// Whether the user has interrupted the run.
    pub stop: Arc<AtomicBool>,
    /// The mean time of the gauge's system calls in the first window of the run, in nanoseconds.
    pub usual_call_ns: OnceLock<f64>,
}

impl Conditions {
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The time of an event, in milliseconds since the run began.
    fn at_ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_millis() as u64
    }

    /// Sleeps until the deadline. If the user interrupts the run, ends the load and returns false.
    fn wait(&self, session: &dyn RunningLoad, until: Instant) -> bool {
        let is_over = interrupt::sleep(until.saturating_duration_since(Instant::now()), &self.stop);
        if !is_over {
            session.stop();
        }
        is_over
    }

    /// The protocol in which servers are started: the loads' common protocol, or else HTTP/1.1.
    fn protocol(&self) -> Protocol {
        let is_http2 = |load: &Load| load.protocol == Protocol::Http2;
        if self.loads.iter().all(is_http2) { Protocol::Http2 } else { Protocol::Http1 }
    }

    /// The protocols of the loads that differ from the start protocol.
    fn other_protocols(&self) -> impl Iterator<Item = Protocol> {
        let has = |protocol: &Protocol| self.loads.iter().any(|load| load.protocol == *protocol);
        let first = self.protocol();
        [Protocol::Http1, Protocol::Http2].into_iter().filter(move |p| *p != first).filter(has)
    }
}

/// A server during a run.
pub(super) struct Instance {
    run: Arc<Conditions>,
    /// The index of the participant.
    pub number: usize,
    pub participant: Participant,
    /// The server, while it runs.
    server: Option<Box<dyn RunningServer>>,
    /// The server's address, while it runs.
    pub target: Option<Target>,
    /// The port on which the server listens if it ignores `PORT`.
    pub fixed_port: Option<u16>,
    /// The value of the `Host` header.
    host: String,
    /// The requests with their correct responses, set when the server is first verified.
    requests: Vec<Request>,
    /// How many field values earlier loads have used up, and how many the latest load has used.
    values_used: (u64, Option<ValuesUsed>),
    /// What the latest warm-up under each load showed.
    pub known: Vec<Option<WarmupProfile>>,
    /// The load whose connections are kept until the server's next slice.
    held: Option<Held>,
    /// Why a generator was lost in the lap under way.
    pub lost: Option<String>,
    /// The server's context switches and side-effect lines before the lap under way.
    before_lap: Option<(Option<Switches>, u64)>,
    /// When the server was frozen. `None` while it runs.
    frozen: Option<Instant>,
    /// The number of the server's slices so far.
    slices: u32,
    /// The number of the server's paced laps so far.
    paced: u64,
    /// The latest memory reading, and when it was taken.
    memory: Option<(Instant, Memory)>,
    /// Time from the server's start to its first correct response, if hotlap started it.
    ready: Option<Duration>,
    /// What the user should know about the server's start.
    pub notes: Vec<String>,
    /// The files that the server's command named at its first start.
    files: Option<Vec<NamedFile>>,
    /// Why instructions are not counted.
    uncounted: Option<String>,
    /// Whether instruments can be used on the server.
    observes: bool,
    /// Whether the server has passed a verification.
    pub verified: bool,
    /// Conformance checks of the latest verification: the number passed, and the total. Both are 0
    /// if the checks were not run.
    conformance: (u32, u32),
    /// The database's work for each request, as counted by the latest full verification.
    database_work: Vec<Option<DatabaseWork>>,
}

/// What a warm-up showed about a server under a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct WarmupProfile {
    /// How the server becomes steady.
    steady: PreviousWarmup,
    /// The server's mean service time.
    pub service: Duration,
    /// Whether a compiler was seen.
    compiles: bool,
    /// Whether pauses in the load made the server cheaper, in this start or an earlier one.
    needs_pauses: bool,
    /// The median cost of the last bursts at the usual speed of the cores, in nanoseconds. `None`
    /// if there were too few bursts.
    burst_ns: Option<f64>,
}

/// A load whose connections are kept between the slices of a server.
struct Held {
    load: usize,
    session: Box<dyn RunningLoad>,
    /// The number of laps for which the connections may still be used.
    laps: u32,
    /// The number of completed requests when the lap under way began.
    requests: u64,
    /// When the last slice ended. `is_idle` says whether all requests had been answered by then.
    since: Instant,
    is_idle: bool,
    /// The sum of the current lap's slices, and when the window of the first slice opened.
    driven: Option<(Instant, Between)>,
}

impl Held {
    fn new(load: usize, session: Box<dyn RunningLoad>) -> Self {
        let since = Instant::now();
        Self { load, session, laps: LAPS_A_SET, requests: 0, since, is_idle: true, driven: None }
    }

    /// Whether the next slice of a load may use these connections. Unanswered requests are kept
    /// until they are answered or time out. If a generator was lost in the lap of another server,
    /// the next lap gets new connections.
    fn goes_on(&self, load: usize) -> bool {
        let is_fresh = self.laps > 0 && self.since.elapsed() < LONGEST_PAUSE;
        let may_begin = (is_fresh || !self.is_idle) && self.session.lost().is_none();
        self.load == load && (self.driven.is_some() || may_begin)
    }

    /// Stops sending until the next slice. The server has this long to finish requests in flight
    /// before it is frozen.
    fn pause(&mut self, limit: Duration) {
        self.is_idle = self.session.pause(limit);
        self.since = Instant::now();
    }

    /// Adds a slice whose window opened at `opened`.
    fn add(&mut self, opened: Instant, slice: &Between) {
        match &mut self.driven {
            Some((_, sum)) => sum.add(slice),
            None => self.driven = Some((opened, *slice)),
        }
    }

    /// Ends the lap. Returns when its first slice opened, the sum of its slices, and the number of
    /// requests completed in and between them.
    fn end_lap(&mut self) -> Option<(Instant, Between, u64)> {
        let before = std::mem::replace(&mut self.requests, self.session.answered());
        self.laps = self.laps.saturating_sub(1);
        let (at, between) = self.driven.take()?;
        Some((at, between, self.requests - before))
    }
}

/// Why a server could not be measured.
pub(super) enum Trouble {
    /// The server failed, and is no longer measured.
    Server(ServerFailure),
    /// A generator was lost. The lap is excluded, and the run continues.
    Generator(String),
}

impl From<ServerFailure> for Trouble {
    fn from(failure: ServerFailure) -> Self {
        Self::Server(failure)
    }
}

/// What happened between two samples, or the sum of several such pairs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Between {
    pub requests: u64,
    pub wall_ns: u64,
    /// The server's CPU time. `None` if the server's processes are unknown.
    pub cpu_ns: Option<u64>,
    /// CPU time of the server's database. `None` if no database is known.
    pub database_ns: Option<u64>,
    /// What the gauge of the server's cores timed. `None` without a gauge.
    pub gauged: Option<Gauged>,
    pub slices: u32,
    /// The longest silence of the server's host.
    pub silence: Duration,
}

impl Between {
    /// Returns what happened between two samples.
    pub fn of(before: &Sample, after: &Sample) -> Self {
        let wall = after.at.saturating_duration_since(before.at);
        let spent = |of: fn(&Sample) -> Option<u64>| Some(of(after)?.saturating_sub(of(before)?));
        Self {
            requests: after.requests.saturating_sub(before.requests),
            wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
            cpu_ns: spent(|sample| sample.cpu_ns),
            database_ns: spent(|sample| sample.database_ns),
            gauged: after.gauged.zip(before.gauged).map(|(after, before)| after.since(before)),
            slices: 1,
            silence: before.silence.max(after.silence),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.wall_ns += other.wall_ns;
        let sum = |own: Option<u64>, more: Option<u64>| Some(own? + more?);
        self.cpu_ns = sum(self.cpu_ns, other.cpu_ns);
        self.database_ns = sum(self.database_ns, other.database_ns);
        self.gauged = self.gauged.zip(other.gauged).map(|(own, more)| own.and(more));
        self.slices += other.slices;
        self.silence = self.silence.max(other.silence);
    }

    /// The sum of `some`, or `None` if `some` is empty.
    fn sum(some: &[Self]) -> Option<Self> {
        some.iter().copied().reduce(|mut sum, one| {
            sum.add(&one);
            sum
        })
    }

    /// Returns the time of the gauge's system calls divided by their usual time. The first window
    /// of the run sets the usual time. Without a gauge, or if the CPU time is unknown, the result
    /// is 1.
    fn slowness(&self, usual_call_ns: &OnceLock<f64>) -> f64 {
        let gauged = self.cpu_ns.and(self.gauged);
        gauged
            .and_then(Gauged::mean_ns)
            .map_or(1.0, |call_ns| call_ns / usual_call_ns.get_or_init(|| call_ns))
    }

    /// Requests per second. `None` if there were no requests.
    pub fn per_second(&self) -> Option<f64> {
        let is_known = self.requests > 0 && self.wall_ns > 0;
        is_known.then(|| self.requests as f64 * 1e9 / self.wall_ns as f64)
    }

    /// CPU time per request, in nanoseconds. `None` if unknown or without requests.
    pub fn cost_ns(&self) -> Option<f64> {
        let cpu_ns = self.cpu_ns.filter(|cpu_ns| *cpu_ns > 0 && self.requests > 0)?;
        Some(cpu_ns as f64 / self.requests as f64)
    }
}

impl Instance {
    pub fn new(run: &Arc<Conditions>, number: usize, participant: Participant) -> Self {
        Self {
            run: Arc::clone(run),
            number,
            participant,
            server: None,
            target: None,
            fixed_port: None,
            host: String::new(),
            requests: Vec::new(),
            values_used: (infer::PROBES, None),
            known: vec![None; run.loads.len()],
            held: None,
            lost: None,
            before_lap: None,
            frozen: None,
            slices: 0,
            paced: 0,
            memory: None,
            ready: None,
            notes: Vec::new(),
            files: None,
            uncounted: None,
            observes: false,
            verified: false,
            conformance: (0, 0),
            database_work: Vec::new(),
        }
    }

    /// Samples the server and the generator.
    fn sample(&mut self, session: &dyn RunningLoad) -> Sample {
        session.sample(&mut |answered| match &mut self.server {
            Some(server) => server.sample(answered),
            None => Sample::of(answered(), Instant::now()),
        })
    }

    /// Samples the server with the load that is held. `None` if no load is held.
    fn sample_held(&mut self) -> Option<Sample> {
        let held = self.held.take()?;
        let sample = self.sample(&*held.session);
        self.held = Some(held);
        Some(sample)
    }

    /// Whether the server's processes, and therefore its CPU time, are known.
    pub fn is_known(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.is_known())
    }

    /// Whether the server's side effect is counted.
    pub fn has_log(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.has_log())
    }

    /// Whether the server runs on another host.
    fn is_elsewhere(&self) -> bool {
        !self.delay().is_zero()
    }

    /// The longest delay from the request for a reading to the reading itself.
    pub fn delay(&self) -> Duration {
        self.server.as_ref().map_or(Duration::ZERO, |server| server.delay())
    }

    /// The server's context switches so far. Reading them thread by thread takes a while if there
    /// are many threads. They are therefore read before a lap's first sample and after its last
    /// one.
    fn switches(&mut self) -> Option<Switches> {
        self.server.as_mut()?.switches()
    }

    /// Returns the hardware counts over this time, with the number of requests during it. The
    /// counters are on only for that time, because they cost the server CPU time at each context
    /// switch.
    fn counted(&mut self, session: &dyn RunningLoad, time: Duration) -> Option<Count> {
        let until = Instant::now() + time;
        let server = self.server.as_mut()?;
        let first = session.answered();
        if !server.begin_counting() {
            return None;
        }
        let second = session.answered();
        self.run.wait(session, until);
        let third = session.answered();
        let counted = server.end_counting();
        let fourth = session.answered();
        // Each call switched the counters at an unknown moment during the call, so take the middle.
        let requests = ((third + fourth) - (first + second)) / 2;
        let unsure = ((second - first) + (fourth - third)) / 2;
        if unsure as f64 > requests as f64 * UNSURE {
            return None;
        }
        Some(Count { requests, counted: counted? })
    }

    /// Begins a lap with the next slice, unless a lap is under way. If a side effect is counted,
    /// the lap gets a new load, and the log must be complete before the lap begins.
    fn begin_lap(&mut self) {
        if self.before_lap.is_none() {
            if self.has_log() {
                self.held = None;
                self.thaw();
            }
            self.before_lap = Some((self.switches(), self.lines(LogWait::Settled)));
        }
    }

    /// Drops the lap under way. The next slice begins another lap, on new connections.
    pub fn forget_lap(&mut self) {
        self.held = None;
        self.before_lap = None;
        self.lost = None;
    }

    /// Returns what the server used between two samples, or several pairs of them, and its current
    /// memory. `switches` were read before and after the samples, while `requests` were completed.
    fn usage(
        &mut self,
        between: &Between,
        switches: Option<(Switches, Switches)>,
        requests: u64,
    ) -> Option<Usage> {
        let memory = self.memory()?;
        // The share of the context switches that belongs to the requests between the samples.
        let share = between.requests as f64 / requests.max(1) as f64;
        let count = |last: u64, first: u64| (last.saturating_sub(first) as f64 * share) as u64;
        let (first, last) = switches.unzip();
        let counted = |of: fn(Switches) -> u64| Some(count(of(last?), of(first?)));
        Some(Usage {
            wall_ns: between.wall_ns,
            requests: between.requests,
            // A server that responded used some CPU time, so 0 means that its clock cannot be read.
            cpu_ns: between.cpu_ns.filter(|ns| *ns > 0),
            database_ns: between.database_ns,
            gauged: between.gauged,
            switches: counted(|switches| switches.voluntary),
            preemptions: counted(|switches| switches.involuntary),
            memory,
            slices: Some(between.slices),
        })
    }

    /// The server's memory, from a recent reading. For a reading, the kernel walks all pages.
    fn memory(&mut self) -> Option<Memory> {
        if self.memory.is_none_or(|(at, _)| at.elapsed() >= MEMORY_EVERY) {
            let memory = self.server.as_mut()?.memory()?;
            self.memory = Some((Instant::now(), memory));
        }
        self.memory.map(|(_, memory)| memory)
    }

    /// Freezes the server. A server that is not a child of hotlap keeps running.
    ///
    /// # Errors
    /// Fails if the server could not be frozen and keeps running. The error states the cause.
    pub fn freeze(&mut self) -> Result<(), String> {
        self.frozen.get_or_insert_with(Instant::now);
        self.server.as_mut().map_or(Ok(()), |server| server.freeze())
    }

    /// Thaws the server.
    pub fn thaw(&mut self) {
        self.frozen = None;
        if let Some(server) = &mut self.server {
            server.thaw();
        }
    }

    /// Gives the server all cores of the run, or only its own cores again.
    fn spread(&mut self, on_all: bool) {
        if let Some(server) = &mut self.server {
            server.spread(on_all);
        }
    }

    /// Returns what compiles the server's code while it runs.
    fn compiler(&mut self) -> Compiler {
        self.server.as_mut().map_or(Compiler::Unknown, |server| server.compiler())
    }

    /// Begins to stop the server, without waiting for its end.
    pub fn begin_stop(&mut self, grace: Duration) {
        self.forget_lap();
        if let Some(server) = &mut self.server {
            server.begin_stop(grace);
        }
    }

    /// Stops the server. Returns a description of any problem.
    pub fn stop(&mut self, grace: Duration) -> Option<String> {
        self.forget_lap();
        self.memory = None;
        self.target = None;
        let stopped = self.server.take()?.stop(grace)?;
        (!grace.is_zero()).then(|| complaint(&stopped)).flatten()
    }

    /// Checks that the server is still running.
    ///
    /// # Errors
    /// Fails if the server has ended or its host cannot be reached. The error has the server's
    /// last log lines.
    pub fn still_there(&mut self, phase: &str) -> Result<(), ServerFailure> {
        match self.server.as_mut().map_or(ServerState::Runs, |server| server.state()) {
            ServerState::Runs => Ok(()),
            ServerState::Ended(exit) => {
                let cause = format!("the server {exit}");
                Err(self.failure(phase, cause, RUN_BY_HAND))
            }
            ServerState::Unreachable(why) => Err(self.failure(phase, why.cause, &why.remedy)),
        }
    }

    /// Sends one request that is safe to repeat, and waits up to `limit` for the response. If the
    /// contract has no such request, any response to a GET of its first path counts.
    fn asks_safely(&self, limit: Duration) -> Result<Response, String> {
        let target = self.target.as_ref().ok_or("the server is not running")?;
        let exchanges = self.participant.contract.with_values(0).exchanges;
        let safe = exchanges.iter().find(|exchange| exchange.is_safe());
        let exchange = safe.unwrap_or(&exchanges[0]).readiness();
        ask(target, &self.host, limit, &exchange, &self.run.stop)
    }

    /// Returns what went wrong with a load of this server: the server or a generator.
    fn trouble(&mut self, phase: &str, error: LoadError) -> Trouble {
        match error {
            LoadError::Lost(why) => Trouble::Generator(why.to_string()),
            LoadError::Gone(_) => {
                let remedy = "finished laps are kept. Once the generator's host can be reached \
                              again, repeat the run";
                self.failure(phase, error.to_string(), remedy).into()
            }
            LoadError::NoPort(why) => self.failure(phase, why, NO_PORT).into(),
            // The cause includes the remedy.
            LoadError::Unfit(why) => self.failure(phase, why, "").into(),
            LoadError::Failed(why) => match self.still_there(phase) {
                Err(failure) => failure.into(),
                Ok(()) => self.failure(phase, why, SEE_LOG).into(),
            },
        }
    }

    /// Returns the failure of a server that did not answer a single request correctly.
    fn unanswered(&mut self, phase: &str, outcome: Result<Outcome, LoadError>) -> ServerFailure {
        if let Err(failure) = self.still_there(phase) {
            return failure;
        }
        let (cause, remedy) = match outcome {
            Err(LoadError::NoPort(why)) => (why, NO_PORT),
            Err(e) => (e.to_string(), SEE_LOG),
            Ok(outcome) => match outcome.failures.0.iter().max_by_key(|f| f.count) {
                Some(f) => (
                    format!(
                        "no response was correct: {} × {} in {}{}",
                        f.count,
                        f.failure,
                        f.phase,
                        outcome.first_wrong.map(|w| format!(" ({})", w.why)).unwrap_or_default()
                    ),
                    match f.failure {
                        Failure::NoPort => NO_PORT,
                        Failure::WrongBody | Failure::WrongStatus | Failure::BadFraming => {
                            "`hotlap check` shows the server's responses"
                        }
                        _ => SEE_LOG,
                    },
                ),
                None => ("the server stopped responding".to_owned(), SEE_LOG),
            },
        };
        self.failure(phase, cause, remedy)
    }

    /// Returns a failure with the server's last log lines.
    pub fn failure(&self, phase: &str, cause: String, remedy: &str) -> ServerFailure {
        let log_tail = self.server.as_ref().map(|server| server.tail()).unwrap_or_default();
        ServerFailure { phase: phase.to_owned(), cause, log_tail, remedy: remedy.to_owned() }
    }

    /// The number of lines that the server's side effect has written so far.
    fn lines(&mut self, wait: LogWait) -> u64 {
        self.server.as_mut().map_or(0, |server| server.lines(wait))
    }

    /// Ends the lap and checks its side effect. There must be enough lines for all responses, and
    /// no more than for all requests sent. Waits a while, because a log may lag behind.
    fn side_effect(&mut self, whole: &Totals) -> Option<Violation> {
        let (_, before) = self.before_lap.take()?;
        let (least, most) = (whole.responses, whole.sent);
        let per_request = u64::from(self.participant.counts.as_ref()?.per_request);
        let (least, most) = (least * per_request, most * per_request);
        let counted = match self.has_log() {
            true => {
                self.thaw();
                self.lines(LogWait::Until(before + least))
            }
            false => before,
        };
        validity::side_effect(counted - before, (least, most))
    }
}

fn complaint(stopped: &Stopped) -> Option<String> {
    let mut complaints = Vec::new();
    if stopped.ignored_sigterm {
        complaints.push("did not stop on SIGTERM and was killed".to_owned());
    }
    if !stopped.left_behind.is_empty() {
        let processes = stopped.left_behind.join(", ");
        complaints.push(format!("left processes running, which hotlap ended: {processes}"));
    }
    if !stopped.survivors.is_empty() {
        complaints.push(format!("processes survived SIGKILL: {}", stopped.survivors.join(", ")));
    }
    (!complaints.is_empty()).then(|| complaints.join("; "))
}
