//! The agent's end of a channel. The agent accepts orders only from its input. It ends when the
//! input closes, or when nothing has arrived for 15 s.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::clock::Clock;
use crate::frame::{self, FrameError};
use crate::message::{AgentRole, AgentService, Answer, Hello, SILENCE, ToAgent, ToController};

/// How long an order under way may delay the agent's end.
const GRACE: Duration = Duration::from_millis(1_500);

/// How often the agent checks whether it should end.
const POLL: Duration = Duration::from_millis(100);

/// Why an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The controller closed the channel.
    Closed,
    /// Nothing had arrived from the controller for 15 s.
    Silent,
    /// The controller has another version, or is not a controller at all.
    Mismatch,
}

/// Serves one controller, whose orders come from `input`. `open` returns the service that carries
/// out the orders of a role. `end` ends the process and need not return. It is called if the agent
/// is still busy 1.5 s after it should have ended.
pub fn serve(
    mut input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    clock: Clock,
    open: impl FnOnce(AgentRole) -> Result<Box<dyn AgentService>, String>,
    end: impl Fn() + Send + 'static,
) -> Ending {
    let wire = Arc::new(Wire::new(output, clock));
    let _over = Over(wire.clone());
    watch(wire.clone(), end);
    let Some(role) = greet(&mut input, &wire) else { return Ending::Mismatch };
    let mut service = open(role);
    let (orders, inbox) = mpsc::channel();
    let reading = wire.clone();
    std::thread::spawn(move || read_all(Heard { input, wire: reading }, &orders));
    work(&wire, &inbox, |order| match &mut service {
        Ok(service) => service.carry_out(order),
        Err(why) => Err(why.clone()),
    })
}

/// Exchanges hellos. Returns the role that the controller asks for, or `None` if no valid hello of
/// the same version comes.
fn greet(input: &mut impl Read, wire: &Wire) -> Option<AgentRole> {
    wire.write(frame::MARKER).ok()?;
    let theirs: Hello = serde_json::from_slice(&frame::read(input).ok()?).ok()?;
    wire.hear();
    let ours = Hello::own(theirs.role);
    wire.write(&frame::encode(&ours).ok()?).ok()?;
    ours.matches(&theirs).then_some(theirs.role)
}

/// Carries out orders one after another.
fn work(
    wire: &Wire,
    inbox: &Receiver<(u64, Box<RawValue>)>,
    mut carry_out: impl FnMut(&RawValue) -> Answer,
) -> Ending {
    loop {
        match inbox.recv_timeout(POLL) {
            Ok((number, order)) => {
                let answer = match carry_out(&order) {
                    Ok(report) => ToController::Report { number, report },
                    Err(why) => ToController::Refused { number, why },
                };
                if wire.say(&answer, number).is_err() {
                    return Ending::Closed;
                }
            }
            Err(RecvTimeoutError::Timeout) if wire.is_silent() => return Ending::Silent,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ending::Closed,
        }
    }
}

/// Reads messages. Answers heartbeats and requests for the time at once, and passes orders on.
fn read_all(mut input: Heard<impl Read>, orders: &Sender<(u64, Box<RawValue>)>) {
    let wire = input.wire.clone();
    while let Ok(content) = frame::read(&mut input) {
        let Ok(message) = serde_json::from_slice(&content) else { break };
        let said = match message {
            ToAgent::Heartbeat => wire.say(&ToController::<()>::Heartbeat, 0),
            ToAgent::Clock { number } => {
                wire.say(&ToController::<()>::Clock { number, ns: wire.clock.now_ns() }, number)
            }
            ToAgent::Order { number, order } => {
                orders.send((number, order)).map_err(|_| FrameError::Closed)
            }
        };
        if said.is_err() {
            break;
        }
    }
    wire.is_closed.store(true, Ordering::Relaxed);
}

/// Ends the process if the agent should have ended and has not.
fn watch(wire: Arc<Wire>, end: impl Fn() + Send + 'static) {
    std::thread::spawn(move || {
        let mut late = Duration::ZERO;
        while !wire.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(POLL);
            late = if wire.is_closed.load(Ordering::Relaxed) || wire.is_silent() {
                late + POLL
            } else {
                Duration::ZERO
            };
            if late > GRACE {
                return end();
            }
        }
    });
}

/// The state that the threads of an agent share.
struct Wire {
    output: Mutex<Box<dyn Write + Send>>,
    clock: Clock,
    heard_ns: AtomicU64,
    /// Whether the controller has closed the channel.
    is_closed: AtomicBool,
    /// Whether the agent has ended normally.
    is_over: AtomicBool,
}

impl Wire {
    fn new(output: impl Write + Send + 'static, clock: Clock) -> Self {
        Self {
            output: Mutex::new(Box::new(output)),
            clock,
            heard_ns: AtomicU64::new(clock.now_ns()),
            is_closed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    fn hear(&self) {
        self.heard_ns.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    fn is_silent(&self) -> bool {
        let heard_ns = self.heard_ns.load(Ordering::Relaxed);
        self.clock.now_ns().saturating_sub(heard_ns) > SILENCE.as_nanos() as u64
    }

    /// Writes a message. If a report is too long, writes a refusal with the cause instead.
    fn say(&self, message: &ToController<impl Serialize>, number: u64) -> Result<(), FrameError> {
        let frame = frame::encode(message).or_else(|why| {
            frame::encode(&ToController::<()>::Refused { number, why: why.to_string() })
        })?;
        self.write(&frame).map_err(|_| FrameError::Closed)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        frame::write(&mut *output, bytes)
    }
}

/// A guard that tells the watching thread, when dropped, that the agent has ended.
struct Over(Arc<Wire>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// A stream that records when bytes arrive, so that a long message does not look like silence.
struct Heard<R> {
    input: R,
    wire: Arc<Wire>,
}

impl<R: Read> Read for Heard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.wire.hear();
        Ok(count)
    }
}
