//! Goals for the latency and the errors of a server (service level objectives), and the requests of
//! a window that miss them.

use std::fmt;
use std::time::Duration;

use hotlap_load::{Failure, Outcome};
use hotlap_stats::{Censored, Survival};
use serde::{Deserialize, Serialize};

/// One goal of a service level objective.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "goal")]
pub enum Objective {
    /// A percentile of the response time stays below a limit: `p99<10ms`. A request that fails
    /// misses the goal.
    Latency {
        /// The percentile as a share, for example 0.99.
        quantile: f64,
        /// The limit in nanoseconds.
        limit_ns: u64,
    },
    /// The share of requests that fail stays below a limit: `errors<0.1%`.
    Errors {
        /// The limit as a share, for example 0.001.
        share: f64,
    },
}

/// The shortest and the longest window of a search at 5 requests/s or more. At lower rates,
/// windows are longer.
pub const WINDOW: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));

/// The shortest and the longest window in which a server is held at the rate that a search found.
pub const HELD: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

/// A window takes this many times as long as the longest latency that a goal allows. At a rate 1%
/// above a server's capacity, the queue needs that long to grow to a wait of this latency.
const GOALS: u32 = 100;

/// Returns the length of a window for these goals, at a rate with enough requests.
pub fn usual_window(objectives: &[Objective]) -> Duration {
    let limits = objectives.iter().filter_map(Objective::latency);
    let longest = limits.map(|(_, ns)| Duration::from_nanos(ns)).max().unwrap_or_default();
    (longest * GOALS).clamp(WINDOW.0, WINDOW.1)
}

/// The number of requests of a window that missed a goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Misses {
    /// Requests that count, with or without a response. Requests that were never sent count only
    /// once they are older than the limit.
    pub requests: f64,
    /// Requests that missed the goal. Not a whole number if some requests were unanswered at the
    /// end.
    pub missed: f64,
}

impl Objective {
    /// The share of requests that may miss the goal.
    pub fn share(&self) -> f64 {
        match *self {
            Self::Latency { quantile, .. } => 1.0 - quantile,
            Self::Errors { share } => share,
        }
    }

    /// The smallest share of requests that may miss one of these goals.
    pub fn strictest(goals: &[Self]) -> f64 {
        goals.iter().map(Self::share).fold(1.0, f64::min)
    }

    /// The percentile as a share, and its limit in nanoseconds. `None` for other goals.
    pub fn latency(&self) -> Option<(f64, u64)> {
        match *self {
            Self::Latency { quantile, limit_ns } => Some((quantile, limit_ns)),
            Self::Errors { .. } => None,
        }
    }

    /// Whether a window met the goal. A window without requests misses it.
    pub fn is_kept(&self, window: &Outcome) -> bool {
        let misses = self.misses(window);
        misses.requests > 0.0 && misses.share() <= self.share()
    }

    /// Counts the requests of a window that missed the goal.
    ///
    /// Latency counts from the moment a request was due. A request that was unanswered when the
    /// window closed misses the goal if its age is above the limit. The product-limit estimator
    /// ([`Survival`]) takes younger unanswered requests into account. A request that was never sent
    /// also misses the goal if its age is above the limit, and is left out otherwise. Failures miss
    /// every goal. Timeouts count by their age, which is above any limit that is shorter than the
    /// timeout.
    pub fn misses(&self, window: &Outcome) -> Misses {
        let failed = window.failures.total() as f64;
        let limit_ns = match *self {
            Self::Errors { .. } => {
                return Misses { requests: window.responses as f64 + failed, missed: failed };
            }
            Self::Latency { limit_ns, .. } => limit_ns,
        };
        let timeouts = window.failures.of(Failure::Timeout) as f64;
        let sent = Censored {
            waiting: hotlap_stats::Ages::default(),
            ..window.response_time_censored.clone()
        };
        let times = Survival::new(&window.response_time, &sent);
        let seen = times.len() as f64;
        let early = (failed - timeouts).min(seen);
        let late = if times.is_empty() { 0.0 } else { times.share_above(limit_ns) };
        let waiting =
            window.response_time_censored.waiting.counts().filter(|(ns, _)| *ns > limit_ns);
        let waiting = waiting.map(|(_, count)| count).sum::<u64>() as f64;
        Misses { requests: seen + waiting, missed: early + (seen - early) * late + waiting }
    }
}

impl Misses {
    /// The share of requests that missed the goal. 0 without requests.
    pub fn share(&self) -> f64 {
        if self.requests > 0.0 { self.missed / self.requests } else { 0.0 }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Latency { quantile, limit_ns } => {
                write!(f, "p{} < {}", percent(quantile), time(limit_ns))
            }
            Self::Errors { share } => write!(f, "errors < {}%", percent(share)),
        }
    }
}

/// Formats a share in per cent, without the digits that binary fractions leave behind.
fn percent(share: f64) -> String {
    let text = format!("{:.6}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 1_000_000_000 => (ns as f64 / 1e9, "s"),
        ns if ns >= 1_000_000 => (ns as f64 / 1e6, "ms"),
        ns => (ns as f64 / 1e3, "µs"),
    };
    format!("{value} {unit}")
}

#[cfg(test)]
mod tests {
    use hotlap_load::{Failures, Phase};
    use hotlap_stats::Histogram;

    use super::*;

    const MS: u64 = 1_000_000;

    const P99: Objective = Objective::Latency { quantile: 0.99, limit_ns: 10 * MS };

    /// Returns a histogram of responses after these times in milliseconds.
    fn times(times_ms: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        times_ms.into_iter().for_each(|ms| histogram.record(ms * MS));
        histogram
    }

    /// Returns a window with these response times, unanswered requests and failures.
    fn window(times: &Histogram, censored: &Censored, failures: &Failures) -> Outcome {
        Outcome {
            responses: times.len(),
            response_time: times.clone(),
            response_time_censored: censored.clone(),
            failures: failures.clone(),
            ..Outcome::default()
        }
    }

    fn misses(times: &Histogram, censored: &Censored, failures: &Failures) -> (f64, f64) {
        let found = P99.misses(&window(times, censored, failures));
        (found.requests, (found.missed * 1e6).round() / 1e6)
    }

    fn ages(ages_ms: &[u64]) -> hotlap_stats::Ages {
        ages_ms.iter().map(|ms| ms * MS).collect()
    }

    #[test]
    fn a_response_misses_the_goal_if_it_takes_longer() {
        let none = (Censored::default(), Failures::default());
        let answered = times((0..90).map(|_| 5).chain((0..10).map(|_| 20)));
        assert_eq!(misses(&answered, &none.0, &none.1), (100.0, 10.0));
        assert_eq!(misses(&times([]), &none.0, &none.1), (0.0, 0.0));
    }

    #[test]
    fn an_unanswered_request_misses_the_goal_once_it_is_older_than_the_limit() {
        let answered = times((0..98).map(|_| 5));
        let old = Censored { open: ages(&[50, 60]), ..Censored::default() };
        assert_eq!(misses(&answered, &old, &Failures::default()), (100.0, 2.0));
        // A young unanswered request says nothing: the estimate of the late share stays the same.
        let young = Censored { open: ages(&[1, 1]), ..Censored::default() };
        assert_eq!(misses(&answered, &young, &Failures::default()), (100.0, 0.0));
        // A request that was never sent is left out while its age is below the limit.
        let waiting = Censored { waiting: ages(&[1, 50]), ..Censored::default() };
        assert_eq!(misses(&answered, &waiting, &Failures::default()), (99.0, 1.0));
    }

    #[test]
    fn a_failure_misses_every_goal_once() {
        let answered = times((0..96).map(|_| 5));
        let mut failures = Failures::default();
        failures.add(Failure::Reset, Phase::Body, 3);
        failures.add(Failure::Timeout, Phase::FirstByte, 1);
        // The failed requests are among the censored requests, at their ages.
        let censored = Censored { open: ages(&[1, 1, 1, 2_000]), ..Censored::default() };
        let (requests, missed) = misses(&answered, &censored, &failures);
        assert_eq!(requests, 100.0);
        assert!((missed - 4.0).abs() < 0.1, "{missed}");
        let window = window(&answered, &censored, &failures);
        let errors = Objective::Errors { share: 0.001 }.misses(&window);
        assert_eq!((errors.requests, errors.missed, errors.share()), (100.0, 4.0, 0.04));
    }

    #[test]
    fn an_objective_is_written_as_one_would_say_it() {
        let shown = |objective: Objective| objective.to_string();
        assert_eq!(shown(P99), "p99 < 10 ms");
        let p999 = Objective::Latency { quantile: 0.999, limit_ns: 1_500 * MS };
        assert_eq!(shown(p999), "p99.9 < 1.5 s");
        assert_eq!(shown(Objective::Latency { quantile: 0.5, limit_ns: 250_000 }), "p50 < 250 µs");
        assert_eq!(shown(Objective::Errors { share: 0.001 }), "errors < 0.1%");
    }
}
