//! Columns of text: how wide each is, which go when there is no room, and where a line ends.
//! Heads and cells may come from outside: hidden characters in them are shown as escapes.

use unicode_width::UnicodeWidthStr;

use super::{visible, visible_lines};

/// One column.
#[derive(Debug, Clone)]
pub struct Column {
    head: String,
    folded: String,
    cells: Vec<String>,
    right: bool,
    is_name: bool,
    is_prose: bool,
    /// The lower, the earlier it goes; `None` stays.
    goes: Option<u8>,
}

/// Columns that fit.
#[derive(Debug)]
pub struct Layout {
    columns: Vec<Column>,
    folded: bool,
}

/// The least that a name is shortened to.
const SHORTEST: usize = 12;

/// The least of a sentence that is worth showing.
const SHORTEST_PROSE: usize = 24;

/// Between columns.
const GAP: &str = "  ";

impl Column {
    /// Words, set to the left.
    #[must_use]
    pub fn left(head: &str, folded: &str, cells: Vec<String>) -> Self {
        let (head, folded) = (visible(head), visible_lines(folded));
        let cells = cells.iter().map(|cell| visible(cell)).collect();
        Self { head, folded, cells, right: false, is_name: false, is_prose: false, goes: None }
    }

    /// Words, set to the left, which may be shortened.
    #[must_use]
    pub fn name(head: &str, folded: &str, cells: Vec<String>) -> Self {
        Self { is_name: true, ..Self::left(head, folded, cells) }
    }

    /// A sentence, set to the left: it takes the room that is left over, and ends where that ends.
    #[must_use]
    pub fn prose(head: &str, cells: Vec<String>) -> Self {
        Self { is_prose: true, ..Self::left(head, head, cells) }
    }

    /// Figures, set to the right. A line end in `folded` is where its head may be folded.
    #[must_use]
    pub fn right(head: &str, folded: &str, cells: Vec<String>) -> Self {
        Self { right: true, ..Self::left(head, folded, cells) }
    }

    /// Makes it one that goes where there is no room, in this order.
    #[must_use]
    pub fn goes(self, order: u8) -> Self {
        Self { goes: Some(order), ..self }
    }

    fn width(&self, folded: bool) -> usize {
        let head = match folded {
            false => width_of(&self.head),
            true => self.folded.split('\n').map(width_of).max().unwrap_or(0),
        };
        let cells = self.cells.iter().map(|c| width_of(c)).max().unwrap_or(0);
        let cells = if self.is_prose { cells.min(SHORTEST_PROSE) } else { cells };
        cells.max(head)
    }

    fn pad(&self, text: &str, width: usize) -> String {
        let room = " ".repeat(width.saturating_sub(width_of(text)));
        if self.right { format!("{room}{text}") } else { format!("{text}{room}") }
    }
}

impl Layout {
    /// Folds heads, then drops columns, then shortens names, until all fits into `width`.
    #[must_use]
    pub fn fit(columns: Vec<Column>, width: usize) -> Self {
        let mut layout = Self { columns, folded: false };
        if layout.width() > width {
            layout.folded = true;
        }
        while layout.width() > width {
            let droppable = layout.columns.iter().enumerate();
            let next = droppable.filter_map(|(i, c)| Some((c.goes?, i))).min();
            let Some((_, column)) = next else { break };
            layout.columns.remove(column);
        }
        let over = layout.width().saturating_sub(width);
        let left = width.saturating_sub(layout.width());
        for prose in layout.columns.iter_mut().filter(|c| c.is_prose) {
            prose.cells.iter_mut().for_each(|cell| *cell = truncated(cell, SHORTEST_PROSE + left));
            prose.is_prose = false;
        }
        let folded = layout.folded;
        if let Some(name) = layout.columns.iter_mut().find(|c| c.is_name && over > 0) {
            let room = name.width(folded).saturating_sub(over).max(SHORTEST);
            name.cells.iter_mut().for_each(|cell| *cell = shortened(cell, room));
        }
        layout
    }

    fn width(&self) -> usize {
        let columns: usize = self.columns.iter().map(|c| c.width(self.folded)).sum();
        columns + GAP.len() * self.columns.len().saturating_sub(1)
    }

    /// The heads, on one line or two.
    #[must_use]
    pub fn header(&self) -> Vec<String> {
        if !self.folded {
            return vec![self.line(|c| c.head.clone())];
        }
        let upper = |c: &Column| match c.folded.split_once('\n') {
            Some((upper, _)) => upper.to_owned(),
            None => String::new(),
        };
        let lower = |c: &Column| match c.folded.split_once('\n') {
            Some((_, lower)) => lower.to_owned(),
            None => c.folded.clone(),
        };
        [self.line(upper), self.line(lower)].into_iter().filter(|l| !l.is_empty()).collect()
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> Vec<String> {
        let rows = self.columns.first().map_or(0, |c| c.cells.len());
        (0..rows).map(|row| self.line(|c| c.cells[row].clone())).collect()
    }

    fn line(&self, cell: impl Fn(&Column) -> String) -> String {
        let padded = self.columns.iter().map(|c| c.pad(&cell(c), c.width(self.folded)));
        padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    }
}

/// Columns that a text takes on a terminal: two for each wide character (CJK, Hangul, emoji), none
/// for a combining one (Unicode Standard Annex 11).
#[must_use]
pub fn width_of(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// As much of the beginning of a text as fits into `room` columns.
fn beginning(text: &str, room: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let fits = ends.take_while(|end| width_of(&text[..*end]) <= room).last();
    &text[..fits.unwrap_or(0)]
}

/// As much of the end of a text as fits into `room` columns.
fn ending(text: &str, room: usize) -> &str {
    let starts = text.char_indices().rev().map(|(at, _)| at);
    let fits = starts.take_while(|start| width_of(&text[*start..]) <= room).last();
    &text[fits.unwrap_or(text.len())..]
}

/// A text of at most `room` columns: what does not fit is cut from its end.
fn truncated(text: &str, room: usize) -> String {
    if width_of(text) <= room {
        return text.to_owned();
    }
    format!("{}…", beginning(text, room.saturating_sub(1)).trim_end())
}

/// A text of at most `room` columns: what does not fit is cut from its middle, since both ends of a
/// name tell it from others.
#[must_use]
pub fn shortened(text: &str, room: usize) -> String {
    if width_of(text) <= room {
        return text.to_owned();
    }
    let keep = room.saturating_sub(1);
    format!("{}…{}", beginning(text, keep.div_ceil(2)), ending(text, keep / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|t| (*t).to_owned()).collect()
    }

    fn columns() -> Vec<Column> {
        vec![
            Column::name("", "", cells(&["a/very/long/name/of/a/server", "b"])),
            Column::right("of ceiling", "of\nceiling", cells(&["47 %", "100 %"])).goes(2),
            Column::right("memory", "memory", cells(&["7 MB", "131 MB"])).goes(1),
        ]
    }

    #[test]
    fn all_is_shown_where_there_is_room() {
        let layout = Layout::fit(columns(), 80);
        assert_eq!(layout.header(), ["                              of ceiling  memory"]);
        assert_eq!(layout.rows()[1], "b                                  100 %  131 MB");
    }

    #[test]
    fn heads_fold_first_then_columns_go_in_their_order_then_names_are_cut() {
        let heads = |width| Layout::fit(columns(), width).header();
        assert_eq!(heads(45).len(), 2);
        assert!(!heads(38).join(" ").contains("memory"));
        let narrow = Layout::fit(columns(), 20);
        assert_eq!(narrow.header(), Vec::<String>::new());
        assert_eq!(narrow.rows(), ["a/very/lon…/a/server", "b"]);
    }

    #[test]
    fn a_sentence_takes_the_room_that_is_left() {
        let about = cells(&["A server that answers every request that it gets.", "Short."]);
        let columns = vec![
            Column::left("server", "server", cells(&["go/net-http", "b"])),
            Column::prose("", about),
        ];
        let layout = Layout::fit(columns, 45);
        assert_eq!(
            layout.rows(),
            ["go/net-http  A server that answers every req…", "b            Short."]
        );
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!((width_of("服务器"), width_of("µs ± ×")), (6, 6));
        assert_eq!(shortened("服务器/服务器", 8), "服务…器");
        assert_eq!(truncated("服务器 and more", 8), "服务器…");
    }
}
