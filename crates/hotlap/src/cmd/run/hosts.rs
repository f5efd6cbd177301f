//! The hosts of a run. The hosts determine the cores of servers and generators, the threads of the
//! load, and the shortest slice.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hotlap_agent::{GeneratorAgent, GeneratorCores, Generators, LoadHost, RemoteHost, Wanted};
use hotlap_bench::local::shortest_slice;
use hotlap_bench::participant::Load;
use hotlap_servers::database::{DatabaseSetting, Programs};
use hotlap_servers::machine::{self, CpuAllocation, Network};

use super::spec::{DatabaseSpec, RunSpec};
use crate::console::Console;
use crate::exit::usage;
use crate::interrupt::Interrupt;
use crate::model::{Controller, GeneratorMachine, Host};
use crate::text::number::{self, plural};

/// The hosts of a run.
#[derive(Debug)]
pub struct RunHosts {
    /// The host of the servers, if they run on another host.
    pub servers: Option<Arc<RemoteHost>>,
    /// The generators, if agents generate the load.
    pub generators: Option<StartedGenerators>,
    /// The cores of servers and generator, if hotlap starts the servers.
    pub cores: CpuAllocation,
    /// The number of cores that servers are told to use, unless their entry sets it. `None` means
    /// all cores that are assigned to servers.
    pub server_cpus: Option<usize>,
    /// The database to start for the servers.
    pub database: Option<DatabaseSetting>,
    /// The loads, with a thread for each core of the generator unless the user gave a number.
    pub loads: Vec<Load>,
}

/// Generators that have been started.
#[derive(Debug)]
pub struct StartedGenerators {
    /// The group of generators that loads the servers.
    pub host: Arc<Generators>,
    /// The hosts of the generators, in the order in which the user named them.
    pub hosts: Vec<GeneratorAgent>,
    /// Where servers on this machine listen, and the address at which generators reach them. `None`
    /// if hotlap starts no servers on this machine.
    pub network: Option<(Network, IpAddr)>,
}

impl RunHosts {
    /// Starts the agents that the plan names, and divides the cores of all hosts.
    pub fn open(spec: &RunSpec, interrupt: &Interrupt, console: &Console) -> anyhow::Result<Self> {
        let mut hosts = Self {
            servers: None,
            generators: None,
            cores: match &spec.server_host {
                _ if !spec.pins => unpinned(),
                Some(_) => {
                    // Servers run on another host, whose cores are not known yet.
                    let all = machine::alone(None);
                    CpuAllocation { generator: all.server, notes: all.notes, ..unpinned() }
                }
                None => machine::split_here(spec.server_cpus),
            },
            server_cpus: spec.server_cpus,
            database: None,
            loads: spec.loads.clone(),
        };
        let cores = hosts.cores.generator.len();
        hosts.loads.iter_mut().for_each(|load| load.use_cores(cores));
        hosts.open_servers(spec, interrupt, console)?;
        hosts.open_generators(spec, interrupt, console)?;
        hosts.place_database(spec)?;
        Ok(hosts)
    }

    /// Starts the agent on the servers' host, if servers run on another host.
    fn open_servers(
        &mut self,
        spec: &RunSpec,
        interrupt: &Interrupt,
        console: &Console,
    ) -> anyhow::Result<()> {
        let Some(command) = &spec.server_host else { return Ok(()) };
        let wanted = Wanted {
            address: spec.server_address,
            cpus: spec.server_cpus,
            starts: spec.starts_servers(),
        };
        let host =
            RemoteHost::open(command, wanted, &interrupt.shared()).map_err(anyhow::Error::msg)?;
        let description = host.description();
        // Without pinning, the generator has no cores either.
        match self.cores.generator.len() {
            0 => self.server_cpus = self.server_cpus.or(Some(description.machine.allowed)),
            _ if description.is_this_machine() => {
                self.cores = machine::split_here(self.server_cpus);
                let cores = self.cores.generator.len();
                self.loads.iter_mut().for_each(|load| load.use_cores(cores));
            }
            _ => {
                self.cores.server.clone_from(&description.cores);
                let notes = description.notes.iter().map(|note| format!("{}: {note}", host.name()));
                self.cores.notes.extend(notes);
            }
        }
        let at = host.address().map(|ip| format!(", at {ip}"));
        console.note(&format!("Servers run on {}{}.", host.name(), at.unwrap_or_default()));
        self.servers = Some(Arc::new(host));
        Ok(())
    }

    /// Finds PostgreSQL if the run needs a database. The database gets a separate core if there are
    /// enough cores.
    fn place_database(&mut self, spec: &RunSpec) -> anyhow::Result<()> {
        let Some(DatabaseSpec { schema, url, programs }) = &spec.database else { return Ok(()) };
        let find = if url.is_some() { Programs::find_client } else { Programs::find };
        let programs = find(programs.as_deref()).or_else(|why| {
            usage(format!(
                "{why}. Install PostgreSQL with `apt install postgresql` or `brew install \
                 postgresql`, or name the folder of its programs with --postgres"
            ))
        })?;
        let cores = match url {
            Some(_) => Vec::new(),
            None => self.cores.take_for_database(spec.server_cpus.is_none()),
        };
        if self.generators.is_none() {
            let own = self.cores.generator.len();
            self.loads.iter_mut().for_each(|load| load.use_cores(own));
        }
        let (schema, url) = (schema.clone(), url.clone());
        // The control and the ceiling are not among the servers of the plan.
        let servers = spec.servers.len() + 2;
        self.database = Some(DatabaseSetting { programs, schema, url, cores, servers });
        Ok(())
    }

    /// Starts the generators, if agents generate the load.
    fn open_generators(
        &mut self,
        spec: &RunSpec,
        interrupt: &Interrupt,
        console: &Console,
    ) -> anyhow::Result<()> {
        if spec.generators.is_empty() {
            return Ok(());
        }
        let mut group = Generators::open(&spec.generators, None, &interrupt.shared())?;
        let hosts = group.describe()?;
        let network = match self.servers.is_none() && spec.starts_servers() {
            true => Some(group.find_network(spec.server_address).map_err(anyhow::Error::msg)?),
            false => None,
        };
        self.place(spec, &mut group, &hosts);
        let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        let at =
            network.as_ref().map_or_else(String::new, |(_, ip)| format!(". Servers are at {ip}"));
        let count = plural(names.len(), "generator");
        console.note(&format!("The load comes from {count}: {}{at}.", names.join(", ")));
        self.generators = Some(StartedGenerators { host: Arc::new(group), hosts, network });
        Ok(())
    }

    /// Divides the cores of each host among its generators. If no generator is on this machine,
    /// servers get all of its cores.
    fn place(&mut self, spec: &RunSpec, group: &mut Generators, hosts: &[GeneratorAgent]) {
        if self.cores.generator.is_empty() {
            // Without pinning, there are no cores to divide.
            return;
        }
        let is_here = |host: &GeneratorAgent| host.description.is_this_machine();
        if !hosts.iter().any(is_here) {
            match self.servers {
                Some(_) => self.cores.generator.clear(),
                None => self.cores = machine::alone(self.server_cpus),
            }
        }
        let starts = spec.starts_servers();
        let boot = self.servers.as_ref().map(|host| host.description().boot.clone());
        let boot = boot.filter(|boot| !boot.is_empty());
        let placements: Vec<GeneratorCores> = (0..hosts.len())
            .map(|index| {
                let host = &hosts[index].description;
                let same = |other: &GeneratorAgent| {
                    !host.boot.is_empty() && other.description.boot == host.boot
                };
                let before = hosts[..index].iter().filter(|other| same(other)).count();
                let all = hosts.iter().filter(|other| same(other)).count().max(1);
                match is_here(&hosts[index]) {
                    true if !starts => GeneratorCores::default(),
                    true => part(&self.cores.generator, (before, all), !self.cores.shared),
                    // On the servers' host, no core belongs to the generator alone.
                    false if boot.as_ref() == Some(&host.boot) => GeneratorCores::default(),
                    false => part(&host.cores, (before, all), true),
                }
            })
            .collect();
        let beside = hosts.iter().filter(|host| !is_here(host));
        let beside = beside.filter(|host| boot.as_ref() == Some(&host.description.boot));
        self.cores.notes.extend(beside.map(|host| {
            format!(
                "{} generates load on the servers' host, so it shares the host's cores with \
                 the servers",
                host.command
            )
        }));
        let cores = placements.iter().map(|own| own.cpus.len()).min().unwrap_or(0);
        self.loads.iter_mut().for_each(|load| load.use_cores(cores));
        group.place(placements);
    }

    /// Returns the requested slice length, or a greater length if readings from other hosts are too
    /// imprecise for slices of the requested length.
    pub fn slice(&self, asked: Option<Duration>, console: &Console) -> Option<Duration> {
        let delay = self.servers.as_ref().map_or(Duration::ZERO, |host| host.delay())
            + self.generators.as_ref().map_or(Duration::ZERO, |started| started.host.delay());
        let shortest = shortest_slice(delay);
        let ms = |time: Duration| number::time(time.as_secs_f64() * 1e3);
        let slice = asked?;
        if slice >= shortest {
            return asked;
        }
        console.warn(&format!(
            "Warning: slices are {} long instead of {}. A round trip to the other hosts takes {}, \
             so shorter slices would be measured imprecisely.",
            ms(shortest),
            ms(slice),
            ms(delay)
        ));
        Some(shortest)
    }

    /// The facts of the machines of servers and generators. `here` has the facts of this machine.
    pub fn facts(&self, here: Host) -> Host {
        let mut host = match &self.servers {
            Some(servers) => remote_facts(servers, here),
            None => here,
        };
        let Some(started) = &self.generators else { return host };
        host.generators = generator_facts(started);
        // Doubts about this machine are known already.
        let hosts = host.generators.iter().zip(&started.hosts);
        for (own, _) in hosts.filter(|(_, host)| !host.description.is_this_machine()) {
            let doubts = Host::of(own.machine.clone()).doubts.into_iter();
            host.doubts.extend(doubts.map(|doubt| format!("on {}: {doubt}", own.command)));
        }
        host
    }
}

/// An allocation without cores, both for servers and for the generator.
pub fn unpinned() -> CpuAllocation {
    CpuAllocation { server: Vec::new(), generator: Vec::new(), shared: false, notes: Vec::new() }
}

/// The facts of the servers' machine and of this one (`here`), the controller.
fn remote_facts(host: &RemoteHost, here: Host) -> Host {
    let mut there = Host::of(host.description().machine.clone());
    let doubts = here.doubts.iter().map(|doubt| format!("on the generator's host: {doubt}"));
    there.doubts.extend(doubts);
    let address = host.address().map(|ip| ip.to_string());
    let controller =
        Controller { command: host.command().to_owned(), address, machine: here.machine };
    Host { controller: Some(controller), ..there }
}

/// Returns the cores of one of several generators on a host. If there are fewer cores than
/// generators, each generator gets all cores.
fn part(cores: &[usize], (index, count): (usize, usize), is_alone: bool) -> GeneratorCores {
    if cores.len() < count {
        return GeneratorCores { cpus: cores.to_vec(), is_alone: false };
    }
    let each = cores.len() / count;
    GeneratorCores { cpus: cores[index * each..(index + 1) * each].to_vec(), is_alone }
}

/// The facts of the generators' hosts.
fn generator_facts(started: &StartedGenerators) -> Vec<GeneratorMachine> {
    let fact = |host: &GeneratorAgent| GeneratorMachine {
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
        assert_eq!(part(&[1], (0, 1), false), GeneratorCores { cpus: vec![1], is_alone: false });
    }
}
