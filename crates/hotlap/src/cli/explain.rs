//! What can be typed after `hotlap explain`.

use std::time::Duration;

use clap::Args;

use super::output::{ExportArgs, StoreArgs};
use super::run::{Placement, RequestArgs, RunArgs, Schedule, Shape, StartArgs};
use super::tls::TlsArgs;
use crate::quantity;

/// `hotlap explain`
#[derive(Debug, Args)]
#[command(after_long_help = EXPLAIN)]
pub struct ExplainArgs {
    /// Two built-in servers (go/net-http), commands ('node app.js'), or URLs; the first is the
    /// reference
    ///
    /// Where does the difference in CPU time per request go? hotlap samples both with a CPU
    /// profiler, counts their system calls, and reads the kernel's counts of page faults, context
    /// switches and segments, each in laps of its own. Root may do all of that; otherwise the
    /// report says what is missing, and what would permit it.
    #[arg(value_names = ["A", "B"], num_args = 2, required = true)]
    pub servers: Vec<String>,
    /// Display name; repeat it for each server, in order
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
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
    /// Also print small functions, and everything that was counted
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

const EXPLAIN: &str = "\
Examples:
  hotlap explain node/http node/express
  hotlap explain --name old --name new ./old ./new --path /users/1
  hotlap explain go/net-http go/fasthttp --export-html why.html   with a flame graph";

impl ExplainArgs {
    /// The same as arguments of `hotlap run`.
    pub fn into_run(self) -> RunArgs {
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
            reference: None,
            start: self.start,
            shape: self.shape,
            rate: None,
            slo: Vec::new(),
            explain: false,
            explain_only: true,
            schedule: Schedule {
                duration: self.duration,
                precision: None,
                slice: self.slice,
                restarts: self.restarts,
                rounds: self.rounds,
                placement: self.placement,
                no_ceiling: true,
            },
            request: self.request,
            tls: self.tls,
            fail_if: Vec::new(),
            save_baseline: None,
            no_store: self.no_store,
            details: self.details,
            from_config: self.from_config,
            store: self.store,
            exports: self.exports,
        }
    }
}
