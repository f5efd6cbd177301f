//! What an instrument saw: plain values that sum over slices and laps and can be stored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::interrupts::seen_instead;

/// What is observed during a lap. Instruments disturb each other, so a lap has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Instrument {
    /// Samples of the stacks of all threads that run, at even intervals of CPU time.
    Profile,
    /// System calls, counted by name.
    SystemCalls,
    /// Events that the kernel counts at no cost that matters: page faults, context switches,
    /// migrations, and TCP segments.
    Events,
}

/// What one instrument saw in the windows of one lap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observation {
    /// [`Instrument::Profile`].
    Profile(Profile),
    /// [`Instrument::SystemCalls`]: counts by name (`epoll_wait`).
    SystemCalls(BTreeMap<String, u64>),
    /// [`Instrument::Events`].
    Events(Events),
}

/// A CPU profile: how often each stack was on a core when the sampling clock fired.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Profile {
    /// The CPU time between two samples of one thread, in nanoseconds.
    pub period_ns: u64,
    /// Samples that the kernel dropped because a buffer was full.
    pub lost: u64,
    /// Every frame that occurs, once; stacks refer to them by index.
    pub frames: Vec<Frame>,
    /// Every stack that was sampled, once, with its number of samples.
    pub stacks: Vec<Stack>,
}

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Its name, demangled; the address within its library if it has none.
    pub function: String,
    /// The file that it was loaded from (`libc.so.6`), `kernel`, or `jit` for code that a runtime
    /// compiled and named in a perf map.
    pub library: String,
}

/// A stack that was sampled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The process's name as the kernel knows it (`node`).
    pub process: String,
    /// Indices of its frames, outermost first. Frames of the kernel follow those of the process.
    pub frames: Vec<u32>,
    /// How often it was sampled.
    pub samples: u64,
}

/// Events that the kernel counts. `None`: not permitted, or not known here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Events {
    /// Page faults that needed no disk.
    pub minor_faults: Option<u64>,
    /// Page faults that read from a disk.
    pub major_faults: Option<u64>,
    /// Context switches because a thread waited.
    pub voluntary_switches: Option<u64>,
    /// Context switches because another thread needed the core.
    pub involuntary_switches: Option<u64>,
    /// Moves of a thread to another core.
    pub migrations: Option<u64>,
    /// TCP segments with data that the server sent.
    pub segments_sent: Option<u64>,
    /// TCP segments with data that the server received.
    pub segments_received: Option<u64>,
    /// CPU time in user mode, in nanoseconds, where the kernel accounts for it exactly.
    pub user_ns: Option<u64>,
    /// CPU time in the kernel, in nanoseconds, where it accounts for it exactly.
    pub kernel_ns: Option<u64>,
    /// Threads that used CPU time.
    pub threads: Option<u64>,
}

/// Why an instrument cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what} cannot be observed: {why}; {remedy}")]
pub struct ObserveError {
    /// What would have been observed (`system calls`).
    pub what: Cow<'static, str>,
    /// The cause.
    pub why: String,
    /// The remedy: the command that would permit it.
    pub remedy: String,
}

impl Profile {
    /// All samples.
    pub fn samples(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.samples).sum()
    }

    /// The frames of one of its stacks, outermost first. The last one has spent the time: where the
    /// sampling clock saw a function instead of its caller, the stack ends with the caller.
    pub fn stack<'a>(&'a self, stack: &'a Stack) -> impl DoubleEndedIterator<Item = &'a Frame> {
        let frames = stack.frames.iter().filter_map(|at| self.frames.get(*at as usize));
        let mut frames: Vec<&Frame> = frames.collect();
        let names: Vec<(&str, &str)> =
            frames.iter().map(|f| (f.function.as_str(), f.library.as_str())).collect();
        frames.truncate(frames.len() - seen_instead(&names));
        frames.into_iter()
    }
}

impl Events {
    /// Adds the events of another time. A sum with an unknown part is unknown; the number of
    /// threads is the larger one.
    pub(super) fn merge(&mut self, other: Self) {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        *self = Self {
            minor_faults: sum(self.minor_faults, other.minor_faults),
            major_faults: sum(self.major_faults, other.major_faults),
            voluntary_switches: sum(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: sum(self.involuntary_switches, other.involuntary_switches),
            migrations: sum(self.migrations, other.migrations),
            segments_sent: sum(self.segments_sent, other.segments_sent),
            segments_received: sum(self.segments_received, other.segments_received),
            user_ns: sum(self.user_ns, other.user_ns),
            kernel_ns: sum(self.kernel_ns, other.kernel_ns),
            threads: self.threads.zip(other.threads).map(|(one, other)| one.max(other)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        let mut one = Events {
            minor_faults: Some(2),
            migrations: Some(1),
            threads: Some(3),
            ..Events::default()
        };
        let other =
            Events { minor_faults: Some(5), migrations: None, threads: Some(2), ..one.clone() };
        one.merge(other);
        assert_eq!((one.minor_faults, one.migrations, one.threads), (Some(7), None, Some(3)));
    }
}
