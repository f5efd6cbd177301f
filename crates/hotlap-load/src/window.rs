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
    /// `length`.
    pub(crate) fn after(
        wait: Duration,
        warmup: Duration,
        length: Option<Duration>,
    ) -> (Self, Window) {
        let (instant, now) = (Instant::now(), clock::now());
        let start_ns = now + clock::nanos(wait);
        let opens_ns = start_ns + clock::nanos(warmup);
        let closes_ns = length.map_or(u64::MAX, |length| opens_ns + clock::nanos(length));
        let opens = instant + Duration::from_nanos(opens_ns - now);
        let closes = length.map(|_| instant + Duration::from_nanos(closes_ns - now));
        (Self { start_ns, opens_ns, closes_ns }, Window { opens, closes })
    }
}
