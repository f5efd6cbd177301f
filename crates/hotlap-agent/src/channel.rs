//! The controller's end of a channel to an agent.
//!
//! Every wait has a limit. Whatever goes wrong, dropping the channel ends the command, and with it
//! the agent and everything that the agent started.

mod child;
mod link;

use std::io::{Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::clock::{Clock, Offset};
use crate::command::AgentCommand;
use crate::error::{ChannelError, Fault};
use crate::frame;
use crate::hello::{Hello, Role};
use crate::message::{Order, SILENCE, ToAgent, ToController};
use child::Child;
use link::{Incoming, Link};

/// How often waits look at interrupts and silence.
const POLL: Duration = Duration::from_millis(50);

/// How many times clocks are compared, if that takes at most [`COMPARING`]; at least three times.
const EXCHANGES: usize = 16;

/// After this time, three exchanges are enough.
const COMPARING: Duration = Duration::from_secs(1);

/// A channel to an agent. Dropping it closes the agent's input, and ends the command if it has not
/// ended after 2 s.
#[derive(Debug)]
pub struct Channel {
    command: String,
    hello: Hello,
    state: Mutex<State>,
    /// Dropped after the link, whose end tells the command to end.
    child: Option<Child>,
}

#[derive(Debug)]
struct State {
    link: Link,
    /// The number of the last call.
    number: u64,
    /// Why the channel cannot be used any more.
    closed: Option<Fault>,
}

impl Channel {
    /// Starts the command and waits until an agent of the same version answers, for at most
    /// `limit`.
    ///
    /// # Errors
    /// The command cannot be started, ends or does not answer in time, or the versions differ.
    pub fn open(command: &AgentCommand, role: Role, limit: Duration) -> Result<Self, ChannelError> {
        let fail = |fault| error(&command.to_string(), CONNECTING, fault);
        let (child, output, input) = Child::start(command).map_err(&fail)?;
        Self::connect(&command.to_string(), role, limit, output, input, Some(child))
    }

    /// Connects to an agent that reads what is written to `output` and writes what comes from
    /// `input`. `name` takes the place of the command in messages.
    ///
    /// # Errors
    /// As [`Channel::open`].
    pub fn over(
        name: &str,
        role: Role,
        limit: Duration,
        output: impl Write + Send + 'static,
        input: impl Read + Send + 'static,
    ) -> Result<Self, ChannelError> {
        Self::connect(name, role, limit, output, input, None)
    }

    fn connect(
        name: &str,
        role: Role,
        limit: Duration,
        output: impl Write + Send + 'static,
        input: impl Read + Send + 'static,
        child: Option<Child>,
    ) -> Result<Self, ChannelError> {
        let link = Link::new(output, input);
        let ours = Hello::own(role);
        let state = State { link, number: 0, closed: None };
        let mut channel =
            Self { command: name.to_owned(), hello: ours.clone(), state: Mutex::new(state), child };
        let greeted = channel.greet(&ours, limit);
        channel.hello = greeted.map_err(|fault| error(name, CONNECTING, fault))?;
        Ok(channel)
    }

    /// Exchanges hellos.
    fn greet(&self, ours: &Hello, limit: Duration) -> Result<Hello, Fault> {
        let mut state = self.lock();
        let deadline = Instant::now() + limit;
        let fault = |fault: Fault| match fault {
            Fault::Ended { .. } => self.no_agent(&[]),
            other => other,
        };
        match self.wait(&mut state, deadline, limit).map_err(fault)? {
            Incoming::Marker => {}
            Incoming::NoMarker(printed) => return Err(self.no_agent(&printed)),
            _ => return Err(malformed("a message before the greeting")),
        }
        state.link.send(frame::encode(ours).map_err(malformed)?);
        let Incoming::Frame { content, .. } =
            self.wait(&mut state, deadline, limit).map_err(fault)?
        else {
            return Err(malformed("no greeting"));
        };
        let theirs: Hello = serde_json::from_slice(&content).map_err(malformed)?;
        if !theirs.matches(ours) {
            return Err(Fault::Mismatch { theirs: theirs.into(), ours: ours.clone().into() });
        }
        state.link.keep_alive();
        Ok(theirs)
    }

    /// The command, as the user typed it.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The name of the agent's host, as that host calls itself.
    pub fn host(&self) -> &str {
        &self.hello.host
    }

    /// Why all further calls fail, if an earlier one did.
    pub fn closed(&self) -> Option<ChannelError> {
        let fault = self.lock().closed.clone()?;
        Some(error(&self.command, CONNECTING, fault))
    }

    /// Has the agent carry out an order, and returns its report.
    ///
    /// # Errors
    /// The agent refuses the order, does not answer within `limit`, or sends nothing at all for
    /// 15 s. Unless the agent refuses, the channel is then closed and all later calls fail.
    pub fn call<O: Order>(&self, order: O, limit: Duration) -> Result<O::Report, ChannelError> {
        self.ask(&order.into_all(), O::PHASE, limit)
    }

    /// As [`Channel::call`], for an order inside another order. `phase` says what is being done.
    pub(crate) fn ask<R: DeserializeOwned>(
        &self,
        order: &impl Serialize,
        phase: &str,
        limit: Duration,
    ) -> Result<R, ChannelError> {
        self.exchange(order, limit).map_err(|fault| error(&self.command, phase, fault))
    }

    fn exchange<R: DeserializeOwned>(
        &self,
        order: &impl Serialize,
        limit: Duration,
    ) -> Result<R, Fault> {
        let mut state = self.lock();
        let number = state.next()?;
        let frame = frame::encode(&ToAgent::Order { number, order }).map_err(malformed)?;
        state.link.send(frame);
        let report = self.answer(&mut state, number, limit).and_then(|(answer, _)| match answer {
            Answer::Report(json) => serde_json::from_str(json.get()).map_err(malformed),
            Answer::Refused(why) => Err(Fault::Refused(why)),
            Answer::Clock(_) => Err(malformed("a time instead of a report")),
        });
        state.close_on(report)
    }

    /// The longest time since the last call in which an answer was due and nothing came.
    pub fn silence(&self) -> Duration {
        self.lock().link.silence()
    }

    /// Compares the agent's monotonic clock with this host's, for at most `limit`. The exchange
    /// with the shortest round trip counts.
    ///
    /// # Errors
    /// As [`Channel::call`].
    pub fn clock(&self, limit: Duration) -> Result<Offset, ChannelError> {
        self.compare_clocks(limit).map_err(|fault| error(&self.command, "comparing clocks", fault))
    }

    fn compare_clocks(&self, limit: Duration) -> Result<Offset, Fault> {
        let mut state = self.lock();
        let began = Instant::now();
        let mut best: Option<Offset> = None;
        for count in 0..EXCHANGES {
            if count >= 3 && began.elapsed() > COMPARING {
                break;
            }
            let number = state.next()?;
            let request = ToAgent::<()>::Clock { number };
            state.link.send_stamped(frame::encode(&request).map_err(malformed)?);
            let left = limit.saturating_sub(began.elapsed());
            let answer = self.answer(&mut state, number, left);
            let (answer, received_ns) = state.close_on(answer)?;
            let Answer::Clock(remote_ns) = answer else {
                return Err(malformed("a report instead of a time"));
            };
            let offset = Offset::of(state.link.sent_ns(), remote_ns, received_ns);
            if best.is_none_or(|best| offset.error_ns < best.error_ns) {
                best = Some(offset);
            }
        }
        Ok(best.unwrap_or_default())
    }

    /// Waits for the answer to a call, and returns it with the time at which it came.
    fn answer(
        &self,
        state: &mut State,
        call: u64,
        limit: Duration,
    ) -> Result<(Answer, u64), Fault> {
        let deadline = Instant::now() + limit;
        loop {
            let Incoming::Frame { content, at_ns } = self.wait(state, deadline, limit)? else {
                return Err(malformed("a second greeting"));
            };
            let (number, answer) = match serde_json::from_slice(&content).map_err(malformed)? {
                ToController::<Box<RawValue>>::Heartbeat => continue,
                ToController::Clock { number, ns } => (number, Answer::Clock(ns)),
                ToController::Report { number, report } => (number, Answer::Report(report)),
                ToController::Refused { number, why } => (number, Answer::Refused(why)),
            };
            match number.cmp(&call) {
                std::cmp::Ordering::Equal => return Ok((answer, at_ns)),
                // The answer to a call whose wait was interrupted.
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Greater => return Err(malformed("an answer to no call")),
            }
        }
    }

    /// Waits for whatever comes next.
    fn wait(
        &self,
        state: &mut State,
        deadline: Instant,
        limit: Duration,
    ) -> Result<Incoming, Fault> {
        loop {
            match state.link.next(POLL.min(deadline.saturating_duration_since(Instant::now()))) {
                Some(Incoming::Ended(why)) => return Err(self.ended(&why)),
                Some(other) => return Ok(other),
                None => {}
            }
            if Instant::now() >= deadline {
                let said = self.child.as_ref().map(Child::said).unwrap_or_default();
                return Err(Fault::Late { limit, said });
            }
            let silent_ns = Clock::default().now_ns().saturating_sub(state.link.heard_ns());
            if state.link.is_kept_alive() && silent_ns > SILENCE.as_nanos() as u64 {
                return Err(Fault::Silent(SILENCE));
            }
        }
    }

    /// The agent's output ended.
    fn ended(&self, why: &frame::FrameError) -> Fault {
        match why {
            frame::FrameError::TooLong(_) => malformed(why),
            _ => Fault::Ended { said: self.said_last() },
        }
    }

    /// Something else than an agent answered, with this output.
    fn no_agent(&self, printed: &[u8]) -> Fault {
        let said = format!("{}\n{}", String::from_utf8_lossy(printed), self.said_last());
        let remedy = self.child.as_ref().map_or_else(String::new, Child::remedy);
        Fault::NoAgent { said: said.trim().to_owned(), remedy }
    }

    /// What the command printed to standard error before it ended.
    fn said_last(&self) -> String {
        self.child.as_ref().map(Child::said_last).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to a call.
enum Answer {
    Report(Box<RawValue>),
    Refused(String),
    Clock(u64),
}

impl State {
    /// The number of the next call.
    fn next(&mut self) -> Result<u64, Fault> {
        if let Some(fault) = &self.closed {
            return Err(fault.clone());
        }
        self.number += 1;
        Ok(self.number)
    }

    /// Closes the link if the result is an error after which nothing can be relied on.
    fn close_on<T>(&mut self, result: Result<T, Fault>) -> Result<T, Fault> {
        if let Err(fault) = &result
            && !matches!(fault, Fault::Refused(_))
        {
            self.link.close();
            self.closed = Some(fault.clone());
        }
        result
    }
}

const CONNECTING: &str = "connecting";

fn error(command: &str, phase: &str, fault: Fault) -> ChannelError {
    ChannelError { command: command.to_owned(), phase: phase.to_owned(), fault }
}

fn malformed(why: impl std::fmt::Display) -> Fault {
    Fault::Malformed(format!("the agent and this program do not understand each other: {why}"))
}
