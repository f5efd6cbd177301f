//! Bursts of load with pauses, in which a server ends its background work after a steady load:
//! mostly compiling.

use std::time::{Duration, Instant};

use hotlap_servers::interrupt;
use hotlap_stats::median;

use super::LocalRunner;
use super::instance::Between;
use super::slices::WHOLE;
use super::trouble::Trouble;

/// Longest pause after a burst.
const PAUSE: Duration = Duration::from_millis(500);

/// A server is idle once it uses less than `IDLE` of this time.
const LOOK: Duration = Duration::from_millis(20);
const IDLE: f64 = 0.1;

/// The last bursts are compared with as many before them.
const BURSTS: usize = 3;

/// A cost that falls by less than this share is steady.
const FALL: f64 = 0.05;

/// A burst of load, and the pause after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    load: Between,
    /// CPU time in the pause, as a share of that in the burst.
    background: f64,
}

impl Burst {
    /// The longest time that the bursts of one comparison take.
    pub(super) const SHORTEST: Duration =
        Duration::from_millis(2 * BURSTS as u64 * (WHOLE.as_millis() + PAUSE.as_millis()) as u64);

    /// Time per request: CPU time if it is known.
    fn cost_ns(&self) -> f64 {
        let wall_ns = || self.load.wall_ns as f64 / self.load.requests.max(1) as f64;
        self.load.cost_ns().unwrap_or_else(wall_ns)
    }

    /// Its requests/s, once for each window that it lasted.
    pub(super) fn windows(&self, window: Duration) -> impl Iterator<Item = f64> + use<> {
        let windows = (WHOLE.as_millis() / window.as_millis().max(1)) as usize;
        std::iter::repeat_n(self.load.per_second().unwrap_or(0.0), windows)
    }

    /// CPU time per request in the last bursts, in nanoseconds; `None` if unknown.
    pub(super) fn alone_cost_ns(bursts: &[Self]) -> Option<f64> {
        let last = &bursts[bursts.len().checked_sub(BURSTS)?..];
        Between::sum(&last.iter().map(|burst| burst.load).collect::<Vec<_>>())?.cost_ns()
    }
}

/// The median cost of the last bursts, in nanoseconds, once there are enough.
pub(super) fn level_ns(bursts: &[Burst]) -> Option<f64> {
    let last = &bursts[bursts.len().checked_sub(BURSTS)?..];
    median(&last.iter().map(Burst::cost_ns).collect::<Vec<_>>())
}

/// Whether the last bursts cost no less than the bursts before them, and nothing goes on in the
/// background. No bursts before them are needed if the last bursts cost the same as the last bursts
/// of an earlier start.
pub(super) fn are_steady(bursts: &[Burst], earlier_ns: Option<f64>) -> bool {
    let Some(level_ns) = level_ns(bursts) else { return false };
    let (before, last) = bursts.split_at(bursts.len() - BURSTS);
    let is_level =
        self::level_ns(before).is_some_and(|before_ns| level_ns >= before_ns * (1.0 - FALL));
    let is_as_before =
        earlier_ns.is_some_and(|earlier_ns| (level_ns / earlier_ns).ln().abs() <= FALL);
    (is_level || is_as_before) && last.iter().all(|burst| burst.background < IDLE)
}

impl LocalRunner {
    /// Loads a server on new connections, then waits until it is idle.
    pub(super) fn burst(&mut self, participant: usize, load: usize) -> Result<Burst, Trouble> {
        self.instances[participant].held = None;
        let samples = self.drive(participant, load, &[Duration::ZERO, WHOLE])?;
        let [before, after] = samples[..] else {
            let instance = &mut self.instances[participant];
            return Err(instance.out("warm-up", "no burst".to_owned(), "").into());
        };
        let under_load = Between::of(&before, &after);
        // Requests in flight are not background work.
        let instance = &mut self.instances[participant];
        let idle = match &mut instance.held {
            Some(held) => {
                held.pause(self.setting.timeout);
                instance.sample_held().unwrap_or(after)
            }
            None => after,
        };
        let (mut last, until) = (idle, Instant::now() + PAUSE);
        while Instant::now() < until && interrupt::sleep(LOOK, &self.stop) {
            let Some(now) = self.instances[participant].sample_held() else { break };
            let look = Between::of(&last, &now);
            last = now;
            if look.cpu_ns.is_none_or(|ns| (ns as f64) < IDLE * look.wall_ns as f64) {
                break;
            }
        }
        let spent = |between: &Between| between.cpu_ns.unwrap_or(0) as f64;
        let background = spent(&Between::of(&idle, &last)) / spent(&under_load).max(1.0);
        Ok(Burst { load: under_load, background })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bursts(costs_us: &[u64], background: f64) -> Vec<Burst> {
        let load = |us: u64| Between {
            requests: 10,
            cpu_ns: Some(us * 10_000),
            wall_ns: 300_000_000,
            ..Between::default()
        };
        costs_us.iter().map(|&us| Burst { load: load(us), background }).collect()
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
        assert!(are_steady(&bursts(&[600, 300, 60, 60, 61, 60, 62, 60], 0.0)));
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
