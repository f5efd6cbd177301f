//! The tables of a report. A column that is added here is in the terminal, in Markdown and on the
//! page.

use super::figure::{cell, text_cell};
use super::{LayerStep, LoadResults, Measure, Report, Role, Row};
use crate::text::number::{self, count};
use crate::text::table::{Cell, Column, Output, Table, Tone};

/// Shown where there is room.
const WIDE: &[Output] = &[Output::Markdown, Output::Page];

/// Beside the figures that others published.
const MARKDOWN: &[Output] = &[Output::Markdown];

/// Details of the page.
const PAGE: &[Output] = &[Output::Page];

impl LoadResults {
    /// The table of servers, for every output.
    #[must_use]
    pub fn table(&self) -> Table {
        let cells = |of: fn(&Row) -> Cell| self.rows.iter().map(of).collect::<Vec<_>>();
        let any_errors = self.rows.iter().any(|row| row.errors > 0);
        let errors = Column::right("errors", cells(errors));
        Table::new(vec![
            Column::right("", self.ranks()).required(),
            Column::name("server", cells(|r| Cell::from(&r.name))).required(),
            Column::right("requests/s", cells(requests)).required(),
            Column::right("× reference", cells(|r| against(r, Measure::Rate))).on(PAGE),
            Column::right("of\nceiling", cells(|r| text_cell(r.of_ceiling.as_ref()))).drop_order(5),
            Column::right("CPU µs\n/request", cells(|r| cell(r.cpu_us.as_ref()))),
            Column::right("CPU × reference", cells(|r| against(r, Measure::Cost))).on(PAGE),
            Column::right("avg", cells(|r| text_cell(r.service.mean.as_ref()))).on(MARKDOWN),
            Column::right("stdev", cells(|r| text_cell(r.service.stdev.as_ref()))).on(MARKDOWN),
            Column::right("p50", cells(|r| text_cell(r.service.p50.as_ref()))).drop_order(4),
            Column::right("p99", cells(|r| text_cell(r.service.p99.as_ref()))).drop_order(6),
            Column::right("max", cells(|r| text_cell(r.service.max.as_ref()))).on(WIDE),
            Column::right("memory", cells(|r| text_cell(r.rss_mb.as_ref()))).drop_order(3),
            Column::right("CPU", cells(|r| text_cell(r.cpu_percent.as_ref()))).on(MARKDOWN),
            if any_errors { errors } else { errors.drop_order(2) },
            Column::right("ready", cells(|r| text_cell(r.ready_ms.as_ref()))).on(PAGE),
            Column::right("p50 at rate", cells(p50_at_rate)).on(MARKDOWN),
            Column::right("p99 at rate", cells(p99_at_rate)).on(MARKDOWN),
            Column::right("checks", cells(|r| Cell::from(&r.conformance))).drop_order(1),
            Column::right("laps", cells(laps)).on(PAGE),
        ])
        .with_tones(self.rows.iter().map(tone).collect())
    }

    /// Response times at the common rate of the servers that reach it, and a sentence that says
    /// what they are; `None` where there are none.
    #[must_use]
    pub fn response_times(&self) -> Option<(String, Table)> {
        let is_shown = |row: &&Row| {
            row.role != Role::Ceiling && row.at_rate().is_some_and(|at| at.p50.is_some())
        };
        let rows: Vec<&Row> = self.rows.iter().filter(is_shown).collect();
        let lead = format!(
            "At {} requests/s for all, counted from the moment a request was due, so that waiting \
             for a slow server counts too:",
            number::rate(rows.first()?.at_rate()?.rate?)
        );
        let known = |cell: Cell| if cell.value.is_some() { cell } else { "not known".into() };
        let table = Table::new(vec![
            Column::name("server", rows.iter().map(|r| &r.name)),
            Column::right("p50", rows.iter().map(|r| p50_at_rate(r))),
            Column::right("p99", rows.iter().map(|r| known(p99_at_rate(r)))),
        ]);
        Some((lead, table))
    }

    /// What latencies in the table are, where that is not service time in a closed loop.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let offered = self.rate.map(|rate| {
            format!(
                "Open loop at {} requests/s: latency is counted from the moment a request was due.",
                number::rate(rate)
            )
        });
        offered.into_iter().collect()
    }

    /// Failures by kind, a row a server and kind.
    #[must_use]
    pub fn error_table(&self) -> Table {
        let all = || self.rows.iter().flat_map(|r| r.errors_by_kind.iter().map(move |e| (r, e)));
        Table::new(vec![
            Column::name("server", all().map(|(r, _)| &r.name)),
            Column::left("kind", all().map(|(_, e)| &e.kind)),
            Column::left("phase", all().map(|(_, e)| &e.phase)),
            Column::right("count", all().map(|(_, e)| Cell::from(count(e.count)))),
        ])
    }

    fn ranks(&self) -> Vec<Cell> {
        let rank = |(place, row): (usize, &Row)| {
            let text = row.rank.map_or_else(String::new, |rank| rank.to_string());
            Cell::from(text).sorted_by(place as f64)
        };
        self.rows.iter().enumerate().map(rank).collect()
    }
}

impl Report {
    /// The steps between the layers under one load.
    pub fn steps(&self, load: &LoadResults) -> impl Iterator<Item = &LayerStep> {
        let load = load.load;
        self.layers.iter().filter(move |step| step.load == load)
    }

    /// The steps under one load as a table, for every output.
    #[must_use]
    pub fn step_table(&self, load: &LoadResults) -> Table {
        let cells = |of: fn(&LayerStep) -> Cell| self.steps(load).map(of);
        Table::new(vec![
            Column::name("step", cells(|s| Cell::from(&s.to).shortened_to(&s.short.0))),
            Column::name("on", cells(|s| Cell::from(&s.from).shortened_to(&s.short.1))),
            Column::right("CPU\na request", cells(|s| cell(s.cpu_us.as_ref()))),
            Column::right("wall time\na request", cells(|s| cell(s.wall_us.as_ref())))
                .drop_order(1),
            Column::right("CPU", cells(|s| cell(s.cost.as_ref()))).on(WIDE),
            Column::right("requests/s", cells(|s| cell(s.requests_per_s.as_ref()))).on(WIDE),
            Column::left("", cells(remark)),
        ])
    }
}

/// What speaks against a step.
fn remark(step: &LayerStep) -> Cell {
    let text = if step.side_effect.is_empty() { step.caution } else { &step.side_effect };
    Cell::from(text).shortened_to(step.caution)
}

fn tone(row: &Row) -> Tone {
    match row.role {
        Role::Ceiling => Tone::Faint,
        _ if row.errors > 0 => Tone::Bad,
        _ if row.rank == Some(1) => Tone::Good,
        _ => Tone::Plain,
    }
}

fn requests(row: &Row) -> Cell {
    match row.rate() {
        Some(figure) => cell(Some(&figure)),
        None => "no lap counts".into(),
    }
}

fn against(row: &Row, measure: Measure) -> Cell {
    cell(row.against.as_ref().and_then(|against| against.measures[measure].ratio.as_ref()))
}

fn errors(row: &Row) -> Cell {
    Cell::from(count(row.errors)).sorted_by(row.errors as f64)
}

fn p50_at_rate(row: &Row) -> Cell {
    text_cell(row.at_rate().and_then(|at| at.p50.as_ref()))
}

fn p99_at_rate(row: &Row) -> Cell {
    text_cell(row.at_rate().and_then(|at| at.p99.as_ref()))
}

fn laps(row: &Row) -> Cell {
    let (counting, all) = row.laps;
    let text = match counting == all {
        true => all.to_string(),
        false => format!("{counting} of {all}"),
    };
    Cell::from(text).sorted_by(f64::from(counting))
}
