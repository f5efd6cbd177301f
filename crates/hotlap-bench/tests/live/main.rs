//! Runs of real servers on this machine.

#[path = "../setting/mod.rs"]
mod setting;
#[path = "../../../hotlap-servers/tests/stand_in/mod.rs"]
mod stand_in;

mod generators;
mod live;
mod owner;
mod start;
