//! Lines of a terminal of a given width, with or without colours.

use crate::text::table::{Table, Tone};
use crate::text::{flow, hanging, layout, visible, wrap};

/// A code that starts a colour or bold text. It is ended on the same line, so that a pager that
/// cuts lines leaves none open.
pub const BOLD: &str = "\x1b[1m";
/// See [`BOLD`].
pub const DIM: &str = "\x1b[2m";
/// See [`BOLD`].
pub const RED: &str = "\x1b[31m";
/// See [`BOLD`].
pub const YELLOW: &str = "\x1b[33m";
const GREEN: &str = "\x1b[32m";
const OFF: &str = "\x1b[0m";

/// The output.
pub struct Screen {
    width: usize,
    color: bool,
    out: String,
}

impl Screen {
    /// An empty output, which begins with a blank line.
    pub fn new(width: usize, color: bool) -> Self {
        Self { width, color, out: String::from("\n") }
    }

    /// A text, wrapped; nothing for an empty text.
    pub fn paragraph(&mut self, ink: &str, indent: usize, text: &str) {
        for line in wrap(text, indent, self.width).lines() {
            self.out += &self.painted(ink, line);
            self.out.push('\n');
        }
    }

    /// A text, wrapped, with all lines but the first indented by two more columns.
    pub fn hanging(&mut self, indent: usize, text: &str) {
        self.out += &hanging(text, indent, self.width);
    }

    /// Parts with dots between them; lines break only between parts.
    pub fn parts(&mut self, indent: usize, parts: &[String]) {
        let parts: Vec<String> = parts.iter().map(|part| visible(part)).collect();
        self.out += &flow(&parts, " · ", indent, self.width);
    }

    /// One line, of any length.
    pub fn line(&mut self, indent: usize, line: &str) {
        self.out += &format!("{:indent$}{line}\n", "");
    }

    /// The last lines that a server printed.
    pub fn log(&mut self, indent: usize, lines: &[String]) {
        for line in lines {
            let line = self.painted(DIM, &format!("| {}", visible(line)));
            self.line(indent, &line);
        }
    }

    /// A table, fitted to the width.
    pub fn table(&mut self, indent: usize, table: &Table) {
        let lines = layout::lines(table, self.width.saturating_sub(indent));
        for line in &lines.header {
            let line = self.painted(DIM, line);
            self.line(indent, &line);
        }
        for (row, line) in lines.rows.iter().enumerate() {
            let ink = match table.tone(row) {
                Tone::Plain => "",
                Tone::Good => GREEN,
                Tone::Warning => YELLOW,
                Tone::Bad => RED,
                Tone::Faint => DIM,
            };
            let line = self.painted(ink, line);
            self.line(indent, &line);
        }
    }

    /// A blank line, unless the previous line is blank.
    pub fn blank(&mut self) {
        if !self.out.ends_with("\n\n") && self.out != "\n" {
            self.out.push('\n');
        }
    }

    /// The whole output.
    pub fn finish(self) -> String {
        self.out
    }

    fn painted(&self, ink: &str, text: &str) -> String {
        match self.color && !ink.is_empty() {
            true => format!("{ink}{text}{OFF}"),
            false => text.to_owned(),
        }
    }
}
