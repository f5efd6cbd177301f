//! What was counted and explains a difference, in words.

use hotlap_stats::Estimate;

use super::counts::{digits, words};
use crate::analysis::Explanation;
use crate::analysis::explain::{CountLine, Counted, Group};

/// At most so many counts are named together.
const COUNTS: usize = 3;

/// A difference of a system call or an event is named in a sentence from so many per request on;
/// of bytes, from so many, since it takes some hundreds to cost anything that can be measured.
const NAMED: f64 = 0.05;
const NAMED_BYTES: f64 = 500.0;

/// What was counted and explains a group, in words, the most important first.
pub fn evidence_of(found: &Explanation, group: Group) -> Vec<String> {
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
pub fn counted(found: &Explanation, named: &[Group]) -> Vec<String> {
    const ALL: [Group; 3] = [Group::SystemCallEntry, Group::KernelNetwork, Group::KernelOther];
    let left = ALL.into_iter().filter(|group| !named.contains(group));
    left.flat_map(|group| evidence_of(found, group)).take(COUNTS).collect()
}

/// The group in which a count shows.
fn place(counted: &Counted) -> Group {
    match counted {
        Counted::Call(name) => Group::of_call(name),
        Counted::SegmentsSent
        | Counted::SegmentsReceived
        | Counted::BytesSent
        | Counted::BytesReceived => Group::KernelNetwork,
        _ => Group::KernelOther,
    }
}

/// Whether a sentence names a count. The times say the same as the ledger.
fn is_named(line: &CountLine) -> bool {
    let difference = line.amounts.difference.value.abs();
    match line.counted {
        Counted::UserTime | Counted::KernelTime => false,
        Counted::BytesSent | Counted::BytesReceived => difference >= NAMED_BYTES,
        _ => difference >= NAMED,
    }
}

/// The order in which counts are named: a kilobyte is worth as much as a system call.
fn weight(line: &CountLine) -> f64 {
    let difference = line.amounts.difference.value.abs();
    match line.counted {
        Counted::BytesSent | Counted::BytesReceived => difference / 1e3,
        // They follow from bytes and calls.
        Counted::SegmentsSent | Counted::SegmentsReceived => difference / 1e2,
        _ => difference,
    }
}

/// A difference in words: `1.00 more write`.
fn clause(counted: &Counted, by: &Estimate) -> String {
    let more = if by.value > 0.0 { "more" } else { "fewer" };
    format!("{} {more} {}", digits(by.value), words(counted))
}
