//! What can be typed: the only file that knows clap.
//!
//! Types and help, no behaviour. What it means is worked out in `cmd`, from these types to others,
//! so that nothing behind this door ever sees a flag.

mod load;
mod output;
mod run;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use serde::Deserialize;

use crate::quantity;

pub use load::{Form, LoadArgs, LoadExportArgs, LoadRequestArgs};
pub use output::{ExportArgs, StoreArgs};
pub use run::{RequestArgs, RunArgs, Schedule, Shape};

/// hyperfine for HTTP servers: name some servers, and it builds them, starts them, checks that they
/// answer correctly, experiments them lap against lap, and tells which is faster, by how much, and
/// how sure that is.
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
    /// Suppress progress and hints; warnings about validity stay.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Redact the values of this header too, as those of Authorization, Cookie and X-Api-Key are:
    /// they are sent, but neither stored, exported nor shown; repeat it for more.
    ///
    /// A run that is repeated or resumed needs the true values on its command line again.
    #[arg(long, value_name = "NAME", global = true, hide_short_help = true)]
    pub redact: Vec<String>,
    /// Leave the file with my defaults unread.
    #[arg(long, global = true, hide_short_help = true)]
    pub no_config: bool,
}

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Yellow.on_default().bold())
    .usage(AnsiColor::Yellow.on_default().bold())
    .literal(AnsiColor::Green.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

const TOP: &str = r#"Examples:
  hotlap run                                     the quick suite, two minutes
  hotlap run go/net-http 'node app.js'           a catalogue's server, a command
  hotlap load -t2 -c100 -d10s http://localhost:8080/
  hotlap report --export-html page.html          the last run, as a page

Defaults of your own (what is typed, and what a suite says, wins):
  ~/.config/hotlap/config.toml, or the file that HOTLAP_CONFIG names, may say
    color = "never"         colours are a matter of taste
    store = "runs.db"       where runs are kept; relative to the file's folder
    duration = "30s"        how long a run may take, unless a suite says
    precision = "1%"        how sure is sure enough to end before that
    server-cpus = 2         how many cores of this machine are the server's
    connections = 64        how your servers are usually loaded
    redact = ["X-Token"]    headers whose values are secrets, beside the usual ones

Exit codes:
    0  all went well
    1  hotlap itself could not go on (a file, the store, the system)
    2  the command line, a suite or a manifest makes no sense
    3  a server failed, answered wrongly, or could not take part
    4  measured, but not to be relied on, or too little to decide --fail-if
    5  a regression beyond --fail-if, outside of the noise
  130  ended by Ctrl-C, SIGTERM or SIGHUP; what was finished is kept"#;

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

/// One verb each.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure servers and compare them: the main job
    Run(Box<RunArgs>),
    /// Load one URL: the load generator alone; wrk's flags work
    Load(Box<LoadArgs>),
    /// Show the catalogue: what can run on this machine, what is missing
    List(ListArgs),
    /// Print, or with --yes run, what installs the missing
    Setup(SetupArgs),
    /// Build servers, start them, verify their answers, stop them
    Check(CheckArgs),
    /// Show a stored run again
    Report(ReportArgs),
    /// Compare two stored runs
    Compare(CompareArgs),
    /// List what is stored
    History(HistoryArgs),
    /// Measure the instrument against servers whose true figures are known
    Selftest(SelftestArgs),
    /// Write a commented suite file for the servers named
    Init(InitArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// The process that ends a server's whole tree when hotlap is gone.
    #[command(name = "__supervisor", hide = true, disable_help_flag = true)]
    Supervisor(Inner),
    /// The ceiling server.
    #[command(name = "__ceiling", hide = true, disable_help_flag = true)]
    Ceiling(Inner),
    /// A server of known behaviour.
    #[command(name = "__known", hide = true, disable_help_flag = true)]
    Known(Inner),
}

/// The arguments of a hidden command, untouched.
#[derive(Debug, Args)]
pub struct Inner {
    /// Passed on as they are.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub argv: Vec<OsString>,
}

/// `hotlap list`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap list              every server, and what is missing to run it
  hotlap list nim          those of one language
  hotlap list --ready -q   the ids of what can run now, one a line")]
pub struct ListArgs {
    /// Only ids that contain this
    pub pattern: Option<String>,
    /// Only what can run now
    #[arg(long)]
    pub ready: bool,
    /// Also what cannot run here (the default)
    #[arg(long, conflicts_with = "ready")]
    pub all: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `hotlap setup`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap setup             what is missing, and the commands that install it
  hotlap setup nim --yes   install it")]
pub struct SetupArgs {
    /// Only for ids that contain this
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
  hotlap check 'node app.js'      a command: does it answer as a server should?")]
pub struct CheckArgs {
    /// Ids that contain this, or commands, or URLs
    #[arg(value_name = "PATTERN|COMMAND|URL")]
    pub servers: Vec<String>,
    /// The contract to check (default: every one that the server names)
    #[arg(long, value_name = "NAME")]
    pub contract: Option<String>,
    /// Only build
    #[arg(long)]
    pub build_only: bool,
    /// Count a server that is skipped for a missing toolchain as failed
    #[arg(long)]
    pub strict: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Start commands through `sh -c`
    #[arg(long)]
    pub shell: bool,
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
    /// Print everything that is known of each server, too
    #[arg(long)]
    pub details: bool,
    /// Where it is kept.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Where it is written to.
    #[command(flatten)]
    pub exports: ExportArgs,
}

/// `hotlap compare`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap compare 11 12                        what changed from run 11 to run 12
  hotlap compare 11                           from run 11 to the last run
  hotlap compare --baseline main              from the newest run kept with
                                              run --save-baseline main
  hotlap compare --baseline main.db           from another store's last run
  hotlap compare 11 12 --fail-if 'cost +3%'   in CI")]
pub struct CompareArgs {
    /// Numbers of the run to compare with and of the run to compare (default: the last)
    #[arg(value_name = "RUN", num_args = 0..=2)]
    pub runs: Vec<u64>,
    /// The run to compare with: the name of a baseline, whose newest run is taken, a number, or a
    /// file with a store, whose last run is taken
    #[arg(long, value_name = "NAME|RUN|FILE")]
    pub baseline: Option<String>,
    /// Exit with code 5 where a server is worse by more than this, outside of the noise: "cost
    /// +3%", "rps -5%", "p50 +10%", "p99 +10%", "memory +10%"
    #[arg(long, value_name = "RULE")]
    pub fail_if: Vec<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Where they are kept.
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
    /// One server: its figures over the runs that can be held together, and where they changed
    pub server: Option<String>,
    /// At most so many runs, the latest
    #[arg(long, value_name = "N", default_value = "40", value_parser = quantity::count)]
    pub last: usize,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Where they are kept.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `hotlap selftest`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap selftest             about a minute; exit code 4 where the instrument is off")]
pub struct SelftestArgs {
    /// Time to spend, in all
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = quantity::span)]
    pub duration: Duration,
    /// As JSON
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
    /// Servers of the catalogue, commands or URLs
    #[arg(value_name = "SERVER|COMMAND|URL", required = true)]
    pub servers: Vec<String>,
}

/// `hotlap completions`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  hotlap completions bash > ~/.local/share/bash-completion/completions/hotlap")]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: clap_complete::Shell,
}

/// Reads the command line; ends the process where it makes no sense (exit code 2) or asks for help.
#[must_use]
pub fn parse() -> Cli {
    Cli::parse()
}

/// Writes the completion script for a shell.
pub fn completions(shell: clap_complete::Shell, out: &mut dyn std::io::Write) {
    clap_complete::generate(shell, &mut Cli::command(), "hotlap", out);
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
        assert_eq!(load.duration, Duration::from_secs(30));
        assert!(load.latency);
    }

    #[test]
    fn short_flags_of_curl_and_oha_are_understood() {
        for line in ["-k -m PUT", "-k -X PUT", "--insecure --method PUT"] {
            let Command::Run(run) = typed(&format!("hotlap run {line} https://h/")).command else {
                panic!("not a run")
            };
            assert_eq!((run.request.insecure, run.request.method.as_deref()), (true, Some("PUT")));
            let Command::Load(load) = typed(&format!("hotlap load {line} https://h/")).command
            else {
                panic!("not a load")
            };
            assert_eq!(
                (load.request.insecure, load.request.method.as_deref()),
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
