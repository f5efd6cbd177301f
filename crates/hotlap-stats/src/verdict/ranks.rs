//! Ranks that never contradict a verdict.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The places that a server may have, from 1 on, as far as verdicts determine them: `2`, or `2–3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Rank {
    /// One more than the number of servers that are better.
    pub best: u32,
    /// The number of servers, less those that are worse.
    pub worst: u32,
}

impl Rank {
    /// A place that no other server may have.
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

/// The ranks of `count` servers, given the pairs that differ as (better, worse) indices.
///
/// The worse server of a pair inherits every server that is better than the better one. So its best
/// and worst places are always later, even if a third server differs from only one of the two. If
/// of a, b and c only b and c differ, the ranks are 1–3, 1–2 and 2–3. Pairs that form a cycle say
/// nothing about the order within the cycle.
pub fn ranks(count: usize, pairs: &[(usize, usize)]) -> Vec<Rank> {
    let mut beats = vec![vec![false; count]; count];
    for &(better, worse) in pairs {
        beats[better][worse] = true;
    }
    // The transitive closure (Warshall, "A theorem on Boolean matrices", JACM 9, 1962).
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
        // b is better than c, and two are better than b, neither of which differs from c.
        assert_eq!(told(4, &[(0, 2), (1, 2), (2, 3)]), "1–2 1–2 3 4");
    }

    #[test]
    fn pairs_in_a_cycle_share_a_rank() {
        assert_eq!(told(4, &[(0, 1), (1, 2), (2, 0), (2, 3)]), "1–3 1–3 1–3 4");
    }

    /// Servers in a hidden order, and some of the pairs that agree with it.
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
