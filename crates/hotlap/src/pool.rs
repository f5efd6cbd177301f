//! A suite over a pool of machines: shards, each a run of its own that some scheduler places on a
//! machine, and the merging of their results.
//!
//! [`division`] decides which servers a shard measures; the record of its run says so
//! ([`crate::model::Shard`]). [`merge`] makes one run of the shards of one kind of machine, without
//! those that [`apart`] finds far off the others.

pub mod apart;
pub mod division;
pub mod merge;
