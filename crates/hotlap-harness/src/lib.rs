//! Servers as processes, and the races that they run.
//!
//! Bottom to top: [`manifest`] and [`catalogue`] say what a server is, [`toolchain`] builds it,
//! [`process`] starts and stops it under a warden that outlives every accident, [`verify`] holds
//! its answers against a [`contract`], [`sample`] and [`counters`] say what it uses, [`host`] says
//! where. On top, [`race`] lets [`entrant`]s run [`lap`]s on a [`track`]: the schedule of heats,
//! blocks and laps knows nothing of processes, so it is tested with scripted laps in milliseconds.
//!
//! This crate never prints; what it has to tell it returns, or hands to a watcher as an event.

pub mod boot;
pub mod catalogue;
pub mod check;
pub mod contract;
pub mod cores;
pub mod counters;
pub mod entrant;
pub mod gate;
pub mod host;
pub mod install;
pub mod lap;
pub mod learn;
pub mod live;
pub mod manifest;
pub mod owner;
pub mod process;
pub mod race;
pub mod sample;
pub mod scripted;
pub mod stress;
pub mod suite;
pub mod timetable;
pub mod toolchain;
pub mod topology;
pub mod track;
pub mod tree;
pub mod verify;
mod visit;
