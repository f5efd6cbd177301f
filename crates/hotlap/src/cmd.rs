//! The commands. Each module converts the arguments of a command, calls a library, and prints the
//! result. `run` also carries out `capacity` and `explain`.

pub mod agent;
pub mod bisect;
pub mod check;
pub mod compare;
pub mod hidden;
pub mod history;
pub mod init;
pub mod list;
pub mod load;
pub mod merge;
pub mod report;
pub mod run;
pub mod selftest;
pub mod setup;
pub mod timeline;
pub mod tls;
pub mod versions;

use crate::cli::{self, AgentArgs, Command};
use crate::console::Console;
use crate::exit::{Exit, usage};

/// Executes a command.
pub fn run(command: Command, console: &Console) -> anyhow::Result<Exit> {
    if !command.is_inner() {
        run::logs::end_leftovers();
    }
    match command {
        Command::Run(args) => run::run(*args, console),
        Command::Capacity(args) => {
            let goals = args.goals().or_else(|why| usage(format!("--slo: {why}")))?;
            run::run(args.into_run(goals), console)
        }
        Command::Explain(args) => run::run(args.into_run(), console),
        Command::Bisect(args) => bisect::run(&args, console),
        Command::Timeline(args) => timeline::run(&args, console),
        Command::Load(args) => load::run(*args, console),
        Command::List(args) => list::run(&args, console),
        Command::Setup(args) => setup::run(&args, console),
        Command::Check(args) => check::run(&args, console),
        Command::Report(args) => report::run(&args, console),
        Command::Compare(args) => compare::run(&args, console),
        Command::History(args) => history::run(&args, console),
        Command::Selftest(args) => selftest::run(&args, console),
        Command::Merge(args) => merge::run(&args, console),
        Command::Init(args) => init::run(&args, console),
        Command::Completions(args) => {
            let mut script = Vec::new();
            cli::completions(args.shell, &mut script);
            console.data(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Ok)
        }
        Command::Agent(AgentArgs {}) => agent::run(),
        Command::Supervisor(_) => hidden::supervisor(),
        Command::Ceiling(_) => hidden::ceiling(),
        Command::Known(args) => hidden::known(&args.argv, console),
        Command::Planted(args) => hidden::planted(&args.argv),
        Command::Lookup(args) => hidden::lookup(&args.argv),
        Command::Floor(args) => hidden::floor(&args.argv),
        Command::Unruly(args) => hidden::unruly(&args.argv),
    }
}
