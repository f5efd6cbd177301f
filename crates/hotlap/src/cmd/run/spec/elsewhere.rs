//! Servers and generators on other hosts.

use std::net::IpAddr;

use hotlap_agent::AgentCommand;
use hotlap_bench::participant::Load;
use hotlap_bench::stress::Scenario;
use hotlap_servers::machine::{self, CpuAllocation};

use crate::cli::Placement;
use crate::exit::usage;

/// Another host, on which servers run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// The command that starts the agent there.
    pub command: AgentCommand,
    /// Its address, if it is given.
    pub address: Option<IpAddr>,
}

impl Elsewhere {
    /// The host of the servers, if it is another one.
    pub fn of(placement: &Placement) -> Option<Self> {
        let command = placement.server_on.clone()?;
        Some(Self { command, address: placement.server_address })
    }
}

/// Checks that the load can come from the generators that the flags name.
pub fn check_generators(
    placement: &Placement,
    loads: &[Load],
    scenarios: &[Scenario],
) -> anyhow::Result<()> {
    let count = placement.generator_on.len();
    if placement.server_address.is_some() && placement.server_on.is_none() && count == 0 {
        return usage("--server-address is for --server-on and --generator-on: add one of them");
    }
    if count > 0 && !scenarios.is_empty() {
        return usage("a stress generates its load on this machine: leave out --generator-on");
    }
    match loads.iter().find(|load| load.connections < count) {
        Some(load) => usage(format!(
            "{} connections cannot be divided among {count} generators: use at least {count} (-c)",
            load.connections
        )),
        None => Ok(()),
    }
}

/// All cores of this machine for the generator: servers run on another one, whose cores are not
/// known yet.
pub fn for_generator() -> CpuAllocation {
    let all = machine::alone(None);
    CpuAllocation { server: Vec::new(), generator: all.server, shared: false, notes: all.notes }
}
