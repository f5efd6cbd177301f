//! What is to be raced, what a watcher is told, and in which order it goes.
//!
//! Order follows from the seed, the restart and the round alone, so an experiment that was
//! interrupted goes on in the order that it would have had.

use std::time::Duration;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::lap::{Lap, Share};
use crate::participant::{Load, Participant};
use crate::runner::{Probed, Ready, Warmup};
use hotlap_servers::failure::ServerFailure;

/// What is to be raced, and for how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Who takes part.
    pub participants: Vec<Participant>,
    /// How each is loaded.
    pub loads: Vec<Load>,
    /// What it may take after the servers were first started and warmed up.
    pub budget: Duration,
    /// Stop when every cost interval's relative half-width is at most this, for instance 0.01.
    pub precision: Option<f64>,
    /// Just so many restarts, whatever the budget.
    pub restarts: Option<u32>,
    /// Just so many rounds a restart, whatever the budget.
    pub rounds: Option<u32>,
    /// How long the window of a slice is; none: the shortest at which every server has recovered
    /// from being frozen.
    pub slice: Option<Duration>,
    /// Whether the first restarts end with paced laps.
    pub paced: bool,
    /// The rate of paced laps in requests/s; by default half of what the slowest reaches.
    pub rate: Option<f64>,
    /// Where all randomness comes from.
    pub seed: u64,
    /// Where to go on: the first restart and round that are not run yet.
    pub from: Place,
    /// What was run before, where this is the rest of an interrupted race.
    pub past: Past,
}

/// What an interrupted race had run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Past {
    /// The laps that count, as fast as can be.
    pub laps: Vec<PastLap>,
    /// Who is out.
    pub out: Vec<usize>,
    /// The rate of its paced laps, in requests/s.
    pub rate: Option<f64>,
    /// What it took.
    pub spent: Duration,
}

/// What is needed of a lap to go on after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PastLap {
    /// Whose.
    pub participant: usize,
    /// Under which load.
    pub load: usize,
    /// When.
    pub at: Place,
    /// What it adds to the CPU time per request of its round, in nanoseconds.
    pub cost: Option<Share>,
    /// What it adds to the requests/s of its round.
    pub rate: Share,
}

/// A place in the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Place {
    /// The restart, from 0.
    pub restart: u32,
    /// The round within the restart, from 0.
    pub round: u32,
}

/// What a watcher is told, as it happens.
#[derive(Debug)]
pub enum Event<'a> {
    /// A restart begins.
    Restart {
        /// Its number, from 0.
        restart: u32,
    },
    /// A server is about to be started.
    Starting {
        /// Which.
        participant: usize,
    },
    /// All are started, and are about to be held against their contracts.
    Verifying,
    /// A server answers, and answers correctly.
    Started {
        /// Which.
        participant: usize,
        /// The restart.
        restart: u32,
        /// How it came to be.
        ready: &'a Ready,
    },
    /// A server is about to be warmed up.
    Warming {
        /// Which.
        participant: usize,
        /// By which load.
        load: usize,
    },
    /// A server is warm, or as warm as it gets.
    Warmed {
        /// Which.
        participant: usize,
        /// By which load.
        load: usize,
        /// The restart.
        restart: u32,
        /// How it came to be.
        warmup: &'a Warmup,
    },
    /// A server is about to be probed, to settle how long slices are.
    Probing {
        /// Which.
        participant: usize,
        /// Under which load.
        load: usize,
    },
    /// It is settled how long the slices of this race are.
    Sliced {
        /// How long the window of one is.
        slice: Duration,
        /// What the probes found.
        probed: Vec<Probed>,
    },
    /// A lap is about to begin.
    Lapping {
        /// Which.
        participant: usize,
        /// Under which load.
        load: usize,
    },
    /// A lap is over.
    Lap(&'a Lap),
    /// A round is over.
    Round {
        /// The first place that is not run yet.
        next: Place,
        /// What the experiment will probably still take.
        left: Duration,
    },
    /// A server is out.
    ServerFailure {
        /// Which.
        participant: usize,
        /// Why.
        why: &'a ServerFailure,
    },
    /// A server did not stop as it should have.
    Unclean {
        /// Which.
        participant: usize,
        /// What was wrong.
        what: String,
    },
}

/// Why an experiment is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// The intervals are as narrow as asked for.
    Precise,
    /// The time is spent.
    Budget,
    /// The restarts and rounds asked for are run.
    Done,
    /// The user ended it.
    Interrupted,
    /// No server is left.
    Nobody,
}

impl Experiment {
    /// The first load without a rate of its own: laps at a common rate follow its laps.
    #[must_use]
    pub fn closed_loop(&self) -> Option<usize> {
        self.loads.iter().position(|load| load.rate.is_none())
    }
}

/// The order of a step of a round, in which every server runs for two slices: a random order, and
/// the same mirrored.
#[must_use]
pub fn order(
    seed: u64,
    place: Place,
    (load, step): (usize, u32),
    participants: usize,
) -> Vec<usize> {
    let salt = load as u64 + 1 + (u64::from(step) << 32);
    let mut order = shuffled(seed, place, salt, participants);
    let mirrored: Vec<usize> = order.iter().rev().copied().collect();
    order.extend(mirrored);
    order
}

/// A random order that follows from the seed, the place and `salt`.
pub(crate) fn shuffled(seed: u64, place: Place, salt: u64, participants: usize) -> Vec<usize> {
    // Odd multipliers keep different places apart; the generator's own seeding does the mixing.
    let mixed = seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(u64::from(place.restart).wrapping_mul(0xD1B5_4A32_D192_ED03))
        .wrapping_add(u64::from(place.round).wrapping_mul(0x8CB9_2BA7_2F3D_8DD7))
        .wrapping_add(salt.wrapping_mul(0xDA94_2042_E4DD_58B5));
    let mut order: Vec<usize> = (0..participants).collect();
    order.shuffle(&mut Pcg64Mcg::seed_from_u64(mixed));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_a_random_order_and_its_mirror() {
        for seed in 0..50 {
            let order = order(seed, Place { restart: 1, round: 2 }, (0, 0), 5);
            let mut first = order[..5].to_vec();
            let mirrored: Vec<usize> = order[5..].iter().rev().copied().collect();
            assert_eq!(first, mirrored);
            first.sort_unstable();
            assert_eq!(first, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn every_first_place_is_as_likely_as_the_next() {
        let mut firsts = [0; 4];
        for round in 0..4000 {
            firsts[order(1, Place { restart: 0, round }, (0, 0), 4)[0]] += 1;
        }
        // Binomial, n = 4,000, p = 1/4: 1,000 ± 5 × 27.
        assert!(firsts.iter().all(|n| (865..1135).contains(n)), "{firsts:?}");
    }
}
