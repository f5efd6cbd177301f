//! A server that runs on this machine.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hotlap_observe::cpus::{ClockFlush, move_threads};
use hotlap_observe::{
    Compiler, Compilers, Counters, HardwareCounts, Instrument, Memory, Observation, ObserveError,
    Observer, Owner, Sampler, Switches, processes,
};

use super::server::{LogWait, RunningServer, Sample, ServerState};
use crate::database;
use crate::launch::LogLines;
use crate::process::{Process, Stopped};

/// A log that has not grown for this long is complete.
const SETTLED: Duration = Duration::from_millis(50);

/// How long to wait for missing lines of a log that does not grow: a server that drops lines must
/// not hold up every lap.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// A sample takes some 20 µs. If one took longer than this, hotlap was stopped or had to wait for a
/// core in the middle of it, and it is repeated: it would be wrong by that time.
const TOGETHER: Duration = Duration::from_millis(1);

/// Processes of a large tree may take longer than that each time.
const MOST_READINGS: u32 = 3;

/// How many of a server's last log lines to show.
pub(crate) const LAST_LINES: usize = 12;

/// A running server of this machine.
#[derive(Debug, Default)]
pub struct LocalServer {
    pub(crate) process: Option<Process>,
    pub(crate) sampler: Option<Sampler>,
    /// Samples the database of the run.
    pub(crate) database: Option<Sampler>,
    pub(crate) counters: Option<Counters>,
    pub(crate) observer: Option<Observer>,
    pub(crate) lines: Option<LogLines>,
    /// Its own cores. Empty: not pinned.
    pub(crate) own: Vec<usize>,
    /// The cores whose clocks are read: the server's and the database's. Empty: all.
    pub(crate) clocks: Vec<usize>,
    /// The cores that it may use while it is spread.
    pub(crate) all: Vec<usize>,
    pub(crate) is_spread: bool,
    pub(crate) compilers: Compilers,
}

impl LocalServer {
    /// A server that hotlap did not start, and whose processes `owner` has if they are known. With
    /// `observes`, instruments are attached to them.
    pub fn of(owner: &Owner, observes: bool) -> Self {
        Self {
            sampler: owner.roots(None).map(Sampler::new),
            observer: owner.roots(None).filter(|_| observes).map(|roots| Observer::open(&roots)),
            ..Self::default()
        }
    }

    /// The addresses where its processes listen.
    pub fn sockets(&self) -> Vec<SocketAddr> {
        self.process.as_ref().map_or(Vec::new(), sockets)
    }

    /// The cores that it runs on. Empty: not pinned.
    fn cores(&self) -> &[usize] {
        if self.is_spread { &self.all } else { &self.own }
    }
}

impl RunningServer for LocalServer {
    fn is_started(&self) -> bool {
        self.process.is_some()
    }

    fn is_known(&self) -> bool {
        self.sampler.is_some()
    }

    fn find_database(&mut self) -> Vec<String> {
        if self.database.is_some() {
            return Vec::new();
        }
        let pids = self.sampler.as_mut().map(Sampler::pids).unwrap_or_default();
        let (found, notes) = database::connected(&pids);
        self.database = found.map(Sampler::new);
        // The database may run on any core.
        if self.database.is_some() {
            self.clocks.clear();
        }
        notes
    }

    fn has_log(&self) -> bool {
        self.lines.is_some()
    }

    fn delay(&self) -> Duration {
        Duration::ZERO
    }

    fn state(&mut self) -> ServerState {
        let exit = self.process.as_mut().and_then(Process::ended);
        exit.map_or(ServerState::Runs, ServerState::Ended)
    }

    fn freeze(&mut self) -> Result<(), String> {
        match &mut self.process {
            Some(process) if !process.is_frozen() => process.freeze().map_err(|e| e.to_string()),
            _ => Ok(()),
        }
    }

    fn thaw(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.thaw();
        }
    }

    fn spread(&mut self, on_all: bool) {
        let Some(process) = &self.process else { return };
        if self.own.is_empty() || on_all == self.is_spread {
            return;
        }
        let to = if on_all { &self.all } else { &self.own };
        let pids = || Ok(process.members()?.iter().map(|member| member.pid).collect());
        if move_threads(pids, self.cores(), to).is_ok() {
            self.is_spread = on_all;
        }
    }

    fn compiler(&mut self) -> Compiler {
        let pids = self.sampler.as_mut().map(Sampler::pids).unwrap_or_default();
        self.compilers.look(&pids)
    }

    fn begin_stop(&mut self, grace: Duration) {
        if let Some(process) = &mut self.process {
            process.begin_stop(grace);
        }
    }

    fn stop(mut self: Box<Self>, grace: Duration) -> Option<Stopped> {
        (self.sampler, self.database) = (None, None);
        (self.counters, self.observer) = (None, None);
        let stopped = self.process.take().map(|process| process.stop(grace));
        self.lines.iter().for_each(LogLines::remove);
        stopped
    }

    fn tail(&self) -> Vec<String> {
        self.process.as_ref().map(|process| process.tail(LAST_LINES)).unwrap_or_default()
    }

    /// The CPU time is read on the server's cores, since its clock lags when read from elsewhere.
    fn sample(&mut self, requests: &dyn Fn() -> u64) -> Sample {
        let _visit = self.sampler.is_some().then(|| {
            ClockFlush::to(match self.is_spread {
                true => &self.all,
                false => &self.clocks,
            })
        });
        let mut tries = 0;
        loop {
            let began = Instant::now();
            let requests = requests();
            let [cpu_ns, database_ns] = [&mut self.sampler, &mut self.database]
                .map(|sampler| Some(sampler.as_mut()?.cpu().ok()?.cpu_ns));
            let at = Instant::now();
            tries += 1;
            if at - began < TOGETHER || tries == MOST_READINGS {
                return Sample { requests, at, cpu_ns, database_ns, silence: Duration::ZERO };
            }
        }
    }

    fn switches(&mut self) -> Option<Switches> {
        self.sampler.as_mut()?.switches().ok()
    }

    fn memory(&mut self) -> Option<Memory> {
        self.sampler.as_mut()?.memory().ok()
    }

    fn resident(&mut self) -> Option<Memory> {
        self.sampler.as_mut()?.resident().ok()
    }

    fn begin_counting(&mut self) -> bool {
        self.counters.as_mut().is_some_and(|counters| counters.begin().is_ok())
    }

    fn end_counting(&mut self) -> Option<HardwareCounts> {
        self.counters.as_mut()?.end()
    }

    fn lines(&mut self, wait: LogWait) -> u64 {
        self.lines.as_mut().map_or(0, |lines| match wait {
            LogWait::No => lines.count(),
            LogWait::Settled => lines.settled(SETTLED),
            LogWait::Until(goal) => lines.reach(goal, GIVEN_UP),
        })
    }

    fn instruments(&self) -> (Vec<Instrument>, Vec<ObserveError>) {
        let none = || (Vec::new(), vec![out_of_reach()]);
        self.observer.as_ref().map_or_else(none, Observer::instruments)
    }

    fn enable(&mut self, instrument: Instrument) -> Result<(), ObserveError> {
        self.observer.as_mut().ok_or_else(out_of_reach)?.enable(instrument)
    }

    fn disable(&mut self) {
        self.observer.iter_mut().for_each(Observer::disable);
    }

    fn take(&mut self, instrument: Instrument) -> Result<Observation, ObserveError> {
        self.observer.as_mut().ok_or_else(out_of_reach)?.take(instrument)
    }
}

/// Why nothing can be observed of a server whose processes are unknown.
fn out_of_reach() -> ObserveError {
    ObserveError {
        what: "the server".into(),
        why: "its processes are unknown".to_owned(),
        remedy: "name the command that starts it instead of its URL".to_owned(),
    }
}

/// The addresses where the server's process tree listens.
pub(crate) fn sockets(process: &Process) -> Vec<SocketAddr> {
    let members = process.members().unwrap_or_default();
    let pids: Vec<u32> = members.iter().map(|m| m.pid).collect();
    processes::listening(&pids).unwrap_or_default()
}
