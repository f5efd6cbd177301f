//! Latencies, rounded.

use hotlap_stats::Concurrency;
use serde::Serialize;

use super::figure::{Figure, millis, percentile};
use crate::analysis::latency::{Times, curve, known, recurs};
use crate::text::number::rounded;

/// Latencies of one server under one load.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct Latency {
    /// Requests with a correct response.
    pub count: u64,
    /// Requests without one: in flight or waiting when a window closed, or failed. They count in
    /// percentiles and the maximum with their age at that time.
    pub unanswered: u64,
    /// The rate of an open loop; `None` at saturation.
    pub rate: Option<f64>,
    /// The mean of the requests with a response, in milliseconds.
    pub mean: Option<Figure>,
    /// Their standard deviation, in milliseconds.
    pub stdev: Option<Figure>,
    /// Half are shorter, in milliseconds.
    pub p50: Option<Figure>,
    /// 90 % are shorter, in milliseconds.
    pub p90: Option<Figure>,
    /// 99 % are shorter, in milliseconds; `None` if there are too few samples.
    pub p99: Option<Figure>,
    /// 99.9 % are shorter, in milliseconds; `None` if there are too few samples.
    pub p999: Option<Figure>,
    /// The longest, in milliseconds.
    pub max: Option<Figure>,
    /// Points of the percentile curve: the share, and the time in milliseconds below which it lies.
    /// The curve ends where there are too few samples.
    pub points: Vec<(f64, f64)>,
}

impl Latency {
    /// The latencies of times that were measured at this concurrency.
    pub fn of(times: &Times, concurrency: Concurrency) -> Self {
        let rate = concurrency.rate;
        let survival = times.survival();
        if survival.is_empty() {
            return Self { rate, ..Self::default() };
        }
        let at = |q: f64| known(&survival, q, concurrency).map(percentile);
        let answered = &times.answered;
        let of_answered = |ns: f64| (!answered.is_empty()).then(|| millis(ns / 1e6));
        let curve = curve(&survival, concurrency).into_iter();
        Self {
            count: answered.len(),
            unanswered: survival.len() - answered.len(),
            rate,
            mean: of_answered(answered.mean()),
            stdev: of_answered(answered.stdev()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: Some(percentile(survival.longest())),
            points: curve.map(|(q, ns)| (rounded(q), rounded(ns as f64 / 1e6))).collect(),
        }
    }

    /// The same without high percentiles that would not come out again, given the laps. A lower
    /// bound is certain for these requests, and stays.
    pub fn that_recurs(self, laps: &[Times]) -> Self {
        let kept = |figure: Option<Figure>, q| {
            figure.filter(|figure| figure.is_lower_bound || recurs(laps, q))
        };
        Self {
            p90: kept(self.p90, 0.9),
            p99: kept(self.p99, 0.99),
            p999: kept(self.p999, 0.999),
            ..self
        }
    }

    /// `mean 1.1 ms, stdev 0.11 ms, p50 1.1 ms, …`; empty if nothing is known.
    pub fn in_words(&self) -> String {
        let all = [
            ("mean", &self.mean),
            ("stdev", &self.stdev),
            ("p50", &self.p50),
            ("p90", &self.p90),
            ("p99", &self.p99),
            ("p99.9", &self.p999),
            ("max", &self.max),
        ];
        let known = all.iter().filter_map(|(name, figure)| {
            figure.as_ref().map(|figure| format!("{name} {}", figure.text))
        });
        known.collect::<Vec<_>>().join(", ")
    }
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
        let latency = Latency::of(&times(400, []), Concurrency::ONE);
        assert!(latency.p99.is_some());
        assert_eq!(latency.p999, None);
        let last = latency.points.last().unwrap();
        assert!(last.0 > 0.98 && last.0 < 0.991, "{last:?}");
        assert!(latency.points.windows(2).all(|w| w[0].0 < w[1].0));
        let stalls_together =
            Latency::of(&times(400, []), Concurrency { in_flight: 64, rate: None });
        assert!(stalls_together.p50.is_some() && stalls_together.p99.is_none());
    }

    #[test]
    fn an_empty_histogram_tells_nothing() {
        let latency = Latency::of(&Times::default(), Concurrency { in_flight: 1, rate: Some(5.0) });
        assert_eq!((latency.count, latency.p50, latency.points.len()), (0, None, 0));
    }

    #[test]
    fn a_percentile_that_rests_on_what_hangs_says_so() {
        let latency = Latency::of(&times(1_000, [1_200; 64]), Concurrency::ONE);
        let text = |figure: &Option<Figure>| figure.as_ref().unwrap().text.clone();
        assert_eq!((text(&latency.p50), text(&latency.p99)), ("1.5 ms".into(), "≥ 1.2 s".into()));
        assert_eq!((latency.count, latency.unanswered), (1_000, 64));
        let max = latency.max.unwrap();
        assert!(max.is_lower_bound && max.text == "≥ 1.2 s");
        assert!(latency.points.iter().all(|p| p.1 < 3.0), "the curve ends before it");
    }

    #[test]
    fn a_server_that_never_answers_has_lower_bounds_alone() {
        let latency = Latency::of(&times(0, [300; 64]), Concurrency::ONE);
        assert_eq!((latency.count, latency.mean), (0, None));
        assert!(latency.p50.unwrap().text.starts_with("≥ 300"));
    }
}
