//! What is kept: a run, its servers, its starts and its laps, without the secrets that requests
//! carry ([`crate::redact`]).
//!
//! [`crate::store`] writes and reads it, [`crate::analysis`] makes figures of it; neither knows the
//! other.

use hotlap_bench::lap::{self as measured, Share};
use hotlap_bench::{participant, runner};
use hotlap_load::outcome::{FailureCount, Tick};
use hotlap_load::plan::Reuse;
use hotlap_stats::{Censored, Histogram};
use serde::{Deserialize, Serialize};

use crate::redact;

pub use hotlap_bench::lap::{Count, Violation};
pub use hotlap_bench::participant::Role;
pub use hotlap_bench::runner::Probed;
pub use hotlap_bench::stress::Subject;
pub use hotlap_bench::suite::{Absent, Question};
pub use hotlap_servers::failure::ServerFailure;
pub use hotlap_stats::Class;

/// One `hotlap run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number in the store; `None` while it is not stored.
    pub number: Option<u64>,
    /// When it began, in milliseconds since 1970 (UTC).
    pub began_ms: u64,
    /// How long it took, in milliseconds; 0 while it is under way.
    pub took_ms: u64,
    /// How it ended.
    pub state: State,
    /// The words of the command line.
    pub command: Vec<String>,
    /// The version of hotlap.
    pub hotlap: String,
    /// The baseline that it was kept as, if it was.
    #[serde(default)]
    pub baseline: Option<String>,
    /// The suite, if it was one.
    pub suite: Option<String>,
    /// What was asked.
    pub question: Question,
    /// What the suite says of itself; empty when it was none.
    pub about: String,
    /// What the requests are: a contract's name, or `GET /path`.
    pub contract: String,
    /// The seed of the order.
    pub seed: u64,
    /// How it was planned.
    pub schedule: Schedule,
    /// Where it ran.
    pub host: Host,
    /// How servers were loaded.
    pub loads: Vec<Load>,
    /// Who took part, in the order of the command line.
    pub servers: Vec<Server>,
    /// The fresh starts.
    pub starts: Vec<Start>,
    /// The laps, in the order in which they were run.
    pub laps: Vec<Lap>,
    /// Whom the suite's sources published, and who takes no part.
    pub absent: Vec<Absent>,
    /// What became of servers when others misbehaved, in the order in which they were tried.
    pub stress: Vec<Subject>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It runs, or hotlap was killed while it did.
    UnderWay,
    /// By its own rule: budget, precision, or the number of rounds.
    Finished,
    /// By Ctrl-C or a signal.
    Interrupted,
    /// By its own rule, but no lap of it passed its validity checks.
    Invalid,
    /// By an error of hotlap itself.
    Failed,
}

/// How a run was planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Schedule {
    /// Restarts, as planned.
    pub restarts: u32,
    /// Rounds a restart, as planned.
    pub rounds: u32,
    /// Length of a slice in milliseconds, once it is settled.
    #[serde(default)]
    pub slice_ms: Option<f64>,
    /// What slices do to the cost of each server, as found by probes.
    #[serde(default)]
    pub probed: Vec<Probed>,
    /// Time to spend, in seconds.
    pub budget_s: f64,
    /// The relative half width of the intervals at which it stops early, if any.
    pub precision: Option<f64>,
    /// Cores of the server; empty: not pinned.
    pub server_cpus: Vec<usize>,
    /// Cores of the generator; empty: not pinned.
    pub generator_cpus: Vec<usize>,
    /// Servers out of their lap were frozen.
    pub freeze: bool,
}

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Host {
    /// Operating system and release: `Debian GNU/Linux 12`.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Architecture: `x86_64`.
    pub arch: String,
    /// The processor, as it names itself.
    pub cpu: String,
    /// Logical cores that hotlap may use.
    pub cores: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Which virtual machine or container, if any.
    pub virtualisation: Option<String>,
    /// Further facts, a name and a value each (governor, boost, load average, …).
    pub facts: Vec<(String, String)>,
    /// What about it makes the figures doubtful.
    pub doubts: Vec<String>,
}

/// How servers are loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Load {
    /// For tables where a run has several; empty for the only one.
    pub name: String,
    /// Open at the same time.
    pub connections: usize,
    /// Generator threads.
    pub threads: usize,
    /// Keep-alive, or a new connection each.
    pub keep_alive: bool,
    /// Requests in flight a connection.
    pub pipeline: usize,
    /// The request, in words: `GET /`, `POST /x (request 1f0c3a55)`; empty in runs that were stored
    /// before it was kept.
    pub request: String,
    /// Requests/s that are offered; `None`: a closed loop.
    #[serde(default)]
    pub rate: Option<f64>,
}

/// Who takes part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// What tables call it; unique in its run.
    pub name: String,
    /// Why it takes part.
    pub role: Role,
    /// How it is started: the command, or the URL of one that runs.
    pub command: String,
    /// The version receipt; empty when unknown.
    pub version: String,
    /// One line about it; empty when unknown.
    pub about: String,
    /// What was published for it elsewhere.
    pub published: Vec<Published>,
    /// Its part in the question.
    pub part: Part,
    /// Why it is out, if it is.
    pub failure: Option<ServerFailure>,
}

/// A server's part in what a run asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// The server that it stands on, as an index: what it adds to that one is its own.
    pub on: Option<usize>,
    /// How many cores it was told to use, where it was told.
    pub cpus: Option<usize>,
    /// Its name without the number of cores; empty where it was not told.
    pub base: String,
}

/// What somebody published for a server under one load, elsewhere, then.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Under which load, as an index.
    pub load: usize,
    /// What it was called there.
    pub called: String,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Average, standard deviation and longest latency, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// Memory, in MB.
    pub memory_mb: Option<f64>,
    /// CPU use, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// What it is set against.
    pub than: Option<Than>,
    /// The year.
    pub year: u32,
    /// Where.
    pub source: String,
    /// On which machine.
    pub machine: String,
    /// How it was measured.
    pub command: String,
    /// Why it cannot be trusted; empty when nothing speaks against it.
    pub doubt: String,
    /// What speaks against all that its source published; empty when nothing does.
    #[serde(default)]
    pub source_doubt: String,
    /// Socket errors under overload: connect, read, write, timeout.
    #[serde(default)]
    pub socket_errors: Option<[u64; 4]>,
}

/// The server of a source that its others are set against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Than {
    /// Which, as an index.
    pub server: usize,
    /// What was published for it.
    pub requests_per_s: f64,
}

/// A fresh start of one server, and how it warmed up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Which server, as an index.
    pub server: usize,
    /// Which restart, from 0.
    pub restart: u32,
    /// From the start of the process to the first correct answer, in milliseconds; `None` for a
    /// server that ran already.
    pub ready_ms: Option<f64>,
    /// Conformance checks passed and made: those that are reported and not required.
    pub conformance: (u32, u32),
    /// Resident memory before any load, in bytes; `None` where it is not known.
    pub rss_bytes: Option<u64>,
    /// What should be told (answers that vary, a port found).
    pub notes: Vec<String>,
    /// How it became steady, a load each; empty before it was warmed up.
    pub warmups: Vec<Warmup>,
}

/// How a server became steady under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// Which load, as an index.
    pub load: usize,
    /// Which way it went.
    pub class: Class,
    /// From the first request to the steady state, in milliseconds.
    pub steady_ms: f64,
    /// Answers per second, in windows of equal length.
    pub curve: Vec<f64>,
    /// Length of one window, in milliseconds.
    pub window_ms: f64,
    /// CPU time per request at its end, when the server ran alone, in nanoseconds; `None` where it
    /// is not known.
    #[serde(default)]
    pub alone_cost_ns: Option<f64>,
    /// What the hardware counted right after it; `None` where the kernel does not permit it.
    #[serde(default)]
    pub count: Option<Count>,
}

/// One lap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lap {
    /// Which server, as an index.
    pub server: usize,
    /// Which load, as an index.
    pub load: usize,
    /// Which fresh start, from 0.
    pub restart: u32,
    /// Which round of the restart, from 0.
    pub round: u32,
    /// Which place in the round, from 0.
    pub place: u32,
    /// Requests per second that were due; `None` for a closed loop.
    pub rate: Option<f64>,
    /// When its window opened, in milliseconds since the run began.
    pub at_ms: u64,
    /// Length of its window, in nanoseconds.
    pub window_ns: u64,
    /// Right answers.
    pub answers: u64,
    /// Failures by kind and phase.
    pub failures: Vec<FailureCount>,
    /// Answers by status.
    pub statuses: Vec<(u16, u64)>,
    /// Requests that were due; 0 in a closed loop.
    pub due: u64,
    /// In flight when the window closed.
    pub in_flight: u64,
    /// Connections asked for, up when the window opened, opened again.
    pub connections: (u64, u64, u64),
    /// Bytes received and sent.
    pub bytes: (u64, u64),
    /// Service time.
    pub service: Histogram,
    /// Response time from the due moment; empty in a closed loop.
    pub response: Histogram,
    /// Requests whose service time was not seen to its end, or not from its beginning.
    pub service_censored: Censored,
    /// The same of response time; empty in a closed loop.
    pub response_censored: Censored,
    /// How late the generator sent; empty in a closed loop.
    pub lag: Histogram,
    /// Time to connect.
    pub connect: Histogram,
    /// Right answers in each tenth of a second.
    pub series: Vec<Tick>,
    /// The engine that ran.
    pub backend: String,
    /// The generator's CPU time, in nanoseconds, and the share of the window that its busiest
    /// thread was on a core.
    pub generator: (u64, f64),
    /// What the server used; `None` where it cannot be seen.
    pub usage: Option<measured::Usage>,
    /// The validity checks that it failed.
    pub failed: Vec<Violation>,
}

/// The words of this command line, as they can be typed again but for secrets, which are redacted:
/// wherever it lies, it is `hotlap`.
#[must_use]
pub fn typed() -> Vec<String> {
    let typed = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    redact::words(&std::iter::once("hotlap".to_owned()).chain(typed).collect::<Vec<_>>())
}

impl From<&hotlap_servers::machine::Machine> for Host {
    fn from(host: &hotlap_servers::machine::Machine) -> Self {
        let mut facts = Vec::new();
        let mut fact = |name: &str, value: Option<String>| {
            facts.extend(value.map(|value| (name.to_owned(), value)));
        };
        let yes = |known: Option<bool>| known.map(|k| if k { "yes" } else { "no" }.to_owned());
        fact("physical cores", Some(host.cores.to_string()));
        fact("hardware threads", Some(host.threads.to_string()));
        fact("quota, cores", host.quota.map(|q| format!("{q:.2}")));
        fact("governor", host.governor.clone());
        fact("turbo", yes(host.turbo));
        fact("two threads a core", yes(host.smt));
        fact("on battery", yes(host.battery));
        fact("load average", host.load.map(|l| format!("{l:.2}")));
        fact("busy before the run, %", host.busy.map(|b| format!("{b:.0}")));
        fact("stolen before the run, %", host.steal.map(|s| format!("{s:.1}")));
        fact("fingerprint", Some(host.fingerprint.clone()));
        let machine = host.virtual_machine.then(|| "virtual machine".to_owned());
        Self {
            os: host.os.clone(),
            kernel: host.kernel.clone(),
            arch: host.architecture.clone(),
            cpu: host.cpu.clone(),
            cores: host.allowed as u32,
            memory_bytes: host.memory_bytes,
            virtualisation: host.container.clone().or(machine),
            facts,
            doubts: host.doubts().iter().map(|d| format!("{}: {}", d.what, d.remedy)).collect(),
        }
    }
}

impl From<&participant::Load> for Load {
    fn from(load: &participant::Load) -> Self {
        Self {
            name: load.name.clone(),
            connections: load.connections,
            threads: load.threads,
            keep_alive: load.reuse == Reuse::KeepAlive,
            pipeline: load.pipeline,
            request: String::new(),
            rate: load.rate,
        }
    }
}

impl From<&participant::Participant> for Server {
    fn from(participant: &participant::Participant) -> Self {
        let command = match &participant.start {
            participant::Origin::Launch(launch) => shell_words::join(&launch.argv),
            participant::Origin::Running { url, .. } => url.clone(),
        };
        Self {
            name: participant.name.clone(),
            role: participant.role,
            command: redact::text(&command),
            version: redact::text(&participant.version),
            about: String::new(),
            published: Vec::new(),
            part: Part::default(),
            failure: None,
        }
    }
}

impl Start {
    /// A start that is ready and not yet warm.
    #[must_use]
    pub fn new(server: usize, restart: u32, ready: &runner::Ready) -> Self {
        Self {
            server,
            restart,
            ready_ms: ready.ready_ms,
            conformance: ready.conformance,
            rss_bytes: ready.rss_bytes,
            notes: ready.notes.iter().map(|note| redact::text(note)).collect(),
            warmups: Vec::new(),
        }
    }
}

impl Warmup {
    /// The warm-up under one load.
    #[must_use]
    pub fn new(load: usize, warmup: &runner::Warmup) -> Self {
        Self {
            load,
            class: warmup.class,
            steady_ms: warmup.steady_ms,
            curve: warmup.curve.clone(),
            window_ms: warmup.window_ms,
            alone_cost_ns: warmup.alone_cost_ns,
            count: warmup.count,
        }
    }
}

impl From<&measured::Lap> for Lap {
    fn from(lap: &measured::Lap) -> Self {
        let outcome = &lap.outcome;
        let busiest = outcome.threads.iter().map(|t| t.busy()).fold(0.0, f64::max);
        Self {
            server: lap.participant,
            load: lap.load,
            restart: lap.restart,
            round: lap.round,
            place: lap.place,
            rate: match lap.kind {
                measured::Kind::Flat => None,
                measured::Kind::Paced { rate } => Some(rate),
            },
            at_ms: lap.at_ms,
            window_ns: outcome.window_ns,
            answers: outcome.responses,
            failures: outcome.failures.0.clone(),
            statuses: outcome.statuses.iter().map(|(s, n)| (*s, *n)).collect(),
            due: outcome.due,
            in_flight: outcome.in_flight,
            connections: (
                outcome.connections.requested,
                outcome.connections.established,
                outcome.connections.reopened,
            ),
            bytes: (outcome.bytes.received, outcome.bytes.sent),
            service: outcome.service_time.clone(),
            response: outcome.response_time.clone(),
            service_censored: outcome.service_time_censored.clone(),
            response_censored: outcome.response_time_censored.clone(),
            lag: outcome.lag.clone(),
            connect: outcome.connect_time.clone(),
            series: outcome.series.clone(),
            backend: outcome.backend.clone(),
            generator: (outcome.threads.iter().map(|t| t.cpu_ns).sum(), busiest),
            usage: lap.usage,
            failed: lap.failed.iter().cloned().map(redact::record).collect(),
        }
    }
}

impl Load {
    /// Whether both are the same load, whatever they are called. Servers of a run may be sent
    /// requests of their own, and one of them may be missing in the other run, so one request in
    /// common is enough. An unknown request, as in runs that were stored before it was kept, fits
    /// any.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let shape = |l: &Self| (l.connections, l.threads, l.keep_alive, l.pipeline, l.rate);
        let is_unknown = self.request.is_empty() || other.request.is_empty();
        let has = |request: &str| other.request.split(", ").any(|theirs| theirs == request);
        shape(self) == shape(other) && (is_unknown || self.request.split(", ").any(has))
    }
}

impl Run {
    /// Whether a lap is of the kind that its load asks for: in a closed loop, or at the load's own
    /// rate. Laps at a common rate, which follow those in a closed loop for their response times,
    /// are not.
    #[must_use]
    pub fn is_main(&self, lap: &Lap) -> bool {
        let own = self.loads.get(lap.load).and_then(|load| load.rate);
        lap.rate.is_some() == own.is_some()
    }

    /// Whether it asks what each layer costs.
    #[must_use]
    pub fn asks_for_layers(&self) -> bool {
        self.question == Question::Layers
    }

    /// Whether a server takes part in comparisons: not the ceiling, not the A/A control, not one
    /// that failed.
    #[must_use]
    pub fn is_compared(&self, server: usize) -> bool {
        let server = &self.servers[server];
        matches!(server.role, Role::Plain | Role::Reference) && server.failure.is_none()
    }

    /// Whether tables show a server: not the A/A control, not one that failed.
    #[must_use]
    pub fn is_shown(&self, server: usize) -> bool {
        let server = &self.servers[server];
        server.role != Role::Control && server.failure.is_none()
    }

    /// How many restarts have laps under a load.
    #[must_use]
    pub fn restarts(&self, load: usize) -> u32 {
        self.laps.iter().filter(|l| l.load == load).map(|l| l.restart + 1).max().unwrap_or(0)
    }

    /// Whether any lap passed its validity checks.
    #[must_use]
    pub fn has_valid_laps(&self) -> bool {
        self.laps.iter().any(|lap| self.is_main(lap) && lap.counts())
    }
}

impl Host {
    /// What tells this machine from others of its kind, where it is known.
    #[must_use]
    pub fn fingerprint(&self) -> Option<&str> {
        self.facts.iter().find(|(name, _)| name == "fingerprint").map(|(_, print)| print.as_str())
    }
}

impl Lap {
    /// Right answers per second.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        self.rate_share().value().unwrap_or(0.0)
    }

    /// CPU time of the server's tree per request, in nanoseconds.
    #[must_use]
    pub fn cost_ns(&self) -> Option<f64> {
        self.cost_share().and_then(Share::value)
    }

    /// What it adds to the requests/s of its round.
    #[must_use]
    pub fn rate_share(&self) -> Share {
        Share::rate(self.answers, self.window_ns)
    }

    /// What it adds to the CPU time per request of its round, in nanoseconds.
    #[must_use]
    pub fn cost_share(&self) -> Option<Share> {
        self.usage.as_ref()?.cost_share()
    }

    /// Whether it takes part in estimates.
    #[must_use]
    pub fn counts(&self) -> bool {
        !self.failed.iter().any(Violation::invalidates)
    }

    /// Whether the generator may be what was measured: the lap is a lower bound.
    #[must_use]
    pub fn is_generator_limited(&self) -> bool {
        self.failed.iter().any(|g| matches!(g, Violation::Generator { .. }))
    }

    /// Failures of every kind.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.iter().map(|c| c.count).sum()
    }
}
