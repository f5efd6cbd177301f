//! Counts per request: as rows, and as the evidence for a difference.

use hotlap_stats::Estimate;
use serde::Serialize;

use crate::analysis::Explanation;
use crate::analysis::explain::{CodeGroup, CountLine, CountedEvent};
use crate::report::figure::Figure;
use crate::text::number::grouped;

/// Something that was counted, per request.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountRow {
    /// What was counted: the name of a system call, or words.
    pub name: String,
    /// Whether it is a system call.
    pub is_call: bool,
    /// Of the reference.
    pub reference: Figure,
    /// Of the server.
    pub server: Figure,
    /// The server's minus the reference's.
    pub difference: Figure,
    /// Whether the two differ.
    pub differs: bool,
}

impl CountRow {
    /// The row of a count. `None` if neither server has any.
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

/// What is counted, in words. Empty for what is not shown.
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

/// An amount per request with three significant digits.
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

/// A figure whose spread is half the width of its interval.
fn figure(estimate: &Estimate, text: String) -> Figure {
    let spread = match estimate.is_bounded() {
        true => digits((estimate.high - estimate.low) / 2.0),
        false => String::new(),
    };
    Figure::new(estimate, text, spread)
}

/// At most so many counts are named together.
const COUNTS: usize = 3;

/// A difference of a system call or an event is named in a sentence from so many per request on. Of
/// bytes, from so many, since it takes some hundreds to cost anything that can be measured.
const NAMED: f64 = 0.05;
const NAMED_BYTES: f64 = 500.0;

/// What was counted and explains a group, in words, the most important first.
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

/// What was counted and explains none of these groups.
pub fn counted(found: &Explanation, named: &[CodeGroup]) -> Vec<String> {
    const ALL: [CodeGroup; 3] =
        [CodeGroup::SystemCallEntry, CodeGroup::KernelNetwork, CodeGroup::KernelOther];
    let left = ALL.into_iter().filter(|group| !named.contains(group));
    left.flat_map(|group| evidence_of(found, group)).take(COUNTS).collect()
}

/// The group in which a count shows.
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

/// Whether a sentence names a count. The times say the same as the ledger.
fn is_named(line: &CountLine) -> bool {
    let difference = line.amounts.difference.value.abs();
    match line.counted {
        CountedEvent::UserTime | CountedEvent::KernelTime => false,
        CountedEvent::BytesSent | CountedEvent::BytesReceived => difference >= NAMED_BYTES,
        _ => difference >= NAMED,
    }
}

/// The order in which counts are named: a kilobyte is worth as much as a system call.
fn weight(line: &CountLine) -> f64 {
    let difference = line.amounts.difference.value.abs();
    match line.counted {
        CountedEvent::BytesSent | CountedEvent::BytesReceived => difference / 1e3,
        // They follow from bytes and calls.
        CountedEvent::SegmentsSent | CountedEvent::SegmentsReceived => difference / 1e2,
        _ => difference,
    }
}

/// A difference in words: `1.00 more write`.
fn clause(counted: &CountedEvent, by: &Estimate) -> String {
    let more = if by.value > 0.0 { "more" } else { "fewer" };
    format!("{} {more} {}", digits(by.value), words(counted))
}
