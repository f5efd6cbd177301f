//! What was counted per request: as rows, and as the evidence for a difference.

use hotlap_stats::Estimate;
use serde::Serialize;

use crate::analysis::Explanation;
use crate::analysis::explain::{CountLine, Counted, Group};
use crate::report::figure::Figure;
use crate::text::number::{grouped, rounded};

/// Something that was counted, per request.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
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
    /// The row of a count; `None` if neither server has any.
    pub(super) fn of(line: &CountLine) -> Option<Self> {
        let name = words(&line.counted);
        let by = match line.counted {
            Counted::UserTime | Counted::KernelTime => 1e-3,
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
            is_call: matches!(line.counted, Counted::Call(_)),
            reference: amount(&reference),
            server: amount(&server),
            difference: signed(&apart),
            differs: line.differs,
        })
    }
}

/// What is counted, in words; empty for what is not shown.
pub(super) fn words(counted: &Counted) -> String {
    let words = match counted {
        Counted::Call(name) => name,
        Counted::MinorFaults => "page faults",
        Counted::MajorFaults => "page faults that read a disk",
        Counted::VoluntarySwitches => "voluntary context switches",
        Counted::InvoluntarySwitches => "involuntary context switches",
        Counted::Migrations => "moves to another core",
        Counted::SegmentsSent => "segments sent",
        Counted::SegmentsReceived => "segments received",
        Counted::BytesSent => "bytes sent",
        Counted::BytesReceived => "bytes received",
        Counted::UserTime => "CPU µs in user mode",
        Counted::KernelTime => "CPU µs in the kernel",
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
    let bounded = estimate.is_bounded();
    Figure {
        value: rounded(estimate.value),
        low: bounded.then(|| rounded(estimate.low)),
        high: bounded.then(|| rounded(estimate.high)),
        text,
        spread: match bounded {
            true => digits((estimate.high - estimate.low) / 2.0),
            false => String::new(),
        },
        is_lower_bound: false,
    }
}

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
