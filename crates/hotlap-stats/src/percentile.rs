//! Which percentiles so many samples can tell.

/// The chance that is left for a percentile to lie beyond the longest sample: that of one side of a
/// 95 % interval.
const BEYOND: f64 = 0.025;

/// Whether `n` samples are enough to know the quantile `q`: the chance that all of them lie below
/// it, qⁿ, is at most 2.5 % (the order-statistics bound: David and Nagaraja, "Order Statistics",
/// 3rd edition, section 7.1). That takes 36 samples for p90, 368 for p99 and 3,688 for p99.9.
#[must_use]
pub fn is_known(n: u64, q: f64) -> bool {
    q.powf(n as f64) <= BEYOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_its_samples() {
        assert!(!is_known(35, 0.9) && is_known(36, 0.9));
        assert!(!is_known(367, 0.99) && is_known(368, 0.99));
        assert!(!is_known(3_687, 0.999) && is_known(3_688, 0.999));
        assert!(is_known(6, 0.5) && !is_known(5, 0.5));
        assert!(!is_known(0, 0.5) && !is_known(u64::MAX, 1.0));
    }
}
