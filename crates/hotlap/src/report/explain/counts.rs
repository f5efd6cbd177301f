//! Counts per request, as rows and as evidence for a difference.

use hotlap_stats::Estimate;
use serde::Serialize;

use crate::analysis::Explanation;
use crate::analysis::explain::{CodeGroup, CountLine, CountedEvent};
use crate::report::figure::Figure;
use crate::text::number::grouped;

/// An event or a system call that was counted, with its amounts per request.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountRow {
    /// What was counted: the name of a system call, or a description of an event.
    pub name: String,
    /// Whether a system call was counted.
    pub is_call: bool,
    /// The reference's amount per request.
    pub reference: Figure,
    /// The server's amount per request.
    pub server: Figure,
    /// The server's amount per request minus the reference's.
    pub difference: Figure,
    /// Whether the two servers differ in this amount.
    pub differs: bool,
}

impl CountRow {
    /// Returns the row of a count. `None` if the amount is zero for both servers.
    pub(super) fn of(line: &CountLine) -> Option<Self> {
        let name = words(&line.counted);
        let by = match line.counted {
            CountedEvent::UserTime | CountedEvent::KernelTime => 1e-3,
            _ => 1.0,
        };
        let [reference, server, apart] =
            [line.amounts.reference, line.amounts.server, line.amounts.difference]
                .map(|estimate| estimate.scaled(by));
        if name.is_empty() || (reference.value == 0.0 && server.value == 0.0) {
            return None;
        }
        Some(Self {
            name,
            is_call: matches!(line.counted, CountedEvent::Call(_)),
            reference: amount(&reference),
            server: amount(&server),
            difference: signed(&apart),
            differs: line.differs,
        })
    }
}

/// Returns what is counted, in words.
pub(super) fn words(counted: &CountedEvent) -> String {
    let words = match counted {
        CountedEvent::Call(name) => name,
        CountedEvent::MinorFaults => "page faults",
        CountedEvent::MajorFaults => "page faults that read a disk",
        CountedEvent::VoluntarySwitches => "voluntary context switches",
        CountedEvent::InvoluntarySwitches => "involuntary context switches",
        CountedEvent::Migrations => "moves to another core",
        CountedEvent::SegmentsSent => "segments sent",
        CountedEvent::SegmentsReceived => "segments received",
        CountedEvent::BytesSent => "bytes sent",
        CountedEvent::BytesReceived => "bytes received",
        CountedEvent::UserTime => "CPU µs in user mode",
        CountedEvent::KernelTime => "CPU µs in the kernel",
    };
    words.to_owned()
}

/// Formats an amount per request without its sign. Smaller amounts have more decimals, up to three.
pub(super) fn digits(amount: f64) -> String {
    let decimals = match amount.abs() {
        a if a >= 99.95 || a == 0.0 => 0,
        a if a >= 9.995 => 1,
        a if a >= 0.0995 => 2,
        _ => 3,
    };
    grouped(amount.abs(), decimals)
}

fn amount(estimate: &Estimate) -> Figure {
    figure(estimate, digits(estimate.value))
}

fn signed(estimate: &Estimate) -> Figure {
    let text = digits(estimate.value);
    let is_zero = text.chars().all(|c| ['0', '.'].contains(&c));
    let sign = match estimate.value < 0.0 {
        _ if is_zero => "",
        true => "−",
        false => "+",
    };
    figure(estimate, format!("{sign}{text}"))
}

/// Returns a figure whose spread is half the width of its interval.
fn figure(estimate: &Estimate, text: String) -> Figure {
    let spread = match estimate.is_bounded() {
        true => digits((estimate.high - estimate.low) / 2.0),
        false => String::new(),
    };
    Figure::new(estimate, text, spread)
}

/// The maximum number of counts that are named together.
const COUNTS: usize = 3;

/// The smallest difference per request that a sentence names, in system calls or events. The
/// threshold for bytes is `NAMED_BYTES`, because fewer bytes cost no measurable time.
const NAMED: f64 = 0.05;
const NAMED_BYTES: f64 = 500.0;

/// Returns the counts that explain a group, in words, the most important first.
pub fn evidence_of(found: &Explanation, group: CodeGroup) -> Vec<String> {
    let mut lines: Vec<&CountLine> =
        found.evidence().filter(|line| is_named(line) && place(&line.counted) == group).collect();
    lines.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    lines
        .into_iter()
        .take(COUNTS)
        .map(|line| clause(&line.counted, &line.amounts.difference))
        .collect()
}

/// Returns the counts that explain groups other than the named ones, in words.
pub fn counted(found: &Explanation, named: &[CodeGroup]) -> Vec<String> {
    const ALL: [CodeGroup; 3] =
        [CodeGroup::SystemCallEntry, CodeGroup::KernelNetwork, CodeGroup::KernelOther];
    let left = ALL.into_iter().filter(|group| !named.contains(group));
    left.flat_map(|group| evidence_of(found, group)).take(COUNTS).collect()
}

/// Returns the group whose cost a count explains.
fn place(counted: &CountedEvent) -> CodeGroup {
    match counted {
        CountedEvent::Call(name) => CodeGroup::of_call(name),
        CountedEvent::SegmentsSent
        | CountedEvent::SegmentsReceived
        | CountedEvent::BytesSent
        | CountedEvent::BytesReceived => CodeGroup::KernelNetwork,
        _ => CodeGroup::KernelOther,
    }
}

/// Whether a sentence names a count. CPU times are not named, because the ledger states them.
fn is_named(line: &CountLine) -> bool {
    let difference = line.amounts.difference.value.abs();
    match line.counted {
        CountedEvent::UserTime | CountedEvent::KernelTime => false,
        CountedEvent::BytesSent | CountedEvent::BytesReceived => difference >= NAMED_BYTES,
        _ => difference >= NAMED,
    }
}

/// Returns the weight by which counts are ordered. A kilobyte weighs as much as a system call.
fn weight(line: &CountLine) -> f64 {
    let difference = line.amounts.difference.value.abs();
    match line.counted {
        CountedEvent::BytesSent | CountedEvent::BytesReceived => difference / 1e3,
        // Segments weigh little, because they result from bytes and calls.
        CountedEvent::SegmentsSent | CountedEvent::SegmentsReceived => difference / 1e2,
        _ => difference,
    }
}

/// Describes a difference: `1.00 more write`.
fn clause(counted: &CountedEvent, by: &Estimate) -> String {
    let more = if by.value > 0.0 { "more" } else { "fewer" };
    format!("{} {more} {}", digits(by.value), words(counted))
}
