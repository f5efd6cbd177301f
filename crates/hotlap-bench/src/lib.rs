//! The experiment: what is measured, in which order, for how long, and which laps count.
//!
//! In the order in which a run meets them:
//!
//! 1. **What is measured.** An [`Experiment`](experiment::Experiment) has
//!    [`Participant`](participant::Participant)s, each with its [`Role`](participant::Role), and
//!    [`Load`](participant::Load)s. A [`Suite`](suite::Suite) is an experiment as a file.
//! 2. **In which order.** [`run`](schedule::run) goes through restarts, rounds and slices, and
//!    takes their number from the [`Budget`](budget::Budget). It tells each
//!    [`Event`](experiment::Event) as it happens, and how it [ended](experiment::Over).
//! 3. **With what.** The schedule knows only the trait [`Runner`](runner::Runner) and nothing of
//!    processes. [`LocalRunner`](local::LocalRunner) starts, warms up, loads, freezes and samples
//!    servers on this machine; [`Scripted`](scripted::Scripted) laps test the schedule in
//!    milliseconds.
//! 4. **What comes of it.** A [`Lap`](lap::Lap) is one server's slices, summed. It counts if
//!    [`judge`](validity::judge) finds no [`Violation`](lap::Violation).
//!
//! Beside that, [`stress`](stress::stress) puts attackers beside normal clients, and says for each
//! [`Scenario`](stress::Scenario) what its [`Impact`](stress::Impact) was.
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
