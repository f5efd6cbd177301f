//! How long a worker sleeps if its plan allows busy polling.

/// A worker does not sleep for this long before a request is due and after it was sent: longer than
/// a wake-up takes.
const AWAKE_NS: u64 = 100_000;

/// The latest time to wake up, if a request sent at `sent_ns` is unanswered and the next task is
/// due at `next_ns`; `None` to poll without sleeping.
#[inline]
pub(super) fn until(sent_ns: Option<u64>, now: u64, next_ns: u64) -> Option<u64> {
    let expects_response = sent_ns.is_some_and(|sent_ns| now < sent_ns + AWAKE_NS);
    (!expects_response && next_ns > now + AWAKE_NS).then(|| next_ns - AWAKE_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_polling_sleeps_neither_before_a_request_is_due_nor_after_it_was_sent() {
        const NOW: u64 = 5_000_000;
        let due = NOW + 3 * AWAKE_NS;
        assert_eq!(until(None, NOW, due), Some(due - AWAKE_NS));
        assert_eq!(until(Some(NOW - 2 * AWAKE_NS), NOW, due), Some(due - AWAKE_NS));
        assert_eq!(until(Some(NOW - AWAKE_NS / 2), NOW, due), None);
        assert_eq!(until(None, NOW, NOW + AWAKE_NS), None);
        assert_eq!(until(None, NOW, NOW - 1), None);
    }
}
