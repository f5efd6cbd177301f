//! A suite that the machines of a pool measure together: the shard that one run measured, and what
//! a run rests on that was merged from shards.

use serde::{Deserialize, Serialize};

/// The part of a suite that a run measured (`--shard`). With the servers and the loads of the run,
/// it says all that [`crate::pool`] must know to merge it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Its number, from 0.
    pub number: usize,
    /// The number of shards.
    pub of: usize,
    /// How many shards measure each server.
    pub nodes_per_server: usize,
    /// The seed of the pool, from which the division and the seeds of all shards follow.
    pub seed: u64,
    /// A hash of the suite: its file, its requests file, and the names of its servers.
    pub suite_hash: u64,
    /// Options that change what is measured, as they can be typed.
    pub options: Vec<String>,
    /// The server that all others are compared with.
    pub reference: String,
    /// The servers that it measures.
    pub servers: Vec<String>,
}

impl Shard {
    /// Why another shard is not one of the same pool, if it is not.
    pub fn other_pool(&self, other: &Self) -> Option<String> {
        let facts = |shard: &Self| {
            [
                ("the suite has the hash", format!("{:016x}", shard.suite_hash)),
                ("the number of shards is", shard.of.to_string()),
                ("--nodes-per-server is", shard.nodes_per_server.to_string()),
                ("--seed is", shard.seed.to_string()),
                ("the reference is", shard.reference.clone()),
                ("options are", format!("{:?}", shard.options.join(" "))),
            ]
        };
        let mut both = facts(self).into_iter().zip(facts(other));
        let ((what, own), (_, theirs)) = both.find(|(own, theirs)| own != theirs)?;
        Some(format!("{what} {theirs} instead of {own}"))
    }
}

/// The nodes and shards of a merged run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pool {
    /// The nodes whose shards count, by name.
    pub nodes: Vec<String>,
    /// The node of each restart of the merged run, as an index.
    pub node_of: Vec<u32>,
    /// The shards of the plan that have a result on this kind of machine, by number.
    pub shards: Vec<MergedShard>,
    /// The number of shards of the plan.
    pub planned: usize,
    /// The numbers of the shards without a result.
    pub missing: Vec<usize>,
    /// Other things that the reader must know about the shards.
    pub notes: Vec<String>,
}

/// A shard with a result.
#[derive(Debug, Clone, PartialEq)]
pub struct MergedShard {
    /// Its number, from 0.
    pub shard: usize,
    /// Its node, by name.
    pub node: String,
    /// Restarts that it measured.
    pub restarts: u32,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Its noise floor in CPU time per request, in log units; `None` if unknown.
    pub noise: Option<f64>,
    /// CPU time per request of its ceiling, in nanoseconds; `None` if unknown.
    pub ceiling_ns: Option<f64>,
    /// Why it is set apart and counts for nothing; `None` if it counts.
    pub apart: Option<Apart>,
}

/// Why a shard is set apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Apart {
    /// The reference failed or has no lap that counts, so there is nothing to compare with.
    NoReference,
    /// The A/A control differs from the reference, which is the same program.
    ControlDiffers,
    /// Its noise floor is far above the pool's; both in log units.
    Noise {
        /// Its own.
        own: f64,
        /// The pool's median.
        pool: f64,
    },
    /// Its ceiling, which is the same program everywhere, costs something else; in nanoseconds per
    /// request.
    Ceiling {
        /// Its own.
        own: f64,
        /// The pool's median.
        pool: f64,
    },
}
