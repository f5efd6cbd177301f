//! What can be typed after `hotlap explain`.

use std::time::Duration;

use clap::Args;

use super::run::{MeasureArgs, RunArgs, Schedule};
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
