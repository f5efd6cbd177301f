//! The outcome of one load in each format: for people, as wrk prints it, and for machines.

mod human;
mod machine;
mod wrk;

#[cfg(test)]
mod peers;

pub use human::human;
pub use machine::{csv, hgrm, hlog, json};
pub use wrk::{wrk, wrk_head};
