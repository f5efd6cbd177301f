//! A table for all outputs: headings, cells, and the outputs that show each column. Cells may
//! contain untrusted text: each output escapes it in its own way.

/// A table: columns, and the emphasis of each row.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    tones: Vec<Tone>,
}

/// How a row is emphasized.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// Not at all.
    #[default]
    Plain,
    /// The best one, or one without problems.
    Good,
    /// One that needs attention.
    Warning,
    /// One that failed or became worse.
    Bad,
    /// One that is shown only for comparison.
    Faint,
}

/// One column.
#[derive(Debug, Clone)]
pub struct Column {
    heading: String,
    /// Its cells, one per row.
    pub cells: Vec<Cell>,
    /// Whether it is right-aligned: figures are, words are not.
    pub is_right: bool,
    /// How it adapts to a narrow terminal.
    pub narrow: Narrow,
    is_wide: bool,
    is_required: bool,
}

/// How a column adapts to a terminal that is too narrow for the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrow {
    /// It is unchanged.
    Keep,
    /// It is left out. The lowest number first.
    Drop(u8),
    /// Its cells are shortened in the middle, after all optional columns are left out.
    Shorten,
    /// Its cells get the remaining width, and are cut off there.
    Truncate,
}

/// One cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// The text or the figure.
    pub text: String,
    /// The figure's interval. Empty if there is none.
    pub spread: String,
    /// A shorter text for terminals.
    pub short: Option<String>,
    /// The value to sort by, if it is not the text.
    pub value: Option<f64>,
}

/// Stands for an unknown figure.
pub const UNKNOWN: &str = "–";

impl Table {
    /// A table with these columns.
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, tones: Vec::new() }
    }

    /// The same with an emphasis for each row.
    pub fn with_tones(self, tones: Vec<Tone>) -> Self {
        Self { tones, ..self }
    }

    /// The columns that are not empty.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.is_shown())
    }

    /// Those of them that a terminal shows.
    pub fn terminal_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns().filter(|column| !column.is_wide)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cells.len())
    }

    /// The emphasis of a row.
    pub fn tone(&self, row: usize) -> Tone {
        self.tones.get(row).copied().unwrap_or_default()
    }
}

impl Column {
    /// Left-aligned text. A terminal may break the heading at a line end. Elsewhere, a line end
    /// before a `/` is omitted and any other is a space.
    pub fn left<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self {
            heading: heading.to_owned(),
            cells: cells.into_iter().map(Into::into).collect(),
            is_right: false,
            narrow: Narrow::Keep,
            is_wide: false,
            is_required: false,
        }
    }

    /// Right-aligned figures.
    pub fn right<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self { is_right: true, ..Self::left(heading, cells) }
    }

    /// Names, which are shortened on a narrow terminal.
    pub fn name<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self { narrow: Narrow::Shorten, ..Self::left(heading, cells) }
    }

    /// Sentences, which are cut off on a narrow terminal.
    pub fn prose<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self { narrow: Narrow::Truncate, ..Self::left(heading, cells) }
    }

    /// The same column, but optional on a narrow terminal. The lowest order is left out first.
    pub fn drop_order(self, order: u8) -> Self {
        Self { narrow: Narrow::Drop(order), ..self }
    }

    /// The same column, but only for outputs with more room than a terminal.
    pub fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    /// The same column, but shown even if it is empty.
    pub fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// The heading on one line.
    pub fn heading(&self) -> String {
        self.heading.replace("\n/", "/").replace('\n', " ")
    }

    /// The heading on two lines. The upper one is empty if one is enough.
    pub fn folded_heading(&self) -> (&str, &str) {
        self.heading.split_once('\n').unwrap_or(("", &self.heading))
    }

    fn is_shown(&self) -> bool {
        let is_known = |cell: &Cell| !["", UNKNOWN].contains(&cell.text.as_str());
        self.is_required || self.cells.iter().any(is_known)
    }
}

impl Cell {
    /// The text and the interval.
    pub fn full(&self) -> String {
        match self.spread.is_empty() {
            true => self.text.clone(),
            false => format!("{} {}", self.text, self.spread),
        }
    }

    /// The same cell with a shorter text for terminals.
    pub fn shortened_to(self, short: impl Into<String>) -> Self {
        Self { short: Some(short.into()), ..self }
    }

    /// The same cell, sorted by this value.
    pub fn sorted_by(self, value: f64) -> Self {
        Self { value: Some(value), ..self }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&String> for Cell {
    fn from(text: &String) -> Self {
        text.clone().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_shows_the_columns_that_are_meant_for_it_and_hold_something() {
        let table = Table::new(vec![
            Column::left("", ["", ""]).required(),
            Column::name("server", ["a", "b"]),
            Column::right("CPU µs\n/request", ["1.0", UNKNOWN]),
            Column::right("memory", [UNKNOWN, ""]),
            Column::right("max", ["1 ms", "2 ms"]).wide(),
        ]);
        let terminal: Vec<String> = table.terminal_columns().map(Column::heading).collect();
        assert_eq!(terminal, ["", "server", "CPU µs/request"]);
        let all: Vec<String> = table.columns().map(Column::heading).collect();
        assert_eq!(all, ["", "server", "CPU µs/request", "max"]);
        assert_eq!((table.rows(), table.tone(1)), (2, Tone::Plain));
    }
}
