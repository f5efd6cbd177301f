//! The order of requests that were recorded, for example in an access log, and their times; lists
//! that may be long.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::random::{below, mix, number};

/// A list that many plans and threads share rather than copy, because a file may have many lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<T>", into = "Vec<T>")]
#[serde(bound(serialize = "T: Clone + Serialize", deserialize = "T: Deserialize<'de>"))]
pub struct Shared<T>(Arc<[T]>);

impl<T> Deref for Shared<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> From<Vec<T>> for Shared<T> {
    fn from(list: Vec<T>) -> Self {
        Self(list.into())
    }
}

impl<T: Clone> From<Shared<T>> for Vec<T> {
    fn from(list: Shared<T>) -> Self {
        list.0.to_vec()
    }
}

/// One place in a recorded order: which request is sent there, with which values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The index of the request in the plan.
    pub request: u32,
    /// The number of the value, from 0, that each of its fields has.
    pub value: u32,
}

/// Brings entries into a random order, in which each is as likely at each place (Fisher and Yates;
/// Knuth, TAOCP 2, section 3.4.2 P). The same seed gives the same order.
pub fn shuffle(entries: &mut [Entry], seed: u64) {
    let key = mix(seed);
    for last in (1..entries.len()).rev() {
        let other = below(number(key, last as u64), last as u64 + 1);
        entries.swap(last, other as usize);
    }
}

/// When recorded requests are due, after the start of the load.
///
/// Each time takes 4 bytes, as a multiple of a tick. A tick is 1 µs, or longer if the recording is
/// longer than 71 minutes: 20 µs for a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DueTimes {
    ticks: Shared<u32>,
    /// The length of a tick in nanoseconds.
    tick_ns: f64,
}

/// The shortest tick, before a change of speed.
const TICK_NS: f64 = 1_000.0;

impl DueTimes {
    /// From times in nanoseconds, in ascending order; the first request is due at once. `speed`
    /// divides all times.
    pub fn new(times_ns: &[u64], speed: f64) -> Self {
        let (first, last) =
            (times_ns.first().copied().unwrap_or(0), times_ns.last().copied().unwrap_or(0));
        let tick_ns = (last.saturating_sub(first) as f64 / f64::from(u32::MAX)).max(TICK_NS);
        let tick = |ns: &u64| (ns.saturating_sub(first) as f64 / tick_ns).round() as u32;
        let ticks: Vec<u32> = times_ns.iter().map(tick).collect();
        Self { ticks: ticks.into(), tick_ns: tick_ns / speed }
    }

    /// The number of requests.
    pub fn count(&self) -> usize {
        self.ticks.len()
    }

    /// The time of a request in nanoseconds after the start; `None` after the last.
    #[inline]
    pub(crate) fn ns(&self, request: usize) -> Option<u64> {
        self.ticks.get(request).map(|tick| (f64::from(*tick) * self.tick_ns).round() as u64)
    }

    /// From the first request to the last.
    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.ns(self.count().saturating_sub(1)).unwrap_or(0))
    }

    /// Requests per second on average.
    pub fn rate(&self) -> f64 {
        // All requests of a recording may have the same time.
        self.count() as f64 / self.span().as_secs_f64().max(TICK_NS / 1e9)
    }

    /// Why no load can follow these times, if so.
    pub(super) fn problem(&self) -> Option<&'static str> {
        match () {
            () if self.ticks.is_empty() => Some("a recording without requests"),
            () if !(self.tick_ns.is_finite() && self.tick_ns > 0.0) => {
                Some("the speed of a recording must be a positive number")
            }
            () if !self.ticks.is_sorted() => Some("the times of a recording must ascend"),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_begin_at_the_first_request_and_keep_their_distances() {
        let times = [5_000_000_000, 5_000_001_000, 6_500_000_000];
        let due = DueTimes::new(&times, 1.0);
        let all = |due: &DueTimes| (0..4).map(|n| due.ns(n)).collect::<Vec<_>>();
        assert_eq!(all(&due), [Some(0), Some(1_000), Some(1_500_000_000), None]);
        let faster = DueTimes::new(&times, 10.0);
        assert_eq!(all(&faster), [Some(0), Some(100), Some(150_000_000), None]);
        assert_eq!((due.span(), due.rate()), (Duration::from_millis(1_500), 2.0));
    }

    #[test]
    fn times_of_a_month_are_accurate_to_a_millisecond() {
        let month = 30 * 86_400 * 1_000_000_000;
        let due = DueTimes::new(&[0, month / 3, month], 1.0);
        assert!(due.ns(1).unwrap().abs_diff(month / 3) < 1_000_000);
        assert!(due.ns(2).unwrap().abs_diff(month) < 1_000_000);
    }

    #[test]
    fn a_shuffle_keeps_all_entries_and_follows_from_the_seed() {
        let entries: Vec<Entry> = (0..1_000).map(|value| Entry { request: 0, value }).collect();
        let shuffled = |seed: u64| {
            let mut all = entries.clone();
            shuffle(&mut all, seed);
            all
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(1);
        sorted.sort_by_key(|entry| entry.value);
        assert_eq!(sorted, entries);
    }
}
