//! The sentence of an explanation.

use hotlap_stats::MIN_RESTARTS;

use super::super::figure::difference;
use super::super::verdict::Judged;
use super::evidence::{counted, evidence_of};
use super::ledger::{self, micros};
use crate::analysis::Explanation;
use crate::analysis::Measure;
use crate::analysis::explain::{FunctionLine, Group, GroupLine, is_collector};

/// The sentence names at most so many groups, and so many functions of each.
const GROUPS: usize = 4;
const FUNCTIONS: usize = 2;

/// A group is called garbage collection if that is this part of its difference.
const COLLECTION: f64 = 0.7;

pub(super) fn of([reference, server]: [&str; 2], under: &str, found: &Explanation) -> String {
    let us = found.cost.difference.scaled(1e-3);
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
            false => format!(" But per request, {server} has {}.", list(&counts)),
        };
        let words = Judged::undecided(&found.cost.ratio()).words(Some(Measure::Cost));
        return format!(
            "{server} and {reference}{under}: CPU time per request {words} ({by}).{but}"
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
        sentence += &format!(" Per request, it {also}has {}.", list(&left));
    }
    sentence
}

/// A group: its difference, its name, and in brackets what explains it.
fn part(found: &Explanation, group: &GroupLine, is_more: bool) -> String {
    let us = group.cost.difference.value / 1e3;
    let sign = if (us > 0.0) == is_more { "" } else { "−" };
    let evidence = evidence_of(found, group.group);
    let is_kernel =
        matches!(group.group, Group::KernelNetwork | Group::KernelOther | Group::SystemCallEntry);
    let mut why = Vec::new();
    if !is_kernel || evidence.is_empty() {
        why.extend(ledger::callers(group));
        let functions = functions(group);
        why.extend((!functions.is_empty()).then(|| functions.join(", ")));
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

/// The functions of a group that differ as it does.
fn functions(group: &GroupLine) -> Vec<String> {
    let sign = group.cost.difference.value > 0.0;
    let alike = group
        .functions
        .iter()
        .filter(|line| line.differs && (line.cost.difference.value > 0.0) == sign);
    let words = |line: &FunctionLine| {
        let own = micros(line.cost.difference.value.abs() / 1e3);
        format!("{} {own}", line.function.short_title())
    };
    alike.take(FUNCTIONS).map(words).collect()
}

/// Whether the difference of a group is that of garbage collection.
fn collects(group: &GroupLine) -> bool {
    let of_collector = group.functions.iter().filter(|line| is_collector(&line.function));
    let sum: f64 = of_collector.map(|line| line.cost.difference.value).sum();
    sum / group.cost.difference.value >= COLLECTION
}

/// Items as a list: `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
