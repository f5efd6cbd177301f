//! hotlap: hyperfine for HTTP servers. Parse, convert, run, exit code.

use std::process::ExitCode;

use hotlap::console::Console;
use hotlap::settings::Settings;
use hotlap::{cli, cmd, interrupt, redact};

fn main() -> ExitCode {
    let mut typed = cli::parse();
    let settled = Settings::fill(&mut typed);
    redact::names(&typed.redact);
    let console = Console::new(typed.color.unwrap_or_default(), typed.quiet);
    let settled = settled.and_then(|()| Ok(interrupt::outlive_limits()?));
    match settled.and_then(|()| cmd::run(typed.command, &console)) {
        Ok(exit) => exit.into(),
        Err(error) => console.log_tail(&error).into(),
    }
}
