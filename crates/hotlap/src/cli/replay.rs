//! What can be typed about the replay of an access log.

use clap::{Args, ValueEnum};

/// How the requests of an access log are sent.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Request")]
pub struct ReplayArgs {
    /// How the requests of --access-log are sent
    #[arg(long, value_name = "HOW")]
    pub replay: Option<ReplayMode>,
    /// Also send POST, PUT, DELETE, ... of --access-log, without bodies, which logs do not have
    #[arg(long)]
    pub unsafe_methods: bool,
}

/// In which order, and when, the requests of an access log are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReplayMode {
    /// In the order of the log, then again from the first (the default).
    Order,
    /// Each as often as in the log, in a random order that follows from --seed.
    Weights,
    /// Each at its time in the log, in an open loop (`hotlap load` only).
    Times,
}
