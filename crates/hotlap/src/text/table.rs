//! A table for all outputs: headings, cells, and which output shows which column. Cells may hold
//! untrusted text: each output escapes it in its own way.

/// Where a table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A terminal, which has room for the most important columns.
    Terminal,
    /// A Markdown document.
    Markdown,
    /// A page.
    Page,
}

/// Columns, and how much attention each row deserves.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    tones: Vec<Tone>,
}

/// How a row is set off from the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// It is not.
    #[default]
    Plain,
    /// The best one, or one without a fault.
    Good,
    /// One to look at.
    Warning,
    /// One that failed or became worse.
    Bad,
    /// One that is shown for comparison only.
    Faint,
}

/// One column.
#[derive(Debug, Clone)]
pub struct Column {
    heading: String,
    /// Its cells, a row each.
    pub cells: Vec<Cell>,
    /// Figures are set to the right, words to the left.
    pub is_right: bool,
    /// How it adapts to a narrow terminal.
    pub narrow: Narrow,
    outputs: &'static [Output],
    is_required: bool,
}

/// How a column adapts to a terminal that is too narrow for the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrow {
    /// It stays as it is.
    Keep,
    /// It is left out; the lowest number first.
    Drop(u8),
    /// Its cells are cut in the middle, after all columns that can be are left out.
    Shorten,
    /// Its cells take the room that is left, and end where that ends.
    Truncate,
}

/// One cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// The words, or the figure.
    pub text: String,
    /// The figure's interval; empty where there is none.
    pub spread: String,
    /// What a terminal shows instead of text and spread, where that differs.
    pub short: Option<String>,
    /// What the column is sorted by, if it is not the text.
    pub value: Option<f64>,
}

/// In place of a figure that is not known.
pub const UNKNOWN: &str = "–";

impl Table {
    /// A table of these columns.
    #[must_use]
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, tones: Vec::new() }
    }

    /// The same with a tone for each row.
    #[must_use]
    pub fn with_tones(self, tones: Vec<Tone>) -> Self {
        Self { tones, ..self }
    }

    /// The columns that an output shows: those that are meant for it and have something in them.
    pub fn columns(&self, output: Output) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(move |column| column.is_shown(output))
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cells.len())
    }

    /// The tone of a row.
    #[must_use]
    pub fn tone(&self, row: usize) -> Tone {
        self.tones.get(row).copied().unwrap_or_default()
    }
}

impl Column {
    /// Words, set to the left. A line end in the heading is where a terminal may break it; before a
    /// `/` it stands for nothing, else for a blank.
    #[must_use]
    pub fn left<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self {
            heading: heading.to_owned(),
            cells: cells.into_iter().map(Into::into).collect(),
            is_right: false,
            narrow: Narrow::Keep,
            outputs: &[Output::Terminal, Output::Markdown, Output::Page],
            is_required: false,
        }
    }

    /// Figures, set to the right.
    #[must_use]
    pub fn right<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self { is_right: true, ..Self::left(heading, cells) }
    }

    /// Names, which are shortened on a narrow terminal.
    #[must_use]
    pub fn name<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self { narrow: Narrow::Shorten, ..Self::left(heading, cells) }
    }

    /// Sentences, which end early on a narrow terminal.
    #[must_use]
    pub fn prose<C: Into<Cell>>(heading: &str, cells: impl IntoIterator<Item = C>) -> Self {
        Self { narrow: Narrow::Truncate, ..Self::left(heading, cells) }
    }

    /// The same column, left out on a narrow terminal; the lowest order first.
    #[must_use]
    pub fn drop_order(self, order: u8) -> Self {
        Self { narrow: Narrow::Drop(order), ..self }
    }

    /// The same column, shown by these outputs only.
    #[must_use]
    pub fn on(self, outputs: &'static [Output]) -> Self {
        Self { outputs, ..self }
    }

    /// The same column, shown even if nothing is in it.
    #[must_use]
    pub fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// The heading on one line.
    #[must_use]
    pub fn heading(&self) -> String {
        self.heading.replace("\n/", "/").replace('\n', " ")
    }

    /// The heading on two lines, the upper one empty where one is enough.
    #[must_use]
    pub fn folded_heading(&self) -> (&str, &str) {
        self.heading.split_once('\n').unwrap_or(("", &self.heading))
    }

    fn is_shown(&self, output: Output) -> bool {
        let is_known = |cell: &Cell| !["", UNKNOWN].contains(&cell.text.as_str());
        self.outputs.contains(&output) && (self.is_required || self.cells.iter().any(is_known))
    }
}

impl Cell {
    /// The text and the spread.
    #[must_use]
    pub fn full(&self) -> String {
        match self.spread.is_empty() {
            true => self.text.clone(),
            false => format!("{} {}", self.text, self.spread),
        }
    }

    /// The same cell, for which a terminal shows a shorter text.
    #[must_use]
    pub fn shortened_to(self, short: impl Into<String>) -> Self {
        Self { short: Some(short.into()), ..self }
    }

    /// The same cell, sorted by a value.
    #[must_use]
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
            Column::right("max", ["1 ms", "2 ms"]).on(&[Output::Page]),
        ]);
        let headings = |output| table.columns(output).map(Column::heading).collect::<Vec<_>>();
        assert_eq!(headings(Output::Terminal), ["", "server", "CPU µs/request"]);
        assert_eq!(headings(Output::Page), ["", "server", "CPU µs/request", "max"]);
        assert_eq!((table.rows(), table.tone(1)), (2, Tone::Plain));
    }
}
