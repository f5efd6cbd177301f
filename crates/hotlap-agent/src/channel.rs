//! The controller's end of a channel to an agent.
//!
//! Every wait has a limit, and an interrupt ends the waits that are under way. Dropping the
//! channel always ends the command, and with it the agent and everything that the agent started.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::clock::{Clock, Offset};
use crate::command::{AgentCommand, Child};
use crate::error::{CONNECTING, ChannelError, ChannelFault};
use crate::frame::{self, FrameError};
use crate::message::{AgentRole, Hello, Order, SILENCE, ToAgent, ToController};

/// How often the controller sends a heartbeat to the agent.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// How often a wait checks for an interrupt and for silence.
const POLL: Duration = Duration::from_millis(50);

/// The usual number of times that two clocks are compared. After [`COMPARING`], three comparisons
/// are enough.
const EXCHANGES: usize = 16;

/// After this time, three comparisons of two clocks are enough.
const COMPARING: Duration = Duration::from_secs(1);

/// A channel to an agent. Dropping the channel closes the agent's input, and ends the command if
/// it has not ended after 2 s.
#[derive(Debug)]
pub struct Channel {
    command: String,
    hello: Hello,
    state: Mutex<State>,
    /// Whether the user has interrupted.
    stop: Arc<AtomicBool>,
    /// The command's process. It is dropped after the link, because closing the link tells the
    /// command to end.
    child: Option<Child>,
}

/// How long to wait for an answer.
#[derive(Clone, Copy)]
struct Patience {
    until: Instant,
    limit: Duration,
    /// Whether the wait began after an interrupt. Calls that clean up after an interrupt get their
    /// full time limit.
    is_after_interrupt: bool,
}

#[derive(Debug)]
struct State {
    link: Link,
    /// The number of the latest call.
    number: u64,
    /// Why the channel cannot be used.
    closed: Option<ChannelFault>,
}

impl Channel {
    /// Starts the command and waits until an agent of the same version answers, for at most
    /// `limit`. Setting `stop` ends the wait of every call that began earlier.
    ///
    /// # Errors
    /// Fails if no agent of the same version answers in time, or if the user interrupts.
    pub fn open(
        command: &AgentCommand,
        role: AgentRole,
        limit: Duration,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, ChannelError> {
        let fail = |fault| error(&command.to_string(), CONNECTING, fault);
        let (child, output, input) = Child::start(command).map_err(&fail)?;
        let link = Link::new(output, input);
        Self::connect(&command.to_string(), role, limit, link, stop, Some(child))
    }

    /// Connects to an agent that reads what is written to `output`, and whose own output is
    /// `input`. Error messages contain `name` instead of a command.
    ///
    /// # Errors
    /// Fails like [`Channel::open`].
    pub fn over(
        name: &str,
        role: AgentRole,
        limit: Duration,
        output: impl Write + Send + 'static,
        input: impl Read + Send + 'static,
    ) -> Result<Self, ChannelError> {
        Self::connect(name, role, limit, Link::new(output, input), &Arc::default(), None)
    }

    fn connect(
        name: &str,
        role: AgentRole,
        limit: Duration,
        link: Link,
        stop: &Arc<AtomicBool>,
        child: Option<Child>,
    ) -> Result<Self, ChannelError> {
        let ours = Hello::own(role);
        let state = State { link, number: 0, closed: None };
        let mut channel = Self {
            command: name.to_owned(),
            hello: ours.clone(),
            state: Mutex::new(state),
            stop: Arc::clone(stop),
            child,
        };
        let greeted = channel.greet(&ours, limit);
        channel.hello = greeted.map_err(|fault| error(name, CONNECTING, fault))?;
        Ok(channel)
    }

    /// Exchanges hellos, and checks that the versions match.
    fn greet(&self, ours: &Hello, limit: Duration) -> Result<Hello, ChannelFault> {
        let mut state = self.lock();
        let patience = self.patience(limit);
        let fault = |fault: ChannelFault| match fault {
            ChannelFault::Ended { .. } => self.no_agent(&[]),
            other => other,
        };
        match self.wait(&mut state, patience).map_err(fault)? {
            Incoming::Marker => {}
            Incoming::NoMarker(printed) => return Err(self.no_agent(&printed)),
            _ => return Err(malformed("a message before the greeting")),
        }
        state.link.send(frame::encode(ours).map_err(malformed)?);
        let Incoming::Frame { content, .. } = self.wait(&mut state, patience).map_err(fault)?
        else {
            return Err(malformed("no greeting"));
        };
        let theirs: Hello = serde_json::from_slice(&content).map_err(malformed)?;
        if !theirs.matches(ours) {
            return Err(ChannelFault::Mismatch {
                theirs: theirs.into(),
                ours: ours.clone().into(),
            });
        }
        state.link.keep_alive();
        Ok(theirs)
    }

    /// Returns this channel with another `stop` flag. Setting `stop` ends the wait of every call
    /// that began earlier.
    pub fn interrupted_by(self, stop: &Arc<AtomicBool>) -> Self {
        Self { stop: Arc::clone(stop), ..self }
    }

    /// The command as the user typed it, or the name given to [`Channel::over`].
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The name of the agent's host, as that host calls itself.
    pub fn host(&self) -> &str {
        &self.hello.host
    }

    /// Why all further calls fail, if an earlier call failed for good.
    pub fn closed(&self) -> Option<ChannelError> {
        let fault = self.lock().closed.clone()?;
        Some(error(&self.command, "carrying out an order", fault))
    }

    /// Tells the agent to carry out an order, and returns the agent's report.
    ///
    /// # Errors
    /// Fails if the agent refuses the order, ends, does not answer within the order's limit, or
    /// sends nothing at all for 15 s. An interrupt by the user is an error too. After a refusal,
    /// an interrupt or an order that is too long to send, the channel stays open. Otherwise the
    /// channel is closed, and all later calls fail.
    pub fn call<O: Order>(&self, order: O) -> Result<O::Report, ChannelError> {
        self.exchange(order).map_err(|fault| error(&self.command, O::PHASE, fault))
    }

    fn exchange<O: Order>(&self, order: O) -> Result<O::Report, ChannelFault> {
        let mut state = self.lock();
        let (number, patience) = (state.next()?, self.patience(order.limit()));
        let order = ToAgent::Order { number, order: O::All::from(order) };
        state.link.send(frame::encode(&order).map_err(too_long)?);
        let answer = self.answer(&mut state, number, patience);
        let report = answer.and_then(|(answer, _)| match answer {
            Answer::Report(json) => serde_json::from_str(json.get()).map_err(malformed),
            Answer::Clock(_) => Err(malformed("a time instead of a report")),
        });
        state.close_on(report)
    }

    /// The longest time, since the last call of this method, for which an answer was due and
    /// nothing arrived.
    pub fn silence(&self) -> Duration {
        self.lock().link.silence()
    }

    /// Compares the agent's monotonic clock with this host's, for at most `limit`. The comparison
    /// with the shortest round trip counts.
    ///
    /// # Errors
    /// Fails like [`Channel::call`].
    pub fn clock(&self, limit: Duration) -> Result<Offset, ChannelError> {
        self.compare_clocks(limit).map_err(|fault| error(&self.command, "comparing clocks", fault))
    }

    fn compare_clocks(&self, limit: Duration) -> Result<Offset, ChannelFault> {
        let mut state = self.lock();
        let (began, patience) = (Instant::now(), self.patience(limit));
        let mut best: Option<Offset> = None;
        for count in 0..EXCHANGES {
            if count >= 3 && began.elapsed() > COMPARING {
                break;
            }
            let number = state.next()?;
            let request = ToAgent::<()>::Clock { number };
            state.link.send_stamped(frame::encode(&request).map_err(malformed)?);
            let answer = self.answer(&mut state, number, patience);
            let times = answer.and_then(|(answer, received_ns)| match answer {
                Answer::Clock(remote_ns) => Ok((remote_ns, received_ns)),
                Answer::Report(_) => Err(malformed("a report instead of a time")),
            });
            let (remote_ns, received_ns) = state.close_on(times)?;
            let offset = Offset::of(state.link.sent_ns(), remote_ns, received_ns);
            if best.is_none_or(|best| offset.error_ns < best.error_ns) {
                best = Some(offset);
            }
        }
        Ok(best.unwrap_or_default())
    }

    fn patience(&self, limit: Duration) -> Patience {
        let is_after_interrupt = self.stop.load(Ordering::Relaxed);
        Patience { until: Instant::now() + limit, limit, is_after_interrupt }
    }

    /// Waits for the answer to a call, and returns the answer with the time at which it came.
    fn answer(
        &self,
        state: &mut State,
        call: u64,
        patience: Patience,
    ) -> Result<(Answer, u64), ChannelFault> {
        loop {
            let Incoming::Frame { content, at_ns } = self.wait(state, patience)? else {
                return Err(malformed("a second greeting"));
            };
            let (number, found) = match serde_json::from_slice(&content).map_err(malformed)? {
                ToController::<Box<RawValue>>::Heartbeat => continue,
                ToController::Clock { number, ns } => (number, Ok(Answer::Clock(ns))),
                ToController::Report { number, report } => (number, Ok(Answer::Report(report))),
                ToController::Refused { number, why } => (number, Err(ChannelFault::Refused(why))),
            };
            match number.cmp(&call) {
                std::cmp::Ordering::Equal => return found.map(|answer| (answer, at_ns)),
                // This answer belongs to a call whose wait was interrupted.
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Greater => return Err(malformed("an answer to no call")),
            }
        }
    }

    /// Waits for the next message or the end of the stream.
    fn wait(&self, state: &mut State, patience: Patience) -> Result<Incoming, ChannelFault> {
        let Patience { until, limit, is_after_interrupt } = patience;
        loop {
            match state.link.next(POLL.min(until.saturating_duration_since(Instant::now()))) {
                Some(Incoming::Ended(why)) => return Err(self.ended(&why)),
                Some(other) => return Ok(other),
                None => {}
            }
            if !is_after_interrupt && self.stop.load(Ordering::Relaxed) {
                return Err(ChannelFault::Interrupted);
            }
            if Instant::now() >= until {
                let said = self.child.as_ref().map(Child::said).unwrap_or_default();
                return Err(ChannelFault::Late { limit, said });
            }
            let silent_ns = Clock::default().now_ns().saturating_sub(state.link.heard_ns());
            if state.link.is_kept_alive() && silent_ns > SILENCE.as_nanos() as u64 {
                return Err(ChannelFault::Silent(SILENCE));
            }
        }
    }

    /// Returns the fault for an agent whose output ended.
    fn ended(&self, why: &FrameError) -> ChannelFault {
        match why {
            FrameError::TooLong(_) => malformed(why),
            _ => ChannelFault::Ended { said: self.said_last() },
        }
    }

    /// Returns the fault for a command that printed these bytes, and is not an agent.
    fn no_agent(&self, printed: &[u8]) -> ChannelFault {
        let said = format!("{}\n{}", String::from_utf8_lossy(printed), self.said_last());
        let remedy = self.child.as_ref().map_or_else(String::new, Child::remedy);
        ChannelFault::NoAgent { said: said.trim().to_owned(), remedy }
    }

    /// Waits briefly for the command to end, and returns the end of its standard error.
    fn said_last(&self) -> String {
        self.child.as_ref().map(Child::said_last).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the reading thread receives from an agent.
#[derive(Debug)]
enum Incoming {
    /// The agent's first bytes.
    Marker,
    /// The output has no marker. These are its first bytes.
    NoMarker(Vec<u8>),
    /// A message, and the time at which it arrived, in nanoseconds of this host's clock.
    Frame { content: Vec<u8>, at_ns: u64 },
    /// The stream has ended.
    Ended(FrameError),
}

/// The answer to a call.
enum Answer {
    Report(Box<RawValue>),
    Clock(u64),
}

impl State {
    /// Returns the number of the next call.
    fn next(&mut self) -> Result<u64, ChannelFault> {
        if let Some(fault) = &self.closed {
            return Err(fault.clone());
        }
        self.number += 1;
        Ok(self.number)
    }

    /// Closes the link if the result is an error after which the channel cannot be trusted.
    fn close_on<T>(&mut self, result: Result<T, ChannelFault>) -> Result<T, ChannelFault> {
        if let Err(fault) = &result
            && !matches!(fault, ChannelFault::Refused(_) | ChannelFault::Interrupted)
        {
            self.link.close();
            self.closed = Some(fault.clone());
        }
        result
    }
}

fn error(command: &str, phase: &str, fault: ChannelFault) -> ChannelError {
    ChannelError { command: command.to_owned(), phase: phase.to_owned(), fault }
}

/// An order that is too long is not sent, so the channel remains open. Only the requests of a load
/// can be that long.
fn too_long(why: impl std::fmt::Display) -> ChannelFault {
    ChannelFault::Refused(format!("{why}: use fewer requests or a shorter access log"))
}

fn malformed(why: impl std::fmt::Display) -> ChannelFault {
    ChannelFault::Malformed(format!(
        "the agent and this program do not understand each other: {why}"
    ))
}

/// The two streams of a channel. One thread writes, so that no call blocks while the agent does
/// not read. Another thread reads. Nothing joins the threads: the writing thread ends once the
/// link is closed or a write fails, and the reading thread ends with its stream.
#[derive(Debug)]
struct Link {
    /// The queue of outgoing messages. `None` once the link is closed.
    outbox: Option<Sender<Outgoing>>,
    inbox: Receiver<Incoming>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// When the latest byte arrived.
    heard_ns: AtomicU64,
    /// When the latest stamped message was written.
    sent_ns: AtomicU64,
    /// The time since which an answer has been due: when the first message after the latest
    /// arrival was sent. 0 if no answer is due.
    due_ns: AtomicU64,
    /// The longest time that an answer took since the latest call of [`Link::silence`].
    longest_ns: AtomicU64,
    /// Whether heartbeats are sent.
    heartbeats: AtomicBool,
}

struct Outgoing {
    frame: Vec<u8>,
    is_stamped: bool,
}

impl Link {
    fn new(output: impl Write + Send + 'static, input: impl Read + Send + 'static) -> Self {
        let (outbox, orders) = mpsc::channel();
        let (answers, inbox) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        shared.heard_ns.store(Clock::default().now_ns(), Ordering::Relaxed);
        let (writing, reading) = (shared.clone(), shared.clone());
        std::thread::spawn(move || write_all(output, &orders, &writing));
        std::thread::spawn(move || read_all(Heard { input, shared: reading }, &answers));
        Self { outbox: Some(outbox), inbox, shared }
    }

    fn send(&self, frame: Vec<u8>) {
        self.enqueue(frame, false);
    }

    /// Sends a message and records when it is written.
    fn send_stamped(&self, frame: Vec<u8>) {
        self.enqueue(frame, true);
    }

    /// Sends a message. If the link has ended, the next wait returns the cause.
    fn enqueue(&self, frame: Vec<u8>, is_stamped: bool) {
        if let Some(outbox) = &self.outbox {
            let _ = outbox.send(Outgoing { frame, is_stamped });
        }
    }

    /// Returns the next item from the agent. `None` if nothing arrives within `limit`.
    fn next(&self, limit: Duration) -> Option<Incoming> {
        match self.inbox.recv_timeout(limit) {
            Ok(incoming) => Some(incoming),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Incoming::Ended(FrameError::Closed)),
        }
    }

    /// Sends heartbeats from now on.
    fn keep_alive(&self) {
        self.shared.heartbeats.store(true, Ordering::Relaxed);
    }

    fn is_kept_alive(&self) -> bool {
        self.shared.heartbeats.load(Ordering::Relaxed)
    }

    /// When the latest byte arrived.
    fn heard_ns(&self) -> u64 {
        self.shared.heard_ns.load(Ordering::Relaxed)
    }

    /// The longest time, since the last call of this method, for which an answer was due and
    /// nothing arrived. The agent answers heartbeats at once, so only a gap that is shorter than
    /// the heartbeat interval may be missed.
    fn silence(&self) -> Duration {
        let longest = self.shared.longest_ns.swap(0, Ordering::Relaxed);
        let present = match self.shared.due_ns.load(Ordering::Relaxed) {
            0 => 0,
            since => Clock::default().now_ns().saturating_sub(since),
        };
        Duration::from_nanos(longest.max(present))
    }

    /// When the latest stamped message was written.
    fn sent_ns(&self) -> u64 {
        self.shared.sent_ns.load(Ordering::Acquire)
    }

    /// Closes the agent's input once all messages are written.
    fn close(&mut self) {
        self.outbox = None;
    }
}

impl Shared {
    /// Records that an answer is due from now on. Returns the current time.
    fn expect_answer(&self) -> u64 {
        let now_ns = Clock::default().now_ns();
        let _ = self.due_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        now_ns
    }

    /// Records that something arrived.
    fn hear(&self) {
        let now_ns = Clock::default().now_ns();
        self.heard_ns.store(now_ns, Ordering::Relaxed);
        match self.due_ns.swap(0, Ordering::Relaxed) {
            0 => {}
            since => _ = self.longest_ns.fetch_max(now_ns.saturating_sub(since), Ordering::Relaxed),
        }
    }
}

fn write_all(mut output: impl Write, orders: &Receiver<Outgoing>, shared: &Shared) {
    let heartbeat = frame::encode(&ToAgent::<()>::Heartbeat).unwrap_or_default();
    loop {
        let written = match orders.recv_timeout(HEARTBEAT) {
            Ok(Outgoing { frame, is_stamped }) => {
                let now_ns = shared.expect_answer();
                if is_stamped {
                    shared.sent_ns.store(now_ns, Ordering::Release);
                }
                frame::write(&mut output, &frame)
            }
            Err(RecvTimeoutError::Timeout) if shared.heartbeats.load(Ordering::Relaxed) => {
                shared.expect_answer();
                frame::write(&mut output, &heartbeat)
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // The reader notices when the agent ends.
        if written.is_err() {
            return;
        }
    }
}

fn read_all(mut input: impl Read, answers: &Sender<Incoming>) {
    let heartbeat = serde_json::to_vec(&ToController::<()>::Heartbeat).unwrap_or_default();
    let greeting = match frame::skip_to_marker(&mut input) {
        Ok(()) => Incoming::Marker,
        Err(printed) => {
            let _ = answers.send(Incoming::NoMarker(printed));
            return;
        }
    };
    let mut next = greeting;
    while answers.send(next).is_ok() {
        next = loop {
            match frame::read(&mut input) {
                Ok(content) if content == heartbeat => {}
                Ok(content) => {
                    let at_ns = Clock::default().now_ns();
                    break Incoming::Frame { content, at_ns };
                }
                Err(why) => {
                    let _ = answers.send(Incoming::Ended(why));
                    return;
                }
            }
        };
    }
}

/// A stream that records when bytes arrive, so that a long message does not look like silence.
struct Heard<R> {
    input: R,
    shared: Arc<Shared>,
}

impl<R: Read> Read for Heard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.shared.hear();
        Ok(count)
    }
}

/// Applies a function to all items of a list at the same time.
pub(crate) fn together<T: Sync, R: Send>(list: &[T], does: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if let [only] = list {
        return vec![does(only)];
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = list.iter().map(|one| scope.spawn(|| does(one))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        // If a thread panicked, this thread panics too.
        joined.map(|result| result.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
    })
}

/// Returns all results, or the first error.
pub(crate) fn all<T>(results: Vec<Result<T, ChannelError>>) -> Result<Vec<T>, ChannelError> {
    results.into_iter().collect()
}
