//! One line a server and load, for spreadsheets (RFC 4180). Units are in the heads and fixed.
//!
//! A spreadsheet takes a field that begins with `=`, `+`, `-` or `@` for a formula, and a name or a
//! version comes from outside. Such a text has an apostrophe in front, which spreadsheets do not
//! show; figures are left alone. The exact names are in the JSON export.

use crate::report::{Figure, Latency, Report, Row};
use crate::text::visible;

const HEADS: [&str; 35] = [
    "load",
    "rank",
    "server",
    "role",
    "version",
    "requests_per_s",
    "requests_per_s_low",
    "requests_per_s_high",
    "generator_limited",
    "of_ceiling_percent",
    "cpu_us",
    "cpu_us_low",
    "cpu_us_high",
    "instructions_user",
    "instructions_kernel",
    "switches",
    "mean_ms",
    "stdev_ms",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "p999_ms",
    "max_ms",
    "rate",
    "rate_p50_ms",
    "rate_p99_ms",
    "rss_mb",
    "pss_mb",
    "cpu_percent",
    "errors",
    "ready_ms",
    "steady_ms",
    "laps",
    "laps_left_out",
    "lower_bounds",
];

/// The report as CSV. Failed servers have a line with their name and no figures.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = line(HEADS.iter().map(|h| (*h).to_owned()));
    for table in &report.tables {
        for row in &table.rows {
            out += &line(fields(&table.title, row).into_iter());
        }
    }
    for failed in &report.failed {
        let mut fields = vec![String::new(); HEADS.len()];
        fields[2] = text(&failed.name);
        fields[3] = "failed".to_owned();
        out += &line(fields.into_iter());
    }
    out
}

fn fields(load: &str, row: &Row) -> Vec<String> {
    let empty = Latency::default();
    let (service, response) = (&row.service, row.response.as_ref().unwrap_or(&empty));
    let role = serde_json::json!(row.role).as_str().unwrap_or_default().to_owned();
    let mut fields = vec![
        text(load),
        row.rank.map_or_else(String::new, |r| r.to_string()),
        text(&row.name),
        role,
        text(&row.version),
    ];
    fields.extend(interval(row.requests_per_s.as_ref()));
    fields.push(row.generator_limited.to_string());
    fields.push(value(row.of_ceiling.as_ref()));
    fields.extend(interval(row.cpu_us.as_ref()));
    fields.push(value(row.instructions_user.as_ref()));
    fields.push(value(row.instructions_kernel.as_ref()));
    fields.push(value(row.switches.as_ref()));
    let times = [&service.mean, &service.stdev, &service.p50, &service.p90, &service.p99];
    fields.extend(times.map(|f| value(f.as_ref())));
    fields.extend([&service.p999, &service.max].map(|f| value(f.as_ref())));
    fields.push(response.rate.map_or_else(String::new, |r| r.to_string()));
    fields.extend([&response.p50, &response.p99].map(|f| value(f.as_ref())));
    fields.extend([&row.rss_mb, &row.pss_mb, &row.cpu_percent].map(|f| value(f.as_ref())));
    fields.push(row.errors.to_string());
    fields.extend([&row.ready_ms, &row.steady_ms].map(|f| value(f.as_ref())));
    fields.push(row.laps.0.to_string());
    fields.push((row.laps.1 - row.laps.0).to_string());
    fields.push(bounds(service, response));
    fields
}

/// The columns of latencies that are lower bounds, with a space between them.
fn bounds(service: &Latency, response: &Latency) -> String {
    let figures = [
        ("p50_ms", &service.p50),
        ("p90_ms", &service.p90),
        ("p99_ms", &service.p99),
        ("p999_ms", &service.p999),
        ("max_ms", &service.max),
        ("rate_p50_ms", &response.p50),
        ("rate_p99_ms", &response.p99),
    ];
    let is_bound = |figure: &Option<Figure>| figure.as_ref().is_some_and(|f| f.is_lower_bound);
    let bounds = figures.into_iter().filter(|(_, figure)| is_bound(figure));
    bounds.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

fn interval(figure: Option<&Figure>) -> [String; 3] {
    let end = |end: Option<f64>| end.map_or_else(String::new, |e| e.to_string());
    [value(figure), end(figure.and_then(|f| f.low)), end(figure.and_then(|f| f.high))]
}

fn value(figure: Option<&Figure>) -> String {
    figure.map_or_else(String::new, |f| f.value.to_string())
}

/// A text from outside as a field: on one line, and not a formula.
fn text(from: &str) -> String {
    let shown = visible(from);
    match shown.starts_with(['=', '+', '-', '@']) {
        true => format!("'{shown}"),
        false => shown,
    }
}

/// One line, each field quoted where it must be.
pub(crate) fn line(fields: impl Iterator<Item = String>) -> String {
    let quoted = fields.map(|field| match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_neither_a_formula_nor_a_second_line() {
        assert_eq!(text("=HYPERLINK(\"http://x\")"), "'=HYPERLINK(\"http://x\")");
        assert_eq!(text("@SUM(1+1)|cmd"), "'@SUM(1+1)|cmd");
        assert_eq!(text("go 1.24\r\n=1\x1b"), "go 1.24\\r\\n=1\\x1b");
        assert_eq!(text("go/net-http"), "go/net-http");
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let fields = ["plain", "with, comma", "with \"quotes\""].map(str::to_owned);
        assert_eq!(line(fields.into_iter()), "plain,\"with, comma\",\"with \"\"quotes\"\"\"\n");
    }
}
