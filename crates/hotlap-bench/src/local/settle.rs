//! Ends what a server still does in the background after its warm-up: mostly compiling.
//!
//! On one core, a compiler competes with the responses that it is to make faster, and falls behind
//! while the server is under load. And a server that has only seen steady load goes other ways when
//! the load pauses, as it does between slices: after ten seconds at 5.6 µs per request,
//! java/netty began its laps at 25 µs and compiled for three seconds of them (2026-11-24). So the
//! warm-up of a server that explains is short, and goes on in bursts with pauses. In the pauses,
//! the compiler has the core to itself.

use std::time::{Duration, Instant};

use hotlap_servers::interrupt;
use hotlap_stats::{Class, median};

use super::LocalRunner;
use super::instance::Between;
use super::slices::WHOLE;
use super::trouble::Trouble;
use crate::runner::Warmup;

/// Longest warm-up under a steady load, before the bursts.
const STEADY: Duration = Duration::from_secs(1);

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
struct Burst {
    /// Time per request: CPU time if it is known.
    cost: f64,
    /// CPU time in the pause, as a share of that in the burst.
    background: f64,
}

/// Whether bursts cost as much as those before them, and nothing goes on in the background.
fn are_steady(bursts: &[Burst]) -> bool {
    let Some(from) = bursts.len().checked_sub(2 * BURSTS) else { return false };
    let (before, last) = bursts[from..].split_at(BURSTS);
    let cost = |some: &[Burst]| median(&some.iter().map(|burst| burst.cost).collect::<Vec<_>>());
    let is_level = cost(last) >= cost(before).map(|cost| cost * (1.0 - FALL));
    is_level && last.iter().all(|burst| burst.background < IDLE)
}

impl LocalRunner {
    /// The limit of a warm-up under a steady load.
    pub(super) fn warm_limit(&self) -> Duration {
        let limit = self.setting.warm_limit;
        if self.observes { limit.min(STEADY) } else { limit }
    }

    /// Completes the warm-up of a server that explains, unless it was flat: loads it in bursts
    /// until they are steady, or for as long as a warm-up may take.
    pub(super) fn settle(
        &mut self,
        (participant, load): (usize, usize),
        mut warmup: Warmup,
    ) -> Result<Warmup, Trouble> {
        if !self.observes || warmup.class == Class::Flat {
            return Ok(warmup);
        }
        let began = Instant::now();
        let mut bursts = Vec::new();
        while began.elapsed() < self.setting.warm_limit {
            bursts.push(self.burst(participant, load)?);
            if are_steady(&bursts) {
                warmup.class = Class::WarmedUp;
                break;
            }
        }
        self.instances[participant].forget_lap();
        Ok(warmup)
    }

    /// Loads a server on new connections, then waits until it is idle.
    fn burst(&mut self, participant: usize, load: usize) -> Result<Burst, Trouble> {
        self.instances[participant].held = None;
        let samples = self.drive(participant, load, &[Duration::ZERO, WHOLE])?;
        let [before, after] = samples[..] else {
            let instance = &mut self.instances[participant];
            return Err(instance.out("warm-up", "no burst".to_owned(), "").into());
        };
        let under_load = Between::of(&before, &after);
        let (mut last, until) = (after, Instant::now() + PAUSE);
        while Instant::now() < until && interrupt::sleep(LOOK, &self.stop) {
            let instance = &mut self.instances[participant];
            let Some(held) = instance.held.take() else { break };
            let now = instance.sample(&*held.session);
            instance.held = Some(held);
            let look = Between::of(&last, &now);
            last = now;
            if look.cpu_ns.is_none_or(|ns| (ns as f64) < IDLE * look.wall_ns as f64) {
                break;
            }
        }
        let spent = |between: &Between| between.cpu_ns.unwrap_or(0) as f64;
        Ok(Burst {
            cost: under_load
                .cost_ns()
                .unwrap_or_else(|| under_load.wall_ns as f64 / under_load.requests.max(1) as f64),
            background: spent(&Between::of(&after, &last)) / spent(&under_load).max(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bursts(costs: &[f64], background: f64) -> Vec<Burst> {
        costs.iter().map(|&cost| Burst { cost, background }).collect()
    }

    #[test]
    fn bursts_are_steady_once_they_cost_no_less_than_those_before_and_leave_nothing_to_do() {
        assert!(are_steady(&bursts(&[6.0, 5.9, 6.2, 5.8, 6.0, 6.1], 0.01)));
        assert!(!are_steady(&bursts(&[6.0, 5.9, 6.2, 5.8, 6.0], 0.01)), "too few");
        assert!(!are_steady(&bursts(&[8.0, 7.5, 7.0, 6.5, 6.2, 6.1], 0.01)), "falling");
        assert!(!are_steady(&bursts(&[6.0; 6], 0.2)), "compiling");
        let mut one = bursts(&[6.0, 6.0, 6.0, 6.0, 18.0, 6.0, 6.0], 0.01);
        assert!(are_steady(&one), "a single disturbance");
        one[6].background = 0.2;
        assert!(!are_steady(&one));
        assert!(are_steady(&bursts(&[60.0, 30.0, 6.0, 6.0, 6.1, 6.0, 6.2, 6.0], 0.0)));
    }
}
