//! A load that was run.

use std::time::SystemTime;

use hotlap_agent::{Contributions, Invalid, SAMPLES_PER_S, Sampled};
use hotlap_bench::validity;
use hotlap_load::Outcome;
use hotlap_load::outcome::RequestOutcome;
use hotlap_load::plan::{Pace, Plan};
use hotlap_stats::{Concurrency, Histogram, Survival};

use crate::analysis::latency::stall_shares;

/// A tick of the series is a tenth of a second.
const TICKS_PER_S: usize = 10;

/// A closed loop hides stalls if a request that becomes due at a random moment waits this many
/// times p99 or longer, in 1% of the time. For exponential times the two are equal
/// ([`Survival::wait_at_random`]). A convention (docs/rules.md, *Latency*).
const HIDES: f64 = 10.0;

/// A completed load, and everything needed to print it.
pub struct Loaded {
    /// The target as typed.
    pub url: String,
    /// The plan.
    pub plan: Plan,
    /// The names of its requests.
    pub names: Vec<String>,
    /// The outcome.
    pub outcome: Outcome,
    /// What each generator contributed, if they ran on other hosts.
    pub generators: Option<Contributions>,
    /// When its window opened.
    pub opened: SystemTime,
    /// Whether `--latency` was given, which prints the percentiles.
    pub latency: bool,
}

/// One request of a load that sends several.
pub struct LoadedRequest<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its outcome.
    pub outcome: &'a RequestOutcome,
    /// The latency of its correct responses.
    pub latency: Histogram,
    /// How many requests of this name one stall delays together.
    pub concurrency: Concurrency,
}

impl LoadedRequest<'_> {
    /// Its times, including those of requests without a response.
    pub fn survival(&self) -> Survival {
        Survival::new(&self.latency, &self.outcome.censored)
    }
}

impl Loaded {
    /// Why the generators did not measure one load. Empty if they did, or if there is one only.
    pub fn invalid(&self) -> &[Invalid] {
        self.generators.as_ref().map_or(&[], |generators| &generators.invalid)
    }

    /// When the last response of a server that is gone came, in seconds since the window opened. A
    /// server is gone if requests failed, and no response came, for a second or more until the
    /// window closed.
    pub fn silent_since_s(&self) -> Option<f64> {
        let series = &self.outcome.series;
        let last = series.iter().rposition(|tick| tick.responses > 0)? + 1;
        let (answered, rest) = series.split_at(last);
        let is_gone = rest.len() >= TICKS_PER_S && rest.iter().any(|tick| tick.failures > 0);
        is_gone.then(|| answered.len() as f64 / TICKS_PER_S as f64)
    }

    /// The part of the window in which the server was there, in seconds. No rate is averaged over
    /// the death of a server.
    pub fn served_s(&self) -> f64 {
        self.silent_since_s().unwrap_or(self.outcome.window_ns as f64 / 1e9)
    }

    /// Correct responses per second, while the server was there.
    pub fn rate(&self) -> f64 {
        self.outcome.responses as f64 / self.served_s().max(1e-9)
    }

    /// Whether requests were sent too late for their times to be the server's, by the same rule as
    /// for a lap of `hotlap run`.
    pub fn is_late(&self) -> bool {
        self.plan.pace.rate().is_some_and(|rate| {
            validity::is_late(&self.outcome.lag, self.plan.shape.connections, rate)
        })
    }

    /// What was sampled while the generators loaded: the latency, and how many requests one stall
    /// delays together.
    pub fn sampled(&self) -> Option<(&Sampled, Concurrency)> {
        let sampled = self.generators.as_ref()?.sampled.as_ref()?;
        Some((sampled, Concurrency { in_flight: 1, rate: Some(SAMPLES_PER_S) }))
    }

    /// How long one in 100 requests that become due at a random moment waits at least, in
    /// nanoseconds, where p99 of a closed loop cannot show it ([`HIDES`]).
    pub fn hidden_wait(&self) -> Option<f64> {
        let seen = self.user_survival();
        // Even if p99 is not printed, because the next load would show another.
        let p99 = seen.quantile(0.99);
        let wait = seen.wait_at_random(0.99);
        let is_hidden =
            self.plan.pace == Pace::Closed && !p99.is_lower_bound && wait >= HIDES * p99.ns as f64;
        is_hidden.then_some(wait)
    }

    /// The requests with figures of their own, by name. None if the plan has one request only.
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

    /// How many requests one stall delays together.
    pub fn concurrency(&self) -> Concurrency {
        let in_flight = self.plan.shape.in_flight() as u64;
        Concurrency { in_flight, rate: self.plan.pace.rate() }
    }

    /// The times that a user sees: since a request was due, in an open loop; else since it was
    /// sent.
    pub fn user_times(&self) -> &Histogram {
        let outcome = &self.outcome;
        match outcome.response_time.is_empty() {
            true => &outcome.service_time,
            false => &outcome.response_time,
        }
    }

    /// The same, including requests without a response.
    pub fn user_survival(&self) -> Survival {
        let outcome = &self.outcome;
        if outcome.due == 0 {
            return Survival::new(&outcome.service_time, &outcome.service_time_censored);
        }
        Survival::new(&outcome.response_time, &outcome.response_time_censored)
    }
}
