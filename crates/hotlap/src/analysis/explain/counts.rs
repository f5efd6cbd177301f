//! Amounts per request of two servers, and what was counted: system calls by name, kernel events,
//! bytes.

use std::collections::{BTreeMap, BTreeSet};

use hotlap_observe::{Events, Observation};
use hotlap_stats::{ByRestart, Estimate, MIN_RESTARTS, Mean, Share, apart, holm};

use crate::model::ExplainLap;

/// The largest p-value that counts, after correction. Smaller than for costs, so that two copies of
/// a program differ in any count in at most one of a hundred runs.
const ALPHA: f64 = 0.01;

/// The least difference that counts, as a share of the larger amount, and per request: smaller ones
/// are those of chance, or explain nothing.
const LEAST: (f64, f64) = (0.02, 0.002);

/// A count of two servers.
#[derive(Debug)]
pub struct CountLine {
    /// What was counted.
    pub counted: CountedEvent,
    /// How often per request. Of times, nanoseconds.
    pub amounts: Amounts,
    /// Whether the two servers differ.
    pub differs: bool,
}

/// Something that is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountedEvent {
    /// A system call.
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
    /// CPU time in user mode.
    UserTime,
    /// CPU time in the kernel.
    KernelTime,
}

/// An event of the kernel, and where it is kept.
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

/// The counts of a reference and a server, from their laps.
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

/// The counts of one server per request, by restart.
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
                // A call that is missing in a lap was made 0 times.
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

/// An amount per request of the reference and of a server, and the difference between the two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amounts {
    /// Of the reference.
    pub reference: Estimate,
    /// Of the server.
    pub server: Estimate,
    /// The server's minus the reference's.
    pub difference: Estimate,
    /// Two-sided p-value of the hypothesis that they do not differ.
    pub p: f64,
    /// The restarts that it rests on.
    pub restarts: u32,
}

impl Amounts {
    /// The server's amount ÷ the reference's. Its interval carries only the error of the
    /// difference.
    pub fn ratio(&self) -> Estimate {
        let of = |difference: f64| 1.0 + difference / self.reference.value;
        let Estimate { value, low, high } = self.difference;
        Estimate { value: of(value), low: of(low), high: of(high) }
    }

    /// From one value of each server for each restart. Restarts that only one of them has are left
    /// out. `None` without any.
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

    /// The larger of the two amounts.
    pub fn larger(&self) -> f64 {
        self.reference.value.abs().max(self.server.value.abs())
    }
}
