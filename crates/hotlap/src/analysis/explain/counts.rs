//! Compares what two servers do per request: system calls by name, kernel events and bytes.

use std::collections::{BTreeMap, BTreeSet};

use hotlap_observe::{Events, Observation};
use hotlap_stats::{ByRestart, Estimate, MIN_RESTARTS, Mean, Share, apart, holm};

use crate::model::ExplainLap;

/// The largest p-value, after correction, at which a count differs. The limit is lower than for
/// costs: two copies of a program differ in any count in at most one of 100 runs.
const ALPHA: f64 = 0.01;

/// The smallest difference that counts, as a share of the larger amount, and per request. Smaller
/// differences are due to chance or explain nothing.
const LEAST: (f64, f64) = (0.02, 0.002);

/// One count, compared between two servers.
#[derive(Debug)]
pub struct CountLine {
    /// The event that was counted.
    pub counted: CountedEvent,
    /// The number of events per request. For times, nanoseconds per request.
    pub amounts: Amounts,
    /// Whether the two servers differ in this count.
    pub differs: bool,
}

/// An event or an amount that is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountedEvent {
    /// A system call, by its name.
    Call(String),
    /// A page fault that needed no disk.
    MinorFaults,
    /// A page fault that read from a disk.
    MajorFaults,
    /// A context switch because a thread waited.
    VoluntarySwitches,
    /// A context switch because another thread needed the core.
    InvoluntarySwitches,
    /// A move of a thread to another core.
    Migrations,
    /// A TCP segment that the server sent.
    SegmentsSent,
    /// A TCP segment that the server received.
    SegmentsReceived,
    /// A byte that the server sent.
    BytesSent,
    /// A byte that the server received.
    BytesReceived,
    /// The CPU time in user mode.
    UserTime,
    /// The CPU time in the kernel.
    KernelTime,
}

/// An event of the kernel, and the function that reads its count.
type Event = (CountedEvent, fn(&Events) -> Option<u64>);

const EVENTS: [Event; 9] = [
    (CountedEvent::MinorFaults, |events| events.minor_faults),
    (CountedEvent::MajorFaults, |events| events.major_faults),
    (CountedEvent::VoluntarySwitches, |events| events.voluntary_switches),
    (CountedEvent::InvoluntarySwitches, |events| events.involuntary_switches),
    (CountedEvent::Migrations, |events| events.migrations),
    (CountedEvent::SegmentsSent, |events| events.segments_sent),
    (CountedEvent::SegmentsReceived, |events| events.segments_received),
    (CountedEvent::UserTime, |events| events.user_ns),
    (CountedEvent::KernelTime, |events| events.kernel_ns),
];

/// Compares the counts of a reference and a server, from their laps.
pub(super) fn counts(laps: [&[&ExplainLap]; 2], confidence: f64) -> Vec<CountLine> {
    let calls = laps.into_iter().flatten().filter_map(|explains| match &explains.observation {
        Some(Observation::SystemCalls(calls)) => Some(calls.keys()),
        _ => None,
    });
    let calls: BTreeSet<&String> = calls.flatten().collect();
    let [reference, server] = laps.map(|laps| by_restart(laps, &calls));
    let line = |(counted, own): (CountedEvent, ByRestart)| {
        let amounts = Amounts::of(&own, server.get(&counted)?, confidence)?;
        Some(CountLine { counted, amounts, differs: false })
    };
    let mut lines: Vec<CountLine> = reference.into_iter().filter_map(line).collect();
    let p = holm(&lines.iter().map(|line| line.amounts.p).collect::<Vec<_>>());
    for (line, p) in lines.iter_mut().zip(p) {
        let difference = line.amounts.difference.value.abs();
        let is_large = difference >= LEAST.1.max(LEAST.0 * line.amounts.larger());
        line.differs = p <= ALPHA && is_large && line.amounts.restarts >= MIN_RESTARTS;
    }
    lines
}

/// Returns the counts of one server per request, by restart.
fn by_restart(
    laps: &[&ExplainLap],
    calls: &BTreeSet<&String>,
) -> BTreeMap<CountedEvent, ByRestart> {
    let mut sums = BTreeMap::<CountedEvent, BTreeMap<u32, Share>>::new();
    for explains in laps {
        let (outcome, mut requests) = (&explains.lap.outcome, explains.requests());
        let counted: Vec<(CountedEvent, u64)> = match &explains.observation {
            None => {
                requests = outcome.responses;
                let (sent, received) = (outcome.bytes.received, outcome.bytes.sent);
                vec![(CountedEvent::BytesSent, sent), (CountedEvent::BytesReceived, received)]
            }
            Some(Observation::SystemCalls(own)) => {
                // A system call that is missing in a lap was made 0 times.
                let count = |name: &String| own.get(name).copied().unwrap_or(0);
                calls.iter().map(|&name| (CountedEvent::Call(name.clone()), count(name))).collect()
            }
            Some(Observation::Events(events)) => {
                let count = |(counted, of): Event| Some((counted, of(events)?));
                EVENTS.into_iter().filter_map(count).collect()
            }
            Some(Observation::Profile(_)) => Vec::new(),
        };
        for (counted, count) in counted {
            let share = Share { amount: count as f64, of: requests as f64 };
            let sum = sums.entry(counted).or_default().entry(explains.lap.restart).or_default();
            *sum = sum.and(share);
        }
    }
    let value = |(restart, share): (u32, Share)| Some((restart, share.value()?));
    let values = |shares: BTreeMap<u32, Share>| shares.into_iter().filter_map(value).collect();
    sums.into_iter().map(|(counted, shares)| (counted, values(shares))).collect()
}

/// The amounts per request of a reference and of a server, and their difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amounts {
    /// The amount of the reference.
    pub reference: Estimate,
    /// The amount of the server.
    pub server: Estimate,
    /// The server's amount minus the reference's amount.
    pub difference: Estimate,
    /// The two-sided p-value of the hypothesis that the two amounts do not differ.
    pub p: f64,
    /// The number of restarts that the difference rests on.
    pub restarts: u32,
}

impl Amounts {
    /// Returns the server's amount ÷ the reference's. The interval covers only the error of the
    /// difference.
    pub fn ratio(&self) -> Estimate {
        let of = |difference: f64| 1.0 + difference / self.reference.value;
        let Estimate { value, low, high } = self.difference;
        Estimate { value: of(value), low: of(low), high: of(high) }
    }

    /// Compares one value per restart of each server. Restarts that only one server has are left
    /// out. `None` if both servers have no restart in common.
    pub(super) fn of(reference: &ByRestart, server: &ByRestart, confidence: f64) -> Option<Self> {
        let apart = apart(server, reference);
        let difference = Mean::of(apart.clone())?;
        let of = |values: &ByRestart| Mean::of(apart.keys().map(|n| (*n, values[n])));
        Some(Self {
            reference: of(reference)?.estimate(confidence),
            server: of(server)?.estimate(confidence),
            difference: difference.estimate(confidence),
            p: difference.p(),
            restarts: difference.restarts,
        })
    }

    /// Returns the larger of the two amounts.
    pub fn larger(&self) -> f64 {
        self.reference.value.abs().max(self.server.value.abs())
    }
}
