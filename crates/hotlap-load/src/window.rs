//! The measurement window.

use std::time::{Duration, Instant};

use crate::clock;

/// The measurement window: after the warm-up, before the end.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// When it opens.
    pub opens: Instant,
    /// When it closes; `None` if the plan limits requests instead of time.
    pub closes: Option<Instant>,
}

/// When a load starts, and when its window opens and closes, on the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) start_ns: u64,
    pub(crate) opens_ns: u64,
    /// `u64::MAX` if the plan limits requests instead of time.
    pub(crate) closes_ns: u64,
}

impl Times {
    /// Times that are not yet known.
    pub(crate) const UNKNOWN: Self =
        Self { start_ns: u64::MAX, opens_ns: u64::MAX, closes_ns: u64::MAX };

    /// A load that starts after `wait`, with a window that opens after `warmup` and stays open for
    /// `length`. A load that is `late` by some time does without that much of the warm-up and, if
    /// that is not enough, of the window.
    pub(crate) fn after(
        wait: Duration,
        late: Duration,
        warmup: Duration,
        length: Option<Duration>,
    ) -> (Self, Window) {
        let (instant, now) = (Instant::now(), clock::now());
        let start_ns = now + clock::nanos(wait);
        let late_ns = clock::nanos(late);
        let from_start = |ns: u64| start_ns + ns.saturating_sub(late_ns);
        let warmup_ns = clock::nanos(warmup);
        let opens_ns = from_start(warmup_ns);
        let closes_ns =
            length.map_or(u64::MAX, |length| from_start(warmup_ns + clock::nanos(length)));
        let opens = instant + Duration::from_nanos(opens_ns - now);
        let closes = length.map(|_| instant + Duration::from_nanos(closes_ns - now));
        (Self { start_ns, opens_ns, closes_ns }, Window { opens, closes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How long after its start the window opens, and how long it is open, in milliseconds.
    fn window(late: Duration) -> (u64, u64) {
        let (times, _) = Times::after(Duration::ZERO, late, SECOND, Some(2 * SECOND));
        let ms = |from: u64, to: u64| (to - from) / 1_000_000;
        (ms(times.start_ns, times.opens_ns), ms(times.opens_ns, times.closes_ns))
    }

    #[test]
    fn a_late_load_has_less_warmup_and_then_a_shorter_window() {
        assert_eq!(window(Duration::ZERO), (1_000, 2_000));
        assert_eq!(window(Duration::from_millis(300)), (700, 2_000));
        assert_eq!(window(Duration::from_millis(1_500)), (0, 1_500));
        assert_eq!(window(Duration::from_secs(5)), (0, 0));
    }
}
