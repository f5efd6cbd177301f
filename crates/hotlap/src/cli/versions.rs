//! The arguments of `hotlap bisect` and `hotlap timeline`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};

use crate::quantity;

/// How versions are built and raced.
#[derive(Debug, Args)]
pub struct RaceArgs {
    /// Shell command that builds a commit, in a separate worktree
    #[arg(long, value_name = "COMMAND")]
    pub build: Option<String>,
    /// Shell command that starts a version's server, for a commit in the commit's worktree
    ///
    /// Both commands start in the subfolder of the repository in which hotlap was started. The
    /// server finds its port in $PORT.
    #[arg(long, value_name = "COMMAND")]
    pub run: String,
    /// The figure that is compared
    #[arg(long, value_enum, default_value = "cost")]
    pub measure: RacedMeasure,
    /// Measuring time of each race (default: as for `hotlap run`)
    #[arg(short, long, value_name = "TIME", value_parser = quantity::span)]
    pub duration: Option<Duration>,
    /// Options of `hotlap run` for each race: '--path /users/1 -c 128'
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub options: Option<String>,
    /// The global options that are handed on to races.
    #[arg(skip)]
    pub passed_on: Vec<String>,
}

/// `hotlap bisect`
#[derive(Debug, Args)]
#[command(after_long_help = BISECT)]
pub struct BisectArgs {
    /// A commit or tag from before the change
    #[arg(long, value_name = "COMMIT")]
    pub good: String,
    /// A commit or tag with the change
    #[arg(long, value_name = "COMMIT", default_value = "HEAD")]
    pub bad: String,
    /// How commits are built and raced.
    #[command(flatten)]
    pub race: RaceArgs,
    /// Stop once a commit has the change with this probability
    #[arg(long, value_name = "SHARE", default_value = "95%", value_parser = quantity::share)]
    pub probability: f64,
    /// Stop after at most this many races (at least 2: one finds a commit, another tests it)
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = value_parser!(u32).range(2..))]
    pub races: u32,
    /// At the end, explain where the difference in CPU time comes from, as `hotlap explain` does
    #[arg(long)]
    pub explain: bool,
    /// Consider only commits that change these files or folders
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,
}

/// `hotlap timeline`
#[derive(Debug, Args)]
#[command(after_long_help = TIMELINE)]
pub struct TimelineArgs {
    /// The tags of a range of commits, such as v1.0..HEAD
    #[arg(value_name = "RANGE", required_unless_present = "versions")]
    pub range: Option<String>,
    /// Versions, separated by commas, which replace {version} in --run
    #[arg(long, value_name = "LIST", value_delimiter = ',',
        conflicts_with_all = ["range", "build"])]
    pub versions: Vec<String>,
    /// How versions are built and raced.
    #[command(flatten)]
    pub race: RaceArgs,
    /// Measure all versions again, instead of only those that are new
    #[arg(long)]
    pub again: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A page with a chart of all versions
    #[arg(long, value_name = "FILE")]
    pub export_html: Option<PathBuf>,
}

/// The figure by which versions are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RacedMeasure {
    /// CPU time per request
    Cost,
    /// Requests per second
    Rps,
    /// The 99th percentile of latency
    P99,
}

impl RacedMeasure {
    /// The name in reports.
    pub fn key(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Rps => "requests_per_s",
            Self::P99 => "p99",
        }
    }

    /// The name in sentences.
    pub fn words(self) -> &'static str {
        match self {
            Self::Cost => "CPU time per request",
            Self::Rps => "throughput",
            Self::P99 => "p99",
        }
    }
}

const BISECT: &str = "\
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

const TIMELINE: &str = "\
Examples:
  hotlap timeline v1.0..HEAD --build 'cargo build --release' \\
      --run './target/release/app --port $PORT'
  hotlap timeline --versions 16,18,20,22 --run 'npx node@{version} app.js'

Results are kept. A later timeline with one more version measures that version
together with the oldest one and the newest one that were measured before.";
