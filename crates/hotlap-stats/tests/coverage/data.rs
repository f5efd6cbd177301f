//! Simulated servers whose true cost is known, on a busy machine.

use hotlap_stats::{Reading, Share};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A simulated machine, in log units. A round has two laps of each server, with a noise of 1%.
#[derive(Debug, Clone, Copy)]
pub struct World {
    pub name: &'static str,
    /// The variance of a ratio between restarts, as a multiple of its variance between rounds.
    pub restart_variance: f64,
    /// The standard deviation of the slope of a ratio within a restart (first to last round), and
    /// across restarts.
    pub drift: f64,
    /// The share of laps that a disturbance makes 10 to 50% longer.
    pub outliers: f64,
    /// The share of rounds in which the server has a burst that the reference does not have, and
    /// costs twice as much.
    pub bursts: f64,
}

/// The standard deviation of one lap.
const LAP_NOISE: f64 = 0.01;

/// The mean excess of a disturbed lap.
const DISTURBED: f64 = 0.3;

const QUIET: World =
    World { name: "quiet", restart_variance: 0.0, drift: 0.0, outliers: 0.0, bursts: 0.0 };

pub const WORLDS: [World; 8] = [
    QUIET,
    World { name: "starts differ, variance 0.2 of rounds'", restart_variance: 0.2, ..QUIET },
    World { name: "starts differ, variance 0.5", restart_variance: 0.5, ..QUIET },
    World { name: "starts differ, variance 2", restart_variance: 2.0, ..QUIET },
    World { name: "starts differ, variance 40", restart_variance: 40.0, ..QUIET },
    World { name: "0.5, and drift", restart_variance: 0.5, drift: 0.02, ..QUIET },
    World {
        name: "0.5, drift, 5% of laps hit",
        restart_variance: 0.5,
        drift: 0.01,
        outliers: 0.05,
        ..QUIET
    },
    World {
        name: "0.5, drift, 10% of laps hit",
        restart_variance: 0.5,
        drift: 0.01,
        outliers: 0.1,
        ..QUIET
    },
];

/// A world in which one of twenty rounds costs the server twice as much.
pub const BURSTY: World = World { name: "bursts", bursts: 0.05, ..WORLDS[2] };

pub struct Machine {
    pub world: World,
    random: Pcg64Mcg,
}

impl Machine {
    pub fn new(world: World, seed: u64) -> Self {
        Self { world, random: Pcg64Mcg::seed_from_u64(seed) }
    }

    pub fn uniform(&mut self) -> f64 {
        self.random.random::<f64>()
    }

    /// Returns a standard normal value (Box and Muller, "A note on the generation of random normal
    /// deviates", Annals of Mathematical Statistics 29, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Returns the cost of a lap.
    fn lap(&mut self) -> f64 {
        let noise = (LAP_NOISE * self.normal()).exp();
        let is_hit = self.uniform() < self.world.outliers;
        noise * if is_hit { 1.1 + 0.4 * self.uniform() } else { 1.0 }
    }

    /// Returns the rounds of one server, which contributes half of the variance of a ratio.
    pub fn server(&mut self, restarts: u32, rounds: u32) -> Vec<Reading> {
        let World { restart_variance, drift, .. } = self.world;
        let half = 0.5_f64.sqrt();
        let across = half * drift * self.normal();
        let place = |n: u32, of: u32| (f64::from(n) + 0.5) / f64::from(of) - 0.5;
        let mut readings = Vec::new();
        for restart in 0..restarts {
            let start = LAP_NOISE * (restart_variance / 2.0).sqrt() * self.normal();
            let slope = half * drift * self.normal();
            for round in 0..rounds {
                let log = start + slope * place(round, rounds) + across * place(restart, restarts);
                let cost = self.lap().midpoint(self.lap()) * log.exp();
                readings.push(Reading { restart, round, share: Share::whole(cost) });
            }
        }
        readings
    }

    /// Returns the rounds of a server with the bursts of this world, and its true cost.
    pub fn bursting(&mut self, restarts: u32, rounds: u32) -> (Vec<Reading>, f64) {
        let mut readings = self.server(restarts, rounds);
        for reading in &mut readings {
            if self.uniform() < self.world.bursts {
                reading.share.amount *= 2.0;
            }
        }
        (readings, self.true_cost() * (1.0 + self.world.bursts))
    }

    /// Returns the true cost of a server without bursts, disturbances included.
    pub fn true_cost(&self) -> f64 {
        1.0 + self.world.outliers * DISTURBED
    }
}
