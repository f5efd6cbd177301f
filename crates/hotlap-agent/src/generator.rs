//! The agent that generates load.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Plan, Request, Stop, Target};
use hotlap_load::{Outcome, Progress, Session, ValuesUsed};
use hotlap_observe::cpus;
use hotlap_servers::contract::Contract;
use hotlap_servers::infer::infer;
use hotlap_servers::machine::Machine;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::reach::{self, boot};

/// The time limit for an order that the generator can carry out at once.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);

/// The time limit for sending a plan or an outcome, which may be megabytes long.
const TRANSFER: Duration = Duration::from_secs(60);

/// How often the thread that watches for pauses looks at the clock.
const INTERVAL: Duration = Duration::from_millis(20);

/// A longer time between two looks at the clock is a pause. Shorter times are common on a busy
/// host.
const PAUSE: Duration = Duration::from_millis(50);

/// The maximum number of pauses that are kept. When there are more, the longest `KEPT / 2` remain.
const KEPT: usize = 1_000;

orders! {
    /// The orders to a generator. Opening a load reports a number, which identifies the load in
    /// later orders.
    GeneratorOrder, carried out by generator: Generator {
        /// Describe the generator's host.
        Describe -> HostDescription, "describing its host", PROMPT => HostDescription::here();
        /// Report which of the controller's addresses this host reaches while the controller's
        /// door is open.
        Reach { addresses: Vec<IpAddr>, port: u16, secret: String } -> Vec<IpAddr>,
            "looking for the servers' address", PROMPT
            => reach::reached(&addresses, port, &secret);
        /// Probe a server for its responses.
        ProbeServer { probe: Probe } -> LearnedRequests,
            "probing the server", probe.longest() => probe.run()?;
        /// Open the connections of a load that has one window.
        Prepare { plan: Plan } -> u64, "opening connections", TRANSFER
            => generator.keep(|clock, pauses| Load::prepare(&plan, clock, pauses))?;
        /// Open the connections of a held load, which also sends requests between windows unless
        /// it is paused.
        Hold { plan: Plan } -> u64, "opening connections", TRANSFER
            => generator.keep(|clock, pauses| Load::hold(&plan, clock, pauses))?;
        /// Begin to send at this time of the generator's clock.
        Begin { id: u64, at_ns: u64 } -> Begun,
            "starting the load", PROMPT => generator.load(id)?.begin(at_ns)?;
        /// Open a window of a load that is held, at this time of the generator's clock.
        Open { id: u64, at_ns: u64, length: Duration } -> Begun,
            "opening a window", PROMPT => generator.load(id)?.open(at_ns, length)?;
        /// Send nothing until the next window of a held load, and wait at most this long for
        /// requests in flight. Reports whether none is left.
        Pause { id: u64, limit: Duration } -> bool,
            "pausing the load", PROMPT + *limit => generator.load(id)?.session()?.pause(limit);
        /// Report the outcome of a held load's windows since the last collection.
        Collect { id: u64 } -> Joined,
            "collecting the outcome", TRANSFER => generator.load(id)?.collect()?;
        /// Report the progress of the load.
        AskStatus { id: u64 } -> Status, "loading", PROMPT => generator.load(id)?.status()?;
        /// End the load now, but keep its measurements.
        StopLoad { id: u64 } -> (),
            "stopping the load", PROMPT => generator.load(id)?.session()?.stop();
        /// Report the outcome of a load. The load ends now if it has not ended.
        Join { id: u64 } -> Joined,
            "collecting the outcome", TRANSFER => generator.load(id)?.join()?;
        /// End the load and close its connections. Reports an upper bound on the number of field
        /// values that the load used.
        End { id: u64 } -> u64, "stopping the load", PROMPT => generator.end(id);
    }
}

/// A description of a generator's host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostDescription {
    /// The machine that the host runs on.
    pub machine: Machine,
    /// The cores that the generator may use. Empty if they are not known.
    pub cores: Vec<usize>,
    /// The random ID that the kernel chose at boot. Empty if unknown. Agents in namespaces or
    /// containers of one machine report the same ID.
    pub boot: String,
}

impl HostDescription {
    /// Describes this host.
    pub fn here() -> Self {
        let cores = cpus::allowed().unwrap_or_default();
        Self { machine: Machine::describe(), cores, boot: boot() }
    }

    /// Whether the host is the caller's machine, so that both share its cores.
    pub fn is_this_machine(&self) -> bool {
        !self.boot.is_empty() && self.boot == boot()
    }
}

/// A server to probe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Probe {
    /// The server's address.
    pub target: Target,
    /// The value of the `Host` header.
    pub host: String,
    /// The time limit for one response.
    pub limit: Duration,
    /// The requests to send.
    pub contract: Contract,
}

impl Probe {
    /// How long the probe may take. Each request is sent a few times, with pauses in between.
    fn longest(&self) -> Duration {
        TRANSFER + self.limit * 8 * (self.contract.exchanges.len() as u32 + 1)
    }

    fn run(&self) -> Result<LearnedRequests, String> {
        // When the user interrupts, the controller ends the agent.
        let goes_on = AtomicBool::new(false);
        let inferred = infer(&self.target, &self.host, self.limit, &self.contract, &goes_on)?;
        let requests = inferred.contract.requests(&self.host, &inferred.responses);
        Ok(LearnedRequests { requests, notes: inferred.notes })
    }
}

/// Requests, and what probing showed about their responses.
#[derive(Debug, Serialize, Deserialize)]
pub struct LearnedRequests {
    /// The requests with their expected responses.
    pub requests: Vec<Request>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// The beginning of a load, or of a window of a held load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Begun {
    /// How much later than asked the load begins or its window opens, in nanoseconds.
    pub late_ns: u64,
    /// When the window opens, in nanoseconds of the generator's monotonic clock.
    pub opens_ns: u64,
}

/// The progress of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// Whether each connection is open or has failed once.
    pub is_ready: bool,
    /// Whether the load has ended.
    pub is_finished: bool,
    /// The load's counts so far.
    pub progress: Progress,
    /// When the counts were read, in nanoseconds of the generator's monotonic clock.
    pub at_ns: u64,
}

/// The outcome of a load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Joined {
    /// What happened to the requests.
    pub outcome: Outcome,
    /// The longest stall of the generator's process that began before the end of a window, in
    /// nanoseconds. It counts from the opening of the window to the end of the stall. Only stalls
    /// of more than 50 ms count.
    pub paused_ns: u64,
}

/// Carries out the orders to a generator. A generator has any number of loads. The loads of
/// several servers are held at the same time, and each load is paused while another one sends.
#[derive(Debug)]
pub struct Generator {
    clock: Clock,
    loads: BTreeMap<u64, Load>,
    /// The number of the next load.
    next: u64,
    /// The pauses of this process. The loads own them.
    pauses: Weak<Pauses>,
}

impl Generator {
    /// Creates a generator that uses this clock for all times.
    pub fn new(clock: Clock) -> Self {
        Self { clock, loads: BTreeMap::new(), next: 0, pauses: Weak::new() }
    }

    /// Begins a load, and keeps it under a new number.
    fn keep(
        &mut self,
        begin: impl FnOnce(Clock, Arc<Pauses>) -> Result<Load, String>,
    ) -> Result<u64, String> {
        let pauses = self.pauses.upgrade().unwrap_or_else(|| Pauses::watch(self.clock));
        self.pauses = Arc::downgrade(&pauses);
        let id = self.next;
        self.loads.insert(id, begin(self.clock, pauses)?);
        self.next += 1;
        Ok(id)
    }

    fn load(&mut self, id: u64) -> Result<&mut Load, String> {
        self.loads.get_mut(&id).ok_or_else(|| "this load has ended".to_owned())
    }

    /// Ends a load and closes its connections. Returns an upper bound on the number of field
    /// values that the load used.
    fn end(&mut self, id: u64) -> u64 {
        self.loads.remove(&id).map_or(0, Load::end)
    }
}

/// A load, from the opening of its connections until the controller ends it.
#[derive(Debug)]
struct Load {
    clock: Clock,
    /// The load's session. `None` once the load has been joined.
    session: Option<Session>,
    /// How long the load sends before its window opens, if it has only one window.
    warmup: Duration,
    /// An upper bound on the number of field values that the load has used.
    used: ValuesUsed,
    /// The times at which each window opened and closed, except for windows that were collected.
    windows: Vec<(u64, u64)>,
    /// The pauses of this process, shared with the other loads.
    pauses: Arc<Pauses>,
}

impl Load {
    /// Opens a load that has one window.
    fn prepare(plan: &Plan, clock: Clock, pauses: Arc<Pauses>) -> Result<Self, String> {
        let session = Session::start_waiting(plan).map_err(|e| e.to_string())?;
        let warmup = match plan.stop {
            Stop::After(_) => plan.warmup,
            Stop::Requests(_) => Duration::ZERO,
        };
        Ok(Self { warmup, ..Self::of(session, clock, pauses) })
    }

    /// Opens a load that is held between windows.
    fn hold(plan: &Plan, clock: Clock, pauses: Arc<Pauses>) -> Result<Self, String> {
        Ok(Self::of(Session::start_held(plan).map_err(|e| e.to_string())?, clock, pauses))
    }

    fn of(session: Session, clock: Clock, pauses: Arc<Pauses>) -> Self {
        let used = session.values_used();
        let (session, windows) = (Some(session), Vec::new());
        Self { clock, session, warmup: Duration::ZERO, used, windows, pauses }
    }

    fn session(&self) -> Result<&Session, String> {
        self.session.as_ref().ok_or_else(|| "the load has ended".to_owned())
    }

    fn begin(&mut self, at_ns: u64) -> Result<Begun, String> {
        let (now_ns, now) = (self.clock.now_ns(), Instant::now());
        let late_ns = now_ns.saturating_sub(at_ns);
        let wait = Duration::from_nanos(at_ns.saturating_sub(now_ns));
        let start = (now + wait).checked_sub(Duration::from_nanos(late_ns)).unwrap_or(now);
        let window = self.session()?.begin(start);
        let window = window.ok_or("the load is not ready, or has ended")?;
        let opens_after = window.opens.saturating_duration_since(now).as_nanos() as u64;
        let opens_ns = now_ns + opens_after;
        self.windows = vec![(opens_ns, u64::MAX)];
        // This thread may have waited for a core since the clock was read.
        let agreed_ns = at_ns.saturating_add(self.warmup.as_nanos() as u64);
        Ok(Begun { late_ns: late_ns.max(opens_ns.saturating_sub(agreed_ns)), opens_ns })
    }

    /// Opens a window. If part of the window has already passed, that part is cut off.
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
        let opens_ns = now_ns + opens_after;
        self.windows.push((opens_ns, opens_ns + length.as_nanos() as u64));
        // This thread may have waited for a core since the clock was read.
        Ok(Begun { late_ns: late_ns.max(opens_ns.saturating_sub(at_ns)), opens_ns })
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
        let session = self.session.take().ok_or("the load has ended")?;
        session.stop();
        let outcome = session.join().map_err(|e| e.to_string())?;
        if let [(opens, closes @ u64::MAX)] = &mut self.windows[..] {
            *closes = *opens + outcome.window_ns;
        }
        Ok(Joined { outcome, paused_ns: self.paused_ns() })
    }

    /// Ends the load and closes its connections. Returns an upper bound on the number of field
    /// values that the load used.
    fn end(mut self) -> u64 {
        self.session = None;
        self.used.most()
    }

    /// Returns the longest stall in the windows, and forgets the windows.
    fn paused_ns(&mut self) -> u64 {
        let windows = std::mem::take(&mut self.windows);
        let longest = |(opens, closes): &(u64, u64)| self.pauses.longest_ns(*opens, *closes);
        windows.iter().map(longest).max().unwrap_or(0)
    }
}

/// The times at which this process or its host was stopped. Watching ends when this value is
/// dropped.
#[derive(Debug, Default)]
struct Pauses {
    /// The beginning and end of each pause, in nanoseconds.
    seen: Mutex<Vec<(u64, u64)>>,
}

impl Pauses {
    fn watch(clock: Clock) -> Arc<Self> {
        let own = Arc::new(Self::default());
        let watched = Arc::downgrade(&own);
        std::thread::spawn(move || {
            let mut last_ns = clock.now_ns();
            loop {
                std::thread::sleep(INTERVAL);
                let now_ns = clock.now_ns();
                let Some(pauses) = watched.upgrade() else { return };
                if now_ns - last_ns > PAUSE.as_nanos() as u64 {
                    pauses.note((last_ns, now_ns));
                }
                last_ns = now_ns;
            }
        });
        own
    }

    /// Returns the longest pause that began before `to_ns`, counted from `from_ns` on. 0 if there
    /// was none. A pause counts up to its end, because work that was due at `to_ns` was only done
    /// then.
    fn longest_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = seen.iter().filter(|(began, _)| *began < to_ns);
        begun.map(|(began, ended)| ended.saturating_sub((*began).max(from_ns))).max().unwrap_or(0)
    }

    fn note(&self, pause: (u64, u64)) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(pause);
        if seen.len() > KEPT {
            seen.sort_by_key(|(began, ended)| std::cmp::Reverse(ended - began));
            seen.truncate(KEPT / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a late close of a held load's window went unnoticed.
    #[test]
    fn a_pause_counts_from_the_beginning_of_the_window_to_its_own_end() {
        let pauses = Pauses::default();
        assert_eq!(pauses.longest_ns(0, 1_000), 0);
        pauses.note((100, 400));
        pauses.note((900, 1_300));
        assert_eq!(pauses.longest_ns(0, 2_000), 400);
        assert_eq!(pauses.longest_ns(0, 1_000), 400);
        assert_eq!(pauses.longest_ns(1_000, 1_100), 300);
        assert_eq!(pauses.longest_ns(350, 900), 50);
        assert_eq!(pauses.longest_ns(500, 800), 0);
        assert_eq!(pauses.longest_ns(1_400, 2_000), 0);
    }

    #[test]
    fn the_longest_of_many_pauses_is_kept() {
        let pauses = Pauses::default();
        pauses.note((0, 500));
        for at in 1..3_000 {
            pauses.note((at * 1_000, at * 1_000 + 100));
        }
        assert_eq!(pauses.longest_ns(0, u64::MAX), 500);
    }
}
