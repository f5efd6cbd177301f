//! A histogram of times with a known error.

use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// The longest time that a histogram distinguishes: one hour, in nanoseconds.
pub(crate) const MAX_NS: u64 = 3_600_000_000_000;

/// A histogram of times in nanoseconds with three significant digits (an error of 0.1%), from 1 ns
/// to one hour. Longer times count as one hour. A histogram takes 264 KiB (33 × 1,024 counts of 8
/// bytes), however many times it holds.
#[derive(Debug, PartialEq)]
pub struct Histogram(Hdr<u64>);

impl Clone for Histogram {
    /// Copies the histogram, or creates a new one if this one is empty. The memory of a new
    /// histogram is only reserved, but a copy would use all of it.
    fn clone(&self) -> Self {
        if self.is_empty() { Self::new() } else { Self(self.0.clone()) }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Returns an empty histogram.
    pub fn new() -> Self {
        let hdr = Hdr::new_with_bounds(1, MAX_NS, 3);
        Self(hdr.expect("constants within the library's limits"))
    }

    /// Adds one time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds all times of `other` without loss.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all histograms share their bounds");
    }

    /// Adds one time, `count` times.
    pub(crate) fn record_many(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns, count);
    }

    /// Removes all times, but keeps the memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Returns the number of times.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Returns whether the histogram is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the quantile `q` (0 to 1) in nanoseconds, or 0 when empty. The result is the highest
    /// time of its bucket, so it is at most 0.1% above the exact quantile.
    pub fn quantile(&self, q: f64) -> u64 {
        self.0.value_at_quantile(q)
    }

    /// Returns the share of times of at most `ns`, from 0 to 1, or 0 when empty.
    pub fn share_within(&self, ns: u64) -> f64 {
        if self.is_empty() { 0.0 } else { self.0.quantile_below(ns) }
    }

    /// Returns all non-empty buckets as (highest time in nanoseconds, count), in increasing order.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// Returns the mean in nanoseconds.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// Returns the standard deviation in nanoseconds.
    pub fn stdev(&self) -> f64 {
        self.0.stdev()
    }

    /// Returns the longest time in nanoseconds, or 0 when empty.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// Returns the shortest time in nanoseconds, or 0 when empty.
    pub fn min(&self) -> u64 {
        self.0.min()
    }

    /// Returns HdrHistogram's compressed V2 encoding, which other tools read. An empty histogram
    /// has no bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.is_empty() {
            return bytes;
        }
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .expect("writing to a Vec cannot fail");
        bytes
    }

    /// Reads a histogram from the bytes that [`Histogram::to_bytes`] returned.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut own = Self::new();
        if !bytes.is_empty() {
            let bad = |error: &dyn std::fmt::Display| format!("not a stored histogram: {error}");
            let read = Deserializer::new().deserialize(&mut &bytes[..]);
            let read: Hdr<u64> = read.map_err(|error| bad(&error))?;
            own.0.add(&read).map_err(|error| bad(&error))?;
        }
        Ok(own)
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes())
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        Self::from_bytes(&bytes).map_err(serde::de::Error::custom)
    }
}

/// The number of ticks in each halving of the distance to 100%, as HdrHistogram prints them.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// The number of counts per bucket at three significant digits: the smallest power of two that
/// distinguishes 2 × 10³ values.
const SUB_BUCKETS: u32 = 2048;

impl Histogram {
    /// Returns HdrHistogram's percentile distribution (`.hgrm`), which HdrHistogram's plotter reads
    /// and wrk2 prints. Times are divided by `unit_ns` (1,000,000 for milliseconds).
    pub fn to_hgrm(&self, unit_ns: f64) -> String {
        let mut text = format!(
            "{:>12} {:>14} {:>10} {:>14}\n\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        );
        let mut count = 0;
        for step in self.0.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
            count += step.count_since_last_iteration();
            let quantile = step.quantile_iterated_to();
            let left = 1.0 - quantile;
            let odds = if left > 0.0 { format!("{:>14.2}", 1.0 / left) } else { String::new() };
            let value = step.value_iterated_to() as f64 / unit_ns;
            let row = format!("{value:>12.3} {quantile:>14.12} {count:>10} {odds}");
            text.push_str(row.trim_end());
            text.push('\n');
        }
        let (mean, stdev) = (self.mean() / unit_ns, self.stdev() / unit_ns);
        let (max, total) = (self.max() as f64 / unit_ns, self.len());
        text.push_str(&format!("#[Mean    = {mean:>12.3}, StdDeviation   = {stdev:>12.3}]\n"));
        text.push_str(&format!("#[Max     = {max:>12.3}, Total count    = {total:>12}]\n"));
        let (buckets, sub_buckets) = (self.0.buckets(), SUB_BUCKETS);
        text.push_str(&format!("#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]\n"));
        text
    }
}

/// Returns HdrHistogram's compressed interval log (`.hlog`), which HdrHistogram's log processor
/// and analyzer read. There is one line per histogram, and all lines cover the interval that began
/// at `opened`. The first line has no tag. Values are in nanoseconds, but the maximum next to each
/// histogram, for human readers, is in milliseconds. The format cannot hold a tag with a comma, a
/// space or a line break, so the line then has no tag.
pub fn interval_log(
    opened: SystemTime,
    length: Duration,
    first: &Histogram,
    tagged: &[(&str, &Histogram)],
) -> String {
    const INFALLIBLE: &str = "writing to a Vec cannot fail";
    let (mut bytes, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("[Histogram log format version 1.3]")
        .with_start_time(opened)
        .with_base_time(opened)
        .with_max_value_divisor(1e6);
    let mut log = builder.begin_log_with(&mut bytes, &mut serializer).expect(INFALLIBLE);
    log.write_histogram(&first.0, Duration::ZERO, length, None).expect(INFALLIBLE);
    for (tag, histogram) in tagged {
        let tag = Tag::new(tag);
        log.write_histogram(&histogram.0, Duration::ZERO, length, tag).expect(INFALLIBLE);
    }
    String::from_utf8(bytes).expect("the format is text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        times.into_iter().for_each(|ns| histogram.record(ns));
        histogram
    }

    #[test]
    fn a_time_longer_than_an_hour_counts_as_an_hour() {
        let histogram = of([u64::MAX, 0]);
        assert_eq!(histogram.len(), 2);
        assert!(histogram.max() >= MAX_NS);
        assert!(histogram.max() <= MAX_NS + MAX_NS / 1000);
    }

    #[test]
    fn a_histogram_has_a_count_and_both_extremes() {
        let mut histogram = of([3_000, 1_000, 2_000, 1_000]);
        assert_eq!((histogram.len(), histogram.is_empty()), (4, false));
        assert_eq!((histogram.min(), histogram.max()), (1_000, 3_000 / 2 * 2 + 1));
        histogram.clear();
        assert_eq!((histogram.len(), histogram.is_empty()), (0, true));
        assert_eq!((histogram.max(), histogram.quantile(0.5)), (0, 0));
        assert_eq!(histogram, Histogram::new());
        assert_eq!(histogram, Histogram::default());
    }

    #[test]
    fn the_share_within_a_time_counts_that_time() {
        let histogram = of([1_000, 1_000, 2_000, 3_000]);
        for (ns, share) in [(999, 0.0), (1_000, 0.5), (1_999, 0.5), (2_000, 0.75), (3_001, 1.0)] {
            assert_eq!(histogram.share_within(ns), share, "{ns}");
        }
        assert_eq!(Histogram::new().share_within(1), 0.0);
    }

    #[test]
    fn a_histogram_is_read_from_a_sequence_of_numbers() {
        use serde::de::value::{Error, SeqDeserializer};
        let read = |bytes: Vec<u8>| {
            Histogram::deserialize(SeqDeserializer::<_, Error>::new(bytes.into_iter()))
        };
        let histogram = of([1_000, 2_000, 2_000]);
        assert_eq!(read(histogram.to_bytes()), Ok(histogram));
        assert!(read(b"not one".to_vec()).is_err());
    }

    #[test]
    fn other_bytes_are_an_error_with_its_cause() {
        let error = Histogram::from_bytes(b"not one").unwrap_err();
        assert!(error.starts_with("not a stored histogram: "), "{error}");
    }

    mod export {
        use super::super::*;

        #[test]
        fn hgrm_is_what_plotters_read() {
            let mut histogram = Histogram::new();
            (1..=4).for_each(|ms| histogram.record(ms * 1_000_000));
            let expected = "       Value     Percentile TotalCount 1/(1-Percentile)

       1.000 0.000000000000          1           1.00
       1.000 0.100000000000          1           1.11
       1.000 0.200000000000          1           1.25
       2.001 0.300000000000          2           1.43
       2.001 0.400000000000          2           1.67
       2.001 0.500000000000          2           2.00
       3.000 0.550000000000          3           2.22
       3.000 0.600000000000          3           2.50
       3.000 0.650000000000          3           2.86
       3.000 0.700000000000          3           3.33
       4.002 0.750000000000          4           4.00
       4.002 1.000000000000          4
#[Mean    =        2.500, StdDeviation   =        1.118]
#[Max     =        4.002, Total count    =            4]
#[Buckets =           32, SubBuckets     =         2048]
";
            assert_eq!(histogram.to_hgrm(1e6), expected);
        }
    }
}
