//! Attaches every instrument to a server.

use super::device::Device;
#[cfg(target_os = "linux")]
use super::events::EventCounts;
use super::observation::{Instrument, ObserveError};
#[cfg(target_os = "linux")]
use super::profile::Profiler;
#[cfg(target_os = "linux")]
use super::subject::Subject;
#[cfg(target_os = "linux")]
use super::system_calls::SystemCalls;
use crate::tree::Member;

/// An instrument, or why it cannot be used.
pub(super) type Attached = Result<Box<dyn Device>, ObserveError>;

/// Attaches instruments to everything that a supervisor will start.
#[cfg(target_os = "linux")]
pub(super) fn starting(supervisor: u32) -> Vec<(Instrument, Attached)> {
    attached(&Subject::starting(supervisor))
}

/// Attaches instruments to trees of processes that run already.
#[cfg(target_os = "linux")]
pub(super) fn running(tops: Vec<Member>) -> Vec<(Instrument, Attached)> {
    attached(&Subject::running(tops))
}

#[cfg(target_os = "linux")]
fn attached(subject: &Subject) -> Vec<(Instrument, Attached)> {
    vec![
        (Instrument::Profile, boxed(Profiler::open(subject))),
        (Instrument::Events, Ok(Box::new(EventCounts::open(subject)))),
        (Instrument::SystemCalls, boxed(SystemCalls::open(subject))),
    ]
}

#[cfg(target_os = "linux")]
fn boxed<D: Device + 'static>(device: Result<D, ObserveError>) -> Attached {
    device.map(|device| Box::new(device) as Box<dyn Device>)
}

/// Nothing can be observed on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn starting(_supervisor: u32) -> Vec<(Instrument, Attached)> {
    Vec::new()
}

/// Nothing can be observed on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn running(_tops: Vec<Member>) -> Vec<(Instrument, Attached)> {
    Vec::new()
}
