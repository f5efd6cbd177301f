//! One measurement window of one server under one load: the same record from the measurement to the
//! store, the analysis and the table.

use std::collections::BTreeMap;

use hotlap_agent::GeneratorOutcome;
use hotlap_load::{Failure, Outcome};
use hotlap_observe::{HardwareCounts, Memory, Observation};
use hotlap_stats::{Reading, Share};
use serde::{Deserialize, Serialize};

/// A measured lap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lap {
    /// The server, as an index into the experiment's participants and the run's servers.
    pub server: usize,
    /// The load, as an index into the experiment's list.
    pub load: usize,
    /// Restart number, from 0.
    pub restart: u32,
    /// Round number within the restart, from 0.
    pub round: u32,
    /// Position within the round, from 0, in the order in which laps were run.
    pub place: u32,
    /// A closed loop or a rate.
    pub kind: LapKind,
    /// When its window opened, in milliseconds since the experiment began.
    pub at_ms: u64,
    /// What the generator recorded.
    pub outcome: Outcome,
    /// What the server used meanwhile. `None` if unknown (a URL).
    pub usage: Option<Usage>,
    /// The validity checks that the lap failed. A lap is always stored, but left out of every
    /// estimate if one of them [invalidates](Violation::invalidates) it.
    pub failed: Vec<Violation>,
    /// What each of several generators contributed, in their order. Empty if there was one.
    pub generators: Vec<Contribution>,
}

/// What one of several generators contributed to a lap.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Contribution {
    /// Correct responses.
    pub responses: u64,
    /// Failures.
    pub failures: u64,
    /// Requests sent since its connections were opened, inside and outside of the windows.
    pub sent: u64,
    /// How much later than agreed it began at most, in nanoseconds.
    pub late_ns: u64,
    /// The longest time for which it stalled, in nanoseconds.
    pub paused_ns: u64,
    /// The share of the windows that its busiest thread was on a core, 0 to 1.
    pub busy: f64,
}

impl From<&GeneratorOutcome> for Contribution {
    fn from(own: &GeneratorOutcome) -> Self {
        let GeneratorOutcome { responses, failures, sent, late_ns, paused_ns, busy, .. } = *own;
        Self { responses, failures, sent, late_ns, paused_ns, busy }
    }
}

/// The kind of load in a lap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LapKind {
    /// A closed loop: throughput, cost and service time.
    Flat,
    /// A common rate: response time.
    Paced {
        /// Requests per second.
        rate: f64,
    },
    /// The rate that a search found, in a longer window than the others of the search.
    Held {
        /// Requests per second.
        rate: f64,
    },
}

impl LapKind {
    /// The rate of an open loop, in requests/s. `None` for a closed loop.
    pub fn rate(self) -> Option<f64> {
        match self {
            Self::Flat => None,
            Self::Paced { rate } | Self::Held { rate } => Some(rate),
        }
    }
}

/// What a server's process tree used between two samples, and the responses counted between the
/// same two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Wall time between the two samples, in nanoseconds.
    pub wall_ns: u64,
    /// Right responses and failures between the two samples.
    pub requests: u64,
    /// CPU time from the scheduler's accounting, in nanoseconds. `None` if unknown.
    pub cpu_ns: Option<u64>,
    /// CPU time of the run's database meanwhile, in nanoseconds. `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_ns: Option<u64>,
    /// Voluntary context switches. `None` if unknown.
    pub switches: Option<u64>,
    /// Involuntary context switches. `None` if unknown.
    pub preemptions: Option<u64>,
    /// Memory, threads and processes of the tree, from a recent reading.
    #[serde(flatten)]
    pub memory: Memory,
    /// Number of slices summed here. `None` without slices.
    pub slices: Option<u32>,
}

/// Hardware counts over some requests, in a separate interval after the warm-up, because counting
/// costs the server something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// Right responses and failures.
    pub requests: u64,
    /// The counts.
    pub counted: HardwareCounts,
}

/// A failed validity check. Most exclude the lap, see [`Violation::invalidates`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "check")]
pub enum Violation {
    /// Connections ≠ rate × mean latency (Little's law).
    LittlesLaw {
        /// Deviation, in per cent.
        off: f64,
    },
    /// Fewer connections were established than requested.
    Connections {
        /// Requested.
        asked: u64,
        /// Established.
        up: u64,
        /// How most of the lap's requests failed, if any did.
        most: Option<Failure>,
    },
    /// HTTP/2: the server allowed fewer streams on a connection than requested.
    Streams {
        /// Requested.
        asked: u64,
        /// The most that were open on one connection.
        open: u64,
    },
    /// Bytes received ≠ responses × size.
    Bytes {
        /// Expected from the responses' sizes.
        expected: u64,
        /// Received.
        received: u64,
    },
    /// A generator thread was busier than its limit, so the generator may have been the limit. The
    /// lap counts as a lower bound.
    Generator {
        /// Share of the window that its busiest thread was on a core, in per cent.
        busy: f64,
    },
    /// More failures than allowed.
    Failures {
        /// Failed requests.
        failures: u64,
        /// All requests.
        requests: u64,
        /// How most of them failed.
        most: Option<Failure>,
    },
    /// Wrong responses: the server is not ranked.
    WrongAnswers {
        /// Number of wrong responses.
        wrong: u64,
        /// What was wrong with the first, and its first bytes.
        example: String,
    },
    /// The generator sent requests late.
    Late {
        /// 99th percentile of the schedule lag, in microseconds.
        lag_us: f64,
    },
    /// The side effect happened too rarely or too often.
    SideEffect {
        /// Expected lines.
        expected: u64,
        /// Counted lines.
        counted: u64,
    },
    /// Several generators did not measure one load together: one was late, or stalled.
    Generators {
        /// What happened, with the generator's command.
        why: String,
    },
    /// A generator was lost: there are no figures.
    GeneratorLost {
        /// What happened, with the generator's command, what was being done, and a remedy.
        why: String,
    },
    /// The server's host, which is another one, did not answer for a while.
    Silence {
        /// The longest time, in milliseconds.
        ms: f64,
    },
}

impl Violation {
    /// Whether the lap is left out of every estimate. A busy generator only makes it a lower bound.
    /// Failures are what the server does to its requests: without such laps, a server would be
    /// compared by its good ones.
    pub fn invalidates(&self) -> bool {
        !matches!(self, Self::Generator { .. } | Self::Failures { .. })
    }
}

impl Usage {
    /// CPU time per request, in nanoseconds. `None` if unknown.
    pub fn cost_share(&self) -> Option<Share> {
        Some(Share { amount: self.cpu_ns? as f64, of: self.requests as f64 })
    }

    /// CPU time of the database per request, in nanoseconds. `None` without one.
    pub fn database_share(&self) -> Option<Share> {
        Some(Share { amount: self.database_ns? as f64, of: self.requests as f64 })
    }

    /// CPU time of server and database per request, in nanoseconds. `None` without a database.
    pub fn total_share(&self) -> Option<Share> {
        let both = self.cpu_ns?.saturating_add(self.database_ns?);
        Some(Share { amount: both as f64, of: self.requests as f64 })
    }
}

impl Lap {
    /// A lap before it is judged. The experiment fills in restart, round and place.
    pub fn new(
        (server, load): (usize, usize),
        kind: LapKind,
        at_ms: u64,
        outcome: Outcome,
        usage: Option<Usage>,
    ) -> Self {
        let (restart, round, place) = (0, 0, 0);
        let failed = Vec::new();
        let generators = Vec::new();
        Self {
            server,
            load,
            restart,
            round,
            place,
            kind,
            at_ms,
            outcome,
            usage,
            failed,
            generators,
        }
    }

    /// The rate of an open loop, in requests/s. `None` for a closed loop.
    pub fn rate(&self) -> Option<f64> {
        self.kind.rate()
    }

    /// Whether its server was held at the rate that a search found.
    pub fn is_held(&self) -> bool {
        matches!(self.kind, LapKind::Held { .. })
    }

    /// Whether the generator may have been the limit, so that the lap is a lower bound.
    pub fn is_generator_limited(&self) -> bool {
        self.failed.iter().any(|check| matches!(check, Violation::Generator { .. }))
    }

    /// Correct responses per second. 0 without a window.
    pub fn requests_per_s(&self) -> f64 {
        self.rate_share().value().unwrap_or(0.0)
    }

    /// Whether it is part of estimates.
    pub fn counts(&self) -> bool {
        !self.failed.iter().any(Violation::invalidates)
    }

    /// CPU time of the server's tree per request, in nanoseconds.
    pub fn cost_ns(&self) -> Option<f64> {
        self.cost_share().and_then(Share::value)
    }

    /// Its share of the CPU time per request of its round, in nanoseconds.
    pub fn cost_share(&self) -> Option<Share> {
        self.usage.as_ref()?.cost_share()
    }

    /// Its share of the requests/s of its round.
    pub fn rate_share(&self) -> Share {
        rate_share(self.outcome.responses, self.outcome.window_ns)
    }
}

/// A lap that explains where a difference in cost comes from. Such a lap
/// counts for no figure of the experiment, because the instruments cost CPU time, and runtimes are
/// started with flags that make them name their functions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainLap {
    /// The lap.
    pub lap: Lap,
    /// What an instrument saw in it. `None` if none was on.
    pub observation: Option<Observation>,
}

impl ExplainLap {
    /// Right responses and failures while the server was observed.
    pub fn requests(&self) -> u64 {
        self.lap.usage.map_or(0, |usage| usage.requests)
    }

    /// Whether it counts in estimates.
    pub fn counts(&self) -> bool {
        self.requests() > 0 && self.lap.counts()
    }

    /// Its contribution to the CPU time per request, in nanoseconds.
    pub fn cost_share(&self) -> Option<Share> {
        self.lap.cost_share()
    }
}

/// A share of requests/s: responses in a window.
pub fn rate_share(responses: u64, window_ns: u64) -> Share {
    Share { amount: responses as f64, of: window_ns as f64 / 1e9 }
}

/// One reading per round of an amount per request, from laps given as restart, round and share. The
/// laps of a round are mirrored, so a drift that is linear in time cancels within the round.
pub fn readings(laps: impl IntoIterator<Item = (u32, u32, Share)>) -> Vec<Reading> {
    let mut rounds = BTreeMap::<(u32, u32), Share>::new();
    for (restart, round, share) in laps {
        let sum = rounds.entry((restart, round)).or_default();
        *sum = sum.and(share);
    }
    let reading = |((restart, round), share)| Reading { restart, round, share };
    rounds.into_iter().map(reading).collect()
}

/// One reading of requests/s per round. A restart without any response reads as half a response:
/// more than none, but too little to matter.
pub fn rates(laps: impl IntoIterator<Item = (u32, u32, Share)>) -> Vec<Reading> {
    let mut readings = readings(laps);
    for restart in readings.chunk_by_mut(|a, b| a.restart == b.restart) {
        if restart.iter().all(is_silent) {
            restart[0].share.amount = 0.5;
        }
    }
    readings
}

/// Whether a server sent no response in a round, given its reading of requests/s.
pub fn is_silent(rate: &Reading) -> bool {
    rate.share.amount < 1.0
}

#[cfg(test)]
mod tests {
    use hotlap_stats::{level, pairs};

    use super::*;

    #[test]
    fn a_drift_that_is_linear_in_time_cancels_within_a_mirrored_round() {
        // In the order A B · B A, while the machine slows down by a tenth from lap to lap.
        let slow = |place: f64| 1.0 + 0.1 * place;
        let lap = |cost: f64, place| (0, 0, Share::whole(cost * slow(place)));
        let a = readings([lap(100.0, 0.0), lap(100.0, 3.0)]);
        let b = readings([lap(120.0, 1.0), lap(120.0, 2.0)]);
        let pairs = pairs(&b, &a);
        assert_eq!(pairs.len(), 1);
        assert!((pairs[&0] - 1.2f64.ln()).abs() < 1e-12);
    }

    /// Regression: a round without a response was left out, so a server that stalls looked better.
    #[test]
    fn a_round_without_a_response_counts() {
        let lap = |restart, round, answers| (restart, round, Share { amount: answers, of: 0.1 });
        let laps =
            [lap(0, 0, 900.0), lap(0, 1, 0.0), lap(0, 1, 0.0), lap(1, 0, 0.0), lap(1, 1, 0.0)];
        let rates = rates(laps);
        assert_eq!(
            rates.iter().map(|r| r.share.amount).collect::<Vec<_>>(),
            [900.0, 0.0, 0.5, 0.0]
        );
        assert_eq!(rates.iter().filter(|rate| is_silent(rate)).count(), 3);
        assert_eq!(level(&rates[2..], 0.95).unwrap().value, 2.5);
    }
}
