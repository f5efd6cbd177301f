//! `hotlap explain`: a run whose question is where a difference in CPU time per request goes.

use crate::cli::ExplainArgs;
use crate::console::Console;
use crate::exit::Exit;

/// Runs the command.
pub fn run(args: ExplainArgs, console: &Console) -> anyhow::Result<Exit> {
    super::run::run(args.into_run(), console)
}
