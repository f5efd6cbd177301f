//! Observes the processes of a server from outside: their ids, their use of resources, and their
//! work.
//!
//! This crate neither starts nor stops servers, and does not know contracts or experiments.
//! [`Roots`] are the processes with which a server begins, and a [`ProcessTree`] finds the others.
//! An [`Owner`] says whose processes respond at an address. A [`Sampler`] reads CPU time, context
//! switches and memory, [`Counters`] count instructions, and [`Compilers`] read the CPU time of a
//! runtime's compilers. A [`Gauge`] shows how fast the server's cores are.
//!
//! An [`Observer`] shows what a server does during a lap: a CPU profile, system calls by name, and
//! kernel events. The observer has one instrument for each of these. Instruments cost CPU time, so
//! a lap with an instrument enters no other figure, and only one instrument is on at a time.
//! The result of an instrument is an [`Observation`].
//!
//! On Linux, the kernel describes processes under `/proc`. On other systems, most figures are
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
mod gauge;
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
pub use gauge::{Gauge, Gauged};
pub use observation::{Events, Frame, Instrument, Observation, ObserveError, Profile, Stack};
pub use observer::Observer;
#[cfg(not(target_os = "linux"))]
pub use owner::owner;
pub use owner::{Owner, is_here};
#[cfg(target_os = "linux")]
pub use owner_search::owner;
pub use processes::{Member, ProcessTree, Roots};
pub use usage::{Cpu, HardwareCounts, Memory, Sampler, Switches};

/// The hardware counters of a server, which can be read on Linux only.
#[cfg(not(target_os = "linux"))]
pub type Counters = Uncounted;

/// The type of hardware counters on systems other than Linux. The type has no values.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub enum Uncounted {}

#[cfg(not(target_os = "linux"))]
impl Uncounted {
    /// Fails, because this system has no hardware counters for hotlap.
    ///
    /// # Errors
    /// Always.
    pub fn open(_supervisor: u32) -> Result<Self, ObserveError> {
        Err(ObserveError {
            what: "instructions and cycles".into(),
            why: "hardware counters are read on Linux only".to_owned(),
            remedy: "run hotlap on Linux".to_owned(),
        })
    }

    /// This method cannot be called, because the type has no values.
    ///
    /// # Errors
    /// Never.
    pub fn begin(&mut self) -> std::io::Result<()> {
        match *self {}
    }

    /// This method cannot be called, because the type has no values.
    pub fn end(&mut self) -> Option<HardwareCounts> {
        match *self {}
    }
}
