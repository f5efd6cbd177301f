//! The tables of a report. A column added here appears in the terminal, in Markdown and on the
//! page.

use super::figure::{Figure, cell, text_cell};
use super::{Latency, LayerStep, LoadResults, Measure, Report, RequestRow, Role, Row};
use crate::text::number::{self, count};
use crate::text::table::{Cell, Column, Output, Table, Tone};

/// Outputs with more room than a terminal.
const WIDE: &[Output] = &[Output::Markdown, Output::Page];

impl LoadResults {
    /// The table of servers, for every output: levels, and ratios to the reference with their
    /// intervals. A terminal shows levels without intervals; [`Row::details`] has the rest.
    pub fn table(&self) -> Table {
        let cells = |of: fn(&Row) -> Cell| self.rows.iter().map(of).collect::<Vec<_>>();
        let any_errors = self.rows.iter().any(|row| row.errors > 0);
        let any_failed_checks = self.rows.iter().any(Row::fails_checks);
        let (of_rate, of_cost) = match self.is_ordered_by_cost() {
            false => (self.against(Measure::Rate, true), self.against(Measure::Cost, false)),
            true => (self.against(Measure::Rate, false), self.against(Measure::Cost, true)),
        };
        let mark = self.mark();
        let latency = |q: &str, of: fn(&Latency) -> Option<&Figure>| {
            let cells = self.rows.iter().map(|row| text_cell(self.latency_of(row).and_then(of)));
            Column::right(&format!("{q}{mark}"), cells)
        };
        let mut columns = vec![
            Column::right("", self.ranks()).required(),
            Column::name("server", cells(|r| Cell::from(&r.name))).required(),
            Column::right("req/s", cells(requests)).required(),
            of_rate,
            Column::right("CPU/req", cells(cost)),
            of_cost,
            latency("p50", |l| l.p50.as_ref()).drop_order(4),
            latency("p99", |l| l.p99.as_ref()).drop_order(5),
            Column::right("memory", cells(|r| text_cell(r.rss_mb.as_ref()))).drop_order(3),
        ];
        if any_errors {
            columns.push(Column::right("errors", cells(errors)));
        }
        if any_failed_checks {
            let checks = Column::right(
                "checks",
                cells(|r| {
                    r.conformance
                        .map_or_else(Cell::default, |checks| Cell::from(checks.to_string()))
                }),
            );
            columns.push(checks.on(WIDE));
        }
        Table::new(columns).with_tones(self.rows.iter().map(tone).collect())
    }

    /// Ratios to the reference in a measure. On a narrow terminal, the ratio that does not
    /// determine the order is left out first.
    fn against(&self, measure: Measure, decides: bool) -> Column {
        let ratio = |row: &Row| row.against.as_ref()?.measures[measure].ratio.clone();
        let any = self.rows.iter().any(|row| ratio(row).is_some());
        let cells = self.rows.iter().map(|row| match Some(&row.name) == self.reference.as_ref() {
            true if any && decides => Cell::from("reference").sorted_by(1.0),
            _ => cell(ratio(row).as_ref()),
        });
        let heading = match (measure, decides) {
            (Measure::Rate, true) => "vs reference",
            (Measure::Rate, false) => "req/s vs ref.",
            (_, true) => "CPU vs reference",
            (_, false) => "CPU vs ref.",
        };
        let column = Column::right(heading, cells.collect::<Vec<_>>());
        if decides { column } else { column.drop_order(2) }
    }

    /// Whether the servers are ordered by CPU time per request, because the generator limits some
    /// of them.
    fn is_ordered_by_cost(&self) -> bool {
        let is_own = |row: &&Row| row.role != Role::Ceiling;
        self.rate.is_some() || self.rows.iter().filter(is_own).any(|row| row.generator_limited)
    }

    /// The latency of a row's percentiles. It has one meaning for the whole table: response time at
    /// the common rate if that was measured, else the latency of the load itself.
    pub(crate) fn latency_of<'a>(&self, row: &'a Row) -> Option<&'a Latency> {
        if self.common_rate().is_some() { row.at_rate() } else { Some(&row.service) }
    }

    /// The rate of laps at a common rate; `None` if no server has a percentile there.
    pub(super) fn common_rate(&self) -> Option<f64> {
        let is_known = |latency: &&Latency| latency.p50.is_some();
        self.rows.iter().filter_map(Row::at_rate).find(is_known)?.rate
    }

    /// What the percentiles of the table are; `None` if it has none.
    pub(crate) fn latency_mark(&self) -> Option<String> {
        let has_any = |row: &Row| self.latency_of(row).is_some_and(|l| l.p50.is_some());
        if !self.rows.iter().any(has_any) {
            return None;
        }
        Some(match self.common_rate().or(self.rate) {
            Some(rate) => format!(
                "* open loop at {} req/s, counted from when each request was due",
                number::rate(rate)
            ),
            None => "* closed loop, at saturation".to_owned(),
        })
    }

    /// The mark of columns with percentiles, which [`Self::notes`] explains.
    fn mark(&self) -> &'static str {
        if self.latency_mark().is_some() { "*" } else { "" }
    }

    /// Footnotes to the columns of the table.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.latency_mark().into_iter().collect();
        let lacks_p99 =
            |row: &Row| self.latency_of(row).is_some_and(|l| l.p50.is_some() && l.p99.is_none());
        if self.rows.iter().any(lacks_p99) {
            let why = "p99 is left out (–) where the next run would show another: a longer \
                       --duration measures more";
            notes.push(why.to_owned());
        }
        notes.extend(self.is_the_machines());
        notes
    }

    /// The note that the p99 of some servers cannot be told from the ceiling's p99. A percentile
    /// that is shown is known within a factor of two.
    fn is_the_machines(&self) -> Option<String> {
        let p99 = |row: &Row| Some(self.latency_of(row)?.p99.as_ref()?.value);
        let (ceiling, own): (Vec<&Row>, Vec<&Row>) =
            self.rows.iter().partition(|row| row.role == Role::Ceiling);
        let host = ceiling.into_iter().find_map(p99)?;
        let is_alike = |row: &&Row| p99(row).is_some_and(|own| own < 2.0 * host);
        let alike: Vec<&str> =
            own.into_iter().filter(is_alike).map(|row| row.name.as_str()).collect();
        (!alike.is_empty()).then(|| {
            format!(
                "the p99 of {} cannot be told from the ceiling's p99: possibly it is the machine's",
                alike.join(", ")
            )
        })
    }

    /// Failures by kind: one row per server and kind.
    pub fn error_table(&self) -> Table {
        let all = || self.rows.iter().flat_map(|r| r.errors_by_kind.iter().map(move |e| (r, e)));
        Table::new(vec![
            Column::name("server", all().map(|(r, _)| &r.name)),
            Column::left("kind", all().map(|(_, e)| &e.kind)),
            Column::left("phase", all().map(|(_, e)| &e.phase)),
            Column::right("count", all().map(|(_, e)| Cell::from(count(e.count)))),
        ])
    }

    /// The figures of each request: one row per server and request.
    pub fn request_table(&self) -> Table {
        let cells = |of: fn(&RequestRow) -> Cell| self.by_request.iter().map(of);
        let number = |of: fn(&RequestRow) -> u64| {
            self.by_request.iter().map(move |r| Cell::from(count(of(r))).sorted_by(of(r) as f64))
        };
        let has_errors = self.by_request.iter().any(|r| r.errors > 0);
        let mark = self.mark();
        let mut columns = vec![
            Column::name("server", self.servers_of_requests()),
            Column::prose("request", cells(|r| Cell::from(&r.request))),
            Column::right("requests", number(|r| r.requests)),
            Column::right("share", cells(|r| text_cell(r.share_percent.as_ref()))).drop_order(1),
        ];
        if has_errors {
            columns.push(Column::right("errors", number(|r| r.errors)));
        }
        columns.extend([
            Column::right(&format!("p50{mark}"), cells(|r| text_cell(r.p50.as_ref()))).required(),
            Column::right(&format!("p99{mark}"), cells(|r| text_cell(r.p99.as_ref()))).required(),
        ]);
        Table::new(columns)
    }

    /// The server of each request. A terminal shows it once.
    fn servers_of_requests(&self) -> Vec<Cell> {
        let is_again = |place: usize, server: &str| {
            place.checked_sub(1).is_some_and(|before| self.by_request[before].server == server)
        };
        let cell = |(place, r): (usize, &RequestRow)| match is_again(place, &r.server) {
            false => Cell::from(&r.server),
            true => Cell::from(&r.server).shortened_to(""),
        };
        self.by_request.iter().enumerate().map(cell).collect()
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
    /// How to see the columns that a terminal leaves out; empty if nothing was measured.
    pub fn hint(&self) -> String {
        let rows = || self.tables.iter().filter(|t| t.is_measured).flat_map(|t| &t.rows);
        let has_requests = self.tables.iter().any(|table| !table.by_request.is_empty());
        let more = if has_requests { ", each request" } else { "" };
        match (rows().next(), rows().any(|row| row.errors > 0)) {
            (None, _) => String::new(),
            (_, true) => {
                format!("Errors by kind, intervals of levels, conformance{more}: --details")
            }
            (_, false) => {
                format!("No request errors. Intervals of levels, conformance{more}: --details")
            }
        }
    }

    /// The steps between the layers under one load.
    pub fn steps(&self, load: &LoadResults) -> impl Iterator<Item = &LayerStep> {
        let load = load.load;
        self.layers.iter().filter(move |step| step.load == load)
    }

    /// The steps under one load as a table, for every output.
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

/// Why a step is uncertain.
fn remark(step: &LayerStep) -> Cell {
    let text = if step.side_effect.is_empty() { step.caution } else { &step.side_effect };
    Cell::from(text).shortened_to(step.caution)
}

fn tone(row: &Row) -> Tone {
    match row.role {
        Role::Ceiling => Tone::Faint,
        _ if row.errors > 0 => Tone::Bad,
        _ if row.rank.is_some_and(|rank| rank.best == 1) => Tone::Good,
        _ => Tone::Plain,
    }
}

fn requests(row: &Row) -> Cell {
    match row.rate() {
        Some(figure) => level(&figure, &figure.text),
        None => "no valid laps".into(),
    }
}

fn cost(row: &Row) -> Cell {
    let Some(figure) = row.cpu_us.as_ref() else { return text_cell(None) };
    let text = format!("{} µs", figure.text);
    Cell { text: text.clone(), ..level(figure, &text) }
}

/// A level with its interval. A terminal leaves the interval out: the ratios have intervals, and
/// verdicts rest on those.
fn level(figure: &Figure, short: &str) -> Cell {
    cell(Some(figure)).shortened_to(short)
}

fn errors(row: &Row) -> Cell {
    Cell::from(count(row.errors)).sorted_by(row.errors as f64)
}
