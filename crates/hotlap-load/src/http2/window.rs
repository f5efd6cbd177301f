//! Flow control (RFC 9113 sections 5.2 and 6.9).

use super::frame::MAX_31_BITS;

/// The window of a connection, and of a stream unless SETTINGS say otherwise (RFC 9113 section
/// 6.9.2).
pub(super) const INITIAL: u32 = 65_535;

/// The window that servers get for each response. It must not limit the throughput: it is used up
/// only if a server sends 8 MiB within one reaction of the client. At 5 GB/s, about what loopback
/// moves, that is 1.6 ms, some 100 times longer than the client takes. It costs no memory, because
/// bodies are not buffered.
pub(super) const STREAM: u32 = (1 << 24) - 1;

/// The window that servers get for all responses of a connection together: 1 GiB, enough for 64
/// streams with a full window each. The standard's limit is twice as much.
pub(super) const CONNECTION: u32 = 1 << 30;

/// How much the server may send.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceiveWindow {
    left: u32,
    size: u32,
}

impl ReceiveWindow {
    /// A full window.
    pub(super) const fn new(size: u32) -> Self {
        Self { left: size, size }
    }

    /// The server has used some of it; returns whether that was allowed. It always is while the
    /// window is refilled in time and frames are smaller than half of it.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> bool {
        let rest = self.left.checked_sub(count);
        self.left = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Fills the window once half of it is used; returns the increment to announce.
    #[inline]
    pub(super) fn refill(&mut self) -> Option<u32> {
        let used = self.size - self.left;
        if used <= self.size / 2 {
            return None;
        }
        self.left = self.size;
        Some(used)
    }
}

/// How much the client may send. It is negative if the server made it smaller after it was used
/// (RFC 9113 section 6.9.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct SendWindow(i64);

impl SendWindow {
    /// A window of this size.
    pub(super) const fn new(size: u32) -> Self {
        Self(size as i64)
    }

    /// How many bytes may be sent.
    pub(super) fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// Some bytes are sent, at most those available.
    pub(super) fn take(&mut self, count: usize) {
        self.0 -= count as i64;
    }

    /// Changes the window; returns whether it is valid: at most 2^31 - 1.
    pub(super) fn change(&mut self, by: i64) -> bool {
        self.0 += by;
        self.0 <= i64::from(MAX_31_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_refilled_when_more_than_half_of_it_is_used() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.take(50));
        assert_eq!(window.refill(), None);
        assert!(window.take(1));
        assert_eq!(window.refill(), Some(51));
        assert_eq!(window.refill(), None);
        assert!(window.take(100), "it is full again");
        assert!(!window.take(1));
    }

    #[test]
    fn a_send_window_may_be_negative_and_is_at_most_31_bits() {
        // RFC 9113 section 6.9.2: the example of a window that becomes negative.
        let mut window = SendWindow::new(INITIAL);
        window.take(60 * 1024);
        assert!(window.change(16 * 1024 - i64::from(INITIAL)));
        assert_eq!((window.0, window.available()), (-44 * 1024, 0));
        assert!(window.change(44 * 1024 + 5));
        assert_eq!(window.available(), 5);
        // Section 6.9.1.
        let mut window = SendWindow::new(MAX_31_BITS - 1);
        assert!(window.change(1));
        assert!(!window.change(1));
    }
}
