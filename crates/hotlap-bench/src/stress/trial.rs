//! One trial: one scenario on one server, including the loads before and after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::outcome::Outcome;
use hotlap_load::plan::{Endpoint, Plan, Stop};
use hotlap_load::{Error, Session};

use super::attackers::Attackers;
use super::judge::{Held, Observed, PACE_AFTER, Service, judge};
use super::scenario::{Attack, Scenario};
use super::{StressSetting, StressedServer, Trial, ending_of, failure};
use hotlap_servers::interrupt;
use hotlap_servers::launch::ServerFailure;
use hotlap_servers::start::ask;
use hotlap_servers::verify::LIMIT;

/// How often to read the CPU time of a server without requests: at first, a collector or compiler
/// may still be at work.
const IDLE_LOOKS: usize = 5;

/// How often to measure the load after a scenario while the server is slow.
const AFTER_LOOKS: usize = 4;

/// A server that uses less than this share of a core counts as idle.
const IS_IDLE: f64 = 0.1;

/// Interval between attempts to get a response after the scenario.
const RETRY: Duration = Duration::from_millis(10);

/// Maximum length of an attack that is a load. It is stopped once the normal clients' window has
/// closed, and must not end earlier.
const LINGER: Duration = Duration::from_secs(60);

/// A running attack.
enum RunningAttack {
    Load(Session),
    Attackers(Attackers),
}

impl StressedServer {
    /// Runs one scenario; `None` if interrupted.
    pub(super) fn run_scenario(
        &mut self,
        scenario: &Scenario,
        setting: &StressSetting,
        stop: &AtomicBool,
    ) -> Result<Option<Trial>, ServerFailure> {
        let timing = &setting.timing;
        let mut observed = Observed {
            before: self.measure(setting, timing.baseline),
            crowding: crowding(scenario, setting.good),
            ..Observed::default()
        };
        let first = self.held();
        let attack = self.attack(scenario, setting)?;
        if !interrupt::sleep(timing.attack_lead, stop) {
            return Ok(None);
        }
        let middle;
        (observed.during, middle) = self.measure_under_attack(scenario, setting);
        match attack {
            RunningAttack::Load(session) => {
                session.stop();
                observed.others = Some(pace(session.join()));
            }
            RunningAttack::Attackers(attackers) => observed.fate = Some(attackers.stop()),
        }
        observed.recovered_ms = self.recover(timing.recover, stop);
        if observed.recovered_ms.is_some() {
            observed.after = self.measure_after(&observed.before, setting, stop);
            let last_idle = self.wait_until_idle(timing.idle, stop);
            observed.idle = self.idle.zip(last_idle).map(|(first, last)| [first, last]);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let held = first.zip(middle).zip(self.held());
        observed.held = held.map(|((first, middle), last)| [first, middle, last]);
        let last = ending_of(self.process.as_mut());
        let (ended, log_tail) = last.map_or((None, Vec::new()), |(how, words)| (Some(how), words));
        observed.ended = ended;
        Ok(Some(Trial {
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            judgement: judge(&observed),
            observed,
            log_tail,
        }))
    }

    /// Measures the load of the normal clients for this long.
    pub(super) fn measure(&self, setting: &StressSetting, window: Duration) -> Service {
        pace(hotlap_load::run(&self.normal_plan(setting, window)))
    }

    /// The same after the scenario: the best of several measurements, because a slow one may be due
    /// to other work on this machine.
    fn measure_after(
        &self,
        before: &Service,
        setting: &StressSetting,
        stop: &AtomicBool,
    ) -> Service {
        let mut best = self.measure(setting, setting.timing.baseline);
        for _ in 1..AFTER_LOOKS {
            let is_slow = best.requests_per_s < PACE_AFTER * before.requests_per_s;
            if !is_slow || stop.load(Ordering::Relaxed) {
                break;
            }
            let again = self.measure(setting, setting.timing.baseline);
            if again.requests_per_s > best.requests_per_s {
                best = again;
            }
        }
        best
    }

    /// The same during the attack, with the server's memory and threads towards its end.
    fn measure_under_attack(
        &mut self,
        scenario: &Scenario,
        setting: &StressSetting,
    ) -> (Service, Option<Held>) {
        let mut plan = self.normal_plan(setting, setting.timing.attack);
        if matches!(scenario.attack, Attack::Load { .. }) {
            plan.timeout = setting.timing.overload_timeout;
        }
        let session = match Session::start(&plan) {
            Ok(session) => session,
            Err(error) => return (pace(Err(error)), self.held()),
        };
        if let Some(window) = session.wait_for_window() {
            let end = window.closes.unwrap_or(window.opens);
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.saturating_sub(Duration::from_millis(100)));
        }
        let held = self.held();
        (pace(session.join()), held)
    }

    fn normal_plan(&self, setting: &StressSetting, window: Duration) -> Plan {
        let mut plan = Plan::new(self.target.clone(), self.request.clone());
        plan.connections = setting.good;
        plan.threads = 1;
        plan.warmup = setting.timing.ramp;
        plan.stop = Stop::After(window);
        plan.timeout = setting.timing.timeout;
        plan.cpus.clone_from(&setting.cores.generator);
        plan
    }

    /// Starts the attack.
    fn attack(
        &self,
        scenario: &Scenario,
        setting: &StressSetting,
    ) -> Result<RunningAttack, ServerFailure> {
        let Endpoint::Tcp(address) = self.target.endpoint else {
            return Err(failure("stress", "a stress needs TCP".to_owned(), ""));
        };
        let cpus = &setting.cores.generator;
        let refused = |what: String| failure("stress", what, "raise that limit");
        match &scenario.attack {
            Attack::Load { connections, threads, reuse } => {
                let mut plan = self.normal_plan(setting, LINGER);
                plan.timeout = setting.timing.overload_timeout;
                (plan.connections, plan.threads, plan.reuse) = (*connections, *threads, *reuse);
                let session = Session::start(&plan).map_err(|e| refused(e.to_string()))?;
                Ok(RunningAttack::Load(session))
            }
            Attack::Rude(rude) => {
                allow_files(rude.clients).map_err(refused)?;
                let messages = rude.says.messages(&self.exchange, &self.host);
                let attackers = Attackers::start(rude, messages, address, cpus);
                Ok(RunningAttack::Attackers(
                    attackers.map_err(|e| refused(format!("cannot create an event loop: {e}")))?,
                ))
            }
        }
    }

    /// Waits until a new connection gets a correct response. Returns the time in milliseconds.
    pub(super) fn recover(&mut self, limit: Duration, stop: &AtomicBool) -> Option<f64> {
        let began = Instant::now();
        loop {
            if ask(&self.target, &self.host, LIMIT, &self.exchange).is_ok() {
                return Some(began.elapsed().as_secs_f64() * 1e3);
            }
            let is_over = ending_of(self.process.as_mut()).is_some();
            if is_over || began.elapsed() > limit || !interrupt::sleep(RETRY, stop) {
                return None;
            }
        }
    }

    /// Waits until it is idle, within limits. Returns the share of a core that it used last.
    fn wait_until_idle(&mut self, look: Duration, stop: &AtomicBool) -> Option<f64> {
        let mut share = None;
        for _ in 0..IDLE_LOOKS {
            share = self.idle_share(look);
            let is_idle = share.is_none_or(|share| share < self.idle.unwrap_or(0.0) + IS_IDLE);
            if is_idle || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        share
    }

    /// The share of a core that it uses without requests.
    pub(super) fn idle_share(&mut self, look: Duration) -> Option<f64> {
        let sampler = self.sampler.as_mut()?;
        let before = sampler.cpu().ok()?;
        std::thread::sleep(look);
        let after = sampler.cpu().ok()?;
        let wall_ns = (after.at - before.at).as_nanos().max(1) as f64;
        Some(after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / wall_ns)
    }

    fn held(&mut self) -> Option<Held> {
        let memory = self.sampler.as_mut()?.resident().ok()?;
        Some(Held { rss_bytes: memory.rss_bytes, threads: memory.threads })
    }
}

fn crowding(scenario: &Scenario, good: usize) -> f64 {
    match scenario.attack {
        Attack::Load { connections, .. } => (good + connections) as f64 / good.max(1) as f64,
        Attack::Rude(_) => 1.0,
    }
}

fn pace(outcome: Result<Outcome, Error>) -> Service {
    match outcome {
        Ok(outcome) => Service {
            requests_per_s: outcome.rate(),
            answers: outcome.responses,
            p99_ns: if outcome.service_time.is_empty() {
                0
            } else {
                outcome.service_time.quantile(0.99)
            },
            failures: outcome.failures.0.clone(),
            unanswered: outcome.stalled,
            unreachable: None,
        },
        Err(error) => Service { unreachable: Some(error.to_string()), ..Service::default() },
    }
}

/// Raises the limit of open files for the attackers and the normal clients.
fn allow_files(clients: usize) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = clients as u64 + 512;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    let refused = || {
        format!(
            "{clients} connections need {needed} open files, but only {} are allowed (ulimit -Hn)",
            limit.maximum.unwrap_or_default()
        )
    };
    if limit.maximum.is_some_and(|hard| hard < needed) {
        return Err(refused());
    }
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| refused())
}
