//! Warms up a server: loads it until its cost is steady and its code is no longer compiled.
//!
//! On one core, a compiler competes with the responses that it should speed up, and falls behind
//! under load. On one core, java/jetty was steady after 30 s, and on two cores after 9 s. A server
//! with a compiler may therefore use all cores of the run at first.
//!
//! Afterwards, such a server is loaded in bursts on its own cores, with pauses as between slices. A
//! server that has only seen steady load takes other paths when the load pauses, and its code is
//! compiled again. After ten seconds at 5.6 µs per request, java/netty began its laps at 25 µs. For
//! the first three seconds of the laps, its compiler was busy (2026-11-24).
//!
//! hotlap does not know every compiler. A server without a known compiler is therefore loaded
//! briefly many times in its first warm-up, with a pause after each load. If the server becomes
//! cheaper, every later start gets the same pauses.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hotlap_load::Outcome;
use hotlap_load::plan::Stop;
use hotlap_observe::Compiler;
use hotlap_servers::interrupt;
use hotlap_servers::launch::ServerFailure;
use hotlap_stats::{
    Class, DetectorSettings, GaugedWindow, SteadyDetector, SteadyState, USUAL_SLOPE, median,
};

use super::super::slices::WHOLE;
use super::{Between, Instance, Trouble, WarmupProfile};
use crate::lap::Count;
use crate::runner::{UNSTEADY_AGAIN, Warmup};

/// The number of times that a warm-up is tried if generators are lost during it.
const TRIES: u32 = 3;

/// Length of one window of a warm-up (docs/rules.md, *Warm-up*).
pub(in super::super) const WARM_WINDOW: Duration = Duration::from_millis(100);

/// The largest number of windows from which a server's cost alone is taken. The windows are in the
/// later half of the warm-up, because the first windows after a start cost more (docs/rules.md,
/// *Probes*: the *cost alone*). A warm-up with fewer windows shows no cost alone.
const ALONE_WINDOWS: usize = 10;

/// How long hardware counters run at the end of a warm-up's steady load (METHODOLOGY, *A run*).
pub(in super::super) const COUNTED: Duration = Duration::from_millis(250);

/// A compiler is done once its threads use less than this share of a core over a stretch of
/// windows. The compiler of java/jetty uses 60% of a core until the cost is level, and 1%
/// afterwards.
const AT_WORK: f64 = 0.03;

/// The longest pause after a burst.
const PAUSE: Duration = Duration::from_millis(500);

/// The interval between two checks for background work. A server is idle once its CPU time is less
/// than [`IDLE`] of an interval.
const LOOK: Duration = Duration::from_millis(20);
const IDLE: f64 = 0.1;

/// The number of bursts that are compared with the same number of bursts before them.
const BURSTS: usize = 3;

/// A cost that falls by less than this share counts as steady.
const FALL: f64 = 0.05;

/// The lengths of a brief load, and of the pause after it. Such loads show whether pauses make a
/// server cheaper. [`A_SUM`] loads are added up to a sum, and the costs of [`SUMS`] sums are
/// compared.
const BRIEF: Duration = Duration::from_millis(4);
const BREAK: Duration = Duration::from_millis(6);
const A_SUM: usize = 10;
const SUMS: usize = 5;

/// A load is late if the requests in flight after it take longer than [`BREAK`]. A server with
/// this many late loads in one sum is too slow for such pauses. A busy machine delays fewer loads.
const SLOW: u32 = 3;

/// A cost of sums that falls by less than this share counts as steady. The share is larger than
/// [`FALL`], because a sum contains less load than a burst and varies more.
const FALL_OF_SUMS: f64 = 0.1;

/// The result of a steady load that lasts until the server's cost is level.
struct Climb {
    detector: SteadyDetector,
    windows: Vec<Between>,
    /// The first window of the steady part.
    since: usize,
    class: Class,
    outcome: Outcome,
    count: Option<Count>,
}

impl Climb {
    /// Puts the windows of an earlier load before the windows of this load. If the server became
    /// steady under the earlier load and was level throughout this load, it counts as steady from
    /// the earlier time on.
    fn after(mut self, earlier: Self) -> Self {
        let windows = earlier.windows.len();
        (self.since, self.class) = match (self.class, earlier.class) {
            (Class::Flat, Class::NeverSteady) => (windows, Class::WarmedUp),
            (Class::Flat, class) => (earlier.since, class),
            (class, _) => (windows + self.since, class),
        };
        self.windows.splice(..0, earlier.windows);
        self
    }
}

/// The CPU time of a server's compiler at the end of each window, if the time is known.
#[derive(Default)]
struct AtWork(Vec<u64>);

impl AtWork {
    /// Records another window, and returns whether the compiler is done.
    fn is_done(&mut self, compiler: Compiler) -> bool {
        // Threads of unknown purpose may never rest, so only the server's cost decides.
        let Compiler::Named { cpu_ns } = compiler else { return self.0.is_empty() };
        self.0.push(cpu_ns);
        let stretch = DetectorSettings::default().stretch;
        let Some(from) = self.0.len().checked_sub(stretch + 1) else { return false };
        let spent_ns = cpu_ns.saturating_sub(self.0[from]);
        (spent_ns as f64) < AT_WORK * WARM_WINDOW.as_nanos() as f64 * stretch as f64
    }
}

/// A burst of load, and the pause after it.
#[derive(Debug, Clone, Copy)]
struct Burst {
    load: Between,
    /// CPU time in the pause, as a share of the CPU time in the burst.
    background: f64,
    /// The gauge divided by its usual value: larger if the cores are slower. 1 if unknown.
    slowness: f64,
}

impl Burst {
    /// The shortest time limit for bursts. All bursts of one comparison fit into this time.
    const SHORTEST: Duration =
        Duration::from_millis(2 * BURSTS as u64 * (WHOLE.as_millis() + PAUSE.as_millis()) as u64);

    /// Creates a load without background work.
    fn new(load: Between, usual_call_ns: &OnceLock<f64>) -> Self {
        Self { load, background: 0.0, slowness: load.slowness(usual_call_ns) }
    }

    /// CPU time per request at the usual speed of the cores, or wall time per request if the CPU
    /// time is unknown.
    fn cost_ns(&self) -> f64 {
        let wall_ns = || self.load.wall_ns as f64 / self.load.requests.max(1) as f64;
        self.load.cost_ns().unwrap_or_else(wall_ns) / self.slowness.powf(USUAL_SLOPE)
    }

    /// The burst's requests/s, repeated for each window that the burst lasted.
    fn windows(&self, window: Duration) -> impl Iterator<Item = f64> + use<> {
        let windows = (WHOLE.as_millis() / window.as_millis().max(1)) as usize;
        std::iter::repeat_n(self.load.per_second().unwrap_or(0.0), windows)
    }

    /// CPU time per request in the last bursts, in nanoseconds. `None` if unknown.
    fn alone_cost_ns(bursts: &[Self]) -> Option<f64> {
        let last = &bursts[bursts.len().checked_sub(BURSTS)?..];
        Between::sum(&last.iter().map(|burst| burst.load).collect::<Vec<_>>())?.cost_ns()
    }
}

/// How long these windows of a warm-up lasted.
fn length(windows: &[Between]) -> Duration {
    WARM_WINDOW * u32::try_from(windows.len()).unwrap_or(u32::MAX)
}

/// The median cost of the last bursts at the usual speed of the cores, in nanoseconds. `None` if
/// there are too few bursts.
fn level_ns(bursts: &[Burst]) -> Option<f64> {
    let last = &bursts[bursts.len().checked_sub(BURSTS)?..];
    median(&last.iter().map(Burst::cost_ns).collect::<Vec<_>>())
}

/// Returns the cost of the last of at least three sums, in nanoseconds, if the cost has fallen. The
/// earlier cost is `before_ns` or the cost of the second sum, whichever is higher. The first sum
/// is left out, because its connections may be new.
fn fallen_ns(sums: &[Burst], before_ns: f64) -> Option<f64> {
    let [_, second, .., last] = sums else { return None };
    let last_ns = last.cost_ns();
    (last_ns < before_ns.max(second.cost_ns()) * (1.0 - FALL_OF_SUMS)).then_some(last_ns)
}

/// Whether the cost of bursts no longer falls, and no background work is left. If the last bursts
/// cost the same as the last bursts of an earlier start, no bursts before them are needed.
fn are_steady(bursts: &[Burst], earlier_ns: Option<f64>) -> bool {
    let Some(level_ns) = level_ns(bursts) else { return false };
    let (before, last) = bursts.split_at(bursts.len() - BURSTS);
    let is_level =
        self::level_ns(before).is_some_and(|before_ns| level_ns >= before_ns * (1.0 - FALL));
    let is_as_before =
        earlier_ns.is_some_and(|earlier_ns| (level_ns / earlier_ns).ln().abs() <= FALL);
    (is_level || is_as_before) && last.iter().all(|burst| burst.background < IDLE)
}

impl Instance {
    /// Loads the server until it is warm, and tries again if a generator is lost. `earlier` is what
    /// earlier warm-ups of the server's program showed. `watch` gets the requests/s of each window.
    pub fn warm(
        &mut self,
        load: usize,
        earlier: Option<WarmupProfile>,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Warmup, ServerFailure> {
        let mut tries = 1;
        loop {
            match self.warm_up(load, earlier, watch) {
                Ok(warmup) => return Ok(warmup),
                Err(Trouble::Server(failure)) => return Err(failure),
                // The next try starts the generator again.
                Err(Trouble::Generator(_)) if tries < TRIES => tries += 1,
                Err(Trouble::Generator(why)) => {
                    let remedy = "find out why the generator ends, and repeat the run";
                    return Err(self.failure("warm-up", why, remedy));
                }
            }
        }
    }

    /// The time limit of a warm-up. A server that was never steady in its previous warm-up gets
    /// less time.
    fn warm_limit(&self, earlier: Option<WarmupProfile>) -> Duration {
        let is_unsteady = earlier.is_some_and(|known| known.steady.class == Class::NeverSteady);
        self.run.setting.warm_limit / if is_unsteady { UNSTEADY_AGAIN } else { 1 }
    }

    /// Loads a server until it is warm. `watch` gets the requests/s of each window.
    fn warm_up(
        &mut self,
        load: usize,
        earlier: Option<WarmupProfile>,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Warmup, Trouble> {
        self.held = None;
        self.thaw();
        let was_seen = earlier.is_some_and(|earlier| earlier.compiles);
        let mut compiles = was_seen || self.compiler() != Compiler::Unknown;
        let limit = self.warm_limit(earlier);
        let mut climb = self.climb(load, compiles, (earlier, limit), watch)?;
        if !compiles && self.compiler() != Compiler::Unknown {
            // The compiler started only under load, so the warm-up goes on with all cores.
            compiles = true;
            let limit = limit.saturating_sub(length(&climb.windows));
            let next = self.climb(load, compiles, (earlier, limit), watch)?;
            climb = next.after(climb);
        }
        let window_ms = WARM_WINDOW.as_secs_f64() * 1e3;
        let mut curve: Vec<f64> = climb.windows.iter().map(per_second).collect();
        let mut alone_cost_ns = alone(&climb.windows);
        let mut burst_ns = None;
        if compiles {
            let bursts = self.settle(load, earlier, &mut climb, watch)?;
            alone_cost_ns = Burst::alone_cost_ns(&bursts);
            burst_ns = level_ns(&bursts);
            curve.extend(bursts.iter().flat_map(|burst| burst.windows(WARM_WINDOW)));
        }
        let Climb { detector, windows, mut since, mut class, outcome, count } = climb;
        let mut profile = WarmupProfile {
            steady: detector.summary(class, since, windows.len()),
            service: Duration::from_secs_f64(outcome.service_time.mean() / 1e9),
            compiles,
            needs_pauses: earlier.is_some_and(|earlier| earlier.needs_pauses),
            burst_ns,
        };
        let may_need_pauses = earlier.is_none_or(|earlier| {
            earlier.needs_pauses || earlier.steady.class == Class::NeverSteady
        });
        if !compiles && class != Class::NeverSteady && may_need_pauses {
            let limit = limit.saturating_sub(length(&windows));
            if let Some((sums, is_level)) = self.pause_often(load, &windows, limit, watch)? {
                profile.needs_pauses = true;
                since = curve.len();
                class = if is_level { Class::WarmedUp } else { Class::NeverSteady };
                curve.extend(sums.iter().map(|sum| per_second(&sum.load)));
                alone_cost_ns = sums.last().and_then(|sum| sum.load.cost_ns());
            }
        }
        self.known[load] = Some(profile);
        let steady_ms = since as f64 * window_ms;
        let (uncounted, tls) = (self.uncounted.clone(), outcome.tls);
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
    /// cores until then, and its compiler must be done too.
    fn climb(
        &mut self,
        load: usize,
        compiles: bool,
        (earlier, limit): (Option<WarmupProfile>, Duration),
        watch: &mut dyn FnMut(f64),
    ) -> Result<Climb, Trouble> {
        // The load lasts at least the timeout of a request, because the first response may take
        // that long.
        let longest = self.run.setting.warm_limit.max(self.run.setting.timeout) + WARM_WINDOW;
        let mut plan = self.plan(load)?;
        plan.warmup = Duration::ZERO;
        plan.stop = Stop::After(longest + Duration::from_secs(1));
        // A generator that never sleeps would leave none of its cores to the compiler.
        plan.busy_poll &= !compiles;
        let session = self.run.setting.generator.start(&plan);
        let session = self.begun("warm-up", session)?;
        self.spread(compiles);
        let settings = self.detector_settings(compiles, earlier, limit);
        let mut detector = SteadyDetector::new(settings);
        let Some(window) = session.wait_for_window() else {
            return Err(self.cut_short("warm-up", session));
        };
        let mut edge = window.opens;
        self.run.wait(&*session, edge);
        let mut before = self.sample(&*session);
        let (mut since, mut class) = (0, Class::NeverSteady);
        let mut windows: Vec<Between> = Vec::new();
        let mut at_work = AtWork::default();
        let patience = edge + WARM_WINDOW * u32::try_from(settings.max_windows).unwrap_or(u32::MAX);
        let patience = patience.max(edge + self.run.setting.timeout + WARM_WINDOW);
        while edge < patience {
            edge += WARM_WINDOW;
            if session.lost().is_some() || !self.run.wait(&*session, edge) {
                // An interrupted warm-up says nothing about the server.
                return Err(self.cut_short("warm-up", session));
            }
            let after = self.sample(&*session);
            let window = Between::of(&before, &after);
            before = after;
            windows.push(window);
            watch(per_second(&window));
            // Use responses per CPU time, if known, because other programs on the server's cores do
            // not distort this figure. The detector corrects the figure for slow cores.
            let spent_ns = window.cpu_ns.filter(|ns| *ns > 0).unwrap_or(window.wall_ns);
            let slowness = window.slowness(&self.run.usual_call_ns);
            let speed = window.requests as f64 / spent_ns.max(1) as f64;
            let state = detector.push(GaugedWindow { speed, slowness });
            let is_done = !compiles || at_work.is_done(self.compiler());
            if let SteadyState::Settled { since: from, class: how } = state
                && is_done
            {
                (since, class) = (from, how);
                break;
            }
            since = windows.len();
        }
        self.spread(false);
        let count = self.counted(&*session, COUNTED);
        session.stop();
        let outcome = session.join().map_err(|error| self.trouble("warm-up", error))?.outcome;
        self.still_there("warm-up")?;
        if outcome.responses == 0 && !self.run.is_stopped() {
            return Err(self.unanswered("warm-up", Ok(outcome)).into());
        }
        Ok(Climb { detector, windows, since, class, outcome, count })
    }

    fn detector_settings(
        &self,
        compiles: bool,
        earlier: Option<WarmupProfile>,
        limit: Duration,
    ) -> DetectorSettings {
        let usual = DetectorSettings { sees_compiler: compiles, ..DetectorSettings::default() };
        let windows = |time: Duration| {
            usize::try_from(time.as_nanos() / WARM_WINDOW.as_nanos()).unwrap_or(usize::MAX)
        };
        let settings = DetectorSettings {
            level: windows(self.run.setting.level_for).max(usual.level),
            max_windows: windows(limit).max(usual.level),
            ..usual
        };
        earlier.map_or(settings, |earlier| settings.for_restart(&earlier.steady))
    }

    /// Loads a server in bursts, on its own cores, until the bursts are steady or the time is up.
    fn settle(
        &mut self,
        load: usize,
        earlier: Option<WarmupProfile>,
        climb: &mut Climb,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Vec<Burst>, Trouble> {
        let limit = self.warm_limit(earlier).saturating_sub(length(&climb.windows));
        let limit = limit.max(Burst::SHORTEST);
        let was_steady = |earlier: &WarmupProfile| earlier.steady.class != Class::NeverSteady;
        let earlier_ns = earlier.filter(was_steady).and_then(|earlier| earlier.burst_ns);
        let (began, mut bursts) = (Instant::now(), Vec::new());
        while climb.class != Class::NeverSteady && !are_steady(&bursts, earlier_ns) {
            if began.elapsed() >= limit {
                climb.class = Class::NeverSteady;
                break;
            }
            let burst = self.burst(load)?;
            burst.windows(WARM_WINDOW).for_each(&mut *watch);
            bursts.push(burst);
        }
        self.forget_lap();
        Ok(bursts)
    }

    /// Loads a server briefly many times, with pauses, until its cost stops falling. Returns the
    /// sums of the loads, and whether the cost was level in the end. Returns `None` if the cost did
    /// not fall, or if such pauses would show nothing.
    fn pause_often(
        &mut self,
        load: usize,
        before: &[Between],
        limit: Duration,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Option<(Vec<Burst>, bool)>, Trouble> {
        let last = &before[before.len() - before.len().min(ALONE_WINDOWS)..];
        let before = Between::sum(last).filter(|sum| sum.cost_ns().is_some());
        let delay = self.delay() + self.run.setting.generator.delay();
        let Some(before) = before.filter(|_| delay.is_zero()) else { return Ok(None) };
        let before = Burst::new(before, &self.run.usual_call_ns);
        let (mut level_ns, mut sums, mut fallen) = (before.cost_ns(), Vec::new(), 0);
        let (began, mut is_level) = (Instant::now(), false);
        self.held = None;
        while !is_level && began.elapsed() < limit {
            while sums.len() < fallen + SUMS
                && let Some(sum) = self.brief_loads(load)?
            {
                watch(per_second(&sum.load));
                sums.push(sum);
            }
            match fallen_ns(&sums[fallen..], level_ns) {
                Some(last_ns) => (level_ns, fallen) = (last_ns, sums.len()),
                None => is_level = true,
            }
        }
        self.forget_lap();
        self.still_there("warm-up")?;
        Ok((fallen > 0).then_some((sums, is_level)))
    }

    /// Loads a server briefly [`A_SUM`] times. The sum of CPU time includes the pauses, because a
    /// server may work in a pause too. Returns `None` as soon as [`SLOW`] loads are late, or if
    /// the cost is unknown.
    fn brief_loads(&mut self, load: usize) -> Result<Option<Burst>, Trouble> {
        let (mut first, mut loaded, mut slow) = (None, Duration::ZERO, 0);
        for _ in 0..A_SUM {
            let (began, rest) = (Instant::now(), self.run.setting.timeout);
            let [before, after] = self.drive(load, [Duration::ZERO, BRIEF], rest)?;
            first.get_or_insert(before);
            loaded += began.elapsed();
            slow += u32::from(after.at.elapsed() > BREAK);
            if slow == SLOW {
                return Ok(None);
            }
            interrupt::sleep(BREAK, &self.run.stop);
        }
        let Some((first, last)) = first.zip(self.sample_held()) else { return Ok(None) };
        let wall_ns = u64::try_from(loaded.as_nanos()).unwrap_or(u64::MAX);
        let sum = Between { wall_ns, ..Between::of(&first, &last) };
        Ok(sum.cost_ns().map(|_| Burst::new(sum, &self.run.usual_call_ns)))
    }

    /// Loads a server on new connections, then waits until it is idle, for at most [`PAUSE`].
    fn burst(&mut self, load: usize) -> Result<Burst, Trouble> {
        self.held = None;
        // The pause begins after requests in flight have ended, because they are not background
        // work.
        let rest = self.run.setting.timeout;
        let [before, after] = self.drive(load, [Duration::ZERO, WHOLE], rest)?;
        let under_load = Between::of(&before, &after);
        let idle = self.sample_held().unwrap_or(after);
        let (mut last, until) = (idle, Instant::now() + PAUSE);
        while Instant::now() < until && interrupt::sleep(LOOK, &self.run.stop) {
            let Some(now) = self.sample_held() else { break };
            let look = Between::of(&last, &now);
            last = now;
            if look.cpu_ns.is_none_or(|ns| (ns as f64) < IDLE * look.wall_ns as f64) {
                break;
            }
        }
        let spent = |between: &Between| between.cpu_ns.unwrap_or(0) as f64;
        let background = spent(&Between::of(&idle, &last)) / spent(&under_load).max(1.0);
        Ok(Burst { background, ..Burst::new(under_load, &self.run.usual_call_ns) })
    }
}

fn per_second(window: &Between) -> f64 {
    window.requests as f64 * 1e9 / window.wall_ns.max(1) as f64
}

/// CPU time per request of a warm server that runs alone, in nanoseconds, from the last windows of
/// its warm-up. `None` if the CPU time is unknown or the warm-up was short.
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
    use hotlap_observe::Gauged;

    use super::*;

    #[test]
    fn a_compiler_is_done_once_it_rests_for_a_stretch() {
        let named = |ms: u64| Compiler::Named { cpu_ns: ms * 1_000_000 };
        let mut at_work = AtWork::default();
        assert!(AtWork::default().is_done(Compiler::Unnamed));
        // The compiler uses 60 ms of each window, then 2 ms.
        let spent = (1..=20).map(|n| 60 * n).chain((1..=20).map(|n| 1200 + 2 * n));
        let done = spent.map(|ms| at_work.is_done(named(ms))).position(|done| done);
        assert_eq!(done, Some(29));
    }

    fn bursts(costs_us: &[u64], background: f64) -> Vec<Burst> {
        let load = |us: u64| Between {
            requests: 10,
            cpu_ns: Some(us * 10_000),
            wall_ns: 300_000_000,
            ..Between::default()
        };
        costs_us.iter().map(|&us| Burst { load: load(us), background, slowness: 1.0 }).collect()
    }

    #[test]
    fn bursts_are_steady_once_they_cost_no_less_than_those_before_and_leave_nothing_to_do() {
        let are_steady = |bursts: &[Burst]| are_steady(bursts, None);
        assert!(are_steady(&bursts(&[60, 59, 62, 58, 60, 61], 0.01)));
        assert!(!are_steady(&bursts(&[60, 59, 62, 58, 60], 0.01)), "too few");
        assert!(!are_steady(&bursts(&[80, 75, 70, 65, 62, 61], 0.01)), "falling");
        assert!(!are_steady(&bursts(&[60; 6], 0.2)), "compiling");
        let mut one = bursts(&[60, 60, 60, 60, 180, 60, 60], 0.01);
        assert!(are_steady(&one), "a single disturbance");
        one[6].background = 0.2;
        assert!(!are_steady(&one));
        let mut slow = bursts(&[60, 60, 60, 50, 50, 50], 0.01);
        assert!(!are_steady(&slow));
        slow.iter_mut().take(3).for_each(|burst| burst.slowness = 1.2);
        assert!(are_steady(&slow), "the cores were slow at first");
        assert!(are_steady(&bursts(&[600, 300, 60, 60, 61, 60, 62, 60], 0.0)));
    }

    #[test]
    fn a_server_becomes_cheaper_by_pauses_if_later_loads_cost_less() {
        let fallen = |costs_us: &[u64], before_us: f64| {
            fallen_ns(&bursts(costs_us, 0.0), before_us * 1e3).map(|ns| ns / 1e3)
        };
        assert_eq!(fallen(&[140, 140, 141, 139, 60], 140.0), Some(60.0), "after 40 pauses");
        assert_eq!(fallen(&[70, 60, 60, 60, 61], 140.0), Some(61.0), "after 10 pauses");
        assert_eq!(fallen(&[180, 60, 62, 60, 60], 60.0), None, "new connections");
        assert_eq!(fallen(&[64, 61, 66, 62, 58], 57.0), None, "noise");
        assert_eq!(fallen(&[], 140.0), None, "no loads");
    }

    #[test]
    fn slow_cores_are_known_from_the_gauge() {
        let window = |ns, cpu_ns| Between {
            cpu_ns,
            gauged: Some(Gauged { calls: 1, ns }),
            ..Between::default()
        };
        let usual_ns = OnceLock::new();
        let factors = [(80, Some(1)), (320, Some(1)), (320, None)]
            .map(|(ns, cpu_ns)| window(ns, cpu_ns).slowness(&usual_ns));
        assert_eq!(factors, [1.0, 4.0, 1.0]);
        let without = Between { gauged: None, ..window(320, Some(1)) };
        assert_eq!(without.slowness(&usual_ns), 1.0, "an observed server has no gauge");
    }

    #[test]
    fn bursts_that_cost_what_they_did_after_an_earlier_start_are_steady() {
        let earlier_ns = Some(60_000.0);
        assert!(are_steady(&bursts(&[62, 59, 61], 0.01), earlier_ns));
        assert!(!are_steady(&bursts(&[62, 59], 0.01), earlier_ns), "too few");
        assert!(!are_steady(&bursts(&[62, 59, 61], 0.2), earlier_ns), "compiling");
        assert!(!are_steady(&bursts(&[70, 67, 66], 0.01), earlier_ns), "slower");
        assert!(!are_steady(&bursts(&[50, 51, 50], 0.01), earlier_ns), "faster");
    }

    #[test]
    fn the_cost_alone_is_that_of_the_last_bursts() {
        let cost = |costs_us: &[u64]| Burst::alone_cost_ns(&bursts(costs_us, 0.0));
        assert_eq!(cost(&[90, 60, 61, 62]), Some(61_000.0));
        assert_eq!(cost(&[60, 61]), None);
        let one = bursts(&[60], 0.0)[0];
        let windows: Vec<f64> = one.windows(Duration::from_millis(100)).collect();
        assert_eq!(windows.len(), 3);
    }
}
