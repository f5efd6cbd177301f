//! The processes of a server, seen from outside: their ids, their use of resources, and their work.
//!
//! This crate starts and stops nothing, and knows nothing of contracts or experiments. [`Roots`]
//! are where the processes of a server begin, and a [`ProcessTree`] finds the others. An [`Owner`]
//! says whose processes answer at an address. A [`Sampler`] reads CPU time, context switches and
//! memory, [`Counters`] count instructions, and [`Compilers`] read what a runtime's compilers use.
//!
//! An [`Observer`] shows what a server does during a lap: a CPU profile, system calls by name, and
//! kernel events. It has one instrument for each. They cost CPU time themselves, so a lap that is
//! observed counts for no other figure, and only one instrument is on at a time. What they saw is
//! an [`Observation`].
//!
//! What the kernel shows of processes is under `/proc` on Linux. On other systems, most of this is
//! unknown.

#[cfg(target_os = "linux")]
mod call;
mod compilers;
#[cfg(target_os = "linux")]
mod counters;
pub mod cpus;
#[cfg(target_os = "linux")]
mod events;
#[cfg(target_os = "linux")]
mod functions;
mod observation;
mod observer;
mod owner;
#[cfg(target_os = "linux")]
mod owner_search;
pub mod processes;
#[cfg(target_os = "linux")]
mod profile;
#[cfg(target_os = "linux")]
mod ptrace;
#[cfg(target_os = "linux")]
mod rings;
#[cfg(target_os = "linux")]
mod segments;
#[cfg(target_os = "linux")]
mod symbols;
#[cfg(target_os = "linux")]
mod system_calls;
mod usage;

pub use compilers::{Compiler, Compilers};
#[cfg(target_os = "linux")]
pub use counters::Counters;
pub use observation::{Events, Frame, Instrument, Observation, ObserveError, Profile, Stack};
pub use observer::Observer;
#[cfg(not(target_os = "linux"))]
pub use owner::owner;
pub use owner::{Owner, is_here};
#[cfg(target_os = "linux")]
pub use owner_search::owner;
pub use processes::{Member, ProcessTree, Roots};
pub use usage::{Cpu, HardwareCounts, Memory, Sampler, Switches};

/// Hardware counters, which are read on Linux only.
#[cfg(not(target_os = "linux"))]
pub type Counters = Uncounted;

/// What no system but Linux has.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub enum Uncounted {}

#[cfg(not(target_os = "linux"))]
impl Uncounted {
    /// Counts nothing.
    ///
    /// # Errors
    /// Always.
    pub fn open(_supervisor: u32) -> Result<Self, ObserveError> {
        Err(ObserveError {
            what: "instructions and cycles".into(),
            why: "they are counted on Linux only".to_owned(),
            remedy: "CPU time per request is measured without them".to_owned(),
        })
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// Never.
    pub fn begin(&mut self) -> std::io::Result<()> {
        match *self {}
    }

    /// Cannot be called.
    pub fn end(&mut self) -> Option<HardwareCounts> {
        match *self {}
    }
}
