//! Simulates pools of a hundred shards. The tests check how many shards are set apart by chance,
//! and whether disturbed shards are found.

use hotlap::model::Apart;
use hotlap::pool::apart::{Condition, apart};
use hotlap_stats::{ByRestart, CONTROL_ALPHA, effect};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

struct Machines(Pcg64Mcg);

impl Machines {
    /// Returns a standard normal value (Box and Muller 1958).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.0.random::<f64>()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.0.random::<f64>()).cos()
    }

    /// Returns a shard of `restarts` restarts. Control and reference differ by 1% from restart to
    /// restart and by 1% from round to round, times `noise`. The ceilings of the nodes differ by
    /// 4%, times `ceiling`.
    fn shard(&mut self, restarts: u32, noise: f64, ceiling: f64) -> Condition {
        let mut pairs = ByRestart::new();
        for restart in 0..restarts {
            let of_rounds = self.normal() / 5.0_f64.sqrt();
            let log_ratio = 0.01 * noise * (self.normal() + of_rounds);
            pairs.insert(restart, log_ratio);
        }
        let control = effect(&pairs, 0.95).expect("pairs");
        Condition {
            has_reference: true,
            control_differs: control.p < CONTROL_ALPHA,
            noise: Some(control.far_end()),
            ceiling_ns: Some(5_000.0 * ceiling * (0.04 * self.normal()).exp()),
        }
    }
}

#[test]
fn hardly_any_shard_is_set_apart_by_chance() {
    let mut machines = Machines(Pcg64Mcg::seed_from_u64(1));
    for restarts in [3, 5, 8] {
        let mut set_apart = 0;
        for _ in 0..100 {
            let pool: Vec<Condition> =
                (0..100).map(|_| machines.shard(restarts, 1.0, 1.0)).collect();
            set_apart += apart(&pool).iter().flatten().count();
        }
        // The limits are for 10,000 shards. With three restarts, the noise floor itself is
        // uncertain.
        let most = if restarts == 3 { 150 } else { 10 };
        assert!(set_apart <= most, "{restarts} restarts: {set_apart} of 10,000");
    }
}

#[test]
fn disturbed_shards_are_found_among_a_hundred() {
    let mut machines = Machines(Pcg64Mcg::seed_from_u64(2));
    let (mut noisy, mut slow) = (0, 0);
    for _ in 0..100 {
        let mut pool: Vec<Condition> = (0..98).map(|_| machines.shard(5, 1.0, 1.0)).collect();
        pool.push(machines.shard(5, 15.0, 1.0));
        pool.push(machines.shard(5, 1.0, 1.35));
        let found = apart(&pool);
        noisy +=
            usize::from(matches!(found[98], Some(Apart::Noise { .. } | Apart::ControlDiffers)));
        slow += usize::from(matches!(found[99], Some(Apart::Ceiling { .. })));
    }
    assert!(noisy >= 90, "{noisy} of 100 noisy ones");
    assert!(slow >= 95, "{slow} of 100 slow ones");
}
