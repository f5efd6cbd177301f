//! hotlap: hyperfine for HTTP servers. Parse, convert, run, exit code.

use std::process::ExitCode;

use hotlap::console::Console;
use hotlap::{cli, cmd};

fn main() -> ExitCode {
    let typed = cli::parse();
    let console = Console::new(typed.color, typed.quiet);
    match cmd::run(typed.command, &console) {
        Ok(exit) => exit.into(),
        Err(error) => console.last_words(&error).into(),
    }
}
