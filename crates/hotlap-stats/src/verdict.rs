//! Verdicts and ranks: which differences between servers count.
//!
//! A verdict needs at least [`MIN_RESTARTS`] restarts, and a p-value that is at most alpha after
//! correction for the number of comparisons ([`holm`]). If copies of one program differ, there are
//! no verdicts: see [`Inconclusive::ControlDiffers`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::compare::Effect;

/// How a server compares with another server in one measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The server is better, by more than noise.
    Better,
    /// The server is worse, by more than noise.
    Worse,
    /// No difference could be measured.
    NoDifference,
    /// The data do not permit a verdict.
    Inconclusive(Inconclusive),
}

impl Verdict {
    /// Returns whether the two servers differ.
    pub fn differs(self) -> bool {
        matches!(self, Self::Better | Self::Worse)
    }
}

/// The direction in which values of a measure are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Better {
    /// Higher values are better, as for requests per second.
    Higher,
    /// Lower values are better, as for cost, latency and memory.
    Lower,
}

/// The rules that decide a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Criterion {
    /// The largest p-value that counts (for example 0.05), after correction for the number of
    /// comparisons.
    pub alpha: f64,
    /// The reason why no verdict can be given, whatever the difference.
    pub withheld: Option<Inconclusive>,
    /// The direction in which values are better.
    pub better: Better,
}

impl Criterion {
    /// Returns the verdict on one comparison, given a corrected p-value.
    fn verdict(&self, effect: &Effect, p: f64) -> Verdict {
        if let Some(why) = self.withheld {
            return Verdict::Inconclusive(why);
        }
        if effect.restarts < MIN_RESTARTS {
            return Verdict::Inconclusive(Inconclusive::TooFewRestarts);
        }
        let log_ratio = effect.ratio.value.ln();
        // A NaN must result in "no difference".
        let differs = p <= self.alpha && log_ratio.abs() > 0.0;
        match self.better {
            _ if !differs => Verdict::NoDifference,
            Better::Higher if log_ratio.is_sign_positive() => Verdict::Better,
            Better::Lower if log_ratio.is_sign_negative() => Verdict::Better,
            _ => Verdict::Worse,
        }
    }
}

/// Returns the verdicts on comparisons that form one family, in the same order. [`holm`] corrects
/// the p-values for their number. So if nothing differs and alpha is 5%, at most 5% of families
/// have a false verdict.
///
/// The sentences of a table are about requests/s and CPU time per request (of the server, the
/// database or both). Their verdicts form one family. Other measures, such as latency and memory,
/// form another family.
pub fn verdicts(comparisons: &[(Criterion, Effect)]) -> Vec<Verdict> {
    let p = holm(&comparisons.iter().map(|(_, effect)| effect.p).collect::<Vec<_>>());
    comparisons.iter().zip(p).map(|((criterion, effect), p)| criterion.verdict(effect, p)).collect()
}

/// Corrects p-values for their number, so that each may be compared with the same alpha (Holm, "A
/// simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979). The
/// smallest p-value is multiplied by the number of p-values, the next one by one less, and so on.
/// Each result is at least the result for the next smaller p-value, and at most 1. NaN counts as
/// 1.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let p: Vec<f64> = p.iter().map(|&p| if p.is_nan() { 1.0 } else { p }).collect();
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut corrected = vec![1.0; p.len()];
    let mut floor = 0.0_f64;
    for (smaller, &i) in order.iter().enumerate() {
        floor = floor.max(p[i] * (p.len() - smaller) as f64).min(1.0);
        corrected[i] = floor;
    }
    corrected
}

/// The smallest number of restarts for a verdict. An interval depends on how much restarts differ,
/// so a single restart has no interval. The interval from two restarts has one degree of freedom,
/// and extends 12.7 standard errors to either side.
pub const MIN_RESTARTS: u32 = 3;

/// Verdicts are withheld if the A/A control differs from the reference with a p-value below this
/// value. One in a hundred runs loses its verdicts by chance. The control is a diagnostic, not a
/// threshold for differences.
pub const CONTROL_ALPHA: f64 = 0.01;

/// The reason why a comparison is inconclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Inconclusive {
    /// The comparison has fewer than [`MIN_RESTARTS`] restarts.
    TooFewRestarts,
    /// The comparison was merged from fewer nodes than [`MIN_RESTARTS`].
    TooFewNodes,
    /// The A/A control differs from the reference ([`CONTROL_ALPHA`]). Something separates two
    /// copies of one program, and may separate other servers too.
    ControlDiffers,
    /// One of the two servers was not steady.
    NotSteady,
    /// A database used more than half of the cores that it shares with the two servers. Requests/s
    /// then show the speed of the database.
    DatabaseBound,
    /// Stored runs are compared, and one side has fewer than [`MIN_RESTARTS`] runs. Each run is one
    /// sample of the machine.
    TooFewRuns,
}

/// The places that a server may have according to the verdicts, such as `2` or `2–3`. The first
/// place is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rank {
    /// The best place: one more than the number of servers that are better.
    pub best: u32,
    /// The worst place: the number of servers minus the number of servers that are worse.
    pub worst: u32,
}

impl Rank {
    /// Returns the rank of a server whose place no other server may have.
    pub fn only(place: u32) -> Self {
        Self { best: place, worst: place }
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.best == self.worst {
            true => write!(f, "{}", self.best),
            false => write!(f, "{}–{}", self.best, self.worst),
        }
    }
}

/// Returns the ranks of `count` servers, given the pairs that differ as (better, worse) indices.
///
/// In each pair, every server that ranks above the better server also ranks above the worse
/// server. So the worse server's best and worst places are always later, even if a third server
/// differs from only one of the two. For example, suppose that b is better than c, and that a
/// differs from neither. The ranks of a, b and c are then 1–3, 1–2 and 2–3. Pairs that form a
/// cycle say nothing about the order within the cycle.
pub fn ranks(count: usize, pairs: &[(usize, usize)]) -> Vec<Rank> {
    let mut beats = vec![vec![false; count]; count];
    for &(better, worse) in pairs {
        beats[better][worse] = true;
    }
    // Compute the transitive closure (Warshall, "A theorem on Boolean matrices", JACM 9, 1962).
    for via in 0..count {
        let onwards = beats[via].clone();
        for row in beats.iter_mut().filter(|row| row[via]) {
            row.iter_mut().zip(&onwards).for_each(|(to, onward)| *to |= onward);
        }
    }
    let is_better = |a: usize, b: usize| beats[a][b] && !beats[b][a];
    let rank = |server: usize| {
        let better = (0..count).filter(|&other| is_better(other, server)).count();
        let worse = (0..count).filter(|&other| is_better(server, other)).count();
        Rank { best: 1 + better as u32, worst: (count - worse) as u32 }
    };
    (0..count).map(rank).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::estimate::Estimate;

    fn ratio(value: f64, p: f64, restarts: u32) -> Effect {
        let ratio = Estimate { value, low: value * 0.99, high: value * 1.01 };
        Effect { ratio, p, restarts }
    }

    fn criterion(better: Better) -> Criterion {
        Criterion { alpha: 0.05, withheld: None, better }
    }

    fn verdict(criterion: Criterion, effect: Effect) -> Verdict {
        verdicts(&[(criterion, effect)])[0]
    }

    #[test]
    fn which_direction_is_better_depends_on_the_measure() {
        let more = ratio(1.02, 0.001, 5);
        assert_eq!(verdict(criterion(Better::Higher), more), Verdict::Better);
        assert_eq!(verdict(criterion(Better::Lower), more), Verdict::Worse);
        let less = ratio(0.98, 0.001, 5);
        assert_eq!(verdict(criterion(Better::Higher), less), Verdict::Worse);
        assert_eq!(verdict(criterion(Better::Lower), less), Verdict::Better);
    }

    /// Regression: verdicts were given from the rounds of a single restart.
    #[test]
    fn fewer_than_three_restarts_are_inconclusive() {
        for count in 1..=4 {
            let found = verdict(criterion(Better::Higher), ratio(3.0, 1e-9, count));
            let few = Verdict::Inconclusive(Inconclusive::TooFewRestarts);
            assert_eq!(found, if count < 3 { few } else { Verdict::Better }, "{count}");
        }
    }

    #[test]
    fn a_reason_to_withhold_verdicts_withholds_each() {
        let withheld = Some(Inconclusive::ControlDiffers);
        let criterion = Criterion { withheld, ..criterion(Better::Higher) };
        for value in [1.0, 3.0] {
            let found = verdict(criterion, ratio(value, 1e-9, 5));
            assert_eq!(found, Verdict::Inconclusive(Inconclusive::ControlDiffers));
        }
    }

    #[test]
    fn a_p_value_of_alpha_counts_and_a_ratio_of_one_does_not() {
        let of = |value: f64, p| criterion(Better::Higher).verdict(&ratio(value, p, 5), p);
        assert_eq!(of(2.0, 0.05), Verdict::Better);
        assert_eq!(of(0.5, 0.05), Verdict::Worse);
        assert_eq!(of(2.0, 0.050_001), Verdict::NoDifference);
        assert_eq!(of(1.0, 0.0), Verdict::NoDifference);
        assert_eq!(of(f64::NAN, 0.0), Verdict::NoDifference);
        assert_eq!(of(2.0, f64::NAN), Verdict::NoDifference);
    }

    #[test]
    fn p_values_are_corrected_for_the_number_of_comparisons() {
        let one = (criterion(Better::Higher), ratio(2.0, 0.03, 5));
        assert_eq!(verdicts(&[one]), [Verdict::Better]);
        assert_eq!(verdicts(&[one, one]), [Verdict::NoDifference; 2]);
    }

    #[test]
    fn only_better_and_worse_differ() {
        assert!(Verdict::Better.differs() && Verdict::Worse.differs());
        assert!(!Verdict::NoDifference.differs());
        assert!(!Verdict::Inconclusive(Inconclusive::TooFewNodes).differs());
    }

    proptest! {
        #[test]
        fn a_larger_p_or_fewer_restarts_never_make_a_verdict_easier(
            log_ratio in -0.2..0.2, p in 0.0..0.1, more in 0.0..0.1, restarts in 1..6u32,
        ) {
            let differs = |p, restarts| {
                let effect = ratio(f64::exp(log_ratio), p, restarts);
                criterion(Better::Lower).verdict(&effect, p).differs()
            };
            if !differs(p, restarts) {
                prop_assert!(!differs(p + more, restarts));
                prop_assert!(!differs(p, restarts - 1));
            }
        }
    }

    mod holm {
        use super::super::*;

        #[test]
        fn the_smallest_is_multiplied_by_their_number() {
            assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
            assert_eq!(holm(&[0.4, f64::NAN, 0.9]), [1.0, 1.0, 1.0]);
            assert_eq!(holm(&[]), [0.0; 0]);
        }
    }

    mod ranks {
        use proptest::prelude::*;

        use super::super::*;

        fn told(count: usize, pairs: &[(usize, usize)]) -> String {
            let ranks: Vec<String> = ranks(count, pairs).iter().map(ToString::to_string).collect();
            ranks.join(" ")
        }

        #[test]
        fn a_rank_is_all_places_that_the_verdicts_permit() {
            assert_eq!(told(4, &[(1, 0), (2, 0), (1, 3), (2, 3), (3, 0)]), "4 1–2 1–2 3");
            assert_eq!(told(3, &[]), "1–3 1–3 1–3");
            assert_eq!(told(1, &[]), "1");
            assert_eq!(told(0, &[]), "");
        }

        /// Regression: two servers that differed shared a rank if neither differed from the leader.
        #[test]
        fn servers_that_differ_share_no_rank_whatever_the_leader() {
            assert_eq!(told(3, &[(1, 2)]), "1–3 1–2 2–3");
            // Two servers are better than the third and do not differ from the fourth, which is
            // worse than the third.
            assert_eq!(told(4, &[(0, 2), (1, 2), (2, 3)]), "1–2 1–2 3 4");
        }

        #[test]
        fn pairs_in_a_cycle_share_a_rank() {
            assert_eq!(told(4, &[(0, 1), (1, 2), (2, 0), (2, 3)]), "1–3 1–3 1–3 4");
        }

        /// Generates servers in a hidden order, and some of the pairs that agree with this order.
        fn servers() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
            let shuffled = (1..9usize).prop_flat_map(|count| {
                (Just((0..count).collect::<Vec<_>>()).prop_shuffle(), any::<u64>())
            });
            shuffled.prop_map(|(order, chosen)| {
                let all = (0..order.len()).flat_map(|a| (a + 1..order.len()).map(move |b| (a, b)));
                let some = all.enumerate().filter(|(bit, _)| chosen >> bit & 1 == 1);
                (order.len(), some.map(|(_, (a, b))| (order[a], order[b])).collect())
            })
        }

        proptest! {
            #[test]
            fn a_rank_never_contradicts_a_verdict((count, pairs) in servers()) {
                let ranks = ranks(count, &pairs);
                for (better, worse) in pairs {
                    let is_before = ranks[better].best < ranks[worse].best
                        && ranks[better].worst < ranks[worse].worst;
                    prop_assert!(is_before, "{better} and {worse}: {ranks:?}");
                }
                let places = 1..=count as u32;
                let is_place = |r: &Rank| r.best <= r.worst && places.contains(&r.best);
                prop_assert!(ranks.iter().all(is_place));
                prop_assert!(ranks.iter().all(|r| places.contains(&r.worst)));
                prop_assert!(ranks.iter().any(|r| r.best == 1));
            }
        }
    }
}
