//! One line per server and load, for spreadsheets (RFC 4180). Units are fixed and part of the
//! column names. If a load sends several requests, the line of a server is followed by one for each
//! of them, with the name of the request in the column `request`, which is empty otherwise.
//!
//! A spreadsheet reads a field that begins with `=`, `+`, `-` or `@` as a formula, and names and
//! versions come from outside. Such a text gets an apostrophe in front, which spreadsheets do not
//! show; figures are left alone. The exact names are in the JSON export.

use crate::report::{Figure, Latency, LoadResults, Report, RequestRow, Role, Row};
use crate::text::visible;

/// A column's name, and its value in a row.
type Field = (&'static str, fn(&Row) -> String);

/// The columns before those of [`FIELDS`].
const FIRST: [&str; 8] =
    ["load", "rank", "server", "role", "version", "request", "requests", "share_percent"];

/// The columns of a server's figures.
const FIELDS: [Field; 31] = [
    ("requests_per_s", |r| value(&r.requests_per_s)),
    ("requests_per_s_low", |r| low(&r.requests_per_s)),
    ("requests_per_s_high", |r| high(&r.requests_per_s)),
    ("generator_limited", |r| r.generator_limited.to_string()),
    ("of_ceiling_percent", |r| value(&r.of_ceiling)),
    ("cpu_us", |r| value(&r.cpu_us)),
    ("cpu_us_low", |r| low(&r.cpu_us)),
    ("cpu_us_high", |r| high(&r.cpu_us)),
    ("instructions_user", |r| value(&r.instructions_user)),
    ("instructions_kernel", |r| value(&r.instructions_kernel)),
    ("switches", |r| value(&r.switches)),
    ("mean_ms", |r| value(&r.service.mean)),
    ("stdev_ms", |r| value(&r.service.stdev)),
    ("p50_ms", |r| value(&r.service.p50)),
    ("p90_ms", |r| value(&r.service.p90)),
    ("p99_ms", |r| value(&r.service.p99)),
    ("p999_ms", |r| value(&r.service.p999)),
    ("max_ms", |r| value(&r.service.max)),
    ("rate", |r| {
        let rate = r.response.as_ref().and_then(|at| at.rate);
        rate.map_or_else(String::new, |rate| rate.to_string())
    }),
    ("rate_reached", |r| {
        let found = r.open_loop.as_ref();
        found.map_or_else(String::new, |found| found.reached_per_s.to_string())
    }),
    ("rate_p50_ms", |r| at_rate(r, |l| value(&l.p50))),
    ("rate_p99_ms", |r| at_rate(r, |l| value(&l.p99))),
    ("rss_mb", |r| value(&r.rss_mb)),
    ("pss_mb", |r| value(&r.pss_mb)),
    ("cpu_percent", |r| value(&r.cpu_percent)),
    ("errors", |r| r.errors.to_string()),
    ("ready_ms", |r| value(&r.ready_ms)),
    ("steady_ms", |r| value(&r.steady_ms)),
    ("laps", |r| r.laps.0.to_string()),
    ("laps_left_out", |r| (r.laps.1 - r.laps.0).to_string()),
    ("lower_bounds", lower_bounds),
];

/// The report as CSV. Failed servers have a line with their name and no figures.
pub fn render(report: &Report) -> String {
    if !report.capacity.is_empty() {
        return capacities(report);
    }
    let names = FIRST.into_iter().chain(FIELDS.map(|(name, _)| name));
    let mut out = line(names.map(str::to_owned));
    for load in &report.tables {
        for row in &load.rows {
            out += &line(fields(load, row));
            let own = load.by_request.iter().filter(|request| request.server == row.name);
            out.extend(own.map(|request| line(request_fields(load, row, request))));
        }
    }
    for failed in &report.failed {
        let first = ["", "", &text(&failed.name), "failed", "", "", "", ""].map(str::to_owned);
        out += &line(first.into_iter().chain(FIELDS.map(|_| String::new())));
    }
    out
}

/// A search as CSV: one line per server and load.
fn capacities(report: &Report) -> String {
    const NAMES: [&str; 15] = [
        "load",
        "server",
        "role",
        "version",
        "goals",
        "capacity",
        "capacity_low",
        "capacity_high",
        "generator_limited",
        "below",
        "ratio",
        "held_s",
        "held_met",
        "cpu_us",
        "restarts",
    ];
    let mut out = line(NAMES.iter().map(|name| (*name).to_owned()));
    for found in &report.capacity {
        for row in &found.rows {
            let held = row.held.as_ref();
            let is_bound = row.capacity.as_ref().is_some_and(|c| c.is_lower_bound);
            let fields = [
                text(&found.title),
                text(&row.name),
                role(row.role),
                text(&row.version),
                found.goals_in_words(),
                value(&row.capacity),
                low(&row.capacity),
                high(&row.capacity),
                is_bound.to_string(),
                row.below.map_or_else(String::new, |rate| rate.to_string()),
                value(&row.ratio),
                held.map_or_else(String::new, |held| held.seconds.to_string()),
                held.map_or_else(String::new, |held| held.is_met().to_string()),
                value(&row.cpu_us),
                row.restarts.to_string(),
            ];
            out += &line(fields.into_iter());
        }
    }
    for failed in &report.failed {
        let first = ["", &text(&failed.name), "failed"].map(str::to_owned);
        out += &line(first.into_iter().chain(NAMES[3..].iter().map(|_| String::new())));
    }
    out
}

fn fields(load: &LoadResults, row: &Row) -> impl Iterator<Item = String> {
    let rank = row.rank.map_or_else(String::new, |rank| rank.to_string());
    let first = [text(&load.title), rank, text(&row.name), role(row.role), text(&row.version)];
    let no_request = [const { String::new() }; 3];
    first.into_iter().chain(no_request).chain(FIELDS.map(|(_, field)| field(row)))
}

/// A request to a server: the columns of its own figures, the others empty.
fn request_fields<'a>(
    load: &LoadResults,
    row: &Row,
    own: &'a RequestRow,
) -> impl Iterator<Item = String> + use<'a> {
    let rank = String::new();
    let first = [
        text(&load.title),
        rank,
        text(&row.name),
        role(row.role),
        text(&row.version),
        text(&own.request),
        own.requests.to_string(),
        value(&own.share_percent),
    ];
    let names = match own.rate {
        None => ["p50_ms", "p99_ms"],
        Some(_) => ["rate_p50_ms", "rate_p99_ms"],
    };
    let percentiles = || names.into_iter().zip([&own.p50, &own.p99]);
    let field = move |(name, _): Field| match name {
        "rate" => own.rate.map_or_else(String::new, |rate| rate.to_string()),
        "errors" => own.errors.to_string(),
        "lower_bounds" => bounds(percentiles().map(|(name, figure)| (name, figure.as_ref()))),
        name => percentiles().find(|(n, _)| *n == name).map_or_else(String::new, |p| value(p.1)),
    };
    first.into_iter().chain(FIELDS.map(field))
}

/// The names of latency columns whose values are lower bounds, separated by spaces.
fn lower_bounds(row: &Row) -> String {
    let (service, response) = (&row.service, row.at_rate());
    let figures = [
        ("p50_ms", service.p50.as_ref()),
        ("p90_ms", service.p90.as_ref()),
        ("p99_ms", service.p99.as_ref()),
        ("p999_ms", service.p999.as_ref()),
        ("max_ms", service.max.as_ref()),
        ("rate_p50_ms", response.and_then(|at| at.p50.as_ref())),
        ("rate_p99_ms", response.and_then(|at| at.p99.as_ref())),
    ];
    bounds(figures)
}

/// The names of the figures that are lower bounds, separated by spaces.
fn bounds<'a>(figures: impl IntoIterator<Item = (&'static str, Option<&'a Figure>)>) -> String {
    let bounds = figures.into_iter().filter(|(_, f)| f.is_some_and(|f| f.is_lower_bound));
    bounds.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

fn role(role: Role) -> String {
    serde_json::json!(role).as_str().unwrap_or_default().to_owned()
}

fn at_rate(row: &Row, field: fn(&Latency) -> String) -> String {
    row.at_rate().map_or_else(String::new, field)
}

fn value(figure: &Option<Figure>) -> String {
    figure.as_ref().map_or_else(String::new, |f| f.value.to_string())
}

fn low(figure: &Option<Figure>) -> String {
    figure.as_ref().and_then(|f| f.low).map_or_else(String::new, |end| end.to_string())
}

fn high(figure: &Option<Figure>) -> String {
    figure.as_ref().and_then(|f| f.high).map_or_else(String::new, |end| end.to_string())
}

/// A text from outside as a field: on one line, and not a formula.
fn text(from: &str) -> String {
    let shown = visible(from);
    match shown.starts_with(['=', '+', '-', '@']) {
        true => format!("'{shown}"),
        false => shown,
    }
}

/// One line; fields are quoted where necessary.
pub fn line(fields: impl Iterator<Item = String>) -> String {
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
