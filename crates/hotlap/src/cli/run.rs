//! What can be typed after `hotlap run`.

use std::time::Duration;

use clap::Args;

use super::output::{ExportArgs, StoreArgs};
use crate::quantity;
use crate::text::is_hidden;

/// `hotlap run`
#[derive(Debug, Args)]
#[command(after_long_help = RUN)]
pub struct RunArgs {
    /// Servers of the catalogue (go/net-http, node/http:cluster), commands ('node app.js'), or URLs
    /// of servers that run already; none: the quick suite
    ///
    /// A command is split into words as a shell would, and started without a shell. $PORT and
    /// {port} are replaced, PORT is in its environment; if it listens elsewhere, the port is found.
    #[arg(value_name = "SERVER|COMMAND|URL")]
    pub servers: Vec<String>,
    /// A suite: quick, hello, nim-speedup, app-servers, layers or json-api, or a file of your own
    /// (`hotlap init` writes one)
    #[arg(
        long,
        value_name = "NAME|FILE",
        conflicts_with_all = ["servers", "layers", "names", "reference"]
    )]
    pub suite: Option<String>,
    /// Go on with the last run of this suite, which was interrupted: no finished lap is lost
    #[arg(
        long,
        conflicts_with_all = [
            "servers", "no_store", "restarts", "rounds", "seed", "slice", "duration"
        ]
    )]
    pub resume: bool,
    /// Each server stands on the one before it: show what each step costs
    #[arg(long)]
    pub layers: bool,
    /// Let each server meet what servers meet in life (overload, slow clients, garbage, ...): do
    /// its good clients suffer, and is it well afterwards?
    ///
    /// About half a minute a server. It is stored, and shown again by `hotlap report`.
    #[arg(long, conflicts_with_all = ["layers", "fail_if"])]
    pub stress: bool,
    /// Only this of what --stress does; repeat it for more
    #[arg(long = "scenario", value_name = "NAME", requires = "stress")]
    pub scenarios: Vec<String>,
    /// Install what the servers named are missing first, as `hotlap setup --yes` does
    #[arg(long)]
    pub setup: bool,
    /// Display name; repeat it, in the order of the servers
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// Print what would be run: servers, loads, restarts and rounds, time, cores, exports; build
    /// and start no server
    #[arg(long)]
    pub dry_run: bool,
    /// The server that the others are compared with (default: the first)
    #[arg(long, value_name = "NAME")]
    pub reference: Option<String>,
    /// Start commands through `sh -c`
    #[arg(long)]
    pub shell: bool,
    /// How much is asked.
    #[command(flatten)]
    pub shape: Shape,
    /// How long and how often.
    #[command(flatten)]
    pub schedule: Schedule,
    /// What is asked.
    #[command(flatten)]
    pub request: RequestArgs,
    /// Exit with code 5 where a server is worse than the reference by more than this, outside of
    /// the noise: "cost +3%", "rps -5%", "p50 +10%", "p99 +10%", "memory +10%"
    #[arg(long, value_name = "RULE", help_heading = None::<&'static str>)]
    pub fail_if: Vec<String>,
    /// Keep the run as the baseline of this name: `hotlap compare --baseline NAME` finds the newest
    #[arg(long, value_name = "NAME", conflicts_with_all = ["no_store", "stress", "resume"],
        value_parser = baseline, help_heading = "Store and exports")]
    pub save_baseline: Option<String>,
    /// Do not store the run
    #[arg(long, conflicts_with = "store", help_heading = "Store and exports")]
    pub no_store: bool,
    /// Print everything that is known of each server, too
    #[arg(long, help_heading = None::<&'static str>)]
    pub details: bool,
    /// Options that the file with the user's defaults added to what was typed.
    #[arg(skip)]
    pub from_config: Vec<String>,
    /// Where it is kept.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Where it is written to.
    #[command(flatten)]
    pub exports: ExportArgs,
}

const RUN: &str = "\
Examples:
  hotlap run go/net-http node/http:cluster
  hotlap run 'python3 app.py' 'node app.js' --reference 'node app.js'
  hotlap run --name old --name new './old --port $PORT' './new --port $PORT'
  hotlap run http://127.0.0.1:8080/ --path /health
  hotlap run --layers './app --bare' './app --json' './app --json --log'
  hotlap run --suite app-servers --setup
  hotlap run --suite app-servers --dry-run
  hotlap run --stress 'node app.js' --scenario garbage --scenario 'slow headers'
  hotlap run go/net-http --save-baseline main
  hotlap run --name base --name pr './base' './pr' --fail-if 'cost +3%'";

/// How a server is loaded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct Shape {
    /// Connections open at the same time (default: 64)
    #[arg(short, long, value_name = "N", value_parser = quantity::count)]
    pub connections: Option<usize>,
    /// Generator threads (default: 1, or what the generator's cores are)
    #[arg(short, long, value_name = "N", value_parser = quantity::count)]
    pub threads: Option<usize>,
    /// A new connection for each request
    #[arg(long)]
    pub disable_keepalive: bool,
    /// Requests in flight on each connection (default: 1)
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub pipeline: Option<usize>,
    /// The rate for response times, in requests per second (default: half of what the slowest
    /// server reaches)
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    pub rate: Option<f64>,
    /// How long a request may take, before the load (2 s at least) and under it
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = quantity::span)]
    pub timeout: Duration,
    /// How long a server may take from its start to its first correct response; of that, a
    /// twentieth with wrong ones
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = quantity::span)]
    pub start_timeout: Duration,
    /// Allow servers on other machines: load only what is yours
    #[arg(long)]
    pub allow_remote: bool,
}

/// How long, how often, where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Schedule")]
pub struct Schedule {
    /// Time to spend on measuring, in all (default: what the suite says; else a minute for up to
    /// two servers with the hidden control and the ceiling, and 25 s more for each further one)
    #[arg(short, long, value_name = "TIME")]
    #[arg(value_parser = quantity::span)]
    pub duration: Option<Duration>,
    /// Stop before that time is over when all intervals are as narrow as this
    #[arg(long, value_name = "SHARE", value_parser = quantity::share)]
    pub precision: Option<f64>,
    /// How long a server runs before it is frozen and the others have their slice (default: the
    /// shortest of 12ms, 48ms, 300ms and 1s at which every server costs what it costs when left
    /// running)
    #[arg(long, value_name = "TIME", value_parser = quantity::span)]
    pub slice: Option<Duration>,
    /// Fresh starts of every server (default: by the duration)
    #[arg(long, value_name = "N")]
    pub restarts: Option<u32>,
    /// Rounds in each restart (default: by the duration)
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Seed of the random order (default: a new one, stored with the run)
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Cores for the server (default: half of them)
    #[arg(long, value_name = "N")]
    pub server_cpus: Option<usize>,
    /// Do not pin server and generator to cores of their own
    #[arg(long)]
    pub no_pin: bool,
    /// Do not freeze servers outside of their slice
    #[arg(long)]
    pub no_freeze: bool,
    /// Leave out the ceiling, which runs beside servers that hotlap starts
    #[arg(long)]
    pub no_ceiling: bool,
}

/// What is asked, and which answer is right.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub struct RequestArgs {
    /// The contract that servers of the catalogue are held to (default: hello)
    #[arg(long, value_name = "NAME")]
    pub contract: Option<String>,
    /// Path to ask commands and URLs for (default: /, or the URL's own)
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Method. POST and others that are not safe to repeat are sent once before the load; then only
    /// the status is checked, or the body too with --expect-body
    #[arg(short, long, value_name = "METHOD", visible_short_alias = 'X')]
    pub method: Option<String>,
    /// A header of the request; repeat it for more. Values of Authorization, Cookie, X-Api-Key and
    /// those that --redact names are sent, and neither stored nor shown
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// Body of the request; @FILE reads it from a file
    #[arg(long, value_name = "TEXT|@FILE")]
    pub body: Option<String>,
    /// Status that is right (default: 200 to 299)
    #[arg(long, value_name = "N")]
    pub expect_status: Option<u16>,
    /// Body that is right (default: what the first answer holds, but for what varies in it)
    #[arg(long, value_name = "TEXT|@FILE")]
    pub expect_body: Option<String>,
    /// Accept any TLS certificate
    #[arg(short = 'k', long)]
    pub insecure: bool,
}

/// A baseline's name: not a number, which means a run, and not a path, which means a file.
fn baseline(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a baseline has a name".to_owned()),
        t if t.parse::<u64>().is_ok() => Err("a number means a run: use another name".to_owned()),
        t if t.chars().any(is_hidden) => Err("a name has no control characters".to_owned()),
        t => Ok(t.to_owned()),
    }
}
