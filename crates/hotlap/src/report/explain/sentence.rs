//! The sentence of an explanation.

use hotlap_stats::{Estimate, MIN_RESTARTS};

use super::super::figure::{difference, scaled};
use super::{digits, ledger, words};
use crate::analysis::Explanation;
use crate::analysis::explain::{CountLine, Counted, Group, GroupLine, is_collector};
use crate::text::number::grouped;

/// The sentence names at most so many groups, so many functions of each, and so many counts.
const GROUPS: usize = 4;
const FUNCTIONS: usize = 2;
const COUNTS: usize = 3;

/// A difference of a system call or an event is named in a sentence from so many per request on;
/// of bytes, from so many.
const NAMED: f64 = 0.05;
const NAMED_BYTES: f64 = 1.0;

/// A group is called garbage collection if that is this part of its difference.
const COLLECTION: f64 = 0.7;

pub(super) fn of([reference, server]: [&str; 2], under: &str, found: &Explanation) -> String {
    let us = scaled(&found.cost.difference, 1e-3);
    let interval = difference(&us).spread;
    if found.cost.restarts < MIN_RESTARTS {
        let by = difference(&us).full();
        return format!(
            "{server} and {reference}{under}: inconclusive ({by}), because fewer than three \
             restarts were measured. --duration gives more."
        );
    }
    if !found.differs {
        let by = difference(&us).full();
        let counts = counted(found, &[]);
        let but = match counts.is_empty() {
            true => String::new(),
            false => format!(" But {server} has {} per request.", list(&counts)),
        };
        return format!(
            "No difference in CPU time per request{under} that could be measured between \
             {reference} and {server}: {by}.{but}"
        );
    }
    let (by, more) = (micros(us.value.abs()), if us.value > 0.0 { "more" } else { "less" });
    let groups: Vec<&GroupLine> = found
        .ledger
        .iter()
        .flat_map(|ledger| &ledger.groups)
        .filter(|group| group.differs)
        .take(GROUPS)
        .collect();
    let parts: Vec<String> =
        groups.iter().map(|group| part(found, group, us.value > 0.0)).collect();
    let named: Vec<Group> = groups.iter().map(|group| group.group).collect();
    let left = counted(found, &named);
    let mut sentence =
        format!("{server} costs {by} µs {more} CPU per request{under} than {reference} {interval}");
    if !parts.is_empty() {
        sentence += &format!(": {}", list(&parts));
    }
    sentence += ".";
    if !left.is_empty() {
        let also = if parts.is_empty() { "" } else { "also " };
        sentence += &format!(" It {also}has {} per request.", list(&left));
    }
    sentence
}

/// A group: its difference, its name, and in brackets what explains it.
fn part(found: &Explanation, group: &GroupLine, is_more: bool) -> String {
    let us = group.cost.difference.value / 1e3;
    let sign = if (us > 0.0) == is_more { "" } else { "−" };
    let functions: Vec<String> = group
        .functions
        .iter()
        .filter(|line| line.differs && (line.cost.difference.value > 0.0) == (us > 0.0))
        .take(FUNCTIONS)
        .map(|line| {
            let own = line.cost.difference.value.abs() / 1e3;
            format!("{} {}", line.function.title(), micros(own))
        })
        .collect();
    let evidence = evidence_of(found, group.group);
    let is_kernel =
        matches!(group.group, Group::KernelNetwork | Group::KernelOther | Group::SystemCallEntry);
    let mut why = Vec::new();
    if !functions.is_empty() && !(is_kernel && !evidence.is_empty()) {
        why.push(functions.join(", "));
    }
    if !evidence.is_empty() {
        why.push(format!("{} per request", list(&evidence)));
    }
    let name = match group.group {
        Group::Runtime if collects(group) => "garbage collection",
        Group::Runtime => "the runtime",
        other => ledger::name(other),
    };
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
    format!("{sign}{} µs in {name}{why}", micros(us.abs()))
}

/// Whether the difference of a group is that of garbage collection.
fn collects(group: &GroupLine) -> bool {
    let of_collector = group.functions.iter().filter(|line| is_collector(&line.function));
    let sum: f64 = of_collector.map(|line| line.cost.difference.value).sum();
    sum / group.cost.difference.value >= COLLECTION
}

/// What was counted and explains a group, in words, the most important first.
pub(super) fn evidence_of(found: &Explanation, group: Group) -> Vec<String> {
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
fn counted(found: &Explanation, named: &[Group]) -> Vec<String> {
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

/// Microseconds in a sentence: one decimal, two below 1.
fn micros(us: f64) -> String {
    grouped(us, if us < 0.995 { 2 } else { 1 })
}

/// Items as a list: `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
