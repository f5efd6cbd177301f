//! Turns a catalogue entry into something that runs.
//!
//! A missing toolchain is a state of the machine, not an error: [`probe`] reports it together with
//! the command that installs it, and the server is skipped. [`MissingPackages`] installs what is
//! missing. With its toolchain present, a [`Builder`] builds the server in the cache and returns a
//! [`Built`].

mod builder;
mod install;
mod step;
mod toolchain;

pub use builder::{BuildError, BuildEvent, Builder, Built, Unready};
pub use install::{InstallError, InstallProgress, MissingPackages};
pub(crate) use step::map;
pub use toolchain::{MissingKind, MissingToolchain, PackageManager, on_path, probe, probe_all};
