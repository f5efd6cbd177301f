//! A server as a thing: what it is, how it is built and started, what it answers, what it uses.
//!
//! In the order in which they are met: a [`manifest`] in the [`catalogue`] says what a server is;
//! the [`toolchain`] builds it; a [`launch`] is the command that comes of it, which [`start`] runs
//! as a [`process`] under a supervisor, until it answers; [`verify`] compares its responses with
//! its [`contract`], which for a command or a URL is [inferred](infer) from its first responses;
//! [`owner`] finds the processes that answer, [`sample`] and [`counters`] say what they use. The
//! [`machine`] has [`cpus`], whose [`topology`] decides their [`allocation`] to server and
//! generator. [`check`] does all of that once, for `hotlap check`.
//!
//! This crate knows nothing of experiments, and prints nothing.

pub mod allocation;
pub mod catalogue;
pub mod check;
pub mod clock_flush;
pub mod contract;
pub mod counters;
pub mod cpus;
pub mod failure;
pub mod infer;
pub mod install;
pub mod interrupt;
pub mod launch;
pub mod lines;
pub mod machine;
pub mod manifest;
pub mod owner;
pub mod package_manager;
mod pool;
pub mod process;
pub mod sample;
pub mod start;
pub mod toolchain;
pub mod topology;
pub mod tree;
pub mod verify;
