//! Recording, merging and asking quantiles, within a stated error.
//!
//! The only file that names `hdrhistogram`.

use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// The longest time that can be told from a longer one: one hour, in nanoseconds.
pub const HIGHEST_NS: u64 = 3_600_000_000_000;

/// Nanoseconds, counted in buckets of three significant digits (0.1 %), from 1 ns to one hour; what
/// is longer counts as one hour. A fixed 32 buckets × 1,024 counts × 8 bytes = 256 KiB.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram(Hdr<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        let hdr = Hdr::new_with_bounds(1, HIGHEST_NS, 3);
        Self(hdr.expect("bounds and digits are constants within the library's limits"))
    }

    /// Counts one time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds all of `other`, without loss.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all histograms share their bounds");
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// How many times are counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether nothing is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time in nanoseconds that a share `q` (0 to 1) of all times do not exceed; 0 when empty.
    /// The highest time that counts the same, so at most 0.1 % above the true one.
    #[must_use]
    pub fn quantile(&self, q: f64) -> u64 {
        self.0.value_at_quantile(q)
    }

    /// The share of times that do not exceed `ns`, between 0 and 1; 0 when empty.
    #[must_use]
    pub fn share_within(&self, ns: u64) -> f64 {
        if self.is_empty() { 0.0 } else { self.0.quantile_below(ns) }
    }

    /// The distribution as a curve, ever finer towards the tail: `steps` points in each half of the
    /// way that is left to 100 % (HdrHistogram's percentile ticks; it prints 5). Ends at the
    /// longest.
    pub fn curve(&self, steps: u32) -> impl Iterator<Item = Point> + '_ {
        let mut count = 0;
        self.0.iter_quantiles(steps.max(1)).map(move |step| {
            count += step.count_since_last_iteration();
            let quantile = step.quantile_iterated_to();
            Point { ns: step.value_iterated_to(), quantile, count }
        })
    }

    /// Every time that was counted with how often, from the shortest up: the finest form that there
    /// is, for plots of density.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// HdrHistogram's percentile distribution (`.hgrm`), which its plotter and those of wrk2 and
    /// others read. Times are divided by `unit_ns` (1,000,000 for milliseconds).
    #[must_use]
    pub fn to_hgrm(&self, unit_ns: f64) -> String {
        let mut text = format!(
            "{:>12} {:>14} {:>10} {:>14}\n\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        );
        let mut line = |point: Point| {
            let left = 1.0 - point.quantile;
            let odds = if left > 0.0 { format!("{:>14.2}", 1.0 / left) } else { String::new() };
            let value = point.ns as f64 / unit_ns;
            let row = format!("{value:>12.3} {:>14.12} {:>10} {odds}", point.quantile, point.count);
            text.push_str(row.trim_end());
            text.push('\n');
        };
        self.curve(5).for_each(&mut line);
        let (mean, stdev) = (self.mean() / unit_ns, self.stdev() / unit_ns);
        let (max, total) = (self.max() as f64 / unit_ns, self.len());
        text.push_str(&format!("#[Mean    = {mean:>12.3}, StdDeviation   = {stdev:>12.3}]\n"));
        text.push_str(&format!("#[Max     = {max:>12.3}, Total count    = {total:>12}]\n"));
        let (buckets, sub_buckets) = (self.0.buckets(), SUB_BUCKETS);
        text.push_str(&format!("#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]\n"));
        text
    }

    /// Mean in nanoseconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// Standard deviation in nanoseconds.
    #[must_use]
    pub fn stdev(&self) -> f64 {
        self.0.stdev()
    }

    /// The longest, in nanoseconds.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// The shortest, in nanoseconds.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.0.min()
    }

    /// HdrHistogram's own V2 form, deflated: what other tools read, and the form that is stored.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).expect("a Vec takes every byte");
        bytes
    }

    /// Reads what [`Histogram::to_bytes`] wrote.
    ///
    /// # Errors
    /// Says what is wrong with the bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadHistogram> {
        let read: Hdr<u64> = Deserializer::new()
            .deserialize(&mut &bytes[..])
            .map_err(|e| BadHistogram(e.to_string()))?;
        let mut own = Self::new();
        own.0.add(&read).map_err(|e| BadHistogram(e.to_string()))?;
        Ok(own)
    }
}

/// HdrHistogram's compressed interval log (`.hlog`), which its log processor, its analyzer and
/// their like read: histograms of one interval that began at `opened`, a line each, the first
/// without a tag and the others with theirs. Values are nanoseconds; the maximum that stands beside
/// each histogram, for people, is in milliseconds.
#[must_use]
pub fn interval_log(
    opened: SystemTime,
    length: Duration,
    first: &Histogram,
    tagged: &[(&str, &Histogram)],
) -> String {
    let (mut bytes, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("[Histogram log format version 1.3]")
        .with_start_time(opened)
        .with_base_time(opened)
        .with_max_value_divisor(1e6);
    let taken = "a Vec takes every byte";
    let mut log = builder.begin_log_with(&mut bytes, &mut serializer).expect(taken);
    log.write_histogram(&first.0, Duration::ZERO, length, None).expect(taken);
    for (tag, histogram) in tagged {
        // A tag that could not be told from what follows it is left out.
        let tag = Tag::new(tag);
        log.write_histogram(&histogram.0, Duration::ZERO, length, tag).expect(taken);
    }
    String::from_utf8(bytes).expect("the format is text")
}

/// Counts in a bucket at three significant digits: the power of two that tells 2 × 10³ values
/// apart.
const SUB_BUCKETS: u32 = 2048;

/// A point of the distribution's curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Nanoseconds.
    pub ns: u64,
    /// The share of all times that do not exceed `ns`, as far as the curve has come: 0 to 1.
    pub quantile: f64,
    /// How many times those are.
    pub count: u64,
}

/// Bytes that are no histogram, or none of ours.
#[derive(Debug, thiserror::Error)]
#[error("not a stored histogram: {0}")]
pub struct BadHistogram(String);

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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        times.into_iter().for_each(|ns| histogram.record(ns));
        histogram
    }

    #[test]
    fn the_curve_ends_at_the_longest_with_every_time_counted() {
        let histogram = of((1..=1000).map(|i| i * 1000));
        let curve: Vec<Point> = histogram.curve(5).collect();
        assert!(curve.windows(2).all(|w| w[0].ns <= w[1].ns && w[0].quantile <= w[1].quantile));
        let last = curve.last().unwrap();
        assert_eq!((last.quantile, last.count), (1.0, 1000));
        assert!(last.ns >= 1_000_000 && last.ns <= 1_001_000);
    }

    #[test]
    fn hgrm_is_what_plotters_read() {
        let text = of([1_000_000, 2_000_000, 3_000_000, 4_000_000]).to_hgrm(1e6);
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
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_longer_than_an_hour_counts_as_an_hour() {
        let histogram = of([u64::MAX, 0]);
        assert_eq!(histogram.len(), 2);
        assert!(histogram.max() >= HIGHEST_NS);
        assert!(histogram.max() <= HIGHEST_NS + HIGHEST_NS / 1000);
    }

    #[test]
    fn a_histogram_knows_how_many_and_between_which_two() {
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
    fn a_curve_without_steps_has_one() {
        let histogram = of((1..=100).map(|i| i * 1_000));
        assert_eq!(histogram.curve(0).collect::<Vec<_>>(), histogram.curve(1).collect::<Vec<_>>());
        assert_eq!(Histogram::new().curve(5).count(), 0);
    }

    #[test]
    fn a_histogram_is_read_from_the_bytes_of_a_document() {
        use serde::de::value::{Error, SeqDeserializer};
        let read = |bytes: Vec<u8>| {
            Histogram::deserialize(SeqDeserializer::<_, Error>::new(bytes.into_iter()))
        };
        let histogram = of([1_000, 2_000, 2_000]);
        assert_eq!(read(histogram.to_bytes()), Ok(histogram));
        assert!(read(b"not one".to_vec()).is_err());
    }

    #[test]
    fn bytes_of_another_kind_are_an_error_that_says_so() {
        let error = Histogram::from_bytes(b"not one").unwrap_err();
        assert!(error.to_string().starts_with("not a stored histogram: "), "{error}");
    }
}
