//! Medians with their spread, and Markdown tables that are readable as text.

/// The median of the rounds, with the lowest and the highest value.
#[derive(Clone, Copy)]
pub struct Spread {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

/// Returns the spread of some values. `None` without values.
pub fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (*sorted.first()?, *sorted.last()?);
    let half = sorted.len() / 2;
    let middle = match sorted.len() % 2 {
        0 => f64::midpoint(sorted[half - 1], sorted[half]),
        _ => sorted[half],
    };
    Some(Spread { low, middle, high })
}

/// Formats the spread as `5.20 (5.11–5.43)`, or as a dash without values.
pub fn shown(values: &[f64], digits: usize) -> String {
    let Some(Spread { low, middle, high }) = spread(values) else { return "–".to_owned() };
    match values.len() {
        1 => format!("{middle:.digits$}"),
        _ => format!("{middle:.digits$} ({low:.digits$}–{high:.digits$})"),
    }
}

/// Formats one figure, or a dash if it is unknown.
pub fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// Prints a Markdown table, with names on the left and figures on the right.
pub fn print(head: &[&str], rows: &[Vec<String>]) {
    let wide = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(wide).collect();
    let line = |cells: &[&str]| {
        let mut text = String::from("|");
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let width = *width;
            text += &match column {
                0 => format!(" {cell:<width$} |"),
                _ => format!(" {cell:>width$} |"),
            };
        }
        println!("{text}");
    };
    line(head);
    let rule = |(column, width): (usize, &usize)| match column {
        0 => format!("|{}", "-".repeat(width + 2)),
        _ => format!("|{}:", "-".repeat(width + 1)),
    };
    println!("{}|", widths.iter().enumerate().map(rule).collect::<String>());
    for row in rows {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
}
