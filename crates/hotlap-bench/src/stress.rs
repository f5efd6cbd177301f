//! Measures what an attack does to a server and its normal clients.
//!
//! The normal clients' load is measured before, during and after each [`Scenario`]: did they get
//! responses, did the server answer or close the attackers' connections, has it recovered
//! ([`judge()`])? Servers are not compared with each other: each runs alone and is compared with
//! itself a second earlier. A server that is down is started again for the next scenario.
//!
//! Only servers on this machine are attacked, unless the caller allows others.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotlap_load::http::Response;
use hotlap_load::plan::{Endpoint, Request, Target};
use serde::{Deserialize, Serialize};

use crate::participant::{Origin, Participant};
use hotlap_observe::Sampler;
use hotlap_servers::contract::{self, Exchange, Fields};
use hotlap_servers::launch::{Launch, ServerFailure};
use hotlap_servers::machine::{CpuAllocation, Network};
use hotlap_servers::process::{Process, Supervisor};
use hotlap_servers::start::{HOST, LAST_LINES, Started, Startup, ask, ending};
use hotlap_servers::verify::{LIMIT, Requirements};

mod attackers;
mod judge;
mod scenario;
mod trial;

pub use attackers::Fate;
pub use judge::{
    BUSY, ERRORS, Held, Impact, Judgement, MEMORY_LEAST_BYTES, MEMORY_TIMES, Observed,
    P99_LEAST_NS, P99_TIMES, PACE, PACE_AFTER, Reason, Service, THREADS_LEAST, THREADS_TIMES,
    judge, words,
};
pub use scenario::{Attack, Rude, Says, Scenario};

/// Attempts at the first load while there are no responses: on a busy machine, a server may not get
/// a core for that long.
const WARMUP_ATTEMPTS: usize = 5;

/// How servers are stressed.
#[derive(Debug, Clone)]
pub struct StressSetting {
    /// The scenarios, in order.
    pub scenarios: Vec<Scenario>,
    /// Duration of each part.
    pub timing: Timing,
    /// Connections of the normal clients, on one generator thread.
    pub good: usize,
    /// Which cores servers and generators use.
    pub cores: CpuAllocation,
    /// The command that starts a supervisor.
    pub supervisor: Supervisor,
    /// Folder for the servers' logs.
    pub logs: PathBuf,
    /// Time limit from a server's start to its first response.
    pub start_limit: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Whether a server on another machine may be attacked.
    pub allow_remote: bool,
}

/// Duration of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Load before the first scenario.
    pub warm: Duration,
    /// The normal clients' load before a window opens.
    pub ramp: Duration,
    /// The windows before and after the attack.
    pub baseline: Duration,
    /// From the start of the attack to the start of the normal clients' load.
    pub attack_lead: Duration,
    /// The window during the attack.
    pub attack: Duration,
    /// The normal clients' timeout.
    pub timeout: Duration,
    /// The normal clients' timeout if the attack is a load, during which all clients wait longer.
    pub overload_timeout: Duration,
    /// How long a server may take to send a correct response after the attack.
    pub recover: Duration,
    /// Duration of each reading of an idle server's CPU time.
    pub idle: Duration,
}

impl Default for Timing {
    /// About two and a half seconds per scenario.
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            warm: ms(2_000),
            ramp: ms(100),
            baseline: ms(400),
            attack_lead: ms(300),
            attack: ms(1_200),
            // Shorter than the attack, so that a client that never gets a response fails within it.
            timeout: ms(1_000),
            // wrk's timeout.
            overload_timeout: ms(2_000),
            recover: ms(5_000),
            idle: ms(200),
        }
    }
}

/// The results of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// Its name in tables.
    pub name: String,
    /// Its version, as it reports it; empty if unknown.
    pub version: String,
    /// Connections of the normal clients.
    pub good: usize,
    /// One for each scenario that was run.
    pub trials: Vec<Trial>,
    /// Why there are no more, if it could not be started (again).
    pub failure: Option<ServerFailure>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// One scenario on one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
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
    /// A result without trials.
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

    /// The scenarios that have not been run; none if the server could not be started.
    pub fn left<'a>(&self, scenarios: &'a [Scenario]) -> Vec<&'a Scenario> {
        let is_done = |s: &&Scenario| self.trials.iter().any(|trial| trial.scenario == s.name);
        let left = scenarios.iter().filter(|s| !is_done(s));
        left.take_while(|_| self.failure.is_none()).collect()
    }
}

impl Trial {
    /// Whether a busy machine may be the cause. It is never the cause of an exit, or of memory or
    /// threads that a server keeps.
    fn is_doubtful(&self) -> bool {
        let by_chance = [Impact::Slowed, Impact::Failing, Impact::Down];
        by_chance.contains(&self.judgement.impact) && self.observed.ended.is_none()
    }

    /// The better of two trials of one scenario. Memory and threads after the second are compared
    /// with those before the first, or the second would hide what the first left behind.
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

/// Runs the remaining scenarios on one server, and reports each to `on` when it begins and ends.
pub fn stress(
    participant: &Participant,
    setting: &StressSetting,
    mut subject: Subject,
    stop: &AtomicBool,
    on: &mut dyn FnMut(&StressEvent<'_>),
) -> Subject {
    let mut running: Option<StressedServer> = None;
    for scenario in subject.left(&setting.scenarios) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        on(&StressEvent::Scenario { server: &participant.name, scenario: &scenario.name });
        let started = running.take().map_or_else(
            || StressedServer::start(participant, setting, stop, &mut subject.notes),
            Ok,
        );
        let mut server = match started {
            Ok(server) => server,
            Err(failure) => {
                subject.failure = (!stop.load(Ordering::Relaxed)).then_some(failure);
                break;
            }
        };
        match server.run_and_confirm(scenario, setting, stop) {
            Ok(Some(trial)) => {
                // A server that hotlap did not start cannot be restarted, so the next scenario uses
                // it as it is.
                let goes_on = trial.judgement.impact != Impact::Down || server.process.is_none();
                subject.trials.push(trial);
                on(&StressEvent::Trial { subject: &subject });
                if goes_on {
                    running = Some(server);
                } else {
                    server.stop(setting);
                }
            }
            Ok(None) => {
                server.stop(setting);
                break;
            }
            Err(failure) => {
                subject.failure = Some(failure);
                server.stop(setting);
                break;
            }
        }
    }
    if let Some(server) = running {
        server.stop(setting);
    }
    subject
}

/// Progress of a stress.
#[derive(Debug)]
pub enum StressEvent<'a> {
    /// A scenario begins.
    Scenario {
        /// The server's name.
        server: &'a str,
        /// The scenario's name.
        scenario: &'a str,
    },
    /// A scenario is over.
    Trial {
        /// The server, with this trial as its last.
        subject: &'a Subject,
    },
}

/// A running server, and the request that it gets.
struct StressedServer {
    process: Option<Process>,
    sampler: Option<Sampler>,
    target: Target,
    host: String,
    exchange: Exchange,
    request: Request,
    /// The share of a core that it used without requests, after the warm-up.
    idle: Option<f64>,
}

impl StressedServer {
    fn start(
        participant: &Participant,
        setting: &StressSetting,
        stop: &AtomicBool,
        notes: &mut Vec<String>,
    ) -> Result<Self, ServerFailure> {
        let (target, host, process, sampler) = match &participant.start {
            Origin::Running { target, host, .. } => (target.clone(), host.clone(), None, None),
            Origin::Launch(launch) => {
                let started = start_process(participant, launch, setting, stop)?;
                notes.extend(started.owner.note());
                (started.target, HOST.to_owned(), Some(started.process), started.sampler)
            }
        };
        check_target(&target, setting)?;
        let (exchange, answer) = match participant.contract.name {
            Some(_) => {
                let exchange = participant.contract.exchanges[0].clone();
                let answer = ask(&target, &host, LIMIT, &exchange).map_err(|why| {
                    let cause = format!("{}: {why}", exchange.name);
                    failure("verify", cause, "`hotlap check` shows details")
                })?;
                (exchange, answer)
            }
            None => infer_exchange(&target, &host, participant, notes)?,
        };
        let request = exchange.request(&host, Some(&answer), &Fields::default());
        let mut server = Self { process, sampler, target, host, exchange, request, idle: None };
        server.warm_up(setting, stop)?;
        Ok(server)
    }

    /// Loads the server without counting, then reads its CPU time without load.
    fn warm_up(&mut self, setting: &StressSetting, stop: &AtomicBool) -> Result<(), ServerFailure> {
        let mut warm = self.measure(setting, setting.timing.warm);
        for _ in 1..WARMUP_ATTEMPTS {
            if warm.answers > 0 || stop.load(Ordering::Relaxed) {
                break;
            }
            warm = self.measure(setting, setting.timing.warm);
        }
        if warm.answers == 0 && !stop.load(Ordering::Relaxed) {
            let cause = warm.unreachable.unwrap_or_else(|| {
                format!(
                    "{} normal clients got no correct response, even without an attack",
                    setting.good
                )
            });
            return Err(failure("warm-up", cause, "`hotlap check` shows its responses"));
        }
        self.idle = self.idle_share(setting.timing.idle);
        Ok(())
    }

    /// Runs a scenario, and again if its normal clients fared badly, since other work on this
    /// machine may be the cause. The better trial counts.
    fn run_and_confirm(
        &mut self,
        scenario: &Scenario,
        setting: &StressSetting,
        stop: &AtomicBool,
    ) -> Result<Option<Trial>, ServerFailure> {
        let Some(first) = self.run_scenario(scenario, setting, stop)? else { return Ok(None) };
        if !first.is_doubtful() {
            return Ok(Some(first));
        }
        // A server that still does not answer is not silent by chance.
        let is_silent = first.observed.recovered_ms.is_none();
        if is_silent && self.recover(setting.timing.recover, stop).is_none() {
            return Ok(Some(first));
        }
        Ok(Some(match self.run_scenario(scenario, setting, stop)? {
            Some(again) => first.milder(again),
            None => first,
        }))
    }

    fn stop(self, setting: &StressSetting) {
        if let Some(process) = self.process {
            process.stop(setting.grace);
        }
    }
}

fn start_process(
    participant: &Participant,
    launch: &Launch,
    setting: &StressSetting,
    stop: &AtomicBool,
) -> Result<Started, ServerFailure> {
    let (cpus, cores) = setting.cores.of_server(participant.cpus);
    let startup = Startup {
        launch,
        first: &participant.contract.with_values(0).exchanges[0],
        protocol: hotlap_load::plan::Protocol::Http1,
        accepts_wrong: false,
        cpus,
        cores,
        supervisor: &setting.supervisor,
        log: setting.logs.join("stress.log"),
        limit: setting.start_limit,
        counters: false,
        observes: false,
        elsewhere: participant.requirements == Requirements::Custom,
        network: &Network::loopback(),
        stop,
    };
    startup.run()
}

/// Checks that this target may be attacked and speaks plain HTTP over TCP.
fn check_target(target: &Target, setting: &StressSetting) -> Result<(), ServerFailure> {
    let Endpoint::Tcp(address) = &target.endpoint else {
        let remedy = "make it listen on a port of 127.0.0.1";
        return Err(failure("start", "a stress needs TCP".to_owned(), remedy));
    };
    if target.tls.is_some() {
        let cause = "a stress needs plain HTTP".to_owned();
        return Err(failure("start", cause, "stress the server behind the TLS proxy"));
    }
    if !address.ip().is_loopback() && !setting.allow_remote {
        let cause = format!("{} is not on this machine", address.ip());
        return Err(failure("start", cause, "pass --allow-remote if you may stress it"));
    }
    Ok(())
}

/// The request for a server without a contract, with the inferred response.
fn infer_exchange(
    target: &Target,
    host: &str,
    participant: &Participant,
    notes: &mut Vec<String>,
) -> Result<(Exchange, Response), ServerFailure> {
    let mut inferred = contract::infer(target, host, LIMIT, &participant.contract.with_values(0))
        .map_err(|why| failure("verify", why, "try it with curl"))?;
    for note in inferred.notes {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok((inferred.contract.exchanges.swap_remove(0), inferred.answers.swap_remove(0)))
}

fn failure(phase: &str, cause: String, remedy: &str) -> ServerFailure {
    ServerFailure {
        phase: phase.to_owned(),
        cause,
        log_tail: Vec::new(),
        remedy: remedy.to_owned(),
    }
}

/// How a process ended, with its last log lines; `None` while it runs.
fn ending_of(process: Option<&mut Process>) -> Option<(String, Vec<String>)> {
    let process = process?;
    let exit = process.exited()?;
    // The first process of a program that daemonizes ends, while its children keep serving.
    if process.members().is_ok_and(|members| !members.is_empty()) {
        return None;
    }
    Some((ending(exit), process.tail(LAST_LINES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(answers: u64, last_rss_bytes: u64, ended: bool) -> Trial {
        let pace =
            |answers| Service { requests_per_s: answers as f64, answers, ..Service::default() };
        let held = |rss_bytes| Held { rss_bytes, threads: 4 };
        let observed = Observed {
            before: pace(10_000),
            during: pace(answers),
            after: pace(10_000),
            held: Some([held(20_000_000), held(20_000_000), held(last_rss_bytes)]),
            recovered_ms: (!ended).then_some(1.0),
            ended: ended.then(|| "exited with code 1".to_owned()),
            ..Observed::default()
        };
        Trial {
            scenario: "garbage".to_owned(),
            about: String::new(),
            judgement: judge(&observed),
            observed,
            log_tail: Vec::new(),
        }
    }

    /// Regression: on a machine without an idle core, a server counted as harmed that was fine a
    /// second later.
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
