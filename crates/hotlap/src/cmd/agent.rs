//! `hotlap agent`: the other end of `--generator-on` and `--server-on`.

use std::io::IsTerminal;

use hotlap_agent::generator::Generator;
use hotlap_agent::server::{ServerService, ServerSetting};
use hotlap_agent::{Clock, Ending, Handler, Role, handler, serve};
use hotlap_servers::process::Supervisor;

use crate::assets;
use crate::cmd::run::logs::Logs;
use crate::console;
use crate::exit::{Exit, usage};
use crate::paths;

/// Serves one controller, over standard input and output.
pub fn run() -> anyhow::Result<Exit> {
    if std::io::stdin().is_terminal() {
        return usage(
            "hotlap agent is started by another hotlap, which speaks to it over standard input: \
             use --server-on or --generator-on COMMAND",
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
        Role::Server => servers().map_err(|e| format!("{e:#}")),
    }
}

/// Runs servers on this host.
fn servers() -> anyhow::Result<Handler> {
    let logs = Logs::new()?;
    let setting = ServerSetting {
        supervisor: Supervisor::this_program("__supervisor")?,
        logs: logs.folder().to_owned(),
        cache: paths::cache()?,
        catalogue: assets::servers()?,
        program: std::env::current_exe()?,
    };
    // Dropped in this order: the folder is removed when the servers have ended.
    let mut kept = (handler(ServerService::new(setting, Clock::default())), logs);
    Ok(Box::new(move |order| {
        let kept = &mut kept;
        (kept.0)(order)
    }))
}
