//! JSON, as described by `schemas/report.schema.json`; also for other kinds of reports.

use serde::Serialize;

use crate::text::visible_json;

/// A report as JSON with one value per line, so that two reports can be compared by eye.
///
/// # Panics
/// If the report has a map whose keys are not strings; no report has one.
pub fn json(report: &impl Serialize) -> String {
    visible_json(&(serde_json::to_string_pretty(report).expect("a report is plain data") + "\n"))
}
