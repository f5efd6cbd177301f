//! Renderers, each of which lays out a finished report in one format. They only get words and
//! figures, and compute nothing.

use crate::report::Report;
use crate::report::timeline::TimelineView;
use crate::text;

mod ci;
pub mod csv;
mod html;
pub mod markdown;
pub mod terminal;

/// A format in which a report is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON: every figure and every lap.
    Json,
    /// Markdown: the table and the sentences.
    Markdown,
    /// CSV: one line per server.
    Csv,
    /// HTML: one page.
    Html,
    /// SVG: the main chart.
    Svg,
    /// JUnit: tests that passed and failed.
    Junit,
    /// The input of github-action-benchmark.
    Github,
    /// The input of Bencher.
    Bencher,
}

/// Renders a timeline as an HTML page.
pub fn timeline_page(found: &TimelineView) -> String {
    html::timeline(found)
}

/// Renders the report in one format.
pub fn render(report: &Report, format: Format) -> String {
    match format {
        Format::Json => text::json(report),
        Format::Markdown => markdown::render(report),
        Format::Csv => csv::render(report),
        Format::Html => html::render(report),
        Format::Svg => html::picture(report),
        Format::Junit => ci::junit(report),
        Format::Github => ci::github(report),
        Format::Bencher => ci::bencher(report),
    }
}
