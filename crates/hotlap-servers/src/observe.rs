//! What a server does during a lap: a CPU profile, system calls by name, and kernel events.
//!
//! An [`Observer`] has one instrument for each. They cost CPU time themselves, so a lap that is
//! observed counts for no other figure, and only one instrument is on at a time. What they saw is
//! an [`Observation`].

mod attach;
#[cfg(target_os = "linux")]
mod call;
mod device;
#[cfg(target_os = "linux")]
mod elf;
#[cfg(target_os = "linux")]
mod events;
#[cfg(target_os = "linux")]
mod functions;
mod interrupts;
#[cfg(target_os = "linux")]
mod kallsyms;
mod observation;
mod observer;
#[cfg(target_os = "linux")]
mod perf_map;
#[cfg(target_os = "linux")]
mod profile;
#[cfg(target_os = "linux")]
mod ptrace;
#[cfg(target_os = "linux")]
mod refusal;
#[cfg(target_os = "linux")]
mod rings;
#[cfg(target_os = "linux")]
mod sockets;
#[cfg(target_os = "linux")]
mod subject;
#[cfg(target_os = "linux")]
mod symbols;
#[cfg(target_os = "linux")]
mod system_calls;
#[cfg(target_os = "linux")]
mod tracepoint;

pub use observation::{Events, Frame, Instrument, Observation, ObserveError, Profile, Stack};
pub use observer::Observer;
