//! Rounded latencies of a server, of each request, and of an open loop.

use hotlap_load::OpenLoop;
use hotlap_stats::Concurrency;
use serde::Serialize;

use crate::analysis::latency::{Repeatable, Times, curve, known};
use crate::analysis::{Analysis, MeasuredRequest, RequestTimes};
use crate::model::Run;
use crate::report::figure::{Figure, bare, millis, percentile};
use crate::text::number::{grouped, rate, rounded};

/// Latencies of one server under one load.
#[derive(Debug, Clone, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// The number of requests with a correct response.
    pub count: u64,
    /// The number of requests that failed, or were in flight or waiting when a window closed.
    /// Percentiles and the maximum count each of them with at least the time that it had waited.
    pub unanswered: u64,
    /// The rate of an open loop, in requests/s. `null` at saturation.
    pub rate: Option<f64>,
    /// The mean latency of the requests with a response, in milliseconds.
    pub mean: Option<Figure>,
    /// The standard deviation of the latency of the requests with a response, in milliseconds.
    pub stdev: Option<Figure>,
    /// The median, in milliseconds.
    pub p50: Option<Figure>,
    /// The 90th percentile, in milliseconds. `null` if there are too few samples, or if another run
    /// would probably not reproduce the percentile at the common rate.
    pub p90: Option<Figure>,
    /// The 99th percentile, in milliseconds. `null` in the same cases as `p90`.
    pub p99: Option<Figure>,
    /// The 99.9th percentile, in milliseconds. `null` in the same cases as `p90`.
    pub p999: Option<Figure>,
    /// The maximum, in milliseconds.
    pub max: Option<Figure>,
    /// The points of the percentile curve. Each is a share of the requests, and their longest
    /// latency in milliseconds. The curve ends where there are too few samples, or before the
    /// first lower bound.
    pub points: Vec<(f64, f64)>,
}

impl Latency {
    /// Computes latencies from times that were measured at this concurrency.
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

    /// Removes high percentiles that another run would probably not reproduce.
    pub fn that_recurs(self, [p90, p99, p999]: [Repeatable; 3]) -> Self {
        let kept = |figure: Option<Figure>, repeatable: Repeatable| {
            figure.filter(|figure| repeatable.includes(figure.is_lower_bound))
        };
        Self {
            p90: kept(self.p90, p90),
            p99: kept(self.p99, p99),
            p999: kept(self.p999, p999),
            ..self
        }
    }

    /// Lists known latencies: `mean 1.1 ms, stdev 0.11 ms, p50 1.1 ms, …`. Empty if none is known.
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

/// The rate that an open loop offers, compared with the responses.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenLoopView {
    /// The number of requests that became due per second.
    pub offered_per_s: f64,
    /// The number of correct responses per second.
    pub reached_per_s: f64,
    /// Whether the server did not keep up: requests found no free connection, and the queue grew.
    pub is_behind: bool,
    /// The number of requests that became due.
    pub due: u64,
    /// The number of requests that were due, but had neither a response nor a failure at the end.
    pub waiting: u64,
    /// The growth of the number of waiting requests, in requests per second.
    pub growth_per_s: f64,
    /// The time since the oldest waiting request became due, in milliseconds.
    pub oldest_ms: f64,
}

impl OpenLoopView {
    /// Returns the findings about an open loop, with rates and times rounded by `rounded`.
    pub fn of(found: OpenLoop, rounded: fn(f64) -> f64) -> Self {
        Self {
            offered_per_s: rounded(found.offered_per_s),
            reached_per_s: rounded(found.reached_per_s),
            is_behind: found.is_behind,
            due: found.due,
            waiting: found.waiting,
            growth_per_s: rounded(found.growth_per_s),
            oldest_ms: rounded(found.oldest_ns as f64 / 1e6),
        }
    }
}

/// States the consequence of a rate that was not reached.
pub const QUEUE_GREW: &str = "Response times at that rate depend on the duration.";

/// States that a rate was not reached, as the end of a sentence. Both rates are in requests/s.
pub fn not_reached(offered_per_s: f64, reached_per_s: f64) -> String {
    format!(
        "{} of {} requests/s got a response, and the queue grew",
        rate(reached_per_s),
        rate(offered_per_s),
    )
}

/// One request of a load, as measured on one server.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RequestRow {
    /// The name of the server.
    pub server: String,
    /// The name of the request.
    pub request: String,
    /// The number of requests with a response or a failure, in all laps.
    pub requests: u64,
    /// The share of this request in all requests to the server, in per cent. `null` without
    /// requests.
    pub share_percent: Option<Figure>,
    /// Failures in all laps, including wrong responses. A failure to connect belongs to no request.
    pub errors: u64,
    /// The common rate at which `p50` and `p99` are response times. `null` if they are latencies
    /// under the load itself.
    pub rate: Option<f64>,
    /// The median, in milliseconds. `null` if there are too few samples.
    pub p50: Option<Figure>,
    /// The 99th percentile, in milliseconds. `null` if there are too few samples.
    pub p99: Option<Figure>,
}

impl RequestRow {
    /// Returns one row per request to a server. With a common rate, percentiles come from laps at
    /// this rate. They are unknown if the server did not reach the rate.
    pub(super) fn all_of(
        run: &Run,
        analysis: &Analysis,
        server: usize,
        common_rate: Option<f64>,
        is_reached: bool,
    ) -> Vec<Self> {
        let load = &run.loads[analysis.load];
        let requests = &analysis.servers[server].requests;
        let all: u64 = requests.iter().map(MeasuredRequest::requests).sum();
        let in_flight = load.shape.in_flight() as u64;
        let latency = |request: &MeasuredRequest| match common_rate {
            None => percentiles(&request.service, Concurrency { in_flight, rate: load.rate }),
            Some(_) if !is_reached => [None, None],
            rate => percentiles(&request.response, Concurrency { in_flight, rate }),
        };
        let of = |request: &MeasuredRequest| {
            let [p50, p99] = latency(request);
            let share = (all > 0).then(|| 100.0 * request.requests() as f64 / all as f64);
            Self {
                server: run.servers[server].name.clone(),
                request: load.requests[request.place].clone(),
                requests: request.requests(),
                share_percent: share.map(|share| bare(share, format!("{}%", grouped(share, 1)))),
                errors: request.failures,
                rate: common_rate,
                p50,
                p99,
            }
        };
        requests.iter().map(of).collect()
    }
}

/// Returns the p50 and the p99.
fn percentiles(of: &RequestTimes, concurrency: Concurrency) -> [Option<Figure>; 2] {
    let concurrency = concurrency.of_share(of.stall_share);
    match of.survival.is_empty() {
        true => [None, None],
        false => [0.5, 0.99].map(|q| known(&of.survival, q, concurrency).map(percentile)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(responses: u64, open_ms: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        (0..responses).for_each(|i| times.answered.record(1_000_000 + i * 1_000));
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
        let p50 = latency.p50.unwrap();
        assert!(p50.is_lower_bound && (300.0..301.0).contains(&p50.value), "{p50:?}");
    }
}
