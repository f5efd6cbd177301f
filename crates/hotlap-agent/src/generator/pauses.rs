//! Notices when the process does not run: it was stopped, or its host was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// How often a thread looks at the clock.
const INTERVAL: Duration = Duration::from_millis(20);

/// A longer time between two looks is a pause; shorter ones are common on a busy host.
const PAUSE: Duration = Duration::from_millis(50);

/// The most pauses that are kept; the longest are.
const KEPT: usize = 1_000;

/// Pauses of this process, from the start of the watch on.
#[derive(Debug)]
pub(super) struct Pauses {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// Beginning and end of each pause, in nanoseconds.
    pauses: Mutex<Vec<(u64, u64)>>,
}

impl Pauses {
    /// Watches until the result is dropped.
    pub(super) fn watch(clock: Clock) -> Self {
        let shared = Arc::new(Shared::default());
        let own = Self { shared: shared.clone() };
        std::thread::spawn(move || {
            let mut last_ns = clock.now_ns();
            while !shared.is_over.load(Ordering::Relaxed) {
                std::thread::sleep(INTERVAL);
                let now_ns = clock.now_ns();
                if now_ns - last_ns > PAUSE.as_nanos() as u64 {
                    shared.note((last_ns, now_ns));
                }
                last_ns = now_ns;
            }
        });
        own
    }

    /// The longest pause that began before `to_ns`, counted from `from_ns` on; 0 if there was none.
    /// What should have been done at `to_ns` was done at its end.
    pub(super) fn longest_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let pauses = self.shared.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = pauses.iter().filter(|(began, _)| *began < to_ns);
        begun.map(|(began, ended)| ended.saturating_sub((*began).max(from_ns))).max().unwrap_or(0)
    }
}

impl Shared {
    fn note(&self, pause: (u64, u64)) {
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.push(pause);
        if pauses.len() > KEPT {
            pauses.sort_by_key(|(began, ended)| std::cmp::Reverse(ended - began));
            pauses.truncate(KEPT / 2);
        }
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a window of a held load that closed late looked as if nothing had happened.
    #[test]
    fn a_pause_counts_from_the_beginning_of_the_window_to_its_own_end() {
        let pauses = Pauses { shared: Arc::default() };
        assert_eq!(pauses.longest_ns(0, 1_000), 0);
        pauses.shared.note((100, 400));
        pauses.shared.note((900, 1_300));
        assert_eq!(pauses.longest_ns(0, 2_000), 400);
        assert_eq!(pauses.longest_ns(0, 1_000), 400);
        assert_eq!(pauses.longest_ns(1_000, 1_100), 300);
        assert_eq!(pauses.longest_ns(350, 900), 50);
        assert_eq!(pauses.longest_ns(500, 800), 0);
        assert_eq!(pauses.longest_ns(1_400, 2_000), 0);
    }

    #[test]
    fn the_longest_of_many_pauses_is_kept() {
        let pauses = Pauses { shared: Arc::default() };
        pauses.shared.note((0, 500));
        for at in 1..3_000 {
            pauses.shared.note((at * 1_000, at * 1_000 + 100));
        }
        assert_eq!(pauses.longest_ns(0, u64::MAX), 500);
    }
}
