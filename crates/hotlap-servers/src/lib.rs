//! Servers: finding them in the catalogue, building and starting them, and checking their
//! responses.
//!
//! This crate knows nothing about experiments and prints nothing. A run uses its modules in this
//! order:
//!
//! 1. [`catalogue`]: a [`Catalogue`](catalogue::Catalogue) is a folder of servers. Each server has
//!    a manifest, which is read into a [`CatalogueServer`](catalogue::CatalogueServer).
//! 2. [`build`]: [`probe`](build::probe) looks for a toolchain, and
//!    [`MissingPackages`](build::MissingPackages) installs what is missing. A
//!    [`Builder`](build::Builder) builds each server once, in the cache.
//! 3. [`database`]: a [`Database`](database::Database) is started for the run if a server needs
//!    one.
//! 4. [`launch`] and [`running`]: a [`Launch`](launch::Launch) is the command that starts a server.
//!    A [`ServerHost`](running::ServerHost) starts the command and waits for the first response. A
//!    server that fails on the way is reported as a [`ServerFailure`](launch::ServerFailure).
//! 5. [`process`]: a [`Process`](process::Process) runs under a supervisor, which ends the process
//!    even if hotlap is killed.
//! 6. [`contract`], [`infer`] and [`verify`]: a [`Contract`](contract::Contract) consists of
//!    [`Exchange`](contract::Exchange)s. The contract of a command or a URL is inferred from its
//!    first responses. [`verify`](verify::verify) compares the responses of a server with its
//!    contract. The resulting [`Findings`](verify::Findings) say whether the server may be
//!    measured.
//! 7. [`running`]: a [`RunningServer`](running::RunningServer), on this host or another, can be
//!    frozen, thawed, and sampled with `hotlap-observe`.
//! 8. [`machine`]: a [`Machine`](machine::Machine) describes the hardware and lists reasons why
//!    figures may be unreliable. A [`CpuAllocation`](machine::CpuAllocation) divides the cores
//!    between the server and the load generator.
//!
//! A [`Checker`](check::Checker) builds, starts and verifies servers, for `hotlap check`.

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
