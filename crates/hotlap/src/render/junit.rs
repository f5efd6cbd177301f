//! JUnit XML, which every CI system shows as a list of tests: one case per server and load.

use crate::report::verdict::{Judged, reason};
use crate::report::{
    CapacityResults, CapacityRow, Failed, LoadResults, Measure, Report, Role, Row,
};
use crate::text::visible_lines;

/// The end of the suite.
const INDENT: &str = "  ";

/// The report as JUnit XML. A server that failed or breaks a rule of `--fail-if` is a failure, one
/// without figures is an error, and one whose comparison with the reference is inconclusive is
/// skipped.
pub fn render(report: &Report) -> String {
    let mut cases: Vec<String> = Vec::new();
    let (mut failures, mut errors, mut skipped) = (0, 0, 0);
    // A server that failed has no results under any load.
    let names = |failed: &Failed| match report.tables.len() {
        0 => vec![failed.name.clone()],
        _ => report.tables.iter().map(|table| table.unique_name(&failed.name)).collect(),
    };
    let cases_of = |failed| names(failed).into_iter().map(move |name| (failed, name));
    for (failed, name) in report.failed.iter().flat_map(cases_of) {
        failures += 1;
        let text = format!(
            "{}\n{}\n{}",
            failed.command,
            failed.why.log_tail.join("\n"),
            failed.why.remedy
        );
        let message = format!("{}: {}", failed.why.phase, failed.why.cause);
        cases.push(case(&name, "", &fault("failure", &message, &text)));
    }
    for (table, row) in report.tables.iter().flat_map(|t| t.rows.iter().map(move |r| (t, r))) {
        if row.role == Role::Ceiling {
            continue;
        }
        let own = report.broken.iter().filter(|b| b.server == row.name && b.load == table.load);
        let broken: Vec<&str> = own.map(|b| b.sentence.as_str()).collect();
        let fault = match () {
            () if !broken.is_empty() => {
                failures += 1;
                fault("failure", broken[0], &broken.join("\n"))
            }
            () if row.wrong_responses > 0 => {
                failures += 1;
                let message = format!("{} wrong responses", row.wrong_responses);
                fault("failure", &message, &row.laps_left_out)
            }
            () if row.requests_per_s.is_none() => {
                errors += 1;
                fault("error", "no valid laps", &row.laps_left_out)
            }
            () => undecided(row).map_or_else(String::new, |why| {
                skipped += 1;
                fault("skipped", &why, &table.sentences.join("\n"))
            }),
        };
        cases.push(case(&table.unique_name(&row.name), &figures(table, row), &fault));
    }
    for (found, row) in report.capacity.iter().flat_map(|c| c.rows.iter().map(move |r| (c, r))) {
        let (kind, fault) = capacity_fault(report, found, row);
        failures += u32::from(kind == "failure");
        errors += u32::from(kind == "error");
        skipped += u32::from(kind == "skipped");
        let figures = row.capacity.as_ref().map_or_else(String::new, |capacity| {
            format!("{} up to {} requests/s", found.goals_in_words(), capacity.full())
        });
        cases.push(case(&found.unique_name(&row.name), &figures, &fault));
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"hotlap\" \
         tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" \
         time=\"{}\" timestamp=\"{}\">\n{}\
         {INDENT}</testsuite>\n</testsuites>\n",
        cases.len(),
        report.run.took_s.unwrap_or(0.0),
        report.run.began.trim_end_matches('Z'),
        cases.concat()
    )
}

/// What is wrong with the capacity of a server: the kind of fault, and its element. Both are empty
/// if nothing is.
fn capacity_fault(
    report: &Report,
    found: &CapacityResults,
    row: &CapacityRow,
) -> (&'static str, String) {
    let own = report.broken.iter().filter(|b| b.server == row.name && b.load == found.load);
    let broken: Vec<&str> = own.map(|b| b.sentence.as_str()).collect();
    let all = found.sentences.join("\n");
    let (kind, message, text) = match (&row.capacity, row.judged.and_then(Judged::inconclusive)) {
        _ if !broken.is_empty() => ("failure", broken[0], broken.join("\n")),
        (None, _) => ("error", "the goals are kept at no rate", all),
        (Some(_), Some(why)) => ("skipped", reason(why), all),
        (Some(_), None) => return ("", String::new()),
    };
    (kind, fault(kind, message, &text))
}

/// Why a server's comparison with the reference is inconclusive; `None` if it has a verdict in CPU
/// time per request or in requests/s.
fn undecided(row: &Row) -> Option<String> {
    let against = row.against.as_ref()?;
    let both = [Measure::Cost, Measure::Rate].map(|measure| &against.measures[measure]);
    let mut known = both.into_iter().filter(|found| found.ratio.is_some());
    let first = known.next()?;
    first.judged.inconclusive()?;
    known.all(|found| found.judged.inconclusive().is_some()).then(|| first.words.clone())
}

fn case(name: &str, output: &str, fault: &str) -> String {
    let out = match output.is_empty() {
        true => String::new(),
        false => format!("      <system-out>{}</system-out>\n", escape(output)),
    };
    format!(
        "    <testcase classname=\"hotlap\" name=\"{}\">\n{fault}{out}    </testcase>\n",
        escape(name)
    )
}

fn fault(kind: &str, message: &str, text: &str) -> String {
    format!("      <{kind} message=\"{}\">{}</{kind}>\n", escape(message), escape(text))
}

/// The figures of a row in one line, and what its percentiles are.
fn figures(table: &LoadResults, row: &Row) -> String {
    let latency = table.latency_of(row);
    let figures = [
        ("requests/s", row.requests_per_s.as_ref()),
        ("CPU µs/request", row.cpu_us.as_ref()),
        ("p50*", latency.and_then(|latency| latency.p50.as_ref())),
        ("p99*", latency.and_then(|latency| latency.p99.as_ref())),
        ("memory", row.rss_mb.as_ref()),
    ];
    let known = figures.into_iter().filter_map(|(what, f)| Some(format!("{what} {}", f?.full())));
    known.chain(table.latency_mark()).collect::<Vec<_>>().join(", ")
}

/// Text, escaped for an element. Hidden characters, most of which XML 1.0 does not allow (section
/// 2.2), are shown as escapes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible_lines(text).chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            '\u{fffe}' | '\u{ffff}' => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_attribute() {
        assert_eq!(escape("a\"<script>&\u{1b}[1m"), "a&quot;&lt;script&gt;&amp;\\x1b[1m");
    }
}
