//! Several generators that send one load together.
//!
//! Each opens its part of the connections. Once all are ready, clocks are compared, and all begin
//! at an agreed time, each by its own clock. When the load has ended, clocks are compared again,
//! and the outcomes are merged without loss. What makes the sum wrong is found ([`Invalid`]), and
//! a generator that is lost ends the load. It is started again for the next one.

mod address;
mod division;
mod error;
mod outcome;
mod running;
mod start;
mod validity;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotlap_load::plan::Plan;

use crate::command::AgentCommand;
use crate::error::ChannelError;
use crate::generator::{HostDescription, Probe, Probed};
use crate::remote::RemoteGenerator;
use crate::together::{all, together};

pub use division::{Placement, SAMPLES_PER_S};
pub use error::GroupError;
pub use outcome::{Contributions, GeneratorOutcome, GroupOutcome, Invalid, Sampled};
pub use running::{GroupValues, Running};

/// How long agents may take to answer; `ssh` may have to connect first.
const CONNECT: Duration = Duration::from_secs(30);

/// Several generators.
#[derive(Debug)]
pub struct Generators {
    state: Mutex<State>,
    has_sampler: bool,
    /// The cores of each; empty: as the plan says.
    placements: Vec<Placement>,
}

/// The host of a generator.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratorHost {
    /// The command that started the generator, as typed.
    pub command: String,
    /// The name of the host, as it calls itself.
    pub name: String,
    /// The host.
    pub description: HostDescription,
}

#[derive(Debug)]
struct State {
    /// Those that load, then the one that samples, if there is one.
    all: Vec<Arc<RemoteGenerator>>,
    /// Why one of them cannot be started again.
    gone: Option<ChannelError>,
}

impl Generators {
    /// Starts one agent with each command, and one that samples latency while the others load.
    ///
    /// # Errors
    /// The first agent that could not be started, and why.
    pub fn open(
        commands: &[AgentCommand],
        sampler: Option<&AgentCommand>,
    ) -> Result<Self, GroupError> {
        let commands: Vec<&AgentCommand> = commands.iter().chain(sampler).collect();
        let opened = together(&commands, |command| RemoteGenerator::open(command, CONNECT));
        Ok(Self::with(all(opened)?, sampler.is_some()))
    }

    /// These generators, and one that samples latency while the others load.
    pub fn of(mut generators: Vec<RemoteGenerator>, sampler: Option<RemoteGenerator>) -> Self {
        let has_sampler = sampler.is_some();
        generators.extend(sampler);
        Self::with(generators, has_sampler)
    }

    fn with(generators: Vec<RemoteGenerator>, has_sampler: bool) -> Self {
        let all = generators.into_iter().map(Arc::new).collect();
        Self { state: Mutex::new(State { all, gone: None }), has_sampler, placements: Vec::new() }
    }

    /// Where each of the generators runs its threads, instead of where the plan says.
    pub fn place(&mut self, placements: Vec<Placement>) {
        self.placements = placements;
    }

    /// The host of each generator.
    ///
    /// # Errors
    /// A generator is lost.
    pub fn describe(&self) -> Result<Vec<GeneratorHost>, GroupError> {
        let describe = |generator: &Arc<RemoteGenerator>| {
            Ok(GeneratorHost {
                command: generator.channel().command().to_owned(),
                name: generator.channel().host().to_owned(),
                description: generator.describe()?,
            })
        };
        Ok(all(together(&self.ready()?, describe))?)
    }

    /// The longest round trip to a generator.
    ///
    /// # Errors
    /// A generator is lost.
    pub fn round_trip(&self) -> Result<Duration, GroupError> {
        let offsets = all(together(&self.ready()?, |generator| generator.clock()))?;
        Ok(offsets.iter().map(|offset| offset.error() * 2).max().unwrap_or_default())
    }

    /// Probes a server from the first generator's host.
    ///
    /// # Errors
    /// No probe got an acceptable response, or the generator is lost.
    pub fn probe(&self, probe: Probe) -> Result<Probed, GroupError> {
        let ready = self.ready()?;
        let first = ready.first().ok_or_else(|| GroupError::Division(NONE.to_owned()))?;
        Ok(first.probe(probe)?)
    }

    /// Divides a load, opens all connections and begins to send. The load has one window.
    ///
    /// # Errors
    /// The load cannot be divided, or a generator cannot run its part or is lost.
    pub fn start(&self, plan: &Plan) -> Result<Running, GroupError> {
        Running::begin(self.prepared(plan)?)
    }

    /// Divides a load and opens all connections. It sends from then on, except when it is paused,
    /// and only the windows that are opened count; see [`hotlap_load::Session::start_held`].
    ///
    /// # Errors
    /// As [`Generators::start`].
    pub fn hold(&self, plan: &Plan) -> Result<Running, GroupError> {
        Running::hold(self.prepared(plan)?)
    }

    fn prepared(&self, plan: &Plan) -> Result<start::Prepared, GroupError> {
        let generators = self.ready()?;
        let loading = generators.len() - usize::from(self.has_sampler);
        if loading == 0 {
            return Err(GroupError::Division(NONE.to_owned()));
        }
        let mut parts = division::divide(plan, loading).map_err(GroupError::Division)?;
        for (part, placement) in parts.iter_mut().zip(&self.placements) {
            placement.apply(part);
        }
        if self.has_sampler {
            parts.push(division::sampler(plan).map_err(GroupError::Division)?);
        }
        Ok(start::Prepared { generators, parts, loading, plan: plan.clone() })
    }

    /// All generators. Those that were lost are started again.
    fn ready(&self) -> Result<Vec<Arc<RemoteGenerator>>, GroupError> {
        let mut state = self.lock();
        if let Some(error) = &state.gone {
            return Err(GroupError::Gone(error.clone()));
        }
        for index in 0..state.all.len() {
            let Some(closed) = state.all[index].channel().closed() else { continue };
            match state.all[index].again(CONNECT).unwrap_or(Err(closed)) {
                Ok(started) => state.all[index] = Arc::new(started),
                Err(error) => {
                    state.gone = Some(error.clone());
                    return Err(GroupError::Gone(error));
                }
            }
        }
        Ok(state.all.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NONE: &str = "a load needs at least one generator";
