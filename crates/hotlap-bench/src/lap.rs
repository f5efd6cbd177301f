//! The record of a lap: the measurement of one server under one load. The measurement, the store,
//! the analysis and the table all use this record.

use std::collections::BTreeMap;

use hotlap_agent::GeneratorOutcome;
use hotlap_load::{Failure, Outcome};
use hotlap_observe::{Gauged, HardwareCounts, Memory, Observation};
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
    /// Position among the round's laps under this load, from 0, in the order in which they ended.
    pub place: u32,
    /// Whether the load was a closed loop or had a rate.
    pub kind: LapKind,
    /// When the lap's first window opened, in milliseconds since the experiment began.
    pub at_ms: u64,
    /// What the generator recorded.
    pub outcome: Outcome,
    /// The resources that the server used during the lap. `None` if its processes are unknown.
    pub usage: Option<Usage>,
    /// The validity checks that the lap failed. A lap is always stored, but left out of every
    /// estimate if a failed check [invalidates](Violation::invalidates) it.
    pub failed: Vec<Violation>,
    /// The contributions of the generators, in order. Empty if there was only one generator.
    pub generators: Vec<Contribution>,
}

/// The contribution of one of several generators to a lap.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Contribution {
    /// Correct responses.
    pub responses: u64,
    /// Failures.
    pub failures: u64,
    /// Requests sent since the connections were opened, inside and outside of the windows.
    pub sent: u64,
    /// The longest time by which the generator began later than agreed, in nanoseconds.
    pub late_ns: u64,
    /// The longest time for which the generator stalled, in nanoseconds.
    pub paused_ns: u64,
    /// The share of the windows during which the generator's busiest thread was busy, 0 to 1.
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
    /// A closed loop, which shows throughput, cost and service time.
    Flat,
    /// An open loop, which shows response time. All servers have the same rate, except in a search.
    Paced {
        /// Requests per second.
        rate: f64,
    },
    /// An open loop after a search, in a longer window: at the rate that was found, or a lower one.
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

/// The resources that a server's process tree used between two samples, and the number of requests
/// completed between the same two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Wall time between the two samples, in nanoseconds.
    pub wall_ns: u64,
    /// Correct responses and failures between the two samples.
    pub requests: u64,
    /// CPU time from the scheduler's accounting, in nanoseconds. `None` if unknown.
    pub cpu_ns: Option<u64>,
    /// CPU time of the server's database, in nanoseconds. `None` if no database is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_ns: Option<u64>,
    /// What a gauge timed on the server's cores between the two samples. `None` without a gauge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gauged: Option<Gauged>,
    /// Voluntary context switches. `None` if unknown.
    pub switches: Option<u64>,
    /// Involuntary context switches, including about 500 per second and core for the gauge. `None`
    /// if unknown.
    pub preemptions: Option<u64>,
    /// Memory, threads and processes of the process tree, from a recent reading.
    #[serde(flatten)]
    pub memory: Memory,
    /// The number of slices in this sum. `None` without slices.
    pub slices: Option<u32>,
}

/// Hardware counts over some requests. They are taken at the end of a warm-up's steady load, not
/// in laps, because counting costs the server CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// Correct responses and failures while the counters were on.
    pub requests: u64,
    /// The counts.
    pub counted: HardwareCounts,
}

/// A failed validity check. Most failed checks exclude the lap: see [`Violation::invalidates`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "check")]
pub enum Violation {
    /// The number of requests in flight differs from rate × mean latency (Little's law).
    LittlesLaw {
        /// Deviation, in per cent.
        off: f64,
    },
    /// Fewer connections were established than requested.
    Connections {
        /// The number of connections requested.
        asked: u64,
        /// The number of connections established.
        up: u64,
        /// The most frequent failure among the lap's requests, if any failed.
        most: Option<Failure>,
    },
    /// HTTP/2: the server allowed fewer streams on a connection than requested.
    Streams {
        /// The number of streams requested.
        asked: u64,
        /// The largest number of streams that were open on one connection.
        open: u64,
    },
    /// The number of bytes received differs from responses × size.
    Bytes {
        /// The bytes expected from the sizes of the responses.
        expected: u64,
        /// The bytes received.
        received: u64,
    },
    /// A generator thread was busier than allowed, so the generator may have been the bottleneck.
    /// The lap counts as a lower bound.
    Generator {
        /// The share of the window during which the busiest thread was busy, in per cent.
        busy: f64,
    },
    /// More requests failed than are allowed.
    Failures {
        /// Failed requests.
        failures: u64,
        /// All requests.
        requests: u64,
        /// The most frequent failure.
        most: Option<Failure>,
    },
    /// The server sent wrong responses, so it is not ranked.
    WrongAnswers {
        /// Number of wrong responses.
        wrong: u64,
        /// What was wrong with the first wrong response, and its first bytes.
        example: String,
    },
    /// The generator sent requests late.
    Late {
        /// The 99th percentile of the schedule lag, in microseconds.
        lag_us: f64,
    },
    /// The requests' side effect happened too rarely or too often.
    SideEffect {
        /// The smallest number of lines expected.
        expected: u64,
        /// The number of lines counted.
        counted: u64,
    },
    /// Several generators did not measure one load together, for example because one was late.
    Generators {
        /// What happened, with the command of the generator at fault, if any.
        why: String,
    },
    /// A generator was lost, so there are no figures.
    GeneratorLost {
        /// What happened, with the generator's command, the operation under way, and a remedy.
        why: String,
    },
    /// The server runs on another host, which did not respond for a while.
    Silence {
        /// The longest time by which a message from the host was overdue, in milliseconds.
        ms: f64,
    },
}

impl Violation {
    /// Whether the lap is left out of every estimate. A busy generator only makes the lap a lower
    /// bound. Laps with failures stay in, because without them a server would be compared by its
    /// good laps alone.
    pub fn invalidates(&self) -> bool {
        !matches!(self, Self::Generator { .. } | Self::Failures { .. })
    }
}

impl Usage {
    /// CPU time per request, in nanoseconds. `None` if unknown.
    pub fn cost_share(&self) -> Option<Share> {
        Some(Share { amount: self.cpu_ns? as f64, of: self.requests as f64 })
    }

    /// CPU time of the database per request, in nanoseconds. `None` without a database.
    pub fn database_share(&self) -> Option<Share> {
        Some(Share { amount: self.database_ns? as f64, of: self.requests as f64 })
    }
}

impl Lap {
    /// Creates a lap that is not judged yet. The schedule fills in restart, round and place.
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

    /// Whether the lap tested, after a search, if the server meets the goals over a longer time.
    pub fn is_held(&self) -> bool {
        matches!(self.kind, LapKind::Held { .. })
    }

    /// Whether the generator may have been the bottleneck, so that the lap is a lower bound.
    pub fn is_generator_limited(&self) -> bool {
        self.failed.iter().any(|check| matches!(check, Violation::Generator { .. }))
    }

    /// Correct responses per second. 0 without a window.
    pub fn requests_per_s(&self) -> f64 {
        self.rate_share().value().unwrap_or(0.0)
    }

    /// Whether the lap enters the estimates.
    pub fn counts(&self) -> bool {
        !self.failed.iter().any(Violation::invalidates)
    }

    /// CPU time of the server's process tree per request, in nanoseconds.
    pub fn cost_ns(&self) -> Option<f64> {
        self.cost_share().and_then(Share::value)
    }

    /// The lap's contribution to the CPU time per request of its round, in nanoseconds.
    pub fn cost_share(&self) -> Option<Share> {
        self.usage.as_ref()?.cost_share()
    }

    /// The lap's contribution to the requests/s of its round.
    pub fn rate_share(&self) -> Share {
        rate_share(self.outcome.responses, self.outcome.window_ns)
    }
}

/// A lap that explains where a difference in cost comes from. It enters no figure of the
/// experiment, because instruments cost CPU time. In addition, runtimes are started with flags that
/// make them name their functions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainLap {
    /// The lap.
    pub lap: Lap,
    /// What an instrument observed during the lap. `None` if no instrument was on.
    pub observation: Option<Observation>,
}

impl ExplainLap {
    /// Correct responses and failures while the server was observed.
    pub fn requests(&self) -> u64 {
        self.lap.usage.map_or(0, |usage| usage.requests)
    }

    /// Whether the lap enters the estimates.
    pub fn counts(&self) -> bool {
        self.requests() > 0 && self.lap.counts()
    }

    /// The lap's contribution to the CPU time per request, in nanoseconds.
    pub fn cost_share(&self) -> Option<Share> {
        self.lap.cost_share()
    }
}

/// Returns requests/s as a share: the responses, and the length of their window in seconds.
pub fn rate_share(responses: u64, window_ns: u64) -> Share {
    Share { amount: responses as f64, of: window_ns as f64 / 1e9 }
}

/// Returns one reading per round, from laps given as restart, round and share. The laps of a round
/// are mirrored, so a drift that is linear in time cancels within the round.
pub fn readings(laps: impl IntoIterator<Item = (u32, u32, Share)>) -> Vec<Reading> {
    let mut rounds = BTreeMap::<(u32, u32), Share>::new();
    for (restart, round, share) in laps {
        let sum = rounds.entry((restart, round)).or_default();
        *sum = sum.and(share);
    }
    let reading = |((restart, round), share)| Reading { restart, round, share };
    rounds.into_iter().map(reading).collect()
}

/// Returns one reading of requests/s per round. A restart without any response is read as half a
/// response: more than none, but too little to matter.
pub fn rates(laps: impl IntoIterator<Item = (u32, u32, Share)>) -> Vec<Reading> {
    let mut readings = readings(laps);
    for restart in readings.chunk_by_mut(|a, b| a.restart == b.restart) {
        if restart.iter().all(is_silent) {
            restart[0].share.amount = 0.5;
        }
    }
    readings
}

/// Whether a server sent no response in a round, given the round's reading of requests/s.
pub fn is_silent(rate: &Reading) -> bool {
    rate.share.amount < 1.0
}

#[cfg(test)]
mod tests {
    use hotlap_stats::{level, pairs};

    use super::*;

    #[test]
    fn a_drift_that_is_linear_in_time_cancels_within_a_mirrored_round() {
        // The laps run in the order A B · B A, while the machine slows down by a tenth from lap to
        // lap.
        let slow = |place: f64| 1.0 + 0.1 * place;
        let lap = |cost: f64, place| (0, 0, Share::whole(cost * slow(place)));
        let a = readings([lap(100.0, 0.0), lap(100.0, 3.0)]);
        let b = readings([lap(120.0, 1.0), lap(120.0, 2.0)]);
        let pairs = pairs(&b, &a);
        assert_eq!(pairs.len(), 1);
        assert!((pairs[&0] - 1.2f64.ln()).abs() < 1e-12);
    }

    /// Regression: a round without a response was left out, so a server that stalled looked better.
    #[test]
    fn a_round_without_a_response_counts() {
        let lap =
            |restart, round, responses| (restart, round, Share { amount: responses, of: 0.1 });
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
