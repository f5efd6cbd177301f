//! The real runner: servers as processes, loaded by the generator and sampled from outside.
//!
//! All servers of a restart run at the same time. Each server is loaded and measured for a slice,
//! then frozen while the others run, so that its background work costs them nothing. `Instance`
//! contains the code for one server, and this module contains the code for all of them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use hotlap_load::plan::Target;
use hotlap_observe::{Instrument, Observation, ObserveError};
use hotlap_servers::infer;
use hotlap_servers::launch::ServerFailure;
use hotlap_servers::process::SHORT_GRACE;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::lap::Lap;
use crate::participant::{self, Load, Origin, Participant, Role};
use crate::runner::{OBSERVED, Probed, Ready, Runner, TrialWindow, Warmup};
use instance::{Between, Conditions, Instance, Trouble, WarmupProfile};
use slices::{Needs, Slices, lead_in};

mod forecast;
mod instance;
mod slices;

pub use forecast::{Expected, ExpectedLoad, Forecast, forecast};
pub use instance::Setting;
pub use slices::{LENGTHS, longest_service, shortest_slice};

/// Minimum length of a lap, before the number of slices is rounded (METHODOLOGY, *A run*).
const LAP: Duration = Duration::from_millis(100);

/// Minimum length of a lap in mean service times, before the number of slices is rounded. In a
/// shorter lap, the requests in flight at its edges would dominate.
const SERVICE_TIMES: u32 = 8;

/// Returns the number of slices in a lap. Each slice has a lead-in of a service time or more, so a
/// slice shorter than one service time counts as one service time. Otherwise, the lap of a slow
/// server would take minutes.
fn slices_a_lap(slice: Duration, service: Duration) -> u32 {
    let lap = LAP.max(service * SERVICE_TIMES).as_secs_f64();
    (lap / slice.max(service).as_secs_f64()).round().clamp(1.0, 1e3) as u32
}

/// Minimum length of a lap at a rate. Percentiles need more requests than a mean.
const PACED: Duration = Duration::from_millis(500);

/// The smallest average number of requests in a lap at a rate.
const PACED_REQUESTS: f64 = 20.0;

/// The lowest rate of a lap, in requests/s. A lap at this rate takes 10 s.
pub const LEAST_RATE: f64 = 2.0;

/// Returns the minimum length of a lap at this rate.
fn paced_window(rate: f64) -> Duration {
    PACED.max(Duration::from_secs_f64(PACED_REQUESTS / rate.max(LEAST_RATE)))
}

/// How many servers are verified at the same time. Verification mostly waits, but a server that has
/// to wait for a core looks slow.
const VERIFIED_AT_ONCE: usize = 4;

/// Runs laps of real servers. The [`Setting`] says on which hosts servers and generators run.
pub struct LocalRunner {
    run: Arc<Conditions>,
    instances: Vec<Instance>,
    /// The slice length of each load.
    slices: Vec<Slices>,
    /// Whether servers are frozen outside of their slices.
    freezes: bool,
}

impl LocalRunner {
    /// Creates a runner for these participants. Setting `stop` ends the operation under way.
    pub fn new(
        setting: Setting,
        participants: &[Participant],
        loads: &[Load],
        stop: Arc<AtomicBool>,
    ) -> Self {
        let slices = Slices::of_loads(&setting.slices, loads.len(), setting.probe_limit);
        let freezes = setting.freeze;
        let (loads, began) = (loads.to_vec(), Instant::now());
        let usual_call_ns = OnceLock::new();
        let run = Arc::new(Conditions { setting, loads, began, stop, usual_call_ns });
        let instance = |(number, participant): (usize, &Participant)| {
            let mut participant = participant.clone();
            participant.contract.fields.unique = number as u64;
            Instance::new(&run, number, participant)
        };
        let instances = participants.iter().enumerate().map(instance).collect();
        Self { run, instances, slices, freezes }
    }

    /// The address of a running server, for requests outside of the laps.
    pub fn target(&self, participant: usize) -> Option<&Target> {
        self.instances[participant].target.as_ref()
    }

    fn running(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|instance| instance.target.is_some())
    }

    fn reference(&self) -> Option<usize> {
        let role = |instance: &Instance| instance.participant.role;
        self.instances.iter().position(|instance| role(instance) == Role::Reference)
    }

    /// The participant whose program this one runs. For the control, that is the reference.
    fn program(&self, participant: usize) -> usize {
        participant::program(self.instances.iter().map(|i| i.participant.role), participant)
    }

    /// What earlier warm-ups showed about a server or, failing that, about the same program.
    fn known(&self, participant: usize, load: usize) -> Option<WarmupProfile> {
        let program = self.program(participant);
        let same = (0..self.instances.len()).filter(|other| self.program(*other) == program);
        let mut known = std::iter::once(participant).chain(same);
        known.find_map(|participant| self.instances[participant].known[load])
    }

    /// The running servers' requirements for a slice under this load, by program.
    fn needs(&self, load: usize) -> BTreeMap<usize, Needs> {
        let mut needs = BTreeMap::new();
        for instance in self.running() {
            let Some(known) = &instance.known[load] else { continue };
            let own = Needs {
                service: known.service,
                whole: self.run.loads[load].rate.is_some() || instance.has_log(),
                delay: instance.delay() + self.run.setting.generator.delay(),
                known: instance.is_known(),
            };
            needs.entry(self.program(instance.number)).or_insert(own);
        }
        needs
    }

    /// The length of a lap: the sum of its slices.
    fn lap_length(&self, load: usize) -> Duration {
        self.slices[load].length() * self.slices_a_lap(load)
    }

    fn slices_a_lap(&self, load: usize) -> u32 {
        let known = self.running().filter_map(|instance| instance.known[load]);
        let service = known.map(|known| known.service).max();
        slices_a_lap(self.slices[load].length(), service.unwrap_or_default())
    }

    /// Applies `act` to a server, and freezes the server afterwards, whatever the result. If one
    /// server cannot be frozen, no server is frozen from then on. Otherwise that server would take
    /// CPU time in the slices of the others, while they take none in its slices.
    fn then_freeze<R>(&mut self, participant: usize, act: impl FnOnce(&mut Instance) -> R) -> R {
        let instance = &mut self.instances[participant];
        let done = act(instance);
        if self.freezes
            && let Err(why) = instance.freeze()
        {
            instance.notes.push(format!(
                "the server cannot be frozen, so this run continues as with --no-freeze: {why}"
            ));
            self.freezes = false;
            self.instances.iter_mut().for_each(Instance::thaw);
        }
        done
    }

    /// Verifies started servers, all at the same time. A server that fails is verified again alone,
    /// because it may only have had too little CPU time.
    fn verify_some(&mut self, participants: &[usize]) -> Vec<Result<Ready, ServerFailure>> {
        if self.interrupted() {
            let ended = "interrupted before the verification";
            let out = |&n: &usize| self.instances[n].failure("verify", ended.to_owned(), "");
            return participants.iter().map(|n| Err(out(n))).collect();
        }
        let examine = |instance: &mut Instance| {
            instance.thaw();
            instance.examine()?;
            instance.find_database();
            Ok(())
        };
        let mut examined: BTreeMap<usize, Result<(), ServerFailure>> = thread::scope(|scope| {
            let instances =
                self.instances.iter_mut().enumerate().filter(|(n, _)| participants.contains(n));
            let threads: Vec<_> = instances
                .map(|(n, instance)| (n, scope.spawn(move || examine(instance))))
                .collect();
            let join = |t: thread::ScopedJoinHandle<'_, _>| {
                t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(|(n, thread)| (n, join(thread))).collect()
        });
        participants.iter().for_each(|&n| self.then_freeze(n, |_| ()));
        if self.interrupted() {
            // All servers end at the same time.
            participants.iter().for_each(|&n| self.instances[n].begin_stop(SHORT_GRACE));
        }
        let mut verified = Vec::new();
        for &participant in participants {
            let is_final = participants.len() == 1 || self.interrupted();
            let beside = examined.remove(&participant).filter(|beside| beside.is_ok() || is_final);
            let instance = &mut self.instances[participant];
            let result = beside.unwrap_or_else(|| examine(instance)).or_else(|failure| {
                instance.still_there("verify")?;
                Err(failure)
            });
            verified.push(match result {
                Err(failure) => {
                    instance.stop(SHORT_GRACE);
                    Err(failure)
                }
                Ok(()) => {
                    self.then_freeze(participant, |_| ());
                    Ok(self.ready(participant))
                }
            });
        }
        verified
    }

    /// Returns what to report about a verified server. A pair with different responses is reported
    /// once, when the later of the two servers is verified.
    fn ready(&mut self, participant: usize) -> Ready {
        let instance = &mut self.instances[participant];
        let mut ready = instance.ready();
        if !std::mem::replace(&mut instance.verified, true) {
            ready.notes.extend(self.differences(participant));
        }
        ready
    }

    /// Returns a note for each server that is compared with this one and responds differently.
    fn differences(&self, participant: usize) -> Vec<String> {
        let (reference, setting) = (self.reference(), &self.run.setting);
        let against = |n: usize| setting.against.get(&n).copied().or(reference);
        let is_told = |n: usize| {
            let role = self.instances[n].participant.role;
            self.instances[n].verified && matches!(role, Role::Reference | Role::Plain)
        };
        if !is_told(participant) {
            return Vec::new();
        }
        let own = &self.instances[participant].participant.contract;
        let is_pair =
            |n: &usize| against(participant) == Some(*n) || against(*n) == Some(participant);
        (0..self.instances.len())
            .filter(|n| *n != participant && is_told(*n) && is_pair(n))
            .map(|n| &self.instances[n].participant)
            .filter_map(|other| infer::difference(own, (&other.name, &other.contract)))
            .collect()
    }

    /// Adds a remedy to a failed start if a running server may occupy the port that is taken.
    fn with_advice_on_ports(&self, participant: usize, failure: ServerFailure) -> ServerFailure {
        let start = &self.instances[participant].participant.start;
        let is_started = matches!(start, Origin::Launch(_));
        let taken =
            self.running().find_map(|other| Some((&other.participant.name, other.fixed_port?)));
        match taken.filter(|_| is_started && failure.is_port_taken()) {
            None => failure,
            Some((name, port)) => ServerFailure {
                remedy: format!(
                    "{name} runs at the same time and listens on port {port}, whatever $PORT is. \
                     If the failed server needs the same port, write $PORT into both commands, or \
                     measure each server in a separate run"
                ),
                ..failure
            },
        }
    }
}

impl Runner for LocalRunner {
    fn start(&mut self, participant: usize, observes: bool) -> Result<(), ServerFailure> {
        let started = self.then_freeze(participant, |instance| {
            let started = instance.start(observes);
            if started.is_err() {
                instance.stop(SHORT_GRACE);
            }
            started
        });
        started.map_err(|failure| self.with_advice_on_ports(participant, failure))
    }

    fn verify(&mut self, participants: &[usize]) -> Vec<Result<Ready, ServerFailure>> {
        let some = participants.chunks(VERIFIED_AT_ONCE);
        some.flat_map(|some| self.verify_some(some)).collect()
    }

    fn warm(
        &mut self,
        participant: usize,
        load: usize,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Warmup, ServerFailure> {
        let earlier = self.known(participant, load);
        self.then_freeze(participant, |instance| instance.warm(load, earlier, watch))
    }

    fn wake(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure> {
        match self.then_freeze(participant, |instance| instance.wake(load)) {
            Ok(()) | Err(Trouble::Generator(_)) => Ok(()),
            Err(Trouble::Server(failure)) => Err(failure),
        }
    }

    fn probes(&mut self, load: usize) -> Vec<usize> {
        // Probes are not part of a lap, so the laps under way are dropped.
        self.instances.iter_mut().for_each(Instance::forget_lap);
        let needs = self.needs(load);
        let mut next = self.slices[load].next(&needs);
        // Without another server in between, a server would find its caches as it left them.
        if let &[program] = &next[..] {
            let is_other = |(other, needs): &(&usize, &Needs)| **other != program && needs.known;
            next.extend(needs.iter().find(is_other).map(|(other, _)| *other));
        }
        next
    }

    fn probe(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure> {
        let (edges, rest) = (self.slices[load].probe_edges(), lead_in(self.slices[load].length()));
        match self.then_freeze(participant, |instance| instance.drive(load, edges, rest)) {
            Ok([opens, closes, ends]) => {
                let program = self.program(participant);
                let (within, after) = (Between::of(&opens, &closes), Between::of(&closes, &ends));
                self.slices[load].probed(program, &within, &after);
                Ok(())
            }
            // A lost generator only means one probe fewer.
            Err(Trouble::Generator(_)) => Ok(()),
            Err(Trouble::Server(failure)) => Err(failure),
        }
    }

    fn slice_length(&self, load: usize) -> Duration {
        self.slices[load].length()
    }

    fn probed(&self) -> Vec<Probed> {
        let each = |participant| (0..self.run.loads.len()).map(move |load| (participant, load));
        let found = |(participant, load): (usize, usize)| {
            let found = self.slices[load].found(self.program(participant))?;
            let slice_ms = found.slice.as_secs_f64() * 1e3;
            Some(Probed { participant, load, slice_ms, ratio: found.ratio, rate: found.rate })
        };
        (0..self.instances.len()).flat_map(each).filter_map(found).collect()
    }

    fn slices(&self, load: usize) -> u32 {
        self.slices_a_lap(load)
    }

    fn slice(&mut self, participant: usize, load: usize) -> Result<(), ServerFailure> {
        let window = self.slices[load].length();
        self.then_freeze(participant, |instance| instance.slice(load, window))
    }

    fn lap(&mut self, participant: usize, load: usize) -> Result<Lap, ServerFailure> {
        // The server may have been thawed to find out why it is silent, or to write its log.
        self.then_freeze(participant, |instance| instance.lap(load))
    }

    fn paced_lap(
        &mut self,
        participant: usize,
        load: usize,
        rate: f64,
    ) -> Result<Lap, ServerFailure> {
        let window = paced_window(rate).max(self.lap_length(load));
        self.then_freeze(participant, |instance| instance.paced_lap(load, rate, window))
    }

    fn trial_lap(
        &mut self,
        participant: usize,
        load: usize,
        trial: TrialWindow,
    ) -> Result<Lap, ServerFailure> {
        self.then_freeze(participant, |instance| instance.trial_lap(load, trial))
    }

    fn recover(&mut self, participant: usize, load: usize, rate: f64) -> Result<(), ServerFailure> {
        self.then_freeze(participant, |instance| instance.recover(load, rate))
    }

    fn instruments(&mut self, participant: usize) -> (Vec<Instrument>, Vec<ObserveError>) {
        self.instances[participant].instruments()
    }

    fn observed_lap(
        &mut self,
        participant: usize,
        load: usize,
        instrument: Instrument,
    ) -> Result<(Lap, Result<Observation, ObserveError>), ServerFailure> {
        let times = (lead_in(self.slices[load].length()), OBSERVED.max(self.lap_length(load)));
        self.then_freeze(participant, |instance| instance.observed_lap(load, instrument, times))
    }

    fn stop(&mut self, participants: &[usize]) -> Vec<(usize, String)> {
        let grace = self.run.setting.grace;
        if self.interrupted() {
            participants.iter().for_each(|&n| self.instances[n].begin_stop(grace));
        }
        let mut told = Vec::new();
        for &participant in participants {
            let instance = &mut self.instances[participant];
            // Notes since the last verification have not been reported.
            let notes = std::mem::take(&mut instance.notes);
            let own = notes.into_iter().chain(instance.stop(grace));
            told.extend(own.map(|what| (participant, what)));
        }
        told
    }

    fn elapsed(&self) -> Duration {
        self.run.began.elapsed()
    }

    fn interrupted(&self) -> bool {
        self.run.is_stopped()
    }
}

/// Open files that are not connections: event queues, logs, the store, supervisors.
const BESIDES: usize = 128;

/// Open files of a generator thread: an event queue, a waker and a timer.
const A_THREAD: usize = 3;

/// Raises the limit on open files to the number that this many servers need under these loads. All
/// servers keep their connections open between slices.
///
/// # Errors
/// Fails if the hard limit is lower and cannot be raised. The error says which load fits, if any.
pub fn allow_files(servers: usize, loads: &[Load]) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let needed = needed(servers, loads);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    // A process with administrator rights may raise the hard limit.
    let maximum = limit.maximum.map(|hard| hard.max(needed));
    let wanted = Rlimit { current: Some(needed), maximum };
    setrlimit(Resource::Nofile, wanted).map_err(|_| refusal(servers, loads, needed, limit.maximum))
}

fn needed(servers: usize, loads: &[Load]) -> u64 {
    let files = |load: &Load| load.shape.connections + A_THREAD * load.shape.threads;
    (BESIDES + servers * loads.iter().map(files).max().unwrap_or(0)) as u64
}

fn refusal(servers: usize, loads: &[Load], needed: u64, hard: Option<u64>) -> String {
    let threads = loads.iter().map(|load| load.shape.threads).max().unwrap_or(1);
    let room = usize::try_from(hard.unwrap_or(0)).unwrap_or(usize::MAX).saturating_sub(BESIDES);
    let fits = (room / servers.max(1)).saturating_sub(A_THREAD * threads);
    let raise = format!("let root raise the limit (sudo prlimit --pid $$ --nofile={needed})");
    let remedy = match (hard, fits) {
        (None, _) => "use fewer connections".to_owned(),
        (_, 0) => raise,
        (_, 1) => format!("{raise}, or use 1 connection"),
        (_, fits) => format!("{raise}, or use at most {fits} connections"),
    };
    let servers = match servers {
        1 => "1 server".to_owned(),
        more => format!("{more} servers (including any control and ceiling)"),
    };
    let allowed = match hard {
        Some(hard) => format!("only {hard} are allowed"),
        None => "the system does not allow so many".to_owned(),
    };
    format!("this load needs {needed} open files for {servers}, but {allowed}: {remedy}")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use hotlap_agent::ThisProcess;
    use hotlap_servers::contract::{Content, Contract, Name};
    use hotlap_servers::launch::Launch;
    use hotlap_servers::machine::{CpuAllocation, Network};
    use hotlap_servers::process::Supervisor;
    use hotlap_servers::running::LocalHost;

    /// Regression: with `--slice 100ms`, a lap of a server that takes a second to respond had 80
    /// slices, each after a lead-in of a second.
    #[test]
    fn a_lap_has_no_more_slices_than_its_length_permits_lead_ins() {
        let slices = |slice, service| {
            slices_a_lap(Duration::from_millis(slice), Duration::from_millis(service))
        };
        assert_eq!([slices(12, 1), slices(12, 3), slices(100, 25)], [8, 8, 2]);
        assert_eq!([slices(4_000, 1_000), slices(100, 1_000), slices(12, 1_000)], [2, 8, 8]);
    }

    /// Regression: with a limit of 256 open files, one server after another failed in its first
    /// lap.
    #[test]
    fn a_limit_that_is_too_low_is_reported_with_a_load_that_fits() {
        let load = Load::new;
        let loads = [load(64)];
        assert_eq!(needed(4, &loads), 396);
        assert_eq!(
            refusal(4, &loads, 396, Some(256)),
            "this load needs 396 open files for 4 servers (including any control and ceiling), but \
             only 256 are allowed: let root raise the limit (sudo prlimit --pid $$ --nofile=396), \
             or use at most 29 connections"
        );
        assert_eq!(needed(4, &[load(29)]), 256);
        assert!(refusal(4, &loads, 396, Some(128)).ends_with("--nofile=396)"));
        assert_eq!(allow_files(1, &[load(1)]), Ok(()));
    }

    /// Regression: a step that sent the same response as the step below was reported to do
    /// different work, because the comparison was with the first step.
    #[test]
    fn the_work_of_a_step_is_compared_with_the_step_below() {
        let participant = |name: &str, body: &[u8]| {
            let mut contract = Contract::of(Name::Hello, None);
            contract.exchanges[0].content = Content::exactly(body);
            let launch = Launch::default();
            Participant::new(
                name.to_owned(),
                if name == "a" { Role::Reference } else { Role::Plain },
                Origin::Launch(launch),
                contract,
            )
        };
        let participants =
            [participant("a", b"text"), participant("b", b"json"), participant("c", b"json")];
        let told = |against: BTreeMap<usize, usize>| -> Vec<usize> {
            let setting = Setting {
                slices: vec![],
                probe_limit: Duration::ZERO,
                timeout: Duration::ZERO,
                start_limit: Duration::ZERO,
                level_for: Duration::ZERO,
                warm_limit: Duration::ZERO,
                grace: Duration::ZERO,
                freeze: true,
                counters: false,
                cores: CpuAllocation {
                    server: vec![],
                    generator: vec![],
                    shared: true,
                    notes: vec![],
                },
                host: Arc::new(LocalHost {
                    database: None,
                    supervisor: Supervisor::new("/none", &[]),
                    logs: PathBuf::new(),
                    network: Network::loopback(),
                }),
                generator: Arc::new(ThisProcess),
                against,
            };
            let mut live =
                LocalRunner::new(setting, &participants, &[], Arc::new(AtomicBool::new(false)));
            let differences = |n: usize| {
                live.instances[n].verified = true;
                live.differences(n).len()
            };
            (0..3).map(differences).collect()
        };
        assert_eq!(told(BTreeMap::new()), [0, 1, 1]);
        assert_eq!(told(BTreeMap::from([(1, 0), (2, 1)])), [0, 1, 0]);
    }
}
