//! Tests of the steady-state detector with simulated warm-ups on noisy machines.

use hotlap_stats::{Class, DetectorSettings, SteadyDetector, SteadyState};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A machine whose windows vary by `noise` (standard deviation). Bursts of load slow down a share
/// of the windows.
struct Machine {
    random: Pcg64Mcg,
    noise: f64,
    bursts: f64,
    /// The number of windows that remain of the present burst.
    left: u32,
}

impl Machine {
    fn new(seed: u64, noise: f64, bursts: f64) -> Self {
        Self { random: Pcg64Mcg::seed_from_u64(seed), noise, bursts, left: 0 }
    }

    /// Returns the observed speed of a window, given the server's true speed.
    fn window(&mut self, speed: f64) -> f64 {
        let normal = (0..12).map(|_| self.random.random::<f64>()).sum::<f64>() - 6.0;
        if self.left == 0 && self.random.random::<f64>() < self.bursts / 2.0 {
            self.left = self.random.random_range(1..4);
        }
        let hit = if self.left > 0 { 0.6 } else { 1.0 };
        self.left = self.left.saturating_sub(1);
        speed * hit * (1.0 + self.noise * normal)
    }
}

/// Returns the number of windows after which the detector decides, and the decision.
fn settle(machine: &mut Machine, curve: impl Fn(usize) -> f64) -> (usize, Class) {
    settle_within(100, machine, curve)
}

/// Like [`settle`], with this time limit in windows.
fn settle_within(
    max_windows: usize,
    machine: &mut Machine,
    curve: impl Fn(usize) -> f64,
) -> (usize, Class) {
    let settings = DetectorSettings { max_windows, ..DetectorSettings::default() };
    let mut detector = SteadyDetector::new(settings);
    for i in 0.. {
        if let SteadyState::Settled { class, .. } = detector.push(machine.window(curve(i)).into()) {
            return (i + 1, class);
        }
    }
    unreachable!("a decision at the limit")
}

#[test]
fn flat_servers_settle_soon_also_on_a_noisy_machine() {
    // Each case has the noise, the bursts, and the number of windows within which 9 of 10 servers
    // settle.
    for (noise, bursts, within) in
        [(0.01, 0.0, 15), (0.03, 0.0, 30), (0.03, 0.1, 55), (0.12, 0.1, 90)]
    {
        let (mut in_time, mut flat, mut all) = (0, 0, Vec::new());
        for seed in 0..50 {
            let (at, class) = settle(&mut Machine::new(seed, noise, bursts), |_| 1000.0);
            in_time += usize::from(at <= within);
            flat += usize::from(class == Class::Flat);
            all.push((at, class));
        }
        assert!(in_time >= 45, "noise {noise}, bursts {bursts}: {in_time} of 50 within {within}");
        assert!(flat >= 40, "noise {noise}, bursts {bursts}: {flat} of 50 flat: {all:?}");
    }
}

#[test]
fn a_server_that_still_climbs_is_not_steady() {
    // A server with a compiler begins with a third of its speed. The difference falls by a factor
    // of e every one or two seconds.
    for (noise, bursts) in [(0.01, 0.0), (0.03, 0.0), (0.03, 0.05)] {
        for constant in [10.0, 20.0] {
            let curve = |i: usize| 1000.0 * (1.0 - 0.67 * (-(i as f64) / constant).exp());
            let mut early = 0;
            for seed in 0..50 {
                let (at, _) = settle(&mut Machine::new(seed, noise, bursts), curve);
                // Deciding is too early if the speed rises by more than twice the tolerance in the
                // next second.
                early += usize::from(curve(at + 10) / curve(at) > 1.04);
            }
            assert!(early <= 3, "noise {noise}, {constant} windows: {early} of 50 too early");
        }
    }
}

/// Regression: a server whose cost fell for 20 s was called flat or warmed up after 3 to 7 s. The
/// detector fits many lines, and noise makes some of them look level.
#[test]
fn a_server_that_climbs_slowly_is_not_steady() {
    // Within 200 windows, the cost falls from three times the final cost to the final cost.
    let curve = |i: usize| 1000.0 / (1.0 + 2.0 * (1.0 - i as f64 / 200.0).max(0.0));
    for noise in [0.01, 0.03, 0.05] {
        let machine = |seed| Machine::new(seed, noise, 0.02);
        let decided = (0..50).map(|seed| settle_within(600, &mut machine(seed), curve).0);
        let early = decided.filter(|windows| *windows < 190).count();
        assert!(early <= 5, "noise {noise}: {early} of 50 settled before the end of the climb");
    }
}
