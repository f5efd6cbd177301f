//! The generator role: what an agent does that generates load.

mod pauses;

use std::time::{Duration, Instant};

use hotlap_load::plan::{Plan, Request, Target};
use hotlap_load::{Outcome, Progress, Session};
use hotlap_servers::contract::Contract;
use hotlap_servers::infer::infer;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::message::Order;
use crate::serve::Service;
use pauses::Pauses;

/// What a generator is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum GeneratorOrder {
    /// Probe a server for its responses.
    Probe(Box<Probe>),
    /// Open the connections of a load.
    Prepare(Box<Plan>),
    /// Begin to send.
    Begin {
        /// When, in nanoseconds of the generator's monotonic clock.
        at_ns: u64,
    },
    /// Open the connections of a load that is held between windows, and send between them.
    Hold(Box<Plan>),
    /// Open a window of a load that is held.
    Open {
        /// When, in nanoseconds of the generator's monotonic clock.
        at_ns: u64,
        /// For how long.
        length: Duration,
    },
    /// Send nothing until the next window of a load that is held.
    Pause {
        /// How long to wait for requests in flight.
        limit: Duration,
    },
    /// Hand over the outcome of the windows of a load that is held.
    Collect,
    /// Say how far the load has come.
    Status,
    /// End the load now and keep what was measured.
    Stop,
    /// Hand over the outcome of a load that has ended.
    Join,
}

/// What a generator answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum GeneratorReport {
    /// The responses of the server.
    Probed(Box<Probed>),
    /// The order was carried out.
    Done,
    /// The load begins.
    Begun(Begun),
    /// Whether no request is in flight.
    Paused(bool),
    /// How far the load has come.
    Status(Status),
    /// The outcome of the load, or of the windows since the last one.
    Joined(Box<Joined>),
}

/// A server to probe.
#[derive(Debug, Serialize, Deserialize)]
pub struct Probe {
    /// Its address.
    pub target: Target,
    /// The host that requests name.
    pub host: String,
    /// The time limit for one response.
    pub limit: Duration,
    /// The requests to send.
    pub contract: Contract,
}

/// Requests, and what probes found out about their responses.
#[derive(Debug, Serialize, Deserialize)]
pub struct Probed {
    /// The requests with their expected responses.
    pub requests: Vec<Request>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// The beginning of a load, or of a window of a load that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Begun {
    /// How much later than asked it begins, in nanoseconds.
    pub late_ns: u64,
    /// When its window opens, in nanoseconds of the generator's monotonic clock.
    pub opens_ns: u64,
}

/// How far a load has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// Whether each connection is open or has failed once.
    pub is_ready: bool,
    /// Whether the load has ended.
    pub is_finished: bool,
    /// Its counts.
    pub progress: Progress,
}

/// The outcome of a load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Joined {
    /// What happened.
    pub outcome: Outcome,
    /// The longest time within the window for which the generator's process did not run, in
    /// nanoseconds, as far as it was noticed: 50 ms and more.
    pub paused_ns: u64,
}

impl Order for GeneratorOrder {
    type Report = GeneratorReport;

    fn phase(&self) -> &'static str {
        match self {
            Self::Probe(_) => "probing the server",
            Self::Prepare(_) => "opening connections",
            Self::Begin { .. } => "starting the load",
            Self::Hold(_) => "starting the load",
            Self::Open { .. } => "opening a window",
            Self::Pause { .. } => "pausing the load",
            Self::Collect => "collecting the outcome",
            Self::Status => "loading",
            Self::Stop => "stopping the load",
            Self::Join => "collecting the outcome",
        }
    }
}

/// Carries out the orders of a generator.
#[derive(Debug)]
pub struct Generator {
    clock: Clock,
    session: Option<Session>,
    begun: Option<(Begun, Pauses)>,
}

impl Generator {
    /// A generator whose times are those of this clock.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, session: None, begun: None }
    }

    fn session(&self) -> Result<&Session, String> {
        self.session.as_ref().ok_or_else(|| "there is no load".to_owned())
    }

    fn prepare(&mut self, plan: &Plan) -> Result<(), String> {
        // The last load ends first.
        (self.session, self.begun) = (None, None);
        self.session = Some(Session::start_waiting(plan).map_err(|e| e.to_string())?);
        Ok(())
    }

    fn begin(&mut self, at_ns: u64) -> Result<Begun, String> {
        let pauses = Pauses::watch(self.clock);
        let (now_ns, now) = (self.clock.now_ns(), Instant::now());
        let late_ns = now_ns.saturating_sub(at_ns);
        let wait = Duration::from_nanos(at_ns.saturating_sub(now_ns));
        let start = (now + wait).checked_sub(Duration::from_nanos(late_ns)).unwrap_or(now);
        let window = self.session()?.begin(start);
        let window = window.ok_or("the load is not ready, or has ended")?;
        let opens_after = window.opens.saturating_duration_since(now).as_nanos() as u64;
        let begun = Begun { late_ns, opens_ns: now_ns + opens_after };
        self.begun = Some((begun, pauses));
        Ok(begun)
    }

    fn hold(&mut self, plan: &Plan) -> Result<(), String> {
        (self.session, self.begun) = (None, None);
        self.session = Some(Session::start_held(plan).map_err(|e| e.to_string())?);
        Ok(())
    }

    /// Opens a window; what of it has passed is cut off.
    fn open(&mut self, at_ns: u64, length: Duration) -> Result<Begun, String> {
        let session = self.session()?;
        if !session.is_ready() {
            return Err("the load is not ready, or has ended".to_owned());
        }
        let (now_ns, now) = (self.clock.now_ns(), Instant::now());
        let late_ns = now_ns.saturating_sub(at_ns);
        let wait = Duration::from_nanos(at_ns.saturating_sub(now_ns));
        let length = length.saturating_sub(Duration::from_nanos(late_ns));
        let window = session.open_window(wait, length);
        let opens_after = window.opens.saturating_duration_since(now).as_nanos() as u64;
        let begun = Begun { late_ns, opens_ns: now_ns + opens_after };
        match &mut self.begun {
            // Pauses since the first window that is not collected count.
            Some(_) => {}
            None => self.begun = Some((begun, Pauses::watch(self.clock))),
        }
        Ok(begun)
    }

    fn collect(&mut self) -> Result<Joined, String> {
        let outcome = self.session()?.collect().ok_or("the load has ended")?;
        let now_ns = self.clock.now_ns();
        let since = self.begun.take();
        let paused_ns =
            since.map_or(0, |(begun, pauses)| pauses.longest_ns(begun.opens_ns, now_ns));
        Ok(Joined { outcome, paused_ns })
    }

    fn status(&self) -> Result<Status, String> {
        let session = self.session()?;
        Ok(Status {
            is_ready: session.is_ready(),
            is_finished: session.is_finished(),
            progress: session.progress(),
        })
    }

    fn join(&mut self) -> Result<Joined, String> {
        let session = self.session.take().ok_or("there is no load")?;
        session.stop();
        let outcome = session.join().map_err(|e| e.to_string())?;
        let paused_ns = self.begun.take().map_or(0, |(begun, pauses)| {
            pauses.longest_ns(begun.opens_ns, begun.opens_ns + outcome.window_ns)
        });
        Ok(Joined { outcome, paused_ns })
    }
}

impl Service for Generator {
    type Order = GeneratorOrder;

    fn carry_out(&mut self, order: GeneratorOrder) -> Result<GeneratorReport, String> {
        Ok(match order {
            GeneratorOrder::Probe(probe) => GeneratorReport::Probed(Box::new(probe.run()?)),
            GeneratorOrder::Prepare(plan) => {
                self.prepare(&plan)?;
                GeneratorReport::Done
            }
            GeneratorOrder::Begin { at_ns } => GeneratorReport::Begun(self.begin(at_ns)?),
            GeneratorOrder::Hold(plan) => {
                self.hold(&plan)?;
                GeneratorReport::Done
            }
            GeneratorOrder::Open { at_ns, length } => {
                GeneratorReport::Begun(self.open(at_ns, length)?)
            }
            GeneratorOrder::Pause { limit } => {
                GeneratorReport::Paused(self.session()?.pause(limit))
            }
            GeneratorOrder::Collect => GeneratorReport::Joined(Box::new(self.collect()?)),
            GeneratorOrder::Status => GeneratorReport::Status(self.status()?),
            GeneratorOrder::Stop => {
                self.session()?.stop();
                GeneratorReport::Done
            }
            GeneratorOrder::Join => GeneratorReport::Joined(Box::new(self.join()?)),
        })
    }
}

impl Probe {
    fn run(&self) -> Result<Probed, String> {
        let inferred = infer(&self.target, &self.host, self.limit, &self.contract)?;
        let requests = inferred.contract.requests(&self.host, &inferred.answers);
        Ok(Probed { requests, notes: inferred.notes })
    }
}
