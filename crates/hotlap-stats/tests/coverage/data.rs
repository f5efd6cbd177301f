//! Simulated runs on a busy machine, with a true ratio of exactly 1.

use hotlap_stats::Pair;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A simulated machine, in log units. The noise of a lap is 1 %, and so is that of a round (two
/// laps against two).
#[derive(Debug, Clone, Copy)]
pub struct World {
    pub name: &'static str,
    /// Variance between restarts, as a multiple of the variance between rounds.
    pub restart_variance: f64,
    /// Standard deviation of the slope within a restart (first to last round), and across restarts.
    pub drift: f64,
    /// Share of laps that a disturbance makes 10 to 50 % longer.
    pub outliers: f64,
}

/// Standard deviation of one lap.
const LAP_NOISE: f64 = 0.01;

const QUIET: World = World { name: "quiet", restart_variance: 0.0, drift: 0.0, outliers: 0.0 };

pub const WORLDS: [World; 8] = [
    QUIET,
    World { name: "starts differ, variance 0.2 of rounds'", restart_variance: 0.2, ..QUIET },
    World { name: "starts differ, variance 0.5", restart_variance: 0.5, ..QUIET },
    World { name: "starts differ, variance 2", restart_variance: 2.0, ..QUIET },
    World { name: "starts differ, variance 40", restart_variance: 40.0, ..QUIET },
    World { name: "0.5, and drift", restart_variance: 0.5, drift: 0.02, outliers: 0.0 },
    World {
        name: "0.5, drift, 5 % of laps hit",
        restart_variance: 0.5,
        drift: 0.01,
        outliers: 0.05,
    },
    World {
        name: "0.5, drift, 10 % of laps hit",
        restart_variance: 0.5,
        drift: 0.01,
        outliers: 0.1,
    },
];

pub struct Machine {
    pub world: World,
    random: Pcg64Mcg,
}

impl Machine {
    pub fn new(world: World, seed: u64) -> Self {
        Self { world, random: Pcg64Mcg::seed_from_u64(seed) }
    }

    fn uniform(&mut self) -> f64 {
        self.random.random::<f64>()
    }

    /// A standard normal value (Box and Muller, "A note on the generation of random normal
    /// deviates", Annals of Mathematical Statistics 29, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// How much longer than normal a lap takes, as a logarithm.
    pub fn lap(&mut self) -> f64 {
        let noise = LAP_NOISE * self.normal();
        if self.uniform() >= self.world.outliers {
            return noise;
        }
        noise + (1.1 + 0.4 * self.uniform()).ln()
    }

    /// One restart of a run; `across` is the run's drift up to it.
    pub fn restart(&mut self, number: u32, rounds: u32, across: f64) -> Vec<Pair> {
        let start = LAP_NOISE * self.world.restart_variance.sqrt() * self.normal();
        let slope = self.world.drift * self.normal();
        (0..rounds)
            .map(|round| {
                let place = (f64::from(round) + 0.5) / f64::from(rounds) - 0.5;
                let server = (self.lap().exp() + self.lap().exp()) / 2.0;
                let reference = (self.lap().exp() + self.lap().exp()) / 2.0;
                let log_ratio = (server / reference).ln() + start + slope * place + across;
                Pair { restart: number, round, log_ratio }
            })
            .collect()
    }

    /// One run.
    pub fn run(&mut self, restarts: u32, rounds: u32) -> Vec<Pair> {
        let slope = self.world.drift * self.normal();
        (0..restarts)
            .flat_map(|h| {
                let place = (f64::from(h) + 0.5) / f64::from(restarts) - 0.5;
                self.restart(h, rounds, slope * place)
            })
            .collect()
    }
}
