//! What can be typed after `hotlap capacity`.

use std::time::Duration;

use clap::Args;
use hotlap_bench::slo::Objective;

use super::output::{ExportArgs, StoreArgs};
use super::run::{Placement, RequestArgs, RunArgs, Schedule, Shape, StartArgs};
use super::tls::TlsArgs;
use crate::{quantity, slo};

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
    /// request that fails misses every goal. The capacity is the rate at which a window of 1 to 4 s
    /// keeps all goals as often as not; at the rate that the table calls safe, 19 of 20 windows do.
    #[arg(long, value_name = "GOALS", required = true)]
    pub slo: String,
    /// Display name; repeat it for each server, in order
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// The server that the others are compared with (default: the first)
    #[arg(long, value_name = "NAME")]
    pub reference: Option<String>,
    /// First install missing toolchains of these servers, as `hotlap setup --yes`
    #[arg(long, conflicts_with = "server_on")]
    pub setup: bool,
    /// How servers are started.
    #[command(flatten)]
    pub start: StartArgs,
    /// Print the plan (servers, load, time, cores, exports) and exit
    #[arg(long)]
    pub dry_run: bool,
    /// The load.
    #[command(flatten)]
    pub shape: Shape,
    /// Total measuring time (default: a minute per server, more if a goal is over 10 ms)
    #[arg(short, long, value_name = "TIME", value_parser = quantity::span,
        help_heading = "Schedule")]
    pub duration: Option<Duration>,
    /// Stop earlier once all intervals are as narrow as this
    #[arg(long, value_name = "SHARE", value_parser = quantity::share, default_value = "5%",
        help_heading = "Schedule")]
    pub precision: f64,
    /// Number of times every server is started again (default: by --duration)
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub restarts: Option<u32>,
    /// The order, and the cores.
    #[command(flatten)]
    pub placement: Placement,
    /// The request.
    #[command(flatten)]
    pub request: RequestArgs,
    /// How servers are reached over TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Exit with code 5 if a server's capacity is lower than the reference's by more than this and
    /// the noise: "capacity -5%"
    #[arg(long, value_name = "RULE", help_heading = None::<&'static str>)]
    pub fail_if: Vec<String>,
    /// Do not store the run
    #[arg(long, conflicts_with = "store", help_heading = "Store and exports")]
    pub no_store: bool,
    /// Also print every window
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
            servers: self.servers,
            suite: None,
            shard: None,
            resume: false,
            layers: false,
            stress: false,
            scenarios: Vec::new(),
            setup: self.setup,
            names: self.names,
            dry_run: self.dry_run,
            reference: self.reference,
            start: self.start,
            shape: self.shape,
            rate: None,
            slo,
            explain: false,
            explain_only: false,
            schedule: Schedule {
                duration: self.duration,
                precision: Some(self.precision),
                slice: None,
                restarts: self.restarts,
                rounds: None,
                placement: self.placement,
                no_ceiling: true,
            },
            request: self.request,
            tls: self.tls,
            fail_if: self.fail_if,
            save_baseline: None,
            no_store: self.no_store,
            details: self.details,
            from_config: self.from_config,
            store: self.store,
            exports: self.exports,
        }
    }
}
