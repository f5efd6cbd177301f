//! From a server in the catalogue to something that runs.
//!
//! A missing toolchain is a state of the machine and not an error: [`probe`] reports it with the
//! command that installs it, and the server is skipped. What is there builds the server: a
//! [`Builder`] makes a [`Built`] of it, in the cache.

pub mod build;
mod probe;
mod sources;
pub(crate) mod step;

pub use build::{BuildError, BuildEvent, Builder, Built, Unready};
pub use probe::{MissingKind, MissingToolchain, probe, probe_all};
