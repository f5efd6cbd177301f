//! What can be typed after `hotlap capacity`.

use std::time::Duration;

use clap::Args;
use hotlap_bench::slo::Objective;

use super::run::{MeasureArgs, RunArgs, Schedule};
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
    /// The server that the others are compared with (default: the first)
    #[arg(long, value_name = "NAME")]
    pub reference: Option<String>,
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
    /// Exit with code 5 if a server's capacity is lower than the reference's by more than this and
    /// the noise: "capacity -5%"
    #[arg(long, value_name = "RULE", help_heading = None::<&'static str>)]
    pub fail_if: Vec<String>,
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
            ..RunArgs::of(self.servers, self.common)
        }
    }
}
