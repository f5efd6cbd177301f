//! Servers on another host.

use std::net::IpAddr;

use hotlap_agent::AgentCommand;
use hotlap_bench::participant::Origin;
use hotlap_bench::stress::Scenario;
use hotlap_servers::allocation::{self, CpuAllocation};

use super::server::{ServerSpec, Source};
use crate::cli::Placement;
use crate::exit::usage;

/// Another host, on which servers are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// The command that starts the agent there.
    pub command: AgentCommand,
    /// Its address, if it is given.
    pub address: Option<IpAddr>,
}

impl Elsewhere {
    /// The host on which servers are started, if it is another one.
    pub fn of(
        placement: &Placement,
        servers: &[ServerSpec],
        scenarios: &[Scenario],
    ) -> anyhow::Result<Option<Self>> {
        let Some(command) = placement.server_on.clone() else { return Ok(None) };
        if !scenarios.is_empty() {
            return usage("a stress starts servers on this machine: leave out --server-on");
        }
        let runs = |server: &&ServerSpec| match &server.source {
            Source::Custom(start, _) => matches!(**start, Origin::Running { .. }),
            Source::Catalogue(..) => false,
        };
        if let Some(server) = servers.iter().find(runs) {
            return usage(format!(
                "--server-on starts servers, but {} runs already: name the command that starts it, or \
                 leave out --server-on",
                server.name
            ));
        }
        Ok(Some(Self { command, address: placement.server_address }))
    }
}

/// All cores of this machine for the generator: servers run on another one, whose cores are not
/// known yet.
pub fn for_generator() -> CpuAllocation {
    let all = allocation::alone(None);
    CpuAllocation { server: Vec::new(), generator: all.server, shared: false, notes: all.notes }
}
