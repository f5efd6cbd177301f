//! Warms up a server: loads it until its cost is steady.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hotlap_load::plan::Plan;
use hotlap_stats::{Class, DetectorSettings, SteadyDetector, SteadyState};

use super::LocalRunner;
use super::instance::{Between, Instance, WarmupProfile};
use super::load::wait;
use super::trouble::Trouble;
use crate::participant::Role;
use crate::runner::Warmup;

/// Length of one window of a warm-up (METHODOLOGY, appendix C, *Warm-up*).
const WARM_WINDOW: Duration = Duration::from_millis(100);

/// A server's cost alone is taken from the later half of its warm-up, at most this many windows, if
/// the warm-up had at least as many: the first windows after a start cost more (METHODOLOGY,
/// appendix C, *Probes*: the *cost alone*).
const ALONE_WINDOWS: usize = 10;

/// How long hardware counters run after a warm-up (METHODOLOGY, *The method*).
const COUNTED: Duration = Duration::from_millis(250);

impl LocalRunner {
    /// Maximum length of a warm-up: at least the start limit.
    pub(super) fn longest_warm_up(&self) -> Duration {
        self.setting.warm_limit.max(self.setting.timeout) + WARM_WINDOW
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

    /// Loads a server until its windows are steady. The windows are responses per second.
    pub(super) fn warm_up(
        &mut self,
        participant: usize,
        load: usize,
        plan: &Plan,
    ) -> Result<Warmup, Trouble> {
        let session = self.setting.generator.start(plan);
        let session = self.begun(participant, "warm-up", session)?;
        let limit = self.warm_limit().as_nanos() / WARM_WINDOW.as_nanos();
        let limit =
            usize::try_from(limit).unwrap_or(usize::MAX).max(DetectorSettings::default().stretch);
        let settings = DetectorSettings { max_windows: limit, ..DetectorSettings::default() };
        let known = self.known(participant, load);
        let settings = known.map_or(settings, |before| settings.for_restart(&before.steady));
        let mut detector = SteadyDetector::new(settings);
        let Some(window) = session.wait_for_window() else {
            return Err(self.cut_short(participant, "warm-up", session));
        };
        let mut edge = window.opens;
        self.wait(&*session, edge);
        let mut before = self.instances[participant].sample(&*session);
        let (mut since, mut class) = (0, Class::NeverSteady);
        let mut windows: Vec<Between> = Vec::new();
        let patience = edge + self.longest_warm_up();
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
            // Responses per CPU time, if known: a neighbour's bursts do not distort that.
            let spent_ns = window.cpu_ns.filter(|ns| *ns > 0).unwrap_or(window.wall_ns);
            let speed = window.requests as f64 / spent_ns.max(1) as f64;
            if let SteadyState::Settled { since: from, class: how } = detector.push(speed) {
                (since, class) = (from, how);
                break;
            }
        }
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
        let found = WarmupProfile {
            steady: detector.summary(class),
            service: Duration::from_secs_f64(outcome.service_time.mean() / 1e9),
        };
        let now = match known {
            // A single window is too noisy to reclassify a server.
            Some(before) if before.steady.class == Class::Flat => before,
            // A server that compiles does so at every start, wherever the noise of this one puts
            // the beginning.
            Some(before) if before.steady.compiles && before.steady.class != Class::NeverSteady => {
                WarmupProfile { steady: before.steady, ..found }
            }
            _ => found,
        };
        if now.steady.class == Class::Flat {
            since = 0;
        }
        class = now.steady.class;
        self.instances[participant].known[load] = Some(now);
        let window_ms = WARM_WINDOW.as_secs_f64() * 1e3;
        let steady_ms = since as f64 * window_ms;
        let per_second = |w: &Between| w.requests as f64 * 1e9 / w.wall_ns.max(1) as f64;
        let curve = windows.iter().map(per_second).collect();
        let alone_cost_ns = alone(&windows);
        let uncounted = self.instances[participant].uncounted.clone();
        let tls = outcome.tls;
        Ok(Warmup { class, steady_ms, curve, window_ms, alone_cost_ns, count, uncounted, tls })
    }
}

/// CPU time per request of a warm server that runs alone, in nanoseconds, from the last windows of
/// its warm-up. `None` if unknown or the warm-up was short.
fn alone(windows: &[Between]) -> Option<f64> {
    let count = (windows.len() / 2).min(ALONE_WINDOWS);
    let last = &windows[windows.len() - count..];
    if windows.len() < ALONE_WINDOWS {
        return None;
    }
    let sum = last.iter().copied().reduce(|mut sum, window| {
        sum.add(&window);
        sum
    });
    sum?.cost_ns()
}
