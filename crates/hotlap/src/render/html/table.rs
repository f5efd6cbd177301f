//! Tables on a page.

use super::tag::{Html, el};
use crate::text::table::{Cell, Column, Narrow, Output, Table, Tone};

/// What a row shows besides its cells.
pub struct RowExtra {
    /// The number of the row's server on the page.
    pub server: String,
    /// The server's mark, before the name.
    pub mark: Html,
    /// Details, below the name.
    pub details: Html,
}

/// A table; nothing if it has no rows.
pub fn table(table: &Table) -> Html {
    written(table, None, &[])
}

/// A table that is sorted by clicking on a heading, with additional content for each row.
pub fn sortable(table: &Table, label: &str, extras: &[RowExtra]) -> Html {
    written(table, Some(label), extras)
}

fn written(table: &Table, label: Option<&str>, extras: &[RowExtra]) -> Html {
    if table.rows() == 0 {
        return Html::default();
    }
    let columns: Vec<&Column> = table.columns(Output::Page).collect();
    // The first column with names is the heading of each row.
    let name = columns.iter().position(|c| c.narrow == Narrow::Shorten);
    let class = |place: usize| match columns[place].is_right {
        _ if Some(place) == name => Some(("class", "name")),
        true => None,
        false => Some(("class", "left")),
    };
    let heading = |place: usize| {
        let text = columns[place].heading();
        let mut attributes = vec![("scope", "col")];
        attributes.extend(class(place));
        if label.is_none() {
            return el("th", &attributes, text);
        }
        attributes.extend((place == 0).then_some(("aria-sort", "ascending")));
        let text = if text.is_empty() { "#".to_owned() } else { text };
        el("th", &attributes, el("button", &[("type", "button")], text))
    };
    let row = |row: usize| {
        let extra = extras.get(row);
        let cell = |place: usize| {
            let cell = &columns[place].cells[row];
            let mut attributes: Vec<(&str, &str)> = class(place).into_iter().collect();
            if Some(place) == name {
                attributes.push(("scope", "row"));
                let (mark, details) = extra.map_or_else(Default::default, |extra| {
                    (extra.mark.clone(), extra.details.clone())
                });
                return el("th", &attributes, [mark, (&cell.text).into(), details]);
            }
            let by = cell.value.map_or_else(String::new, |value| value.to_string());
            if label.is_some() && columns[place].is_right {
                attributes.push(("data-v", &by));
            }
            el("td", &attributes, content(cell))
        };
        let mut attributes: Vec<(&str, &str)> = tone(table.tone(row)).into_iter().collect();
        attributes.extend(extra.map(|extra| ("data-server", extra.server.as_str())));
        el("tr", &attributes, (0..columns.len()).map(cell).collect::<Html>())
    };
    let head = el("thead", &[], el("tr", &[], (0..columns.len()).map(heading).collect::<Html>()));
    let body = el("tbody", &[], (0..table.rows()).map(row).collect::<Html>());
    let mut region = vec![("class", "wide")];
    let mut class = Vec::new();
    if let Some(label) = label {
        region.extend([("tabindex", "0"), ("role", "region"), ("aria-label", label)]);
        class.push(("class", "sortable"));
    }
    el("div", &region, el("table", &class, head + body))
}

fn content(cell: &Cell) -> Html {
    let text = Html::from(&cell.text);
    match cell.spread.is_empty() {
        true => text,
        false => text + Html::from(" ") + el("small", &[], &cell.spread),
    }
}

fn tone(tone: Tone) -> Option<(&'static str, &'static str)> {
    match tone {
        Tone::Faint => Some(("class", "ceiling")),
        Tone::Bad => Some(("class", "erring")),
        Tone::Plain | Tone::Good | Tone::Warning => None,
    }
}
