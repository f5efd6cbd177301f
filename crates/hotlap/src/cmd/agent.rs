//! `hotlap agent`: the other end of `--generator-on` and `--server-on`.

use std::io::IsTerminal;

use hotlap_agent::generator::Generator;
use hotlap_agent::{Clock, Ending, Handler, Role, handler, serve};

use crate::console;
use crate::exit::{Exit, usage};

/// Serves one controller, over standard input and output.
///
/// # Errors
/// If it is started by hand, or has no standard input and output.
pub fn run() -> anyhow::Result<Exit> {
    if std::io::stdin().is_terminal() {
        return usage(
            "hotlap agent is started by another hotlap, which speaks to it over standard input: \
             use --generator-on COMMAND",
        );
    }
    let (input, output) = console::channel()?;
    let ending = serve(input, output, Clock::default(), roles, || std::process::exit(0));
    Ok(match ending {
        Ending::Closed | Ending::Silent => Exit::Ok,
        Ending::Mismatch => Exit::Error,
    })
}

/// What carries out the orders of a role.
fn roles(role: Role) -> Result<Handler, String> {
    match role {
        Role::Generator => Ok(handler(Generator::new(Clock::default()))),
        Role::Server => Err("this hotlap cannot run servers for another one".to_owned()),
    }
}
