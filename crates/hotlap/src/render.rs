//! Renderers: each lays out a finished report in one format. They get words and figures only, and
//! compute nothing.

pub mod csv;
mod html;
mod json;
mod junit;
pub mod markdown;
pub mod terminal;
mod tracking;

use crate::report::Report;

pub use json::json;

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

/// Renders the report in one format.
pub fn render(report: &Report, format: Format) -> String {
    match format {
        Format::Json => json(report),
        Format::Markdown => markdown::render(report),
        Format::Csv => csv::render(report),
        Format::Html => html::render(report),
        Format::Svg => html::picture(report),
        Format::Junit => junit::render(report),
        Format::Github => tracking::github(report),
        Format::Bencher => tracking::bencher(report),
    }
}
