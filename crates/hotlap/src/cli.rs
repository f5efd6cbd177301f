//! The command line: its types, its help texts and its parser. No other module uses clap. `cmd`
//! turns these types into the plans of its commands.

/// The long help of `--requests-file`.
macro_rules! requests_help {
    ($to:literal, $target:literal) => {
        concat!(
            "Several requests",
            $to,
            ", with parts that vary from request to request: a TOML file, or one request per line: `[WEIGHT] [METHOD] ",
            $target,
            " [BODY]`.\n\n\
             A TOML file:\n  \
               [fields]\n  \
               id = { integer = [1, 10000] }\n  \
               key = \"uuid\"\n\n  \
               [[request]]\n  \
               path = \"/users/${id}\"\n  \
               weight = 9\n  \
               expect_body = '{\"id\":${id}}'\n\n  \
               [[request]]\n  \
               path = \"/orders\"\n  \
               method = \"POST\"\n  \
               headers = { Content-Type = \"application/json\" }\n  \
               body = '{\"user\":${id},\"key\":\"${key}\"}'\n  \
               expect_status = 201\n  \
               expect_body = '{\"key\":\"${key}\"}'\n\n\
             A field has one value per request, the same wherever the field occurs. `expect_body` \
             is compared byte by byte. `hotlap run --dry-run` checks the file.\n\n\
             Other fields: { counter = 1 }, { choice = [\"a\", \"b\"] }, { lines = \"FILE\" }, \
             { random_lines = \"FILE\" }, { text = 16 }. Other keys of a request: name, body_file."
        )
    };
}

mod load;
mod run;
mod shared;
mod versions;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use serde::Deserialize;

use crate::exit::Exit;
use crate::quantity::{self, RunNumbers};

pub use load::{Form, LoadArgs, LoadExportArgs, LoadRequestArgs};
pub use run::{
    CapacityArgs, ExplainArgs, MeasureArgs, Placement, RequestArgs, RunArgs, Schedule, ShapeArgs,
    StartArgs, StartLimit,
};
pub use shared::{ExportArgs, ReplayArgs, ReplayMode, StoreArgs, TlsArgs};
pub use versions::{BisectArgs, RaceArgs, RacedMeasure, TimelineArgs};

/// hyperfine for HTTP servers: builds and starts the servers you name, checks their responses,
/// interleaves their measurements, and says which is faster, by how much, and how certain that is.
#[derive(Debug, Parser)]
#[command(
    name = "hotlap",
    version,
    max_term_width = 80,
    styles = STYLES,
    help_expected = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = TOP
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// When to use colours (default: auto).
    #[arg(long, value_name = "WHEN", global = true, hide_short_help = true)]
    pub color: Option<When>,
    /// Suppress progress and hints. Warnings about validity stay.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Redact the value of this header too: it is sent, but not stored, exported or shown. Repeat
    /// the option for more headers.
    ///
    /// Headers with credentials, such as Authorization, Cookie and X-Api-Key, are always redacted.
    /// So are credentials in URLs, and values of names that end in password, secret, token,
    /// apikey, signature and the like, in the environment, queries, bodies, commands and logs.
    /// Other secrets are not redacted. To repeat or resume a run, give the values again.
    #[arg(long, value_name = "NAME", global = true, hide_short_help = true)]
    pub redact: Vec<String>,
    /// Ignore the configuration file.
    #[arg(long, global = true, hide_short_help = true)]
    pub no_config: bool,
}

impl Cli {
    /// Hands `--redact`, `--quiet` and `--no-config` on to the processes of hotlap that a command
    /// starts.
    pub fn pass_on(&mut self) {
        let passed_on = match &mut self.command {
            Command::Bisect(args) => &mut args.race.passed_on,
            Command::Timeline(args) => &mut args.race.passed_on,
            _ => return,
        };
        passed_on.extend(self.redact.iter().map(|name| format!("--redact={name}")));
        passed_on.extend(self.quiet.then(|| "--quiet".to_owned()));
        passed_on.extend(self.no_config.then(|| "--no-config".to_owned()));
    }
}

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Yellow.on_default().bold())
    .usage(AnsiColor::Yellow.on_default().bold())
    .literal(AnsiColor::Green.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

const TOP: &str = r#"Examples:
  hotlap run                                     the quick suite, two minutes
  hotlap run go/net-http 'node app.js'           a built-in server and a command
  hotlap load -t2 -c100 -d10s http://localhost:8080/
  hotlap report --export-html page.html          the last run, as a page

Configuration: ~/.config/hotlap/config.toml, or the file in HOTLAP_CONFIG, sets
your own defaults. Flags and suites override it.
    color = "never"         auto, always or never
    store = "runs.db"       where runs are stored, relative to the file's folder
    duration = "30s"        time for a run
    precision = "1%"        stop earlier once all intervals are within ± 1%
    server-cpus = 2         cores for the server
    connections = 64        connections of a load
    redact = ["X-Token"]    more headers whose values are secret

Exit codes:
    0  all went well
    1  an error in hotlap's environment (a file, the store, the system)
    2  an error in the command line, a suite or a manifest
    3  a server failed, sent wrong responses, or could not be built
    4  no valid measurement, or too little data to decide --fail-if
    5  a regression beyond --fail-if and beyond the noise
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP); finished laps are stored"#;

/// When to use colours.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure and compare servers: the main command
    Run(Box<RunArgs>),
    /// Load one server with the load generator alone. wrk's flags work
    Load(Box<LoadArgs>),
    /// Find the highest rate at which servers meet a latency goal
    Capacity(Box<CapacityArgs>),
    /// Explain where the difference in CPU time between two servers comes from
    Explain(Box<ExplainArgs>),
    /// Find the commit that changed a figure
    Bisect(Box<BisectArgs>),
    /// Measure many versions of a server on one scale, and name the steps between them
    Timeline(Box<TimelineArgs>),
    /// List the built-in servers, and what each one needs to run here
    List(ListArgs),
    /// Print the commands that install missing toolchains (--yes runs them)
    Setup(SetupArgs),
    /// Build and start servers, and verify their responses
    ///
    /// The line of a server that passes shows optional checks of HTTP/1.1 (17/24: 17 of 24
    /// passed), the time to the first response, the memory and the version. The optional checks
    /// that failed are below the line.
    Check(CheckArgs),
    /// Show a stored run
    Report(ReportArgs),
    /// Compare stored runs
    Compare(CompareArgs),
    /// List stored runs
    History(HistoryArgs),
    /// Measure test servers of known latency and cost, to check hotlap itself
    Selftest(SelftestArgs),
    /// Merge the shards of a suite that several machines measured
    Merge(MergeArgs),
    /// Print a commented suite file for some servers
    Init(InitArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Run the agent that --generator-on and --server-on start on another host
    ///
    /// The agent takes orders only from its standard input, and answers on its standard output. It
    /// opens a port only while it looks for the address that generators reach. It ends, with
    /// everything that it started, when its input closes or when nothing has arrived for 15 s.
    Agent(AgentArgs),
    /// The process that ends a server's process tree when hotlap ends.
    #[command(name = "__supervisor", hide = true, disable_help_flag = true)]
    Supervisor(Inner),
    /// The ceiling server.
    #[command(name = "__ceiling", hide = true, disable_help_flag = true)]
    Ceiling(Inner),
    /// A server of known behaviour.
    #[command(name = "__known", hide = true, disable_help_flag = true)]
    Known(Inner),
    /// A server with one planted difference.
    #[command(name = "__planted", hide = true, disable_help_flag = true)]
    Planted(Inner),
    /// A server that executes a statement for each response.
    #[command(name = "__lookup", hide = true, disable_help_flag = true)]
    Lookup(Inner),
    /// A server that does the least work that its contracts ask for.
    #[command(name = "__floor", hide = true, disable_help_flag = true)]
    Floor(Inner),
    /// A server that misbehaves at random.
    #[command(name = "__unruly", hide = true, disable_help_flag = true)]
    Unruly(Inner),
}

impl Command {
    /// Whether hotlap itself starts this command, so the user's defaults do not apply.
    pub fn is_inner(&self) -> bool {
        matches!(
            self,
            Self::Agent(_)
                | Self::Supervisor(_)
                | Self::Ceiling(_)
                | Self::Known(_)
                | Self::Planted(_)
                | Self::Lookup(_)
                | Self::Floor(_)
                | Self::Unruly(_)
        )
    }
}

/// `hotlap agent`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap load --generator-on 'ssh host2' http://10.0.0.1:8080/
                           starts `ssh host2 hotlap agent`")]
pub struct AgentArgs {}

/// The arguments of a hidden command.
#[derive(Debug, Args)]
pub struct Inner {
    /// The arguments, which the command itself parses.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub argv: Vec<OsString>,
}

/// `hotlap list`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap list              every server, and what it still needs
  hotlap list nim          the servers of one language
  hotlap list --ready -q   only the ids of servers that can run now")]
pub struct ListArgs {
    /// Only servers whose id contains this
    pub pattern: Option<String>,
    /// Only servers that can run now
    #[arg(long)]
    pub ready: bool,
    /// Also servers that cannot run here (the default)
    #[arg(long, conflicts_with = "ready")]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `hotlap setup`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap setup             the commands that install what is missing
  hotlap setup nim --yes   run those for one language")]
pub struct SetupArgs {
    /// Only for servers whose id contains this
    pub pattern: Option<String>,
    /// Run the commands
    #[arg(short, long)]
    pub yes: bool,
}

/// `hotlap check`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap check                    the whole catalogue
  hotlap check go/net-http        one server
  hotlap check 'node app.js'      a command of your own")]
pub struct CheckArgs {
    /// Built-in servers (ids that contain this), commands or URLs
    #[arg(value_name = "PATTERN|COMMAND|URL")]
    pub servers: Vec<String>,
    /// Path to request from commands (default: /)
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Expected status of commands and URLs (default: 200 to 299)
    #[arg(long, value_name = "N")]
    pub expect_status: Option<u16>,
    /// The contract to check, or several, separated by commas (default: all that a server has)
    #[arg(long, value_name = "NAME")]
    pub contract: Option<String>,
    /// Only build the servers
    #[arg(long)]
    pub build_only: bool,
    /// Fail if a server is skipped because its toolchain is missing
    #[arg(long)]
    pub strict: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Start commands through `sh -c`
    #[arg(long)]
    pub shell: bool,
    /// How long a start may take.
    #[command(flatten)]
    pub start: StartLimit,
}

/// `hotlap report`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap report                              the last run
  hotlap report 12 --export-html page.html   run 12, as a page
  hotlap report --export-json - | jq .       every lap of the last run")]
pub struct ReportArgs {
    /// Number of the run (default: the last)
    pub run: Option<u64>,
    /// Also print everything known about each server
    #[arg(long)]
    pub details: bool,
    /// Where the run is stored.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Where the report is written to.
    #[command(flatten)]
    pub exports: ExportArgs,
}

/// `hotlap compare`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap compare 11-13 14-16                  from three runs to three others
  hotlap compare 11 12                        from one run to one: no verdict
  hotlap compare 11                           from run 11 to the last run
  hotlap compare 14-16 --baseline main        from the newest runs kept with
                                              run --save-baseline main
  hotlap compare 4-6 --baseline main.db       from another store's last runs
  hotlap compare 11-13 14-16 --fail-if 'cost +3%'
                                              in CI
  hotlap compare 21-23 24-26 --fail-if 'capacity -5%'
                                              runs of hotlap capacity

Each run is one sample of the machine. A verdict needs three runs on each side,
best made in turns. `hotlap run OLD NEW` decides in one run.")]
pub struct CompareArgs {
    /// The runs to compare with, and the runs to compare (default: the last): `11`, `11,13`,
    /// `11-13`
    #[arg(value_name = "RUNS", num_args = 0..=2)]
    pub runs: Vec<RunNumbers>,
    /// The runs to compare with: a baseline (its newest three runs), run numbers, or a store file
    /// (its last three runs)
    #[arg(long, value_name = "NAME|RUNS|FILE")]
    pub baseline: Option<String>,
    /// Exit with code 5 if a server is worse by more than this and the noise, with code 4 if that
    /// is undecided: "cost +3%", "rps -5%", "p50 +10%", "p99 +10%", "memory +10%", or "capacity
    /// -5%" for searches
    #[arg(long, value_name = "RULE")]
    pub fail_if: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the runs are stored.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Every figure (`-`: standard output)
    #[arg(long, value_name = "FILE", help_heading = "Store and exports")]
    pub export_json: Option<PathBuf>,
    /// The table and the sentences
    #[arg(long, value_name = "FILE", help_heading = "Store and exports")]
    pub export_markdown: Option<PathBuf>,
}

/// `hotlap history`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap history                  every stored run
  hotlap history go/net-http      one server over all runs")]
pub struct HistoryArgs {
    /// One server: its figures over all comparable runs, and where they changed
    pub server: Option<String>,
    /// Show at most this many runs, the latest
    #[arg(long, value_name = "N", default_value = "40", value_parser = quantity::count)]
    pub last: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the runs are stored.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `hotlap merge`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap merge pool                              what the shards found so far
  hotlap merge pool --export-html page.html      the same as a page
  hotlap merge shard-0.db shard-1.db shard-2.db  single files
  hotlap merge pool --kind 2                     the second kind of machine")]
pub struct MergeArgs {
    /// The results of `hotlap run --shard`, or a folder that contains the results (*.db)
    #[arg(value_name = "FILE|FOLDER", required = true)]
    pub stores: Vec<PathBuf>,
    /// Merge only shards from this kind of machine. If there are several kinds, the error without
    /// this option numbers them
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub kind: Option<usize>,
    /// Also print everything known about each server
    #[arg(long)]
    pub details: bool,
    /// Where the report is written to.
    #[command(flatten)]
    pub exports: ExportArgs,
}

/// `hotlap selftest`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap selftest             about three minutes; exit code 4 if a figure is off
  hotlap selftest --power     about 50 minutes; later reports cite the result")]
pub struct SelftestArgs {
    /// Time to spend (default: 3m, at least 166s). With --power, the --duration of the runs that
    /// the certificate describes (default: 1m)
    #[arg(long, value_name = "TIME", value_parser = quantity::span)]
    pub duration: Option<Duration>,
    /// Measure how small a difference runs on this machine can find
    ///
    /// Each trial compares equal servers, and servers that need 1, 3 and 10% more CPU time. The
    /// result is the machine's certificate. It says how often equal servers are called different,
    /// how often each difference is found, and the smallest difference that 9 of 10 runs find.
    /// Later reports on this machine cite the certificate. If you interrupt the trials, the same
    /// command continues them.
    #[arg(long)]
    pub power: bool,
    /// Number of trials
    #[arg(
        long, value_name = "N", default_value_t = 20, requires = "power",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub trials: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `hotlap init`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap init go/net-http 'node app.js' > mine.toml
  hotlap run --suite ./mine.toml")]
pub struct InitArgs {
    /// Built-in servers, commands or URLs
    #[arg(value_name = "SERVER|COMMAND|URL", required = true)]
    pub servers: Vec<String>,
}

/// `hotlap completions`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap completions bash > ~/.local/share/bash-completion/completions/hotlap")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// The options that the short help of `run` shows. `--help` shows all options.
const COMMON: [&str; 12] = [
    "servers",
    "suite",
    "names",
    "reference",
    "dry_run",
    "details",
    "fail_if",
    "connections",
    "rate",
    "duration",
    "export_html",
    "quiet",
];

/// The whole command line.
fn command() -> clap::Command {
    let is_common = |argument: &clap::Arg| COMMON.contains(&argument.get_id().as_str());
    Cli::command().mut_subcommand("run", |run| {
        run.mut_args(|argument| {
            let is_hidden = argument.is_hide_short_help_set() || !is_common(&argument);
            argument.hide_short_help(is_hidden)
        })
    })
}

/// Parses the command line.
///
/// # Errors
/// Help, the version or an error was printed instead. The error is the exit code, or why printing
/// failed.
pub fn parse() -> Result<Cli, io::Result<Exit>> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let typed = matches.and_then(|matches| {
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    });
    // Clap itself would end with exit code 0 if the disk is too full for the help.
    typed.map_err(|instead| match (instead.print(), instead.use_stderr()) {
        (_, true) => Ok(Exit::Usage),
        (printed, false) => printed.map(|()| Exit::Ok),
    })
}

/// Writes the completion script for a shell.
pub fn completions(shell: clap_complete::Shell, out: &mut dyn std::io::Write) {
    clap_complete::generate(shell, &mut command(), "hotlap", out);
}

/// A command line, for tests.
#[cfg(test)]
pub(crate) fn typed(line: &str) -> Cli {
    Cli::try_parse_from(line.split(' ')).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrks_command_line_is_understood() {
        let line = "hotlap load -t4 -c100 -d30s --timeout 2s --latency http://h/";
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let Command::Load(load) = cli.command else { panic!("not a load") };
        assert_eq!((load.threads, load.connections), (Some(4), 100));
        assert_eq!(load.duration, Some(Duration::from_secs(30)));
        assert!(load.latency);
    }

    #[test]
    fn short_flags_of_curl_and_oha_are_understood() {
        for line in ["-k -m PUT", "-k -X PUT", "--insecure --method PUT"] {
            let Command::Run(run) = typed(&format!("hotlap run {line} https://h/")).command else {
                panic!("not a run")
            };
            assert_eq!(
                (run.common.tls.insecure, run.common.request.ask.method.as_deref()),
                (true, Some("PUT"))
            );
            let Command::Load(load) = typed(&format!("hotlap load {line} https://h/")).command
            else {
                panic!("not a load")
            };
            assert_eq!(
                (load.tls.insecure, load.request.ask.method.as_deref()),
                (true, Some("PUT"))
            );
        }
    }

    #[test]
    fn every_command_has_examples_within_80_columns() {
        let mut cli = Cli::command();
        for command in cli.get_subcommands_mut().filter(|c| !c.is_hide_set()) {
            let help = command.clone().term_width(80).render_long_help().to_string();
            assert!(help.contains("Examples:"), "{} has no examples", command.get_name());
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
        }
    }
}
