//! A generator on another host, as its controller sees it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotlap_load::plan::Plan;

use crate::channel::Channel;
use crate::clock::Offset;
use crate::command::AgentCommand;
use crate::error::ChannelError;
use crate::generator::order::{
    AskStatus, Begin, Collect, Describe, End, Hold, Join, LoadCall, OfLoad, Open, Pause, Prepare,
    ProbeServer, Reach, StopLoad,
};
use crate::generator::{Begun, Door, HostDescription, Joined, Probe, Probed, Status};
use crate::hello::Role;
use crate::message::Order;

/// The time limit for an order that takes no time.
const PROMPT: Duration = Duration::from_secs(10);

/// The time limit for sending a plan or an outcome, which may have megabytes.
const TRANSFER: Duration = Duration::from_secs(60);

/// A generator on another host. Dropping it ends its loads.
#[derive(Debug)]
pub struct RemoteGenerator {
    channel: Channel,
    /// What started it; `None` at the other end of a given channel.
    started: Option<AgentCommand>,
}

impl RemoteGenerator {
    /// Starts an agent that generates load, and waits for it for at most `limit`.
    ///
    /// # Errors
    /// As [`Channel::open`].
    pub fn open(command: &AgentCommand, limit: Duration) -> Result<Self, ChannelError> {
        let started = Some(command.clone());
        Ok(Self { started, ..Self::on(Channel::open(command, Role::Generator, limit)?) })
    }

    /// Starts the agent afresh after it was lost; `None` if it was not started by a command.
    pub(crate) fn again(&self, limit: Duration) -> Option<Result<Self, ChannelError>> {
        self.started.as_ref().map(|command| Self::open(command, limit))
    }

    /// A generator at the other end of a channel.
    pub fn on(channel: Channel) -> Self {
        Self { channel, started: None }
    }

    /// The channel to it.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The generator's host.
    ///
    /// # Errors
    /// The generator is lost.
    pub fn describe(&self) -> Result<HostDescription, ChannelError> {
        self.channel.call(Describe {}, PROMPT)
    }

    /// The addresses of a door that the generator reaches.
    pub(crate) fn reaches(&self, door: &Door) -> Result<Vec<IpAddr>, ChannelError> {
        self.channel.call(Reach { door: door.clone() }, PROMPT)
    }

    /// Probes a server from the generator's host.
    ///
    /// # Errors
    /// No probe got an acceptable response, or the generator is lost.
    pub fn probe(&self, probe: Probe) -> Result<Probed, ChannelError> {
        // Each request is sent a few times, with pauses between them.
        let requests = probe.contract.exchanges.len() as u32 + 1;
        let limit = TRANSFER + probe.limit * 8 * requests;
        self.channel.call(ProbeServer { probe }, limit)
    }

    /// Begins to open the connections of a load that has one window.
    ///
    /// # Errors
    /// The plan cannot be run there, or the generator is lost.
    pub fn prepare(self: &Arc<Self>, plan: &Plan) -> Result<RemoteLoad, ChannelError> {
        self.load(Prepare { plan: plan.clone() })
    }

    /// Begins to open the connections of a load that is held between windows, as
    /// [`hotlap_load::Session::start_held`].
    ///
    /// # Errors
    /// As [`RemoteGenerator::prepare`].
    pub fn hold(self: &Arc<Self>, plan: &Plan) -> Result<RemoteLoad, ChannelError> {
        self.load(Hold { plan: plan.clone() })
    }

    fn load<O: Order<Report = u64>>(
        self: &Arc<Self>,
        order: O,
    ) -> Result<RemoteLoad, ChannelError> {
        let id = self.channel.call(order, TRANSFER)?;
        Ok(RemoteLoad { generator: Arc::clone(self), id, is_over: AtomicBool::new(false) })
    }

    /// Compares clocks.
    ///
    /// # Errors
    /// The generator is lost.
    pub fn clock(&self) -> Result<Offset, ChannelError> {
        self.channel.clock(PROMPT)
    }
}

/// A load of a generator on another host. Dropping it ends it.
#[derive(Debug)]
pub struct RemoteLoad {
    generator: Arc<RemoteGenerator>,
    id: u64,
    /// Whether the generator has been told that it ends.
    is_over: AtomicBool,
}

impl RemoteLoad {
    /// The generator.
    pub fn generator(&self) -> &RemoteGenerator {
        &self.generator
    }

    /// Lets a load that is ready begin at a time of the generator's clock.
    ///
    /// # Errors
    /// The load is not ready, or the generator is lost.
    pub fn begin(&self, at_ns: u64) -> Result<Begun, ChannelError> {
        self.call(Begin { at_ns }, PROMPT)
    }

    /// Opens a window of a load that is held, at a time of the generator's clock.
    ///
    /// # Errors
    /// The load is not ready, or the generator is lost.
    pub fn open_window(&self, at_ns: u64, length: Duration) -> Result<Begun, ChannelError> {
        self.call(Open { at_ns, length }, PROMPT)
    }

    /// Stops sending until the next window, and waits for requests in flight for at most `limit`.
    /// Returns whether none is left.
    ///
    /// # Errors
    /// The load has ended, or the generator is lost.
    pub fn pause(&self, limit: Duration) -> Result<bool, ChannelError> {
        self.call(Pause { limit }, PROMPT + limit)
    }

    /// The outcome of the windows of a load that is held since the last call. The last window must
    /// have closed.
    ///
    /// # Errors
    /// The load has ended, or the generator is lost.
    pub fn collect(&self) -> Result<Joined, ChannelError> {
        self.call(Collect {}, TRANSFER)
    }

    /// How far the load has come.
    ///
    /// # Errors
    /// The load has ended, or the generator is lost.
    pub fn status(&self) -> Result<Status, ChannelError> {
        self.call(AskStatus {}, PROMPT)
    }

    /// Ends the load and keeps what was measured.
    ///
    /// # Errors
    /// The load has ended, or the generator is lost.
    pub fn stop(&self) -> Result<(), ChannelError> {
        self.call(StopLoad {}, PROMPT)
    }

    /// Ends the load if it has not ended, and returns its outcome.
    ///
    /// # Errors
    /// No connection could be opened, or the generator is lost.
    pub fn join(&self) -> Result<Joined, ChannelError> {
        self.call(Join {}, TRANSFER)
    }

    /// Ends the load and closes its connections. Returns how many values of its fields it used at
    /// most.
    ///
    /// # Errors
    /// The generator is lost.
    pub fn end(&self) -> Result<u64, ChannelError> {
        self.is_over.store(true, Ordering::Relaxed);
        self.call(End {}, PROMPT)
    }

    fn call<C: Order<All = LoadCall>>(
        &self,
        call: C,
        limit: Duration,
    ) -> Result<C::Report, ChannelError> {
        let order = OfLoad { id: self.id, call: call.into_all() }.into_all();
        self.generator.channel.ask(&order, C::PHASE, limit)
    }
}

impl Drop for RemoteLoad {
    fn drop(&mut self) {
        if !self.is_over.load(Ordering::Relaxed) {
            // If the generator is lost, so is the load.
            let _ = self.end();
        }
    }
}
