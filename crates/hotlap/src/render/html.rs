//! One page, in one file, that asks nothing of anybody: no request, no font, no script from
//! elsewhere. It is read without scripts too; the script sorts, points, hides and copies.
//!
//! Everything shown was worked out before: this file puts it into tags. All text goes through
//! [`escaped`], since names, commands and last lines come from outside.

mod chart;
mod charts;
mod stress;

use std::fmt::Write;

use crate::report::{AgainstReference, Failed, Figure, LoadResults, Report, Role, Row};
use crate::text::number::count;
use crate::text::visible_lines;
use chart::{COLOURS, Chart, colour};
use charts::Cast;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// The page.
#[must_use]
pub fn render(report: &Report) -> String {
    let cast = Cast::of(report);
    let mut body = head(report);
    body += &warnings(report);
    for failed in &report.failed {
        body += &failure(failed);
    }
    body += &legend(report, &cast);
    let mut drawn = Drawn(0);
    if let Some(chart) = charts::scaling(report, &cast) {
        body += &format!(
            "<section><h2>Scaling</h2><div class=\"plots\">{}</div></section>",
            drawn.figure(&chart)
        );
    }
    for table in &report.tables {
        body += &section(report, table, &cast, &mut drawn);
    }
    body += &report.stress.as_ref().map_or_else(String::new, stress::render);
    body += &about(report);
    body += &laps(report, &cast);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <link rel=\"icon\" href=\"data:,\">\
         <title>{}</title><style>{STYLE}{}</style></head>\n<body>{body}\
         <div id=\"tip\" role=\"status\" aria-live=\"polite\" hidden></div>\
         <script type=\"application/json\" id=\"laps\">{}</script>\
         <script>{SCRIPT}</script></body></html>\n",
        escaped(&title(report)),
        hiding(report, &cast),
        lap_data(report, &cast),
    )
}

/// Text as it may stand in a page, between tags and within quotes of either kind. Characters that
/// would move a cursor become blanks.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible_lines(text).chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

fn title(report: &Report) -> String {
    let number = report.run.number.map_or_else(String::new, |n| format!(" run {n}:"));
    format!("hotlap{number} {}", report.run.title.first().map_or("", String::as_str))
}

/// What the run ends in, first.
fn head(report: &Report) -> String {
    let mut out = String::from("<header>");
    let number = report.run.number.map_or_else(String::new, |n| format!(" · run {n}"));
    let _ = write!(
        out,
        "<p class=\"top\"><b>hotlap</b>{number} · {}<button id=\"theme\" type=\"button\" \
         hidden>Light or dark</button></p>",
        escaped(&report.run.began)
    );
    let mut sentences = headline(report).into_iter();
    if let Some(first) = sentences.next() {
        let _ = write!(out, "<h1>{}</h1>", escaped(&first));
    }
    for sentence in sentences {
        let _ = write!(out, "<p class=\"lead\">{}</p>", escaped(&sentence));
    }
    out += &ways(report);
    if let Some(noise) = report.noise.as_ref().filter(|_| report.tables.len() < 2) {
        let _ = write!(out, "<p class=\"noise\">{}</p>", escaped(&noise.sentence));
    }
    if !report.run.state_note.is_empty() {
        let _ =
            write!(out, "<p class=\"state\" role=\"note\">{}</p>", escaped(&report.run.state_note));
    }
    let _ = write!(out, "<p class=\"under\">{}</p>", escaped(&report.run.title.join(" · ")));
    let _ = write!(
        out,
        "<p class=\"repeat\"><code id=\"command\">{}</code><button id=\"copy\" type=\"button\" \
         hidden>Copy the command that repeats it</button></p></header>",
        escaped(&report.run.command)
    );
    out
}

/// Where there are several loads, what each says first, and the way to the rest of it.
fn ways(report: &Report) -> String {
    if report.tables.len() < 2 {
        return String::new();
    }
    let way = |table: &LoadResults| {
        let (title, first) = (escaped(&table.title), table.sentences.first());
        let first = first.map_or_else(String::new, |s| format!(": {}", escaped(s)));
        format!("<li><a href=\"#load-{}\">{title}</a>{first}</li>", table.load)
    };
    let ways: String = report.tables.iter().map(way).collect();
    format!("<nav aria-label=\"Loads\"><ul class=\"ways\">{ways}</ul></nav>")
}

/// The sentences of the run; where it compares nothing, what it found. Of several loads it is the
/// first sentence alone: each load has its own.
fn headline(report: &Report) -> Vec<String> {
    let first =
        |table: &LoadResults| Some(format!("{}: {}", table.title, table.sentences.first()?));
    if let (2.., Some(first)) = (report.tables.len(), report.tables.iter().find_map(first)) {
        return vec![first];
    }
    let steps = report.layers.iter().map(|step| &step.sentence);
    let said: Vec<String> = steps.chain(&report.sentences).cloned().collect();
    if !said.is_empty() {
        return said;
    }
    let rows = || report.tables.iter().flat_map(|t| &t.rows).filter(|r| r.role != Role::Ceiling);
    let measured: Vec<String> = rows()
        .filter_map(|r| {
            let rate = r.requests_per_s.as_ref()?.full();
            let bound = if r.generator_limited { "at least " } else { "" };
            let cost = r
                .cpu_us
                .as_ref()
                .map_or_else(String::new, |c| format!(", at {} µs of CPU time each", c.full()));
            Some(format!("{} serves {bound}{rate} requests/s{cost}.", r.name))
        })
        .collect();
    match (measured.is_empty(), report.failed.len()) {
        (false, _) => measured,
        (true, 0) => vec!["Nothing was measured.".to_owned()],
        (true, 1) => vec![format!("{} failed: nothing was measured.", report.failed[0].name)],
        (true, n) => vec![format!("All {n} servers failed: nothing was measured.")],
    }
}

fn warnings(report: &Report) -> String {
    if report.warnings.is_empty() {
        return String::new();
    }
    let items: String =
        report.warnings.iter().map(|w| format!("<li>{}</li>", escaped(w))).collect();
    format!("<aside><h2>Before you trust this</h2><ul>{items}</ul></aside>")
}

fn failure(failed: &Failed) -> String {
    let words = failed.why.log_tail.join("\n");
    let words = match words.is_empty() {
        true => String::new(),
        false => format!("<pre>{}</pre>", escaped(&words)),
    };
    format!(
        "<section class=\"failed\"><h2>{} failed ({})</h2><p>{}</p><p><code>{}</code></p>{words}\
         <p>{}</p></section>",
        escaped(&failed.name),
        escaped(&failed.why.phase),
        escaped(&failed.why.cause),
        escaped(&failed.command),
        escaped(&failed.why.remedy),
    )
}

/// A button a server: it shows and hides it in every chart.
fn legend(report: &Report, cast: &Cast) -> String {
    if cast.names().is_empty() {
        return String::new();
    }
    let roles = report.tables.first().map_or(&[][..], |t| &t.rows);
    let mut out = String::from("<nav class=\"legend\" aria-label=\"Servers in the charts\">");
    for (server, name) in cast.names().iter().enumerate() {
        let role = match roles.iter().find(|r| &r.name == name).map(|r| r.role) {
            Some(Role::Reference) => " <small>reference</small>",
            _ => "",
        };
        let _ = write!(
            out,
            "<button type=\"button\" data-server=\"{server}\" aria-pressed=\"true\"><i class=\"m{}\" \
             style=\"--c:{}\"></i>{}{role}</button>",
            server / COLOURS % 4,
            colour(server),
            escaped(name)
        );
    }
    out + "</nav>"
}

/// The rules that hide a server's series, and those that take the ceiling's colour away; written
/// here, since a stylesheet cannot count.
fn hiding(report: &Report, cast: &Cast) -> String {
    let mut out: String = (0..cast.names().len())
        .map(|n| format!("body.h{n} svg [data-group=\"{n}\"]{{display:none}}"))
        .collect();
    let rows = report.tables.first().map_or(&[][..], |t| &t.rows);
    let ceiling = rows.iter().find(|r| r.role == Role::Ceiling);
    if let Some(n) = ceiling.and_then(|r| cast.number(&r.name)) {
        let own = n % COLOURS;
        let _ = write!(out, "[data-group=\"{n}\"],[data-server=\"{n}\"]{{--s{own}:var(--rule)}}");
    }
    out
}

/// Numbers charts.
struct Drawn(usize);

impl Drawn {
    fn figure(&mut self, chart: &Chart) -> String {
        self.0 += 1;
        let drawing = chart.draw(&format!("c{}", self.0));
        let mut spots = String::from("[");
        for (i, (x, y, server, text)) in drawing.spots.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let text = serde_json::to_string(text).unwrap_or_default();
            let _ = write!(spots, "{comma}[{x:.0},{y:.0},{server},{text}]");
        }
        spots.push(']');
        format!(
            "<figure tabindex=\"0\"><figcaption><b>{}</b> {}</figcaption>{}\
             <script type=\"application/json\">{}</script></figure>",
            escaped(&chart.title),
            escaped(&chart.note),
            drawing.svg,
            script_safe(&spots),
        )
    }
}

/// JSON as it may stand in a script element: nothing in it can end the element.
fn script_safe(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn section(report: &Report, table: &LoadResults, cast: &Cast, drawn: &mut Drawn) -> String {
    let mut out = format!("<section id=\"load-{}\">", table.load);
    if !table.title.is_empty() {
        let _ = write!(out, "<h2>{}</h2>", escaped(&table.title));
        for sentence in &table.sentences {
            let _ = write!(out, "<p>{}</p>", escaped(sentence));
        }
        if let Some(noise) = &table.noise {
            let _ = write!(out, "<p class=\"noise\">{}</p>", escaped(&noise.sentence));
        }
    }
    if !table.rows.is_empty() {
        out += &standings(table, cast);
    }
    out += "<div class=\"plots\">";
    for chart in charts::of_table(report, table, cast) {
        out += &drawn.figure(&chart);
    }
    out += "</div>";
    out += &errors(table);
    out += &published(table);
    out + "</section>"
}

/// A column of the table: its head, the words of a cell, and what it is sorted by.
type Column = (&'static str, fn(&Row) -> String, fn(&Row) -> Option<f64>);

const COLUMNS: [Column; 13] = [
    ("requests/s", requests, |r| value(r.requests_per_s.as_ref())),
    (
        "× reference",
        |r| against(r, |a| a.measures.requests_per_s.ratio.as_ref()),
        |r| value(r.against.as_ref()?.measures.requests_per_s.ratio.as_ref()),
    ),
    ("CPU µs/request", |r| full(r.cpu_us.as_ref()), |r| value(r.cpu_us.as_ref())),
    (
        "CPU × reference",
        |r| against(r, |a| a.measures.cost.ratio.as_ref()),
        |r| value(r.against.as_ref()?.measures.cost.ratio.as_ref()),
    ),
    ("of ceiling", |r| text(r.of_ceiling.as_ref()), |r| value(r.of_ceiling.as_ref())),
    ("p50", |r| text(r.service.p50.as_ref()), |r| value(r.service.p50.as_ref())),
    ("p99", |r| text(r.service.p99.as_ref()), |r| value(r.service.p99.as_ref())),
    ("max", |r| text(r.service.max.as_ref()), |r| value(r.service.max.as_ref())),
    ("memory", |r| text(r.rss_mb.as_ref()), |r| value(r.rss_mb.as_ref())),
    ("errors", |r| escaped(&count(r.errors)), |r| Some(r.errors as f64)),
    ("ready", |r| text(r.ready_ms.as_ref()), |r| value(r.ready_ms.as_ref())),
    ("checks", |r| escaped(&r.conformance), |_| None),
    ("laps", lap_count, |r| Some(f64::from(r.laps.0))),
];

fn value(figure: Option<&Figure>) -> Option<f64> {
    figure.map(|f| f.value)
}

fn text(figure: Option<&Figure>) -> String {
    figure.map_or_else(|| "–".to_owned(), |f| escaped(&f.text))
}

fn full(figure: Option<&Figure>) -> String {
    figure.map_or_else(
        || "–".to_owned(),
        |f| format!("{} <small>{}</small>", escaped(&f.text), escaped(&f.spread)),
    )
}

fn requests(row: &Row) -> String {
    match &row.requests_per_s {
        Some(figure) if row.generator_limited => full(Some(&figure.at_least())),
        Some(figure) => full(Some(figure)),
        None => "too few laps".to_owned(),
    }
}

fn against(row: &Row, of: fn(&AgainstReference) -> Option<&Figure>) -> String {
    full(row.against.as_ref().and_then(of))
}

fn lap_count(row: &Row) -> String {
    match row.laps {
        (used, all) if used == all => used.to_string(),
        (used, all) => format!("{used} of {all}"),
    }
}

fn standings(table: &LoadResults, cast: &Cast) -> String {
    let mut out = String::from(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Standings\">\
         <table class=\"sortable\"><thead><tr>\
         <th scope=\"col\" aria-sort=\"ascending\"><button type=\"button\">#</button></th>\
         <th scope=\"col\" class=\"name\"><button type=\"button\">server</button></th>",
    );
    let shown: Vec<&Column> = COLUMNS.iter().filter(|c| is_told(table, c)).collect();
    for (head, ..) in &shown {
        let _ = write!(out, "<th scope=\"col\"><button type=\"button\">{head}</button></th>");
    }
    out += "</tr></thead><tbody>";
    for (place, row) in table.rows.iter().enumerate() {
        let kind = match row.role {
            Role::Ceiling => " class=\"ceiling\"",
            _ if row.errors > 0 => " class=\"erring\"",
            _ => "",
        };
        let server = cast.number(&row.name).unwrap_or(0);
        let _ = write!(
            out,
            "<tr{kind} data-server=\"{server}\"><td data-v=\"{place}\">{}</td>\
             <th scope=\"row\" class=\"name\"><i class=\"m{}\" style=\"--c:{}\"></i>{}{}</th>",
            row.rank.map_or_else(String::new, |r| r.to_string()),
            server / COLOURS % 4,
            colour(server),
            escaped(&row.name),
            particulars(row),
        );
        for (_, cell, sorted) in &shown {
            let by = sorted(row).map_or_else(String::new, |v| v.to_string());
            let _ = write!(out, "<td data-v=\"{by}\">{}</td>", cell(row));
        }
        out += "</tr>";
    }
    out + "</tbody></table></div>"
}

fn is_told(table: &LoadResults, (_, cell, _): &Column) -> bool {
    table.rows.iter().any(|r| !matches!(cell(r).as_str(), "" | "–"))
}

/// What is told of a server below its name, on demand.
fn particulars(row: &Row) -> String {
    let mut items = Vec::new();
    let mut item = |name: &str, value: &str| {
        if !value.is_empty() {
            items.push(format!("<dt>{name}</dt><dd>{}</dd>", escaped(value)));
        }
    };
    item("version", &row.version);
    item("command", &row.command);
    let full = |ratio: &Option<Figure>| ratio.as_ref().map(Figure::full).unwrap_or_default();
    item("CPU/request in slices ÷ when left running", &full(&row.in_slices));
    item("CPU/request in laps ÷ alone at the end of the warm-up", &full(&row.of_alone));
    if let Some(against) = &row.against {
        item("requests/s", &against.measures.requests_per_s.verdict);
        item("CPU time", &against.measures.cost.verdict);
    }
    item("warm-up", &row.warmup);
    item("instructions per request", &figure_text(row.instructions_user.as_ref()));
    item("in the kernel", &figure_text(row.instructions_kernel.as_ref()));
    item("context switches per request", &figure_text(row.switches.as_ref()));
    item("proportional memory", &figure_text(row.pss_mb.as_ref()));
    item("CPU", &figure_text(row.cpu_percent.as_ref()));
    item("time to steady", &figure_text(row.steady_ms.as_ref()));
    item("note", &row.notes.join(" · "));
    format!("<details><summary>more</summary><dl>{}</dl></details>", items.concat())
}

fn figure_text(figure: Option<&Figure>) -> String {
    figure.map_or_else(String::new, |f| f.text.clone())
}

/// Errors by kind: a line a kind and server.
fn errors(table: &LoadResults) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for row in &table.rows {
        for error in &row.errors_by_kind {
            let _ = write!(
                rows,
                "<tr><th scope=\"row\" class=\"name\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
                escaped(&row.name),
                escaped(&error.kind),
                escaped(&error.phase),
                count(error.count)
            );
        }
    }
    if rows.is_empty() {
        return "<p class=\"quiet\">Errors by kind: none.</p>".to_owned();
    }
    format!(
        "<h3>Errors by kind</h3><div class=\"wide\"><table><thead><tr><th class=\"name\">server</th>\
         <th>kind</th><th>phase</th><th>count</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

/// What was published, in words.
fn published(table: &LoadResults) -> String {
    let rows: String = table
        .rows
        .iter()
        .flat_map(|row| row.published.iter().map(move |published| (row, published)))
        .map(|(row, published)| {
            format!(
                "<tr><th scope=\"row\" class=\"name\">{}</th><td>{}</td><td>{}</td>\
                 <td class=\"words\">{}</td><td class=\"words\">{}</td></tr>",
                escaped(&row.name),
                escaped(&published.requests_per_s.text),
                text(row.requests_per_s.as_ref()),
                escaped(&published.sentence),
                escaped(
                    &[&published.source, &published.doubt, &published.source_doubt]
                        .into_iter()
                        .filter(|part| !part.is_empty())
                        .map(String::as_str)
                        .collect::<Vec<_>>()
                        .join(". ")
                ),
            )
        })
        .collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h3>Published beside measured</h3><div class=\"wide\"><table><thead><tr>\
         <th class=\"name\">server</th><th>published</th><th>here</th>\
         <th class=\"words\">ratio</th><th class=\"words\">where</th>\
         </tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

/// Host, versions, load, seed, order.
fn about(report: &Report) -> String {
    let run = &report.run;
    let mut items = String::new();
    let mut item = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = write!(items, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(value));
        }
    };
    item("host", &report.host.line);
    item("hotlap", &run.hotlap);
    item("suite", run.suite.as_deref().unwrap_or_default());
    item("about", &run.about);
    item("began", &run.began);
    item("took", &run.took_s.map_or_else(String::new, |took_s| format!("{took_s} s")));
    item("seed of the order", &run.seed.to_string());
    for load in &run.loads_in_words {
        item("load", load);
    }
    let schedule = &run.schedule;
    let frozen = if schedule.freeze { ", servers out of their slice frozen" } else { "" };
    let size = match (schedule.restarts, schedule.rounds) {
        (0, _) | (_, 0) => "as many restarts and rounds as the time allows".to_owned(),
        (restarts, rounds) => format!("{restarts} restarts × {rounds} rounds"),
    };
    item("planned", &format!("{size}, {} s in all{frozen}", schedule.budget_s));
    for (name, value) in &report.host.facts.facts {
        item(name, value);
    }
    format!(
        "<section><h2>How this was measured</h2><dl class=\"facts\">{items}</dl>\
         <details><summary>The order of the laps</summary><pre>{}</pre></details></section>",
        escaped(&order(report))
    )
}

/// A line a round: who ran in which order.
fn order(report: &Report) -> String {
    let mut out = String::new();
    let mut last = None;
    for lap in &report.laps {
        let round = (lap.load, lap.restart, lap.round, lap.rate.is_some());
        let lead = match last == Some(round) {
            true => " · ".to_owned(),
            false => format!("\nrestart {} round {}: ", lap.restart, lap.round),
        };
        last = Some(round);
        out += &lead;
        out += &lap.server;
    }
    out.trim_start().to_owned()
}

/// Each lap, on demand: the script writes the table when it is asked for.
fn laps(report: &Report, cast: &Cast) -> String {
    if report.laps.is_empty() {
        return String::new();
    }
    let options: String = cast
        .names()
        .iter()
        .enumerate()
        .map(|(n, name)| format!("<option value=\"{n}\">{}</option>", escaped(name)))
        .collect();
    format!(
        "<section><details id=\"each\"><summary>Each of the {} laps</summary>\
         <p><label>of <select><option value=\"\">all servers</option>{options}</select></label></p>\
         <div class=\"wide\"></div></details></section>",
        count(report.laps.len() as u64)
    )
}

/// The laps in arrays, for the script; a server that is in no table has its name instead of a
/// number.
fn lap_data(report: &Report, cast: &Cast) -> String {
    let laps: Vec<serde_json::Value> = report
        .laps
        .iter()
        .map(|l| {
            let server = cast
                .number(&l.server)
                .map_or_else(|| serde_json::json!(l.server), |number| serde_json::json!(number));
            serde_json::json!([
                server,
                l.load + 1,
                l.restart,
                l.round,
                l.place,
                l.at_s,
                l.rate,
                l.requests_per_s,
                l.cpu_us,
                l.p50_ms,
                l.p99_ms,
                l.max_ms,
                l.rss_mb,
                l.cpu_percent,
                l.generator_percent,
                l.errors,
                l.doubts.join("; "),
            ])
        })
        .collect();
    script_safe(&serde_json::json!({ "servers": cast.names(), "laps": laps }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_a_tag_or_leave_its_quotes() {
        assert_eq!(
            escaped("<script>alert(\"1\")</script> & 'x'\u{7}"),
            "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;x&#39;\\x07"
        );
        assert!(!script_safe("[\"</script>\"]").contains('<'));
    }
}
