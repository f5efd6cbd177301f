//! Work that a server does in few rounds: garbage collection, checkpoints, log rotation.

use super::reading::{Reading, round_ratios};
use crate::robust::median;

/// A round is a burst if the server costs this much more than in the median round, as a ratio.
const BURST: f64 = 1.25;

/// Bursts are reported if they raise the mean by this much, as a ratio.
const REPORTED: f64 = 1.02;

/// Rounds in which a server cost far more than usual, relative to the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bursts {
    /// How much more it cost in these rounds, as a ratio to the median round.
    pub factor: f64,
    /// The number of these rounds.
    pub rounds: u32,
    /// The number of all rounds.
    pub of: u32,
}

impl Bursts {
    /// The bursts of a server; `None` if they hardly matter, or if it bursts so often that no
    /// median tells what is usual.
    pub fn of(server: &[Reading], reference: &[Reading]) -> Option<Self> {
        let ratios = round_ratios(server, reference);
        let usual = median(&ratios)?;
        let above: Vec<f64> =
            ratios.iter().map(|ratio| (ratio - usual).exp()).filter(|r| *r > BURST).collect();
        let (rounds, of) = (above.len() as f64, ratios.len() as f64);
        let excess: f64 = above.iter().map(|factor| factor - 1.0).sum();
        (excess / of > REPORTED - 1.0 && rounds < of / 4.0).then(|| Self {
            factor: 1.0 + excess / rounds,
            rounds: above.len() as u32,
            of: ratios.len() as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Share;

    fn bursts(costs: &[f64]) -> Option<Bursts> {
        let reading = |(n, cost): (u32, f64)| Reading {
            restart: n / 4,
            round: n % 4,
            share: Share::whole(cost),
        };
        let server: Vec<Reading> = (0..).zip(costs.iter().copied()).map(reading).collect();
        let reference: Vec<Reading> = (0..).zip(costs.iter().map(|_| 5.0)).map(reading).collect();
        Bursts::of(&server, &reference)
    }

    #[test]
    fn a_server_that_costs_twice_as_much_in_one_of_twelve_rounds_is_bursty() {
        let mut costs = [5.0; 12];
        costs[7] = 10.0;
        let found = bursts(&costs).unwrap();
        assert!((found.factor - 2.0).abs() < 1e-9 && (found.rounds, found.of) == (1, 12));
        costs[7] = 6.0;
        assert_eq!(bursts(&costs), None, "20% more in one round is noise");
    }

    #[test]
    fn a_rare_burst_is_not_worth_a_sentence_and_a_usual_one_is_none() {
        let mut costs = [5.0; 60];
        costs[7] = 10.0;
        assert_eq!(bursts(&costs), None, "1.7% of the cost");
        assert_eq!(bursts(&[5.0, 10.0, 5.0, 10.0, 5.0]), None);
        assert_eq!(bursts(&[]), None);
    }
}
