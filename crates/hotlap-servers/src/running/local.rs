//! A server that runs on this machine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotlap_observe::cpus::{ClockFlush, move_threads};
use hotlap_observe::{
    Compiler, Compilers, Counters, Gauge, HardwareCounts, Instrument, Memory, Observation,
    ObserveError, Observer, Owner, Sampler, Switches, processes,
};

use hotlap_load::plan::{Request, Target};

use super::server::{LogWait, RunningServer, Sample, ServerState};
use crate::contract::Contract;
use crate::database::{self, Database, Proof, Prover};
use crate::launch::LogLines;
use crate::process::{Process, Stopped};

/// A log that has not grown for this long is complete.
const SETTLED: Duration = Duration::from_millis(50);

/// How long to wait for missing lines of a log that does not grow. A server that drops lines must
/// not delay every lap.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// The time within which a sample must be complete. A sample takes some 20 µs. If a sample takes
/// longer, hotlap was stopped or had to wait for a core. The sample is then repeated, because it
/// would be off by the waiting time.
const TOGETHER: Duration = Duration::from_millis(1);

/// The maximum number of attempts at one sample. Each sample of a large process tree may take
/// longer than [`TOGETHER`].
const MOST_READINGS: u32 = 3;

/// How many of a server's last log lines are shown.
pub(crate) const LAST_LINES: usize = 12;

/// A server's copy of the run's database.
#[derive(Debug)]
pub(crate) struct DatabaseCopy {
    pub(crate) database: Arc<Database>,
    /// The number of the server, which is part of the name of the copy.
    pub(crate) number: usize,
}

impl DatabaseCopy {
    pub(crate) fn of(database: &Arc<Database>, number: usize) -> Self {
        Self { database: Arc::clone(database), number }
    }
}

/// A running server on this machine.
#[derive(Debug, Default)]
pub struct LocalServer {
    pub(crate) process: Option<Process>,
    pub(crate) sampler: Option<Sampler>,
    /// Samples the database that the server uses.
    pub(crate) database: Option<Sampler>,
    /// The server's copy of the run's database.
    pub(crate) copy: Option<DatabaseCopy>,
    pub(crate) counters: Option<Counters>,
    pub(crate) observer: Option<Observer>,
    pub(crate) lines: Option<LogLines>,
    /// The server's own cores. Empty if the server is not pinned.
    pub(crate) own: Vec<usize>,
    /// The cores of the server and of the database, whose clocks are read. Empty means all cores.
    pub(crate) clocks: Vec<usize>,
    /// The cores that the server may use while it is spread.
    pub(crate) all: Vec<usize>,
    pub(crate) is_spread: bool,
    pub(crate) compilers: Compilers,
    /// The gauge of the server's own cores. `None` if the server is not pinned, or is observed.
    pub(crate) gauge: Option<Arc<Gauge>>,
}

impl LocalServer {
    /// Returns a server that hotlap did not start. `owner` has the server's processes, if they are
    /// known. With `observes`, instruments are attached to these processes.
    pub fn of(owner: &Owner, observes: bool) -> Self {
        Self {
            sampler: owner.roots(None).map(Sampler::new),
            observer: owner.roots(None).filter(|_| observes).map(|roots| Observer::open(&roots)),
            ..Self::default()
        }
    }

    /// Returns the addresses where the server's processes listen.
    pub fn sockets(&self) -> Vec<SocketAddr> {
        self.process.as_ref().map_or(Vec::new(), sockets)
    }

    /// Returns the cores that the server runs on. Empty if the server is not pinned.
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

    /// Flushes the clocks of the server's cores first, because a CPU clock lags when it is read
    /// from another core. The cores of its database are included unless the server is spread.
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
                let gauged = self.gauge.as_ref().map(|gauge| gauge.read());
                let silence = Duration::ZERO;
                return Sample { requests, at, cpu_ns, database_ns, gauged, silence };
            }
        }
    }

    fn prove(
        &self,
        contract: &Contract,
        requests: &[Request],
        target: &Target,
        stop: &AtomicBool,
    ) -> Proof {
        let copy = self.copy.as_ref().filter(|copy| copy.database.counts_statements());
        let prover = copy.map(|DatabaseCopy { database, number }| Prover {
            database,
            server: *number,
            target,
            stop,
        });
        prover.map(|prover| prover.prove(contract, requests)).unwrap_or_default()
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

/// Returns the error for a server that cannot be observed because its processes are unknown.
fn out_of_reach() -> ObserveError {
    ObserveError {
        what: "the server".into(),
        why: "the processes of the server are unknown".to_owned(),
        remedy: "name the server's command instead of its URL".to_owned(),
    }
}

/// Returns the addresses where the server's process tree listens.
pub(crate) fn sockets(process: &Process) -> Vec<SocketAddr> {
    let members = process.members().unwrap_or_default();
    let pids: Vec<u32> = members.iter().map(|m| m.pid).collect();
    processes::listening(&pids).unwrap_or_default()
}
