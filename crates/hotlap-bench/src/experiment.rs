//! What an experiment measures, the events that it reports, and the order of its laps.
//!
//! The order of laps depends only on the seed and the place in the schedule. A resumed experiment
//! therefore continues in its original order.

use std::time::Duration;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::lap::{ExplainLap, Lap};
use crate::participant::{Load, Participant};
use crate::runner::{Probed, Ready, Warmup};
use crate::slo::Objective;
use hotlap_observe::ObserveError;
use hotlap_servers::launch::ServerFailure;

/// How far a budget may grow. If the number of restarts is set, a budget that may grow covers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// The user set the budget. It grows by at most half, and only if starts or rounds took so much
    /// longer than expected that a verdict would be missed.
    None,
    /// The budget may grow to the time of the fewest restarts that allow a verdict. A suite's
    /// budget was chosen on another machine, which may be faster.
    Verdict,
    /// The budget may grow to the time of the usual number of restarts. If that time is longer than
    /// ten minutes, [`Growth::Verdict`] applies.
    Usual,
}

/// What to measure, and for how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The participants.
    pub participants: Vec<Participant>,
    /// The loads, each run on every server.
    pub loads: Vec<Load>,
    /// The time limit. The first start of all servers, their warm-ups and probes do not count.
    pub budget: Duration,
    /// How far the budget may grow once some rounds and starts have been timed.
    pub growth: Growth,
    /// Stop when the relative half-width of every interval is at most this share, for example 0.01.
    pub precision: Option<f64>,
    /// Stop once every cost ratio is certainly above or below this limit, for example 1 or 1.03.
    pub limit: Option<f64>,
    /// An exact number of restarts, regardless of the budget.
    pub restarts: Option<u32>,
    /// The number of rounds per restart. In a comparison, it is exact regardless of the budget.
    pub rounds: Option<u32>,
    /// The length of a slice's window under each load. Empty: the runner chooses the lengths.
    pub slices: Vec<Duration>,
    /// Whether the first restarts end with paced laps.
    pub paced: bool,
    /// The rate of paced laps, in requests/s. By default half of the slowest server's throughput.
    pub common_rate: Option<f64>,
    /// The goals of a search for the highest rate at which each server meets them. Empty: the
    /// servers are compared in a closed loop.
    pub objectives: Vec<Objective>,
    /// Whether differences in cost are explained.
    pub explain: Explain,
    /// The seed of all randomness.
    pub seed: u64,
    /// The place to continue from: the first restart and round that have not been run.
    pub from: Place,
    /// The results so far, if this experiment continues an interrupted run.
    pub past: Past,
}

/// Whether an experiment explains the differences in cost between its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Explain {
    /// Differences are not explained.
    #[default]
    No,
    /// Differences are explained after the laps, in separate restarts, for this long.
    After(Duration),
    /// The experiment only explains differences. Its budget, restarts and rounds are for
    /// explaining.
    Only,
}

/// Results of an interrupted run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Past {
    /// The laps in a closed loop or at the load's own rate that were not excluded.
    pub laps: Vec<Lap>,
    /// Participants that have failed.
    pub out: Vec<usize>,
    /// The rate of the run's paced laps, in requests/s.
    pub rate: Option<f64>,
    /// The results of the probes.
    pub probed: Vec<Probed>,
    /// The time spent so far.
    pub spent: Duration,
    /// The part of `spent` before the first lap. The budget does not include it.
    pub starting: Duration,
}

impl Past {
    /// The part of the budget that is spent.
    pub fn of_the_budget(&self) -> Duration {
        self.spent.saturating_sub(self.starting)
    }
}

/// A position in the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Place {
    /// Restart number, from 0.
    pub restart: u32,
    /// Round number within the restart, from 0.
    pub round: u32,
}

/// Progress of an experiment.
#[derive(Debug)]
pub enum Event<'a> {
    /// A restart begins.
    Restart {
        /// Restart number, from 0.
        restart: u32,
    },
    /// A server is about to be started.
    Starting {
        /// The participant.
        participant: usize,
    },
    /// All servers are started and about to be verified against their contracts.
    Verifying,
    /// A server has been verified.
    Started {
        /// The participant.
        participant: usize,
        /// Restart number.
        restart: u32,
        /// What is known about the verified server.
        ready: &'a Ready,
    },
    /// A server is about to be warmed up.
    Warming {
        /// The participant.
        participant: usize,
        /// The load.
        load: usize,
    },
    /// A window of a warm-up has ended.
    Window {
        /// The participant.
        participant: usize,
        /// Responses per second.
        requests_per_s: f64,
    },
    /// The first warm-up of a server under a load in this restart has ended.
    Warmed {
        /// The participant.
        participant: usize,
        /// The load.
        load: usize,
        /// Restart number.
        restart: u32,
        /// The result of the warm-up.
        warmup: &'a Warmup,
    },
    /// A server is about to be probed, to choose the slice length of a load.
    Probing {
        /// The participant.
        participant: usize,
        /// The load.
        load: usize,
    },
    /// The slice length of a load has been chosen.
    Sliced {
        /// The load.
        load: usize,
        /// Length of a slice's window.
        slice: Duration,
        /// The results of the probes that led to the choice.
        probed: Vec<Probed>,
    },
    /// A slice, or a lap of one slice, is about to begin.
    Lapping {
        /// The participant.
        participant: usize,
        /// The load.
        load: usize,
    },
    /// A lap has ended.
    Lap(&'a Lap),
    /// The laps that explain differences are about to begin.
    Explaining,
    /// A lap that explains differences has ended.
    ExplainLap(&'a ExplainLap),
    /// Some property of a server cannot be observed.
    Unobserved {
        /// The participant.
        participant: usize,
        /// The cause, and a remedy.
        why: &'a ObserveError,
    },
    /// The budget has grown.
    Extended {
        /// The whole budget.
        budget: Duration,
    },
    /// Servers are compared, and the budget is too short for three restarts.
    TooShort {
        /// The duration that would suffice.
        needed: Duration,
    },
    /// A round has ended.
    Round {
        /// The first place that has not been run.
        next: Place,
        /// Estimated time left.
        left: Duration,
    },
    /// A server was dropped.
    ServerFailure {
        /// The participant.
        participant: usize,
        /// The cause.
        why: &'a ServerFailure,
    },
    /// A server did not stop cleanly, or something else happened since its verification that the
    /// user should know about.
    Unclean {
        /// The participant.
        participant: usize,
        /// What happened.
        what: String,
    },
}

/// Why an experiment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// The intervals are as narrow as requested.
    Precise,
    /// Every cost ratio is certainly above or below the limit.
    Certain,
    /// The budget is spent.
    Budget,
    /// All restarts and rounds are complete, or more of them would show nothing new.
    Done,
    /// The user interrupted the experiment.
    Interrupted,
    /// Too few servers are left.
    Nobody,
}

impl Experiment {
    /// Creates a comparison with this budget, without paced laps.
    pub fn new(participants: Vec<Participant>, loads: Vec<Load>, budget: Duration) -> Self {
        Self {
            participants,
            loads,
            budget,
            growth: Growth::None,
            precision: None,
            limit: None,
            restarts: None,
            rounds: None,
            slices: Vec::new(),
            paced: false,
            common_rate: None,
            objectives: Vec::new(),
            explain: Explain::No,
            seed: 0,
            from: Place::default(),
            past: Past::default(),
        }
    }

    /// The first load that has no fixed rate. Paced laps use this load.
    pub fn closed_loop(&self) -> Option<usize> {
        self.loads.iter().position(|load| load.rate.is_none())
    }

    /// The lengths of the slices in milliseconds, for the record. Empty if probes choose them.
    pub fn slices_ms(&self) -> Vec<f64> {
        self.slices.iter().map(|slice| slice.as_secs_f64() * 1e3).collect()
    }

    /// The confidence level of the experiment's intervals.
    pub fn confidence(&self) -> f64 {
        hotlap_stats::confidence(self.precision, self.limit.is_some())
    }
}

/// Returns the order of one step of a round: a random order followed by its mirror image. Every
/// server runs twice in a step.
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

/// Returns a random order determined by the seed, the place and `salt`.
pub(crate) fn shuffled(seed: u64, place: Place, salt: u64, participants: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..participants).collect();
    order.shuffle(&mut Pcg64Mcg::seed_from_u64(salted(seed, place, salt)));
    order
}

/// Returns a seed determined by the seed of the run, the place and `salt`.
pub(crate) fn salted(seed: u64, place: Place, salt: u64) -> u64 {
    // Odd multipliers separate the places. The generator mixes the bits further when it is seeded.
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(u64::from(place.restart).wrapping_mul(0xD1B5_4A32_D192_ED03))
        .wrapping_add(u64::from(place.round).wrapping_mul(0x8CB9_2BA7_2F3D_8DD7))
        .wrapping_add(salt.wrapping_mul(0xDA94_2042_E4DD_58B5))
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
        // The count is binomial with n = 4,000 and p = 1/4: 1,000 ± 5 standard deviations of 27.
        assert!(firsts.iter().all(|n| (865..1135).contains(n)), "{firsts:?}");
    }
}
