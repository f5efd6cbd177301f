//! The two clocks, in nanoseconds: monotonic time, and the CPU time of the calling thread.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the monotonic time. On Linux, this is a call into the vDSO, which takes about 25 ns.
#[inline]
pub(crate) fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// Returns the CPU time of the calling thread, user and system.
pub(crate) fn thread_cpu() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// Converts a duration to nanoseconds. The result is capped at a quarter of the range (146 years),
/// so that sums fit.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(FAR_NS)
}

/// A time that is never reached.
pub(crate) const FAR_NS: u64 = u64::MAX >> 2;

#[inline]
fn read(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    // For these clocks, neither field is ever negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn wrk_reads_the_wall_clock() {
        let (before, ns, after) = (read(ClockId::Monotonic), now(), read(ClockId::Monotonic));
        assert!(before <= ns && ns <= after);
        // The wall clock counts from 1970 and can be set, unlike the monotonic clock.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
        assert!(u128::from(ns) < wall / 2);
    }
}
