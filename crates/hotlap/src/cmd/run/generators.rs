//! The generators of the load, if they are agents (`--generator-on`).

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Context;
use hotlap_agent::server::RemoteHost;
use hotlap_agent::{GeneratorHost, Generators, Placement};
use hotlap_bench::load_host;
use hotlap_servers::machine::{self, CpuAllocation, Network};

use super::spec::RunSpec;
use crate::console::Console;
use crate::model::GeneratorMachine;
use crate::text::number::plural;

/// Generators that have been started.
#[derive(Debug)]
pub struct Started {
    /// What loads the servers.
    pub host: Arc<load_host::Generators>,
    /// Their hosts, in the order in which they were named.
    pub hosts: Vec<GeneratorHost>,
    /// Where servers listen, if they run on this machine, and the address at which generators reach
    /// them.
    pub network: Option<(Network, IpAddr)>,
}

/// Starts the agents, if there are any, and gives the spec the cores that they leave to servers.
pub fn open(
    spec: &mut RunSpec,
    servers: Option<&RemoteHost>,
    console: &Console,
) -> anyhow::Result<Option<Started>> {
    if spec.generators.is_empty() {
        return Ok(None);
    }
    let mut group = Generators::open(&spec.generators, None)?;
    let hosts = group.describe()?;
    let starts_here = servers.is_none() && spec.starts_servers();
    let network = match starts_here {
        true => Some(group.find_network(spec.server_address).map_err(anyhow::Error::msg)?),
        false => None,
    };
    place(spec, &mut group, &hosts, servers);
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let at = network.as_ref().map_or_else(String::new, |(_, ip)| format!("; servers are at {ip}"));
    let count = plural(names.len(), "generator");
    console.note(&format!("The load comes from {count}: {}{at}.", names.join(", ")));
    let host = load_host::Generators::new(Arc::new(group)).context("comparing clocks")?;
    Ok(Some(Started { host: Arc::new(host), hosts, network }))
}

/// Divides the cores of each host among its generators, and leaves all cores of this machine to
/// servers if no generator is on it.
fn place(
    spec: &mut RunSpec,
    group: &mut Generators,
    hosts: &[GeneratorHost],
    servers: Option<&RemoteHost>,
) {
    if spec.cores.generator.is_empty() {
        // Nothing is pinned.
        return;
    }
    let is_here = |host: &GeneratorHost| host.description.is_this_machine();
    if !hosts.iter().any(is_here) {
        let alone = match servers {
            Some(_) => CpuAllocation { generator: Vec::new(), ..spec.cores.clone() },
            None => machine::alone(spec.server_cpus),
        };
        spec.cores = alone;
    }
    let starts = spec.starts_servers();
    let boot = servers.map(|host| host.description().boot.clone()).filter(|boot| !boot.is_empty());
    let placements: Vec<Placement> = (0..hosts.len())
        .map(|index| {
            let host = &hosts[index].description;
            let same = |other: &GeneratorHost| {
                !host.boot.is_empty() && other.description.boot == host.boot
            };
            let before = hosts[..index].iter().filter(|other| same(other)).count();
            let all = hosts.iter().filter(|other| same(other)).count().max(1);
            match is_here(&hosts[index]) {
                true if !starts => Placement::default(),
                true => part(&spec.cores.generator, (before, all), !spec.cores.shared),
                // Where servers run, no core is the generator's alone.
                false if boot.as_ref() == Some(&host.boot) => Placement::default(),
                false => part(&host.cores, (before, all), true),
            }
        })
        .collect();
    let beside = hosts.iter().filter(|host| !is_here(host));
    let beside = beside.filter(|host| boot.as_ref() == Some(&host.description.boot));
    spec.cores.notes.extend(beside.map(|host| {
        format!("{} generates load on the servers' host: both use its cores", host.command)
    }));
    let cores = placements.iter().map(|own| own.cpus.len()).min().unwrap_or(0);
    spec.loads.iter_mut().for_each(|load| load.use_cores(cores));
    group.place(placements);
}

/// The cores of one of several generators on a host, if it has enough for all; else all of them.
fn part(cores: &[usize], (index, count): (usize, usize), is_alone: bool) -> Placement {
    if cores.len() < count {
        return Placement { cpus: cores.to_vec(), is_alone: false };
    }
    let each = cores.len() / count;
    Placement { cpus: cores[index * each..(index + 1) * each].to_vec(), is_alone }
}

/// The facts of the generators' hosts.
pub fn facts(started: &Started) -> Vec<GeneratorMachine> {
    let fact = |host: &GeneratorHost| GeneratorMachine {
        command: host.command.clone(),
        name: host.name.clone(),
        machine: host.description.machine.clone(),
    };
    started.hosts.iter().map(fact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_of_one_host_have_cores_of_their_own_if_there_are_enough() {
        let parts = |cores: &[usize], count| -> Vec<(Vec<usize>, bool)> {
            let part = |index| part(cores, (index, count), true);
            (0..count).map(part).map(|own| (own.cpus, own.is_alone)).collect()
        };
        assert_eq!(parts(&[1, 2, 3, 4], 2), [(vec![1, 2], true), (vec![3, 4], true)]);
        assert_eq!(parts(&[1, 2, 3], 2), [(vec![1], true), (vec![2], true)]);
        assert_eq!(parts(&[1], 2), [(vec![1], false), (vec![1], false)]);
        assert_eq!(part(&[1], (0, 1), false), Placement { cpus: vec![1], is_alone: false });
    }
}
