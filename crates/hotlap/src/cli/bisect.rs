//! The arguments of `hotlap bisect`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::quantity;

/// `hotlap bisect`
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct BisectArgs {
    /// A commit or tag from before the change
    #[arg(long, value_name = "COMMIT")]
    pub good: String,
    /// A commit or tag with the change
    #[arg(long, value_name = "COMMIT", default_value = "HEAD")]
    pub bad: String,
    /// Shell command that builds a commit, in a worktree of its own
    #[arg(long, value_name = "COMMAND")]
    pub build: Option<String>,
    /// Shell command that starts a commit's server, in the same worktree
    ///
    /// Both commands start in the same subfolder of the repository as hotlap. The server finds its
    /// port in $PORT.
    #[arg(long, value_name = "COMMAND")]
    pub run: String,
    /// The figure that changed
    #[arg(long, value_enum, default_value = "cost")]
    pub measure: BisectMeasure,
    /// Stop once a commit has the change with this probability
    #[arg(long, value_name = "SHARE", default_value = "95%", value_parser = quantity::share)]
    pub probability: f64,
    /// Measuring time of each race (default: as for `hotlap run`)
    #[arg(short, long, value_name = "TIME", value_parser = quantity::span)]
    pub duration: Option<Duration>,
    /// Stop after at most this many races
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub races: u32,
    /// Options of `hotlap run` for each race: '--path /users/1 -c 128'
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub options: Option<String>,
    /// At the end, explain where the difference in CPU time goes, as `hotlap explain` does
    #[arg(long)]
    pub explain: bool,
    /// Global options, which races get too.
    #[arg(skip)]
    pub passed_on: Vec<String>,
    /// Consider only commits that change these files or folders
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,
}

/// The figure by which commits are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BisectMeasure {
    /// CPU time per request
    Cost,
    /// Requests per second
    Rps,
    /// The 99th percentile of latency
    P99,
}

const EXAMPLES: &str = "\
Examples:
  hotlap bisect --good v1.4 --build 'cargo build --release' \\
      --run './target/release/app --port $PORT'
  hotlap bisect --good v1.4 --bad v1.5 --run 'node app.js' --measure rps src/
  hotlap bisect --good v1.4 --build 'npm ci' --run 'node app.js' \\
      --options '--path /users/1 -c 128'

Races:
  The first races measure only the good and the bad commit. Later races also
  measure up to two others. If you interrupt a bisection, continue it with
  the same command.";
