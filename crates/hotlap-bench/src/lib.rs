//! The experiment: what to measure, in which order, for how long, and which laps count.
//!
//! This crate never prints: results are returned or reported as events. Its main types, in the
//! order in which a run uses them:
//!
//! 1. **What to measure.** An [`Experiment`](experiment::Experiment) has
//!    [`Participant`](participant::Participant)s, each with its [`Role`](participant::Role), and
//!    [`Load`](participant::Load)s. A [`Suite`](suite::Suite) is an experiment as a file.
//! 2. **The order.** [`run`](schedule::run) goes through restarts, rounds and slices, and
//!    [`Budget`](budget::Budget) decides how many restarts and rounds to run. Given
//!    [`Objective`](slo::Objective)s, `run` searches for the highest rate at which each server
//!    meets them. `run` reports each [`Event`](experiment::Event) as it happens, and returns why
//!    it [ended](experiment::Over).
//! 3. **The runner.** The schedule knows only the trait [`Runner`](runner::Runner), and nothing
//!    about processes. [`LocalRunner`](local::LocalRunner) starts, warms up, loads, freezes and
//!    samples real servers. [`Scripted`](scripted::Scripted) takes its laps from a script, so a
//!    test of the schedule takes milliseconds.
//! 4. **The laps.** A [`Lap`](lap::Lap) is the sum of one server's slices. It
//!    [counts](lap::Lap::counts) unless it failed a validity check that
//!    [excludes it](lap::Violation::invalidates).
//!
//! [`Speed`](speed::Speed) removes the effect of fast and slow cores from the figures of laps.
//!
//! An [`ExplainLap`](lap::ExplainLap) explains a difference in cost and enters no other figure.
//!
//! A separate entry point, [`stress`](stress::stress), runs attackers next to normal clients and
//! rates the [`Impact`](stress::Impact) of each [`Scenario`](stress::Scenario).

pub mod budget;
pub mod experiment;
pub mod lap;
pub mod local;
pub mod participant;
pub mod runner;
pub mod schedule;
pub mod scripted;
pub mod slo;
pub mod speed;
pub mod stress;
pub mod suite;
pub mod validity;
