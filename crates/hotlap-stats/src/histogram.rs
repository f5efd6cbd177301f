//! Recording, merging and asking quantiles, within a stated error.
//!
//! The only file that names `hdrhistogram`.

use hdrhistogram::Histogram as Hdr;
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
    #[must_use]
    pub fn quantile(&self, q: f64) -> u64 {
        self.0.value_at_quantile(q)
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
