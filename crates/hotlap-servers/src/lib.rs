//! Servers: finding them in the catalogue, building and starting them, and checking their
//! responses.
//!
//! This crate knows nothing of experiments and prints nothing. Its modules, in the order in which a
//! run meets them:
//!
//! 1. [`catalogue`]: a [`Catalogue`](catalogue::Catalogue) is a folder of servers; each has a
//!    manifest, read into a [`CatalogueServer`](catalogue::CatalogueServer).
//! 2. [`build`]: [`probe`](build::probe) looks for a toolchain;
//!    [`MissingPackages`](build::MissingPackages) installs what is missing. A
//!    [`Builder`](build::Builder) builds the server once, in the cache.
//! 3. [`database`]: a [`Database`](database::Database) is started for the run, if servers need it.
//! 4. [`launch`] and [`running`]: a [`Launch`](launch::Launch) is the resulting command. A
//!    [`ServerHost`](running::ServerHost) runs it until it answers. A server that fails on the way
//!    is a [`ServerFailure`](launch::ServerFailure).
//! 5. [`process`]: a [`Process`](process::Process) runs under a supervisor, which ends it whatever
//!    happens to hotlap.
//! 6. [`contract`], [`infer`] and [`verify`]: a [`Contract`](contract::Contract) consists of
//!    [`Exchange`](contract::Exchange)s; for a command or a URL it is inferred from the first
//!    responses. [`verify`](verify::verify) compares responses with it, and its
//!    [`Findings`](verify::Findings) say whether the server may be measured.
//! 7. [`running`]: a [`RunningServer`](running::RunningServer), here or on another host, is frozen
//!    and thawed, and sampled with what `hotlap-observe` has.
//! 8. [`machine`]: a [`Machine`](machine::Machine) describes the hardware, and lists reasons why
//!    figures may be unreliable. A [`CpuAllocation`](machine::CpuAllocation) divides its cores
//!    between server and generator.
//!
//! A [`Checker`](check::Checker) runs all of these steps once, for `hotlap check`.

pub mod access_log;
pub mod build;
pub mod catalogue;
pub mod check;
pub mod contract;
pub mod database;
pub mod files;
pub mod infer;
pub mod interrupt;
pub mod launch;
pub mod machine;
pub mod process;
pub mod requests_file;
pub mod running;
pub mod verify;
