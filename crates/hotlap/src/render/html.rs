//! A report as a single HTML file that loads no font, script or style sheet from elsewhere. The
//! page is readable without its script. The script sorts tables, shows the values of points in
//! charts, hides servers, searches flame graphs, lists laps, and copies the command.

use serde_json::{Value, json};

use crate::render::html::chart::{COLOURS, Chart, LINE, WIDTH, colour};
use crate::render::html::charts::Palette;
use crate::render::html::tag::{Html, RowExtra, el, els, paragraph, sentences, sortable, table};
use crate::report::CapacityResults;
use crate::report::LapView;
use crate::report::LoadResults;
use crate::report::Overview;
use crate::report::PoolView;
use crate::report::Report;
use crate::report::Role;
use crate::report::explain::{ExplanationResults, FlameBox};
use crate::report::stress::{Remark, Stress, StressSection};
use crate::report::timeline::TimelineView;
use crate::report::{Failed, PublishedSource, PublishedView, absence};
use crate::text::number::count;

mod chart;
mod charts;
mod tag;

/// The number of charts of a load that are shown at once. The others are folded.
const OPEN_CHARTS: usize = 6;

const SCRIPT: &str = include_str!("html/page.js");

/// Renders the page.
pub fn render(report: &Report) -> String {
    let palette = Palette::of(report);
    let mut charts = Charts::default();
    let scaling = charts::scaling(report, &palette).map(|chart| {
        let plots = el("div", &[("class", "plots")], charts.figure(&chart));
        el("section", &[], [els("h2", ["Scaling"]), plots])
    });
    let loads = report.tables.iter().map(|load| section(report, load, &palette, &mut charts));
    let loads: Html = loads.collect();
    let mut searched = charts;
    let body = [
        head(report),
        report.overview().map(overview).into(),
        warnings(&report.warnings),
        report.failed.iter().map(failure).collect(),
        absences(report),
        legend(report, &palette),
        scaling.into(),
        loads,
        report.capacity.iter().map(|found| capacity(found, &palette, &mut searched)).collect(),
        explanations(report),
        report.pool.as_ref().map(pool).into(),
        report.stress.as_ref().map(stress).into(),
        about(report),
        laps(report, &palette),
        Html::own("<div id=\"tip\" role=\"status\" aria-live=\"polite\" hidden></div>"),
        el(
            "script",
            &[("type", "application/json"), ("id", "laps")],
            tag::json(&laps_data(report, &palette)),
        ),
        el("script", &[], Html::own(SCRIPT)),
    ];
    page(&title(report), &hiding(report, &palette), body)
}

/// Renders a page with this title, and with these style rules in addition to the common ones.
fn page(title: &str, style: &str, body: impl Into<Html>) -> String {
    let style = Html::own(format!("{STYLE}{style}"));
    let head = [
        Html::own(
            "<meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <link rel=\"icon\" href=\"data:,\">",
        ),
        els("title", [title]),
        el("style", &[], style),
    ];
    let page = el("html", &[("lang", "en")], [el("head", &[], head), el("body", &[], body)]);
    format!("<!doctype html>\n{}\n", page.into_string())
}

fn title(report: &Report) -> String {
    let number = report.run.number.map_or_else(String::new, |n| format!(" run {n}:"));
    format!("hotlap{number} {}", report.run.title.first().map_or("", String::as_str))
}

/// Renders the versions of a server, with a chart of their ratios to the oldest one.
pub fn timeline(found: &TimelineView) -> String {
    let chart = charts::versions(found);
    let title = format!("{} of {} versions", found.measure, found.versions.len());
    let body = [
        el(
            "header",
            &[],
            [el("p", &[("class", "top")], els("b", ["hotlap"])), els("h1", [&title])],
        ),
        found.sentences.iter().map(|sentence| paragraph("lead", sentence)).collect(),
        el("div", &[("class", "plots")], Charts::default().figure(&chart)),
        table(&found.table()),
    ];
    page(&title, "", body)
}

/// Renders the nodes of a merged run.
fn pool(found: &PoolView) -> Html {
    let parts = [
        els("h2", ["Nodes"]),
        paragraph("", &found.summary),
        table(&found.table()),
        paragraph("", found.legend()),
        warnings(&found.notes),
    ];
    el("section", &[], parts)
}

/// Renders the overview of several loads.
fn overview(found: Overview) -> Html {
    let parts = [els("h2", [&found.title]), table(&found.table), paragraph("under", found.note)];
    el("section", &[], parts)
}

/// Renders the headline, and the facts that identify the run.
fn head(report: &Report) -> Html {
    let run = &report.run;
    let number = run.number.map_or_else(String::new, |n| format!(" · run {n}"));
    let theme = Html::own("<button id=\"theme\" type=\"button\" hidden>Light or dark</button>");
    let top = [els("b", ["hotlap"]), format!("{number} · {}", run.began).into(), theme];
    let headline = report.headline();
    let (first, others) = headline.split_at(headline.len().min(1));
    let noise = report.noise.as_ref().filter(|_| report.tables.len() < 2);
    let copy = Html::own("<button id=\"copy\" type=\"button\" hidden>Copy the command</button>");
    el(
        "header",
        &[],
        [
            el("p", &[("class", "top")], top),
            sentences("h1", first),
            others.iter().chain(&report.ruling).map(|said| paragraph("lead", said)).collect(),
            links(report),
            paragraph("noise", noise.map_or("", |noise| &noise.sentence)),
            paragraph("state", &run.state_note),
            paragraph("under", &run.title.join(" · ")),
            el("p", &[("class", "repeat")], [el("code", &[("id", "command")], &run.command), copy]),
        ],
    )
}

/// Renders the first sentence of each load, with a link to its section. Empty for a single load.
fn links(report: &Report) -> Html {
    if report.tables.len() < 2 {
        return Html::default();
    }
    let link = |load: &LoadResults| {
        let first = report.own_sentences(load).first();
        let first = first.map_or_else(String::new, |sentence| format!(": {sentence}"));
        el("a", &[("href", &format!("#load-{}", load.load))], &load.title) + first.into()
    };
    let links = els("li", report.tables.iter().map(link));
    el("nav", &[("aria-label", "Loads")], el("ul", &[("class", "ways")], links))
}

fn warnings(warnings: &[String]) -> Html {
    if warnings.is_empty() {
        return Html::default();
    }
    let list = el("ul", &[], sentences("li", warnings));
    el("aside", &[], [els("h2", ["Before you trust this"]), list])
}

/// Renders the published servers that the suite leaves out.
fn absences(report: &Report) -> Html {
    match report.absent.is_empty() {
        true => Html::default(),
        false => el("ul", &[("class", "ways")], els("li", report.absent.iter().map(absence))),
    }
}

fn failure(Failed { name, command, why, published }: &Failed) -> Html {
    let published = published.iter().map(PublishedView::sentence_with_doubt);
    let log = (!why.log_tail.is_empty()).then(|| els("pre", [why.log_tail.join("\n")]));
    el(
        "section",
        &[("class", "failed")],
        [
            els("h2", [format!("{name} failed ({})", why.phase)]),
            els("p", [&why.cause]),
            el("p", &[], els("code", [command])),
            log.into(),
            els("p", [&why.remedy]),
            els("p", published),
        ],
    )
}

/// Renders the mark of a server, in the server's colour.
fn mark(server: usize) -> Html {
    let (class, style) = (format!("m{}", server / COLOURS % 4), format!("--c:{}", colour(server)));
    el("i", &[("class", &class), ("style", &style)], "")
}

/// Returns the parts of a row that are shown in addition to its cells.
fn extra(palette: &Palette, name: &str, details: Html) -> RowExtra {
    let server = palette.number(name).unwrap_or(0);
    RowExtra { server: server.to_string(), mark: mark(server), details }
}

/// Renders a button for each server, which shows and hides the server in every chart.
fn legend(report: &Report, palette: &Palette) -> Html {
    if palette.names().is_empty() {
        return Html::default();
    }
    let measured = report.tables.first().and_then(|load| load.reference.as_ref());
    let searched = report.capacity.first().and_then(|load| load.reference.as_ref());
    let reference = measured.or(searched);
    let button = |(server, name): (usize, &String)| {
        let role = (Some(name) == reference).then(|| Html::from(" ") + els("small", ["reference"]));
        el(
            "button",
            &[("type", "button"), ("data-server", &server.to_string()), ("aria-pressed", "true")],
            [mark(server), name.into(), role.into()],
        )
    };
    el(
        "nav",
        &[("class", "legend"), ("aria-label", "Servers in the charts")],
        palette.names().iter().enumerate().map(button).collect::<Html>(),
    )
}

/// Returns the CSS rules that hide a server's series, and the rules that give the ceiling its
/// neutral colour. The rules are generated here, because the number of servers varies.
fn hiding(report: &Report, palette: &Palette) -> String {
    let hidden = |n| format!("body.h{n} svg [data-group=\"{n}\"]{{display:none}}");
    let mut out: String = (0..palette.names().len()).map(hidden).collect();
    let rows = report.tables.first().map_or(&[][..], |t| &t.rows);
    let ceiling = rows.iter().find(|r| r.role == Role::Ceiling);
    if let Some(n) = ceiling.and_then(|r| palette.number(&r.name)) {
        let own = n % COLOURS;
        out += &format!("[data-group=\"{n}\"],[data-server=\"{n}\"]{{--s{own}:var(--rule)}}");
    }
    out
}

/// The counter that numbers the charts of a page.
#[derive(Default)]
struct Charts(usize);

impl Charts {
    fn figure(&mut self, chart: &Chart) -> Html {
        self.0 += 1;
        let drawing = chart.draw(&format!("c{}", self.0));
        let spots: Vec<serde_json::Value> = drawing
            .spots
            .iter()
            .map(|(x, y, server, text)| json!([x.round() as i64, y.round() as i64, server, text]))
            .collect();
        let spots = tag::json(&spots.into());
        let caption = [els("b", [&chart.title]), " ".into(), chart.note.as_str().into()];
        el(
            "figure",
            &[("tabindex", "0")],
            [
                el("figcaption", &[], caption),
                drawing.svg,
                el("script", &[("type", "application/json")], spots),
            ],
        )
    }
}

fn section(report: &Report, load: &LoadResults, palette: &Palette, charts: &mut Charts) -> Html {
    let mut lead = Html::default();
    if !load.title.is_empty() {
        let noise = load.noise.as_ref().map_or("", |noise| &noise.sentence);
        let own = report.own_sentences(load);
        lead = els("h2", [&load.title]) + sentences("p", own) + paragraph("noise", noise);
    }
    let extras = load.rows.iter().map(|row| {
        let items =
            row.details().into_iter().map(|(name, value)| els("dt", [name]) + els("dd", [value]));
        let details = [els("summary", ["more"]), el("dl", &[], items.collect::<Html>())];
        extra(palette, &row.name, el("details", &[], details))
    });
    let drawn = charts::of_load(report, load, palette);
    let mut open: Vec<Html> = drawn.iter().map(|chart| charts.figure(chart)).collect();
    let folded = open.split_off(OPEN_CHARTS.min(open.len()));
    let plots = |figures: Vec<Html>| {
        el("div", &[("class", "plots")], figures.into_iter().collect::<Html>())
    };
    let more = (!folded.is_empty())
        .then(|| el("details", &[], [els("summary", ["More charts"]), plots(folded)]));
    el(
        "section",
        &[("id", &format!("load-{}", load.load))],
        [
            lead,
            sortable(&load.table(), "Results", &extras.collect::<Vec<_>>()),
            load.notes().iter().map(|note| paragraph("quiet", note)).collect(),
            plots(open),
            more.into(),
            requests(load, palette),
            errors(load),
            load.sources().iter().map(published).collect(),
        ],
    )
}

/// Renders the capacities under one load.
fn capacity(found: &CapacityResults, palette: &Palette, charts: &mut Charts) -> Html {
    let mut lead = Html::default();
    if !found.title.is_empty() {
        lead = els("h2", [&found.title]) + sentences("p", &found.sentences);
    }
    let extras = found.rows.iter();
    let extras = extras.map(|row| extra(palette, &row.name, paragraph("quiet", &row.version)));
    let drawn = charts::capacity(found, palette);
    let figures: Html = drawn.iter().map(|chart| charts.figure(chart)).collect();
    let windows =
        [els("summary", ["Every window"]), sortable(&found.window_table(), "Windows", &[])];
    el(
        "section",
        &[("id", &format!("load-{}", found.load))],
        [
            lead,
            sortable(&found.table(), "Capacity", &extras.collect::<Vec<_>>()),
            found.notes().iter().map(|note| paragraph("quiet", note)).collect(),
            el("div", &[("class", "plots")], figures),
            el("details", &[], windows),
        ],
    )
}

/// Renders the sources of differences in cost.
fn explanations(report: &Report) -> Html {
    let is_headline = report.tables.is_empty() && report.explanations.len() == 1;
    report.explanations.iter().map(|found| explanation(found, is_headline)).collect()
}

/// Renders the figures of each request. Empty if the load has only one kind of request.
fn requests(load: &LoadResults, palette: &Palette) -> Html {
    if load.by_request.is_empty() {
        return Html::default();
    }
    let extras = load.by_request.iter();
    let extras = extras.map(|request| extra(palette, &request.server, Html::default()));
    els("h3", ["Each request"])
        + sortable(&load.request_table(), "Each request", &extras.collect::<Vec<_>>())
}

/// Renders the failures by kind.
fn errors(load: &LoadResults) -> Html {
    let errors = load.error_table();
    match (load.rows.is_empty(), errors.rows()) {
        (true, _) => Html::default(),
        (false, 0) => paragraph("quiet", "Errors by kind: none."),
        (false, _) => els("h3", ["Errors by kind"]) + table(&errors),
    }
}

fn published(source: &PublishedSource) -> Html {
    let circumstances = paragraph("quiet", &source.circumstances().join("; "));
    els("h3", [source.heading()]) + circumstances + table(&source.table())
}

fn stress(stress: &Stress) -> Html {
    let section = |section: &StressSection| {
        let title = (!section.title.is_empty()).then(|| els("h3", [&section.title]));
        let remark = |remark: &Remark| {
            let log =
                (!remark.log_tail.is_empty()).then(|| els("pre", [remark.log_tail.join("\n")]));
            Html::from(&remark.text) + log.into()
        };
        let remarks = els("li", section.remarks.iter().map(remark));
        let remarks = (!remarks.is_empty()).then(|| el("ul", &[], remarks));
        [title.into(), table(&section.table), remarks.into()].into_iter().collect::<Html>()
    };
    el(
        "section",
        &[],
        [
            els("h2", ["Stress"]),
            paragraph("under", &stress.title.join(" · ")),
            els("p", stress.summary()),
            stress.sections().iter().map(section).collect(),
            el("ul", &[], els("li", &stress.rules)),
        ],
    )
}

/// Renders the host, the versions, the load, the seed and the order of the laps.
fn about(report: &Report) -> Html {
    let facts = report.facts().into_iter();
    let facts = facts.map(|(name, value)| els("dt", [name]) + els("dd", [value])).collect::<Html>();
    let order = [els("summary", ["Order of the laps"]), els("pre", [report.lap_order()])];
    el(
        "section",
        &[],
        [
            els("h2", ["How this was measured"]),
            el("dl", &[("class", "facts")], facts),
            el("details", &[], order),
        ],
    )
}

/// Renders the place that the script fills with the table of laps.
fn laps(report: &Report, palette: &Palette) -> Html {
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

/// Returns the laps as arrays, for the script. A server that is in no table has its name instead of
/// a number.
fn laps_data(report: &Report, palette: &Palette) -> Value {
    let columns = LapView::columns(&report.laps);
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

/// The height of a box of the flame graph, in pixels.
const HEIGHT: usize = 18;

/// Renders the section of one explanation. A sentence that is the page's headline is left out.
fn explanation(found: &ExplanationResults, is_headline: bool) -> Html {
    let all = |content: Html, what: &str| match content.is_empty() {
        true => content,
        false => el("details", &[], els("summary", [what]) + content),
    };
    el(
        "section",
        &[("class", "explain")],
        [
            els("h2", [found.heading()]),
            paragraph("lead", if is_headline { "" } else { &found.sentence }),
            table(&found.ledger_table(false)),
            all(table(&found.ledger_table(true)), "Every function"),
            table(&found.count_table(false)),
            all(table(&found.count_table(true)), "Everything that was counted"),
            flame(found),
            found.notes.iter().map(|note| paragraph("quiet", note)).collect(),
        ],
    )
}

/// Renders the flame graph. Empty without a profile.
fn flame(found: &ExplanationResults) -> Html {
    let Some(depth) = found.flame.iter().map(|own| own.depth).max() else {
        return Html::default();
    };
    let how = format!(
        "Width: CPU time per request in both servers together, callers above what they call. {} \
         spends more in orange boxes and less in blue boxes. Click a box to enlarge it.",
        found.server
    );
    let search = [
        Html::own("<input type=\"search\" placeholder=\"Search a function\" "),
        Html::own("aria-label=\"Search a function\"> <output></output>"),
    ];
    let height = format!("height:{}px", (depth + 1) * HEIGHT);
    let boxes: Html = found.flame.iter().map(flame_box).collect();
    let graph = el(
        "div",
        &[("class", "flame"), ("style", &height), ("aria-label", "Flame graph"), ("role", "img")],
        boxes,
    );
    els("h3", ["Flame graph of the difference"])
        + paragraph("quiet", &how)
        + el("p", &[("class", "search"), ("hidden", "")], search)
        + graph
}

fn flame_box(own: &FlameBox) -> Html {
    let kind = if own.shade < 0 { "less" } else { "more" };
    let style = format!(
        "left:{}%;width:{}%;top:{}px;--d:{}%",
        own.left,
        own.width,
        own.depth * HEIGHT,
        own.shade.abs()
    );
    let title = format!("{} · {}", own.name, own.words);
    el("div", &[("class", kind), ("style", &style), ("title", &title)], &own.name)
}

/// The height of the title, in units of the chart.
const TITLE: f64 = 26.0;

/// Renders the main chart: latency at each rate for a search, and requests per second otherwise.
/// If there is no chart, the picture has a sentence instead.
pub fn picture(report: &Report) -> String {
    let palette = Palette::of(report);
    let searched = report.capacity.iter().flat_map(|found| charts::capacity(found, &palette));
    let measured = report.tables.iter().flat_map(|load| charts::of_load(report, load, &palette));
    let (title, picture, height) = match searched.chain(measured).next() {
        Some(chart) => with_legend(&chart, &palette),
        None => ("This run has no chart.".to_owned(), Html::default(), 0.0),
    };
    // The colours of the page, for light and dark.
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

/// Returns the title of a chart, the chart with the names of its servers, and the names' height.
fn with_legend(chart: &Chart, palette: &Palette) -> (String, Html, f64) {
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

/// The style sheet, which begins with the colours for light and dark.
const STYLE: &str = include_str!("html/page.css");
