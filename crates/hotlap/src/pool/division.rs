//! Decides which servers each shard measures.
//!
//! Servers on different machines are compared only through the reference. So every shard measures
//! the reference, its A/A control and the ceiling. The other servers are divided into groups.
//! Several shards measure each group, because intervals come from the differences between nodes.
//! With fewer shards, groups are larger, which has two advantages. Fewer shards spend time on the
//! reference, the control and the ceiling. And servers that were measured together are compared
//! directly.
//!
//! The shards of a group have consecutive numbers. A scheduler starts tasks in order. If enough
//! nodes are free, the shards of a group run at about the same time, on different nodes. The other
//! order would be `shard = repeat × groups + group`. In that order, a pool with one node for each
//! group would measure each group on only one node.

use std::hash::Hasher;

use fnv::FnvHasher;

/// The default number of nodes on which each server is measured. Each half of an interval is
/// `t(n − 1) ÷ √n` standard deviations between nodes. That factor is 2.48 with three nodes, 1.59
/// with four, 1.24 with five, and 0.84 with eight.
pub const NODES_PER_SERVER: usize = 5;

/// The default seed of a pool. All shards must have the same seed.
pub const SEED: u64 = 1;

/// Servers that are measured together, by the same shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The servers, the reference first.
    pub servers: Vec<String>,
    /// The numbers of the shards, from 0.
    pub shards: Vec<usize>,
}

/// Divides servers among `shards`. At least `repeats` shards, or all if there are fewer, measure
/// each server. All shards measure the reference. The seed decides the order in which servers are
/// assigned to groups. So neighbours in a suite, which may share a language, do not all end up in
/// one group.
pub fn divide(
    servers: &[String],
    reference: &str,
    shards: usize,
    repeats: usize,
    seed: u64,
) -> Vec<Group> {
    let mut others: Vec<&String> = servers.iter().filter(|name| *name != reference).collect();
    others.sort_by_key(|name| hash(seed, name.as_bytes()));
    let groups = (shards / repeats.max(1)).clamp(1, others.len().max(1));
    let mut first = 0;
    let group = |number: usize| {
        let dealt = others.iter().skip(number).step_by(groups).map(|name| (*name).clone());
        // If shards do not divide evenly, each of the first groups gets one more shard.
        let count = shards / groups + usize::from(number < shards % groups);
        let numbers = (first..first + count).collect();
        first += count;
        Group {
            servers: std::iter::once(reference.to_owned()).chain(dealt).collect(),
            shards: numbers,
        }
    };
    (0..groups).map(group).collect()
}

/// Returns the seed of a shard. The seed is below 2⁵³, so that every JSON parser keeps it exactly.
pub fn seed_of(pool: u64, shard: usize) -> u64 {
    hash(pool, &shard.to_le_bytes()) >> 11
}

fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::with_key(seed ^ 0xcbf2_9ce4_8422_2325);
    hasher.write(bytes);
    // MurmurHash3's finaliser is needed because FNV's upper bits hardly depend on the last byte.
    let mut hash = hasher.finish();
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("server-{n}")).collect()
    }

    #[test]
    fn every_shard_has_the_reference_and_every_server_its_repeats() {
        for (servers, shards, repeats) in
            [(95, 40, 5), (10, 12, 3), (4, 3, 3), (2, 7, 2), (3, 2, 5)]
        {
            let names = names(servers);
            let groups = divide(&names, "server-1", shards, repeats, 7);
            let all: Vec<usize> = groups.iter().flat_map(|g| g.shards.clone()).collect();
            assert_eq!(all, (0..shards).collect::<Vec<_>>(), "each shard has one group");
            let mut measured = BTreeSet::new();
            for group in &groups {
                assert_eq!(group.servers[0], "server-1");
                assert!(group.shards.len() >= repeats.min(shards), "{groups:?}");
                for server in &group.servers[1..] {
                    assert!(measured.insert(server.clone()), "{server} is in two groups");
                }
            }
            assert_eq!(measured.len(), servers - 1);
            let sizes: Vec<usize> = groups.iter().map(|group| group.servers.len()).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        }
    }

    /// Tasks start in order. With at least as many nodes as repeats, the shards of a group run on
    /// different nodes, whatever the number of groups is.
    #[test]
    fn the_shards_of_a_group_fall_on_different_nodes() {
        for nodes in 3..8 {
            for group in divide(&names(9), "server-0", 12, 3, 1) {
                let on: BTreeSet<usize> = group.shards.iter().map(|shard| shard % nodes).collect();
                assert_eq!(on.len(), 3, "{nodes} nodes: {group:?}");
            }
        }
    }

    #[test]
    fn a_seed_repeats_the_division_and_another_one_changes_it() {
        let of = |seed| divide(&names(20), "server-0", 8, 2, seed);
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        let seeds: BTreeSet<u64> = (0..100).map(|shard| seed_of(3, shard)).collect();
        assert!(seeds.len() == 100 && seeds.iter().all(|seed| *seed < 1 << 53));
    }
}
