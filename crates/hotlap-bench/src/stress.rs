//! What becomes of a server, and of its good clients, when others misbehave.
//!
//! Each [`Scenario`] has the good clients' load before, during and after: did they suffer, did the
//! server answer or close the others, is it well again ([`judge()`])? A server stands alone here,
//! since nothing is compared between servers: each is held against itself of a second ago. One
//! that is down is started again for its next scenario.
//!
//! Only servers on this machine are stressed, unless the caller says that the other is his.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotlap_load::http::Response;
use hotlap_load::plan::{Endpoint, Request, Target};
use serde::{Deserialize, Serialize};

use crate::participant::{Origin, Participant};
use hotlap_servers::allocation::CpuAllocation;
use hotlap_servers::contract::Exchange;
use hotlap_servers::failure::ServerFailure;
use hotlap_servers::infer;
use hotlap_servers::launch::Launch;
use hotlap_servers::process::{Process, Supervisor};
use hotlap_servers::sample::Sampler;
use hotlap_servers::start::{HOST, LAST_LINES, Started, Startup, ask, ending};
use hotlap_servers::verify::{LIMIT, Requirements};

mod bout;
mod crowd;
mod judge;
mod scenario;

pub use crowd::Fate;
pub use judge::{
    BUSY, ERRORS, Held, Impact, Judgement, MEMORY_LEAST_BYTES, MEMORY_TIMES, Observed,
    P99_LEAST_NS, P99_TIMES, PACE, PACE_AFTER, Reason, Service, THREADS_LEAST, THREADS_TIMES,
    judge, words,
};
pub use scenario::{Attack, Rude, Says, Scenario};

/// Looks at the first load as long as nothing is answered: a busy machine may let nobody run for as
/// long as one takes.
const WARM_LOOKS: usize = 5;

/// How servers are stressed.
#[derive(Debug, Clone)]
pub struct StressSetting {
    /// What happens to each, in order.
    pub scenarios: Vec<Scenario>,
    /// How long each part takes.
    pub timing: Timing,
    /// The good clients' connections; one generator thread.
    pub good: usize,
    /// Who runs on which cores.
    pub cores: CpuAllocation,
    /// How a supervisor is started.
    pub supervisor: Supervisor,
    /// Where what servers print is kept.
    pub logs: PathBuf,
    /// How long a server may take from its start to its first answer.
    pub start_limit: Duration,
    /// How long a server may take to end in peace.
    pub grace: Duration,
    /// A server on another machine may be stressed too.
    pub allow_remote: bool,
}

/// How long each part takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Load before the first scenario.
    pub warm: Duration,
    /// What the good clients send before a window opens.
    pub ramp: Duration,
    /// The window before the others come, and that when they are gone.
    pub quiet: Duration,
    /// From the others' coming to the good clients' load beside them.
    pub gather: Duration,
    /// The window beside them.
    pub attack: Duration,
    /// How long a good client waits for an answer.
    pub timeout: Duration,
    /// How long a good client waits among many more good ones, where waiting is fair.
    pub crowded: Duration,
    /// How long a server may take to give a right answer when all is over.
    pub recover: Duration,
    /// How long an idle server is watched, at a time.
    pub idle: Duration,
}

impl Default for Timing {
    /// About two and a half seconds a scenario.
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            warm: ms(2_000),
            ramp: ms(100),
            quiet: ms(400),
            gather: ms(300),
            attack: ms(1_200),
            // Shorter than the attack: who is starved all along has failed by its end.
            timeout: ms(1_000),
            // What wrk waits.
            crowded: ms(2_000),
            recover: ms(5_000),
            idle: ms(200),
        }
    }
}

/// One server, stressed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// What tables call it.
    pub name: String,
    /// What really ran: the version receipt; empty when unknown.
    pub version: String,
    /// The good clients' connections.
    pub good: usize,
    /// What became of it, a scenario each, as far as it came.
    pub trials: Vec<Trial>,
    /// Why there is no more, if it could not be started (again).
    pub failure: Option<ServerFailure>,
    /// What should be told.
    pub notes: Vec<String>,
}

/// One scenario of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The scenario's name.
    pub scenario: String,
    /// Who came.
    pub about: String,
    /// What was seen.
    pub observed: Observed,
    /// What to think of it.
    pub judgement: Judgement,
    /// The last lines that the server printed, if it ended.
    pub log_tail: Vec<String>,
}

impl Subject {
    /// One to whom nothing has happened yet.
    #[must_use]
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

    /// Which of these scenarios it has not met yet: none, if it is out.
    #[must_use]
    pub fn left<'a>(&self, scenarios: &'a [Scenario]) -> Vec<&'a Scenario> {
        let met = |s: &&Scenario| self.trials.iter().any(|trial| trial.scenario == s.name);
        let left = scenarios.iter().filter(|s| !met(s));
        left.take_while(|_| self.failure.is_none()).collect()
    }
}

impl Trial {
    /// Whether a busy machine could have been the cause: a process that ended, and what a server
    /// keeps, are the server's own.
    fn is_doubtful(&self) -> bool {
        let by_chance = [Impact::Suffered, Impact::Hurt, Impact::Down];
        by_chance.contains(&self.judgement.impact) && self.observed.ended.is_none()
    }

    /// The milder of two looks at one scenario. What it held before the first is what the second is
    /// held against, or the first would hide what it left behind.
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

/// Lets one server meet the scenarios that are left to it; `on` is told what is under way, and each
/// trial when it is over.
#[must_use]
pub fn stress(
    participant: &Participant,
    setting: &StressSetting,
    mut subject: Subject,
    stop: &AtomicBool,
    on: &mut dyn FnMut(&StressEvent<'_>),
) -> Subject {
    let mut stand: Option<Stand> = None;
    for scenario in subject.left(&setting.scenarios) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        on(&StressEvent::Scenario { server: &participant.name, scenario: &scenario.name });
        let mut here = match stand
            .take()
            .map_or_else(|| Stand::bring_up(participant, setting, stop, &mut subject.notes), Ok)
        {
            Ok(here) => here,
            Err(failure) => {
                subject.failure = (!stop.load(Ordering::Relaxed)).then_some(failure);
                break;
            }
        };
        match here.meet_for_sure(scenario, setting, stop) {
            Ok(Some(trial)) => {
                // A server that runs elsewhere cannot be started again: it is tried as it is.
                let goes_on = trial.judgement.impact != Impact::Down || here.process.is_none();
                subject.trials.push(trial);
                on(&StressEvent::Trial { subject: &subject });
                if goes_on {
                    stand = Some(here);
                } else {
                    here.take_down(setting);
                }
            }
            Ok(None) => {
                here.take_down(setting);
                break;
            }
            Err(failure) => {
                subject.failure = Some(failure);
                here.take_down(setting);
                break;
            }
        }
    }
    if let Some(stand) = stand {
        stand.take_down(setting);
    }
    subject
}

/// What is under way.
#[derive(Debug)]
pub enum StressEvent<'a> {
    /// A scenario begins.
    Scenario {
        /// Whose.
        server: &'a str,
        /// Its name.
        scenario: &'a str,
    },
    /// A scenario is over.
    Trial {
        /// Whose, with what came of it as the last of its trials.
        subject: &'a Subject,
    },
}

/// A server that answers, and what is asked of it.
struct Stand {
    process: Option<Process>,
    sampler: Option<Sampler>,
    target: Target,
    host: String,
    exchange: Exchange,
    request: Request,
    /// Share of a core that it used while nothing was asked, at first.
    idle: Option<f64>,
}

impl Stand {
    fn bring_up(
        participant: &Participant,
        setting: &StressSetting,
        stop: &AtomicBool,
        notes: &mut Vec<String>,
    ) -> Result<Self, ServerFailure> {
        let (target, host, process, sampler) = match &participant.start {
            Origin::Running { target, host, .. } => (target.clone(), host.clone(), None, None),
            Origin::Launch(launch) => {
                let started = boot(participant, launch, setting, stop)?;
                notes.extend(started.owner.note());
                (started.target, HOST.to_owned(), Some(started.process), started.sampler)
            }
        };
        mine(&target, setting)?;
        let (exchange, answer) = match participant.contract.name {
            Some(_) => {
                let exchange = participant.contract.exchanges[0].clone();
                let answer = ask(&target, &host, LIMIT, &exchange).map_err(|why| {
                    out("verify", format!("{}: {why}", exchange.name), "hotlap check says more")
                })?;
                (exchange, answer)
            }
            None => settle(&target, &host, participant, notes)?,
        };
        let request = exchange.request(&host, &answer);
        let mut stand = Self { process, sampler, target, host, exchange, request, idle: None };
        stand.warm(setting, stop)?;
        Ok(stand)
    }

    /// Some load before anything counts, and how idle it is then.
    fn warm(&mut self, setting: &StressSetting, stop: &AtomicBool) -> Result<(), ServerFailure> {
        let mut warm = self.good(setting, setting.timing.warm);
        for _ in 1..WARM_LOOKS {
            if warm.answers > 0 || stop.load(Ordering::Relaxed) {
                break;
            }
            warm = self.good(setting, setting.timing.warm);
        }
        if warm.answers == 0 && !stop.load(Ordering::Relaxed) {
            let cause = warm.unreachable.unwrap_or_else(|| {
                format!("{} good clients get no right answer, undisturbed", setting.good)
            });
            return Err(out("warm-up", cause, "hotlap check shows what it answers"));
        }
        self.idle = self.idle_share(setting.timing.idle);
        Ok(())
    }

    /// Lets it meet a scenario, and a second time if its good clients fared ill: a neighbour of
    /// this machine may have been the cause, and does not come back just then. The milder one
    /// counts.
    fn meet_for_sure(
        &mut self,
        scenario: &Scenario,
        setting: &StressSetting,
        stop: &AtomicBool,
    ) -> Result<Option<Trial>, ServerFailure> {
        let Some(first) = self.meet(scenario, setting, stop)? else { return Ok(None) };
        if !first.is_doubtful() {
            return Ok(Some(first));
        }
        // One that is mute still is not mute by chance.
        let is_mute = first.observed.recovered_ms.is_none();
        if is_mute && self.recover(setting.timing.recover, stop).is_none() {
            return Ok(Some(first));
        }
        Ok(Some(match self.meet(scenario, setting, stop)? {
            Some(again) => first.milder(again),
            None => first,
        }))
    }

    fn take_down(self, setting: &StressSetting) {
        if let Some(process) = self.process {
            process.stop(setting.grace);
        }
    }
}

fn boot(
    participant: &Participant,
    launch: &Launch,
    setting: &StressSetting,
    stop: &AtomicBool,
) -> Result<Started, ServerFailure> {
    let (cpus, cores) = setting.cores.of_server(participant.cpus);
    let startup = Startup {
        launch,
        first: &participant.contract.exchanges[0],
        accepts_wrong: false,
        cpus,
        cores,
        supervisor: &setting.supervisor,
        log: setting.logs.join("stress.log"),
        limit: setting.start_limit,
        counters: false,
        elsewhere: participant.requirements == Requirements::Custom,
        stop,
    };
    startup.run()
}

/// Whether this target may be stressed, and speaks what rude clients speak.
fn mine(target: &Target, setting: &StressSetting) -> Result<(), ServerFailure> {
    let Endpoint::Tcp(address) = &target.endpoint else {
        let remedy = "let it listen on a port of 127.0.0.1";
        return Err(out("start", "rude clients come over TCP only".to_owned(), remedy));
    };
    if target.tls.is_some() {
        let cause = "rude clients speak plain HTTP only".to_owned();
        return Err(out("start", cause, "stress what is behind the TLS"));
    }
    if !address.ip().is_loopback() && !setting.allow_remote {
        let cause = format!("{} is not on this machine", address.ip());
        return Err(out("start", cause, "say --allow-remote if you may stress it"));
    }
    Ok(())
}

/// The request of a server without a contract, with what is right as it was learned, and a right
/// response.
fn settle(
    target: &Target,
    host: &str,
    participant: &Participant,
    notes: &mut Vec<String>,
) -> Result<(Exchange, Response), ServerFailure> {
    let mut inferred = infer::infer(target, host, LIMIT, &participant.contract)
        .map_err(|why| out("verify", why, "ask it with curl to see why"))?;
    for note in inferred.notes {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok((inferred.contract.exchanges.swap_remove(0), inferred.answers.swap_remove(0)))
}

fn out(phase: &str, cause: String, remedy: &str) -> ServerFailure {
    ServerFailure {
        phase: phase.to_owned(),
        cause,
        log_tail: Vec::new(),
        remedy: remedy.to_owned(),
    }
}

/// How a process ended and what it said last, if it did.
fn last_of(process: Option<&mut Process>) -> Option<(String, Vec<String>)> {
    let process = process?;
    let exit = process.exited()?;
    // A program that makes itself a daemon leaves its first process; what came of it serves on.
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

    /// A machine without an idle core made a server look hurt that was well a second later.
    #[test]
    fn the_milder_of_two_looks_counts_and_an_end_needs_no_second() {
        let (calm, hurt) = (trial(10_000, 20_000_000, false), trial(0, 20_000_000, false));
        assert_eq!(hurt.judgement.impact, Impact::Hurt);
        assert!(hurt.is_doubtful() && !calm.is_doubtful());
        assert!(!trial(10_000, 0, true).is_doubtful());
        assert_eq!(hurt.clone().milder(calm.clone()), calm);
        assert_eq!(hurt.clone().milder(hurt.clone()), hurt);
    }

    #[test]
    fn a_second_look_forgets_nothing_that_the_first_left_behind() {
        let mut again = trial(10_000, 500_000_000, false);
        again.observed.held = again.observed.held.map(|[_, b, c]| [c, b, c]);
        again.judgement = judge(&again.observed);
        assert_eq!(again.judgement.impact, Impact::Well);
        let milder = trial(0, 500_000_000, false).milder(again);
        assert_eq!(milder.judgement.impact, Impact::Scarred);
    }
}
