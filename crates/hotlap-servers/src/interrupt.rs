//! Waits that end when the user interrupts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The interval between checks of the stop flag. An interrupt takes effect within this time.
pub const LOOK: Duration = Duration::from_millis(50);

/// Sleeps for `time`, or until `stop` is set. Returns whether the whole time passed.
pub fn sleep(time: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        thread::sleep(left.min(LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_ends_a_wait_that_has_time_left() {
        let stop = AtomicBool::new(false);
        assert!(sleep(Duration::from_millis(1), &stop));
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| sleep(Duration::from_secs(3600), &stop));
            stop.store(true, Ordering::Relaxed);
            assert!(!sleeper.join().unwrap());
        });
        assert!(sleep(Duration::ZERO, &stop), "a wait of zero is complete");
    }
}
