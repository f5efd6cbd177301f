//! What servers did in each round, and the pairs of two servers' restarts.

use std::collections::{BTreeMap, BTreeSet};

/// An amount and what it is divided by: CPU time and requests, or responses and seconds. Shares are
/// summed before they are divided, so that a lap in which a server stalled has its true weight.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Share {
    /// The numerator, for instance CPU time.
    pub amount: f64,
    /// The denominator, for instance requests.
    pub of: f64,
}

impl Share {
    /// A value that is divided by nothing.
    pub fn whole(value: f64) -> Self {
        Self { amount: value, of: 1.0 }
    }

    /// The sum of both.
    pub fn and(self, other: Self) -> Self {
        Self { amount: self.amount + other.amount, of: self.of + other.of }
    }

    /// The ratio; `None` if the denominator is 0.
    pub fn value(self) -> Option<f64> {
        (self.of > 0.0).then(|| self.amount / self.of)
    }

    /// The logarithm of the ratio; `None` unless it is positive and finite.
    pub(super) fn log(self) -> Option<f64> {
        self.value().filter(|value| value.is_finite() && *value > 0.0).map(f64::ln)
    }
}

/// What one server did in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// The restart that the round belongs to.
    pub restart: u32,
    /// The round within the restart.
    pub round: u32,
    /// The sum of the server's laps in this round.
    pub share: Share,
}

impl Reading {
    pub(super) fn place(&self) -> (u32, u32) {
        (self.restart, self.round)
    }
}

/// One restart of a server against the same restart of the reference. Disturbances that affect both
/// cancel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The restart; in a pool, see [`crate::by_node`], the node.
    pub restart: u32,
    /// ln(server / reference), of the totals over all rounds that both have.
    pub log_ratio: f64,
    /// The number of these rounds.
    pub rounds: u32,
}

/// The logarithm of each restart's total amount over its total denominator. A restart without a
/// positive total has none.
pub(super) fn totals<'a>(
    readings: impl IntoIterator<Item = &'a Reading>,
) -> BTreeMap<u32, (f64, u32)> {
    let mut sums = BTreeMap::<u32, (Share, u32)>::new();
    for reading in readings {
        let (sum, rounds) = sums.entry(reading.restart).or_default();
        (*sum, *rounds) = (sum.and(reading.share), *rounds + 1);
    }
    let log = |(restart, (sum, rounds)): (u32, (Share, u32))| Some((restart, (sum.log()?, rounds)));
    sums.into_iter().filter_map(log).collect()
}

/// Pairs the restarts of two servers. A round counts if both servers have it, so that whatever
/// happened to the machine meanwhile happened to both.
pub fn pairs(server: &[Reading], reference: &[Reading]) -> Vec<Pair> {
    let of_reference = totals(of_both(reference, server));
    let pair = |(restart, (log, rounds)): (u32, (f64, u32))| {
        let log_ratio = log - of_reference.get(&restart)?.0;
        Some(Pair { restart, log_ratio, rounds })
    };
    totals(of_both(server, reference)).into_iter().filter_map(pair).collect()
}

/// The value of each restart of a server, over the rounds that the other server has too.
pub fn values_by_restart(server: &[Reading], other: &[Reading]) -> BTreeMap<u32, f64> {
    let value = |(restart, (log, _)): (u32, (f64, u32))| (restart, log.exp());
    totals(of_both(server, other)).into_iter().map(value).collect()
}

/// The readings of one server in rounds that the other one has too.
fn of_both<'a>(own: &'a [Reading], other: &[Reading]) -> impl Iterator<Item = &'a Reading> {
    let others: BTreeSet<(u32, u32)> = other.iter().map(Reading::place).collect();
    own.iter().filter(move |reading| others.contains(&reading.place()))
}

/// The ratio of server and reference in each round that both have, in log units.
pub(super) fn round_ratios(server: &[Reading], reference: &[Reading]) -> Vec<f64> {
    let log = |r: &Reading| Some((r.place(), r.share.log()?));
    let reference: BTreeMap<(u32, u32), f64> = reference.iter().filter_map(log).collect();
    let server = server.iter().filter_map(log);
    server.filter_map(|(place, log)| Some(log - reference.get(&place)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(restart: u32, round: u32, amount: f64, of: f64) -> Reading {
        Reading { restart, round, share: Share { amount, of } }
    }

    #[test]
    fn only_rounds_that_both_servers_have_are_paired() {
        let server = [
            reading(0, 0, 8.0, 1.0),
            reading(0, 1, 6.0, 1.0),
            reading(0, 2, 600.0, 1.0),
            reading(1, 0, 9.0, 1.0),
            reading(1, 1, f64::NAN, 1.0),
            reading(2, 0, 5.0, 1.0),
        ];
        let reference = [reading(1, 0, 0.0, 1.0), reading(0, 1, 3.0, 1.0), reading(0, 0, 4.0, 1.0)];
        let pairs = pairs(&server, &reference);
        assert_eq!(pairs.len(), 1, "{pairs:?}");
        assert_eq!((pairs[0].restart, pairs[0].rounds), (0, 2));
        assert!((pairs[0].log_ratio - f64::ln(14.0 / 7.0)).abs() < 1e-12);
    }

    /// Regression: a robust mean over rounds left out a server's own bursts.
    #[test]
    fn a_round_in_which_a_server_costs_ten_times_as_much_has_its_weight() {
        let rounds = |last: f64| (0..10).map(move |n| if n < 9 { 1.0 } else { last });
        let readings = |last| -> Vec<Reading> {
            (0..).zip(rounds(last)).map(|(n, cost)| reading(0, n, cost * 50.0, 50.0)).collect()
        };
        let pairs = pairs(&readings(10.0), &readings(1.0));
        assert!((pairs[0].log_ratio.exp() - 1.9).abs() < 1e-12);
    }

    /// Regression: a round without a request was left out, or counted as if it had cost nothing.
    #[test]
    fn what_is_spent_without_a_request_belongs_to_the_restart() {
        let readings = [reading(0, 0, 50.0, 10.0), reading(0, 1, 50.0, 0.0)];
        assert_eq!(totals(&readings)[&0], (10.0_f64.ln(), 2));
        assert!(totals(&[reading(0, 0, 50.0, 0.0)]).is_empty(), "no cost without a request");
    }

    #[test]
    fn a_round_ratio_needs_both_servers() {
        let ratios = round_ratios(
            &[reading(0, 0, 4.0, 1.0), reading(0, 1, 4.0, 1.0), reading(1, 0, 4.0, 0.0)],
            &[reading(0, 1, 2.0, 1.0), reading(1, 0, 2.0, 1.0)],
        );
        assert_eq!(ratios, [2.0_f64.ln()]);
    }
}
