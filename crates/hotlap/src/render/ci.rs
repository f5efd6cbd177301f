//! Formats for continuous integration: JUnit, and the formats of two services that track
//! benchmarks.

use serde_json::{Map, Value};

use crate::report::Failed;
use crate::report::Measure;
use crate::report::Report;
use crate::report::Role;
use crate::report::figure::Figure;
use crate::report::verdict::{Judged, reason};
use crate::report::{CapacityResults, CapacityRow};
use crate::report::{LoadResults, Row};
use crate::text::number::plural;
use crate::text::{json, visible_lines};

/// The result of one server under one load.
struct Case {
    name: String,
    /// The server's figures, in one line.
    figures: String,
    fault: Option<Fault>,
}

/// Why a case did not pass: the name of its XML element, a sentence, and everything else.
struct Fault {
    kind: &'static str,
    message: String,
    text: String,
}

/// Renders the report as JUnit XML. A server that failed, sent wrong responses, or breaks a rule of
/// `--fail-if` is a failure. A server without figures is an error. A server whose comparison with
/// the reference is inconclusive is skipped.
pub fn junit(report: &Report) -> String {
    let measured = report.tables.iter().flat_map(|t| t.rows.iter().map(move |r| (t, r)));
    let measured = measured.filter(|(_, row)| row.role != Role::Ceiling);
    let searched = report.capacity.iter().flat_map(|c| c.rows.iter().map(move |r| (c, r)));
    let cases: Vec<Case> = (report.failed.iter().flat_map(|failed| failed_cases(report, failed)))
        .chain(measured.map(|(table, row)| Case {
            name: unique_name(&row.name, &table.title),
            figures: figures(table, row),
            fault: broken(report, &row.name, table.load).or_else(|| row_fault(table, row)),
        }))
        .chain(searched.map(|(found, row)| Case {
            name: unique_name(&row.name, &found.title),
            figures: row.capacity.as_ref().map_or_else(String::new, |capacity| {
                format!("{} up to {} requests/s", found.goals_in_words(), capacity.full())
            }),
            fault: broken(report, &row.name, found.load).or_else(|| capacity_fault(found, row)),
        }))
        .collect();
    let count = |kind: &str| {
        let faults = cases.iter().filter_map(|case| case.fault.as_ref());
        faults.filter(|fault| fault.kind == kind).count()
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"hotlap\" \
         tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\" \
         timestamp=\"{}\">\n{}  </testsuite>\n</testsuites>\n",
        cases.len(),
        count("failure"),
        count("error"),
        count("skipped"),
        report.run.took_s.unwrap_or(0.0),
        report.run.began.trim_end_matches('Z'),
        cases.iter().map(Case::xml).collect::<String>()
    )
}

/// Returns a name for a server that is unique over all loads.
fn unique_name(server: &str, title: &str) -> String {
    if title.is_empty() { server.to_owned() } else { format!("{server} ({title})") }
}

/// Returns one case per load for a server that failed, because it has no results under any load.
fn failed_cases(report: &Report, failed: &Failed) -> Vec<Case> {
    let names = match report.tables.len() {
        0 => vec![failed.name.clone()],
        _ => report.tables.iter().map(|table| unique_name(&failed.name, &table.title)).collect(),
    };
    let Failed { command, why, .. } = failed;
    let fault = || Fault {
        kind: "failure",
        message: format!("{}: {}", why.phase, why.cause),
        text: format!("{command}\n{}\n{}", why.log_tail.join("\n"), why.remedy),
    };
    let case = |name| Case { name, figures: String::new(), fault: Some(fault()) };
    names.into_iter().map(case).collect()
}

/// Returns the rules of `--fail-if` that a server breaks.
fn broken(report: &Report, server: &str, load: usize) -> Option<Fault> {
    let own = report.broken.iter().filter(|b| b.server == server && b.load == load);
    let broken: Vec<&str> = own.map(|b| b.sentence.as_str()).collect();
    let message = (*broken.first()?).to_owned();
    Some(Fault { kind: "failure", message, text: broken.join("\n") })
}

fn row_fault(table: &LoadResults, row: &Row) -> Option<Fault> {
    let left_out = || row.laps_excluded.clone();
    match row.requests_per_s {
        _ if row.wrong_responses > 0 => {
            let message = plural(row.wrong_responses as usize, "wrong response");
            Some(Fault { kind: "failure", message, text: left_out() })
        }
        None => {
            Some(Fault { kind: "error", message: "no valid laps".to_owned(), text: left_out() })
        }
        Some(_) => {
            let text = table.sentences.join("\n");
            undecided(row).map(|message| Fault { kind: "skipped", message, text })
        }
    }
}

fn capacity_fault(found: &CapacityResults, row: &CapacityRow) -> Option<Fault> {
    let (kind, message) = match (&row.capacity, row.judged.and_then(Judged::inconclusive)) {
        (None, _) if row.below.is_some() => ("error", "a goal is missed at the lowest rate"),
        (None, _) => ("error", "the capacity is unknown"),
        (Some(_), Some(why)) => ("skipped", reason(why)),
        (Some(_), None) => return None,
    };
    Some(Fault { kind, message: message.to_owned(), text: found.sentences.join("\n") })
}

/// Returns why a server's comparison with the reference is inconclusive. `None` if the server has a
/// verdict in CPU time per request or in requests/s.
fn undecided(row: &Row) -> Option<String> {
    let against = row.against.as_ref()?;
    let both = [Measure::Cost, Measure::Rate].map(|measure| &against.measures[measure]);
    let mut known = both.into_iter().filter(|found| found.ratio.is_some());
    let first = known.next()?;
    first.judged.inconclusive()?;
    known.all(|found| found.judged.inconclusive().is_some()).then(|| first.words.clone())
}

impl Case {
    fn xml(&self) -> String {
        let fault =
            self.fault.as_ref().map_or_else(String::new, |Fault { kind, message, text }| {
                let (message, text) = (escape(message), escape(text));
                format!("      <{kind} message=\"{message}\">{text}</{kind}>\n")
            });
        let figures = match self.figures.is_empty() {
            true => String::new(),
            false => format!("      <system-out>{}</system-out>\n", escape(&self.figures)),
        };
        let name = escape(&self.name);
        format!(
            "    <testcase classname=\"hotlap\" name=\"{name}\">\n{fault}{figures}    </testcase>\n"
        )
    }
}

/// Returns the figures of a row and the meaning of its percentiles, in one line.
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

/// Escapes text for an element. Hidden characters, most of which XML 1.0 does not allow (section
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

/// Renders figures that are better if they are smaller, for the tool `customSmallerIsBetter` of
/// github-action-benchmark. Requests/s are left out, because a file has only one direction. CPU
/// time per request says the same, with less noise.
pub fn github(report: &Report) -> String {
    let mut entries = Vec::new();
    for (name, row) in rows(report) {
        let figures = [
            ("CPU time per request", "µs", &row.cpu_us),
            ("p50 under the load", "ms", &row.service.p50),
            ("p99 under the load", "ms", &row.service.p99),
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

/// Renders the Bencher Metric Format: one benchmark per server and load, without lower bounds.
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
        let known = figures.iter().filter_map(|(slug, figure)| {
            let figure = figure.as_ref().filter(|figure| !figure.is_lower_bound)?;
            Some(((*slug).to_owned(), metric(figure)))
        });
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

/// Returns each server with requests/s except the ceiling, with a name unique over all loads.
fn rows(report: &Report) -> impl Iterator<Item = (String, &Row)> {
    let rows = report.tables.iter().flat_map(|t| t.rows.iter().map(move |r| (t, r)));
    rows.filter(|(_, r)| r.role != Role::Ceiling && r.requests_per_s.is_some())
        .map(move |(t, r)| (unique_name(&r.name, &t.title), r))
}

/// Returns the text under a point of the chart. The text mentions inconclusive results, because the
/// chart compares each run with the previous one.
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
