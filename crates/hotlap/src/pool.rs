//! A suite over a pool of machines: a folder of shards, each of them a run of its own that some
//! scheduler places on a machine, and the merging of their results.
//!
//! [`division`] decides which servers a shard measures, and [`plan`] is what the files of a folder
//! say. [`outcome`] puts the result of a shard into the folder as a whole or not at all, so a shard
//! may be started again at any time. [`slurm`] and [`kubernetes`] write what those schedulers read.
//! [`merge`] makes one run of the shards of one kind of machine ([`kind`]), without those that
//! [`apart`] finds far off the others.

pub mod apart;
pub mod division;
pub mod kind;
pub mod kubernetes;
pub mod merge;
pub mod outcome;
pub mod plan;
pub mod slurm;
