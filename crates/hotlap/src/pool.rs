//! A suite over a pool of machines: its shards, each a separate run that a scheduler places on a
//! machine, and the merging of their results.
//!
//! [`division`] decides which servers a shard measures. The record of the shard's run names these
//! servers ([`crate::model::Shard`]). [`merge`] makes one run from the shards of one kind of
//! machine, without the shards that [`apart`] finds far off the others.

pub mod apart;
pub mod division;
pub mod merge;
