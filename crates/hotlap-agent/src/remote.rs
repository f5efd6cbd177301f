//! A generator on another host, as its controller sees it.

use std::net::IpAddr;
use std::time::Duration;

use hotlap_load::plan::Plan;

use crate::channel::Channel;
use crate::clock::Offset;
use crate::command::AgentCommand;
use crate::error::{ChannelError, Fault};
use crate::generator::{
    Begun, Door, GeneratorOrder, GeneratorReport, HostDescription, Joined, Probe, Probed, Status,
};
use crate::hello::Role;
use crate::message::Order;

/// The time limit for an order that takes no time.
const PROMPT: Duration = Duration::from_secs(10);

/// The time limit for sending a plan or an outcome, which may have megabytes.
const TRANSFER: Duration = Duration::from_secs(60);

/// A generator on another host. Dropping it ends its load.
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
    #[must_use]
    pub fn on(channel: Channel) -> Self {
        Self { channel, started: None }
    }

    /// The channel to it.
    #[must_use]
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

    /// Begins to open the connections of a load that has one window. The last load ends.
    ///
    /// # Errors
    /// The plan cannot be run there, or the generator is lost.
    pub fn prepare(&self, plan: &Plan) -> Result<(), ChannelError> {
        self.done(&GeneratorOrder::Prepare(Box::new(plan.clone())), TRANSFER)
    }

    /// Lets a load that is ready begin at a time of the generator's clock.
    ///
    /// # Errors
    /// The load is not ready, or the generator is lost.
    pub fn begin(&self, at_ns: u64) -> Result<Begun, ChannelError> {
        match self.call(&GeneratorOrder::Begin { at_ns }, PROMPT)? {
            GeneratorReport::Begun(begun) => Ok(begun),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Starts a load that is held between windows, as [`hotlap_load::Session::start_held`]. The
    /// last load ends.
    ///
    /// # Errors
    /// The plan cannot be run there, or the generator is lost.
    pub fn hold(&self, plan: &Plan) -> Result<(), ChannelError> {
        self.done(&GeneratorOrder::Hold(Box::new(plan.clone())), TRANSFER)
    }

    /// Opens a window of a load that is held, at a time of the generator's clock.
    ///
    /// # Errors
    /// The load is not ready, or the generator is lost.
    pub fn open_window(&self, at_ns: u64, length: Duration) -> Result<Begun, ChannelError> {
        match self.call(&GeneratorOrder::Open { at_ns, length }, PROMPT)? {
            GeneratorReport::Begun(begun) => Ok(begun),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Stops sending until the next window, and waits for requests in flight for at most `limit`.
    /// Returns whether none is left.
    ///
    /// # Errors
    /// There is no load, or the generator is lost.
    pub fn pause(&self, limit: Duration) -> Result<bool, ChannelError> {
        match self.call(&GeneratorOrder::Pause { limit }, PROMPT + limit)? {
            GeneratorReport::Paused(is_idle) => Ok(is_idle),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The outcome of the windows of a load that is held since the last call. The last window must
    /// have closed.
    ///
    /// # Errors
    /// The load has ended, or the generator is lost.
    pub fn collect(&self) -> Result<Joined, ChannelError> {
        self.joined(&GeneratorOrder::Collect)
    }

    /// How far the load has come.
    ///
    /// # Errors
    /// There is no load, or the generator is lost.
    pub fn status(&self) -> Result<Status, ChannelError> {
        match self.call(&GeneratorOrder::Status, PROMPT)? {
            GeneratorReport::Status(status) => Ok(status),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Ends the load and keeps what was measured.
    ///
    /// # Errors
    /// There is no load, or the generator is lost.
    pub fn stop(&self) -> Result<(), ChannelError> {
        self.done(&GeneratorOrder::Stop, PROMPT)
    }

    /// Ends the load if it has not ended, and returns its outcome.
    ///
    /// # Errors
    /// No connection could be opened, there is no load, or the generator is lost.
    pub fn join(&self) -> Result<Joined, ChannelError> {
        self.joined(&GeneratorOrder::Join)
    }

    /// Ends the load and closes its connections. Returns how many values of its fields it used at
    /// most.
    ///
    /// # Errors
    /// The generator is lost.
    pub fn end(&self) -> Result<u64, ChannelError> {
        match self.call(&GeneratorOrder::End, PROMPT)? {
            GeneratorReport::Ended(used) => Ok(used),
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

    fn joined(&self, order: &GeneratorOrder) -> Result<Joined, ChannelError> {
        match self.call(order, TRANSFER)? {
            GeneratorReport::Joined(joined) => Ok(*joined),
            other => Err(self.unexpected(&other)),
        }
    }

    fn done(&self, order: &GeneratorOrder, limit: Duration) -> Result<(), ChannelError> {
        match self.call(order, limit)? {
            GeneratorReport::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
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
        let phase = GeneratorOrder::Status.phase().to_owned();
        ChannelError { command: self.channel.command().to_owned(), phase, fault }
    }
}
