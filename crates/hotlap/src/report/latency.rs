//! Latencies out of merged histograms: never an average of percentiles, no percentile that the
//! samples are too few to tell, and none that hides the requests that were not answered.

use hotlap_stats::{Censored, Concurrency, Histogram, Percentile, Survival, samples_suffice};

use super::figure::{millis, rounded};
use super::{Figure, Latency};

/// Times of requests, answered and not.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// Of requests that were answered right.
    pub answered: Histogram,
    /// Of those that were not observed from beginning to end.
    pub censored: Censored,
}

impl Times {
    /// All of these together.
    pub fn merged<'a>(parts: impl IntoIterator<Item = (&'a Histogram, &'a Censored)>) -> Self {
        let mut all = Self::default();
        for (answered, censored) in parts {
            all.answered.merge(answered);
            all.censored.merge(censored);
        }
        all
    }

    /// Their distribution.
    #[must_use]
    pub fn survival(&self) -> Survival {
        Survival::new(&self.answered, &self.censored)
    }
}

/// What times tell that were measured at this concurrency.
#[must_use]
pub fn latency(times: &Times, concurrency: Concurrency) -> Latency {
    let rate = concurrency.rate;
    let survival = times.survival();
    if survival.is_empty() {
        return Latency { rate, ..Latency::default() };
    }
    let at = |q: f64| known(&survival, q, concurrency).map(figure);
    let answered = &times.answered;
    let moment = |ns: f64| (!answered.is_empty()).then(|| millis(ns / 1e6));
    Latency {
        count: answered.len(),
        unanswered: survival.len() - answered.len(),
        rate,
        mean: moment(answered.mean()),
        stdev: moment(answered.stdev()),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: Some(figure(survival.longest())),
        points: points(&survival, concurrency),
    }
}

/// The quantile `q`, if the samples are enough to tell it. A lower bound is told in any case: it
/// says of these requests what is certain, and withholding it would hide that the server hung.
#[must_use]
pub fn known(times: &Survival, q: f64, concurrency: Concurrency) -> Option<Percentile> {
    let found = times.quantile(q);
    let is_told =
        found.is_lower_bound || samples_suffice(times.len(), q, concurrency.delayed_by(found.ns));
    is_told.then_some(found)
}

/// A percentile as a figure in milliseconds, with `≥` if it is a lower bound.
#[must_use]
pub fn figure(percentile: Percentile) -> Figure {
    let figure = millis(percentile.ns as f64 / 1e6);
    if percentile.is_lower_bound { figure.at_least() } else { figure }
}

/// Points of the percentile curve, five between each halving of the rest (as HdrHistogram's own
/// plots have them), as far as the samples tell and no point is a lower bound.
fn points(times: &Survival, concurrency: Concurrency) -> Vec<(f64, f64)> {
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
        .map(|(q, found)| (rounded(q), rounded(found.ns as f64 / 1e6)))
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

    fn times(answers: u64, open_ms: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        (0..answers).for_each(|i| times.answered.record(1_000_000 + i * 1_000));
        times.censored.open = open_ms.into_iter().map(|ms| ms * 1_000_000).collect();
        times
    }

    #[test]
    fn what_is_not_known_is_withheld() {
        let latency = latency(&times(400, []), Concurrency::ONE);
        assert!(latency.p99.is_some());
        assert_eq!(latency.p999, None);
        let last = latency.points.last().unwrap();
        assert!(last.0 > 0.98 && last.0 < 0.991, "{last:?}");
        assert!(latency.points.windows(2).all(|w| w[0].0 < w[1].0));
        let stalls_together =
            super::latency(&times(400, []), Concurrency { in_flight: 64, rate: None });
        assert!(stalls_together.p50.is_some() && stalls_together.p99.is_none());
    }

    #[test]
    fn an_empty_histogram_tells_nothing() {
        let latency = latency(&Times::default(), Concurrency { in_flight: 1, rate: Some(5.0) });
        assert_eq!((latency.count, latency.p50, latency.points.len()), (0, None, 0));
    }

    #[test]
    fn a_percentile_that_rests_on_what_hangs_says_so() {
        let latency = latency(&times(1_000, [1_200; 64]), Concurrency::ONE);
        let text = |figure: &Option<Figure>| super::text(figure.as_ref());
        assert_eq!((text(&latency.p50), text(&latency.p99)), ("1.5 ms".into(), "≥ 1.2 s".into()));
        assert_eq!((latency.count, latency.unanswered), (1_000, 64));
        let max = latency.max.unwrap();
        assert!(max.is_lower_bound && max.text == "≥ 1.2 s");
        assert!(latency.points.iter().all(|p| p.1 < 3.0), "the curve ends before it");
    }

    #[test]
    fn a_server_that_never_answers_has_lower_bounds_alone() {
        let latency = latency(&times(0, [300; 64]), Concurrency::ONE);
        assert_eq!((latency.count, latency.mean), (0, None));
        assert!(latency.p50.unwrap().text.starts_with("≥ 300"));
    }
}
