//! The overview of a run with several loads: each server's CPU time per request under each load,
//! relative to the reference.

use std::collections::BTreeMap;

use super::verdict::Judged;
use super::{Measure, MeasureVerdict, Report, Role, Row};
use crate::model::Question;
use crate::text::table::{Cell, Column, Table};

/// The overview of a run with several loads.
#[derive(Debug)]
pub struct Overview {
    /// What the table shows.
    pub title: String,
    /// One row per server, one column per load.
    pub table: Table,
    /// What the marks and the order mean.
    pub note: &'static str,
}

impl Report {
    /// Returns the overview. `None` unless at least two loads compare servers with a reference.
    pub fn overview(&self) -> Option<Overview> {
        let [first, _, ..] = &self.tables[..] else { return None };
        if self.run.question != Question::Compare {
            return None;
        }
        let reference = first.reference.as_deref()?;
        let names = self.by_mean();
        if names.len() < 2 {
            return None;
        }
        let rows = || self.tables.iter().flat_map(|table| &table.rows);
        let decided: Vec<bool> = rows().filter_map(compared).map(is_decided).collect();
        let some_are_decided = decided.contains(&true);
        let mut columns = vec![Column::name("server", names.iter().copied())];
        for table in &self.tables {
            let of = |name: &&str| table.rows.iter().find(|row| row.name == **name);
            let cells = names.iter().map(|name| match *name == reference {
                true => Cell::from("1×").sorted_by(1.0),
                false => of(name)
                    .and_then(compared)
                    .map_or_else(Cell::default, |found| cell(found, some_are_decided)),
            });
            let load = self.run.loads.get(table.load).map_or("", |load| load.name.as_str());
            let heading = if load.is_empty() { &table.title } else { load };
            columns.push(Column::right(heading, cells));
        }
        let both = if rows().any(uses_database) { " of server and database" } else { "" };
        Some(Overview {
            title: format!("CPU time per request{both}, relative to {reference}"),
            table: Table::new(columns),
            note: match (some_are_decided, decided.contains(&false)) {
                (true, true) => "? no verdict · rows in the order of their geometric means",
                (true, false) => "rows in the order of their geometric means",
                (false, _) => "none has a verdict · rows in the order of their geometric means",
            },
        })
    }

    /// Returns the names of the servers in the order of the geometric means of their ratios, over
    /// the loads under which they were compared.
    fn by_mean(&self) -> Vec<&str> {
        let mut logs: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        for row in rows.filter(|row| row.role != Role::Ceiling) {
            let own = logs.entry(&row.name).or_default();
            own.extend(compared(row).and_then(ratio).map(f64::ln));
        }
        let mean = |name: &str| {
            let logs = &logs[name];
            logs.iter().sum::<f64>() / logs.len().max(1) as f64
        };
        let mut names: Vec<&str> = logs.keys().copied().collect();
        names.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
        names
    }
}

fn uses_database(row: &Row) -> bool {
    row.total_us.is_some()
}

/// Returns the comparison of a server's whole CPU time per request with the reference's.
fn compared(row: &Row) -> Option<&MeasureVerdict> {
    let measure = if uses_database(row) { Measure::Total } else { Measure::Cost };
    Some(&row.against.as_ref()?.measures[measure])
}

fn ratio(found: &MeasureVerdict) -> Option<f64> {
    found.ratio.as_ref().map(|ratio| ratio.value).filter(|ratio| *ratio > 0.0)
}

fn is_decided(found: &MeasureVerdict) -> bool {
    matches!(found.judged, Judged::Better | Judged::Worse | Judged::Equal { .. })
}

/// Returns a cell with a ratio, and with a mark if some ratios have a verdict, but not this one.
fn cell(found: &MeasureVerdict, some_are_decided: bool) -> Cell {
    let Some(ratio) = &found.ratio else { return Cell::default() };
    let mark = if some_are_decided && !is_decided(found) { "?" } else { "" };
    Cell::from(format!("{}{mark}", ratio.text)).sorted_by(ratio.value)
}
