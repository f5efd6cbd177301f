//! The whole report as JSON: the form that `schemas/report.schema.json` describes.

use super::Report;
use crate::text::visible_json;

/// The report as JSON, a line a value, so that two of them can be compared by eye.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report is plain data");
    text.push('\n');
    visible_json(&text)
}
