//! Published figures for the servers of a table, by source.

use super::figure::{cell, text_cell};
use super::{LoadResults, PublishedView};
use crate::text::table::{Cell, Column, Table};

/// The figures of one source for the servers of a table.
#[derive(Debug)]
pub struct Source<'a> {
    /// One of its rows, for the facts that all of them share.
    pub any: &'a PublishedView,
    /// The servers, and their published figures.
    pub rows: Vec<(&'a str, &'a PublishedView)>,
}

impl LoadResults {
    /// Published figures for the servers of this table, by source.
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
    pub fn heading(&self) -> String {
        format!("Published in {}: {}", self.any.year, self.any.source)
    }

    /// Published figures beside measured ones, for outputs that have room for a table.
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

    /// The machine and the method of a source, and the reason for caution, in parts.
    pub fn circumstances(&self) -> Vec<String> {
        let doubt = match self.any.source_doubt.as_str() {
            "" => String::new(),
            doubt => format!("doubt: {doubt}"),
        };
        let parts = [self.any.machine.clone(), self.any.command.clone(), doubt];
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }
}
