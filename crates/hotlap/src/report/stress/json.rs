//! The stress of some servers as JSON: the lines, and all that was measured.

use super::StressReport;

/// The report as JSON.
#[must_use]
pub fn render(report: &StressReport) -> String {
    // Plain data with string keys always has a form in JSON.
    serde_json::to_string_pretty(report).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn lines_and_measurements_are_both_there() {
        let value: serde_json::Value = serde_json::from_str(&render(&report())).unwrap();
        let server = &value["servers"][0];
        assert_eq!(server["lines"][1]["verdict"], "down");
        assert_eq!(server["measured"][0]["observed"]["fate"]["answered"]["400"], 200);
        assert_eq!(server["measured"][1]["judgement"]["verdict"], "down");
    }
}
