//! hotlap: hyperfine for HTTP servers. Parse, convert, run, exit code.

use std::process::ExitCode;

use hotlap::config::Config;
use hotlap::console::Console;
use hotlap::{cli, cmd, interrupt, redact};

fn main() -> ExitCode {
    let mut typed = cli::parse();
    let configured = Config::fill(&mut typed);
    redact::names(&typed.redact);
    let console = Console::new(typed.color.unwrap_or_default(), typed.quiet);
    let configured = configured.and_then(|()| Ok(interrupt::outlive_limits()?));
    match configured.and_then(|()| cmd::run(typed.command, &console)) {
        Ok(exit) => exit.into(),
        Err(error) => console.log_tail(&error).into(),
    }
}
