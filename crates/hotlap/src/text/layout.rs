//! Lays out text for a terminal: paragraphs of a given width, and tables. This module decides
//! column widths, which columns are left out, and where lines end. Control characters are shown as
//! escapes.

use unicode_width::UnicodeWidthStr;

use crate::text::table::{Column, Narrow, Table};
use crate::text::visible;

/// The smallest width to which names are shortened.
const LEAST_NAME: usize = 12;

/// The smallest width to which sentences are cut.
const LEAST_PROSE: usize = 24;

/// The gap between columns.
const GAP: &str = "  ";

/// The lines of a table.
#[derive(Debug, PartialEq, Eq)]
pub struct Lines {
    /// The headings, on one or two lines. Empty if all headings are empty.
    pub header: Vec<String>,
    /// The rows, one line each.
    pub rows: Vec<String>,
}

/// A column that is being fitted.
struct Fitted {
    heading: String,
    folded: (String, String),
    cells: Vec<String>,
    is_right: bool,
    narrow: Narrow,
}

/// Fits the table into `width` columns. If the table is too wide, headings are folded first, then
/// columns are left out, and names are shortened last.
pub fn lines(table: &Table, width: usize) -> Lines {
    let mut columns: Vec<Fitted> = table.terminal_columns().map(Fitted::of).collect();
    let is_folded = total(&columns, false) > width;
    while total(&columns, is_folded) > width {
        let order = |(place, column): (usize, &Fitted)| match column.narrow {
            Narrow::Drop(order) => Some((order, place)),
            _ => None,
        };
        let Some((_, next)) = columns.iter().enumerate().filter_map(order).min() else { break };
        columns.remove(next);
    }
    let taken = total(&columns, is_folded);
    let (left, over) = (width.saturating_sub(taken), taken.saturating_sub(width));
    for prose in columns.iter_mut().filter(|c| c.narrow == Narrow::Truncate) {
        prose.cut(|cell| truncated(cell, LEAST_PROSE + left));
    }
    if let Some(name) = columns.iter_mut().find(|c| c.narrow == Narrow::Shorten && over > 0) {
        let room = name.width(is_folded).saturating_sub(over).max(LEAST_NAME);
        name.cut(|cell| shortened(cell, room));
    }
    let line = |cell: &dyn Fn(&Fitted) -> String| {
        let padded = columns.iter().map(|c| c.pad(&cell(c), c.width(is_folded)));
        padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    let header = match is_folded {
        false => vec![line(&|c| c.heading.clone())],
        true => vec![line(&|c| c.folded.0.clone()), line(&|c| c.folded.1.clone())],
    };
    Lines {
        header: header.into_iter().filter(|line| !line.is_empty()).collect(),
        rows: (0..table.rows()).map(|row| line(&|c| c.cells[row].clone())).collect(),
    }
}

impl Lines {
    /// Returns all lines, the headings first.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.header.iter().chain(&self.rows)
    }
}

fn total(columns: &[Fitted], is_folded: bool) -> usize {
    let widths: usize = columns.iter().map(|c| c.width(is_folded)).sum();
    widths + GAP.len() * columns.len().saturating_sub(1)
}

impl Fitted {
    fn of(column: &Column) -> Self {
        let (upper, lower) = column.folded_heading();
        Self {
            heading: visible(&column.heading()),
            folded: (visible(upper), visible(lower)),
            cells: column
                .cells
                .iter()
                .map(|cell| visible(&cell.short.clone().unwrap_or_else(|| cell.full())))
                .collect(),
            is_right: column.is_right,
            narrow: column.narrow,
        }
    }

    fn width(&self, is_folded: bool) -> usize {
        let heading = match is_folded {
            false => width_of(&self.heading),
            true => width_of(&self.folded.0).max(width_of(&self.folded.1)),
        };
        let cells = self.cells.iter().map(|c| width_of(c)).max().unwrap_or(0);
        let is_prose = self.narrow == Narrow::Truncate;
        heading.max(if is_prose { cells.min(LEAST_PROSE) } else { cells })
    }

    /// Shortens each cell, and sets the width of the column accordingly.
    fn cut(&mut self, cut: impl Fn(&str) -> String) {
        self.cells.iter_mut().for_each(|cell| *cell = cut(cell));
        self.narrow = Narrow::Keep;
    }

    fn pad(&self, text: &str, width: usize) -> String {
        let room = " ".repeat(width.saturating_sub(width_of(text)));
        if self.is_right { format!("{room}{text}") } else { format!("{text}{room}") }
    }
}

/// Returns the width of a text on a terminal. A wide character (CJK, Hangul, emoji) takes two
/// columns. A combining character takes none (Unicode Standard Annex 11).
pub fn width_of(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Returns as much of the start of a text as fits into `room` columns.
fn beginning(text: &str, room: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let fits = ends.take_while(|end| width_of(&text[..*end]) <= room).last();
    &text[..fits.unwrap_or(0)]
}

/// Returns as much of the end of a text as fits into `room` columns.
fn ending(text: &str, room: usize) -> &str {
    let starts = text.char_indices().rev().map(|(at, _)| at);
    let fits = starts.take_while(|start| width_of(&text[*start..]) <= room).last();
    &text[fits.unwrap_or(text.len())..]
}

/// Cuts a text at its end to at most `room` columns.
fn truncated(text: &str, room: usize) -> String {
    if width_of(text) <= room {
        return text.to_owned();
    }
    format!("{}…", beginning(text, room.saturating_sub(1)).trim_end())
}

/// Cuts a text in the middle to at most `room` columns, because names often differ at either end.
pub fn shortened(text: &str, room: usize) -> String {
    if width_of(text) <= room {
        return text.to_owned();
    }
    let keep = room.saturating_sub(1);
    format!("{}…{}", beginning(text, keep.div_ceil(2)), ending(text, keep / 2))
}

/// A space at which no line breaks.
const NO_BREAK: char = '\u{a0}';

/// Prevents line breaks within an interval, such as `[1.49, 1.53]`.
pub fn unbroken(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive(' ') {
        match word.strip_suffix(' ') {
            Some(first) if first.starts_with('[') && first.ends_with(',') => {
                out += first;
                out.push(NO_BREAK);
            }
            _ => out += word,
        }
    }
    out
}

/// Wraps text into indented lines of at most `width` columns. Neither a word that is longer than a
/// line nor an interval is broken. Control characters are shown as escapes.
pub fn wrap(text: &str, indent: usize, width: usize) -> String {
    let is_break = |c: char| c.is_whitespace() && c != NO_BREAK;
    let text = unbroken(text);
    let words = text.split(is_break).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(|word| visible(&word.replace(NO_BREAK, " "))).collect();
    flow(&words, " ", indent, width)
}

/// Wraps text like [`wrap`], but indents all lines except the first by two more columns.
pub fn hanging(text: &str, indent: usize, width: usize) -> String {
    let lines = wrap(text, indent + 2, width);
    lines.get(2..).unwrap_or_default().to_owned()
}

/// Joins parts into lines of at most `width` columns that break only between parts.
pub fn flow(parts: &[String], joint: &str, indent: usize, width: usize) -> String {
    let margin = " ".repeat(indent);
    let mut out = String::new();
    let mut line = String::new();
    for part in parts {
        let longer = width_of(&line) + width_of(joint) + width_of(part);
        if !line.is_empty() && indent + longer > width {
            out += &format!("{margin}{}\n", line.trim_end());
            line.clear();
        } else if !line.is_empty() {
            line += joint;
        }
        line += part;
    }
    if !line.is_empty() {
        out += &format!("{margin}{line}\n");
    }
    out
}

/// Returns the text with its first letter in upper case.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.map_or_else(String::new, |first| first + letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::table::Cell;

    fn table() -> Table {
        Table::new(vec![
            Column::name("", ["a/very/long/name/of/a/server", "b"]),
            Column::right("of\nceiling", ["47%", "100%"]).drop_order(2),
            Column::right("memory", ["7 MB", "131 MB"]).drop_order(1),
        ])
    }

    #[test]
    fn all_is_shown_where_there_is_room() {
        let lines = lines(&table(), 80);
        assert_eq!(lines.header, ["                              of ceiling  memory"]);
        assert_eq!(lines.rows[1], "b                                   100%  131 MB");
    }

    #[test]
    fn headings_fold_first_then_columns_go_in_their_order_then_names_are_cut() {
        assert_eq!(lines(&table(), 45).header.len(), 2);
        assert!(!lines(&table(), 38).header.join(" ").contains("memory"));
        let narrow = lines(&table(), 20);
        assert_eq!(narrow.header, Vec::<String>::new());
        assert_eq!(narrow.rows, ["a/very/lon…/a/server", "b"]);
    }

    #[test]
    fn a_sentence_takes_the_room_that_is_left() {
        let about = ["A server that answers every request that it gets.", "Short."];
        let table = Table::new(vec![
            Column::left("server", ["go/net-http", "b"]),
            Column::prose("", about),
        ]);
        assert_eq!(
            lines(&table, 45).rows,
            ["go/net-http  A server that answers every req…", "b            Short."]
        );
    }

    #[test]
    fn a_terminal_shows_the_short_form_and_no_control_characters() {
        let cells = [Cell::from("57,900").shortened_to("57.9k"), Cell::from("a\x1b[1m\nb")];
        let lines = lines(&Table::new(vec![Column::left("x\x07", cells)]), 80);
        assert_eq!((lines.header[0].as_str(), lines.rows[0].as_str()), ("x\\x07", "57.9k"));
        assert_eq!(lines.rows[1], "a\\x1b[1m\\nb");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!((width_of("服务器"), width_of("µs ± ×")), (6, 6));
        assert_eq!(shortened("服务器/服务器", 8), "服务…器");
        assert_eq!(truncated("服务器 and more", 8), "服务器…");
    }

    #[test]
    fn lines_break_between_words_and_show_control_characters() {
        assert_eq!(wrap("one two\nthree\x1b four", 2, 12), "  one two\n  three\\x1b\n  four\n");
        assert_eq!(hanging("one two three", 2, 10), "  one\n    two\n    three\n");
        assert_eq!(wrap("less [1.4, 1.5].", 0, 11), "less\n[1.4, 1.5].\n");
        assert_eq!(wrap("", 2, 10), "");
        assert_eq!(wrap("服务器 服务器 x", 0, 13), "服务器 服务器\nx\n");
    }

    #[test]
    fn a_capital_is_the_first_letter_alone() {
        assert_eq!(capital("which is FASTER?"), "Which is FASTER?");
        assert_eq!(capital(""), "");
    }
}
