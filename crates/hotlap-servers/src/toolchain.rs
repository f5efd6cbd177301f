//! Turns a catalogue entry into something that runs.
//!
//! A missing toolchain is a state of the machine, not an error: [`probe`] reports it together with
//! the command that installs it, and the server is skipped. With its toolchain present, a
//! [`Builder`] builds the server in the cache and returns a [`Built`].

pub mod build;
mod probe;
mod sources;
pub(crate) mod step;

pub use build::{BuildError, BuildEvent, Builder, Built, Unready};
pub use probe::{MissingKind, MissingToolchain, probe, probe_all};
