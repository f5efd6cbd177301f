//! The main chart of a report as an SVG file of its own, for documents and READMEs.

use super::chart::Chart;
use super::charts::{self, Palette};
use super::style::STYLE;
use super::svg::{COLOURS, LINE, WIDTH, colour};
use super::tag::{Html, el, els};
use crate::report::Report;

/// Height of the title, in units of the chart.
const TITLE: f64 = 26.0;

/// The main chart: of a search latency over the rate, else requests per second. Without any, a
/// picture that says so.
pub fn picture(report: &Report) -> String {
    let palette = Palette::of(report);
    let searched = report.capacity.iter().flat_map(|found| charts::capacity(found, &palette));
    let measured = report.tables.iter().flat_map(|load| charts::of_load(report, load, &palette));
    let (title, picture, height) = match searched.chain(measured).next() {
        Some(chart) => drawn(&chart, &palette),
        None => ("Nothing was measured.".to_owned(), Html::default(), 0.0),
    };
    // The colours are those of the page, for light and dark.
    let colours = STYLE.split(":root[data-theme=dark]").next().unwrap_or_default();
    let top = height + TITLE;
    let size = format!("0 {} {} {}", -top, WIDTH + 14.0, top + 290.0);
    let text = [("x", "8"), ("y", &*(-top + 17.0).to_string()), ("font-weight", "bold")];
    let whole = [
        el("style", &[], Html::own(format!("{colours}svg{{background:var(--paper)}}"))),
        el("text", &text, title),
        picture,
    ];
    let attributes = [
        ("xmlns", "http://www.w3.org/2000/svg"),
        ("viewBox", &*size),
        ("width", "860"),
        ("font-family", "system-ui, sans-serif"),
        ("font-size", "13"),
        ("fill", "var(--ink)"),
    ];
    el("svg", &attributes, whole).into_string() + "\n"
}

/// A chart with its title and, above it, the names of its servers; the height of those.
fn drawn(chart: &Chart, palette: &Palette) -> (String, Html, f64) {
    let shown: Vec<usize> = (0..palette.names().len())
        .filter(|server| chart.series.iter().any(|s| s.server == *server && !s.points.is_empty()))
        .collect();
    let height = LINE * shown.len() as f64;
    let entry = |(place, server): (usize, &usize)| {
        let y = -height + LINE * (place as f64 + 0.5);
        let dot = [("cx", "14"), ("cy", &*(y - 4.0).to_string()), ("r", "5")];
        let colour = colour(server % COLOURS);
        let dot = el("circle", &[&dot[..], &[("fill", &*colour)]].concat(), "");
        let name = el("text", &[("x", "26"), ("y", &*y.to_string())], &palette.names()[*server]);
        dot + name
    };
    let legend: Html = shown.iter().enumerate().map(entry).collect();
    let svg = chart.draw("picture").svg;
    let note = els("desc", [&chart.note]);
    let inner = el("g", &[], legend + svg + note);
    (chart.title.clone(), inner, height)
}
