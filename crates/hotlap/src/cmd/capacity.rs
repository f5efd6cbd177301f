//! `hotlap capacity`: a run whose question is the highest rate at which each server keeps the
//! goals.

use crate::cli::CapacityArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};

/// Runs the command.
pub fn run(args: CapacityArgs, console: &Console) -> anyhow::Result<Exit> {
    let goals = args.goals().or_else(|why| usage(format!("--slo: {why}")))?;
    super::run::run(args.into_run(goals), console)
}
