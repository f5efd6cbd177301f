//! Property tests of histograms of any times.

use std::time::{Duration, SystemTime};

use base64::Engine;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use hotlap_stats::{Histogram, interval_log};
use proptest::prelude::*;

fn of(times: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    times.iter().for_each(|&ns| histogram.record(ns));
    histogram
}

/// Generates times of all magnitudes, from a nanosecond to an hour.
fn times() -> impl Strategy<Value = Vec<u64>> {
    let time = (0u32..41, 0.0..1.0f64)
        .prop_map(|(power, share)| ((1u64 << power) as f64 * (1.0 + share)).min(3.6e12) as u64);
    prop::collection::vec(time, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn merging_is_recording_all_times(a in times(), b in times()) {
        let mut merged = of(&a);
        merged.merge(&of(&b));
        let all: Vec<u64> = a.iter().chain(&b).copied().collect();
        prop_assert_eq!(merged, of(&all));
    }

    #[test]
    fn a_quantile_is_at_most_a_thousandth_off(mut times in times(), q in 0.0..=1.0f64) {
        let ours = of(&times).quantile(q) as f64;
        times.sort_unstable();
        let rank = ((q * times.len() as f64).ceil() as usize).clamp(1, times.len());
        // The library rounds the product of q and the count if it is nearly whole.
        let near = (q * times.len() as f64 - (q * times.len() as f64).round()).abs() < 1e-9;
        let true_ns = times[rank - 1] as f64;
        prop_assume!(!near);
        prop_assert!(ours >= true_ns && ours <= true_ns * 1.001 + 1.0, "{ours} for {true_ns}");
    }

    #[test]
    fn a_histogram_survives_encoding(times in times()) {
        let histogram = of(&times);
        prop_assert_eq!(Histogram::from_bytes(&histogram.to_bytes()).unwrap(), histogram);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Histogram::from_bytes(&bytes);
    }

    #[test]
    fn cut_or_changed_bytes_are_an_error_or_a_histogram(
        times in times(), at in any::<prop::sample::Index>(), to in any::<u8>()
    ) {
        let mut bytes = of(&times).to_bytes();
        let _ = Histogram::from_bytes(&bytes[..at.index(bytes.len())]);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = Histogram::from_bytes(&bytes);
    }
}

/// Returns every interval of a log, as the library reads it: tag, start, length and histogram.
fn read_log(text: &str) -> Vec<(Option<String>, Duration, Duration, Histogram)> {
    let entries = IntervalLogIterator::new(text.as_bytes()).map(|entry| entry.expect("sound"));
    let intervals = entries.filter_map(|entry| match entry {
        LogEntry::Interval(interval) => Some(interval),
        _ => None,
    });
    let read = |interval: hdrhistogram::serialization::interval_log::IntervalLogHistogram| {
        let engine = base64::engine::general_purpose::STANDARD;
        let bytes = engine.decode(interval.encoded_histogram()).expect("base64");
        let tag = interval.tag().map(|tag| tag.as_str().to_owned());
        let histogram = Histogram::from_bytes(&bytes).expect("a histogram");
        (tag, interval.start_timestamp(), interval.duration(), histogram)
    };
    intervals.map(read).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn an_interval_log_is_read_back_equal(a in times(), b in times()) {
        let opened = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
        let length = Duration::from_millis(2_500);
        let (a, b) = (of(&a), of(&b));
        let text = interval_log(opened, length, &a, &[("service", &b)]);
        prop_assert!(text.contains("#[StartTime: 1700000000.500 (seconds since epoch)]"));
        let read = read_log(&text);
        prop_assert_eq!(read.len(), 2);
        prop_assert_eq!(&read[0], &(None, Duration::ZERO, length, a));
        prop_assert_eq!(&read[1], &(Some("service".to_owned()), Duration::ZERO, length, b));
    }
}
