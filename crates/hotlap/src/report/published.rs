//! What was published elsewhere, beside what was measured here, in words.

use serde::Serialize;

use super::LoadResults;
use super::figure::{Figure, bare, cell, exactly, ratio, text_cell};
use crate::analysis::Analysis;
use crate::analysis::published::{MeasuredRatio, ratio_here, ratio_then};
use crate::model::{Published, Run};
use crate::text::number;
use crate::text::table::{Cell, Column, Table};

/// What a source published, beside what was measured here.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct PublishedView {
    /// What it was called there.
    pub called: String,
    /// Requests per second, then.
    pub requests_per_s: Figure,
    /// Average, standard deviation and longest latency, then, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// Memory, then, in MB.
    pub memory_mb: Option<f64>,
    /// CPU use, then, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// The year.
    pub year: u32,
    /// Where.
    pub source: String,
    /// On which machine.
    pub machine: String,
    /// How it was measured.
    pub command: String,
    /// The server that the ratios are relative to; empty where there is none.
    pub relative_to: String,
    /// Relative to that server, then.
    pub ratio_then: Option<Figure>,
    /// Relative to that server, here.
    pub ratio_here: Option<Figure>,
    /// `2016: 2.30× of puma · here: 4.10× [4.00, 4.20]`.
    pub sentence: String,
    /// Why it cannot be trusted; empty when nothing speaks against it.
    pub doubt: String,
    /// What speaks against all that its source published; empty when nothing does.
    pub source_doubt: String,
    /// Socket errors under overload, then: connect, read, write, timeout.
    pub socket_errors: Option<[u64; 4]>,
}

impl PublishedView {
    /// All that was published for a server under this load.
    pub(super) fn all_of<'a>(
        run: &'a Run,
        analysis: &'a Analysis,
        server: usize,
    ) -> impl Iterator<Item = Self> + 'a {
        let all = run.servers[server].published.iter().filter(|p| p.load == analysis.load);
        all.map(move |then| Self::of(run, analysis, server, then))
    }

    fn of(run: &Run, analysis: &Analysis, server: usize, then: &Published) -> Self {
        let base = then.than.as_ref();
        let relative_to = base.map_or("", |base| run.servers[base.server].name.as_str());
        let ratio_then = ratio_then(server, then).map(|value| ratio(&exactly(value)));
        let here = ratio_here(run, analysis, server, then);
        let bound =
            |sign: &str, value: f64| bare(value, format!("{sign} {}", ratio(&exactly(value)).text));
        let ratio_here = match here {
            MeasuredRatio::Known(estimate) => Some(ratio(&estimate)),
            MeasuredRatio::AtLeast(value) => Some(bound("≥", value)),
            MeasuredRatio::AtMost(value) => Some(bound("≤", value)),
            MeasuredRatio::Limited | MeasuredRatio::Unknown => None,
        };
        let here = match (&ratio_here, here) {
            (Some(figure), _) => figure.full(),
            (None, MeasuredRatio::Limited) => {
                "not to be told, as the generator was the limit of both".to_owned()
            }
            _ => "not measured".to_owned(),
        };
        let sentence = match (&ratio_then, base) {
            (Some(r), _) => format!("{}: {} of {relative_to} · here: {here}", then.year, r.text),
            (None, Some(_)) => format!("{}: 1×, what the others are set against", then.year),
            (None, None) => format!(
                "{}: {} requests/s, set against nothing",
                then.year,
                number::rate(then.requests_per_s)
            ),
        };
        let requests = number::grouped(then.requests_per_s.round(), 0);
        Self {
            called: then.called.clone(),
            requests_per_s: bare(then.requests_per_s, requests),
            latency_ms: then.latency_ms,
            memory_mb: then.memory_mb,
            cpu_percent: then.cpu_percent,
            year: then.year,
            source: then.source.clone(),
            machine: then.machine.clone(),
            command: then.command.clone(),
            relative_to: relative_to.to_owned(),
            ratio_then,
            ratio_here,
            sentence,
            doubt: then.doubt.clone(),
            source_doubt: then.source_doubt.clone(),
            socket_errors: then.socket_errors,
        }
    }

    /// The sentence, and what speaks against it.
    #[must_use]
    pub fn sentence_with_doubt(&self) -> String {
        match self.doubt.is_empty() {
            true => self.sentence.clone(),
            false => format!("{} · doubt: {}", self.sentence, self.doubt),
        }
    }
}

/// What one source published for the servers of a table.
#[derive(Debug)]
pub struct Source<'a> {
    /// One of its rows, for what all of them share.
    pub any: &'a PublishedView,
    /// The servers, and what was published for each.
    pub rows: Vec<(&'a str, &'a PublishedView)>,
}

impl LoadResults {
    /// What was published for the servers of this table, source by source.
    #[must_use]
    pub fn sources(&self) -> Vec<Source<'_>> {
        let mut sources: Vec<Source> = Vec::new();
        for row in &self.rows {
            for then in &row.published {
                let key =
                    |p: &PublishedView| (p.source.clone(), p.machine.clone(), p.command.clone());
                match sources.iter_mut().find(|source| key(source.any) == key(then)) {
                    Some(source) => source.rows.push((&row.name, then)),
                    None => sources.push(Source { any: then, rows: vec![(&row.name, then)] }),
                }
            }
        }
        sources
    }
}

impl Source<'_> {
    /// The year and the source.
    #[must_use]
    pub fn heading(&self) -> String {
        format!("Published in {}: {}", self.any.year, self.any.source)
    }

    /// What was published beside what was measured, for outputs that have room for a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let cells = |of: fn(&PublishedView) -> Cell| self.rows.iter().map(move |(_, p)| of(p));
        let number =
            |number: Option<f64>| Cell::from(number.map_or(String::new(), |n| n.to_string()));
        let base = match self.any.relative_to.as_str() {
            "" => String::new(),
            base => format!(" of {base}"),
        };
        let latency = |p: &PublishedView| {
            let figures = p.latency_ms.map(|all| all.map(|ms| ms.to_string()).join("/"));
            Cell::from(figures.unwrap_or_default())
        };
        Table::new(vec![
            Column::name("here", self.rows.iter().map(|(server, _)| *server)),
            Column::left("there", cells(|p| Cell::from(&p.called))),
            Column::right("requests/s then", cells(|p| text_cell(Some(&p.requests_per_s)))),
            Column::right("latency ms (avg/stdev/max)", cells(latency)),
            Column::right("MB", self.rows.iter().map(|(_, p)| number(p.memory_mb))),
            Column::right("%CPU", self.rows.iter().map(|(_, p)| number(p.cpu_percent))),
            Column::right(&format!("then{base}"), cells(|p| text_cell(p.ratio_then.as_ref()))),
            Column::right(&format!("here{base}"), cells(|p| cell(p.ratio_here.as_ref()))),
            Column::left("doubt", cells(|p| Cell::from(&p.doubt))),
        ])
    }

    /// On which machine and how, and what speaks against all of it, in parts.
    #[must_use]
    pub fn circumstances(&self) -> Vec<String> {
        let doubt = match self.any.source_doubt.as_str() {
            "" => String::new(),
            doubt => format!("doubt: {doubt}"),
        };
        let parts = [self.any.machine.clone(), self.any.command.clone(), doubt];
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }
}
