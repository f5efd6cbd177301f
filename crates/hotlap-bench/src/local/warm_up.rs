//! Warms up a server: loads it until its cost is steady and nothing compiles it any more.
//!
//! On one core, a compiler competes with the responses that it is to make faster, and falls behind
//! under load. java/jetty on one core was steady after 30 s, and after 9 s with two cores until
//! then. So a server with a compiler may use all cores of the run at first.
//!
//! Then it is loaded in bursts on its own cores, with pauses as between slices. A server that has
//! only seen steady load takes other paths when the load pauses, and its code is compiled again.
//! After ten seconds at 5.6 µs per request, java/netty began its laps at 25 µs and compiled for
//! three seconds of them (2026-11-24).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hotlap_load::Outcome;
use hotlap_load::plan::Stop;
use hotlap_servers::compilers::Compiler;
use hotlap_stats::{Class, DetectorSettings, SteadyDetector, SteadyState};

use super::LocalRunner;
use super::bursts::{Burst, are_steady, level_ns};
use super::instance::{Between, Instance, WarmupProfile};
use super::load::wait;
use super::trouble::Trouble;
use crate::lap::Count;
use crate::participant::Role;
use crate::runner::{UNSTEADY_AGAIN, Warmup};

/// Length of one window of a warm-up (METHODOLOGY, appendix C, *Warm-up*).
const WARM_WINDOW: Duration = Duration::from_millis(100);

/// A server's cost alone is taken from the later half of its warm-up, at most this many windows, if
/// the warm-up had at least as many: the first windows after a start cost more (METHODOLOGY,
/// appendix C, *Probes*: the *cost alone*).
const ALONE_WINDOWS: usize = 10;

/// How long hardware counters run after a warm-up (METHODOLOGY, *The method*).
const COUNTED: Duration = Duration::from_millis(250);

/// A compiler is done once its threads use less than this share of a core, over a stretch of
/// windows. The compiler of java/jetty uses 60% of a core until the cost is level, and 1% from then
/// on.
const AT_WORK: f64 = 0.03;

/// The result of a steady load that ends once the server's cost is level.
struct Climb {
    detector: SteadyDetector,
    windows: Vec<Between>,
    /// The first window of the steady part.
    since: usize,
    class: Class,
    outcome: Outcome,
    count: Option<Count>,
}

/// The CPU time of a server's compiler at the end of each window, if it is known.
#[derive(Default)]
struct AtWork(Vec<u64>);

impl AtWork {
    /// Whether the compiler is done, after another window.
    fn is_done(&mut self, compiler: Compiler) -> bool {
        // Threads that also do other work never rest, so only the cost decides.
        let Compiler::Named { cpu_ns } = compiler else { return self.0.is_empty() };
        self.0.push(cpu_ns);
        let stretch = DetectorSettings::default().stretch;
        let Some(from) = self.0.len().checked_sub(stretch + 1) else { return false };
        let spent_ns = cpu_ns.saturating_sub(self.0[from]);
        (spent_ns as f64) < AT_WORK * WARM_WINDOW.as_nanos() as f64 * stretch as f64
    }
}

impl LocalRunner {
    /// Maximum length of a warm-up: at least the start limit.
    fn longest_warm_up(&self) -> Duration {
        self.setting.warm_limit.max(self.setting.timeout) + WARM_WINDOW
    }

    /// The limit of a warm-up, given what earlier ones showed.
    fn warm_limit(&self, known: Option<WarmupProfile>) -> Duration {
        let is_unsteady = known.is_some_and(|known| known.steady.class == Class::NeverSteady);
        self.setting.warm_limit / if is_unsteady { UNSTEADY_AGAIN } else { 1 }
    }

    /// What earlier warm-ups showed of a server; the reference and its control are one program.
    fn known(&self, participant: usize, load: usize) -> Option<WarmupProfile> {
        let is_reference = |role| matches!(role, Role::Reference | Role::Control);
        let role = self.instances[participant].participant.role;
        let same =
            |instance: &&Instance| is_reference(role) && is_reference(instance.participant.role);
        let of = |instance: &Instance| instance.known[load];
        of(&self.instances[participant]).or_else(|| self.instances.iter().filter(same).find_map(of))
    }

    /// Loads a server until it is warm. `watch` gets the requests/s of each window.
    pub(super) fn warm_up(
        &mut self,
        participant: usize,
        load: usize,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Warmup, Trouble> {
        self.instances[participant].held = None;
        self.instances[participant].thaw();
        let was_seen = self.known(participant, load).is_some_and(|known| known.compiles);
        let mut compiles = was_seen || self.instances[participant].compiler() != Compiler::Unknown;
        let mut climb = self.climb((participant, load), compiles, watch)?;
        if !compiles && self.instances[participant].compiler() != Compiler::Unknown {
            // The compiler started under load.
            compiles = true;
            climb = self.climb((participant, load), compiles, watch)?;
        }
        let window_ms = WARM_WINDOW.as_secs_f64() * 1e3;
        let mut curve: Vec<f64> = climb.windows.iter().map(per_second).collect();
        let mut alone_cost_ns = alone(&climb.windows);
        let mut burst_ns = None;
        if compiles {
            let bursts = self.settle((participant, load), &mut climb, watch)?;
            alone_cost_ns = Burst::alone_cost_ns(&bursts);
            burst_ns = level_ns(&bursts);
            curve.extend(bursts.iter().flat_map(|burst| burst.windows(WARM_WINDOW)));
        }
        let Climb { detector, since, class, outcome, count, .. } = climb;
        let instance = &mut self.instances[participant];
        instance.known[load] = Some(WarmupProfile {
            steady: detector.summary(class, since),
            service: Duration::from_secs_f64(outcome.service_time.mean() / 1e9),
            compiles,
            burst_ns,
        });
        let steady_ms = since as f64 * window_ms;
        let (uncounted, tls) = (instance.uncounted.clone(), outcome.tls);
        Ok(Warmup {
            load,
            class,
            compiles,
            steady_ms,
            curve,
            window_ms,
            alone_cost_ns,
            count,
            uncounted,
            tls,
        })
    }

    /// Loads a server steadily until its windows are level. A server with a compiler may use all
    /// cores meanwhile, and the compiler must be done too.
    fn climb(
        &mut self,
        (participant, load): (usize, usize),
        compiles: bool,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Climb, Trouble> {
        let mut plan = self.plan(participant, load)?;
        plan.warmup = Duration::ZERO;
        plan.stop = Stop::After(self.longest_warm_up() + Duration::from_secs(1));
        // A generator that never sleeps would leave none of its cores to the compiler.
        plan.busy_poll &= !compiles;
        let session = self.setting.generator.start(&plan);
        let session = self.begun(participant, "warm-up", session)?;
        self.instances[participant].spread(compiles);
        let settings = self.detector_settings(participant, load, compiles);
        let mut detector = SteadyDetector::new(settings);
        let Some(window) = session.wait_for_window() else {
            return Err(self.cut_short(participant, "warm-up", session));
        };
        let mut edge = window.opens;
        self.wait(&*session, edge);
        let mut before = self.instances[participant].sample(&*session);
        let (mut since, mut class) = (0, Class::NeverSteady);
        let mut windows: Vec<Between> = Vec::new();
        let mut at_work = AtWork::default();
        let patience = edge + WARM_WINDOW * u32::try_from(settings.max_windows).unwrap_or(u32::MAX);
        let patience = patience.max(edge + self.setting.timeout + WARM_WINDOW);
        while edge < patience {
            edge += WARM_WINDOW;
            if session.lost().is_some() || !self.wait(&*session, edge) {
                // An interrupted warm-up says nothing about the server.
                return Err(self.cut_short(participant, "warm-up", session));
            }
            let after = self.instances[participant].sample(&*session);
            let window = Between::of(&before, &after);
            before = after;
            windows.push(window);
            watch(per_second(&window));
            // Responses per CPU time, if known: a neighbour's bursts do not distort that.
            let spent_ns = window.cpu_ns.filter(|ns| *ns > 0).unwrap_or(window.wall_ns);
            let speed = window.requests as f64 / spent_ns.max(1) as f64;
            let state = detector.push(speed);
            let is_done = !compiles || at_work.is_done(self.instances[participant].compiler());
            if let SteadyState::Settled { since: from, class: how } = state
                && is_done
            {
                (since, class) = (from, how);
                break;
            }
            since = windows.len();
        }
        self.instances[participant].spread(false);
        let until = Instant::now() + COUNTED;
        let stop = Arc::clone(&self.stop);
        let count =
            self.instances[participant].counted(&*session, || _ = wait(&*session, until, &stop));
        session.stop();
        let outcome = self.ended(participant, "warm-up", session)?.outcome;
        self.instances[participant].still_there("warm-up")?;
        if outcome.responses == 0 && !self.stop.load(Ordering::Relaxed) {
            return Err(self.instances[participant].unanswered("warm-up", Ok(outcome)).into());
        }
        Ok(Climb { detector, windows, since, class, outcome, count })
    }

    fn detector_settings(
        &self,
        participant: usize,
        load: usize,
        compiles: bool,
    ) -> DetectorSettings {
        let usual = DetectorSettings { sees_compiler: compiles, ..DetectorSettings::default() };
        let known = self.known(participant, load);
        let windows = |time: Duration| {
            usize::try_from(time.as_nanos() / WARM_WINDOW.as_nanos()).unwrap_or(usize::MAX)
        };
        let settings = DetectorSettings {
            level: windows(self.setting.level_for).max(usual.level),
            max_windows: windows(self.warm_limit(known)).max(usual.level),
            ..usual
        };
        known.map_or(settings, |before| settings.for_restart(&before.steady))
    }

    /// Loads a server in bursts, on its own cores, until the bursts are steady too.
    fn settle(
        &mut self,
        (participant, load): (usize, usize),
        climb: &mut Climb,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Vec<Burst>, Trouble> {
        let spent = WARM_WINDOW * u32::try_from(climb.windows.len()).unwrap_or(u32::MAX);
        let known = self.known(participant, load);
        let limit = self.warm_limit(known).saturating_sub(spent).max(Burst::SHORTEST);
        let was_steady = |known: &WarmupProfile| known.steady.class != Class::NeverSteady;
        let earlier_ns = known.filter(was_steady).and_then(|known| known.burst_ns);
        let (began, mut bursts) = (Instant::now(), Vec::new());
        while climb.class != Class::NeverSteady && !are_steady(&bursts, earlier_ns) {
            if began.elapsed() >= limit {
                climb.class = Class::NeverSteady;
                break;
            }
            let burst = self.burst(participant, load)?;
            burst.windows(WARM_WINDOW).for_each(&mut *watch);
            bursts.push(burst);
        }
        self.instances[participant].forget_lap();
        Ok(bursts)
    }
}

fn per_second(window: &Between) -> f64 {
    window.requests as f64 * 1e9 / window.wall_ns.max(1) as f64
}

/// CPU time per request of a warm server that runs alone, in nanoseconds, from the last windows of
/// its warm-up. `None` if unknown or the warm-up was short.
fn alone(windows: &[Between]) -> Option<f64> {
    let count = (windows.len() / 2).min(ALONE_WINDOWS);
    let last = &windows[windows.len() - count..];
    if windows.len() < ALONE_WINDOWS {
        return None;
    }
    Between::sum(last)?.cost_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_is_done_once_it_rests_for_a_stretch() {
        let named = |ms: u64| Compiler::Named { cpu_ns: ms * 1_000_000 };
        let mut at_work = AtWork::default();
        assert!(AtWork::default().is_done(Compiler::Unnamed));
        // 60 ms of each window, then 2 ms.
        let spent = (1..=20).map(|n| 60 * n).chain((1..=20).map(|n| 1200 + 2 * n));
        let done = spent.map(|ms| at_work.is_done(named(ms))).position(|done| done);
        assert_eq!(done, Some(29));
    }
}
