//! Readings of servers, and their pairs.

use std::collections::BTreeMap;

/// One figure of one server in one round, in its own unit (requests/s, ns per request).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// The restart that the round belongs to.
    pub restart: u32,
    /// The round within the restart.
    pub round: u32,
    /// The figure for the server's laps in this round together.
    pub value: f64,
}

impl Reading {
    /// Its natural logarithm; `None` unless the value is positive and finite.
    pub(super) fn log(&self) -> Option<f64> {
        (self.value.is_finite() && self.value > 0.0).then(|| self.value.ln())
    }
}

/// A paired observation: one round of a server against the same round of the reference.
/// Disturbances that affect both cancel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The restart that the round belongs to.
    pub restart: u32,
    /// The round within the restart.
    pub round: u32,
    /// ln(server / reference).
    pub log_ratio: f64,
}

/// Pairs the readings of two servers by restart and round. A round makes no pair if only one of
/// the servers has it (a lap was left out), or if a reading is not positive and finite.
#[must_use]
pub fn pairs(server: &[Reading], reference: &[Reading]) -> Vec<Pair> {
    let reference: BTreeMap<(u32, u32), f64> =
        reference.iter().filter_map(|r| Some(((r.restart, r.round), r.log()?))).collect();
    let pair = |r: &Reading| {
        let against = reference.get(&(r.restart, r.round))?;
        Some(Pair { restart: r.restart, round: r.round, log_ratio: r.log()? - against })
    };
    server.iter().filter_map(pair).collect()
}

/// Combines the readings of two copies of one program: the geometric mean of the two in each round,
/// or the only one there is.
///
/// The interval of a comparison with both is 13 % narrower than with one of them. If every reading
/// has the variance σ², the mean of two has σ²/2, so the comparison has 1½ σ² instead of 2 σ², and
/// √(1½ ÷ 2) = 0.87. The noise floor shrinks in the same way
/// ([`crate::NoiseFloor::against_pooled`]).
#[must_use]
pub fn pooled(one: &[Reading], other: &[Reading]) -> Vec<Reading> {
    let mut rounds = BTreeMap::<(u32, u32), Vec<f64>>::new();
    for reading in one.iter().chain(other) {
        rounds.entry((reading.restart, reading.round)).or_default().extend(reading.log());
    }
    let mean = |logs: &[f64]| (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    let known = rounds.into_iter().filter(|(_, logs)| !logs.is_empty());
    known.map(|((restart, round), logs)| Reading { restart, round, value: mean(&logs) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(restart: u32, round: u32, value: f64) -> Reading {
        Reading { restart, round, value }
    }

    #[test]
    fn only_readings_of_the_same_round_are_paired() {
        let server = [
            reading(0, 0, 8.0),
            reading(0, 1, 6.0),
            reading(1, 0, 9.0),
            reading(1, 1, f64::NAN),
            reading(2, 0, 5.0),
        ];
        let reference =
            [reading(1, 1, 2.0), reading(0, 1, 3.0), reading(1, 0, 0.0), reading(0, 0, 2.0)];
        let pair = |round, ratio: f64| (0, round, ratio.ln());
        let pairs: Vec<_> =
            pairs(&server, &reference).iter().map(|p| (p.restart, p.round, p.log_ratio)).collect();
        assert_eq!(pairs.len(), 2);
        for (found, expected) in pairs.iter().zip([pair(0, 4.0), pair(1, 2.0)]) {
            assert_eq!((found.0, found.1), (expected.0, expected.1));
            assert!((found.2 - expected.2).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn two_copies_of_one_program_are_pooled_round_by_round() {
        let values = [4.0, 7.0, f64::NAN, 0.0];
        let one: Vec<Reading> =
            (0..).zip(values).map(|(restart, v)| reading(restart, 0, v)).collect();
        let pooled = pooled(&one, &[reading(0, 0, 9.0)]);
        assert_eq!(pooled.iter().map(|r| r.restart).collect::<Vec<_>>(), [0, 1]);
        assert!((pooled[0].value - 6.0).abs() < 1e-12 && (pooled[1].value - 7.0).abs() < 1e-12);
    }

    #[test]
    fn pooling_keeps_a_round_that_only_one_has() {
        let pooled = pooled(&[reading(0, 1, 3.0)], &[reading(0, 0, 5.0)]);
        let found: Vec<_> = pooled.iter().map(|r| (r.restart, r.round, r.value.round())).collect();
        assert_eq!(found, [(0, 0, 5.0), (0, 1, 3.0)]);
    }
}
