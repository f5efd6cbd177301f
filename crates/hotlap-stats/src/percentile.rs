//! Percentiles of times of which some are censored, and how many samples a percentile takes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Histogram;
use crate::histogram::HIGHEST_NS;

/// The most that a percentile may depend on requests that were never sent, as a share of its value,
/// and still be printed as exact. Beyond it the percentile is a lower bound.
const TOLERANCE: f64 = 0.01;

/// The probability that a percentile lies beyond the longest sample: one side of a 95 % interval.
const BEYOND: f64 = 0.025;

/// Whether `samples` are enough to estimate the quantile `q`, where one stall of the server delays
/// up to `together` of them.
///
/// The order-statistics bound (David and Nagaraja, "Order Statistics", 3rd edition, section 7.1)
/// says: all of n independent samples lie below the q quantile with probability qⁿ, which must not
/// exceed 2.5 %. That takes 36 samples for p90, 368 for p99 and 3,688 for p99.9.
///
/// But response times are not independent. A server that stalls delays every request in flight. One
/// stall yields that many slow samples at once, and they say no more about how often it stalls than
/// one of them would. Requests that are in flight together therefore count as one observation:
/// n = samples ÷ `together` ([`Together`]). With 64 connections p99 takes 368 × 64 = 23,552
/// samples, 1.2 s at 20,000 requests/s; p99.9 takes 236,032.
#[must_use]
pub fn is_known(samples: u64, q: f64, together: u64) -> bool {
    let observations = samples as f64 / together.max(1) as f64;
    q.powf(observations) <= BEYOND
}

/// How many requests one stall of the server delays together.
///
/// In a closed loop these are all that can be in flight, connections × pipeline, however long the
/// stall is. In an open loop these are the requests that become due during the stall: for one that
/// is as long as the percentile in question, rate × percentile, but no more than can be in flight.
/// Beyond that a queue forms, whose length depends on how long each stall is, and the rule is
/// optimistic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Together {
    /// Requests that can be in flight: connections × pipeline.
    pub in_flight: u64,
    /// Requests that become due per second; `None` in a closed loop.
    pub rate: Option<f64>,
}

impl Together {
    /// Samples that do not depend on each other, or whose dependence is accounted for elsewhere.
    pub const ONE: Self = Self { in_flight: 1, rate: None };

    /// The number for a percentile of `ns` nanoseconds.
    #[must_use]
    pub fn at(self, ns: u64) -> u64 {
        let due = self.rate.map_or(u64::MAX, |rate| (rate * ns as f64 / 1e9).ceil() as u64);
        due.clamp(1, self.in_flight.max(1))
    }
}

/// Ages in nanoseconds, in the buckets of [`Histogram`]. A lap has few of them, so only buckets
/// that are not empty take memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ages(BTreeMap<u64, u64>);

impl Ages {
    /// Counts one age.
    pub fn record(&mut self, ns: u64) {
        // 1,024 buckets to each power of two from 2,048 on, as HdrHistogram has them at three
        // digits. A bucket is named by the highest value in it.
        let ns = ns.min(HIGHEST_NS);
        let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(11);
        let bucket = (((ns >> shift) + 1) << shift) - 1;
        *self.0.entry(bucket).or_default() += 1;
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        other.counts().for_each(|(ns, count)| *self.0.entry(ns).or_default() += count);
    }

    /// How many ages are counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.values().sum()
    }

    /// Whether none is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The highest, in nanoseconds; 0 if there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(ns, _)| *ns)
    }

    /// Every age with how often it was counted, from the lowest up.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(ns, count)| (*ns, *count))
    }
}

impl FromIterator<u64> for Ages {
    fn from_iter<T: IntoIterator<Item = u64>>(ages: T) -> Self {
        let mut all = Self::default();
        ages.into_iter().for_each(|ns| all.record(ns));
        all
    }
}

/// What is known of requests that were not observed from beginning to end: ages in nanoseconds.
///
/// In the terms of survival analysis, `open` and `waiting` are right-censored observations, and
/// `entered` are delayed entries (left truncation). Every request that was sent, or was in flight
/// when a window opened, is either answered right or open in the end, so over any set of windows:
/// sent + entered = right answers + open.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Censored {
    /// Ages at which requests that had been sent were last seen without a right answer: in flight
    /// when a window closed, or when they failed.
    #[serde(skip_serializing_if = "Ages::is_empty")]
    pub open: Ages,
    /// Ages of the requests under way when a window opened, sent or not.
    #[serde(skip_serializing_if = "Ages::is_empty")]
    pub entered: Ages,
    /// Time since they were due of the requests that were not sent when the window closed, because
    /// no connection was free. Empty in a closed loop.
    #[serde(skip_serializing_if = "Ages::is_empty")]
    pub waiting: Ages,
}

impl Censored {
    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.open.merge(&other.open);
        self.entered.merge(&other.entered);
        self.waiting.merge(&other.waiting);
    }

    /// Whether every request was observed from beginning to end.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }
}

/// A percentile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentile {
    /// Nanoseconds.
    pub ns: u64,
    /// The true value may be larger: it depends on requests that were not answered in the window.
    /// Printed as `≥`.
    pub is_lower_bound: bool,
}

/// The distribution of times of which some are censored.
///
/// **In flight at the edge of a window.** A closed loop has a request in flight on every connection
/// whenever a window closes, most of them young. They are not evidence of a slow tail: the window
/// closes at a moment that has nothing to do with them. This is random right-censoring, and the
/// product-limit estimator (Kaplan and Meier, "Nonparametric estimation from incomplete
/// observations", JASA 53, 1958) handles it: with d answers at age t, of r requests that were
/// observed at that age, survival falls by the factor 1 − d/r, and the q quantile is the first t
/// with a survival of at most 1 − q. A request that was under way when a window opened is among the
/// r only from its age at that moment on (delayed entry: Klein and Moeschberger, "Survival
/// Analysis", 2nd edition, section 4.6), so a request that spans several windows of a held load
/// counts once at each age. If every request is answered, this is the ordinary quantile. If
/// requests are still open at ages that answered ones do not reach, the curve ends above 1 − q:
/// such a quantile is a lower bound.
///
/// **Due and never sent.** These wait because the server is behind, so their censoring is not
/// random: under overload, those that are due last wait longest. Nothing is assumed about them. The
/// quantile is computed with them unanswered for ever, and as the ordinary quantile with all
/// unanswered requests ending at their present age; if the two differ by more than 1 %, it is a
/// lower bound.
///
/// A lower bound's value is always the latter: the quantile of all ages seen, finished or not.
#[derive(Debug, Clone)]
pub struct Survival {
    /// (age, survival after it), by age; survival falls.
    steps: Vec<(u64, f64)>,
    /// (age, requests that were not seen beyond it), by age.
    seen: Vec<(u64, u64)>,
    /// Requests in all.
    len: u64,
    longest: Percentile,
    has_waiting: bool,
}

/// What happened at one age.
#[derive(Debug, Clone, Copy, Default)]
struct At {
    answered: u64,
    open: u64,
    entered: u64,
    waiting: u64,
}

impl Survival {
    /// The distribution of `answered`, with what is known of all others.
    #[must_use]
    pub fn new(answered: &Histogram, others: &Censored) -> Self {
        let mut ages = BTreeMap::<u64, At>::new();
        answered.counts().for_each(|(ns, n)| ages.entry(ns).or_default().answered += n);
        others.open.counts().for_each(|(ns, n)| ages.entry(ns).or_default().open += n);
        others.entered.counts().for_each(|(ns, n)| ages.entry(ns).or_default().entered += n);
        others.waiting.counts().for_each(|(ns, n)| ages.entry(ns).or_default().waiting += n);
        let seen = last_seen(&ages);
        let unanswered = others.open.max().max(others.waiting.max());
        Self {
            steps: steps(&ages, others.waiting.len()),
            len: seen.iter().map(|(_, n)| n).sum(),
            seen,
            longest: Percentile {
                ns: answered.max().max(unanswered),
                is_lower_bound: !others.is_empty() && unanswered >= answered.max(),
            },
            has_waiting: !others.waiting.is_empty(),
        }
    }

    /// How many requests there are: answered, and still open at the end, each once.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The longest time seen; a lower bound if no answered request took as long.
    #[must_use]
    pub fn longest(&self) -> Percentile {
        self.longest
    }

    /// The quantile `q`, 0 to 1; 0 ns if there are no requests.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Percentile {
        // Products of many factors are off by some 10⁻¹³.
        let left = 1.0 - q + 1e-12;
        let place = self.steps.partition_point(|(_, survival)| *survival > left);
        let exact = self.steps.get(place).map(|(ns, _)| *ns);
        let bound = || Percentile { ns: self.pooled(q), is_lower_bound: !self.is_empty() };
        match exact {
            None => bound(),
            Some(ns) if self.has_waiting => {
                let lower = bound();
                let is_close = ns.saturating_sub(lower.ns) as f64 <= TOLERANCE * ns as f64;
                if is_close { Percentile { ns, is_lower_bound: false } } else { lower }
            }
            Some(ns) => Percentile { ns, is_lower_bound: false },
        }
    }

    /// The quantile if all requests had ended at the age at which they were last seen.
    fn pooled(&self, q: f64) -> u64 {
        let rank = ((q * self.len as f64).ceil() as u64).clamp(1, self.len.max(1));
        let mut count = 0;
        let found = self.seen.iter().find(|(_, n)| {
            count += n;
            count >= rank
        });
        found.map_or(0, |(ns, _)| *ns)
    }
}

/// The product-limit curve; `waiting` requests are at risk at every age.
fn steps(ages: &BTreeMap<u64, At>, waiting: u64) -> Vec<(u64, f64)> {
    // How many requests were observed at each age. None can be younger than it was: if more of them
    // are observed at a higher age, between windows some went by unobserved.
    let (mut left, mut entered, mut most) = (0, 0, 0);
    let mut at_risk: Vec<u64> = Vec::with_capacity(ages.len());
    for at in ages.values().rev() {
        left += at.answered + at.open;
        most = most.max(u64::saturating_sub(left, entered)).max(at.answered);
        entered += at.entered;
        at_risk.push(most + waiting);
    }
    let mut survival = 1.0;
    ages.iter()
        .zip(at_risk.into_iter().rev())
        .filter(|((_, at), _)| at.answered > 0)
        .map(|((ns, at), risk)| {
            survival *= 1.0 - at.answered as f64 / risk as f64;
            (*ns, survival)
        })
        .collect()
}

/// How many requests were last seen at each age, answered or not. A request that was open when a
/// window closed and entered the next one is taken out where it was open: of those, the oldest that
/// is not older than the one that entered.
fn last_seen(ages: &BTreeMap<u64, At>) -> Vec<(u64, u64)> {
    let mut seen = Vec::with_capacity(ages.len());
    let mut open: Vec<(usize, u64)> = Vec::new();
    for (place, (ns, at)) in ages.iter().enumerate() {
        seen.push((*ns, at.answered + at.waiting));
        open.push((place, at.open));
        let mut entered = at.entered;
        while entered > 0
            && let Some((_, count)) = open.last_mut()
        {
            let again = entered.min(*count);
            (*count, entered) = (*count - again, entered - again);
            if *count == 0 {
                open.pop();
            }
        }
    }
    for (place, count) in open {
        seen[place].1 += count;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn of(times: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        times.into_iter().for_each(|ns| histogram.record(ns));
        histogram
    }

    fn ages(times: impl IntoIterator<Item = u64>) -> Ages {
        times.into_iter().collect()
    }

    /// `SplitMix64`, as in `hotlap_load::pace`.
    fn random(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn near(found: Percentile, ns: u64, within: f64) -> bool {
        !found.is_lower_bound && (found.ns as f64 / ns as f64 - 1.0).abs() < within
    }

    #[test]
    fn a_percentile_needs_its_samples() {
        assert!(!is_known(35, 0.9, 1) && is_known(36, 0.9, 1));
        assert!(!is_known(367, 0.99, 1) && is_known(368, 0.99, 1));
        assert!(!is_known(3_687, 0.999, 1) && is_known(3_688, 0.999, 1));
        assert!(is_known(6, 0.5, 0) && !is_known(5, 0.5, 1));
        assert!(!is_known(0, 0.5, 1) && !is_known(u64::MAX, 1.0, 1));
    }

    #[test]
    fn requests_in_flight_together_count_as_one_observation() {
        assert!(!is_known(23_551 - 64, 0.99, 64) && is_known(23_552, 0.99, 64));
        // 10 s at 20,000 requests/s on 64 connections.
        assert!(is_known(200_000, 0.99, 64) && !is_known(200_000, 0.999, 64));
        let closed = Together { in_flight: 64, rate: None };
        assert_eq!((closed.at(MS), closed.at(1_000 * MS)), (64, 64));
        let open = Together { rate: Some(1_000.0), ..closed };
        assert_eq!((open.at(MS / 2), open.at(20 * MS), open.at(1_000 * MS)), (1, 20, 64));
    }

    /// The rule by samples alone missed the stalls in nine of ten runs.
    #[test]
    fn stalls_that_delay_all_connections_are_missed_as_rarely_as_stated() {
        const CONNECTIONS: u64 = 64;
        const RUNS: u32 = 4_000;
        // A stall now and then, a little more often than one generation in a hundred: the true p99
        // is the stall.
        let missed = |generations: u64, seed: &mut u64| {
            let stalls = |seed: &mut u64| (0..generations).any(|_| random(seed) < 0.0101);
            f64::from((0..RUNS).filter(|_| !stalls(seed)).count() as u32) / f64::from(RUNS)
        };
        let least = |in_flight| (1..).find(|n| is_known(*n, 0.99, in_flight)).unwrap();
        let share = missed(least(CONNECTIONS).div_ceil(CONNECTIONS), &mut 1);
        // Three standard errors of a share of 2.5 % in 4,000 runs are 0.7 %.
        assert!(share < 0.025 + 0.007, "{share}");
        let share = missed(least(1).div_ceil(CONNECTIONS), &mut 1);
        assert!(share > 0.9, "{share}");
    }

    #[test]
    fn without_censored_requests_it_is_the_ordinary_quantile() {
        let mut seed = 3;
        let times = of((0..5_000).map(|_| (-random(&mut seed).ln() * 1e6) as u64));
        let survival = Survival::new(&times, &Censored::default());
        for q in [0.001, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999] {
            let expected = Percentile { ns: times.quantile(q), is_lower_bound: false };
            assert_eq!(survival.quantile(q), expected, "{q}");
        }
        let longest = Percentile { ns: times.max(), is_lower_bound: false };
        assert_eq!((survival.longest(), survival.len()), (longest, 5_000));
        let none = Survival::new(&Histogram::new(), &Censored::default());
        assert!(none.is_empty());
        assert_eq!(none.quantile(0.5), Percentile { ns: 0, is_lower_bound: false });
    }

    #[test]
    fn ages_share_the_buckets_of_histograms() {
        let mut seed = 17;
        let few = [0, 1, 2_047, 2_048, 4_095, 4_096, HIGHEST_NS - 1];
        let random = (0..1_000).map(|_| (random(&mut seed) * 28.0).exp() as u64);
        let times: Vec<u64> = few.into_iter().chain(random).collect();
        let (ages, times) = (ages(times.clone()), of(times));
        assert_eq!(ages.counts().collect::<Vec<_>>(), times.counts().collect::<Vec<_>>());
        assert_eq!((ages.len(), ages.max()), (times.len(), times.max()));
    }

    /// The product-limit example of Kaplan and Meier (1958), section 2: deaths at 0.8, 3.1, 5.4 and
    /// 9.2, losses at 1.0, 2.7, 7.0 and 12.1; survival 7/8, 7/10, 21/40 and 21/80.
    #[test]
    fn the_curve_is_that_of_kaplan_and_meier() {
        let answered = of([800, 3_100, 5_400, 9_200]);
        let open = ages([1_000, 2_700, 7_000, 12_100]);
        let survival = Survival::new(&answered, &Censored { open, ..Censored::default() });
        let found: Vec<f64> = survival.steps.iter().map(|s| s.1).collect();
        let expected = [0.875, 0.7, 0.525, 0.2625];
        assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-12), "{found:?}");
        assert_eq!(found.len(), 4);
        let bound = survival.quantile(0.9);
        assert!(bound.is_lower_bound && bound.ns >= 12_100, "{bound:?}");
    }

    #[test]
    fn young_requests_in_flight_make_no_percentile_a_bound() {
        let mut seed = 5;
        let answered = of((0..100_000).map(|_| (-random(&mut seed).ln() * 1e6) as u64));
        let open = ages((0..64).map(|_| (-random(&mut seed).ln() * 1e6) as u64));
        let plain = |q| answered.quantile(q);
        let survival = Survival::new(&answered, &Censored { open, ..Censored::default() });
        for q in [0.5, 0.9, 0.99, 0.999, 0.9999] {
            let found = survival.quantile(q);
            assert!(near(found, plain(q), 0.01), "{q}: {found:?}, {}", plain(q));
        }
        assert!(!survival.longest().is_lower_bound);
    }

    #[test]
    fn a_hang_at_the_end_makes_bounds_of_the_percentiles_that_it_reaches() {
        let answered = of((0..1_000).map(|i| MS + i));
        let open = ages((0..64).map(|i| 900 * MS + i * MS));
        let survival = Survival::new(&answered, &Censored { open, ..Censored::default() });
        assert!(!survival.quantile(0.5).is_lower_bound && !survival.quantile(0.9).is_lower_bound);
        let p99 = survival.quantile(0.99);
        assert!(p99.is_lower_bound && p99.ns >= 900 * MS && p99.ns <= 965 * MS, "{p99:?}");
        assert!(survival.longest().is_lower_bound && survival.longest().ns >= 963 * MS);
        // A window without any answer.
        let open = ages([100 * MS; 64]);
        let others = Censored { open, ..Censored::default() };
        let survival = Survival::new(&Histogram::new(), &others);
        let p50 = survival.quantile(0.5);
        assert!(p50.is_lower_bound && p50.ns >= 100 * MS, "{p50:?}");
        assert_eq!(survival.len(), 64);
    }

    /// A rate of twice the capacity for 10 s: request k of 10,000 is due at k ms and answered at
    /// 2k ms. The true median is 5 s; the median of what was answered, half as much.
    #[test]
    fn a_queue_of_requests_never_sent_makes_bounds() {
        let answered = of((0..5_000).map(|k| k * MS));
        let waiting = ages((5_000..10_000).map(|k| (10_000 - k) * MS));
        let survival = Survival::new(&answered, &Censored { waiting, ..Censored::default() });
        for q in [0.5, 0.9, 0.99] {
            let found = survival.quantile(q);
            assert!(found.is_lower_bound && found.ns <= (q * 10_000.0) as u64 * MS, "{found:?}");
        }
        assert_eq!(survival.len(), 10_000);
        // A few that wait do not matter to the median.
        let waiting = ages([MS; 3]);
        let survival = Survival::new(&answered, &Censored { waiting, ..Censored::default() });
        assert!(near(survival.quantile(0.5), 2_500 * MS, 0.01));
    }

    /// Requests observed through windows with pauses between them, a renewal process for each
    /// connection: every request counts once at each age, so that the quantiles are those of an
    /// observation without gaps. Counting what is open at each edge as requests of their own, or
    /// not at all where it is answered between windows, shifts them.
    #[test]
    fn windows_of_a_held_load_find_the_quantiles_of_the_whole() {
        const WINDOW: f64 = 12e6;
        const CYCLE: f64 = 15e6;
        let (mut all, mut answered) = (Histogram::new(), Histogram::new());
        let mut others = Censored::default();
        let mut seed = 11;
        for _ in 0..64 {
            let mut now = random(&mut seed) * CYCLE;
            while now < 4e9 {
                // Nine of ten take 1 ms in the mean, the others 30 ms: longer than a window.
                let mean = if random(&mut seed) < 0.9 { 1e6 } else { 30e6 };
                let takes = 1e3 - random(&mut seed).max(1e-12).ln() * mean;
                all.record(takes as u64);
                let ends = now + takes;
                let mut window = (now / CYCLE).floor();
                while window * CYCLE < ends {
                    let (opens, closes) = (window * CYCLE, window * CYCLE + WINDOW);
                    if now < opens {
                        others.entered.record((opens - now) as u64);
                    }
                    if now < closes {
                        match ends < closes {
                            true => answered.record(takes as u64),
                            false => others.open.record((closes - now) as u64),
                        }
                    }
                    window += 1.0;
                }
                now = ends;
            }
        }
        let survival = Survival::new(&answered, &others);
        for q in [0.5, 0.9, 0.99] {
            let (found, whole) = (survival.quantile(q), all.quantile(q));
            assert!(near(found, whole, 0.06), "{q}: {found:?} and {whole}");
        }
    }

    /// Laps of 0.1 s: a hang of 1.5 s began in one and ended between two of them.
    #[test]
    fn a_hang_over_many_windows_is_one_request_a_connection() {
        let mut others = Censored::default();
        for lap in 0..14 {
            (0..64).for_each(|_| others.open.record(50 * MS + lap * 100 * MS));
            (0..64).for_each(|_| others.entered.record(50 * MS + lap * 100 * MS));
        }
        let last = 1_450 * MS;
        (0..64).for_each(|_| others.open.record(last));
        let answered = of((0..10_000).map(|i| MS + i));
        let survival = Survival::new(&answered, &others);
        assert_eq!(survival.len(), 10_064);
        assert!(near(survival.quantile(0.99), answered.quantile(0.99), 0.001));
        let p999 = survival.quantile(0.999);
        assert!(p999.is_lower_bound && p999.ns >= last, "{p999:?}");
        // And if the last ones are seen to be answered, nothing of it is a bound.
        others.entered.merge(&ages([last; 64]));
        let mut ended = answered.clone();
        ended.merge(&of([1_500 * MS; 64]));
        let survival = Survival::new(&ended, &others);
        assert_eq!(survival.len(), 10_064);
        assert!(near(survival.quantile(0.999), 1_500 * MS, 0.001));
        assert!(!survival.longest().is_lower_bound);
    }
}
