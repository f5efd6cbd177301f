//! The monotonic clock of this host, and its offset from the clock of another host.

use std::time::Duration;

use serde::Serialize;

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock of this host, in nanoseconds since a moment that differs from host to host.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    /// The nanoseconds added to the system's time.
    shift_ns: i64,
}

impl Clock {
    /// Creates a clock that is ahead of the system's clock by this many nanoseconds, like the
    /// clock of another host.
    pub fn shifted(shift_ns: i64) -> Self {
        Self { shift_ns }
    }

    /// The current time.
    pub fn now_ns(self) -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        // Neither part of the time is ever negative.
        let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        ns.saturating_add_signed(self.shift_ns)
    }
}

/// How far another host's monotonic clock is ahead of this host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Offset {
    /// The other clock minus this host's clock, in nanoseconds.
    pub ns: i64,
    /// The largest error of the offset in either direction, in nanoseconds: half of the shortest
    /// round trip (Cristian, "Probabilistic clock synchronization", Distributed Computing 3,
    /// 1989).
    pub error_ns: u64,
}

impl Offset {
    /// Computes the offset from one exchange. The other host read `remote_ns` at some moment
    /// between `sent_ns` and `received_ns` of this clock.
    pub(crate) fn of(sent_ns: u64, remote_ns: u64, received_ns: u64) -> Self {
        let half = received_ns.saturating_sub(sent_ns) / 2;
        let middle = sent_ns + half;
        // The error is rounded up, so that the true offset is always within it.
        Self { ns: remote_ns.wrapping_sub(middle) as i64, error_ns: half + 1 }
    }

    /// Converts a time of this host's clock to the other host's clock.
    pub fn to_remote(self, local_ns: u64) -> u64 {
        local_ns.saturating_add_signed(self.ns)
    }

    /// Converts a time of the other host's clock to this host's clock.
    pub fn to_local(self, remote_ns: u64) -> u64 {
        remote_ns.saturating_add_signed(self.ns.saturating_neg())
    }

    /// The error as a duration.
    pub fn error(self) -> Duration {
        Duration::from_nanos(self.error_ns)
    }
}

/// Estimates the number of requests at a moment between two readings, as if requests were evenly
/// spaced. Times are in nanoseconds of one clock. For a moment outside of the two readings, the
/// nearer reading counts.
pub(crate) fn requests_at(moment: u64, before: (u64, u64), after: (u64, u64)) -> u64 {
    let ((from, first), (to, last)) = (before, after);
    let share = moment.clamp(from, to.max(from)).saturating_sub(from) as f64
        / to.saturating_sub(from).max(1) as f64;
    first + (last.saturating_sub(first) as f64 * share).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_within_its_error_however_the_delay_is_divided() {
        // The other clock is 3 s ahead. The round trip of 10 µs is divided in several ways.
        for delay_there in [0, 3_000, 5_000, 10_000] {
            let sent = 1_000_000;
            let remote = sent + delay_there + 3_000_000_000;
            let offset = Offset::of(sent, remote, sent + 10_000);
            assert!(offset.ns.abs_diff(3_000_000_000) <= offset.error_ns, "{offset:?}");
            assert_eq!(offset.error_ns, 5_001);
        }
    }

    #[test]
    fn a_clock_that_is_behind_has_a_negative_offset() {
        let offset = Offset::of(5_000_000_000, 2_000_000_000, 5_000_000_000);
        assert_eq!(offset.ns, -3_000_000_000);
        assert_eq!(offset.to_remote(7_000_000_000), 4_000_000_000);
        assert_eq!(offset.to_local(4_000_000_000), 7_000_000_000);
    }

    #[test]
    fn a_shifted_clock_is_ahead_by_its_shift() {
        let (before, shifted) = (Clock::default().now_ns(), Clock::shifted(3_000_000_000).now_ns());
        assert!(shifted >= before + 3_000_000_000);
    }

    #[test]
    fn requests_are_interpolated_between_the_readings() {
        let at = |moment| requests_at(moment, (1_000, 500), (2_000, 600));
        assert_eq!((at(1_000), at(1_250), at(2_000)), (500, 525, 600));
        assert_eq!((at(0), at(9_000)), (500, 600));
        assert_eq!(requests_at(5, (5, 7), (5, 7)), 7);
    }
}
