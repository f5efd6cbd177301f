//! The progress of a running load.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The progress of a load, over all workers. Each worker updates it at every wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Correct responses so far, including the warm-up.
    pub responses: u64,
    /// Failures so far, including the warm-up.
    pub failures: u64,
    /// Connections that are open now.
    pub connected: u64,
}

/// The part that one worker shows to other threads. It has 128 bytes of its own, because processors
/// fetch cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerProgress {
    responses: AtomicU64,
    failures: AtomicU64,
    connected: AtomicU64,
}

impl WorkerProgress {
    #[inline]
    pub(crate) fn store(&self, responses: u64, failures: u64, connected: u64) {
        self.responses.store(responses, Ordering::Relaxed);
        self.failures.store(failures, Ordering::Relaxed);
        self.connected.store(connected, Ordering::Relaxed);
    }
}

impl Progress {
    /// Requests that were answered or have failed so far.
    pub fn completed(&self) -> u64 {
        self.responses + self.failures
    }

    /// Adds the progress of another part of the load.
    pub fn add(&mut self, other: Self) {
        self.responses += other.responses;
        self.failures += other.failures;
        self.connected += other.connected;
    }

    /// The sum over all workers.
    pub(crate) fn sum(workers: &[WorkerProgress]) -> Self {
        let mut sum = Self::default();
        for worker in workers {
            sum.add(Self {
                responses: worker.responses.load(Ordering::Relaxed),
                failures: worker.failures.load(Ordering::Relaxed),
                connected: worker.connected.load(Ordering::Relaxed),
            });
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread writes at each wake-up shares no cache line with what another reads or writes.
    /// The progress of all workers is one allocation, and the only data that threads share and
    /// write while a load runs: a worker itself is moved to its thread's stack, and that thread
    /// also allocates its slots, counts and events.
    #[test]
    fn no_two_workers_share_a_cache_line_or_a_pair_of_lines() {
        const PAIR: usize = 128;
        assert_eq!(align_of::<WorkerProgress>(), PAIR);
        assert_eq!(size_of::<WorkerProgress>() % PAIR, 0);
        let workers: Vec<WorkerProgress> = (0..4).map(|_| WorkerProgress::default()).collect();
        let pairs = workers.iter().map(|w| std::ptr::from_ref(w).addr() / PAIR);
        let distinct: std::collections::BTreeSet<usize> = pairs.collect();
        assert_eq!(distinct.len(), workers.len());
    }
}
