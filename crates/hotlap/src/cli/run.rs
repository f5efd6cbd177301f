//! The arguments of `hotlap run`, and of `hotlap capacity` and `hotlap explain`, which are runs
//! with other questions.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hotlap_agent::AgentCommand;
use hotlap_bench::slo::Objective;

use super::shared::{AskArgs, ConnectionArgs, ExportArgs, StoreArgs, TlsArgs};
use crate::quantity::{self, RunNumbers, ShardNumber};
use crate::slo;
use crate::text::is_hidden;

/// `hotlap run`
#[derive(Debug, Args)]
#[command(after_long_help = RUN)]
pub struct RunArgs {
    /// Built-in servers (go/net-http), commands ('node app.js'), or URLs of running servers.
    /// Without any: the quick suite
    ///
    /// hotlap splits a command into words as a shell does, but starts the command without a shell.
    /// $PORT and {port} are replaced by a free port, which is also in the environment variable
    /// PORT. If a command names neither and its server listens on another port, hotlap finds that
    /// port.
    #[arg(value_name = "SERVER|COMMAND|URL")]
    pub servers: Vec<String>,
    /// Run a suite: quick, hello, nim-speedup, app-servers, layers, json-api, http2, tls, web,
    /// files, uploads, or a file (`hotlap init` writes one)
    #[arg(
        long,
        value_name = "NAME|FILE",
        conflicts_with_all = ["servers", "layers", "names", "reference"]
    )]
    pub suite: Option<String>,
    /// Measure one of N shards of the suite, 0/N to (N-1)/N, for `hotlap merge`
    ///
    /// The shards may run on different machines, at any time and in any order. Give all shards the
    /// same other options, but each shard its own --store: the file is written when the run has
    /// ended as planned. A shard whose file exists is not measured again. See docs/pool.md.
    #[arg(
        long,
        value_name = "I/N",
        requires = "suite",
        requires = "store",
        conflicts_with_all = ["resume", "stress", "explain", "save_baseline", "fail_if"]
    )]
    pub shard: Option<ShardNumber>,
    /// Number of shards that measure each server, if possible on as many machines (default: 5, or N
    /// if N is less)
    #[arg(long, value_name = "K", requires = "shard", value_parser = quantity::count)]
    pub nodes_per_server: Option<usize>,
    /// Continue the last, interrupted run of this suite
    #[arg(
        long,
        conflicts_with_all = [
            "servers", "no_store", "restarts", "rounds", "seed", "slice", "duration"
        ]
    )]
    pub resume: bool,
    /// Show what each layer costs: each server adds a layer to the server before it
    #[arg(long)]
    pub layers: bool,
    /// Stress each server (overload, slow clients, malformed input, ...) instead of measuring it.
    /// Shows what normal clients notice, and whether the server recovers
    ///
    /// Takes about half a minute per server. The result is stored.
    #[arg(long, conflicts_with_all = ["layers", "fail_if", "generator_on"])]
    pub stress: bool,
    /// Run only this scenario of --stress. Repeat the option for more
    #[arg(long = "scenario", value_name = "NAME", requires = "stress")]
    pub scenarios: Vec<String>,
    /// After the run, explain where the differences in CPU time per request come from, as `hotlap
    /// explain`
    ///
    /// Takes about half a minute more per server, and starts all servers again.
    #[arg(long, conflicts_with_all = ["stress", "layers", "resume"])]
    pub explain: bool,
    /// Whether the run only explains differences.
    #[arg(skip)]
    pub explain_only: bool,
    /// The server that the others are compared with (default: the first)
    #[arg(long, value_name = "NAME")]
    pub reference: Option<String>,
    /// Rate at which latency is compared, in requests/s (default: half of what the slowest server
    /// reaches)
    #[arg(long, value_name = "RATE", value_parser = quantity::rate, help_heading = "Load")]
    pub rate: Option<f64>,
    /// The goals of `hotlap capacity`.
    #[arg(skip)]
    pub slo: Vec<Objective>,
    /// The schedule.
    #[command(flatten)]
    pub schedule: Schedule,
    /// Exit with code 5 if a server is worse than the reference by more than this and the noise:
    /// "cost +3%", "rps -5%", "p50 +10%", "p99 +10%", "memory +10%", and with a database
    /// "database +5%", "total +5%"
    #[arg(long, value_name = "RULE", help_heading = None::<&'static str>)]
    pub fail_if: Vec<String>,
    /// Exit as `git bisect run` expects: with 0 if --fail-if passes, and with 1 if it fails
    ///
    /// Code 125 skips a commit whose server fails, or for which --fail-if cannot be decided. A code
    /// of 128 or more ends the bisection, because something other than the commit is wrong.
    #[arg(long, requires = "fail_if", help_heading = None::<&'static str>)]
    pub git_bisect: bool,
    /// Save the run as a baseline, for `hotlap compare --baseline NAME`
    #[arg(long, value_name = "NAME", conflicts_with_all = ["no_store", "stress", "resume"],
        value_parser = baseline, help_heading = "Store and exports")]
    pub save_baseline: Option<String>,
    /// What every command that measures servers has.
    #[command(flatten)]
    pub common: MeasureArgs,
}

impl RunArgs {
    /// A run of these servers, without options of its own.
    pub fn of(servers: Vec<String>, common: MeasureArgs) -> Self {
        Self {
            servers,
            suite: None,
            shard: None,
            nodes_per_server: None,
            resume: false,
            layers: false,
            stress: false,
            scenarios: Vec::new(),
            explain: false,
            explain_only: false,
            reference: None,
            rate: None,
            slo: Vec::new(),
            schedule: Schedule::default(),
            fail_if: Vec::new(),
            git_bisect: false,
            save_baseline: None,
            common,
        }
    }
}

/// What `run`, `capacity` and `explain` have in common.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// Display name. Repeat the option for each server, in order
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// First install missing toolchains of these servers, as `hotlap setup --yes`
    #[arg(long, conflicts_with = "server_on")]
    pub setup: bool,
    /// Print the plan (servers, loads, schedule, time, cores, exports) and exit
    #[arg(long)]
    pub dry_run: bool,
    /// How servers are started.
    #[command(flatten)]
    pub start: StartArgs,
    /// The load.
    #[command(flatten)]
    pub shape: ShapeArgs,
    /// The order, and the cores.
    #[command(flatten)]
    pub placement: Placement,
    /// The request.
    #[command(flatten)]
    pub request: RequestArgs,
    /// How servers are reached over TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Do not store the run
    #[arg(long, conflicts_with = "store", help_heading = "Store and exports")]
    pub no_store: bool,
    /// Also print everything known about each server, window or function
    #[arg(long, help_heading = None::<&'static str>)]
    pub details: bool,
    /// Options that come from the configuration file.
    #[arg(skip)]
    pub from_config: Vec<String>,
    /// Where the run is stored.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Where the report is written to.
    #[command(flatten)]
    pub exports: ExportArgs,
}

const RUN: &str = "\
Examples:
  hotlap run go/net-http node/http:cluster
  hotlap run 'python3 app.py' 'node app.js' --reference 'node app.js'
  hotlap run --name old --name new './old --port $PORT' './new --port $PORT'
  hotlap run http://127.0.0.1:8080/ --path /health
  hotlap run -L workers 1,2,4 'gunicorn --workers {workers} app:app'
  hotlap run --prepare 'redis-cli flushall' './old' './new'
  hotlap run --layers './app --bare' './app --json' './app --json --log'
  hotlap run --suite app-servers --setup
  hotlap run --suite app-servers --dry-run
  hotlap run --suite app-servers --shard 0/12 --store shard-0.db
  hotlap run --server-on 'ssh bench2' go/net-http 'node app.js'
  hotlap run --generator-on 'ssh gen1' --generator-on 'ssh gen2' go/net-http 'node app.js'
  hotlap run --stress 'node app.js' --scenario garbage --scenario 'slow headers'
  hotlap run go/net-http --save-baseline main
  hotlap run --name base --name pr './base' './pr' --fail-if 'cost +3%'";

/// How servers are started.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Start commands through `sh -c`
    #[arg(long)]
    pub shell: bool,
    /// Run COMMAND through `sh -c` in a server's folder before each of its starts
    ///
    /// COMMAND may reset a database, for example. All servers of a restart are prepared and
    /// started before the first server is measured, so other servers may already run. A server is
    /// dropped if COMMAND fails or leaves processes running. URLs are not prepared.
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// Start PostgreSQL with the tables and rows of an SQL FILE, and measure its CPU time too
    ///
    /// Each start of a server gets a fresh copy of the database. The server finds the copy through
    /// DATABASE_URL, or through PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. POOL_SIZE is the
    /// number of connections to keep open. Without --database, hotlap does not touch a PostgreSQL
    /// that already runs. See docs/databases.md.
    #[arg(long, value_name = "FILE")]
    pub with_postgres: Option<PathBuf>,
    /// Use the PostgreSQL at URL instead of starting one
    ///
    /// hotlap creates databases there, and drops them at the end of the run. Their names begin with
    /// hotlap_. The role in URL must be allowed to create databases. hotlap does not count
    /// statements there.
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// The folder with PostgreSQL's programs (default: the newest installed version)
    #[arg(long, value_name = "DIR")]
    pub postgres: Option<PathBuf>,
    /// Measure a server once with each of the VALUES (separated by commas) in place of {NAME}
    ///
    /// `-L workers 1,2,4 'app --workers {workers}'` measures three servers. Repeat -L to measure
    /// all combinations.
    #[arg(short = 'L', long = "parameter-list", value_names = ["NAME", "VALUES"], num_args = 2)]
    pub parameters: Vec<String>,
}

/// How a server is loaded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct ShapeArgs {
    /// Open connections (default: 64)
    #[arg(short, long, value_name = "N", value_parser = quantity::count)]
    pub connections: Option<usize>,
    /// Threads of the load generator (default: one for each of its cores)
    #[arg(short, long, value_name = "N", value_parser = quantity::count)]
    pub threads: Option<usize>,
    /// How requests travel.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Start servers with a certificate and load them over TLS
    ///
    /// Commands find the PEM files in the environment variables TLS_CERT and TLS_KEY. $TLS_CERT
    /// and {tls_cert} in a command are replaced, too. The certificate is for localhost and
    /// self-signed. Unless --ciphers is given, all servers use AES-128-GCM, so that they do the
    /// same work. The ceiling is left out, because it does not speak TLS.
    #[arg(long)]
    pub https: bool,
    /// How long a start may take.
    #[command(flatten)]
    pub start: StartLimit,
    /// Allow URLs on other machines. Load only servers that are yours
    #[arg(long)]
    pub allow_remote: bool,
}

/// How long, and how often.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Schedule")]
pub struct Schedule {
    /// Total measuring time (default: the suite's, or else a minute for up to two servers and 25 s
    /// for each further server). The default grows if it is too short for a verdict
    ///
    /// If starts take longer than expected, measuring takes up to half more, to complete the three
    /// restarts that a verdict needs.
    #[arg(short, long, value_name = "TIME")]
    #[arg(value_parser = quantity::span)]
    pub duration: Option<Duration>,
    /// Stop earlier once all intervals are within ± SHARE
    #[arg(long, value_name = "SHARE", value_parser = quantity::share)]
    pub precision: Option<f64>,
    /// Stop once every verdict on CPU time per request is certain, after at least three restarts
    ///
    /// With a rule such as --fail-if 'cost +3%', stop once the rule certainly passes or
    /// fails. With several rules, or with a rule about another measure, the option has no effect.
    #[arg(long, conflicts_with = "precision")]
    pub stop_early: bool,
    /// How long a server runs before it is frozen while the others run (default: 12ms if every
    /// server costs the same in such slices as when left running, else 100ms, and more for slow
    /// servers)
    #[arg(long, value_name = "TIME", value_parser = quantity::span)]
    pub slice: Option<Duration>,
    /// Number of times every server is started again (default: by --duration)
    #[arg(long, value_name = "N")]
    pub restarts: Option<u32>,
    /// Rounds in each restart (default: by --duration)
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Leave out the ceiling, hotlap's own minimal server
    #[arg(long)]
    pub no_ceiling: bool,
}

/// Order, cores and freezing.
#[derive(Debug, Args)]
#[command(next_help_heading = "Schedule")]
pub struct Placement {
    /// Seed of the random order (default: a new one, stored with the run). With --shard, the seed
    /// also divides the suite (default: 1)
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Cores for the server (default: half of them)
    #[arg(long, value_name = "N")]
    pub server_cpus: Option<usize>,
    /// Do not pin server and generator to cores of their own
    #[arg(long)]
    pub no_pin: bool,
    /// Do not freeze servers while another one is measured
    #[arg(long)]
    pub no_freeze: bool,
    /// Run servers and generator before other programs (nice -20). Needs root, or CAP_SYS_NICE
    ///
    /// On a busy machine, latency and requests/s are then closer to their values on a quiet
    /// machine. Leave this option out if another program on this machine is part of the
    /// application, such as a database. That program would slow down.
    #[arg(long, conflicts_with = "server_on")]
    pub high_priority: bool,
    /// Build and start servers on another host, and load them from here. COMMAND starts a program
    /// there: 'ssh bench2', 'ip netns exec ns1', 'kubectl exec -i pod --'
    ///
    /// The same version of hotlap must be installed there. If it is not in PATH, append its path
    /// to COMMAND. Servers must listen on $HOST. Their commands start in the folder in which
    /// COMMAND starts its program. Name a server that runs there already by its URL.
    #[arg(long, value_name = "COMMAND", help_heading = "Other hosts")]
    pub server_on: Option<AgentCommand>,
    /// Address at which generators reach the servers' host (default: the first address of the host
    /// that they reach)
    #[arg(long, value_name = "IP", help_heading = "Other hosts")]
    pub server_address: Option<IpAddr>,
    /// Generate the load on another host, where COMMAND runs hotlap. Repeat the option for several
    /// generators
    ///
    /// The generators divide the connections, and with them the load. -t applies to each
    /// generator. All generators open their windows at the same time, and a lap is the sum. A lap
    /// in which a generator was lost, late or stalled is excluded. See docs/remote.md.
    #[arg(long, value_name = "COMMAND", help_heading = "Other hosts")]
    pub generator_on: Vec<AgentCommand>,
}

/// The request, and the response that is expected.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub struct RequestArgs {
    /// Contract of built-in servers, or several, separated by commas (default: hello)
    #[arg(long, value_name = "NAMES")]
    pub contract: Option<String>,
    /// Path to request from commands and URLs (default: /, or the path in the URL)
    #[arg(long, value_name = "PATH", conflicts_with_all = ["requests_file", "access_log"])]
    pub path: Option<String>,
    /// The request.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Several requests to commands and URLs, with parts that vary from request to request: a TOML
    /// file (see --help), or one request per line: `[WEIGHT] [METHOD] PATH [BODY]`
    #[arg(
        long,
        value_name = "FILE",
        long_help = requests_help!(" to commands and URLs", "PATH"),
        conflicts_with_all = ["method", "body", "expect_status", "expect_body"]
    )]
    pub requests_file: Option<PathBuf>,
}

/// Checks the name of a baseline. Numbers would mean runs (`11`, `11-13`).
fn baseline(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a baseline needs a name".to_owned()),
        t if t.parse::<RunNumbers>().is_ok() => {
            Err(format!("{t} would mean runs by their numbers: use another name"))
        }
        t if t.chars().any(is_hidden) => Err("a name must not have control characters".to_owned()),
        t => Ok(t.to_owned()),
    }
}

/// How long a start may take.
#[derive(Debug, Args)]
pub struct StartLimit {
    /// Time from a server's start to its first correct response (503 is accepted for a quarter of
    /// it, another wrong response for a twentieth)
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = quantity::span)]
    pub start_timeout: Duration,
}

/// `hotlap capacity`
#[derive(Debug, Args)]
#[command(after_long_help = CAPACITY)]
pub struct CapacityArgs {
    /// Built-in servers (go/net-http), commands ('node app.js'), or URLs of running servers
    #[arg(value_name = "SERVER|COMMAND|URL", required = true)]
    pub servers: Vec<String>,
    /// The goals, separated by commas: p99<10ms, p50<2ms, p99.9<100ms, errors<0.1%
    ///
    /// Latency counts from the moment a request is due, in an open loop with Poisson arrivals. A
    /// request that fails misses every goal. For p99, the capacity is the rate at which 9 of 10
    /// windows meet all goals. A window usually takes 1 to 4 s. At the end, each server runs at
    /// its capacity for longer.
    #[arg(long, value_name = "GOALS", required = true)]
    pub slo: String,
    /// The server that the others are compared with (default: the first)
    #[arg(long, value_name = "NAME")]
    pub reference: Option<String>,
    /// Total measuring time (default: 90 s per server, more if a goal is over 10 ms)
    #[arg(short, long, value_name = "TIME", value_parser = quantity::span,
        help_heading = "Schedule")]
    pub duration: Option<Duration>,
    /// Stop earlier once all intervals are within ± SHARE
    #[arg(long, value_name = "SHARE", value_parser = quantity::share, default_value = "5%",
        help_heading = "Schedule")]
    pub precision: f64,
    /// Number of times every server is started again (default: by --duration)
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub restarts: Option<u32>,
    /// Exit with code 5 if a server's capacity is lower than the reference's by more than this and
    /// the noise: "capacity -5%"
    #[arg(long, value_name = "RULE", help_heading = None::<&'static str>)]
    pub fail_if: Vec<String>,
    /// Exit as `git bisect run` expects: with 0 if --fail-if passes, and with 1 if it fails
    ///
    /// See `hotlap run --help` for the other exit codes.
    #[arg(long, requires = "fail_if", help_heading = None::<&'static str>)]
    pub git_bisect: bool,
    /// What every command that measures servers has.
    #[command(flatten)]
    pub common: MeasureArgs,
}

const CAPACITY: &str = "\
Examples:
  hotlap capacity go/net-http node/http --slo 'p99<10ms'
  hotlap capacity http://127.0.0.1:8080/ --slo 'p99<50ms,errors<0.1%'
  hotlap capacity --name base --name pr ./base ./pr --slo 'p99<10ms' \\
      --fail-if 'capacity -5%'
  hotlap capacity ./app --requests-file requests.toml --slo 'p50<5ms,p99<50ms'";

impl CapacityArgs {
    /// The goals.
    pub fn goals(&self) -> Result<Vec<Objective>, String> {
        slo::parse(&self.slo)
    }

    /// The same as arguments of `hotlap run`, with these goals.
    pub fn into_run(self, slo: Vec<Objective>) -> RunArgs {
        RunArgs {
            reference: self.reference,
            slo,
            schedule: Schedule {
                duration: self.duration,
                precision: Some(self.precision),
                restarts: self.restarts,
                no_ceiling: true,
                ..Schedule::default()
            },
            fail_if: self.fail_if,
            git_bisect: self.git_bisect,
            ..RunArgs::of(self.servers, self.common)
        }
    }
}

/// `hotlap explain`
#[derive(Debug, Args)]
#[command(after_long_help = EXPLAIN)]
pub struct ExplainArgs {
    /// Two built-in servers (go/net-http), commands ('node app.js'), or URLs. The first is the
    /// reference
    ///
    /// Where does the difference in CPU time per request come from? In separate laps, hotlap
    /// samples both servers with a CPU profiler, counts their system calls, and reads the kernel's
    /// counts of page faults, context switches and segments. Some of this may need root. The
    /// report says what is missing, and what would permit it.
    #[arg(value_names = ["A", "B"], num_args = 2, required = true)]
    pub servers: Vec<String>,
    /// Total measuring time (default: 45s)
    #[arg(short, long, value_name = "TIME", value_parser = quantity::span,
        help_heading = "Schedule")]
    pub duration: Option<Duration>,
    /// How long a server runs before it is frozen while the other runs (default: as for `hotlap
    /// run`)
    #[arg(long, value_name = "TIME", value_parser = quantity::span, help_heading = "Schedule")]
    pub slice: Option<Duration>,
    /// Number of times both servers are started again (default: 8, or fewer if they start slowly)
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub restarts: Option<u32>,
    /// Rounds in each restart (default: by --duration)
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub rounds: Option<u32>,
    /// What every command that measures servers has.
    #[command(flatten)]
    pub common: MeasureArgs,
}

const EXPLAIN: &str = "\
Examples:
  hotlap explain node/http node/express
  hotlap explain --name old --name new ./old ./new --path /users/1
  hotlap explain go/net-http go/fasthttp --export-html why.html   with a flame graph";

impl ExplainArgs {
    /// The same as arguments of `hotlap run`.
    pub fn into_run(self) -> RunArgs {
        RunArgs {
            explain_only: true,
            schedule: Schedule {
                duration: self.duration,
                slice: self.slice,
                restarts: self.restarts,
                rounds: self.rounds,
                no_ceiling: true,
                ..Schedule::default()
            },
            ..RunArgs::of(self.servers, self.common)
        }
    }
}
