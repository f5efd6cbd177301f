//! What an instrument saw: plain values that sum over slices and laps and can be stored.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be observed: {why}; {remedy}")]
pub struct ObserveError {
    /// What would have been observed (`system calls`).
    pub what: &'static str,
    /// The cause.
    pub why: String,
    /// The remedy: the command that would permit it.
    pub remedy: String,
}

impl Observation {
    /// Adds what the same instrument saw at another time: counts are summed, and equal frames and
    /// stacks are unified. Observations of different instruments are left as they are.
    pub fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Profile(one), Self::Profile(other)) => one.merge(other),
            (Self::SystemCalls(one), Self::SystemCalls(other)) => {
                for (name, count) in other {
                    *one.entry(name).or_insert(0) += count;
                }
            }
            (Self::Events(one), Self::Events(other)) => one.merge(other),
            _ => {}
        }
    }
}

impl Profile {
    /// Adds the samples of another profile with the same period. A profile without samples takes on
    /// the period of the other.
    pub fn merge(&mut self, other: Self) {
        if self.stacks.is_empty() {
            self.period_ns = other.period_ns;
        }
        self.lost += other.lost;
        let mut frames: HashMap<Frame, u32> = self.frames.iter().cloned().zip(0..).collect();
        let mut index = |frame: Frame| {
            let next = frames.len() as u32;
            *frames.entry(frame).or_insert_with_key(|frame| {
                self.frames.push(frame.clone());
                next
            })
        };
        let indices: Vec<u32> = other.frames.into_iter().map(&mut index).collect();
        let mut known: HashMap<(String, Vec<u32>), usize> = HashMap::new();
        for (at, stack) in self.stacks.iter().enumerate() {
            known.insert((stack.process.clone(), stack.frames.clone()), at);
        }
        for stack in other.stacks {
            let frames: Vec<u32> = stack.frames.iter().map(|&at| indices[at as usize]).collect();
            match known.entry((stack.process.clone(), frames.clone())) {
                Entry::Occupied(at) => self.stacks[*at.get()].samples += stack.samples,
                Entry::Vacant(new) => {
                    new.insert(self.stacks.len());
                    self.stacks.push(Stack { frames, ..stack });
                }
            }
        }
    }

    /// All samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.samples).sum()
    }
}

impl Events {
    /// Adds the events of another time. A sum with an unknown part is unknown; the number of
    /// threads is the larger one.
    pub fn merge(&mut self, other: Self) {
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

    fn frame(function: &str) -> Frame {
        Frame { function: function.to_owned(), library: "app".to_owned() }
    }

    fn stack(frames: &[u32], samples: u64) -> Stack {
        Stack { process: "app".to_owned(), frames: frames.to_vec(), samples }
    }

    #[test]
    fn equal_frames_and_stacks_of_two_profiles_are_unified() {
        let mut one = Profile {
            period_ns: 1_000,
            lost: 1,
            frames: vec![frame("main"), frame("parse")],
            stacks: vec![stack(&[0, 1], 5)],
        };
        let other = Profile {
            period_ns: 1_000,
            lost: 2,
            frames: vec![frame("parse"), frame("write"), frame("main")],
            stacks: vec![stack(&[2, 0], 3), stack(&[2, 1], 4)],
        };
        one.merge(other);
        assert_eq!((one.lost, one.samples()), (3, 12));
        assert_eq!(one.frames, [frame("main"), frame("parse"), frame("write")]);
        assert_eq!(one.stacks, [stack(&[0, 1], 8), stack(&[0, 2], 4)]);
    }

    #[test]
    fn a_profile_without_samples_becomes_the_other() {
        let other = Profile {
            period_ns: 1_000,
            lost: 0,
            frames: vec![frame("main")],
            stacks: vec![stack(&[0], 5)],
        };
        let mut one = Profile::default();
        one.merge(other.clone());
        assert_eq!(one, other);
    }

    #[test]
    fn system_calls_are_summed_by_name() {
        let calls = |list: &[(&str, u64)]| {
            Observation::SystemCalls(list.iter().map(|&(n, c)| (n.to_owned(), c)).collect())
        };
        let mut one = calls(&[("read", 2), ("write", 3)]);
        one.merge(calls(&[("futex", 1), ("read", 5)]));
        assert_eq!(one, calls(&[("futex", 1), ("read", 7), ("write", 3)]));
    }

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
