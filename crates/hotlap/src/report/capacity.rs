//! The capacity of servers: figures, sentences and the table of a search.

use serde::Serialize;

use super::figure::{Figure, cell, exactly, micros, millis, per_second, ratio, text_cell};
use super::heading::{title_of_one, under, with_load};
use super::verdict::Judged;
use crate::analysis::CapacityAnalysis;
use crate::analysis::capacity::{Highest, LatencyAtRate, ServerCapacity, TrialView};
use crate::model::{Objective, Role, Run};
use crate::text::number::{self, rounded};
use crate::text::table::{Cell, Column, Table, Tone};

/// The capacities under one load.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapacityResults {
    /// The index of the load.
    pub load: usize,
    /// The load, in words. Empty if the run has only one load.
    pub title: String,
    /// The words ` under POST /bla`, for a sentence about one of several loads. Empty for one load.
    #[serde(skip)]
    pub under: String,
    /// The goals of the search: `p99 < 10 ms`.
    pub goals: Vec<String>,
    /// The limit of the first latency goal, in milliseconds. `null` without a latency goal.
    pub limit_ms: Option<f64>,
    /// The percentile of the first latency goal, as a share. `null` without a latency goal.
    pub quantile: Option<f64>,
    /// The name of the reference.
    pub reference: Option<String>,
    /// The servers, starting with the highest capacity.
    pub rows: Vec<CapacityRow>,
    /// The result, in sentences.
    pub sentences: Vec<String>,
}

/// The capacity of one server.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapacityRow {
    /// The server's name in tables.
    pub name: String,
    /// The server's role in the run.
    pub role: Role,
    /// The server's version, as its toolchain reports it.
    pub version: String,
    /// The highest rate at which the server meets every goal for long, in requests/s. `null` if the
    /// server missed a goal even at the lowest rate that was tried, or if nothing is known.
    pub capacity: Option<Figure>,
    /// The lowest rate that was tried, in requests/s. `null` unless a goal was missed even there.
    pub below: Option<f64>,
    /// The goal that the server missed in the most windows. `null` if the server missed none.
    pub decided_by: Option<String>,
    /// The ratio of the server's capacity to the reference's. `null` if unknown.
    pub ratio: Option<Figure>,
    /// The verdict on the ratio. Missing for the reference, and if the ratio is unknown.
    #[serde(flatten)]
    pub judged: Option<Judged>,
    /// The verdict in words: `higher`, `lower`, `equal within ±2%`, `not decided`,
    /// `not measured well enough`, or `inconclusive: ` and the reason. Empty without a ratio.
    pub words: String,
    /// The window in which the server was held at the capacity, for longer than in other windows.
    /// `null` if no such window counts.
    pub held: Option<HeldWindow>,
    /// CPU time per request near the capacity, in microseconds.
    pub cpu_us: Option<Figure>,
    /// The number of restarts that the interval rests on.
    pub restarts: usize,
    /// The latency at each rate. Empty without a latency goal.
    pub curve: Vec<CapacityPoint>,
    /// The windows, ordered by rate.
    pub windows: Vec<CapacityWindow>,
}

/// A point of the curve: the latency of windows with similar rates.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapacityPoint {
    /// The mean rate of the windows, in requests/s.
    pub rate: f64,
    /// The median over the windows of the percentile of the first latency goal, in milliseconds.
    pub latency_ms: f64,
    /// The lowest value of this percentile in any of the windows, in milliseconds.
    pub low_ms: f64,
    /// The highest value of this percentile in any of the windows, in milliseconds.
    pub high_ms: f64,
}

/// One window of a search.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapacityWindow {
    /// The offered rate, in requests/s.
    pub rate: f64,
    /// Whether the window passed its validity checks.
    pub counts: bool,
    /// Whether the server met every goal in the window.
    pub is_kept: bool,
    /// The percentile of the first latency goal. `null` without a latency goal.
    pub latency: Option<Figure>,
}

/// A window in which a server was held at the rate that the search found.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldWindow {
    /// The length of the window, in seconds.
    pub seconds: f64,
    /// What the window showed.
    #[serde(flatten)]
    pub window: CapacityWindow,
}

impl CapacityResults {
    pub(super) fn of(run: &Run, analysis: &CapacityAnalysis) -> Self {
        let mut order: Vec<usize> =
            (0..run.servers.len()).filter(|&server| run.is_shown(server)).collect();
        analysis.sort(&mut order);
        let latency = run.schedule.objectives.iter().find_map(Objective::latency);
        let mut results = Self {
            load: analysis.load,
            title: title_of_one(run, analysis.load),
            under: under(run, analysis.load),
            goals: run.schedule.objectives.iter().map(ToString::to_string).collect(),
            limit_ms: latency.map(|(_, limit_ns)| limit_ns as f64 / 1e6),
            quantile: latency.map(|(quantile, _)| quantile),
            reference: analysis.reference.map(|r| run.servers[r].name.clone()),
            rows: order.into_iter().map(|s| CapacityRow::of(run, analysis, s)).collect(),
            sentences: Vec::new(),
        };
        results.sentences = results.in_sentences();
        results
    }

    /// Returns the goals in words: `p99 < 10 ms and errors < 0.1%`.
    pub fn goals_in_words(&self) -> String {
        self.goals.join(" and ")
    }

    /// Returns the table of servers, for every output.
    pub fn table(&self) -> Table {
        let cells = |of: fn(&CapacityRow) -> Cell| self.rows.iter().map(of).collect::<Vec<_>>();
        let ratios = self.rows.iter().map(|row| match Some(&row.name) == self.reference.as_ref() {
            true if self.rows.len() > 1 => Cell::from("reference").sorted_by(1.0),
            _ => cell(row.ratio.as_ref()),
        });
        let held = self.rows.iter().find_map(|row| row.held.as_ref());
        let held = held.map_or_else(String::new, |held| {
            format!("{} in {:.0} s", self.latency_name(), held.seconds)
        });
        let mut columns = vec![
            Column::name("server", cells(|r| Cell::from(&r.name))).required(),
            Column::right("capacity, req/s", cells(CapacityRow::capacity_cell)).required(),
            Column::right("vs reference", ratios.collect::<Vec<_>>()),
        ];
        if self.goals.len() > 1 {
            let decided = cells(|r| Cell::from(r.decided_by.as_deref().unwrap_or_default()));
            columns.push(Column::left("limited by", decided));
        }
        columns.extend([
            Column::right(&held, cells(CapacityRow::held_cell)).drop_order(2),
            Column::right(
                "CPU/req",
                cells(|r| match &r.cpu_us {
                    Some(cpu) => Cell::from(format!("{} µs", cpu.text)).sorted_by(cpu.value),
                    None => text_cell(None),
                }),
            )
            .drop_order(1),
        ]);
        let tone = |row: &CapacityRow| if row.capacity.is_some() { Tone::Plain } else { Tone::Bad };
        Table::new(columns).with_tones(self.rows.iter().map(tone).collect())
    }

    /// Returns the footnotes to the columns of the table.
    pub fn notes(&self) -> Vec<String> {
        let is_held = |row: &CapacityRow| row.held.as_ref().is_some_and(|held| held.is_met());
        let note = "capacity: the highest rate that meets the goals, checked for longer at the end";
        self.rows.iter().any(is_held).then(|| note.to_owned()).into_iter().collect()
    }

    /// Returns the windows as a table, with the rates that were tried and the results.
    pub fn window_table(&self) -> Table {
        let all = || self.rows.iter().flat_map(|r| r.windows.iter().map(move |w| (r, w)));
        let kept = |window: &CapacityWindow| match (window.counts, window.is_kept) {
            (false, _) => "excluded",
            (true, true) => "met",
            (true, false) => "missed",
        };
        Table::new(vec![
            Column::name("server", all().map(|(r, _)| &r.name)),
            Column::right(
                "req/s",
                all().map(|(_, w)| Cell::from(number::rate(w.rate)).sorted_by(w.rate)),
            ),
            Column::right(&self.latency_name(), all().map(|(_, w)| text_cell(w.latency.as_ref()))),
            Column::left("goal", all().map(|(_, w)| kept(w))),
        ])
    }

    /// Returns the name of the percentile of the first latency goal: `p99`.
    pub fn latency_name(&self) -> String {
        let name = self.goals.iter().find(|goal| goal.starts_with('p'));
        name.and_then(|goal| goal.split(' ').next()).unwrap_or_default().to_owned()
    }

    /// Returns the sentences. Each sentence begins with its load if there are several loads.
    pub(super) fn sentences_with_load(&self) -> impl Iterator<Item = String> {
        self.sentences.iter().map(|sentence| with_load(&self.under, sentence))
    }

    /// Returns one sentence for each server. The reference comes first, because the others are
    /// compared with it.
    fn in_sentences(&self) -> Vec<String> {
        let is_reference = |row: &&CapacityRow| Some(&row.name) == self.reference.as_ref();
        let first = self.rows.iter().filter(is_reference);
        let others = self.rows.iter().filter(|row| !is_reference(row));
        first.chain(others).map(|row| self.sentence(row)).collect()
    }

    fn sentence(&self, row: &CapacityRow) -> String {
        let goals = self.goals_in_words();
        let Some(capacity) = &row.capacity else {
            return match row.below {
                Some(rate) => format!(
                    "{} does not meet {goals} even at {} requests/s, the lowest rate that was \
                     tried.",
                    row.name,
                    number::rate(rate)
                ),
                None => {
                    format!("{}: no window counts, so its capacity is unknown.", row.name)
                }
            };
        };
        if capacity.is_lower_bound {
            let was_late = |window: &CapacityWindow| !window.counts && window.rate > capacity.value;
            let why = match row.windows.iter().any(was_late) {
                true => "the load generator could not offer more",
                false => {
                    "the search ended before it found the limit (a longer --duration gives more \
                     time)"
                }
            };
            let rate = number::rate(capacity.value);
            return format!("{} meets {goals} at {rate} requests/s; {why}.", row.name);
        }
        let own = format!(
            "{} meets {goals} up to {} requests/s{}",
            row.name,
            with_interval(capacity),
            row.held_words(&self.latency_name())
        );
        let Some(reference) = self.reference.as_ref().filter(|name| **name != row.name) else {
            return own + ".";
        };
        match (&row.ratio, row.judged) {
            (Some(ratio), Some(Judged::Better | Judged::Worse)) => {
                format!("{own}: {} the capacity of {reference}.", ratio.full())
            }
            (Some(ratio), _) => {
                format!("{own}: {} the capacity of {reference}, {}.", ratio.full(), row.words)
            }
            (None, _) => own + ".",
        }
    }
}

/// Formats a figure with its interval: `41,000 [39,100, 42,600]`.
pub(super) fn with_interval(figure: &Figure) -> String {
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => {
            format!("{} [{}, {}]", figure.text, number::rate(low), number::rate(high))
        }
        _ => figure.text.clone(),
    }
}

impl CapacityRow {
    fn of(run: &Run, analysis: &CapacityAnalysis, index: usize) -> Self {
        let server = &run.servers[index];
        let found: &ServerCapacity = &analysis.servers[index];
        let below = match found.found {
            Highest::Below(rate) => Some(rounded(rate)),
            _ => None,
        };
        let objectives = &run.schedule.objectives;
        let judged = found.against.map(|against| Judged::of(Some(against)));
        Self {
            name: server.name.clone(),
            role: server.role,
            version: server.version.clone(),
            capacity: capacity_figure(found.found),
            below,
            decided_by: found.decisive.map(|goal| objectives[goal].to_string()),
            ratio: found.against.map(|(effect, _)| ratio(&effect.ratio)),
            judged,
            words: judged.map(|judged| judged.words(None)).unwrap_or_default(),
            held: found.held.as_ref().map(HeldWindow::of),
            cpu_us: found.cost_ns.map(|ns| micros(&exactly(ns / 1e3))),
            restarts: found.restarts(),
            curve: found.curve().iter().map(CapacityPoint::of).collect(),
            windows: found.windows.iter().map(CapacityWindow::of).collect(),
        }
    }

    fn capacity_cell(&self) -> Cell {
        match (&self.capacity, self.below) {
            (Some(capacity), _) => {
                let spread = if capacity.low.is_some() { &capacity.spread } else { "" };
                Cell { spread: spread.to_owned(), ..text_cell(Some(capacity)) }
            }
            (None, Some(rate)) => Cell::from(format!("< {}", number::rate(rate))).sorted_by(0.0),
            (None, None) => "no valid windows".into(),
        }
    }

    fn held_cell(&self) -> Cell {
        text_cell(self.held.as_ref().and_then(|held| held.window.latency.as_ref()))
    }

    /// Describes the window in which the server was held: ` (30 s at this rate: p99 8.7 ms)`.
    fn held_words(&self, latency: &str) -> String {
        let Some(HeldWindow { seconds, window }) = &self.held else {
            return " in short windows".to_owned();
        };
        let found = match &window.latency {
            Some(found) => format!("{latency} {}", found.text),
            None => "goals met".to_owned(),
        };
        match (window.counts, window.is_kept) {
            (true, true) => format!(" ({seconds:.0} s at this rate: {found})"),
            (true, false) => format!(
                " in windows of a few seconds, but not for long ({seconds:.0} s at {} requests/s: \
                 {found})",
                number::rate(window.rate)
            ),
            (false, _) => " in short windows (the long window is excluded)".to_owned(),
        }
    }
}

/// Returns the highest rate that meets every goal, or a lower bound. `None` if both are unknown.
pub(super) fn capacity_figure(found: Highest) -> Option<Figure> {
    match found {
        Highest::Rate(rate) => Some(per_second(&rate)),
        Highest::AtLeast(rate) => Some(per_second(&exactly(rate)).at_least()),
        Highest::Below(_) | Highest::Unknown => None,
    }
}

impl CapacityPoint {
    fn of(at: &LatencyAtRate) -> Self {
        let ms = |ns: f64| rounded(ns / 1e6);
        Self {
            rate: rounded(at.rate),
            latency_ms: ms(at.median_ns),
            low_ms: ms(at.lowest_ns),
            high_ms: ms(at.highest_ns),
        }
    }
}

impl HeldWindow {
    fn of(window: &TrialView) -> Self {
        let seconds = rounded(window.window_ns as f64 / 1e9);
        Self { seconds, window: CapacityWindow::of(window) }
    }

    /// Whether the window counts and the server met every goal.
    pub fn is_met(&self) -> bool {
        self.window.counts && self.window.is_kept
    }
}

impl CapacityWindow {
    fn of(window: &TrialView) -> Self {
        let latency = window.latency_ns.map(|(ns, is_lower_bound)| {
            let figure = millis(ns as f64 / 1e6);
            if is_lower_bound { figure.at_least() } else { figure }
        });
        Self {
            rate: rounded(window.rate),
            counts: window.counts,
            is_kept: window.is_kept(),
            latency,
        }
    }
}
