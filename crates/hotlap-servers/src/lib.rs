//! Servers: finding them in the catalogue, building and starting them, and checking their responses.
//!
//! This crate knows nothing of experiments and prints nothing. Its main types, in the order in
//! which a run meets them:
//!
//! 1. **Catalogue.** A [`Catalogue`](catalogue::Catalogue) is a folder of servers; each has a
//!    manifest, read into a [`Server`](manifest::Server).
//! 2. **Building.** [`probe`](toolchain::probe) looks for its toolchain;
//!    [`Missing`](install::Missing) installs what is missing. A [`Builder`](toolchain::Builder)
//!    builds it once, in the cache, into a [`Built`](toolchain::Built).
//! 3. **Starting.** A [`Launch`](launch::Launch) is the resulting command. A
//!    [`Startup`](start::Startup) runs it until it answers, as a [`Process`](process::Process)
//!    under a [`Supervisor`](process::Supervisor), which ends it whatever happens to hotlap.
//! 4. **Responses.** A [`Contract`](contract::Contract) consists of
//!    [`Exchange`](contract::Exchange)s; for a command or a URL it is [inferred](infer::infer) from
//!    the first responses. [`verify`](verify::verify) compares responses with it, and its
//!    [`Findings`](verify::Findings) say whether the server may be measured.
//! 5. **Running.** A [`RunningServer`](running::RunningServer) is frozen and thawed, and sampled
//!    with what `hotlap-observe` has; [`LogLines`](lines::LogLines) counts the lines that it logs.
//! 6. **Machine.** A [`Machine`](machine::Machine) describes the hardware, and lists reasons why
//!    figures may be unreliable. From its [`Topology`](topology::Topology) comes the
//!    [`CpuAllocation`](allocation::CpuAllocation) for server and generator.
//!
//! A server that fails on the way is a [`ServerFailure`](failure::ServerFailure). A
//! [`Checker`](check::Checker) runs all of these steps once, for `hotlap check`.

pub mod access_log;
pub mod allocation;
pub mod catalogue;
pub mod certificate;
pub mod check;
pub mod contract;
pub mod failure;
pub mod infer;
pub mod install;
pub mod interrupt;
pub mod launch;
pub mod lines;
pub mod machine;
pub mod manifest;
pub mod network;
pub mod package_manager;
mod pool;
pub mod priority;
pub mod process;
pub mod requests_file;
pub mod running;
pub mod start;
pub mod toolchain;
pub mod topology;
pub mod verify;
