//! The servers of a page: their numbers, colours and names beside charts.

use crate::report::Report;
use crate::text::layout::shortened;

/// The longest name beside a chart, in characters.
const LONGEST_NAME: usize = 24;

/// The servers of a page; the number of each determines its colour and mark.
#[derive(Debug)]
pub struct Palette(Vec<String>);

impl Palette {
    /// All servers in any table or search, in the order of the first.
    pub fn of(report: &Report) -> Self {
        let mut names: Vec<String> = Vec::new();
        let rows = report.tables.iter().flat_map(|t| t.rows.iter().map(|row| &row.name));
        let searched = report.capacity.iter().flat_map(|c| c.rows.iter().map(|row| &row.name));
        for name in rows.chain(searched) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Self(names)
    }

    /// The names, by number.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// The number of a server.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|n| n == name)
    }
}

/// A name, shortened to the room beside a chart.
pub fn short_name(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    shortened(&name, LONGEST_NAME)
}
