//! The start of a load: all generators open their connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotlap_load::plan::Plan;

use crate::error::{ChannelError, Fault};
use crate::remote::{RemoteGenerator, RemoteLoad};
use crate::together::{all, together};

/// How long opening connections may take, beyond the plan's timeout.
const READY: Duration = Duration::from_secs(60);

/// How often generators that open connections are asked whether they are ready.
const POLL: Duration = Duration::from_millis(5);

/// Generators, and the part of a load that each of them sends.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) generators: Vec<Arc<RemoteGenerator>>,
    pub(super) parts: Vec<Plan>,
    /// How many of them load; one more samples.
    pub(super) loading: usize,
    /// The whole load.
    pub(super) plan: Plan,
}

impl Prepared {
    /// Gives each generator its part, and waits until it has opened its connections.
    pub(super) fn open(
        &self,
        order: impl Fn(&Arc<RemoteGenerator>, &Plan) -> Result<RemoteLoad, ChannelError> + Sync,
    ) -> Result<Vec<RemoteLoad>, ChannelError> {
        let pairs: Vec<_> = self.generators.iter().zip(&self.parts).collect();
        all(together(&pairs, |(generator, part)| {
            let load = order(generator, part)?;
            wait_until_ready(&load, part)?;
            Ok(load)
        }))
    }
}

/// Waits until a load has its connections.
fn wait_until_ready(load: &RemoteLoad, part: &Plan) -> Result<(), ChannelError> {
    let limit = READY + part.timeout;
    let deadline = Instant::now() + limit;
    loop {
        let status = load.status()?;
        if status.is_ready {
            return Ok(());
        }
        if status.is_finished {
            // No connection could be opened; the error says why.
            load.join()?;
        }
        if Instant::now() > deadline {
            return Err(late(load.generator(), "opening connections", limit));
        }
        std::thread::sleep(POLL);
    }
}

/// The error of a generator that took too long.
pub(super) fn late(generator: &RemoteGenerator, phase: &str, limit: Duration) -> ChannelError {
    ChannelError {
        command: generator.channel().command().to_owned(),
        phase: phase.to_owned(),
        fault: Fault::Late { limit, said: String::new() },
    }
}
