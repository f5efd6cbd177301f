//! A report as CSV for spreadsheets, with one line per server and load. Fields are quoted as in
//! RFC 4180. Units are fixed and part of the column names. If a load sends several requests, the
//! line of a server is followed by one line for each request. Only the lines of requests have a
//! name in the column `request`.
//!
//! A spreadsheet reads a field that begins with `=`, `+`, `-` or `@` as a formula. Names and
//! versions come from outside. A name or version that begins like this gets an apostrophe in
//! front. Figures are unchanged. The JSON export has the exact names.

use crate::report::capacity::HeldWindow;
use crate::report::{
    CapacityResults, CapacityRow, FACTS, Fact, Figure, LoadResults, Report, RequestRow, Row, Value,
};
use crate::text::{name, visible};

/// The columns before the columns of the facts.
const FIRST: [&str; 8] =
    ["load", "rank", "server", "role", "version", "request", "requests", "share_percent"];

/// The last column: the names of the columns whose values are lower bounds, separated by spaces.
const BOUNDS: &str = "lower_bounds";

/// Returns the facts that have a field.
fn facts() -> impl Iterator<Item = &'static Fact> {
    FACTS.iter().filter(|fact| !fact.field.is_empty())
}

/// Returns the names of the columns after [`FIRST`].
fn names() -> Vec<String> {
    let names = facts().flat_map(|Fact { field, value, .. }| match value {
        Value::Interval(_) => ["", "_low", "_high"].map(|end| format!("{field}{end}")).to_vec(),
        Value::Figure(_) | Value::Words(_) => vec![(*field).to_owned()],
    });
    names.chain([BOUNDS.to_owned()]).collect()
}

/// Renders the report as CSV. Failed servers have a line with their name and no figures.
pub fn render(report: &Report) -> String {
    if !report.capacity.is_empty() {
        return capacities(report);
    }
    let mut out = line(FIRST.map(str::to_owned).into_iter().chain(names()));
    for load in &report.tables {
        for row in &load.rows {
            out += &line(fields(load, row));
            let own = load.by_request.iter().filter(|request| request.server == row.name);
            out.extend(own.map(|request| line(request_fields(load, row, request))));
        }
    }
    for failed in &report.failed {
        let first = ["", "", &text(&failed.name), "failed", "", "", "", ""].map(str::to_owned);
        out += &line(first.into_iter().chain(names().iter().map(|_| String::new())));
    }
    out
}

/// The name of a column of a search, and the function that returns its value.
type Searched = (&'static str, fn(&CapacityResults, &CapacityRow) -> String);

const SEARCHED: [Searched; 15] = [
    ("load", |found, _| text(&found.title)),
    ("server", |_, row| text(&row.name)),
    ("role", |_, row| name(&row.role)),
    ("version", |_, row| text(&row.version)),
    ("goals", |found, _| found.goals_in_words()),
    ("capacity", |_, row| value(row.capacity.as_ref())),
    ("capacity_low", |_, row| low(row.capacity.as_ref())),
    ("capacity_high", |_, row| high(row.capacity.as_ref())),
    ("is_lower_bound", |_, row| {
        row.capacity.as_ref().is_some_and(|capacity| capacity.is_lower_bound).to_string()
    }),
    ("below", |_, row| number(row.below)),
    ("ratio", |_, row| value(row.ratio.as_ref())),
    ("held_s", |_, row| number(row.held.as_ref().map(|held| held.seconds))),
    ("held_met", |_, row| number(row.held.as_ref().map(HeldWindow::is_met))),
    ("cpu_us", |_, row| value(row.cpu_us.as_ref())),
    ("restarts", |_, row| row.restarts.to_string()),
];

/// Renders a search as CSV, with one line per server and load.
fn capacities(report: &Report) -> String {
    let mut out = line(SEARCHED.iter().map(|(name, _)| (*name).to_owned()));
    for found in &report.capacity {
        for row in &found.rows {
            out += &line(SEARCHED.iter().map(|(_, of)| of(found, row)));
        }
    }
    for failed in &report.failed {
        let field = |(column, _): &Searched| match *column {
            "server" => text(&failed.name),
            "role" => "failed".to_owned(),
            _ => String::new(),
        };
        out += &line(SEARCHED.iter().map(field));
    }
    out
}

fn fields(load: &LoadResults, row: &Row) -> impl Iterator<Item = String> {
    let first =
        [text(&load.title), number(row.rank), text(&row.name), name(&row.role), text(&row.version)];
    let no_request = [const { String::new() }; 3];
    let mut bounds: Vec<&str> = Vec::new();
    let mut own = Vec::new();
    for Fact { field, value: of, .. } in facts() {
        let figure = match of {
            Value::Figure(of) | Value::Interval(of) => of(row),
            Value::Words(of) => {
                own.push(of(row));
                continue;
            }
        };
        own.push(value(figure));
        if matches!(of, Value::Interval(_)) {
            own.extend([low(figure), high(figure)]);
        }
        bounds.extend(figure.filter(|figure| figure.is_lower_bound).map(|_| *field));
    }
    own.push(bounds.join(" "));
    first.into_iter().chain(no_request).chain(own)
}

/// Returns the fields of a request to a server. Figures that a request does not have are empty.
fn request_fields(load: &LoadResults, row: &Row, own: &RequestRow) -> impl Iterator<Item = String> {
    let first = [
        text(&load.title),
        String::new(),
        text(&row.name),
        name(&row.role),
        text(&row.version),
        text(&own.request),
        own.requests.to_string(),
        value(own.share_percent.as_ref()),
    ];
    let [p50, p99] = match own.rate {
        None => ["p50_ms", "p99_ms"],
        Some(_) => ["rate_p50_ms", "rate_p99_ms"],
    };
    let percentiles = [(p50, own.p50.as_ref()), (p99, own.p99.as_ref())];
    let is_bound = |(_, figure): &(&str, Option<&Figure>)| figure.is_some_and(|f| f.is_lower_bound);
    let bounds: Vec<&str> =
        percentiles.into_iter().filter(is_bound).map(|(name, _)| name).collect();
    let known = [
        (p50, value(percentiles[0].1)),
        (p99, value(percentiles[1].1)),
        ("rate", number(own.rate)),
        ("errors", own.errors.to_string()),
        (BOUNDS, bounds.join(" ")),
    ];
    let field = move |name: String| {
        let own = known.iter().find(|(own, _)| *own == name);
        own.map_or_else(String::new, |(_, value)| value.clone())
    };
    first.into_iter().chain(names().into_iter().map(field))
}

fn number(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn value(figure: Option<&Figure>) -> String {
    number(figure.map(|figure| figure.value))
}

fn low(figure: Option<&Figure>) -> String {
    number(figure.and_then(|figure| figure.low))
}

fn high(figure: Option<&Figure>) -> String {
    number(figure.and_then(|figure| figure.high))
}

/// Turns a text from outside into a field that has one line and is not a formula.
fn text(from: &str) -> String {
    let shown = visible(from);
    match shown.starts_with(['=', '+', '-', '@']) {
        true => format!("'{shown}"),
        false => shown,
    }
}

/// Joins fields into one line. Fields are quoted where necessary.
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
