//! The overview of a run with several loads: each server's CPU time per request under each load,
//! relative to the reference.

use std::collections::BTreeMap;

use super::verdict::Judged;
use super::{LoadResults, Measure, MeasureVerdict, Report, Role, Row};
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
    /// Returns the overview. `None` unless the run compares servers with a reference under at
    /// least two loads, and each load has a name of its own.
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
        let known = rows().filter_map(compared).filter(|found| ratio(found).is_some());
        let decided: Vec<bool> = known.map(is_decided).collect();
        let loads: Vec<&str> = self.tables.iter().map(|table| self.name_of(table)).collect();
        let is_named = |load: &&str| {
            !load.is_empty() && loads.iter().filter(|other| *other == load).count() == 1
        };
        if decided.is_empty() || !loads.iter().all(is_named) {
            return None;
        }
        let some_are_decided = decided.contains(&true);
        let mut columns = vec![Column::name("server", names.iter().copied())];
        for table in &self.tables {
            let of = |name: &&str| table.rows.iter().find(|row| row.name == **name);
            let cells = names.iter().map(|name| match of(name) {
                Some(row) if *name == reference && row.cpu_us.is_some() => {
                    Cell::from("1×").sorted_by(1.0)
                }
                own => own
                    .and_then(compared)
                    .map_or_else(Cell::default, |found| cell(found, some_are_decided)),
            });
            columns.push(Column::right(self.name_of(table), cells));
        }
        let both = if rows().any(|row| row.database_us.is_some()) {
            " of server and database"
        } else {
            ""
        };
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

    fn name_of(&self, table: &LoadResults) -> &str {
        self.run.loads.get(table.load).map_or("", |load| load.name.as_str())
    }

    /// Returns the names of the servers in the order of the geometric means of their ratios, over
    /// the loads under which they were compared. A server without a ratio comes last.
    fn by_mean(&self) -> Vec<&str> {
        let mut logs: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        for row in rows.filter(|row| row.role != Role::Ceiling) {
            let own = logs.entry(&row.name).or_default();
            let is_reference = Some(&row.name) == self.tables[0].reference.as_ref();
            own.extend(is_reference.then_some(0.0));
            own.extend(compared(row).and_then(ratio).map(f64::ln));
        }
        let mean = |name: &str| match &logs[name][..] {
            [] => f64::INFINITY,
            logs => logs.iter().sum::<f64>() / logs.len() as f64,
        };
        let mut names: Vec<&str> = logs.keys().copied().collect();
        names.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
        names
    }
}

/// Returns the comparison of a server's whole CPU time per request with the reference's.
fn compared(row: &Row) -> Option<&MeasureVerdict> {
    let measure = if row.database_us.is_some() { Measure::Total } else { Measure::Cost };
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
