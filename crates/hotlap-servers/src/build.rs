//! Builds the servers of the catalogue.
//!
//! A missing toolchain is a state of the machine, not an error. [`probe`] reports the command that
//! installs the toolchain, and the server is skipped. [`MissingPackages`] installs missing
//! toolchains. If the toolchain is present, a [`Builder`] builds the server in the cache and
//! returns a [`Built`].

mod builder;
mod install;
mod step;
mod toolchain;

pub use builder::{BuildError, BuildEvent, Builder, Built, Unready};
pub use install::{InstallError, InstallProgress, MissingPackages};
pub(crate) use step::map;
pub use toolchain::{
    MissingKind, MissingToolchain, PackageManager, on_path, probe, probe_all, probe_database,
    probe_with_databases,
};
