//! A server as a thing: what it is, how it is built and started, what it answers, what it uses.
//!
//! In the order in which a run meets them:
//!
//! 1. **What it is.** A [`Catalogue`](catalogue::Catalogue) is a folder of servers; the manifest of
//!    each is a [`Server`](manifest::Server).
//! 2. **Building.** [`probe`](toolchain::probe) asks for its toolchain, which
//!    [`Missing`](install::Missing) installs. A [`Builder`](toolchain::Builder) makes it
//!    [`Built`](toolchain::Built), once, in the cache.
//! 3. **Starting.** A [`Launch`](launch::Launch) is the command that comes of it. A
//!    [`Startup`](start::Startup) runs it until it answers: a [`Process`](process::Process) under a
//!    [`Supervisor`](process::Supervisor), which ends it whatever happens to hotlap.
//! 4. **What it answers.** A [`Contract`](contract::Contract) has
//!    [`Exchange`](contract::Exchange)s; for a command or a URL it is
//!    [inferred](infer::infer) from its first responses. [`verify`](verify::verify) compares, and
//!    its [`Findings`](verify::Findings) say whether the server may be measured.
//! 5. **What it uses.** [`Owner`](owner::Owner) says whose processes answer. A
//!    [`Sampler`](sample::Sampler) reads their CPU time and memory,
//!    [`Counters`](counters::Counters) count their instructions, and
//!    [`LogLines`](lines::LogLines) the lines that they log.
//! 6. **Where it runs.** A [`Machine`](machine::Machine) is described, with what makes its figures
//!    doubtful. Its [`Topology`](topology::Topology) decides the
//!    [`CpuAllocation`](allocation::CpuAllocation) to server and generator.
//!
//! What fails on the way is a [`ServerFailure`](failure::ServerFailure). A
//! [`Checker`](check::Checker) does all of that once, for `hotlap check`. This crate knows nothing
//! of experiments, and prints nothing.

pub mod allocation;
pub mod catalogue;
pub mod check;
pub mod clock_flush;
pub mod contract;
pub mod counters;
pub mod cpus;
pub mod failure;
pub mod infer;
pub mod install;
pub mod interrupt;
pub mod launch;
pub mod lines;
pub mod machine;
pub mod manifest;
pub mod owner;
pub mod package_manager;
mod pool;
pub mod process;
pub mod sample;
pub mod start;
pub mod toolchain;
pub mod topology;
pub mod tree;
pub mod verify;
