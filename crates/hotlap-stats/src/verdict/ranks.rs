//! Ranks that never contradict a verdict.

/// The ranks of `count` servers, given the pairs that differ as (better, worse) indices: 1 + the
/// number of servers that are better, directly or through others.
///
/// A rank is thus the best position that a server may have, and servers that do not differ may
/// share one. The worse server of a pair inherits every server that is better than the better one,
/// so its rank is always larger, even if a third server differs from only one of the two (if of a,
/// b and c only b and c differ: 1, 1, 2). Pairs that form a cycle say nothing about the order
/// within the cycle: its servers share a rank.
#[must_use]
pub fn ranks(count: usize, pairs: &[(usize, usize)]) -> Vec<u32> {
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
    (0..count).map(|b| 1 + (0..count).filter(|&a| is_better(a, b)).count() as u32).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rank_is_one_more_than_the_number_of_better_servers() {
        assert_eq!(ranks(4, &[(1, 0), (2, 0), (1, 3), (2, 3), (3, 0)]), [4, 1, 1, 3]);
        assert_eq!(ranks(3, &[]), [1, 1, 1]);
        assert_eq!(ranks(0, &[]), [0; 0]);
    }

    /// Regression: two servers that differed shared a rank if neither differed from the leader.
    #[test]
    fn servers_that_differ_share_no_rank_whatever_the_leader() {
        assert_eq!(ranks(3, &[(1, 2)]), [1, 1, 2]);
        // b is better than c, and two are better than b, neither of which differs from c.
        assert_eq!(ranks(4, &[(0, 2), (1, 2), (2, 3)]), [1, 1, 3, 4]);
    }

    #[test]
    fn pairs_in_a_cycle_share_a_rank() {
        assert_eq!(ranks(4, &[(0, 1), (1, 2), (2, 0), (2, 3)]), [1, 1, 1, 4]);
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
                prop_assert!(ranks[better] < ranks[worse], "{better} and {worse}: {ranks:?}");
            }
            prop_assert!(ranks.iter().all(|r| (1..=count as u32).contains(r)));
            prop_assert!(ranks.contains(&1));
        }
    }
}
