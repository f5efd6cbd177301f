//! The form that `schemas/report.schema.json` describes, and that of other reports.

use serde::Serialize;

use crate::text::visible_json;

/// A report as JSON, a line a value, so that two of them can be compared by eye.
///
/// # Panics
/// If the report has a map whose keys are no strings: reports have none.
#[must_use]
pub fn json(report: &impl Serialize) -> String {
    visible_json(&(serde_json::to_string_pretty(report).expect("a report is plain data") + "\n"))
}
