//! A histogram of times with a stated error.
//!
//! `hdrhistogram` is used here and in [`export`] only.

pub(crate) mod export;

use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// The longest time that can be distinguished: one hour, in nanoseconds.
pub(crate) const MAX_NS: u64 = 3_600_000_000_000;

/// A histogram of times in nanoseconds with three significant digits (an error of 0.1 %), from 1 ns
/// to one hour; longer times count as one hour. Takes 32 buckets × 1,024 counts × 8 bytes = 256
/// KiB, however many times it holds.
#[derive(Debug, PartialEq)]
pub struct Histogram(Hdr<u64>);

impl Clone for Histogram {
    /// An empty histogram is not copied: its memory is only reserved, and a copy would use it.
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
    /// An empty histogram.
    pub fn new() -> Self {
        let hdr = Hdr::new_with_bounds(1, MAX_NS, 3);
        Self(hdr.expect("constants within the library's limits"))
    }

    /// Adds one time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds all times of `other`, without loss.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all histograms share their bounds");
    }

    /// Adds one time, `count` times.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns, count);
    }

    /// Removes all times but keeps the memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// The number of times.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The quantile `q` (0 to 1) in nanoseconds; 0 when empty. It is the highest time of its
    /// bucket, so at most 0.1 % above the exact one.
    pub fn quantile(&self, q: f64) -> u64 {
        self.0.value_at_quantile(q)
    }

    /// The share of times of at most `ns`, 0 to 1; 0 when empty.
    pub fn share_within(&self, ns: u64) -> f64 {
        if self.is_empty() { 0.0 } else { self.0.quantile_below(ns) }
    }

    /// All non-empty buckets as (highest time in nanoseconds, count), in increasing order.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// The mean in nanoseconds.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// The standard deviation in nanoseconds.
    pub fn stdev(&self) -> f64 {
        self.0.stdev()
    }

    /// The longest time, in nanoseconds; 0 when empty.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// The shortest time, in nanoseconds; 0 when empty.
    pub fn min(&self) -> u64 {
        self.0.min()
    }

    /// HdrHistogram's compressed V2 encoding, which other tools read.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .expect("writing to a Vec cannot fail");
        bytes
    }

    /// Reads what [`Histogram::to_bytes`] wrote.
    ///
    /// # Errors
    /// The bytes are not such an encoding, or contain times beyond this histogram's range.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadHistogram> {
        let read: Hdr<u64> = Deserializer::new()
            .deserialize(&mut &bytes[..])
            .map_err(|e| BadHistogram(e.to_string()))?;
        let mut own = Self::new();
        own.0.add(&read).map_err(|e| BadHistogram(e.to_string()))?;
        Ok(own)
    }
}

/// Bytes that are not a stored histogram.
#[derive(Debug, thiserror::Error)]
#[error("not a stored histogram: {0}")]
pub struct BadHistogram(String);

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = if self.is_empty() { Vec::new() } else { self.to_bytes() };
        serializer.serialize_bytes(&bytes)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        match &bytes[..] {
            [] => Ok(Self::new()),
            bytes => Self::from_bytes(bytes).map_err(serde::de::Error::custom),
        }
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
        assert!(error.to_string().starts_with("not a stored histogram: "), "{error}");
    }
}
