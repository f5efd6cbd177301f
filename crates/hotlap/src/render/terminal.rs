//! The table and the sentences, for a terminal of any width.
//!
//! Where the table does not fit, its headers go on two lines, and then columns go in this order:
//! conformance checks, errors (never while there are any), memory, p50, of ceiling, p99. Names are
//! shortened last. What is left out is in the exports.

pub mod comparison;
mod stress;

use crate::report::published::Source;
use crate::report::{Absent, Failed, Figure, LayerStep, LoadResults, Report, Role, Row};
use crate::text::layout::{Column, Layout};
use crate::text::{flow, hanging, number, visible, wrap};

/// Escape codes, or nothing.
#[derive(Debug, Clone, Copy)]
struct Ink {
    bold: &'static str,
    dim: &'static str,
    red: &'static str,
    yellow: &'static str,
    green: &'static str,
    off: &'static str,
}

const COLOR: Ink = Ink {
    bold: "\x1b[1m",
    dim: "\x1b[2m",
    red: "\x1b[31m",
    yellow: "\x1b[33m",
    green: "\x1b[32m",
    off: "\x1b[0m",
};

const PLAIN: Ink = Ink { bold: "", dim: "", red: "", yellow: "", green: "", off: "" };

/// The report for a terminal of `width` columns.
#[must_use]
pub fn render(report: &Report, width: usize, color: bool) -> String {
    let ink = if color { COLOR } else { PLAIN };
    let mut out = String::from("\n");
    if let Some(suite) = &report.run.suite {
        let asks = format!("{suite}: {}", report.run.question_words);
        out += &painted(&wrap(&asks, 2, width), ink.bold, ink.off);
        out += &wrap(&report.run.about, 2, width);
        out.push('\n');
    }
    out += &flow(&report.run.title, " · ", 2, width);
    out.push('\n');
    if !report.run.state_note.is_empty() {
        out += &painted(&wrap(&report.run.state_note, 2, width), ink.yellow, ink.off);
        out.push('\n');
    }
    for table in &report.tables {
        if !table.title.is_empty() {
            out += &painted(&wrap(&table.title, 2, width), ink.bold, ink.off);
        }
        if table.is_measured {
            out += &standings(table, width, ink);
            out.push('\n');
            out += &at_rate(table, width);
        }
        for sentence in &table.sentences {
            out += &painted(&wrap(sentence, 2, width), ink.bold, ink.off);
        }
        out += &response_times(table, width, ink);
        out += &layers(report, table, width, ink);
        for page in table.sources() {
            out += &published(&page, width, ink);
        }
    }
    for scaling in &report.scaling {
        out += &wrap(&scaling.sentence, 2, width);
    }
    if let Some(noise) = &report.noise {
        out += &wrap(&noise.sentence, 2, width);
    }
    if let Some(stress) = &report.stress {
        out += &stress::render(stress, width, color);
    }
    for failed in &report.failed {
        out += &failure(failed, width, ink);
    }
    out.push('\n');
    for absent in &report.absent {
        out += &hanging(&absence(absent), 2, width);
    }
    if !report.warnings.is_empty() {
        out.push('\n');
    }
    for warning in &report.warnings {
        out += &painted(&wrap(&format!("Note: {warning}"), 2, width), ink.yellow, ink.off);
    }
    while out.contains("\n\n\n") {
        out = out.replace("\n\n\n", "\n\n");
    }
    out
}

/// What latencies at a load's own rate are; empty for a closed loop.
fn at_rate(table: &LoadResults, width: usize) -> String {
    let Some(rate) = table.rate else { return String::new() };
    let rate = number::rate(rate);
    wrap(
        &format!(
            "Open loop at {rate} requests/s: p50 and p99 are counted from the moment a request was \
             due."
        ),
        2,
        width,
    )
}

/// From so many servers on, what a sentence would say of each is set as a table.
const TABLED: usize = 5;

/// Response times at the common rate, and why they differ from the table's latencies; empty where
/// there are none.
fn response_times(table: &LoadResults, width: usize, ink: Ink) -> String {
    let times = table.rows.iter().filter_map(|row| {
        let at = row.response.as_ref().filter(|_| row.role != Role::Ceiling)?;
        let p99 = at.p99.as_ref().map_or_else(|| "not known".to_owned(), |p| p.text.clone());
        Some([visible(&row.name), at.p50.as_ref()?.text.clone(), p99])
    });
    let times: Vec<[String; 3]> = times.collect();
    let rate = table.rows.iter().find_map(|row| row.response.as_ref()?.rate);
    let Some(rate) = rate.filter(|_| !times.is_empty()) else { return String::new() };
    let lead = format!(
        "At {} requests/s for all, counted from the moment a request was due, so that waiting for \
         a slow server counts too:",
        number::rate(rate)
    );
    if times.len() < TABLED {
        let of_each = times.iter().map(|[name, p50, p99]| format!("{name} {p50} and {p99}"));
        let of_each = of_each.collect::<Vec<_>>().join(", ");
        return wrap(&format!("{lead} {of_each} (p50 and p99)."), 2, width);
    }
    let cells = |n: usize| times.iter().map(|row| row[n].clone()).collect::<Vec<_>>();
    let columns = vec![
        Column::name("", "", cells(0)),
        Column::right("p50", "p50", cells(1)),
        Column::right("p99", "p99", cells(2)),
    ];
    format!("{}\n{}\n", wrap(&lead, 2, width), set(columns, width, ink))
}

/// What each step of a ladder costs.
fn layers(report: &Report, table: &LoadResults, width: usize, ink: Ink) -> String {
    let steps: Vec<&LayerStep> = report.layers.iter().filter(|s| s.load == table.load).collect();
    if steps.len() < TABLED {
        return steps.iter().map(|step| wrap(&step.sentence, 2, width)).collect();
    }
    let cells = |of: &dyn Fn(&LayerStep) -> String| steps.iter().map(|s| of(s)).collect::<Vec<_>>();
    let figure = |f: &Option<Figure>| f.as_ref().map_or_else(|| "–".to_owned(), Figure::full);
    let columns = vec![
        Column::name("step", "step", cells(&|s| visible(&s.short.0))),
        Column::name("on", "on", cells(&|s| visible(&s.short.1))),
        Column::right("CPU a request", "CPU\na request", cells(&|s| figure(&s.cpu_us))),
        Column::right("wall time", "wall\ntime", cells(&|s| figure(&s.wall_us))).goes(1),
        Column::left("", "", cells(&|s| s.caution.to_owned())),
    ];
    let dropped = steps.iter().filter(|s| !s.side_effect.is_empty());
    let dropped: String = dropped.map(|s| wrap(&s.sentence, 2, width)).collect();
    format!("{}\n{dropped}\n", set(columns, width, ink))
}

/// Columns as lines.
fn set(columns: Vec<Column>, width: usize, ink: Ink) -> String {
    let layout = Layout::fit(columns, width.saturating_sub(2));
    let head = layout.header().into_iter().map(|line| format!("  {}{line}{}\n", ink.dim, ink.off));
    let rows = layout.rows().into_iter().map(|line| format!("  {line}\n"));
    head.chain(rows).collect()
}

fn standings(table: &LoadResults, width: usize, ink: Ink) -> String {
    let any_errors = table.rows.iter().any(|r| r.errors > 0);
    let any_conformance = table.rows.iter().any(|r| !r.conformance.is_empty());
    let cells = |of: fn(&Row) -> String| table.rows.iter().map(of).collect::<Vec<_>>();
    let mut columns = vec![
        Column::left("", "", cells(rank)),
        Column::name("", "", cells(|r| visible(&r.name))),
        Column::right("requests/s", "requests/s", cells(requests)),
        Column::right("CPU µs/request", "CPU µs\n/request", cells(cost)),
        Column::right("p50", "p50", cells(|r| text(r.service.p50.as_ref()))).goes(4),
        Column::right("p99", "p99", cells(|r| text(r.service.p99.as_ref()))).goes(6),
        Column::right("memory", "memory", cells(|r| text(r.rss_mb.as_ref()))).goes(3),
    ];
    if table.rows.iter().any(|r| r.of_ceiling.is_some()) {
        let cells = cells(|r| text(r.of_ceiling.as_ref()));
        columns.insert(3, Column::right("of ceiling", "of\nceiling", cells).goes(5));
    }
    let errors = Column::right("errors", "errors", cells(|r| number::count(r.errors)));
    columns.push(if any_errors { errors } else { errors.goes(2) });
    if any_conformance {
        columns.push(Column::right("checks", "checks", cells(|r| r.conformance.clone())).goes(1));
    }
    let layout = Layout::fit(columns, width.saturating_sub(2));
    let mut out = String::new();
    for line in layout.header() {
        out += &format!("  {}{line}{}\n", ink.dim, ink.off);
    }
    for (row, line) in table.rows.iter().zip(layout.rows()) {
        let (on, off) = match row.role {
            Role::Ceiling => (ink.dim, ink.off),
            _ if row.errors > 0 => (ink.red, ink.off),
            _ if row.rank == Some(1) => (ink.green, ink.off),
            _ => ("", ""),
        };
        out += &format!("  {on}{line}{off}\n");
    }
    out
}

fn rank(row: &Row) -> String {
    row.rank.map_or_else(String::new, |r| r.to_string())
}

fn requests(row: &Row) -> String {
    match &row.requests_per_s {
        Some(figure) if row.generator_limited => figure.at_least().full(),
        Some(figure) => figure.full(),
        None => "no lap counts".to_owned(),
    }
}

fn cost(row: &Row) -> String {
    row.cpu_us.as_ref().map_or_else(|| "–".to_owned(), Figure::full)
}

fn text(figure: Option<&Figure>) -> String {
    figure.map_or_else(|| "–".to_owned(), |f| f.text.clone())
}

fn failure(failed: &Failed, width: usize, ink: Ink) -> String {
    let mut out = String::from("\n");
    let lead = format!("{} failed ({}): {}", failed.name, failed.why.phase, failed.why.cause);
    out += &painted(&wrap(&lead, 2, width), ink.red, ink.off);
    out += &format!("    $ {}\n", visible(&failed.command));
    for line in &failed.why.log_tail {
        out += &format!("    {}| {}{}\n", ink.dim, visible(line), ink.off);
    }
    if !failed.why.remedy.is_empty() {
        out += &wrap(&failed.why.remedy, 4, width);
    }
    for then in &failed.published {
        out += &hanging(&then.sentence_with_doubt(), 4, width);
    }
    out
}

/// One source: what it published, beside what was measured.
fn published(page: &Source, width: usize, ink: Ink) -> String {
    let head = format!("Published in {}: {}", page.any.year, page.any.source);
    let mut out = format!("\n{}", painted(&wrap(&head, 2, width), ink.bold, ink.off));
    let how = wrap(&page.circumstances().join("; "), 4, width);
    out += &painted(&how, ink.dim, ink.off);
    for (server, then) in &page.rows {
        let called = match then.called.is_empty() || then.called == **server {
            true => String::new(),
            false => format!(" (“{}”)", then.called),
        };
        out += &hanging(
            &format!("{}{called} · {}", visible(server), then.sentence_with_doubt()),
            4,
            width,
        );
    }
    out.push('\n');
    out
}

/// Whom a source published, and who takes no part.
fn absence(absent: &Absent) -> String {
    let figure = absent.requests_per_s.map_or_else(String::new, |r| {
        format!(" ({} requests/s then)", number::grouped(r.round(), 0))
    });
    format!("Not here: {}{figure}: {}", absent.name, absent.why)
}

/// Paints each line on its own, so that a pager that cuts lines leaves none open.
fn painted(text: &str, on: &str, off: &str) -> String {
    if on.is_empty() {
        return text.to_owned();
    }
    text.lines().map(|line| format!("{on}{line}{off}\n")).collect()
}
