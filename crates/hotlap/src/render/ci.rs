//! Formats for continuous integration: JUnit, and those of two services that track benchmarks.

use serde_json::{Map, Value};

use crate::report::Failed;
use crate::report::Measure;
use crate::report::Report;
use crate::report::Role;
use crate::report::figure::Figure;
use crate::report::verdict::{Judged, reason};
use crate::report::{CapacityResults, CapacityRow};
use crate::report::{LoadResults, Row};
use crate::text::{json, visible_lines};

/// The end of the suite.
const INDENT: &str = "  ";

/// The report as JUnit XML. A server that failed or breaks a rule of `--fail-if` is a failure, one
/// without figures is an error, and one whose comparison with the reference is inconclusive is
/// skipped.
pub fn junit(report: &Report) -> String {
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

/// For github-action-benchmark, tool `customSmallerIsBetter`: a list of figures of which less is
/// better. Requests/s is not among them, since a file has one direction; CPU time per request says
/// the same, with less noise.
pub fn github(report: &Report) -> String {
    let mut entries = Vec::new();
    for (name, row) in rows(report) {
        let figures = [
            ("CPU time per request", "µs", &row.cpu_us),
            ("p50", "ms", &row.service.p50),
            ("p99", "ms", &row.service.p99),
            ("memory", "MB", &row.rss_mb),
        ];
        for (what, unit, figure) in figures {
            let Some(figure) = figure else { continue };
            let mut entry = serde_json::json!({
                "name": format!("{name}: {what}"),
                "unit": unit,
                "value": figure.value,
                "extra": extra(report, row),
            });
            if !figure.spread.is_empty() {
                entry["range"] = serde_json::json!(figure.spread);
            }
            entries.push(entry);
        }
    }
    json(&Value::Array(entries))
}

/// Bencher Metric Format: one benchmark per server, with its measures and their intervals.
pub fn bencher(report: &Report) -> String {
    let mut benchmarks = Map::new();
    for (name, row) in rows(report) {
        let figures = [
            ("throughput", &row.requests_per_s),
            ("cpu-time-per-request", &row.cpu_us),
            ("latency-p50", &row.service.p50),
            ("latency-p99", &row.service.p99),
            ("memory", &row.rss_mb),
        ];
        let known =
            figures.iter().filter_map(|(slug, f)| Some(((*slug).to_owned(), metric(f.as_ref()?))));
        benchmarks.insert(name, Value::Object(known.collect()));
    }
    json(&Value::Object(benchmarks))
}

fn metric(figure: &Figure) -> Value {
    let mut metric = serde_json::json!({ "value": figure.value });
    if let (Some(low), Some(high)) = (figure.low, figure.high) {
        metric["lower_value"] = serde_json::json!(low);
        metric["upper_value"] = serde_json::json!(high);
    }
    metric
}

/// Every server that has a figure, with a name that is unique over all loads.
fn rows(report: &Report) -> impl Iterator<Item = (String, &Row)> {
    let rows = report.tables.iter().flat_map(|t| t.rows.iter().map(move |r| (t, r)));
    rows.filter(|(_, r)| r.role != Role::Ceiling && r.requests_per_s.is_some())
        .map(move |(t, r)| (t.unique_name(&r.name), r))
}

/// The text under a point of the chart. It mentions inconclusive results, because the chart
/// compares each run with the previous one.
fn extra(report: &Report, row: &Row) -> String {
    let version = if row.version.is_empty() { &row.command } else { &row.version };
    let cost = row.against.as_ref().and_then(|against| against.measures.cost.judged.inconclusive());
    let verdict =
        cost.map_or_else(String::new, |verdict| format!("\ninconclusive: {}", reason(verdict)));
    format!("{version}\n{}\n{}{verdict}", report.run.title.join(" · "), report.host.line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_attribute() {
        assert_eq!(escape("a\"<script>&\u{1b}[1m"), "a&quot;&lt;script&gt;&amp;\\x1b[1m");
    }
}
