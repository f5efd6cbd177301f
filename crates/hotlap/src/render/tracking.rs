//! The formats of two services that track benchmarks over time.

use serde_json::{Map, Value, json};

use super::json;
use crate::report::verdict::reason;
use crate::report::{Figure, Report, Role, Row};

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
            let mut entry = json!({
                "name": format!("{name}: {what}"),
                "unit": unit,
                "value": figure.value,
                "extra": extra(report, row),
            });
            if !figure.spread.is_empty() {
                entry["range"] = json!(figure.spread);
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
    let mut metric = json!({ "value": figure.value });
    if let (Some(low), Some(high)) = (figure.low, figure.high) {
        metric["lower_value"] = json!(low);
        metric["upper_value"] = json!(high);
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
