//! hotlap: hyperfine for HTTP servers. Parses the command line, runs the command, and exits.

use std::process::ExitCode;
use std::{env, panic};

use hotlap::cli::When;
use hotlap::config::Config;
use hotlap::console::Console;
use hotlap::exit::{Exit, GIT_BISECT};
use hotlap::{cli, cmd, interrupt, redact};

fn main() -> ExitCode {
    // A panic counts as an error. Its message has already been printed.
    let exit = panic::catch_unwind(run).unwrap_or(Exit::Error);
    // An error in the command line must not make a commit bad either, so the option is found
    // without parsing the command line.
    match env::args_os().any(|argument| argument == GIT_BISECT) {
        true => exit.for_git_bisect().into(),
        false => exit.into(),
    }
}

fn run() -> Exit {
    let mut typed = match cli::parse() {
        Ok(typed) => typed,
        Err(Ok(exit)) => return exit,
        Err(Err(error)) => return Console::new(When::Auto, false).log_tail(&error.into()),
    };
    let configured = Config::fill(&mut typed);
    typed.pass_on();
    redact::names(&typed.redact);
    redact::surroundings();
    let console = Console::new(typed.color.unwrap_or_default(), typed.quiet);
    let configured = configured.and_then(|()| Ok(interrupt::outlive_limits()?));
    match configured.and_then(|()| cmd::run(typed.command, &console)) {
        Ok(exit) => exit,
        Err(error) => console.log_tail(&error),
    }
}
