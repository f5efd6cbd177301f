//! A report for a terminal of any width.

use crate::report::CapacityResults;
use crate::report::PoolView;
use crate::report::comparison::RunComparison;
use crate::report::explain::ExplanationResults;
use crate::report::stress::Stress;
use crate::report::trend::ServerTrend;
use crate::report::{Failed, LayerStep, PublishedSource};
use crate::report::{LoadResults, Row};
use crate::report::{Report, absence};
use crate::text::number::plural;
use crate::text::table::{Table, Tone};
use crate::text::{flow, hanging, layout, visible, wrap};

/// The smallest number of steps for which a table replaces the sentences.
const TABLE_FROM: usize = 5;

/// Renders the report for a terminal of `width` columns.
pub fn render(report: &Report, width: usize, color: bool) -> String {
    shown(report, Screen::new(width, color), false)
}

/// Renders the report with the details of each server, for a terminal of `width` columns.
pub fn detailed(report: &Report, width: usize, color: bool) -> String {
    shown(report, Screen::new(width, color), true)
}

fn shown(report: &Report, mut out: Screen, has_details: bool) -> String {
    if let Some(suite) = &report.run.suite {
        out.paragraph(BOLD, 2, &format!("{suite}: {}", report.run.question_words));
        out.paragraph("", 2, &report.run.about);
        out.blank();
    }
    out.parts(2, &report.run.title);
    out.blank();
    if !report.run.state_note.is_empty() {
        out.paragraph(YELLOW, 2, &report.run.state_note);
        out.blank();
    }
    for load in &report.tables {
        results(&mut out, report, load);
        if has_details {
            load.rows.iter().for_each(|row| details(&mut out, row));
            requests(&mut out, load);
            out.blank();
        }
    }
    for found in &report.capacity {
        capacity(&mut out, found, has_details);
    }
    for found in &report.explanations {
        explanation(&mut out, found, has_details);
    }
    let is_only = report.tables.len() < 2;
    let noise = report.noise.as_ref().filter(|_| is_only).map(|noise| &noise.sentence);
    for sentence in report.scaling.iter().map(|s| &s.sentence).chain(noise) {
        out.paragraph("", 2, sentence);
    }
    report.pool.iter().for_each(|found| pool(&mut out, found));
    if !has_details {
        out.paragraph(DIM, 2, &report.hint());
    }
    report.stress.iter().for_each(|found| stress(&mut out, found));
    report.failed.iter().for_each(|failed| failure(&mut out, failed));
    out.blank();
    for absent in &report.absent {
        out.hanging(2, &absence(absent));
    }
    warnings(&mut out, &report.warnings);
    // The result comes last, so that it is next to the prompt.
    if let [only] = &report.tables[..] {
        out.blank();
        answer(&mut out, &only.sentences);
    }
    if let Some(found) = report.overview() {
        out.blank();
        out.paragraph(BOLD, 2, &found.title);
        out.table(2, &found.table);
        out.paragraph(DIM, 2, found.note);
    }
    if !report.shared_sentences().is_empty() {
        out.blank();
        answer(&mut out, report.shared_sentences());
    }
    out.finish()
}

fn answer(out: &mut Screen, sentences: &[String]) {
    sentences.iter().for_each(|sentence| out.paragraph(BOLD, 2, sentence));
}

/// Renders a comparison of stored runs for a terminal of `width` columns.
pub fn comparison(comparison: &RunComparison, width: usize, color: bool) -> String {
    let mut out = Screen::new(width, color);
    let (before, after) = (&comparison.before, &comparison.after);
    let moment = |utc: &str| utc.get(..16).unwrap_or(utc).replace('T', " ");
    let [began, began_before] = [after, before].map(|side| moment(&side.runs[0].began));
    let lead = format!("{} ({began}) against {} ({began_before})", after.name, before.name);
    out.paragraph("", 2, &lead);
    out.blank();
    for load in &comparison.tables {
        out.paragraph("", 2, &load.title);
        out.table(2, &comparison.table(load));
        out.paragraph(DIM, 2, &load.control);
        out.blank();
    }
    for sentence in &comparison.sentences {
        out.paragraph(BOLD, 2, sentence);
    }
    warnings(&mut out, &comparison.warnings);
    out.finish()
}

/// Renders the trend of one server over all stored runs, for a terminal of `width` columns.
pub fn trend(trend: &ServerTrend, width: usize, color: bool) -> String {
    let mut out = Screen::new(width, color);
    let runs = plural(trend.points.len(), "run");
    out.paragraph("", 2, &format!("{} · {} · {runs}", trend.server, trend.title));
    out.blank();
    for line in &trend.lines {
        out.line(2, &format!("{:<16}{}", line.measure, line.sparkline));
    }
    out.blank();
    for sentence in trend.sentences.iter().map(String::as_str).chain(trend.no_change()) {
        out.paragraph("", 2, sentence);
    }
    out.blank();
    out.table(2, &trend.table());
    if let Some(note) = trend.left_out_words() {
        out.blank();
        out.paragraph("", 2, &note);
    }
    out.finish()
}

fn results(out: &mut Screen, report: &Report, load: &LoadResults) {
    out.paragraph(BOLD, 2, &load.title);
    if load.is_measured {
        out.table(2, &load.table());
        load.notes().iter().for_each(|note| out.paragraph(DIM, 2, note));
        out.blank();
    }
    if report.tables.len() > 1 {
        let noise = load.noise.as_ref().map(|noise| &noise.sentence);
        noise.into_iter().for_each(|sentence| out.paragraph("", 2, sentence));
        answer(out, report.own_sentences(load));
        out.blank();
    }
    layers(out, report, load);
    load.sources().iter().for_each(|source| published(out, source));
}

/// Renders the nodes of a merged run.
fn pool(out: &mut Screen, found: &PoolView) {
    out.paragraph("", 2, &found.summary);
    if found.table().rows() > 0 {
        out.blank();
        out.table(2, &found.table());
        out.paragraph(DIM, 2, found.legend());
        out.blank();
    }
    found.notes.iter().for_each(|note| out.paragraph(YELLOW, 2, &format!("Note: {note}")));
}

/// Renders the capacities under one load.
fn capacity(out: &mut Screen, found: &CapacityResults, has_details: bool) {
    out.paragraph(BOLD, 2, &found.title);
    out.table(2, &found.table());
    found.notes().iter().for_each(|note| out.paragraph(DIM, 2, note));
    out.blank();
    for sentence in &found.sentences {
        out.paragraph(BOLD, 2, sentence);
    }
    if has_details {
        out.blank();
        out.table(2, &found.window_table());
    }
}

/// Renders the sources of a difference in cost.
fn explanation(out: &mut Screen, found: &ExplanationResults, has_details: bool) {
    out.blank();
    out.paragraph(BOLD, 2, &found.title);
    out.paragraph(BOLD, 2, &found.sentence);
    for table in [found.ledger_table(has_details), found.count_table(has_details)] {
        if table.rows() > 0 {
            out.blank();
            out.table(2, &table);
        }
    }
    out.blank();
    found.notes.iter().for_each(|note| out.paragraph(DIM, 2, note));
}

/// Renders the details of a server.
fn details(out: &mut Screen, row: &Row) {
    out.blank();
    out.paragraph(BOLD, 2, &row.name);
    for (name, value) in row.details() {
        out.hanging(4, &format!("{name}: {value}"));
    }
}

/// Renders the figures of each request, if the load sends several.
fn requests(out: &mut Screen, load: &LoadResults) {
    if load.by_request.is_empty() {
        return;
    }
    out.blank();
    out.paragraph(BOLD, 2, "Each request");
    out.table(2, &load.request_table());
    load.notes().iter().for_each(|note| out.paragraph(DIM, 2, note));
    out.blank();
}

/// Renders the cost of each step between layers.
fn layers(out: &mut Screen, report: &Report, load: &LoadResults) {
    let is_table = report.steps(load).count() >= TABLE_FROM;
    if is_table {
        out.table(2, &LayerStep::table(report.steps(load)));
    }
    // The sentence about a failed side effect is too long for a cell.
    for step in report.steps(load).filter(|s| !is_table || !s.side_effect.is_empty()) {
        out.paragraph("", 2, &step.sentence);
    }
    if is_table {
        out.blank();
    }
}

/// Renders the published figures of one source next to the measured figures.
fn published(out: &mut Screen, source: &PublishedSource) {
    out.blank();
    out.paragraph(BOLD, 2, &source.heading());
    out.paragraph(DIM, 4, &source.circumstances().join("; "));
    for (server, then) in &source.rows {
        let called = match then.called.is_empty() || then.called == **server {
            true => String::new(),
            false => format!(" (“{}”)", then.called),
        };
        out.hanging(4, &format!("{server}{called} · {}", then.sentence_with_doubt()));
    }
    out.blank();
}

fn stress(out: &mut Screen, stress: &Stress) {
    out.blank();
    out.paragraph("", 2, &stress.title.join(" · "));
    let sections = stress.sections();
    for section in &sections {
        if !section.title.is_empty() {
            out.blank();
            out.paragraph("", 2, &section.title);
        }
        out.table(4, &section.table);
        for remark in &section.remarks {
            out.paragraph("", 4, &remark.text);
            out.log(6, &remark.log_tail);
        }
    }
    out.blank();
    stress.summary().iter().for_each(|sentence| out.paragraph("", 2, sentence));
    if sections.iter().any(|section| section.table.rows() > 0) {
        out.blank();
        stress.rules.iter().for_each(|rule| out.paragraph("", 2, rule));
    }
}

fn failure(out: &mut Screen, Failed { name, command, why, published }: &Failed) {
    out.blank();
    out.paragraph(RED, 2, &format!("{name} failed ({}): {}", why.phase, why.cause));
    out.line(4, &format!("$ {}", visible(command)));
    out.log(4, &why.log_tail);
    out.paragraph("", 4, &why.remedy);
    published.iter().for_each(|then| out.hanging(4, &then.sentence_with_doubt()));
}

fn warnings(out: &mut Screen, warnings: &[String]) {
    if !warnings.is_empty() {
        out.blank();
    }
    for warning in warnings {
        out.paragraph(YELLOW, 2, &format!("Note: {warning}"));
    }
}

/// The code that starts bold text. Bold text and colours end on the same line, so that no code
/// stays active if a pager cuts lines.
pub const BOLD: &str = "\x1b[1m";
/// The code that starts faint text. See [`BOLD`].
pub const DIM: &str = "\x1b[2m";
/// The code that starts red text. See [`BOLD`].
pub const RED: &str = "\x1b[31m";
/// The code that starts yellow text. See [`BOLD`].
pub const YELLOW: &str = "\x1b[33m";
const GREEN: &str = "\x1b[32m";
const OFF: &str = "\x1b[0m";

/// The text for a terminal, while it is put together.
pub struct Screen {
    width: usize,
    color: bool,
    out: String,
}

impl Screen {
    /// Creates an output that begins with a blank line.
    pub fn new(width: usize, color: bool) -> Self {
        Self { width, color, out: String::from("\n") }
    }

    /// Adds a wrapped text. Adds nothing for an empty text.
    pub fn paragraph(&mut self, ink: &str, indent: usize, text: &str) {
        for line in wrap(text, indent, self.width).lines() {
            self.out += &self.painted(ink, line);
            self.out.push('\n');
        }
    }

    /// Adds a wrapped text. All lines but the first are indented by two more columns.
    pub fn hanging(&mut self, indent: usize, text: &str) {
        self.out += &hanging(text, indent, self.width);
    }

    /// Adds parts with dots between them. Lines break only between parts.
    pub fn parts(&mut self, indent: usize, parts: &[String]) {
        let parts: Vec<String> = parts.iter().map(|part| visible(part)).collect();
        self.out += &flow(&parts, " · ", indent, self.width);
    }

    /// Adds one line of any length.
    pub fn line(&mut self, indent: usize, line: &str) {
        self.out += &format!("{:indent$}{line}\n", "");
    }

    /// Adds the last lines that a server printed.
    pub fn log(&mut self, indent: usize, lines: &[String]) {
        for line in lines {
            let line = self.painted(DIM, &format!("| {}", visible(line)));
            self.line(indent, &line);
        }
    }

    /// Adds a table that is fitted to the width.
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

    /// Adds a blank line unless the previous line is blank.
    pub fn blank(&mut self) {
        if !self.out.ends_with("\n\n") && self.out != "\n" {
            self.out.push('\n');
        }
    }

    /// Returns the whole output.
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
