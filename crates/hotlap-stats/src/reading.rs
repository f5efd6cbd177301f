//! The readings of servers in each round, the pairing of two servers' restarts, and signs that a
//! server's cost changes.

use std::collections::{BTreeMap, BTreeSet};

use crate::estimate::median;
use crate::student::two_sided_p;

/// An amount and its denominator: CPU time and requests, or responses and seconds. Shares are
/// summed before the division, so a lap in which a server stalled has its true weight.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Share {
    /// The numerator, for instance CPU time.
    pub amount: f64,
    /// The denominator, for instance requests.
    pub of: f64,
}

impl Share {
    /// Returns a share with a denominator of 1.
    pub fn whole(value: f64) -> Self {
        Self { amount: value, of: 1.0 }
    }

    /// Returns the sum of two shares.
    pub fn and(self, other: Self) -> Self {
        Self { amount: self.amount + other.amount, of: self.of + other.of }
    }

    /// Returns the ratio. `None` if the denominator is 0.
    pub fn value(self) -> Option<f64> {
        (self.of > 0.0).then(|| self.amount / self.of)
    }

    /// Returns the logarithm of the ratio. `None` unless the ratio is positive and finite.
    fn log(self) -> Option<f64> {
        self.value().filter(|value| value.is_finite() && *value > 0.0).map(f64::ln)
    }
}

/// The result of one server in one round.
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
    fn place(&self) -> (u32, u32) {
        (self.restart, self.round)
    }
}

/// A figure for each restart: the logarithm of a total or of the ratio of two totals, or an amount.
pub type ByRestart = BTreeMap<u32, f64>;

/// Returns the logarithm of each restart's total amount over its total denominator. A restart is
/// left out unless this ratio is positive and finite.
pub fn totals<'a>(readings: impl IntoIterator<Item = &'a Reading>) -> ByRestart {
    let mut sums = BTreeMap::<u32, Share>::new();
    for reading in readings {
        let sum = sums.entry(reading.restart).or_default();
        *sum = sum.and(reading.share);
    }
    sums.into_iter().filter_map(|(restart, sum)| Some((restart, sum.log()?))).collect()
}

/// Returns ln(server / reference) for each restart, from the totals over all rounds that both
/// servers have. Both totals come from the same rounds, so a slow phase of the machine affects
/// both.
pub fn pairs(server: &[Reading], reference: &[Reading]) -> ByRestart {
    apart(&totals(of_both(server, reference)), &totals(of_both(reference, server)))
}

/// Returns the server's figure minus the reference's figure, for each restart that both have.
pub fn apart(server: &ByRestart, reference: &ByRestart) -> ByRestart {
    let both = server.iter().filter_map(|(n, own)| Some((*n, own - reference.get(n)?)));
    both.collect()
}

/// Returns the readings of one server in the rounds that the other server has too.
pub fn of_both<'a>(own: &'a [Reading], other: &[Reading]) -> impl Iterator<Item = &'a Reading> {
    let others: BTreeSet<(u32, u32)> = other.iter().map(Reading::place).collect();
    own.iter().filter(move |reading| others.contains(&reading.place()))
}

/// Returns the logarithm of a server's figure relative to the median of other servers, by restart
/// and round. With three or more others, a large change of one of them hardly moves their median.
/// Rounds that no other server has are left out. Without other servers, the result is the logarithm
/// of the figure.
fn relative(server: &[Reading], others: &[&[Reading]]) -> BTreeMap<(u32, u32), f64> {
    let logs = |readings: &[Reading]| -> BTreeMap<(u32, u32), f64> {
        readings.iter().filter_map(|r| Some((r.place(), r.share.log()?))).collect()
    };
    let of_others: Vec<_> = others.iter().map(|readings| logs(readings)).collect();
    let relative = |(place, own): ((u32, u32), f64)| {
        let at: Vec<f64> = of_others.iter().filter_map(|o| o.get(&place).copied()).collect();
        let usual = median(&at);
        (others.is_empty() || usual.is_some()).then_some((place, own - usual.unwrap_or(0.0)))
    };
    logs(server).into_iter().filter_map(relative).collect()
}

/// Returns the sums of x², x y and y² over points (x, y) that are relative to the mean of their
/// group. A least-squares line with a separate level for each group has the slope Σ x y ÷ Σ x².
pub(crate) fn squares_within<'a>(groups: impl Iterator<Item = &'a Vec<(f64, f64)>>) -> [f64; 3] {
    let [mut xx, mut xy, mut yy] = [0.0; 3];
    for group in groups {
        let n = group.len() as f64;
        let (x, y) = group.iter().fold((0.0, 0.0), |(x, y), at| (x + at.0 / n, y + at.1 / n));
        for at in group {
            let (dx, dy) = (at.0 - x, at.1 - y);
            (xx, xy, yy) = (xx + dx * dx, xy + dx * dy, yy + dy * dy);
        }
    }
    [xx, xy, yy]
}

/// With fewer degrees of freedom than this, a change is unknown.
const LEAST_DF: usize = 3;

/// The change of a server's cost from the first to the last round of a restart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// The change in log units, negative if the cost falls.
    pub log: f64,
    /// The probability that chance alone makes a change at least as large, if rounds are
    /// independent.
    pub p: f64,
}

impl Drift {
    /// Returns the change of a server relative to the median of other servers, over the rounds that
    /// any of them has too. Without other servers, the server's own change is returned.
    ///
    /// Least squares fit a line to the logarithms of the rounds, with the same slope in each
    /// restart. The change is this slope times the mean number of rounds after the first one in a
    /// restart. `None` if there are too few rounds.
    pub fn of(server: &[Reading], others: &[&[Reading]]) -> Option<Self> {
        let mut restarts = BTreeMap::<u32, Vec<(f64, f64)>>::new();
        for ((restart, round), log) in relative(server, others) {
            restarts.entry(restart).or_default().push((f64::from(round), log));
        }
        restarts.retain(|_, rounds| rounds.len() > 1);
        let rounds: usize = restarts.values().map(Vec::len).sum();
        let df = rounds.checked_sub(restarts.len() + 1).filter(|df| *df >= LEAST_DF)?;
        let [xx, xy, yy] = squares_within(restarts.values());
        let length = (rounds - restarts.len()) as f64 / restarts.len() as f64;
        let slope = xy / xx;
        let rest = (yy - slope * xy).max(f64::MIN_POSITIVE);
        let error = (rest / df as f64 / xx).sqrt();
        Some(Self { log: slope * length, p: two_sided_p(slope / error, df as f64) })
    }
}

/// A round is a burst if it costs more than this multiple of the median round.
const BURST: f64 = 1.25;

/// Bursts are reported if they raise the mean cost by more than this factor.
const REPORTED: f64 = 1.02;

/// Rounds in which a server cost far more than usual, relative to other servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bursts {
    /// The mean cost of the server in these rounds, as a ratio to the median round.
    pub factor: f64,
    /// The number of rounds with a burst.
    pub rounds: u32,
    /// The number of all rounds.
    pub of: u32,
    /// Whether the bursts look like the end of a warm-up: at least two rounds in all, at the start
    /// of most restarts, and nowhere else.
    pub at_start: bool,
}

impl Bursts {
    /// Returns the bursts of a server. `None` if bursts hardly matter, or if they are so frequent
    /// that the median round may not show the usual cost.
    pub fn of(server: &[Reading], others: &[&[Reading]]) -> Option<Self> {
        let ratios = relative(server, others);
        let usual = median(&ratios.values().copied().collect::<Vec<_>>())?;
        let mut excess = 0.0;
        // For each restart, whether each of its rounds is a burst.
        let mut restarts = BTreeMap::<u32, Vec<bool>>::new();
        for ((restart, _), ratio) in &ratios {
            let factor = (ratio - usual).exp();
            let is_burst = factor > BURST;
            excess += if is_burst { factor - 1.0 } else { 0.0 };
            restarts.entry(*restart).or_default().push(is_burst);
        }
        let rounds = restarts.values().flatten().filter(|is_burst| **is_burst).count();
        let begins = |bursts: &&Vec<bool>| bursts[0] && bursts.is_sorted_by(|a, b| a >= b);
        let has = |bursts: &&Vec<bool>| bursts.contains(&true);
        let of_start = restarts.values().filter(begins).count();
        let all_begin = restarts.values().filter(has).count() == of_start;
        let at_start = rounds > 1 && all_begin && of_start * 2 > restarts.len();
        let of = ratios.len();
        let are_few = rounds * if at_start { 2 } else { 4 } < of;
        (excess / of as f64 > REPORTED - 1.0 && are_few).then(|| Self {
            factor: 1.0 + excess / rounds as f64,
            rounds: rounds as u32,
            of: of as u32,
            at_start,
        })
    }
}

/// A start is odd if the server's cost after it differs by more than this ratio from the median of
/// all its starts. The value is a convention.
const ODD: f64 = 1.15;

/// The smallest number of starts among which one can be odd.
const FEWEST_STARTS: usize = 3;

/// Starts after which a server cost far more or less than after its other starts. A runtime may
/// compile the same code differently each time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OddStarts {
    /// The geometric mean of the costs after odd starts, as a ratio to the median of all starts.
    pub factor: f64,
    /// The number of odd starts.
    pub starts: u32,
    /// The number of all starts.
    pub of: u32,
}

impl OddStarts {
    /// Returns the odd starts of a server. `None` if no start is odd, if there are too few starts,
    /// or if more than a third of them seem odd. A start is not odd if the other servers changed as
    /// much.
    pub fn of(server: &[Reading], others: &[&[Reading]]) -> Option<Self> {
        let own = totals(server);
        let others: Vec<ByRestart> = others.iter().map(|readings| totals(*readings)).collect();
        let relative: ByRestart = own
            .iter()
            .map(|(restart, log)| {
                let at: Vec<f64> = others.iter().filter_map(|o| o.get(restart).copied()).collect();
                (*restart, log - median(&at).unwrap_or(0.0))
            })
            .collect();
        let middle = |logs: &ByRestart| median(&logs.values().copied().collect::<Vec<_>>());
        let (usual, beside) = (middle(&own)?, middle(&relative)?);
        let is_far = |log: f64| log.abs() > ODD.ln();
        let is_odd = |(restart, log): &(&u32, &f64)| {
            is_far(**log - usual) && is_far(relative[*restart] - beside)
        };
        let odd: Vec<f64> = own.iter().filter(is_odd).map(|(_, log)| log - usual).collect();
        let are_few = !odd.is_empty() && 3 * odd.len() <= own.len();
        (own.len() >= FEWEST_STARTS && are_few).then(|| Self {
            factor: (odd.iter().sum::<f64>() / odd.len() as f64).exp(),
            starts: odd.len() as u32,
            of: own.len() as u32,
        })
    }
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
        assert!((pairs[&0] - f64::ln(14.0 / 7.0)).abs() < 1e-12);
    }

    /// Regression: a robust mean over rounds left out the bursts of a server.
    #[test]
    fn a_round_in_which_a_server_costs_ten_times_as_much_has_its_weight() {
        let rounds = |last: f64| (0..10).map(move |n| if n < 9 { 1.0 } else { last });
        let readings = |last| -> Vec<Reading> {
            (0..).zip(rounds(last)).map(|(n, cost)| reading(0, n, cost * 50.0, 50.0)).collect()
        };
        let pairs = pairs(&readings(10.0), &readings(1.0));
        assert!((pairs[&0].exp() - 1.9).abs() < 1e-12);
    }

    /// Regression: a round without a request was left out, or counted with a cost of 0.
    #[test]
    fn what_is_spent_without_a_request_belongs_to_the_restart() {
        let readings = [reading(0, 0, 50.0, 10.0), reading(0, 1, 50.0, 0.0)];
        assert_eq!(totals(&readings)[&0], 10.0_f64.ln());
        assert!(totals(&[reading(0, 0, 50.0, 0.0)]).is_empty(), "no cost without a request");
    }

    /// Regression: one start of a Node server in twenty cost 1.35 times as much as the others. Its
    /// rounds were called bursts, and garbage collection was suspected.
    #[test]
    fn a_start_after_which_a_server_costs_more_is_odd() {
        let starts = |costs: &[f64]| -> Vec<Reading> {
            (0..).zip(costs).map(|(n, cost)| reading(n, 0, *cost, 1.0)).collect()
        };
        let node = starts(&[8.52, 8.45, 8.27, 11.16]);
        let (flat, slower) = (starts(&[7.0; 4]), starts(&[7.0, 7.0, 7.0, 9.3]));
        let found = OddStarts::of(&node, &[&flat]).unwrap();
        assert!((1.31..1.33).contains(&found.factor) && (found.starts, found.of) == (1, 4));
        assert_eq!(OddStarts::of(&node, &[&slower]), None, "the machine was slower");
        assert_eq!(OddStarts::of(&flat, &[&node]), None);
        assert_eq!(OddStarts::of(&node[2..], &[&flat]), None, "two starts");
    }

    #[test]
    fn a_round_ratio_needs_both_servers() {
        let ratios = relative(
            &[reading(0, 0, 4.0, 1.0), reading(0, 1, 4.0, 1.0), reading(1, 0, 4.0, 0.0)],
            &[&[reading(0, 1, 2.0, 1.0), reading(1, 0, 2.0, 1.0)]],
        );
        assert_eq!(ratios.into_iter().collect::<Vec<_>>(), [((0, 1), 2.0_f64.ln())]);
    }

    mod change {
        use super::super::*;
        use crate::Share;

        /// Returns three restarts of five rounds, on a machine that becomes slower by 10% per
        /// round.
        fn readings(cost: impl Fn(u32, u32) -> f64) -> Vec<Reading> {
            let machine = |round: u32| 1.1_f64.powi(round as i32);
            let places = (0..3).flat_map(|restart| (0..5).map(move |round| (restart, round)));
            places
                .map(|(restart, round)| {
                    let wobble = 1.0 + 0.01 * f64::from((restart * 5 + round) * 7 % 3);
                    let share = Share::whole(cost(restart, round) * machine(round) * wobble);
                    Reading { restart, round, share }
                })
                .collect()
        }

        #[test]
        fn a_server_that_falls_in_each_restart_changes_and_the_machine_does_not_count() {
            let falling = readings(|_, round| 50.0 * 0.8_f64.powi(round as i32));
            let flat = readings(|restart, _| 20.0 + f64::from(restart));
            let found = Drift::of(&falling, &[&flat]).unwrap();
            assert!((found.log - 4.0 * 0.8_f64.ln()).abs() < 0.02 && found.p < 1e-6, "{found:?}");
            let other = readings(|restart, _| 30.0 - f64::from(restart));
            let found = Drift::of(&flat, &[&other, &other]).unwrap();
            assert!(found.log.abs() < 0.02 && found.p > 0.01, "{found:?}");
            // Without other servers, a change of the machine looks like a change of the server.
            assert!((Drift::of(&flat, &[]).unwrap().log - 4.0 * 1.1_f64.ln()).abs() < 0.02);
        }

        #[test]
        fn restarts_of_one_round_tell_nothing() {
            let one = readings(|_, _| 1.0).into_iter().filter(|r| r.round == 0).collect::<Vec<_>>();
            assert_eq!(Drift::of(&one, &[]), None);
            let two = readings(|_, _| 1.0).into_iter().filter(|r| r.round < 2).collect::<Vec<_>>();
            assert_eq!(Drift::of(&two, &[]), None, "two degrees of freedom");
        }
    }

    mod bursts {
        use super::super::*;
        use crate::Share;

        fn bursts(costs: &[f64]) -> Option<Bursts> {
            let reading = |(n, cost): (u32, f64)| Reading {
                restart: n / 4,
                round: n % 4,
                share: Share::whole(cost),
            };
            let server: Vec<Reading> = (0..).zip(costs.iter().copied()).map(reading).collect();
            let reference: Vec<Reading> =
                (0..).zip(costs.iter().map(|_| 5.0)).map(reading).collect();
            Bursts::of(&server, &[&reference])
        }

        /// Regression: a server whose cost fell to a third after its first two rounds was called
        /// bursty, and those two rounds counted.
        #[test]
        fn the_first_rounds_of_most_restarts_are_a_warm_up() {
            let of = |dear: &[usize]| {
                let mut costs = [5.0; 20];
                dear.iter().for_each(|round| costs[*round] = 15.0);
                bursts(&costs).unwrap().at_start
            };
            // Five restarts of four rounds.
            assert!(of(&[0, 4, 8]) && of(&[0, 1, 4, 8]));
            assert!(!of(&[0, 4]) && !of(&[0, 4, 9]) && !of(&[0, 2, 4, 8]) && !of(&[0]));
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
}
