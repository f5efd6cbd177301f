//! The experiment: what is measured, in which order, for how long, and which laps count.
//!
//! An [`experiment`] measures [`participant`]s in [`lap`]s. Its schedule, which takes the number of
//! restarts and rounds from the [`budget`], knows only the trait [`runner`] and nothing of
//! processes: it is tested with [`scripted`] laps in milliseconds. [`local`] is the runner that
//! starts processes on this machine, loads, freezes and samples them; [`validity`] says which of
//! its laps count. Beside that, [`stress`] runs attackers beside normal clients, and a [`suite`] is
//! an experiment as a file.
//!
//! This crate never prints: what happens is returned, or handed on as an event.

pub mod budget;
pub mod experiment;
pub mod lap;
pub mod local;
pub mod participant;
pub mod runner;
pub mod schedule;
pub mod scripted;
pub mod stress;
pub mod suite;
pub mod validity;
