//! Merges request times over laps. Percentiles are never averaged and never computed from too few
//! samples. They never hide requests without a response.

use hotlap_stats::{Censored, Concurrency, Histogram, Mean, Percentile, Survival, samples_suffice};

use crate::model::Lap;

/// The times of requests with and without a response.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// The times of requests with a correct response.
    pub answered: Histogram,
    /// The times of requests that were not observed from beginning to end.
    pub censored: Censored,
}

impl Times {
    /// Returns the times of a lap: response times in an open loop, otherwise service times.
    pub fn of(lap: &Lap, at_a_rate: bool) -> (&Histogram, &Censored) {
        match at_a_rate {
            false => (&lap.outcome.service_time, &lap.outcome.service_time_censored),
            true => (&lap.outcome.response_time, &lap.outcome.response_time_censored),
        }
    }

    /// Merges the times of several laps.
    pub fn merged<'a>(parts: impl IntoIterator<Item = (&'a Histogram, &'a Censored)>) -> Self {
        let mut all = Self::default();
        for (answered, censored) in parts {
            all.answered.merge(answered);
            all.censored.merge(censored);
        }
        all
    }

    /// Returns the distribution of the times.
    pub fn survival(&self) -> Survival {
        Survival::new(&self.answered, &self.censored)
    }
}

/// Returns the quantile `q` of request times, or `None` if there are too few samples. `concurrency`
/// limits how many requests one stall delays. A lower bound is always returned, because it is
/// certain for these requests.
pub fn known(times: &Survival, q: f64, concurrency: Concurrency) -> Option<Percentile> {
    let found = times.quantile(q);
    let is_certain =
        found.is_lower_bound || samples_suffice(times.len(), q, concurrency.delayed_by(found.ns));
    is_certain.then_some(found)
}

/// The quantiles that stalls of the machine change most: p90, p99 and p99.9.
pub const HIGH: [f64; 3] = [0.9, 0.99, 0.999];

/// A percentile is repeatable if the upper end of its interval is at most this many times the mean
/// over laps. The factor is a convention.
const RECURS: f64 = 2.0;

/// The fewest laps for which an interval says anything.
const FEWEST_LAPS: u32 = 3;

/// Whether another run would reproduce a percentile of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeatable {
    /// Whether the laps of this server agree, as do the laps of at least half of the servers.
    do_laps_agree: bool,
    /// Whether the percentile is a lower bound in at least half of the laps.
    is_mostly_bound: bool,
}

impl Repeatable {
    /// Judges by the percentile in each lap of the server, and in each lap of all servers. If the
    /// laps of most servers disagree, the laps of a few agree by chance.
    pub fn of<'a>(own: &[Percentile], all: impl Iterator<Item = &'a [Percentile]>) -> Self {
        let servers: Vec<bool> = all.filter(|laps| !laps.is_empty()).map(do_agree).collect();
        let agreeing = servers.iter().filter(|agrees| **agrees).count();
        let bounds = own.iter().filter(|lap| lap.is_lower_bound).count();
        Self {
            do_laps_agree: do_agree(own) && agreeing * 2 >= servers.len(),
            is_mostly_bound: bounds > 0 && bounds * 2 >= own.len(),
        }
    }

    /// Returns whether the percentile over all laps is repeatable.
    pub fn includes(self, is_lower_bound: bool) -> bool {
        self.do_laps_agree || is_lower_bound && self.is_mostly_bound
    }
}

/// Returns whether a percentile is alike in all laps. Too few laps do not agree. Each lap
/// counts as one value, because a percentile depends on the number of stalls, not on the number of
/// requests that each stall delays. The interval is Student's 95% interval on a log scale.
fn do_agree(laps: &[Percentile]) -> bool {
    let logs = laps.iter().map(|lap| (lap.ns as f64).ln());
    Mean::of((0..).zip(logs)).filter(|mean| mean.restarts >= FEWEST_LAPS).is_some_and(|mean| {
        let found = mean.exp(0.95);
        found.high <= RECURS * found.value
    })
}

/// Returns the share of each request in the requests that one stall of the server delays. One
/// estimate is the request's share of all responses. The other estimate is its share of the sum of
/// all times, which is its share of the requests in flight (Little's law). The larger estimate is
/// used, so that no percentile is shown too early.
pub fn stall_shares(answered: &[&Histogram]) -> Vec<f64> {
    let count = |own: &Histogram| own.len() as f64;
    let time = |own: &Histogram| if own.is_empty() { 0.0 } else { own.mean() * count(own) };
    let all = |of: &dyn Fn(&Histogram) -> f64| -> f64 {
        answered.iter().map(|own| of(own)).sum::<f64>().max(f64::MIN_POSITIVE)
    };
    let (responses, sum) = (all(&count), all(&time));
    answered.iter().map(|own| (count(own) / responses).max(time(own) / sum)).collect()
}

/// Returns the points of the percentile curve: a share, and the time in nanoseconds below which
/// that share lies. Each halving of the remaining share has five points, as in HdrHistogram's
/// plots. The curve ends where there are too few samples, or at the first lower bound.
pub fn curve(times: &Survival, concurrency: Concurrency) -> Vec<(f64, u64)> {
    const PER_HALVING: u32 = 5;
    let quantiles = (0..).map(|i| {
        let (halvings, tick) = (i / PER_HALVING, i % PER_HALVING);
        let rest = 0.5_f64.powi(halvings as i32);
        1.0 - rest + rest / 2.0 * f64::from(tick) / f64::from(PER_HALVING)
    });
    quantiles
        .take(200)
        .map_while(|q| Some((q, known(times, q, concurrency)?)))
        .take_while(|(_, found)| !found.is_lower_bound)
        .map(|(q, found)| (q, found.ns))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laps(of_us: &[u64]) -> Vec<Percentile> {
        of_us.iter().map(|us| Percentile { ns: us * 1_000, is_lower_bound: false }).collect()
    }

    /// Returns whether a percentile is repeatable, given its value in each lap of several servers.
    /// The first server is judged.
    fn is_repeatable(servers: &[&[u64]]) -> bool {
        let all: Vec<_> = servers.iter().map(|us| laps(us)).collect();
        Repeatable::of(&all[0], all.iter().map(Vec::as_slice)).includes(false)
    }

    /// Regression test: in two runs of one suite, the p99 of a server was 3.8 ms and 0.11 ms.
    #[test]
    fn a_percentile_of_laps_that_differ_is_not_repeatable() {
        assert!(is_repeatable(&[&[500, 600, 550, 450]]));
        assert!(!is_repeatable(&[&[500, 5_900, 7_200, 540]]));
        assert!(!is_repeatable(&[&[500, 500]]), "two laps");
        assert!(!is_repeatable(&[&[]]));
    }

    /// Regression test: in ten runs on a noisy machine, three p99s of one server were printed: 3.7,
    /// 4.3 and 0.46 ms. Each time, the laps agreed by chance.
    #[test]
    fn laps_of_one_server_agree_by_chance_if_those_of_most_servers_disagree() {
        let own: &[u64] = &[3_140, 3_780, 4_210];
        let (wide, narrow): (&[u64], &[u64]) = (&[160, 6_750, 4_730], &[160, 170, 180]);
        assert!(is_repeatable(&[own, wide]));
        assert!(is_repeatable(&[own, narrow, wide]));
        assert!(!is_repeatable(&[own, wide, wide]));
        assert!(!is_repeatable(&[own, &[300], &[400, 410]]), "two servers have too few laps");
    }

    #[test]
    fn a_lower_bound_is_repeatable_if_at_least_half_of_the_laps_have_one() {
        let bound = |us: u64| Percentile { ns: us * 1_000, is_lower_bound: true };
        let judged = |own: &[Percentile]| {
            let found = Repeatable::of(own, std::iter::once(own));
            [true, false].map(|is_lower_bound| found.includes(is_lower_bound))
        };
        assert_eq!(judged(&[&[bound(900), bound(90)], &laps(&[2, 3])[..]].concat()), [true, false]);
        assert_eq!(judged(&[&[bound(900)], &laps(&[1, 2])[..]].concat()), [false; 2]);
        assert_eq!(judged(&[]), [false; 2]);
    }

    #[test]
    fn a_slow_request_has_a_larger_share_of_those_in_flight() {
        let of = |count, ns| {
            let mut times = Histogram::new();
            (0..count).for_each(|_| times.record(ns));
            times
        };
        let shares = stall_shares(&[&of(900, 1_000), &of(100, 91_000), &Histogram::new()]);
        let rounded: Vec<f64> = shares.iter().map(|s| (s * 100.0).round() / 100.0).collect();
        assert_eq!(rounded, [0.9, 0.91, 0.0]);
        assert_eq!(stall_shares(&[&Histogram::new()]), [0.0]);
    }
}
