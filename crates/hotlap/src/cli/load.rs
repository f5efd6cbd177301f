//! The arguments of `hotlap load`: wrk's flags, and options that wrk does not have.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use hotlap_agent::AgentCommand;
use hotlap_load::plan::CONNECTIONS;

use super::shared::{AskArgs, ConnectionArgs, TlsArgs};
use crate::quantity;

/// `hotlap load`
#[derive(Debug, Args)]
#[command(after_long_help = LOAD)]
pub struct LoadArgs {
    /// What to load: http://, https://, host:port, or unix:/path/to/socket:/path
    #[arg(required_unless_present_any = ["requests_file", "script"])]
    pub url: Option<String>,
    /// Generator threads (default: 1)
    #[arg(short, long, value_name = "N", value_parser = quantity::count)]
    pub threads: Option<usize>,
    /// Open connections
    #[arg(short, long, value_name = "N", default_value_t = CONNECTIONS)]
    #[arg(value_parser = quantity::count)]
    pub connections: usize,
    /// How long to measure (default: 10s; with --replay times, the whole log)
    #[arg(short, long, value_name = "TIME", value_parser = quantity::span)]
    #[arg(conflicts_with = "requests", allow_hyphen_values = true)]
    pub duration: Option<Duration>,
    /// Number of requests, instead of a duration
    #[arg(short = 'n', long, value_name = "N", value_parser = quantity::count)]
    pub requests: Option<usize>,
    /// Warm-up before the measurement, excluded from the results
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = quantity::duration)]
    pub warmup: Duration,
    /// Open loop: send this many requests per second, however the server responds
    #[arg(short = 'R', long, value_name = "RATE", value_parser = quantity::rate)]
    pub rate: Option<f64>,
    /// Open loop with exponentially distributed gaps, as independent users produce them
    #[arg(long, requires = "rate")]
    pub poisson: bool,
    /// Seed of the gaps of --poisson, of fields, and of `--replay weights`
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// How requests travel.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Print the percentiles of latency
    #[arg(long)]
    pub latency: bool,
    /// The requests.
    #[command(flatten)]
    pub request: LoadRequestArgs,
    /// How servers are reached over TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Check the body of one response in N (status and length are always checked)
    #[arg(long, value_name = "N", default_value = "1")]
    pub check_one_in: u32,
    /// Skip the probes. Accept any response with the expected status, and with the body of
    /// --expect-body if given
    ///
    /// Without this option, each request is sent a few times before the load, to learn its
    /// response. POST and other unsafe methods are sent only once: then only the status is
    /// checked, and the body if --expect-body is given.
    #[arg(long)]
    pub no_check: bool,
    /// Cores to pin the generator's threads to: 1,2,3. If there is a core for each thread, threads
    /// poll without sleeping
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub generator_cpus: Vec<usize>,
    /// Local addresses to connect from, in turn (beyond 28,000 connections)
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub sources: Vec<std::net::IpAddr>,
    /// Generate the load on another host, where COMMAND runs hotlap. Repeat the option for several
    /// generators
    ///
    /// `hotlap agent` is appended to the command, for example `ssh host2`. The generators divide
    /// the connections, and with them the load. -t, --generator-cpus and --sources apply to each
    /// generator. All generators begin at the same time, and the result is the sum. If a generator
    /// is lost, begins late, stalls or contributes too little, the result is not valid (exit code
    /// 4). See docs/remote.md.
    #[arg(long, value_name = "COMMAND")]
    pub generator_on: Vec<AgentCommand>,
    /// Sample latency from a further host while the generators load: one connection, 100 requests/s
    ///
    /// Busy generators measure their own delays too. The further host is idle, so it measures only
    /// the latency of the server and the network. Its requests are not part of the result.
    #[arg(long, value_name = "COMMAND", requires = "generator_on", conflicts_with = "requests")]
    pub sample_from: Option<AgentCommand>,
    /// Start at this Unix time in seconds, so that several generators start together
    #[arg(long, value_name = "SECONDS", value_parser = quantity::moment)]
    pub start_at: Option<SystemTime>,
    /// Format of the result
    #[arg(long, value_name = "FORM", default_value = "human")]
    pub format: Form,
    /// wrk's Lua scripts are not supported. The error says what to use instead
    #[arg(short, long, value_name = "FILE", hide_short_help = true)]
    pub script: Option<PathBuf>,
    /// Where the outcome is written to.
    #[command(flatten)]
    pub exports: LoadExportArgs,
}

const LOAD: &str = "\
Examples:
  hotlap load localhost:8080
  hotlap load -t4 -c100 -d30s --latency http://localhost:8080/
  hotlap load -R 5k --poisson http://localhost:8080/       an open loop
  hotlap load -n 10k --method POST --body @order.json -H 'Content-Type: \
application/json' http://localhost:8080/orders
  hotlap load --generator-on 'ssh gen1' --generator-on 'ssh gen2' \
http://10.0.0.1:8080/
  hotlap load --access-log access.log http://localhost:8080/
  hotlap load --access-log access.log --replay times --replay-speed 10 \
http://localhost:8080/
  hotlap load --format wrk -t2 -c10 -d5s http://localhost:8080/ | ./parse.sh
  hotlap load --format hgrm http://localhost:8080/ > latency.hgrm

Exit codes: 3 if the server ended, sent wrong responses, or failed over 1% of
the requests; 4 if a generator on another host was lost, late or too slow.
`hotlap --help` lists all.";

/// The requests of `hotlap load`, and the expected responses.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub struct LoadRequestArgs {
    /// The request.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Several requests, with parts that vary from request to request: a TOML
    /// file (see --help), or one request per line: `[WEIGHT] [METHOD] URL [BODY]`
    #[arg(
        long,
        value_name = "FILE",
        long_help = requests_help!("", "URL"),
    )]
    pub requests_file: Option<PathBuf>,
    /// Replay the log this many times as fast with --replay times (default: 1)
    #[arg(long, value_name = "FACTOR", requires = "replay", value_parser = quantity::factor)]
    pub replay_speed: Option<f64>,
}

/// How `hotlap load` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Readable text.
    Human,
    /// wrk's output format, for scripts that parse it.
    Wrk,
    /// The whole outcome.
    Json,
    /// One line per figure.
    Csv,
    /// HdrHistogram's percentile distribution.
    Hgrm,
    /// HdrHistogram's compressed interval log.
    Hlog,
}

/// Where the outcome of `hotlap load` is written to.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Exports")]
pub struct LoadExportArgs {
    /// The whole outcome (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,
    /// One line per figure
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<PathBuf>,
    /// HdrHistogram's percentile distribution
    #[arg(long, value_name = "FILE")]
    pub export_hgrm: Option<PathBuf>,
    /// HdrHistogram's compressed interval log
    #[arg(long, value_name = "FILE")]
    pub export_hlog: Option<PathBuf>,
}
