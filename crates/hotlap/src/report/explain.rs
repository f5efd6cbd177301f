//! Where a difference in CPU time per request comes from: the ledger, the counts, the sentence.
//!
//! Every line of the ledger is rounded to the same digit, and what rounding leaves goes into the
//! lines for the rest: so the printed lines add up to the printed difference.

mod counts;
mod evidence;
mod flame;
mod ledger;
mod sentence;

use hotlap_stats::{Estimate, Inconclusive, MIN_RESTARTS};
use serde::Serialize;

use super::figure::{Figure, difference, micros};
use super::loads::{load_title, under};
use super::verdict::Judged;
use super::warnings::violation;
use crate::analysis::explain::Group;
use crate::analysis::{Explanation, Measure};
use crate::model::{Load, Run};
use crate::text::layout::shortened;
use crate::text::number::{count, grouped};
use crate::text::table::{Cell, Column, Table, Tone};
pub use counts::CountRow;
pub use flame::FlameBox;
pub use ledger::{LedgerKind, LedgerRow};

/// Names of servers in the heads of columns are shortened to this width.
const HEADING: usize = 14;

/// Why a server costs more or less CPU time per request than its reference.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ExplanationResults {
    /// The index of the load.
    pub load: usize,
    /// The load, in words; empty if it is the only one.
    pub title: String,
    /// Name of the reference.
    pub reference: String,
    /// Name of the server.
    pub server: String,
    /// CPU time per request of the reference, in microseconds.
    pub reference_us: Figure,
    /// CPU time per request of the server, in microseconds.
    pub server_us: Figure,
    /// The difference, the server's minus the reference's, in microseconds.
    pub difference_us: Figure,
    /// The verdict.
    #[serde(flatten)]
    pub judged: Judged,
    /// The verdict in words: `costs more`, `costs less`, `equal within ±2%`, `not decided`, `not
    /// measured well enough`, or `inconclusive: ` and why.
    pub words: String,
    /// The restarts that it rests on.
    pub restarts: u32,
    /// The result in one sentence or two.
    pub sentence: String,
    /// The ledger: groups, each followed by its functions; then what is not explained, and the
    /// difference. Empty without a profile.
    pub ledger: Vec<LedgerRow>,
    /// What was counted per request.
    pub counts: Vec<CountRow>,
    /// Notes on how the two were observed.
    pub notes: Vec<String>,
    /// The flame graph of both.
    #[serde(skip)]
    pub flame: Vec<FlameBox>,
}

impl ExplanationResults {
    pub(super) fn of(run: &Run, found: &Explanation) -> Self {
        let all: Vec<&Load> = run.loads.iter().collect();
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
            title: match all.len() {
                0 | 1 => String::new(),
                _ => load_title(&run.loads[found.load], &all),
            },
            reference: name(found.reference),
            server: name(found.server),
            reference_us: micros(&us(&found.cost.reference)),
            server_us: micros(&us(&found.cost.server)),
            difference_us: difference(&us(&found.cost.difference)),
            judged,
            words: judged.words(Some(Measure::Cost)),
            restarts: found.cost.restarts,
            sentence: sentence::of(
                [&name(found.reference), &name(found.server)],
                &under(run, found.load),
                found,
            ),
            ledger: ledger::rows(found),
            counts: found.counts.iter().filter_map(CountRow::of).collect(),
            notes: notes(run, found),
            flame: flame::boxes([&name(found.reference), &name(found.server)], &found.stacks),
        }
    }

    /// The ledger as a table, with all functions of some size or the important ones.
    pub fn ledger_table(&self, has_details: bool) -> Table {
        let rows: Vec<LedgerRow> = ledger::shown(&self.ledger, has_details);
        let cells = |of: fn(&LedgerRow) -> Cell| rows.iter().map(of).collect::<Vec<_>>();
        let tones = rows.iter().map(LedgerRow::tone).collect();
        Table::new(vec![
            Column::name("CPU µs/request", cells(LedgerRow::name_cell)).required(),
            Column::right(
                "difference",
                cells(|row| text(Some(row.difference_us), &row.difference_text)),
            )
            .required(),
            Column::right("±", cells(|row| Cell::from(&row.half_width_text))),
            Column::right(
                &shortened(&self.reference, HEADING),
                cells(|row| text(row.reference_us, &row.reference_text)),
            )
            .drop_order(2),
            Column::right(
                &shortened(&self.server, HEADING),
                cells(|row| text(row.server_us, &row.server_text)),
            )
            .drop_order(2),
            Column::prose("per request", cells(|row| Cell::from(&row.evidence))).drop_order(1),
        ])
        .with_tones(tones)
    }

    /// What was counted as a table: all of it, or what differs.
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

    /// Which servers it is about, and under which load if there are several.
    pub fn heading(&self) -> String {
        let Self { server, reference, title, .. } = self;
        match title.is_empty() {
            true => format!("{server} against {reference}"),
            false => format!("{server} against {reference}: {title}"),
        }
    }
}

fn text(value: Option<f64>, text: &str) -> Cell {
    let cell = Cell::from(text);
    value.map_or(cell.clone(), |value| cell.sorted_by(value))
}

/// Notes on how the two were observed: what is missing is a warning of the run.
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
            "Measured with {}, so that the profile has the names of compiled functions.",
            env.join(", ")
        ));
    }
    if let Some(ledger) = &found.ledger {
        if !ledger.has_kernel {
            notes.push(
                "The profile has no samples of the kernel: its part is in \"not explained\"."
                    .to_owned(),
            );
        }
        if let Some(by) = found.distortion.filter(|by| is_distorted(&found.cost.difference, by)) {
            notes.push(format!(
                "The profiler changes what it measures: in its laps, {} is added to the difference.",
                difference(&by.scaled(1e-3)).text
            ));
        }
        if ledger.groups.iter().any(|line| line.differs && line.group == Group::Notifying) {
            notes.push(
                "Notifying the receiver is part of sending. It costs more if the receiver sleeps \
                 and has to be woken. The load generator sleeps if it shares cores with a server."
                    .to_owned(),
            );
        }
        if ledger.lost > 0.01 {
            let percent = grouped(ledger.lost * 100.0, 0);
            notes.push(format!("The profile lost {percent} % of its samples."));
        }
    }
    notes
}

/// Whether what the profiler adds to a difference is more than noise and a tenth of it.
fn is_distorted(difference: &Estimate, by: &Estimate) -> bool {
    let is_certain = by.is_bounded() && (by.low > 0.0 || by.high < 0.0);
    is_certain && by.value.abs() > difference.value.abs() / 10.0
}

/// What could not be observed, each with a remedy; once for all servers for which it is the same.
pub(super) fn warnings(run: &Run) -> Vec<String> {
    let missing = &run.schedule.observing.missing;
    let mut sentences: Vec<String> = Vec::new();
    for found in missing {
        let alike = |other: &&crate::model::Missing| {
            (&other.what, &other.why, &other.remedy) == (&found.what, &found.why, &found.remedy)
        };
        let names: Vec<&str> = missing
            .iter()
            .filter(alike)
            .map(|found| run.servers[found.server].name.as_str())
            .collect();
        let sentence = format!(
            "{}: {} cannot be observed: {}; {}.",
            names.join(", "),
            found.what,
            found.why,
            found.remedy
        );
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    let servers = 0..run.servers.len();
    sentences.into_iter().chain(servers.filter_map(|server| left_out(run, server))).collect()
}

/// Laps of a server that explain nothing, because they failed a validity check.
fn left_out(run: &Run, server: usize) -> Option<String> {
    let laps = || run.explain.iter().filter(|explains| explains.lap.server == server);
    let failed = || laps().filter(|lap| !lap.counts());
    let why = failed()
        .flat_map(|explains| &explains.lap.failed)
        .find(|violation| violation.invalidates())?;
    Some(format!(
        "{}: {} of {} laps that explain do not count: {} in the first of them.",
        run.servers[server].name,
        count(failed().count() as u64),
        count(laps().count() as u64),
        violation(why)
    ))
}
