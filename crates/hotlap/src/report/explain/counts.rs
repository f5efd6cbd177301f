//! What was counted per request, as rows and in words.

use hotlap_stats::Estimate;
use serde::Serialize;

use super::super::figure::Figure;
use crate::analysis::explain::{CountLine, Counted};
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
