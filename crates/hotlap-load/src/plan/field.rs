//! Fields, which are the parts of requests that vary from request to request. This module also has
//! recorded orders of requests, their due times, and the random numbers of fields and orders.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A part of requests that varies, such as an id.
///
/// In a request and in its expected body, `${name}` is replaced by the value of the field. All
/// placeholders for one field in a request have the same value. For the n-th request that uses a
/// field, the value is a function of the seed and n. Every server of a run therefore gets the same
/// sequence, except for UUIDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// The name: letters, digits, `-` and `_`.
    pub name: String,
    /// The source of the values.
    pub source: ValueSource,
    /// The index of another field whose random numbers this field uses too. If that field draws
    /// from n integers, a random choice from n texts is then a function of the integer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn_with: Option<usize>,
}

/// The source of the values of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueSource {
    /// Each value is the previous value plus 1.
    Counter {
        /// The first value.
        from: u64,
    },
    /// Random integers, each equally likely.
    Integer {
        /// The smallest integer.
        min: u64,
        /// The largest integer.
        max: u64,
    },
    /// One of several texts.
    Choice {
        /// The texts. There must be at least one.
        values: Shared<String>,
        /// Whether the texts are drawn at random. Otherwise, the texts are used in order, again
        /// and again.
        random: bool,
    },
    /// Random UUIDs of version 4 (RFC 9562 section 5.4).
    Uuid,
    /// Random letters, digits, `-` and `_`.
    Text {
        /// The number of characters.
        length: usize,
    },
}

/// The maximum length of a [`ValueSource::Text`]. The length is limited because each value is in
/// memory while it is sent.
pub const MAX_TEXT: usize = 1 << 20;

/// The characters of [`ValueSource::Text`]. There are 64, so that 6 random bits choose one. None of
/// them has to be escaped in a URL, in JSON or in a header.
const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Field {
    /// Creates a field with its own random numbers.
    pub fn new(name: impl Into<String>, source: ValueSource) -> Self {
        Self { name: name.into(), source, drawn_with: None }
    }

    /// Returns the key of the random values, for the `index`-th field of a plan.
    pub(crate) fn key(&self, seed: u64, index: usize) -> u64 {
        mix(seed ^ mix(self.drawn_with.unwrap_or(index) as u64 + 1))
    }

    /// Returns whether a name is valid.
    pub fn is_name(name: &str) -> bool {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !name.is_empty() && name.chars().all(is_valid)
    }
}

impl ValueSource {
    /// Returns the seed of the values for one server, numbered `unique`. UUIDs differ from server
    /// to server, because two servers may share a database. Other values are the same for all
    /// servers.
    pub(crate) fn seed(&self, seed: u64, unique: u64) -> u64 {
        if *self == Self::Uuid { seed ^ mix(unique) } else { seed }
    }

    /// Returns the `n`-th value, from 0. The value is written to `buffer`, unless it is already in
    /// memory.
    #[inline]
    pub(crate) fn value<'a>(&'a self, key: u64, n: u64, buffer: &'a mut Buffer) -> &'a [u8] {
        match self {
            Self::Counter { from } => buffer.integer.format(from.wrapping_add(n)).as_bytes(),
            Self::Integer { min, max } => {
                let span = (max - min).wrapping_add(1);
                buffer.integer.format(min + below(number(key, n), span)).as_bytes()
            }
            Self::Choice { values, random } => {
                let count = values.len() as u64;
                let index = if *random { below(number(key, n), count) } else { n % count };
                values[index as usize].as_bytes()
            }
            Self::Uuid => {
                uuid(number(key, 2 * n), number(key, 2 * n + 1), &mut buffer.uuid);
                &buffer.uuid
            }
            Self::Text { length } => {
                buffer.text.resize(*length, 0);
                // Each random number gives ten characters of 6 bits.
                for (block, part) in (0..).zip(buffer.text.chunks_mut(10)) {
                    let mut bits = number(key ^ mix(block), n);
                    for byte in part {
                        *byte = CHARACTERS[(bits & 63) as usize];
                        bits >>= 6;
                    }
                }
                &buffer.text
            }
        }
    }

    /// Returns how many values must be sent before a value may be repeated. Returns `None` if no
    /// value may be repeated.
    pub(crate) fn distinct(&self) -> Option<u64> {
        match self {
            Self::Counter { .. } | Self::Uuid => None,
            Self::Integer { min, max } => Some((max - min).saturating_add(1)),
            Self::Choice { values, .. } => Some(values.len() as u64),
            // Random texts only make requests differ, so they may be repeated.
            Self::Text { .. } => Some(1),
        }
    }

    /// Returns what is wrong with the source, if anything.
    pub(super) fn problem(&self) -> Option<&'static str> {
        match self {
            Self::Integer { min, max } if min > max => Some("its minimum is above its maximum"),
            Self::Choice { values, .. } if values.is_empty() => Some("it has no values"),
            Self::Text { length: 0 } => Some("its length is 0"),
            Self::Text { length } if *length > MAX_TEXT => Some("its length is over 1 MiB"),
            _ => None,
        }
    }
}

/// The memory to which values are written.
#[derive(Clone)]
pub(crate) struct Buffer {
    integer: itoa::Buffer,
    uuid: [u8; 36],
    text: Vec<u8>,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { integer: itoa::Buffer::new(), uuid: [b'-'; 36], text: Vec::new() }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Buffer")
    }
}

/// Writes a UUID of version 4 with these random bits. The version and the variant replace six of
/// the bits.
fn uuid(high: u64, low: u64, text: &mut [u8; 36]) {
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    // A UUID has hyphens between its digits at positions 8, 13, 18 and 23.
    text[..8].copy_from_slice(&digits((high >> 32) as u32));
    let (middle, next) = (digits(high as u32), digits((low >> 32) as u32));
    text[9..13].copy_from_slice(&middle[..4]);
    text[14..18].copy_from_slice(&middle[4..]);
    text[19..23].copy_from_slice(&next[..4]);
    text[24..28].copy_from_slice(&next[4..]);
    text[28..].copy_from_slice(&digits(low as u32));
}

/// Returns the eight hexadecimal digits of a number, computed in one register. Each byte gets four
/// bits. A byte becomes `a` to `f` if adding 6 carries out of its lower half, and `0` to `9`
/// otherwise.
fn digits(number: u32) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let mut bytes = u64::from(number);
    bytes = (bytes | bytes << 16) & 0x0000_ffff_0000_ffff;
    bytes = (bytes | bytes << 8) & 0x00ff_00ff_00ff_00ff;
    bytes = (bytes | bytes << 4) & (0x0f * EACH);
    let letters = ((bytes + 6 * EACH) >> 4) & EACH;
    const LETTERS_AFTER: u64 = (b'a' - b'0' - 10) as u64;
    (bytes + u64::from(b'0') * EACH + letters * LETTERS_AFTER).to_be_bytes()
}

/// A list that many plans and threads share rather than copy. A file may have many lines, and a
/// body may have many bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<T>", into = "Vec<T>")]
#[serde(bound(serialize = "T: Clone + Serialize", deserialize = "T: Deserialize<'de>"))]
pub struct Shared<T>(Arc<Vec<T>>);

impl<T> Deref for Shared<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> From<Vec<T>> for Shared<T> {
    fn from(list: Vec<T>) -> Self {
        Self(Arc::new(list))
    }
}

impl<T: Clone> Shared<T> {
    /// Returns the list so that it can be changed. If others share the list, it is copied first.
    pub(crate) fn make_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Clone> From<Shared<T>> for Vec<T> {
    fn from(list: Shared<T>) -> Self {
        Arc::unwrap_or_clone(list.0)
    }
}

/// One entry of a recorded order: which request is sent, and with which values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEntry {
    /// The index of the request in the plan.
    pub request: u32,
    /// The number, from 0, of the value that each field of the request has.
    pub value: u32,
}

/// Shuffles entries so that each is equally likely at each position (Fisher and Yates, in Knuth,
/// TAOCP 2, section 3.4.2 P). The same seed gives the same order.
pub fn shuffle(entries: &mut [OrderEntry], seed: u64) {
    let key = mix(seed);
    for last in (1..entries.len()).rev() {
        let other = below(number(key, last as u64), last as u64 + 1);
        entries.swap(last, other as usize);
    }
}

/// The due times of recorded requests, counted from the start of the load.
///
/// Each time takes 4 bytes, as a multiple of a tick. A tick is 1 µs for a recording of up to 71
/// minutes. For a longer recording the tick is longer, such as 20 µs for a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DueTimes {
    ticks: Shared<u32>,
    /// The length of a tick in nanoseconds.
    tick_ns: f64,
}

/// The shortest tick, before a change of speed.
const TICK_NS: f64 = 1_000.0;

impl DueTimes {
    /// Creates due times from times in nanoseconds, in ascending order. The first request is due at
    /// once. `speed` divides all times.
    pub fn new(times_ns: &[u64], speed: f64) -> Self {
        let (first, last) =
            (times_ns.first().copied().unwrap_or(0), times_ns.last().copied().unwrap_or(0));
        let tick_ns = (last.saturating_sub(first) as f64 / f64::from(u32::MAX)).max(TICK_NS);
        let tick = |ns: &u64| (ns.saturating_sub(first) as f64 / tick_ns).round() as u32;
        let ticks: Vec<u32> = times_ns.iter().map(tick).collect();
        Self { ticks: ticks.into(), tick_ns: tick_ns / speed }
    }

    /// Returns the number of requests.
    pub fn count(&self) -> usize {
        self.ticks.len()
    }

    /// Returns the due time of a request in nanoseconds after the start. Returns `None` after the
    /// last request.
    #[inline]
    pub(crate) fn ns(&self, request: usize) -> Option<u64> {
        self.ticks.get(request).map(|tick| (f64::from(*tick) * self.tick_ns).round() as u64)
    }

    /// Returns the time from the first request to the last.
    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.ns(self.count().saturating_sub(1)).unwrap_or(0))
    }

    /// Returns the average number of requests per second.
    pub fn rate(&self) -> f64 {
        // All requests of a recording may have the same time.
        self.count() as f64 / self.span().as_secs_f64().max(TICK_NS / 1e9)
    }

    /// Returns what is wrong with the times, if anything.
    pub(super) fn problem(&self) -> Option<&'static str> {
        match () {
            () if self.ticks.is_empty() => Some("a recording needs at least 1 request"),
            () if !(self.tick_ns.is_finite() && self.tick_ns > 0.0) => {
                Some("the speed of a recording must be a positive number")
            }
            () if !self.ticks.is_sorted() => Some("the times of a recording must ascend"),
            () => None,
        }
    }
}

// Random numbers are pure functions: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom
// number generators, OOPSLA 2014). The n-th number of a key can be computed directly, so no state
// has to be kept.

/// The increment of `SplitMix64`.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step of `SplitMix64`, which adds the increment and mixes all bits.
#[inline]
pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the `n`-th random number of a key, which has 64 uniform bits.
#[inline]
pub(crate) fn number(key: u64, n: u64) -> u64 {
    mix(key.wrapping_add(n.wrapping_mul(GOLDEN)))
}

/// Maps 64 uniform bits to 0..`span`. Each value is equally likely to within `span` / 2⁶⁴ (Lemire:
/// Fast random integer generation in an interval, ACM TOMACS 29, 2019). A span of 0 means 2⁶⁴.
#[inline]
pub(crate) fn below(bits: u64, span: u64) -> u64 {
    match span {
        0 => bits,
        _ => ((u128::from(bits) * u128::from(span)) >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn values(source: &ValueSource, count: u64) -> Vec<String> {
        let mut buffer = Buffer::default();
        let value = |n| String::from_utf8(source.value(7, n, &mut buffer).to_vec()).unwrap();
        (0..count).map(value).collect()
    }

    fn choice(random: bool) -> ValueSource {
        let texts = ["a", "bb", "ccc"].map(str::to_owned).to_vec();
        ValueSource::Choice { values: texts.into(), random }
    }

    #[test]
    fn a_counter_counts_and_a_list_is_repeated() {
        assert_eq!(values(&ValueSource::Counter { from: 98 }, 4), ["98", "99", "100", "101"]);
        assert_eq!(values(&choice(false), 5), ["a", "bb", "ccc", "a", "bb"]);
    }

    #[test]
    fn random_integers_have_the_whole_range() {
        let seen: BTreeSet<String> =
            values(&ValueSource::Integer { min: 3, max: 7 }, 200).into_iter().collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["3", "4", "5", "6", "7"]);
        let all = ValueSource::Integer { min: 0, max: u64::MAX };
        assert!(values(&all, 10).iter().all(|value| value.parse::<u64>().is_ok()));
        let seen: BTreeSet<String> = values(&choice(true), 100).into_iter().collect();
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn uuids_have_version_and_variant_and_differ() {
        let all = values(&ValueSource::Uuid, 1_000);
        for uuid in &all {
            let groups: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{uuid}");
            assert_eq!(&uuid[14..15], "4", "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
            assert!(uuid.chars().all(|c| c == '-' || c.is_ascii_hexdigit()), "{uuid}");
        }
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 1_000);
    }

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 1, 0x0123_4567, 0x89ab_cdef, 0xfedc_ba98, u32::MAX] {
            assert_eq!(String::from_utf8_lossy(&digits(number)), format!("{number:08x}"));
        }
        let mut text = [b'-'; 36];
        uuid(0x0123_4567_89ab_cdef, 0x0123_4567_89ab_cdef, &mut text);
        assert_eq!(text.escape_ascii().to_string(), "01234567-89ab-4def-8123-456789abcdef");
    }

    #[test]
    fn texts_have_their_length_and_differ() {
        let all = values(&ValueSource::Text { length: 25 }, 100);
        assert!(all.iter().all(|text| text.len() == 25 && Field::is_name(text)), "{all:?}");
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 100);
        assert_ne!(all[0][..10], all[0][10..20]);
    }

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
        let entries: Vec<OrderEntry> =
            (0..1_000).map(|value| OrderEntry { request: 0, value }).collect();
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

    #[test]
    fn numbers_below_a_span_are_uniform() {
        let mut counts = [0u32; 10];
        for n in 0..100_000 {
            counts[below(number(7, n), 10) as usize] += 1;
        }
        // The limit is five standard deviations of 95.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 475), "{counts:?}");
        assert_eq!(below(u64::MAX, 10), 9);
        assert_eq!(below(u64::MAX, 0), u64::MAX);
    }
}
