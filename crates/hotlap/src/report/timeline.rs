//! The versions of a server on one scale, as `hotlap timeline` shows them.

use std::fmt;

use crate::text::table::{Column, Table};

/// The width of the chart in a terminal, in columns.
const WIDTH: usize = 30;

/// The versions that were measured, and what is said about them.
#[derive(Debug, Clone)]
pub struct TimelineView {
    /// The figure, in words.
    pub measure: String,
    /// The oldest version.
    pub reference: String,
    /// The versions, oldest first.
    pub versions: Vec<VersionRatio>,
    /// The steps between versions, and the versions that could not be measured.
    pub sentences: Vec<String>,
}

/// A version, and the ratio of its figure to the oldest version's.
#[derive(Debug, Clone)]
pub struct VersionRatio {
    /// The name of the version.
    pub name: String,
    /// The ratio.
    pub ratio: Ratio,
}

/// The ratio of a server's figure to the figure of another server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The estimate, and both ends of its 95% interval.
    pub ends: [f64; 3],
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [value, low, high] = self.ends;
        match low < high {
            true => write!(f, "{value:.3}× [{low:.3}, {high:.3}]"),
            false => write!(f, "{value:.3}×"),
        }
    }
}

impl TimelineView {
    /// Returns the versions as a table.
    pub fn table(&self) -> Table {
        Table::new(self.columns())
    }

    /// Returns the versions as a table for a terminal, with a chart as its last column.
    pub fn table_with_chart(&self) -> Table {
        let ends = self.versions.iter().flat_map(|version| version.ratio.ends);
        let scale = ends.fold((f64::MAX, f64::MIN), |(a, b), end| (a.min(end), b.max(end)));
        let bars = self.versions.iter().map(|version| bar(version.ratio.ends, scale));
        let mut columns = self.columns();
        columns.push(Column::left("", bars).drop_order(1));
        Table::new(columns)
    }

    fn columns(&self) -> Vec<Column> {
        let versions = || self.versions.iter();
        vec![
            Column::left("version", versions().map(|version| version.name.clone())),
            Column::left(&self.measure, versions().map(|version| version.ratio.to_string())),
        ]
    }
}

/// Draws a ratio with its interval on a scale between two ratios.
fn bar(ends: [f64; 3], (low, high): (f64, f64)) -> String {
    let place = |end: f64| ((end - low) / (high - low) * (WIDTH - 1) as f64).round() as usize;
    let [value, from, to] = ends.map(place);
    let mark = |column: usize| match column {
        _ if column == value => '●',
        _ if (from..=to).contains(&column) => '─',
        _ => ' ',
    };
    (0..=to.max(value)).map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_the_estimate_and_the_interval() {
        let drawn = |ends| bar(ends, (1.0, 2.0));
        assert_eq!(drawn([1.0, 1.0, 1.0]), "●");
        assert_eq!(drawn([1.1, 1.0, 1.2]), "───●───");
        assert_eq!(drawn([2.0, 1.9, 2.0]).trim_start(), "───●");
    }
}
