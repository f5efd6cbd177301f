//! Two runs side by side, for a terminal of any width.

use crate::report::Figure;
use crate::report::comparison::{Change, ComparedLoad, RunComparison};
use crate::text::layout::{Column, Layout};
use crate::text::wrap;

/// The comparison for a terminal of `width` columns.
#[must_use]
pub fn render(comparison: &RunComparison, width: usize, color: bool) -> String {
    let (bold, red, yellow, off) = match color {
        true => ("\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[0m"),
        false => ("", "", "", ""),
    };
    let (before, after) = (&comparison.before, &comparison.after);
    let lead = format!(
        "{} ({}) against {} ({})",
        after.name,
        moment(&after.began),
        before.name,
        moment(&before.began)
    );
    let mut out = format!("\n{}\n", wrap(&lead, 2, width));
    for table in &comparison.tables {
        out += &wrap(&table.title, 2, width);
        let (layout, worse) = layout(comparison, table, width);
        for line in layout.header() {
            out += &format!("  {line}\n");
        }
        for (line, worse) in layout.rows().into_iter().zip(worse) {
            match worse {
                true => out += &format!("  {red}{line}{off}\n"),
                false => out += &format!("  {line}\n"),
            }
        }
        out.push('\n');
    }
    let paint = |text: &str, ink: &str| -> String {
        wrap(text, 2, width).lines().map(|line| format!("{ink}{line}{off}\n")).collect()
    };
    for sentence in &comparison.sentences {
        out += &paint(sentence, bold);
    }
    out += &paint(&comparison.control, "");
    out.push('\n');
    for warning in &comparison.warnings {
        out += &paint(&format!("Note: {warning}"), yellow);
    }
    out
}

/// `2026-11-21 20:15`
fn moment(utc: &str) -> String {
    utc.get(..16).unwrap_or(utc).replace('T', " ")
}

/// The columns, and which of the rows are worse.
fn layout(comparison: &RunComparison, table: &ComparedLoad, width: usize) -> (Layout, Vec<bool>) {
    let mut names = Vec::new();
    let mut changes: Vec<&Change> = Vec::new();
    for server in &table.servers {
        for (place, change) in server.changes.iter().enumerate() {
            names.push(if place == 0 { server.name.clone() } else { String::new() });
            changes.push(change);
        }
    }
    let cells = |of: &dyn Fn(&Change) -> String| changes.iter().map(|c| of(c)).collect::<Vec<_>>();
    let text =
        |figure: &Option<Figure>| figure.as_ref().map_or("–".to_owned(), |f| f.text.clone());
    let full = |figure: &Option<Figure>| figure.as_ref().map_or("–".to_owned(), Figure::full);
    let (before, after) = (&comparison.before.name, &comparison.after.name);
    let columns = vec![
        Column::name("", "", names),
        Column::left("", "", cells(&|c| c.measure.replace("/request", ""))),
        Column::right(before, before, cells(&|c| text(&c.before))),
        Column::right(after, after, cells(&|c| text(&c.after))),
        Column::right("ratio", "ratio", cells(&|c| full(&c.found.ratio))),
        Column::left("", "", cells(&word)).goes(1),
    ];
    let worse = changes.iter().map(|c| c.is_worse).collect();
    (Layout::fit(columns, width.saturating_sub(2)), worse)
}

/// A verdict in the width of a column.
fn word(change: &Change) -> String {
    match change.found.verdict.as_str() {
        verdict if verdict.starts_with("no ") => "same".to_owned(),
        verdict if verdict.starts_with("inconclusive") => "?".to_owned(),
        // The row says of what.
        verdict => verdict.trim_start_matches("costs ").to_owned(),
    }
}
