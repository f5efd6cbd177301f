//! Several generators that send one load together.
//!
//! Each generator opens its part of the connections. Once all are ready, clocks are compared, and
//! all generators begin at an agreed time, each by its own clock. When the load has ended, clocks
//! are compared again, and the outcomes are merged without loss. Anything that makes the sum wrong
//! is reported ([`Invalid`]). The loss of a generator ends the load, and the generator is started
//! again for the next load.

mod running;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hotlap_load::plan::{LoadPart, Pace, Plan, Shape, Stop};
use hotlap_servers::machine::{self, Network};

use crate::channel::{Channel, all, together};
use crate::command::AgentCommand;
use crate::error::ChannelError;
use crate::generator::{
    Describe, HostDescription, LearnedRequests, PROMPT, Probe, ProbeServer, Reach,
};
use crate::load::{LoadError, LoadHost, RunningLoad};
use crate::message::AgentRole;
use crate::reach::{self, Door};
use running::{Parts, RunningGroup};

/// The time limit for an agent's first answer, which includes the time that `ssh` takes to
/// connect.
const CONNECT: Duration = Duration::from_secs(30);

/// Several generators that send loads together.
#[derive(Debug)]
pub struct Generators {
    state: Mutex<State>,
    /// The commands that started the generators, for starting a lost generator again. Empty if the
    /// caller passed channels.
    commands: Vec<AgentCommand>,
    has_sampler: bool,
    /// The longest round trip to any generator.
    delay: Duration,
    /// The cores of each generator. Empty means the plan's cores.
    cores: Vec<GeneratorCores>,
    /// Whether the user has interrupted.
    stop: Arc<AtomicBool>,
}

/// An agent that generates load, and its host.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratorAgent {
    /// The command that started the generator, as typed.
    pub command: String,
    /// The name by which the host calls itself.
    pub name: String,
    /// A description of the host.
    pub description: HostDescription,
}

#[derive(Debug)]
struct State {
    /// The generators that load, followed by the one that samples, if any.
    all: Vec<Arc<Channel>>,
    /// Why a generator cannot be started again.
    gone: Option<ChannelError>,
}

impl Generators {
    /// Starts one agent with each command. The agent that `sampler` starts, if any, samples
    /// latency while the others load. Setting `stop` ends the wait of every call that began
    /// earlier.
    ///
    /// # Errors
    /// Fails if an agent cannot be started or is lost. The error is about the first such agent.
    pub fn open(
        commands: &[AgentCommand],
        sampler: Option<&AgentCommand>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, LoadError> {
        let commands: Vec<AgentCommand> = commands.iter().chain(sampler).cloned().collect();
        let open =
            |command: &AgentCommand| Channel::open(command, AgentRole::Generator, CONNECT, stop);
        let channels = all(together(&commands, open))?;
        let own = Self::over(channels, sampler.is_some())?;
        Ok(Self { commands, stop: Arc::clone(stop), ..own })
    }

    /// Uses the generators at the other ends of these channels. With `has_sampler`, the last
    /// generator samples latency while the others load.
    ///
    /// # Errors
    /// Fails if a generator is lost.
    pub fn over(channels: Vec<Channel>, has_sampler: bool) -> Result<Self, LoadError> {
        let channels: Vec<_> = channels.into_iter().map(Arc::new).collect();
        let offsets = all(together(&channels, |channel| channel.clock(PROMPT)))?;
        let delay = offsets.iter().map(|offset| offset.error() * 2).max().unwrap_or_default();
        let (commands, cores, stop) = (Vec::new(), Vec::new(), Arc::default());
        let state = Mutex::new(State { all: channels, gone: None });
        Ok(Self { state, commands, has_sampler, delay, cores, stop })
    }

    /// Sets the cores on which the generators run their threads, in place of the plan's cores.
    pub fn place(&mut self, cores: Vec<GeneratorCores>) {
        self.cores = cores;
    }

    /// Describes the host of each generator.
    ///
    /// # Errors
    /// Fails if a generator is lost.
    pub fn describe(&self) -> Result<Vec<GeneratorAgent>, LoadError> {
        let describe = |channel: &Arc<Channel>| {
            let (command, name) = (channel.command().to_owned(), channel.host().to_owned());
            Ok(GeneratorAgent { command, name, description: channel.call(Describe {})? })
        };
        Ok(all(together(&self.ready()?, describe))?)
    }

    /// Probes a server from the first generator's host.
    ///
    /// # Errors
    /// Fails if a request got no acceptable response, or if a generator is lost.
    pub fn probe(&self, probe: Probe) -> Result<LearnedRequests, LoadError> {
        let ready = self.ready()?;
        let first = ready.first().ok_or_else(|| LoadError::Unfit(NONE.to_owned()))?;
        Ok(first.call(ProbeServer { probe })?)
    }

    /// Finds the first of this machine's addresses that all generators reach, or checks that they
    /// reach the given address. Loopback is tried first, and is reached if all generators share
    /// this machine's network. Returns where servers should listen, and the address.
    ///
    /// # Errors
    /// Fails if this machine cannot listen, if a generator is lost, or if no address is reached by
    /// all generators.
    pub fn find_network(&self, given: Option<IpAddr>) -> Result<(Network, IpAddr), String> {
        let own = machine::addresses();
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let addresses = match given {
            Some(given) => vec![given],
            None => std::iter::once(loopback).chain(own.iter().copied()).collect(),
        };
        let generators = self.ready().map_err(|e| e.to_string())?;
        let secret = reach::secret();
        let door =
            Door::open(secret.clone()).map_err(|e| format!("cannot listen for generators: {e}"))?;
        let port = door.port();
        let order = Reach { addresses: addresses.clone(), port, secret };
        let reached = all(together(&generators, |generator| generator.call(order.clone())))
            .map_err(|e| e.to_string())?;
        let found = addresses.iter().find(|ip| reached.iter().all(|own| own.contains(ip)));
        if let Some(found) = found {
            return Ok((Network::at(*found, own.contains(found)), *found));
        }
        let none = reached.iter().position(Vec::is_empty).unwrap_or(0);
        let who = generators[none].command();
        let tried: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let tried = tried.join(", ");
        Err(format!(
            "{who}: while looking for the servers' address: no address of this machine can be \
             reached by all generators (tried {tried}). Open this machine's ports to the \
             generators in the firewall, or name another address with --server-address"
        ))
    }

    /// Divides a load among the generators.
    fn divided(&self, plan: &Plan) -> Result<Parts, LoadError> {
        let generators = self.ready()?;
        let loading = generators.len() - usize::from(self.has_sampler);
        if loading == 0 {
            return Err(LoadError::Unfit(NONE.to_owned()));
        }
        let mut parts = divide(plan, loading).map_err(LoadError::Unfit)?;
        for (part, cores) in parts.iter_mut().zip(&self.cores) {
            part.cpus.clone_from(&cores.cpus);
            part.busy_poll &= cores.is_alone;
        }
        if self.has_sampler {
            parts.push(sampler(plan).map_err(LoadError::Unfit)?);
        }
        Ok(Parts { generators, parts, loading, plan: plan.clone() })
    }

    /// Returns all generators, after starting lost ones again.
    fn ready(&self) -> Result<Vec<Arc<Channel>>, LoadError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &state.gone {
            return Err(LoadError::Gone(error.clone()));
        }
        for index in 0..state.all.len() {
            let Some(closed) = state.all[index].closed() else { continue };
            let again = self
                .commands
                .get(index)
                .map(|command| Channel::open(command, AgentRole::Generator, CONNECT, &self.stop));
            match again.unwrap_or(Err(closed)) {
                Ok(started) => state.all[index] = Arc::new(started),
                Err(error) => {
                    state.gone = Some(error.clone());
                    return Err(LoadError::Gone(error));
                }
            }
        }
        Ok(state.all.clone())
    }
}

impl LoadHost for Generators {
    fn start(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError> {
        Ok(Box::new(RunningGroup::begin(self.divided(plan)?)?))
    }

    fn hold(&self, plan: &Plan) -> Result<Box<dyn RunningLoad>, LoadError> {
        Ok(Box::new(RunningGroup::hold(self.divided(plan)?)?))
    }

    fn delay(&self) -> Duration {
        self.delay
    }
}

const NONE: &str = "a load needs at least one generator";

/// Divides a load into parts, one for each of `count` generators. The connections are divided. All
/// generators have the same number of threads: the plan's number if their connections suffice.
/// Each part keeps the whole load's rate, number of requests and field values. Each generator
/// takes every n-th request and value (see [`LoadPart`]), so no two generators send the same
/// value.
///
/// # Errors
/// Fails if there are fewer connections than generators.
fn divide(plan: &Plan, count: usize) -> Result<Vec<Plan>, String> {
    let connections = plan.shape.connections;
    if connections < count {
        let connections = match connections {
            1 => "1 connection".to_owned(),
            few => format!("{few} connections"),
        };
        return Err(format!(
            "{connections} cannot be divided among {count} generators: use at least {count} \
             connections (-c)"
        ));
    }
    let part = |index: usize| Plan {
        shape: Shape {
            connections: connections / count + usize::from(index < connections % count),
            threads: plan.shape.threads.min(connections / count),
            ..plan.shape
        },
        // All generators begin at an agreed time.
        start_at: None,
        part: LoadPart { index, of: count },
        ..plan.clone()
    };
    Ok((0..count).map(part).collect())
}

/// The cores on which a generator runs its threads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GeneratorCores {
    /// The cores that the threads are pinned to. Empty if the threads are not pinned.
    pub cpus: Vec<usize>,
    /// Whether nothing else uses these cores, so that the threads need not sleep while they wait.
    pub is_alone: bool,
}

/// The number of requests that a sampler sends per second. It is so small that the sampler is
/// mostly idle and hardly loads the server.
pub const SAMPLES_PER_S: f64 = 100.0;

/// Where the values of a sampler's fields begin, counted from the first value of the load.
const SAMPLED_VALUES: u64 = 1 << 32;

/// Returns the plan of a generator that samples latency while others load: the same requests over
/// one connection at a low rate. Source: Leverich and Kozyrakis, "Reconciling high server
/// utilization and sub-millisecond quality-of-service", EuroSys 2014 (mutilate).
///
/// # Errors
/// Fails if the load ends after a number of requests, because nobody knows when that will be.
fn sampler(plan: &Plan) -> Result<Plan, String> {
    if matches!(plan.stop, Stop::Requests(_)) {
        return Err("latency can be sampled only in a load with a duration: use -d".to_owned());
    }
    Ok(Plan {
        shape: Shape { connections: 1, threads: 1, pipeline: 1, ..plan.shape },
        pace: Pace::Constant { rate: SAMPLES_PER_S },
        first_value: plan.first_value + SAMPLED_VALUES,
        start_at: None,
        ..plan.clone()
    })
}

#[cfg(test)]
mod tests {
    use hotlap_load::plan::{Endpoint, Request, Target};

    use super::running::share;
    use super::*;

    fn plan(connections: usize, threads: usize) -> Plan {
        let target = Target::plain(Endpoint::Tcp(([127, 0, 0, 1], 80).into()));
        let shape = Shape { connections, threads, ..Shape::default() };
        Plan { shape, ..Plan::new(target, Request::get("/", "test")) }
    }

    fn shape(parts: &[Plan]) -> Vec<(usize, usize, usize)> {
        parts.iter().map(|p| (p.shape.connections, p.shape.threads, p.part.index)).collect()
    }

    #[test]
    fn connections_are_divided_and_no_generator_has_more_threads_than_connections() {
        let parts = divide(&plan(10, 8), 3).expect("parts");
        assert_eq!(shape(&parts), [(4, 3, 0), (3, 3, 1), (3, 3, 2)]);
        assert!(parts.iter().all(|part| part.check().is_ok() && part.part.of == 3));
        assert_eq!(shape(&divide(&plan(64, 2), 2).expect("parts")), [(32, 2, 0), (32, 2, 1)]);
    }

    #[test]
    fn rate_and_number_of_requests_stay_those_of_the_whole_load() {
        let mut whole = plan(10, 1);
        (whole.pace, whole.stop) = (Pace::Constant { rate: 900.0 }, Stop::Requests(100));
        for part in divide(&whole, 3).expect("parts") {
            assert_eq!((&part.pace, part.stop), (&whole.pace, whole.stop));
            assert!((share(&whole, &part) - 1.0 / 3.0).abs() < 1e-12);
        }
        whole.pace = Pace::Closed;
        let parts = divide(&whole, 3).expect("parts");
        let shares: Vec<f64> = parts.iter().map(|part| share(&whole, part)).collect();
        assert_eq!(shares, [0.4, 0.3, 0.3]);
    }

    #[test]
    fn a_sampler_has_one_connection_a_low_rate_and_values_of_its_own() {
        let whole = plan(64, 4);
        let sampler = sampler(&whole).expect("a plan");
        assert_eq!((sampler.shape.connections, sampler.shape.threads), (1, 1));
        assert_eq!(sampler.pace, Pace::Constant { rate: 100.0 });
        assert_eq!((sampler.stop, sampler.warmup), (whole.stop, whole.warmup));
        assert_eq!(sampler.first_value, 1 << 32);
        assert_eq!(sampler.check(), Ok(()));
        let counted = Plan { stop: Stop::Requests(10), ..whole };
        assert!(super::sampler(&counted).expect_err("no end").ends_with("use -d"));
    }

    #[test]
    fn fewer_connections_than_generators_are_an_error() {
        assert_eq!(
            divide(&plan(2, 1), 3),
            Err("2 connections cannot be divided among 3 generators: use at least 3 connections \
                 (-c)"
                .to_owned())
        );
    }
}
