//! A table for all outputs: headings, cells, and the outputs that show each column. Cells may
//! contain untrusted text, which each output escapes.

/// A table: its columns, and the emphasis of each row.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    tones: Vec<Tone>,
}

/// The emphasis of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// No emphasis.
    #[default]
    Plain,
    /// The best row, or a row without problems.
    Good,
    /// A row that needs attention.
    Warning,
    /// A row that failed or became worse.
    Bad,
    /// A row that is shown only for comparison.
    Faint,
}

/// One column of a table.
#[derive(Debug, Clone)]
pub struct Column {
    heading: String,
    /// The cells, one per row.
    pub cells: Vec<Cell>,
    /// Whether the column is right-aligned, as figures are.
    pub is_right: bool,
    /// How the column adapts to a narrow terminal.
    pub narrow: Narrow,
    is_wide: bool,
    is_required: bool,
}

/// How a column adapts to a terminal that is too narrow for the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrow {
    /// The column is unchanged.
    Keep,
    /// The column is left out. The column with the lowest number is left out first.
    Drop(u8),
    /// The cells are shortened in the middle, after all optional columns are left out.
    Shorten,
    /// The cells get the remaining width, and are cut off at their end.
    Truncate,
}

/// One cell of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// The text or the figure.
    pub text: String,
    /// The figure's interval. Empty without an interval.
    pub spread: String,
    /// A shorter text for terminals.
    pub short: Option<String>,
    /// The value to sort by. `None` if the cell is sorted by its text.
    pub value: Option<f64>,
}

/// The text that is shown for an unknown figure.
pub const UNKNOWN: &str = "–";

impl Table {
    /// Creates a table with these columns.
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, tones: Vec::new() }
    }

    /// Sets the emphasis of each row.
    pub fn with_tones(self, tones: Vec<Tone>) -> Self {
        Self { tones, ..self }
    }

    /// Returns the columns that are required or not empty.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.is_shown())
    }

    /// Returns the columns that a terminal shows.
    pub fn terminal_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns().filter(|column| !column.is_wide)
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cells.len())
    }

    /// Returns the emphasis of a row.
    pub fn tone(&self, row: usize) -> Tone {
        self.tones.get(row).copied().unwrap_or_default()
    }
}

impl Column {
    /// Creates a column of left-aligned text. A terminal may break the heading at a line end.
    /// Elsewhere, a line end before a `/` is omitted, and any other line end is a space.
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

    /// Creates a column of right-aligned figures.
    pub fn right<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self { is_right: true, ..Self::left(heading, cells) }
    }

    /// Creates a column of names, which are shortened on a narrow terminal.
    pub fn name<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self { narrow: Narrow::Shorten, ..Self::left(heading, cells) }
    }

    /// Creates a column of sentences, which are cut off on a narrow terminal.
    pub fn prose<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self { narrow: Narrow::Truncate, ..Self::left(heading, cells) }
    }

    /// Makes the column optional on a narrow terminal. The lowest order is left out first.
    pub fn drop_order(self, order: u8) -> Self {
        Self { narrow: Narrow::Drop(order), ..self }
    }

    /// Limits the column to outputs with more room than a terminal.
    pub fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    /// Shows the column even if it is empty.
    pub fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// Returns the heading on one line.
    pub fn heading(&self) -> String {
        self.heading.replace("\n/", "/").replace('\n', " ")
    }

    /// Returns the heading on two lines. The upper line is empty if one line is enough.
    pub fn folded_heading(&self) -> (&str, &str) {
        self.heading.split_once('\n').unwrap_or(("", &self.heading))
    }

    fn is_shown(&self) -> bool {
        let is_known = |cell: &Cell| !["", UNKNOWN].contains(&cell.text.as_str());
        self.is_required || self.cells.iter().any(is_known)
    }
}

impl Cell {
    /// Returns the text and the interval.
    pub fn full(&self) -> String {
        match self.spread.is_empty() {
            true => self.text.clone(),
            false => format!("{} {}", self.text, self.spread),
        }
    }

    /// Adds a shorter text for terminals.
    pub fn shortened_to(self, short: impl Into<String>) -> Self {
        Self { short: Some(short.into()), ..self }
    }

    /// Sets the value by which the cell is sorted.
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
