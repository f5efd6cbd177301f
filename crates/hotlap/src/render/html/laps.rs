//! The laps of a run, on demand: the script builds the table when it is opened.

use serde_json::{Value, json};

use super::charts::Palette;
use super::tag::{Html, el, els};
use crate::report::{LapView, Report};
use crate::text::number::count;

/// A column of the table of laps: its heading, and its value for a lap.
type LapColumn = (&'static str, fn(&LapView) -> Value);

/// The column of what several generators contributed.
const BY_GENERATOR: &str = "by generator";

/// The columns after the server.
const COLUMNS: [LapColumn; 17] = [
    ("load", |l| json!(l.load + 1)),
    ("restart", |l| json!(l.restart)),
    ("round", |l| json!(l.round)),
    ("place", |l| json!(l.place)),
    ("at s", |l| json!(l.at_s)),
    ("rate due", |l| json!(l.rate)),
    ("requests/s", |l| json!(l.requests_per_s)),
    ("CPU µs/request", |l| json!(l.cpu_us)),
    ("p50 ms", |l| json!(l.p50_ms)),
    ("p99 ms", |l| json!(l.p99_ms)),
    ("max ms", |l| json!(l.max_ms)),
    ("memory MB", |l| json!(l.rss_mb)),
    ("CPU %", |l| json!(l.cpu_percent)),
    ("generator %", |l| json!(l.generator_percent)),
    (BY_GENERATOR, |l| json!(by_generator(l))),
    ("errors", |l| json!(l.errors)),
    ("left out because", |l| json!(l.doubts.join("; "))),
];

/// The responses to each of several generators; empty if there was one.
fn by_generator(lap: &LapView) -> String {
    lap.generators.iter().map(|own| count(own.answers)).collect::<Vec<_>>().join(" + ")
}

/// The place of the table.
pub fn section(report: &Report, palette: &Palette) -> Html {
    if report.laps.is_empty() {
        return Html::default();
    }
    let option = |(n, name): (usize, &String)| el("option", &[("value", &n.to_string())], name);
    let all = el("option", &[("value", "")], "all servers");
    let options = all + palette.names().iter().enumerate().map(option).collect();
    let summary = format!("Each of the {} laps", count(report.laps.len() as u64));
    let label = el("label", &[], [Html::from("of "), el("select", &[], options)]);
    let parts =
        [els("summary", [summary]), el("p", &[], label), el("div", &[("class", "wide")], "")];
    el("section", &[], el("details", &[("id", "each")], parts))
}

/// The laps as arrays, for the script. A server that is in no table has its name instead of a
/// number.
pub fn data(report: &Report, palette: &Palette) -> Value {
    let has_generators = report.laps.iter().any(|lap| !lap.generators.is_empty());
    let columns: Vec<&LapColumn> =
        COLUMNS.iter().filter(|column| has_generators || column.0 != BY_GENERATOR).collect();
    let lap = |lap: &LapView| -> Value {
        let server = palette.number(&lap.server).map_or(json!(lap.server), |number| json!(number));
        std::iter::once(server).chain(columns.iter().map(|(_, value)| value(lap))).collect()
    };
    let headings = std::iter::once("server").chain(columns.iter().map(|(heading, _)| *heading));
    json!({
        "servers": palette.names(),
        "headings": headings.collect::<Vec<_>>(),
        "laps": report.laps.iter().map(lap).collect::<Vec<_>>(),
    })
}
