//! Measures what an attack does to a server and its normal clients.
//!
//! The normal clients' load is measured before, during and after each [`Scenario`]. The results
//! show whether the clients got responses, how the server treated the attackers' connections, and
//! whether the server recovered ([`judge()`]). Servers are not compared with each other. Each
//! server runs alone and is compared with its own results from just before the attack. A server
//! that hotlap started and that is down is started again for the next scenario.
//!
//! A server that is already running is attacked only if it is on this machine, unless the caller
//! allows other machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::outcome::Outcome;
use hotlap_load::plan::{Endpoint, Plan, Protocol, Request, Shape, Stop, Target};
use hotlap_load::{Error, Session};
use serde::{Deserialize, Serialize};

use crate::participant::{Origin, Participant, Started, Starter};
use attackers::Attackers;
use hotlap_servers::contract::{Exchange, Fields, Response};
use hotlap_servers::infer;
use hotlap_servers::interrupt;
use hotlap_servers::launch::ServerFailure;
use hotlap_servers::machine::CpuAllocation;
use hotlap_servers::running::{RunningServer, ServerHost, ServerState};
use hotlap_servers::verify::{LIMIT, ask};

mod attackers;
mod judge;
mod scenario;

pub use attackers::Fate;
pub use judge::{
    BUSY, ClientService, ERRORS, Held, Impact, Judgement, MEMORY_LEAST_BYTES, MEMORY_TIMES,
    Observed, P99_LEAST_NS, P99_TIMES, PACE, PACE_AFTER, Reason, THREADS_LEAST, THREADS_TIMES,
    judge, words,
};
pub use scenario::{Attack, Rude, Says, Scenario};

/// The maximum number of attempts at the first load while there are no responses. On a busy
/// machine, a server may have to wait that long for a core.
const WARMUP_ATTEMPTS: usize = 5;

/// The maximum number of readings of a server's CPU time without requests. A garbage collector or
/// compiler may still be at work during the first readings.
const IDLE_LOOKS: usize = 5;

/// The maximum number of times that the load after a scenario is measured while the server is slow.
const AFTER_LOOKS: usize = 4;

/// The share of a core that an idle server may use, in addition to its use after the warm-up.
const IS_IDLE: f64 = 0.1;

/// The interval between attempts to get a response after the scenario.
const RETRY: Duration = Duration::from_millis(10);

/// The maximum length of an attack that is a load. The attack is stopped once the normal clients'
/// window has closed, and must not end earlier.
const LINGER: Duration = Duration::from_secs(60);

/// The settings of a stress test.
#[derive(Debug, Clone)]
pub struct StressSetting {
    /// The scenarios, in order.
    pub scenarios: Vec<Scenario>,
    /// The duration of each part of a scenario.
    pub timing: Timing,
    /// The number of connections of the normal clients, on one generator thread.
    pub good: usize,
    /// The cores that servers and generators use.
    pub cores: CpuAllocation,
    /// The host on which servers are started.
    pub host: Arc<dyn ServerHost>,
    /// Time limit from a server's start to its first response.
    pub start_limit: Duration,
    /// Time from SIGTERM to SIGKILL when a server is stopped.
    pub grace: Duration,
    /// Whether a server on another machine may be attacked.
    pub allow_remote: bool,
}

/// The duration of each part of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The load after each start of the server.
    pub warm: Duration,
    /// The normal clients' load before a window opens.
    pub ramp: Duration,
    /// The windows before and after the attack.
    pub baseline: Duration,
    /// The time from the start of the attack to the start of the normal clients' load.
    pub attack_lead: Duration,
    /// The window during the attack.
    pub attack: Duration,
    /// The normal clients' timeout.
    pub timeout: Duration,
    /// The normal clients' timeout if the attack is a load. All clients wait longer during such an
    /// attack.
    pub overload_timeout: Duration,
    /// How long a server may take to send a correct response after the attack.
    pub recover: Duration,
    /// Duration of each reading of an idle server's CPU time.
    pub idle: Duration,
}

impl Default for Timing {
    /// The usual durations add up to about 2.8 s per scenario.
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            warm: ms(2_000),
            ramp: ms(100),
            baseline: ms(400),
            attack_lead: ms(300),
            attack: ms(1_200),
            // The timeout is shorter than the attack, so that a client without a response fails
            // during it.
            timeout: ms(1_000),
            // The default timeout of wrk is the same (https://github.com/wg/wrk).
            overload_timeout: ms(2_000),
            recover: ms(5_000),
            idle: ms(200),
        }
    }
}

/// The results of a stress test of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// The server's name in tables.
    pub name: String,
    /// The server's version, in one line. Empty if unknown.
    pub version: String,
    /// The number of connections of the normal clients.
    pub good: usize,
    /// The trials, one for each scenario that was run.
    pub trials: Vec<StressTrial>,
    /// The failure because of which the remaining scenarios were not run.
    pub failure: Option<ServerFailure>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// The result of one scenario on one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StressTrial {
    /// The scenario's name.
    pub scenario: String,
    /// A one-line description of the attack.
    pub about: String,
    /// What was measured and observed.
    pub observed: Observed,
    /// The judgement.
    pub judgement: Judgement,
    /// The server's last log lines, if it ended.
    pub log_tail: Vec<String>,
}

impl Subject {
    /// Creates a result without trials.
    pub fn new(participant: &Participant, good: usize) -> Self {
        Self {
            name: participant.name.clone(),
            version: participant.version.clone(),
            good,
            trials: Vec::new(),
            failure: None,
            notes: Vec::new(),
        }
    }

    /// The scenarios that have not been run yet. Empty after a failure.
    pub fn left<'a>(&self, scenarios: &'a [Scenario]) -> Vec<&'a Scenario> {
        let is_done = |s: &&Scenario| self.trials.iter().any(|trial| trial.scenario == s.name);
        let left = scenarios.iter().filter(|s| !is_done(s));
        left.take_while(|_| self.failure.is_none()).collect()
    }
}

impl StressTrial {
    /// Whether a busy machine may be the cause of the impact. A busy machine never causes an exit,
    /// or memory or threads that a server keeps.
    fn is_doubtful(&self) -> bool {
        let by_chance = [Impact::Slowed, Impact::Failing, Impact::Down];
        by_chance.contains(&self.judgement.impact) && self.observed.ended.is_none()
    }

    /// Returns the better of two trials of one scenario. Memory and threads after the second trial
    /// are compared with the values before the first. Otherwise, the second trial would hide what
    /// the first left behind.
    fn milder(self, mut again: Self) -> Self {
        if let (Some(first), Some(last)) = (&self.observed.held, &mut again.observed.held) {
            last[0] = first[0];
            again.judgement = judge(&again.observed);
        }
        match again.judgement.impact < self.judgement.impact {
            true => again,
            false => self,
        }
    }
}

/// Runs the remaining scenarios on one server, and reports the beginning and end of each to `on`.
/// The server's log is named after `number`.
pub fn stress(
    number: usize,
    participant: &Participant,
    setting: &StressSetting,
    mut subject: Subject,
    stop: &AtomicBool,
    on: &mut dyn FnMut(&StressEvent<'_>),
) -> Subject {
    let mut running: Option<Attacked> = None;
    for scenario in subject.left(&setting.scenarios) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        on(&StressEvent::Scenario { server: &participant.name, scenario: &scenario.name });
        let started = running.take().map_or_else(
            || Attacked::start(number, participant, (setting, stop), &mut subject.notes),
            Ok,
        );
        let mut server = match started {
            Ok(server) => server,
            Err(failure) => {
                subject.failure = (!stop.load(Ordering::Relaxed)).then_some(failure);
                break;
            }
        };
        let trial = server.run_and_confirm(scenario);
        let mut is_down = false;
        match trial {
            Ok(Some(trial)) => {
                is_down = trial.judgement.impact == Impact::Down;
                subject.trials.push(trial);
                on(&StressEvent::Trial { subject: &subject });
            }
            Ok(None) => {}
            Err(failure) => subject.failure = Some(failure),
        }
        let goes_on = !stop.load(Ordering::Relaxed) && subject.failure.is_none();
        // A server that hotlap did not start cannot be restarted, so the next scenario uses the
        // server in its current state.
        match goes_on && !(is_down && server.is_started()) {
            true => running = Some(server),
            false => server.stop(),
        }
        if !goes_on {
            break;
        }
    }
    if let Some(server) = running {
        server.stop();
    }
    subject
}

/// The progress of a stress test.
#[derive(Debug)]
pub enum StressEvent<'a> {
    /// A scenario is about to begin.
    Scenario {
        /// The server's name.
        server: &'a str,
        /// The scenario's name.
        scenario: &'a str,
    },
    /// A scenario has ended.
    Trial {
        /// The server's results, with this scenario's trial as the last one.
        subject: &'a Subject,
    },
}

/// A server under attack, and the request of its normal clients.
struct Attacked<'a> {
    setting: &'a StressSetting,
    stop: &'a AtomicBool,
    server: Option<Box<dyn RunningServer>>,
    target: Target,
    host: String,
    exchange: Exchange,
    request: Request,
    /// The share of a core that the server used without requests, after the warm-up.
    idle: Option<f64>,
}

/// A running attack.
enum RunningAttack {
    Load(Session),
    Attackers(Attackers),
}

impl<'a> Attacked<'a> {
    fn start(
        number: usize,
        participant: &Participant,
        (setting, stop): (&'a StressSetting, &'a AtomicBool),
        notes: &mut Vec<String>,
    ) -> Result<Self, ServerFailure> {
        if let Origin::Running { target, .. } = &participant.start {
            check_target(target, setting)?;
        }
        let starter = Starter {
            host: &*setting.host,
            cores: &setting.cores,
            limit: setting.start_limit,
            protocol: Protocol::Http1,
            counters: false,
            observes: false,
            stop,
        };
        let Started { server, target, host, notes: more, .. } =
            starter.start(number, participant)?;
        notes.extend(more);
        let (exchange, answer) = match participant.contract.is_custom() {
            false => {
                let exchange = participant.contract.with_values(0).exchanges.swap_remove(0);
                let answer = ask(&target, &host, LIMIT, &exchange, stop).map_err(|why| {
                    let cause = format!("{}: {why}", exchange.name);
                    failure("verify", cause, "`hotlap check` shows details")
                })?;
                (exchange, answer)
            }
            true => infer_exchange(&target, &host, participant, notes, stop)?,
        };
        let request = exchange.request(&host, Some(&answer), &Fields::default());
        let mut server =
            Self { setting, stop, server, target, host, exchange, request, idle: None };
        server.warm_up()?;
        Ok(server)
    }

    fn is_started(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.is_started())
    }

    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn stop(self) {
        if let Some(server) = self.server {
            server.stop(self.setting.grace);
        }
    }

    /// Loads the server, then reads its CPU time without load.
    fn warm_up(&mut self) -> Result<(), ServerFailure> {
        let warm = self.setting.timing.warm;
        let mut fared = self.measure(warm);
        for _ in 1..WARMUP_ATTEMPTS {
            if fared.responses > 0 || self.is_interrupted() {
                break;
            }
            fared = self.measure(warm);
        }
        if fared.responses == 0 && !self.is_interrupted() {
            let cause = fared.unreachable.unwrap_or_else(|| {
                format!(
                    "{} normal clients got no correct response, even without an attack",
                    self.setting.good
                )
            });
            return Err(failure("warm-up", cause, "`hotlap check` shows the server's responses"));
        }
        self.idle = self.idle_share();
        Ok(())
    }

    /// Runs a scenario, and runs it again if the normal clients fared badly, because other work on
    /// this machine may be the cause. The better trial counts, unless the server stays silent
    /// after the second. `None` if interrupted.
    fn run_and_confirm(
        &mut self,
        scenario: &Scenario,
    ) -> Result<Option<StressTrial>, ServerFailure> {
        let Some(first) = self.run_scenario(scenario)? else { return Ok(None) };
        if !first.is_doubtful() || self.stays_silent(&first) {
            return Ok(Some(first));
        }
        Ok(Some(match self.run_scenario(scenario)? {
            Some(again) if self.stays_silent(&again) => again,
            Some(again) => first.milder(again),
            None => first,
        }))
    }

    /// Whether the server has ended, or did not respond after a trial and still does not respond.
    /// Such a server is not silent by chance.
    fn stays_silent(&mut self, trial: &StressTrial) -> bool {
        let Observed { recovered_ms, ended, .. } = &trial.observed;
        ended.is_some() || recovered_ms.is_none() && self.recover().is_none()
    }

    /// Runs one scenario. `None` if interrupted.
    fn run_scenario(&mut self, scenario: &Scenario) -> Result<Option<StressTrial>, ServerFailure> {
        let timing = &self.setting.timing;
        let mut observed = Observed {
            before: self.measure(timing.baseline),
            crowding: crowding(scenario, self.setting.good),
            ..Observed::default()
        };
        let first = self.held();
        let attack = self.attack(scenario)?;
        if !interrupt::sleep(timing.attack_lead, self.stop) {
            return Ok(None);
        }
        let middle;
        (observed.during, middle) = self.measure_under_attack(scenario);
        match attack {
            RunningAttack::Load(session) => {
                session.stop();
                observed.others = Some(fared(session.join()));
            }
            RunningAttack::Attackers(attackers) => observed.fate = Some(attackers.stop()),
        }
        observed.recovered_ms = self.recover();
        if observed.recovered_ms.is_some() {
            observed.after = self.measure_after(&observed.before);
            let last_idle = self.wait_until_idle();
            observed.idle = self.idle.zip(last_idle).map(|(first, last)| [first, last]);
        }
        if self.is_interrupted() {
            return Ok(None);
        }
        let held = first.zip(middle).zip(self.held());
        observed.held = held.map(|((first, middle), last)| [first, middle, last]);
        let mut log_tail = Vec::new();
        match self.state() {
            ServerState::Runs => {}
            ServerState::Ended(exit) => {
                observed.ended = Some(exit.to_string());
                log_tail = self.server.as_ref().map_or(Vec::new(), |server| server.tail());
            }
            ServerState::Unreachable(why) => return Err(failure("stress", why.cause, &why.remedy)),
        }
        Ok(Some(StressTrial {
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            judgement: judge(&observed),
            observed,
            log_tail,
        }))
    }

    /// Measures the load of the normal clients for this long.
    fn measure(&self, window: Duration) -> ClientService {
        fared(hotlap_load::run(&self.normal_plan(window)))
    }

    /// Measures the load of the normal clients after the scenario. The best of several measurements
    /// counts, because a slow one may be due to other work on this machine.
    fn measure_after(&self, before: &ClientService) -> ClientService {
        let baseline = self.setting.timing.baseline;
        let mut best = self.measure(baseline);
        for _ in 1..AFTER_LOOKS {
            let is_slow = best.requests_per_s < PACE_AFTER * before.requests_per_s;
            if !is_slow || self.is_interrupted() {
                break;
            }
            let again = self.measure(baseline);
            if again.requests_per_s > best.requests_per_s {
                best = again;
            }
        }
        best
    }

    /// Measures the load of the normal clients during the attack. Also returns the server's memory
    /// and threads shortly before the end of the attack.
    fn measure_under_attack(&mut self, scenario: &Scenario) -> (ClientService, Option<Held>) {
        let timing = &self.setting.timing;
        let mut plan = self.normal_plan(timing.attack);
        if matches!(scenario.attack, Attack::Load { .. }) {
            plan.timeout = timing.overload_timeout;
        }
        let session = match Session::start(&plan) {
            Ok(session) => session,
            Err(error) => return (fared(Err(error)), self.held()),
        };
        if let Some(window) = session.wait_for_window() {
            let end = window.closes.unwrap_or(window.opens);
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.saturating_sub(Duration::from_millis(100)));
        }
        let held = self.held();
        (fared(session.join()), held)
    }

    fn normal_plan(&self, window: Duration) -> Plan {
        let setting = self.setting;
        let mut plan = Plan::new(self.target.clone(), self.request.clone());
        plan.shape.connections = setting.good;
        plan.shape.threads = 1;
        plan.warmup = setting.timing.ramp;
        plan.stop = Stop::After(window);
        plan.timeout = setting.timing.timeout;
        plan.cpus.clone_from(&setting.cores.generator);
        plan
    }

    /// Starts the attack of a scenario.
    fn attack(&self, scenario: &Scenario) -> Result<RunningAttack, ServerFailure> {
        let remedy =
            "raise the limits of open files and threads (ulimit), or leave out this scenario";
        let refused = |what: String| failure("stress", what, remedy);
        match &scenario.attack {
            Attack::Load { connections, threads, reuse } => {
                let mut plan = self.normal_plan(LINGER);
                plan.timeout = self.setting.timing.overload_timeout;
                let (connections, threads, reuse) = (*connections, *threads, *reuse);
                plan.shape = Shape { connections, threads, reuse, ..plan.shape };
                let session = Session::start(&plan).map_err(|e| refused(e.to_string()))?;
                Ok(RunningAttack::Load(session))
            }
            Attack::Rude(rude) => {
                allow_files(rude.clients).map_err(refused)?;
                let messages = rude.says.messages(&self.exchange, &self.host);
                let cpus = &self.setting.cores.generator;
                let attackers = Attackers::start(rude, messages, &self.target, cpus);
                Ok(RunningAttack::Attackers(attackers.map_err(refused)?))
            }
        }
    }

    /// Waits until a new connection gets a correct response. Returns the time in milliseconds.
    fn recover(&mut self) -> Option<f64> {
        let limit = self.setting.timing.recover;
        let began = Instant::now();
        loop {
            if ask(&self.target, &self.host, LIMIT, &self.exchange, self.stop).is_ok() {
                return Some(began.elapsed().as_secs_f64() * 1e3);
            }
            let is_over = self.state() != ServerState::Runs;
            if is_over || began.elapsed() > limit || !interrupt::sleep(RETRY, self.stop) {
                return None;
            }
        }
    }

    /// Waits until the server is idle, within limits. Returns the share of a core that it used
    /// last.
    fn wait_until_idle(&mut self) -> Option<f64> {
        let mut share = None;
        for _ in 0..IDLE_LOOKS {
            share = self.idle_share();
            let is_idle = share.is_none_or(|share| share < self.idle.unwrap_or(0.0) + IS_IDLE);
            if is_idle || self.is_interrupted() {
                break;
            }
        }
        share
    }

    /// Measures the share of a core that the server uses without requests.
    fn idle_share(&mut self) -> Option<f64> {
        let server = self.server.as_mut()?;
        let before = server.sample(&|| 0);
        std::thread::sleep(self.setting.timing.idle);
        let after = server.sample(&|| 0);
        let wall_ns = after.at.saturating_duration_since(before.at).as_nanos().max(1) as f64;
        Some(after.cpu_ns?.saturating_sub(before.cpu_ns?) as f64 / wall_ns)
    }

    fn held(&mut self) -> Option<Held> {
        let memory = self.server.as_mut()?.resident()?;
        Some(Held { rss_bytes: memory.rss_bytes, threads: memory.threads })
    }

    fn state(&mut self) -> ServerState {
        self.server.as_mut().map_or(ServerState::Runs, |server| server.state())
    }
}

/// Checks that a server that is already running may be attacked.
fn check_target(target: &Target, setting: &StressSetting) -> Result<(), ServerFailure> {
    let Endpoint::Tcp(address) = &target.endpoint else {
        let remedy = "make the server listen on a port of 127.0.0.1";
        return Err(failure("start", "a stress test needs a TCP address".to_owned(), remedy));
    };
    if !address.ip().is_loopback() && !setting.allow_remote {
        let cause = format!("{} is not a loopback address", address.ip());
        return Err(failure("start", cause, "pass --allow-remote if you are allowed to stress it"));
    }
    Ok(())
}

/// Infers the request and its correct response for a server without a contract.
fn infer_exchange(
    target: &Target,
    host: &str,
    participant: &Participant,
    notes: &mut Vec<String>,
    stop: &AtomicBool,
) -> Result<(Exchange, Response), ServerFailure> {
    let mut inferred =
        infer::infer(target, host, LIMIT, &participant.contract.with_values(0), stop).map_err(
            |why| failure("verify", why, "send the request with curl to see the response"),
        )?;
    for note in inferred.notes {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok((inferred.contract.exchanges.swap_remove(0), inferred.responses.swap_remove(0)))
}

fn failure(phase: &str, cause: String, remedy: &str) -> ServerFailure {
    ServerFailure {
        phase: phase.to_owned(),
        cause,
        log_tail: Vec::new(),
        remedy: remedy.to_owned(),
    }
}

fn crowding(scenario: &Scenario, good: usize) -> f64 {
    match scenario.attack {
        Attack::Load { connections, .. } => (good + connections) as f64 / good.max(1) as f64,
        Attack::Rude(_) => 1.0,
    }
}

fn fared(outcome: Result<Outcome, Error>) -> ClientService {
    match outcome {
        Ok(outcome) => ClientService {
            requests_per_s: outcome.rate(),
            responses: outcome.responses,
            p99_ns: if outcome.service_time.is_empty() {
                0
            } else {
                outcome.service_time.quantile(0.99)
            },
            failures: outcome.failures.0.clone(),
            unanswered: outcome.stalled,
            unreachable: None,
        },
        Err(error) => {
            ClientService { unreachable: Some(error.to_string()), ..ClientService::default() }
        }
    }
}

/// Raises the limit on open files for the attackers and the normal clients.
fn allow_files(clients: usize) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = clients as u64 + 512;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    let refused = || {
        let allowed = match limit.maximum {
            Some(most) => format!("only {most} are allowed (ulimit -Hn)"),
            None => "the system does not allow so many".to_owned(),
        };
        format!("{clients} connections need {needed} open files, but {allowed}")
    };
    if limit.maximum.is_some_and(|hard| hard < needed) {
        return Err(refused());
    }
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(responses: u64, last_rss_bytes: u64, ended: bool) -> StressTrial {
        let pace = |responses| ClientService {
            requests_per_s: responses as f64,
            responses,
            ..ClientService::default()
        };
        let held = |rss_bytes| Held { rss_bytes, threads: 4 };
        let observed = Observed {
            before: pace(10_000),
            during: pace(responses),
            after: pace(10_000),
            held: Some([held(20_000_000), held(20_000_000), held(last_rss_bytes)]),
            recovered_ms: (!ended).then_some(1.0),
            ended: ended.then(|| "exited with code 1".to_owned()),
            ..Observed::default()
        };
        StressTrial {
            scenario: "garbage".to_owned(),
            about: String::new(),
            judgement: judge(&observed),
            observed,
            log_tail: Vec::new(),
        }
    }

    /// Regression: on a machine without an idle core, a server that was fine a second later counted
    /// as harmed.
    #[test]
    fn the_better_of_two_trials_counts_and_an_exit_needs_no_second() {
        let (calm, hurt) = (trial(10_000, 20_000_000, false), trial(0, 20_000_000, false));
        assert_eq!(hurt.judgement.impact, Impact::Failing);
        assert!(hurt.is_doubtful() && !calm.is_doubtful());
        assert!(!trial(10_000, 0, true).is_doubtful());
        assert_eq!(hurt.clone().milder(calm.clone()), calm);
        assert_eq!(hurt.clone().milder(hurt.clone()), hurt);
    }

    #[test]
    fn a_second_trial_shows_what_the_first_left_behind() {
        let mut again = trial(10_000, 500_000_000, false);
        again.observed.held = again.observed.held.map(|[_, b, c]| [c, b, c]);
        again.judgement = judge(&again.observed);
        assert_eq!(again.judgement.impact, Impact::Unaffected);
        let milder = trial(0, 500_000_000, false).milder(again);
        assert_eq!(milder.judgement.impact, Impact::Degraded);
    }
}
