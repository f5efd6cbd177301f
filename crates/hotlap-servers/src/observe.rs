//! What a server does during a lap: a CPU profile, system calls by name, and kernel events.
//!
//! An [`Observer`] has one instrument for each. They cost CPU time themselves, so a lap that is
//! observed counts for no other figure, and only one instrument is on at a time. What they saw is
//! an [`Observation`].

mod observation;
mod observer;

pub use observation::{Events, Frame, Instrument, Observation, ObserveError, Profile, Stack};
pub use observer::Observer;
