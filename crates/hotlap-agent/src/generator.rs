//! The generator role: what an agent does that generates load.

mod pauses;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Plan, Request, Target};
use hotlap_load::{Outcome, Progress, Session, ValuesUsed};
use hotlap_servers::contract::Contract;
use hotlap_servers::cpus;
use hotlap_servers::infer::infer;
use hotlap_servers::machine::Machine;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::message::Order;
use crate::serve::Service;
use crate::server::{boot, reach};
use crate::together::together;
use pauses::Pauses;

/// What a generator is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum GeneratorOrder {
    /// Describe the host.
    Describe,
    /// Say at which of these addresses the controller is reached.
    Reach(Door),
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
    /// End the load, if there is one, and close its connections.
    End,
}

/// What a generator answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum GeneratorReport {
    /// The host.
    Described(Box<HostDescription>),
    /// The addresses that are reached, in the order in which they were asked for.
    Reached(Vec<IpAddr>),
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
    /// The load has ended, after it used at most this many values of its fields.
    Ended(u64),
}

/// The host of a generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostDescription {
    /// The machine.
    pub machine: Machine,
    /// The cores that the generator may use; empty if they are not known.
    pub cores: Vec<usize>,
    /// A number that the kernel made when it started; empty if unknown. Agents in namespaces or
    /// containers of one machine have the same.
    pub boot: String,
}

impl HostDescription {
    /// This host.
    #[must_use]
    pub fn here() -> Self {
        let cores = cpus::allowed().unwrap_or_default();
        Self { machine: Machine::describe(), cores, boot: boot() }
    }

    /// Whether it is the machine of the caller, so that both share its cores.
    #[must_use]
    pub fn is_this_machine(&self) -> bool {
        !self.boot.is_empty() && self.boot == boot()
    }
}

/// Where the controller listens, for a search for the address at which it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    /// The addresses to try.
    pub addresses: Vec<IpAddr>,
    /// The port.
    pub port: u16,
    /// What the controller sends to whoever connects.
    pub secret: String,
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
    /// When they were read, in nanoseconds of the generator's monotonic clock.
    pub at_ns: u64,
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
            Self::Describe => "describing its host",
            Self::Reach(_) => "looking for the servers' address",
            Self::Probe(_) => "probing the server",
            Self::Prepare(_) => "opening connections",
            Self::Begin { .. } => "starting the load",
            Self::Hold(_) => "starting the load",
            Self::Open { .. } => "opening a window",
            Self::Pause { .. } => "pausing the load",
            Self::Collect => "collecting the outcome",
            Self::Status => "loading",
            Self::Stop | Self::End => "stopping the load",
            Self::Join => "collecting the outcome",
        }
    }
}

/// Carries out the orders of a generator.
#[derive(Debug)]
pub struct Generator {
    clock: Clock,
    session: Option<Session>,
    /// How many values of its fields the load uses, or the last one used.
    used: Option<ValuesUsed>,
    /// Since the first window that is not collected.
    pauses: Option<Pauses>,
    /// When each of those windows opened and, of a load that is held, closed.
    windows: Vec<(u64, u64)>,
}

impl Generator {
    /// A generator whose times are those of this clock.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, session: None, used: None, pauses: None, windows: Vec::new() }
    }

    fn session(&self) -> Result<&Session, String> {
        self.session.as_ref().ok_or_else(|| "there is no load".to_owned())
    }

    /// Ends the load, if there is one. Returns how many values of its fields it used at most.
    fn end(&mut self) -> u64 {
        (self.session, self.pauses) = (None, None);
        self.windows.clear();
        self.used.take().map_or(0, |used| used.most())
    }

    /// Keeps a load.
    fn keep(&mut self, session: Session) {
        self.used = Some(session.values_used());
        self.session = Some(session);
    }

    fn prepare(&mut self, plan: &Plan) -> Result<(), String> {
        self.end();
        self.keep(Session::start_waiting(plan).map_err(|e| e.to_string())?);
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
        (self.pauses, self.windows) = (Some(pauses), vec![(begun.opens_ns, u64::MAX)]);
        Ok(begun)
    }

    fn hold(&mut self, plan: &Plan) -> Result<(), String> {
        self.end();
        self.keep(Session::start_held(plan).map_err(|e| e.to_string())?);
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
        self.pauses.get_or_insert_with(|| Pauses::watch(self.clock));
        let closes_ns = begun.opens_ns + length.as_nanos() as u64;
        self.windows.push((begun.opens_ns, closes_ns));
        Ok(begun)
    }

    /// The longest time in a window for which the process stood still.
    fn paused_ns(&mut self) -> u64 {
        let windows = std::mem::take(&mut self.windows);
        let Some(pauses) = self.pauses.take() else { return 0 };
        let longest = |(opens, closes): &(u64, u64)| pauses.longest_ns(*opens, *closes);
        windows.iter().map(longest).max().unwrap_or(0)
    }

    fn collect(&mut self) -> Result<Joined, String> {
        let outcome = self.session()?.collect().ok_or("the load has ended")?;
        Ok(Joined { outcome, paused_ns: self.paused_ns() })
    }

    fn status(&self) -> Result<Status, String> {
        let session = self.session()?;
        Ok(Status {
            is_ready: session.is_ready(),
            is_finished: session.is_finished(),
            progress: session.progress(),
            at_ns: self.clock.now_ns(),
        })
    }

    fn join(&mut self) -> Result<Joined, String> {
        let session = self.session.take().ok_or("there is no load")?;
        session.stop();
        let outcome = session.join().map_err(|e| e.to_string())?;
        if let [(opens, closes @ u64::MAX)] = &mut self.windows[..] {
            *closes = *opens + outcome.window_ns;
        }
        Ok(Joined { outcome, paused_ns: self.paused_ns() })
    }
}

impl Service for Generator {
    type Order = GeneratorOrder;

    fn carry_out(&mut self, order: GeneratorOrder) -> Result<GeneratorReport, String> {
        Ok(match order {
            GeneratorOrder::Describe => {
                GeneratorReport::Described(Box::new(HostDescription::here()))
            }
            GeneratorOrder::Reach(door) => GeneratorReport::Reached(door.reached()),
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
            GeneratorOrder::End => GeneratorReport::Ended(self.end()),
        })
    }
}

impl Door {
    /// The addresses that are reached from here. All are tried at the same time.
    fn reached(&self) -> Vec<IpAddr> {
        let tries = |ip: &&IpAddr| reach::answers(SocketAddr::new(**ip, self.port), &self.secret);
        let tried = together(&self.addresses.iter().collect::<Vec<_>>(), tries);
        self.addresses.iter().zip(tried).filter(|(_, is)| *is).map(|(ip, _)| *ip).collect()
    }
}

impl Probe {
    fn run(&self) -> Result<Probed, String> {
        let inferred = infer(&self.target, &self.host, self.limit, &self.contract)?;
        let requests = inferred.contract.requests(&self.host, &inferred.answers);
        Ok(Probed { requests, notes: inferred.notes })
    }
}
