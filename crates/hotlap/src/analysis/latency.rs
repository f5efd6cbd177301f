//! Merges request times over laps. Percentiles are never averaged and never computed from too few
//! samples. They never hide requests without a response.

use hotlap_stats::{
    Censored, Concurrency, Histogram, Mean, Percentile, Survival, median, samples_suffice,
};

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
/// certain for these requests. Without the bound, readers would not see that the server hung.
pub fn known(times: &Survival, q: f64, concurrency: Concurrency) -> Option<Percentile> {
    let found = times.quantile(q);
    let is_certain =
        found.is_lower_bound || samples_suffice(times.len(), q, concurrency.delayed_by(found.ns));
    is_certain.then_some(found)
}

/// The quantiles that stalls of the machine change most.
const HIGH: [f64; 3] = [0.9, 0.99, 0.999];

/// The p90, p99 and p99.9 of one lap.
pub type HighPercentiles = [Percentile; HIGH.len()];

/// Returns the high percentiles of one lap.
pub fn high_percentiles(lap: &Times) -> HighPercentiles {
    let survival = lap.survival();
    HIGH.map(|q| survival.quantile(q))
}

/// A percentile is repeatable if its interval lies within this factor. The factor is a convention.
const RECURS: f64 = 2.0;

/// The fewest laps for which an interval says anything.
const FEWEST_LAPS: usize = 3;

/// Whether each high percentile of a server is repeatable.
pub struct Repeatable {
    /// Whether the laps agree.
    laps_agree: [bool; HIGH.len()],
    /// Whether the percentile is a lower bound in at least half of the laps.
    is_mostly_bound: [bool; HIGH.len()],
}

impl Repeatable {
    /// Judges by the server's laps. `usual` contains the [`usual_spread`] of each percentile.
    pub fn of(laps: &[HighPercentiles], usual: &[f64; HIGH.len()]) -> Self {
        let agree = |place: usize| {
            let half_width = |mean: Mean| mean.with_spread_from(usual[place]).half_width(0.95);
            over_laps(laps, place).is_some_and(|mean| half_width(mean) <= RECURS.ln())
        };
        let bounds = |place: usize| laps.iter().filter(|lap| lap[place].is_lower_bound).count();
        let places: [usize; HIGH.len()] = std::array::from_fn(|place| place);
        Self {
            laps_agree: places.map(agree),
            is_mostly_bound: places.map(|place| bounds(place) * 2 >= laps.len()),
        }
    }

    /// Whether the high percentile at this place is repeatable. A lower bound also is if the server
    /// hung in most laps.
    pub fn includes(&self, place: usize, is_lower_bound: bool) -> bool {
        self.laps_agree[place] || is_lower_bound && self.is_mostly_bound[place]
    }
}

/// Returns the median of the servers' standard deviations over laps for each high percentile, on a
/// log scale. No server is taken to vary less: of many servers, the three or four laps of some
/// agree by chance (moderated variances, as in Smyth, "Linear models and empirical Bayes methods
/// for assessing differential expression in microarray experiments", 2004).
pub fn usual_spread<'a>(
    servers: impl Iterator<Item = &'a [HighPercentiles]> + Clone,
) -> [f64; HIGH.len()] {
    std::array::from_fn(|place| {
        let spread = |laps| Some(over_laps(laps, place)?.spread());
        median(&servers.clone().filter_map(spread).collect::<Vec<_>>()).unwrap_or_default()
    })
}

/// Returns the mean of a high percentile over laps, on a log scale. A lap counts as one value,
/// because a percentile depends on the number of stalls, and not on the number of requests that
/// each stall delayed.
fn over_laps(laps: &[HighPercentiles], place: usize) -> Option<Mean> {
    let logs = laps.iter().map(|lap| (lap[place].ns as f64).ln());
    Mean::of((0..).zip(logs)).filter(|mean| mean.restarts as usize >= FEWEST_LAPS)
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

    fn laps(of_us: &[u64]) -> Vec<HighPercentiles> {
        let lap = |slowest_us: u64| {
            let mut times = Times::default();
            (0..980).for_each(|_| times.answered.record(50_000));
            (0..20).for_each(|_| times.answered.record(slowest_us * 1_000));
            high_percentiles(&times)
        };
        of_us.iter().copied().map(lap).collect()
    }

    const P90: usize = 0;
    const P99: usize = 1;

    /// Regression test: in two runs of one suite, the p99 of a server was 3.8 ms and 0.11 ms.
    #[test]
    fn a_percentile_of_laps_that_differ_is_not_repeatable() {
        let is_repeatable = |of_us: &[u64], place| {
            Repeatable::of(&laps(of_us), &[0.0; HIGH.len()]).includes(place, false)
        };
        assert!(is_repeatable(&[500, 600, 550, 450], P99));
        assert!(!is_repeatable(&[500, 5_900, 7_200, 540], P99));
        assert!(is_repeatable(&[500, 5_900, 7_200, 540], P90));
        assert!(!is_repeatable(&[500, 500], P99), "two laps");
        assert!(!is_repeatable(&[], P99));
    }

    /// Regression test: in ten runs on a noisy machine, three p99s of one server were printed: 3.7,
    /// 4.3 and 0.46 ms. Each time, the laps agreed by chance.
    #[test]
    fn laps_that_agree_where_those_of_other_servers_do_not_agree_by_chance() {
        let own = laps(&[3_140, 3_780, 4_210]);
        let is_repeatable = |others: &[&[u64]]| {
            let others: Vec<_> = others.iter().map(|us| laps(us)).collect();
            let servers = others.iter().chain([&own]).map(Vec::as_slice);
            Repeatable::of(&own, &usual_spread(servers)).includes(P99, false)
        };
        let (wide, narrow): (&[u64], &[u64]) = (&[160, 6_750, 4_730], &[160, 170, 180]);
        assert!(is_repeatable(&[]));
        assert!(is_repeatable(&[narrow, wide]));
        assert!(!is_repeatable(&[wide, wide]));
    }

    #[test]
    fn a_lower_bound_is_repeatable_if_the_server_hung_in_most_laps() {
        let hung = |us: u64, is_lower_bound| [Percentile { ns: us * 1_000, is_lower_bound }; 3];
        let judged = |laps: &[HighPercentiles]| {
            let found = Repeatable::of(laps, &[0.0; HIGH.len()]);
            [found.includes(P99, true), found.includes(P99, false)]
        };
        assert_eq!(judged(&[hung(900, true), hung(90, true), hung(2, false)]), [true, false]);
        assert_eq!(judged(&[hung(900, true), hung(1, false), hung(2, false)]), [false; 2]);
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
