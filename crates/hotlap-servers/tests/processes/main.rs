//! Builds, processes, and what is observed of them.

#[path = "../stand_in/mod.rs"]
mod stand_in;

mod build;
mod observe;
mod process;
mod process_sample;
