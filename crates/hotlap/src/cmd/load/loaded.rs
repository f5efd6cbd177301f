//! A completed load and its figures.

use std::time::SystemTime;

use hotlap_agent::{Contributions, Invalid, SAMPLES_PER_S, Sampled};
use hotlap_bench::validity;
use hotlap_load::Outcome;
use hotlap_load::outcome::RequestOutcome;
use hotlap_load::plan::{Pace, Plan};
use hotlap_stats::{Concurrency, Histogram, Survival};

use crate::analysis::latency::stall_shares;

/// The number of ticks per second in the series of an outcome.
const TICKS_PER_S: usize = 10;

/// A closed loop hides stalls if 1% of requests that become due at a random moment wait at least
/// this multiple of the p99. With exponential service times, this ratio is 1
/// ([`Survival::wait_at_random`]). The threshold is a convention (docs/rules.md, *Latency*).
const HIDES: f64 = 10.0;

/// A completed load, and everything needed to print it.
pub struct Loaded {
    /// The target as typed.
    pub url: String,
    /// The plan of the load.
    pub plan: Plan,
    /// The names of the plan's requests.
    pub names: Vec<String>,
    /// The outcome of the load.
    pub outcome: Outcome,
    /// What each generator contributed, if generators ran on other hosts.
    pub generators: Option<Contributions>,
    /// The time at which the measuring window opened.
    pub opened: SystemTime,
    /// Whether `--latency` was given, which prints the percentiles.
    pub latency: bool,
}

/// One request of a load that sends several.
pub struct LoadedRequest<'a> {
    /// The name of the request.
    pub name: &'a str,
    /// The outcome of the request.
    pub outcome: &'a RequestOutcome,
    /// The latency of the correct responses.
    pub latency: Histogram,
    /// The number of requests of this name that one stall delays together.
    pub concurrency: Concurrency,
}

impl LoadedRequest<'_> {
    /// The times of this request, including requests without a response.
    pub fn survival(&self) -> Survival {
        Survival::new(&self.latency, &self.outcome.censored)
    }
}

impl Loaded {
    /// The reasons why generators on other hosts did not measure one load together. Empty if this
    /// process generated the load.
    pub fn invalid(&self) -> &[Invalid] {
        self.generators.as_ref().map_or(&[], |generators| &generators.invalid)
    }

    /// The time of the last response of a server that is gone, in seconds since the window opened.
    /// A server counts as gone if, in the last second or more of the window, requests failed and
    /// no response was correct.
    pub fn silent_since_s(&self) -> Option<f64> {
        let series = &self.outcome.series;
        let last = series.iter().rposition(|tick| tick.responses > 0)? + 1;
        let (answered, rest) = series.split_at(last);
        let is_gone = rest.len() >= TICKS_PER_S && rest.iter().any(|tick| tick.failures > 0);
        is_gone.then(|| answered.len() as f64 / TICKS_PER_S as f64)
    }

    /// The part of the window before the server was gone, in seconds. Rates leave out the rest of
    /// the window.
    pub fn served_s(&self) -> f64 {
        self.silent_since_s().unwrap_or(self.outcome.window_ns as f64 / 1e9)
    }

    /// The correct responses per second, averaged until the server was gone.
    pub fn rate(&self) -> f64 {
        self.outcome.responses as f64 / self.served_s().max(1e-9)
    }

    /// Whether requests were sent so late that their times are not the server's. A lap of `hotlap
    /// run` is judged by the same rule.
    pub fn is_late(&self) -> bool {
        self.plan.pace.rate().is_some_and(|rate| {
            validity::is_late(&self.outcome.lag, self.plan.shape.connections, rate)
        })
    }

    /// The latency that was sampled during the load, and the number of requests that one stall
    /// delays together.
    pub fn sampled(&self) -> Option<(&Sampled, Concurrency)> {
        let sampled = self.generators.as_ref()?.sampled.as_ref()?;
        Some((sampled, Concurrency { in_flight: 1, rate: Some(SAMPLES_PER_S) }))
    }

    /// The shortest wait, in nanoseconds, of the slowest 1% of requests that become due at a random
    /// moment. `None` unless a closed loop hides this wait ([`HIDES`]).
    pub fn hidden_wait(&self) -> Option<f64> {
        let seen = self.user_survival();
        // The p99 is used here even if there are too few samples to print it.
        let p99 = seen.quantile(0.99);
        let wait = seen.wait_at_random(0.99);
        let is_hidden =
            self.plan.pace == Pace::Closed && !p99.is_lower_bound && wait >= HIDES * p99.ns as f64;
        is_hidden.then_some(wait)
    }

    /// The requests with their own figures, by name. Empty if the plan has only one request.
    pub fn by_request(&self) -> Vec<LoadedRequest<'_>> {
        let all = &self.outcome.by_request;
        let latency: Vec<_> = all.iter().map(|own| own.latency.to_histogram()).collect();
        let shares = stall_shares(&latency.iter().collect::<Vec<_>>());
        let parts = self.names.iter().map(String::as_str).zip(all).zip(latency).zip(shares);
        let request = |(((name, outcome), latency), share)| LoadedRequest {
            name,
            outcome,
            latency,
            concurrency: self.concurrency().of_share(share),
        };
        parts.map(request).collect()
    }

    /// The number of requests that one stall delays together.
    pub fn concurrency(&self) -> Concurrency {
        let in_flight = self.plan.shape.in_flight() as u64;
        Concurrency { in_flight, rate: self.plan.pace.rate() }
    }

    /// The times that a user sees. In an open loop, a time begins when the request was due,
    /// otherwise when the request was sent.
    pub fn user_times(&self) -> &Histogram {
        let outcome = &self.outcome;
        match outcome.response_time.is_empty() {
            true => &outcome.service_time,
            false => &outcome.response_time,
        }
    }

    /// The times that a user sees, including requests without a response.
    pub fn user_survival(&self) -> Survival {
        let outcome = &self.outcome;
        if outcome.due == 0 {
            return Survival::new(&outcome.service_time, &outcome.service_time_censored);
        }
        Survival::new(&outcome.response_time, &outcome.response_time_censored)
    }
}
