//! Latencies out of merged histograms: never an average of percentiles, and no percentile where
//! the samples are too few to know it.

use hotlap_stats::Histogram;
use hotlap_stats::percentile::is_known;

use super::figure::{millis, rounded};
use super::{Figure, Latency};

/// What a histogram tells; `rate` is the rate at which requests were due.
#[must_use]
pub fn latency(times: &Histogram, rate: Option<f64>) -> Latency {
    if times.is_empty() {
        return Latency { rate, ..Latency::default() };
    }
    let at = |q: f64| known(times, q).map(|ns| millis(ns as f64 / 1e6));
    Latency {
        count: times.len(),
        rate,
        mean: Some(millis(times.mean() / 1e6)),
        stdev: Some(millis(times.stdev() / 1e6)),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: Some(millis(times.max() as f64 / 1e6)),
        points: points(times),
    }
}

/// The quantile in nanoseconds, if the samples are enough to know it.
#[must_use]
pub fn known(times: &Histogram, q: f64) -> Option<u64> {
    is_known(times.len(), q).then(|| times.quantile(q))
}

/// Points of the percentile curve, five between each halving of the rest (as HdrHistogram's own
/// plots have them), as far as the samples tell.
fn points(times: &Histogram) -> Vec<(f64, f64)> {
    const PER_HALVING: u32 = 5;
    let quantiles = (0..).map(|i| {
        let (halvings, tick) = (i / PER_HALVING, i % PER_HALVING);
        let rest = 0.5_f64.powi(halvings as i32);
        1.0 - rest + rest / 2.0 * f64::from(tick) / f64::from(PER_HALVING)
    });
    quantiles
        .take_while(|q| is_known(times.len(), *q))
        .take(200)
        .map(|q| (rounded(q), rounded(times.quantile(q) as f64 / 1e6)))
        .collect()
}

/// A figure's value or nothing, for tables.
#[must_use]
pub fn text(figure: Option<&Figure>) -> String {
    figure.map_or_else(String::new, |f| f.text.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_withheld() {
        let mut times = Histogram::new();
        (0..400).for_each(|i| times.record(1_000_000 + i * 1_000));
        let latency = latency(&times, None);
        assert!(latency.p99.is_some());
        assert_eq!(latency.p999, None);
        let last = latency.points.last().unwrap();
        assert!(last.0 > 0.98 && last.0 < 0.991, "{last:?}");
        assert!(latency.points.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn an_empty_histogram_tells_nothing() {
        let latency = latency(&Histogram::new(), Some(5.0));
        assert_eq!((latency.count, latency.p50, latency.points.len()), (0, None, 0));
    }
}
