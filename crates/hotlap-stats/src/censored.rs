//! Requests that were not observed from beginning to end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::{Histogram, MAX_NS};

/// A histogram of ages in nanoseconds, with the buckets of [`Histogram`]. A lap has few ages, so
/// only non-empty buckets take memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ages(BTreeMap<u64, u64>);

impl Ages {
    /// Adds one age.
    pub fn record(&mut self, ns: u64) {
        // From 2,048 on, 1,024 buckets per power of two, as in HdrHistogram at three digits. The
        // key of a bucket is its highest value.
        let ns = ns.min(MAX_NS);
        let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(11);
        let bucket = (((ns >> shift) + 1) << shift) - 1;
        *self.0.entry(bucket).or_default() += 1;
    }

    /// Adds all ages of `other`.
    pub fn merge(&mut self, other: &Self) {
        other.counts().for_each(|(ns, count)| *self.0.entry(ns).or_default() += count);
    }

    /// Adds all ages to a histogram, without loss.
    pub fn add_to(&self, histogram: &mut Histogram) {
        self.counts().for_each(|(ns, count)| histogram.record_many(ns, count));
    }

    /// The ages as a histogram.
    pub fn to_histogram(&self) -> Histogram {
        let mut histogram = Histogram::new();
        self.add_to(&mut histogram);
        histogram
    }

    /// The number of ages.
    pub fn len(&self) -> u64 {
        self.0.values().sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The highest age, in nanoseconds; 0 when empty.
    pub fn max(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(ns, _)| *ns)
    }

    /// All non-empty buckets as (highest age in nanoseconds, count), in increasing order.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(ns, count)| (*ns, *count))
    }
}

impl From<&Histogram> for Ages {
    /// The same times in less memory, without loss.
    fn from(times: &Histogram) -> Self {
        Self(times.counts().collect())
    }
}

impl FromIterator<u64> for Ages {
    fn from_iter<T: IntoIterator<Item = u64>>(ages: T) -> Self {
        let mut all = Self::default();
        ages.into_iter().for_each(|ns| all.record(ns));
        all
    }
}

/// Ages, in nanoseconds, of requests that were not observed from beginning to end.
///
/// In the terms of survival analysis, `open` and `waiting` are right-censored observations, and
/// `entered` are delayed entries (left truncation). Every request that was sent, or was in flight
/// when a window opened, ends either with a correct response or in `open`. So over any set of
/// windows: sent + entered = correct responses + open.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Censored {
    /// Ages at which requests that had been sent were last seen without a correct response: in
    /// flight when a window closed, or when they failed.
    #[serde(skip_serializing_if = "Ages::is_empty")]
    pub open: Ages,
    /// Ages of the requests under way when a window opened, sent or not.
    #[serde(skip_serializing_if = "Ages::is_empty")]
    pub entered: Ages,
    /// Time since they were due of requests that had not been sent when the window closed, because
    /// no connection was free. Empty in a closed loop.
    #[serde(skip_serializing_if = "Ages::is_empty")]
    pub waiting: Ages,
}

impl Censored {
    /// Adds all ages of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.open.merge(&other.open);
        self.entered.merge(&other.entered);
        self.waiting.merge(&other.waiting);
    }

    /// Whether every request was observed to its end.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn ages(times: impl IntoIterator<Item = u64>) -> Ages {
        times.into_iter().collect()
    }

    #[test]
    fn ages_have_the_buckets_of_histograms() {
        let mut random = Pcg64Mcg::seed_from_u64(17);
        let mut times = vec![0, 1, 2_047, 2_048, 4_095, 4_096, MAX_NS - 1];
        times.extend((0..1_000).map(|_| (random.random::<f64>() * 28.0).exp() as u64));
        let mut histogram = Histogram::new();
        times.iter().for_each(|ns| histogram.record(*ns));
        let ages = ages(times);
        assert_eq!(ages.counts().collect::<Vec<_>>(), histogram.counts().collect::<Vec<_>>());
        assert_eq!((ages.len(), ages.max()), (histogram.len(), histogram.max()));
    }

    #[test]
    fn a_histogram_is_kept_as_ages_without_loss() {
        let mut random = Pcg64Mcg::seed_from_u64(19);
        let mut times = Histogram::new();
        (0..1_000).for_each(|_| times.record((random.random::<f64>() * 28.0).exp() as u64));
        let mut read = Histogram::new();
        Ages::from(&times).add_to(&mut read);
        assert!(read.counts().eq(times.counts()) && read.to_bytes() == times.to_bytes());
        let summary = |h: &Histogram| (h.mean(), h.quantile(0.99), h.max(), h.min());
        assert_eq!(summary(&read), summary(&times));
    }

    #[test]
    fn ages_are_counted_merged_and_listed_in_order() {
        let mut all = ages([300, 100, 300]);
        assert_eq!((all.len(), all.max(), all.is_empty()), (3, 300, false));
        all.merge(&ages([200, 100]));
        assert_eq!(all.counts().collect::<Vec<_>>(), [(100, 2), (200, 1), (300, 2)]);
        assert_eq!((all.len(), all.max()), (5, 300));
        let none = Ages::default();
        assert_eq!((none.len(), none.max(), none.is_empty()), (0, 0, true));
    }

    #[test]
    fn merging_keeps_each_kind_apart() {
        let of = |open, entered, waiting| Censored {
            open: ages([open]),
            entered: ages([entered]),
            waiting: ages([waiting]),
        };
        let mut both = of(100, 200, 300);
        both.merge(&of(101, 201, 301));
        let counted = |ages: &Ages| ages.counts().map(|(ns, _)| ns).collect::<Vec<_>>();
        assert_eq!(counted(&both.open), [100, 101]);
        assert_eq!(counted(&both.entered), [200, 201]);
        assert_eq!(counted(&both.waiting), [300, 301]);
    }

    #[test]
    fn a_delayed_entry_counts_as_observed_to_its_end() {
        assert!(Censored::default().is_empty());
        assert!(Censored { entered: ages([1]), ..Censored::default() }.is_empty());
        assert!(!Censored { open: ages([1]), ..Censored::default() }.is_empty());
        assert!(!Censored { waiting: ages([1]), ..Censored::default() }.is_empty());
    }
}
