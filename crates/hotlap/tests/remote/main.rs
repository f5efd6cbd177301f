//! Servers and generators on other hosts: each test that needs a host makes one from network
//! namespaces.

#[path = "../hosts/mod.rs"]
mod hosts;
#[path = "../laps/mod.rs"]
mod laps;
#[path = "../processes/mod.rs"]
mod processes;

mod generators;
mod namespaces;
mod run_generators;
mod server_faults;
mod server_on;
mod ssh;
