//! One worker's share of the recorded order of a plan.
//!
//! Of n workers, each sends every n-th entry, so that together they send the order.

use crate::plan::{Entry, Plan, Shared};

/// The entries that one worker sends, in order and again from the first.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    entries: Shared<Entry>,
    /// The place of the next entry, and the distance to the one after it.
    next: usize,
    step: usize,
}

impl Recorded {
    /// The share of worker `worker` in the entries of a plan.
    pub(crate) fn new(entries: &Shared<Entry>, plan: &Plan, worker: usize) -> Self {
        let count = entries.len().max(1);
        let first = (plan.first_value + plan.worker(worker) as u64) % count as u64;
        Self { entries: entries.clone(), next: first as usize, step: plan.workers() % count }
    }

    /// Takes the next entry.
    #[inline]
    pub(crate) fn next(&mut self) -> Entry {
        let entry = self.entries[self.next];
        self.next += self.step;
        if self.next >= self.entries.len() {
            self.next -= self.entries.len();
        }
        entry
    }
}
