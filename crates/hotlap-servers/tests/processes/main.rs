//! Tests of builds, of processes, and of instruments that observe processes.

#[path = "../stand_in/mod.rs"]
mod stand_in;

mod build;
mod observe;
mod process;
mod process_sample;
