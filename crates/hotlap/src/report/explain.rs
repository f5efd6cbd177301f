//! The sources of a difference in CPU time per request: the ledger, the counts, and the sentence.
//!
//! Every line of the ledger is rounded to the same digit. The lines for the rest, or else the
//! largest function, absorb the rounding errors, so the printed lines add up.

use std::collections::BTreeMap;

use hotlap_stats::{Estimate, Inconclusive, MIN_RESTARTS};
use serde::Serialize;

use crate::analysis::explain::{CodeGroup, FlameStack};
use crate::analysis::{Explanation, Measure};
use crate::model::Run;
use crate::report::figure::{Figure, difference, micros};
use crate::report::heading::{title_of_one, under};
use crate::report::verdict::Judged;
use crate::report::warnings::violation;
use crate::text::layout::shortened;
use crate::text::number::{count, grouped};
use crate::text::table::{Cell, Column, Table, Tone};

pub use crate::report::explain::counts::CountRow;
pub use crate::report::explain::ledger::LedgerKind;
pub use crate::report::explain::ledger::LedgerRow;

mod counts;
mod ledger;

/// The width to which the names of servers are shortened in column headings.
const HEADING: usize = 14;

/// Why a server costs more or less CPU time per request than its reference.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplanationResults {
    /// The index of the load.
    pub load: usize,
    /// The load, in words. Empty if the run has only one load.
    pub title: String,
    /// The name of the reference.
    pub reference: String,
    /// The name of the server.
    pub server: String,
    /// The reference's CPU time per request, in microseconds.
    pub reference_us: Figure,
    /// The server's CPU time per request, in microseconds.
    pub server_us: Figure,
    /// The server's CPU time per request minus the reference's, in microseconds.
    pub difference_us: Figure,
    /// The verdict on the difference.
    #[serde(flatten)]
    pub judged: Judged,
    /// The verdict in words: `costs more`, `costs less`, `equal within ±2%`, `not decided`,
    /// `not measured well enough`, or `inconclusive: ` followed by the reason.
    pub words: String,
    /// The number of restarts that the verdict rests on.
    pub restarts: u32,
    /// The result, in one or two sentences.
    pub sentence: String,
    /// The ledger. Each group is followed by its functions. The last two rows are the part that is
    /// not explained and the measured difference. Empty without a profile.
    pub ledger: Vec<LedgerRow>,
    /// The events and system calls that were counted per request.
    pub counts: Vec<CountRow>,
    /// Notes on how the two servers were observed.
    pub notes: Vec<String>,
    /// The boxes of a flame graph of both servers.
    #[serde(skip)]
    pub flame: Vec<FlameBox>,
}

impl ExplanationResults {
    pub(super) fn of(run: &Run, found: &Explanation) -> Self {
        let name = |server: usize| run.servers[server].name.clone();
        let judged = match () {
            () if found.cost.restarts < MIN_RESTARTS => {
                Judged::Inconclusive { why: Inconclusive::TooFewRestarts }
            }
            () if !found.differs => Judged::undecided(&found.cost.ratio()),
            () if found.cost.difference.value > 0.0 => Judged::Worse,
            () => Judged::Better,
        };
        let us = |estimate: &Estimate| estimate.scaled(1e-3);
        Self {
            load: found.load,
            title: title_of_one(run, found.load),
            reference: name(found.reference),
            server: name(found.server),
            reference_us: micros(&us(&found.cost.reference)),
            server_us: micros(&us(&found.cost.server)),
            difference_us: difference(&us(&found.cost.difference)),
            judged,
            words: judged.words(Some(Measure::Cost)),
            restarts: found.cost.restarts,
            sentence: ledger::sentence(
                [&name(found.reference), &name(found.server)],
                &under(run, found.load),
                found,
            ),
            ledger: ledger::rows(found),
            counts: found.counts.iter().filter_map(CountRow::of).collect(),
            notes: notes(run, found),
            flame: boxes([&name(found.reference), &name(found.server)], &found.stacks),
        }
    }

    /// Returns the ledger as a table, with all functions or only the most important functions.
    pub fn ledger_table(&self, has_details: bool) -> Table {
        let rows: Vec<LedgerRow> = ledger::shown(&self.ledger, has_details);
        let cells = |of: fn(&LedgerRow) -> Cell| rows.iter().map(of).collect::<Vec<_>>();
        let tones = rows.iter().map(LedgerRow::tone).collect();
        Table::new(vec![
            Column::name("CPU µs/request", cells(LedgerRow::name_cell)).required(),
            Column::right("difference", cells(LedgerRow::difference_cell)).required(),
            Column::right("±", cells(LedgerRow::half_width_cell)),
            Column::right(
                &shortened(&self.reference, HEADING),
                cells(|row| row.cell(row.reference_us)),
            )
            .drop_order(2),
            Column::right(&shortened(&self.server, HEADING), cells(|row| row.cell(row.server_us)))
                .drop_order(2),
            Column::prose("per request", cells(|row| Cell::from(&row.evidence))).drop_order(1),
        ])
        .with_tones(tones)
    }

    /// Returns the counts as a table, with all counts or only the counts that differ.
    pub fn count_table(&self, has_details: bool) -> Table {
        let is_shown = |row: &&CountRow| has_details || row.differs;
        let rows: Vec<&CountRow> = self.counts.iter().filter(is_shown).collect();
        let figures = |of: fn(&CountRow) -> &Figure| {
            let cell = |row: &&CountRow| Cell::from(&of(row).text).sorted_by(of(row).value);
            rows.iter().map(cell).collect::<Vec<_>>()
        };
        let tone = |row: &&CountRow| if row.differs { Tone::Plain } else { Tone::Faint };
        Table::new(vec![
            Column::name("per request", rows.iter().map(|row| &row.name)).required(),
            Column::right("difference", figures(|row| &row.difference)).required(),
            Column::right("±", rows.iter().map(|row| Cell::from(&row.difference.spread))),
            Column::right(&shortened(&self.reference, HEADING), figures(|row| &row.reference)),
            Column::right(&shortened(&self.server, HEADING), figures(|row| &row.server)),
        ])
        .with_tones(rows.iter().map(tone).collect())
    }

    /// Returns a heading that names both servers, and the load if there are several.
    pub fn heading(&self) -> String {
        let Self { server, reference, title, .. } = self;
        match title.is_empty() {
            true => format!("{server} against {reference}"),
            false => format!("{server} against {reference}: {title}"),
        }
    }
}

/// Returns notes on how the two servers were observed. Failed observations become warnings instead.
fn notes(run: &Run, found: &Explanation) -> Vec<String> {
    let mut notes = Vec::new();
    let mut env: Vec<&String> = Vec::new();
    for (server, variable) in &run.schedule.observing.env {
        if [found.reference, found.server].contains(server) && !env.contains(&variable) {
            env.push(variable);
        }
    }
    if !env.is_empty() {
        let env: Vec<&str> = env.into_iter().map(String::as_str).collect();
        notes.push(format!(
            "hotlap set {} for these laps, so that the profile shows the names of compiled \
             functions.",
            env.join(", ")
        ));
    }
    if let Some(ledger) = &found.ledger {
        if !ledger.has_kernel {
            notes.push(
                "The profile has no samples from the kernel, so the kernel's part is in \"not \
                 explained\"."
                    .to_owned(),
            );
        }
        if let Some(by) = found.distortion.filter(|by| is_distorted(&found.cost.difference, by)) {
            notes.push(format!(
                "The profiler changes what it measures: in its laps, {} is added to the difference.",
                difference(&by.scaled(1e-3)).text
            ));
        }
        if ledger.groups.iter().any(|line| line.differs && line.group == CodeGroup::Notifying) {
            notes.push(
                "Sending includes notifying the receiver, which costs more if the receiver sleeps \
                 and must be woken. The load generator sleeps if it shares cores with a server."
                    .to_owned(),
            );
        }
        if ledger.lost > 0.01 {
            let percent = grouped(ledger.lost * 100.0, 0);
            notes.push(format!("The profile lost {percent}% of its samples."));
        }
    }
    notes
}

/// Whether the cost that the profiler adds is more than noise, and over a tenth of the difference.
fn is_distorted(difference: &Estimate, by: &Estimate) -> bool {
    let is_certain = by.is_bounded() && (by.low > 0.0 || by.high < 0.0);
    is_certain && by.value.abs() > difference.value.abs() / 10.0
}

/// Returns warnings about what could not be observed, and about excluded laps. Servers with the
/// same observation problem share one warning.
pub(super) fn warnings(run: &Run) -> Vec<String> {
    let missing = &run.schedule.observing.missing;
    let mut sentences: Vec<String> = Vec::new();
    for found in missing {
        let alike = missing.iter().filter(|other| other.error == found.error);
        let names: Vec<&str> = alike.map(|found| run.servers[found.server].name.as_str()).collect();
        let sentence = format!("{}: {}.", names.join(", "), found.error);
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    let servers = 0..run.servers.len();
    sentences.into_iter().chain(servers.filter_map(|server| left_out(run, server))).collect()
}

/// Describes the laps of a server that are excluded, because they failed a validity check.
fn left_out(run: &Run, server: usize) -> Option<String> {
    let laps = || run.explain.iter().filter(|explains| explains.lap.server == server);
    let failed = || laps().filter(|lap| !lap.counts());
    let why = failed()
        .flat_map(|explains| &explains.lap.failed)
        .find(|violation| violation.invalidates())?;
    Some(format!(
        "{}: hotlap excluded {} of {} laps that explain differences. The reason for the first: {}.",
        run.servers[server].name,
        count(failed().count() as u64),
        count(laps().count() as u64),
        violation(why)
    ))
}

/// The smallest width of a box, as a share of the whole. Narrower boxes are left out.
const NARROWEST: f64 = 0.0015;

/// A box of a flame graph.
#[derive(Debug, Clone, PartialEq)]
pub struct FlameBox {
    /// The name of the function.
    pub name: String,
    /// The function's CPU time in both servers, in words.
    pub words: String,
    /// The depth in the call stack. The box for the whole program has depth 0.
    pub depth: usize,
    /// The left end of the box, in per cent of the whole width.
    pub left: f64,
    /// The width of the box, in per cent of the whole width.
    pub width: f64,
    /// How much more CPU time the server spends in the function, from −100 (less) to 100 (more).
    /// The shade is the square root of the share of the largest difference.
    pub shade: i32,
}

#[derive(Default)]
struct Node {
    ns: [f64; 2],
    callees: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, stack: &FlameStack) {
        let mut node = self;
        node.count(stack);
        for frame in &stack.frames {
            node = node.callees.entry(frame.clone()).or_default();
            node.count(stack);
        }
    }

    fn count(&mut self, stack: &FlameStack) {
        self.ns[0] += stack.reference_ns;
        self.ns[1] += stack.server_ns;
    }

    fn both(&self) -> f64 {
        self.ns[0] + self.ns[1]
    }

    fn apart(&self) -> f64 {
        self.ns[1] - self.ns[0]
    }

    /// Returns the largest difference of any function that is called directly or indirectly.
    fn largest(&self) -> f64 {
        let own = self.callees.values().map(|node| node.apart().abs().max(node.largest()));
        own.fold(0.0, f64::max)
    }
}

/// The boxes of a flame graph while they are laid out.
struct Layout<'a> {
    names: [&'a str; 2],
    whole: f64,
    largest: f64,
    boxes: Vec<FlameBox>,
}

/// Returns the boxes of a flame graph, with callers before callees. Empty without stacks.
pub(super) fn boxes(names: [&str; 2], stacks: &[FlameStack]) -> Vec<FlameBox> {
    let mut root = Node::default();
    stacks.iter().for_each(|stack| root.add(stack));
    let (whole, largest) = (root.both(), root.largest());
    let mut layout = Layout { names, whole, largest, boxes: Vec::new() };
    if whole > 0.0 {
        layout.place("all", &root, (0, 0.0));
    }
    layout.boxes
}

impl Layout<'_> {
    fn place(&mut self, name: &str, node: &Node, (depth, left): (usize, f64)) {
        let width = node.both() / self.whole;
        if width < NARROWEST {
            return;
        }
        let us = |ns: f64| grouped(ns / 1e3, 2);
        let sign = if node.apart() < 0.0 { "−" } else { "+" };
        let hundredth = |share: f64| (share * 1e4).round() / 1e2;
        let shade = match self.largest > 0.0 {
            true => (node.apart() / self.largest).clamp(-1.0, 1.0),
            false => 0.0,
        };
        self.boxes.push(FlameBox {
            name: name.to_owned(),
            words: format!(
                "{}: {} µs, {}: {} µs ({sign}{})",
                self.names[0],
                us(node.ns[0]),
                self.names[1],
                us(node.ns[1]),
                us(node.apart().abs())
            ),
            depth,
            left: hundredth(left),
            width: hundredth(width),
            // The square root makes small differences visible.
            shade: (shade.signum() * shade.abs().sqrt() * 100.0).round() as i32,
        });
        let mut from = left;
        for (name, callee) in &node.callees {
            self.place(name, callee, (depth + 1, from));
            from += callee.both() / self.whole;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_as_wide_as_all_that_they_call() {
        let stack = |frames: &[&str], reference_ns, server_ns| FlameStack {
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            reference_ns,
            server_ns,
        };
        let boxes = boxes(
            ["old", "new"],
            &[
                stack(&["main", "parse"], 1_000.0, 1_000.0),
                stack(&["main", "zip"], 0.0, 6_000.0),
                stack(&["main"], 1_000.0, 1_000.0),
                stack(&["tiny"], 5.0, 5.0),
            ],
        );
        let found: Vec<_> =
            boxes.iter().map(|b| (b.name.as_str(), b.depth, b.left, b.width, b.shade)).collect();
        assert_eq!(
            found,
            [
                ("all", 0, 0.0, 100.0, 100),
                ("main", 1, 0.0, 99.9, 100),
                ("parse", 2, 0.0, 19.98, 0),
                ("zip", 2, 19.98, 59.94, 100),
            ]
        );
        assert_eq!(boxes[3].words, "old: 0.00 µs, new: 6.00 µs (+6.00)");
    }
}
