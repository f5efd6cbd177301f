//! Tests that run real servers on this machine.
#![cfg(target_os = "linux")]

mod generators;
mod live;
mod owner;
mod setting;
mod slices;
#[path = "../../../hotlap-servers/tests/stand_in/mod.rs"]
mod stand_in;
mod start;
mod stress;
