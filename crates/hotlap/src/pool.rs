//! Divides a suite into shards for a pool of machines, and merges the results of the shards. Each
//! shard is a separate run that a scheduler places on a machine.
//!
//! [`division`] decides which servers a shard measures. The record of the shard's run names these
//! servers ([`crate::model::Shard`]). [`merge`] makes one run from the shards of one kind of
//! machine. Shards that [`apart`] finds unusable or unusual are not merged.

pub mod apart;
pub mod division;
pub mod merge;
