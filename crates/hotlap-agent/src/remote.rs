//! A generator on another host, as its controller sees it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotlap_load::plan::Plan;

use crate::channel::Channel;
use crate::clock::Offset;
use crate::command::AgentCommand;
use crate::error::{ChannelError, Fault};
use crate::generator::{
    Begun, Door, GeneratorOrder, GeneratorReport, HostDescription, Joined, LoadCall, Probe, Probed,
    Status,
};
use crate::hello::Role;

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
        match self.call(&GeneratorOrder::Describe, PROMPT)? {
            GeneratorReport::Described(host) => Ok(*host),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The addresses of a door that the generator reaches.
    pub(crate) fn reaches(&self, door: &Door) -> Result<Vec<IpAddr>, ChannelError> {
        match self.call(&GeneratorOrder::Reach(door.clone()), PROMPT)? {
            GeneratorReport::Reached(addresses) => Ok(addresses),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Probes a server from the generator's host.
    ///
    /// # Errors
    /// No probe got an acceptable response, or the generator is lost.
    pub fn probe(&self, probe: Probe) -> Result<Probed, ChannelError> {
        // Each request is sent a few times, with pauses between them.
        let requests = probe.contract.exchanges.len() as u32 + 1;
        let limit = TRANSFER + probe.limit * 8 * requests;
        match self.call(&GeneratorOrder::Probe(Box::new(probe)), limit)? {
            GeneratorReport::Probed(probed) => Ok(*probed),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Begins to open the connections of a load that has one window.
    ///
    /// # Errors
    /// The plan cannot be run there, or the generator is lost.
    pub fn prepare(self: &Arc<Self>, plan: &Plan) -> Result<RemoteLoad, ChannelError> {
        self.load(&GeneratorOrder::Prepare(Box::new(plan.clone())))
    }

    /// Begins to open the connections of a load that is held between windows, as
    /// [`hotlap_load::Session::start_held`].
    ///
    /// # Errors
    /// As [`RemoteGenerator::prepare`].
    pub fn hold(self: &Arc<Self>, plan: &Plan) -> Result<RemoteLoad, ChannelError> {
        self.load(&GeneratorOrder::Hold(Box::new(plan.clone())))
    }

    fn load(self: &Arc<Self>, order: &GeneratorOrder) -> Result<RemoteLoad, ChannelError> {
        match self.call(order, TRANSFER)? {
            GeneratorReport::Loading(id) => {
                let (generator, is_over) = (Arc::clone(self), AtomicBool::new(false));
                Ok(RemoteLoad { generator, id, is_over })
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Compares clocks.
    ///
    /// # Errors
    /// The generator is lost.
    pub fn clock(&self) -> Result<Offset, ChannelError> {
        self.channel.clock(PROMPT)
    }

    fn call(
        &self,
        order: &GeneratorOrder,
        limit: Duration,
    ) -> Result<GeneratorReport, ChannelError> {
        self.channel.call(order, limit)
    }

    fn unexpected(&self, report: &GeneratorReport) -> ChannelError {
        let fault = Fault::Malformed(format!("an answer to another question: {report:?}"));
        let (command, phase) = (self.channel.command().to_owned(), "loading".to_owned());
        ChannelError { command, phase, fault }
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
        self.begun(LoadCall::Begin { at_ns })
    }

    /// Opens a window of a load that is held, at a time of the generator's clock.
    ///
    /// # Errors
    /// The load is not ready, or the generator is lost.
    pub fn open_window(&self, at_ns: u64, length: Duration) -> Result<Begun, ChannelError> {
        self.begun(LoadCall::Open { at_ns, length })
    }

    /// Stops sending until the next window, and waits for requests in flight for at most `limit`.
    /// Returns whether none is left.
    ///
    /// # Errors
    /// The load has ended, or the generator is lost.
    pub fn pause(&self, limit: Duration) -> Result<bool, ChannelError> {
        match self.call(LoadCall::Pause { limit }, PROMPT + limit)? {
            GeneratorReport::Paused(is_idle) => Ok(is_idle),
            other => Err(self.generator.unexpected(&other)),
        }
    }

    /// The outcome of the windows of a load that is held since the last call. The last window must
    /// have closed.
    ///
    /// # Errors
    /// The load has ended, or the generator is lost.
    pub fn collect(&self) -> Result<Joined, ChannelError> {
        self.joined(LoadCall::Collect)
    }

    /// How far the load has come.
    ///
    /// # Errors
    /// The load has ended, or the generator is lost.
    pub fn status(&self) -> Result<Status, ChannelError> {
        match self.call(LoadCall::Status, PROMPT)? {
            GeneratorReport::Status(status) => Ok(status),
            other => Err(self.generator.unexpected(&other)),
        }
    }

    /// Ends the load and keeps what was measured.
    ///
    /// # Errors
    /// The load has ended, or the generator is lost.
    pub fn stop(&self) -> Result<(), ChannelError> {
        match self.call(LoadCall::Stop, PROMPT)? {
            GeneratorReport::Done => Ok(()),
            other => Err(self.generator.unexpected(&other)),
        }
    }

    /// Ends the load if it has not ended, and returns its outcome.
    ///
    /// # Errors
    /// No connection could be opened, or the generator is lost.
    pub fn join(&self) -> Result<Joined, ChannelError> {
        self.joined(LoadCall::Join)
    }

    /// Ends the load and closes its connections. Returns how many values of its fields it used at
    /// most.
    ///
    /// # Errors
    /// The generator is lost.
    pub fn end(&self) -> Result<u64, ChannelError> {
        self.is_over.store(true, Ordering::Relaxed);
        match self.call(LoadCall::End, PROMPT)? {
            GeneratorReport::Ended(used) => Ok(used),
            other => Err(self.generator.unexpected(&other)),
        }
    }

    fn begun(&self, call: LoadCall) -> Result<Begun, ChannelError> {
        match self.call(call, PROMPT)? {
            GeneratorReport::Begun(begun) => Ok(begun),
            other => Err(self.generator.unexpected(&other)),
        }
    }

    fn joined(&self, call: LoadCall) -> Result<Joined, ChannelError> {
        match self.call(call, TRANSFER)? {
            GeneratorReport::Joined(joined) => Ok(*joined),
            other => Err(self.generator.unexpected(&other)),
        }
    }

    fn call(&self, call: LoadCall, limit: Duration) -> Result<GeneratorReport, ChannelError> {
        self.generator.call(&GeneratorOrder::Load { id: self.id, call }, limit)
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
