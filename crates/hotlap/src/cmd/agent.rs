//! `hotlap agent`: serves another hotlap, which was started with `--generator-on` or `--server-on`.

use std::io::IsTerminal;

use hotlap_agent::generator::Generator;
use hotlap_agent::server::{ServerService, ServerSetting};
use hotlap_agent::{AgentRole, AgentService, Answer, Clock, Ending, serve};
use hotlap_servers::process::{Supervisor, own_program};
use serde_json::value::RawValue;

use crate::assets;
use crate::cmd::run::logs::Logs;
use crate::console;
use crate::exit::{Exit, usage};
use crate::paths;

/// Serves one controller over standard input and output.
pub fn run() -> anyhow::Result<Exit> {
    if std::io::stdin().is_terminal() {
        return usage(
            "hotlap agent is started by another hotlap, which speaks to it over standard input: \
             use --server-on or --generator-on COMMAND",
        );
    }
    let (input, output) = console::channel()?;
    let ending = serve(input, output, Clock::default(), roles, || std::process::exit(0));
    match ending {
        Ending::Closed | Ending::Silent => Ok(Exit::Ok),
        Ending::Mismatch => anyhow::bail!(
            "the program at the other end of standard input is not this version of hotlap: install \
             the same version on all hosts"
        ),
    }
}

/// Returns the service that carries out the orders for a role.
fn roles(role: AgentRole) -> Result<Box<dyn AgentService>, String> {
    match role {
        AgentRole::Generator => Ok(Box::new(Generator::new(Clock::default()))),
        AgentRole::Server => servers().map_err(|e| format!("{e:#}")),
    }
}

/// Creates the service that runs servers on this host.
fn servers() -> anyhow::Result<Box<dyn AgentService>> {
    let logs = Logs::new()?;
    let setting = ServerSetting {
        supervisor: Supervisor::this_program("__supervisor")?,
        logs: logs.folder().to_owned(),
        cache: paths::cache()?,
        catalogue: assets::servers()?,
        program: own_program()?,
    };
    let service = ServerService::new(setting, Clock::default());
    Ok(Box::new(ServersAndLogs { service, _logs: logs }))
}

/// The service and its logs, which are dropped in this order. The folder of the logs is removed
/// after the servers have ended.
struct ServersAndLogs {
    service: ServerService,
    _logs: Logs,
}

impl AgentService for ServersAndLogs {
    fn carry_out(&mut self, order: &RawValue) -> Answer {
        self.service.carry_out(order)
    }
}
