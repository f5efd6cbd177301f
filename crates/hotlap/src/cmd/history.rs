//! `hotlap history`: what is stored.

use crate::cli::HistoryArgs;
use crate::console::Console;
use crate::exit::Exit;
use crate::model::State;
use crate::report::Figure;
use crate::report::trend::{ServerTrend, TrendRun};
use crate::store::{Line, Store};
use crate::text::layout::{Column, Layout};
use crate::text::{date, wrap};

/// Lists the stored runs.
///
/// # Errors
/// When the store cannot be read.
pub fn run(args: &HistoryArgs, console: &Console) -> anyhow::Result<Exit> {
    let store = super::report::open(&args.store)?;
    let mut lines = store.lines(args.server.as_deref())?;
    lines.drain(..lines.len().saturating_sub(args.last));
    if let Some(server) = args.server.as_deref().filter(|_| !lines.is_empty()) {
        return trend(&store, &lines, server, args.json, console);
    }
    if args.json {
        console.json(&lines)?;
        return Ok(Exit::Ok);
    }
    if lines.is_empty() {
        store.last()?;
        let server = args.server.as_deref().unwrap_or_default();
        console.note(&format!("No stored run has a server called {server}."));
        return Ok(Exit::Ok);
    }
    console.print(&table(&lines, console.width))?;
    Ok(Exit::Ok)
}

/// One server over the runs.
fn trend(
    store: &Store,
    lines: &[Line],
    server: &str,
    json: bool,
    console: &Console,
) -> anyhow::Result<Exit> {
    let runs = lines.iter().map(|l| store.outline(l.number)).collect::<Result<Vec<_>, _>>()?;
    let Some(trend) = ServerTrend::of(&runs, server) else { return Ok(Exit::Ok) };
    match json {
        true => console.json(&trend)?,
        false => console.print(&drawn(&trend, console.width))?,
    }
    Ok(Exit::Ok)
}

fn drawn(trend: &ServerTrend, width: usize) -> String {
    let points = &trend.points;
    let runs = if points.len() == 1 { "run" } else { "runs" };
    let lead = format!("{} · {} · {} {runs}", trend.server, trend.title, points.len());
    let mut out = format!("\n{}\n", wrap(&lead, 2, width));
    for line in &trend.lines {
        out += &format!("  {:<16}{}\n", line.measure, line.sparkline);
    }
    out.push('\n');
    for sentence in &trend.sentences {
        out += &wrap(sentence, 2, width);
    }
    if trend.sentences.is_empty() {
        let why = match points.len() < 6 {
            true => "No change can be told before there are six runs.",
            false => "No change of level.",
        };
        out += &wrap(why, 2, width);
    }
    out.push('\n');
    let cells = |of: fn(&TrendRun) -> String| points.iter().map(of).collect::<Vec<_>>();
    let full = |f: &Option<Figure>| f.as_ref().map_or_else(|| "–".to_owned(), Figure::full);
    let columns = vec![
        Column::right("run", "run", cells(|p| p.run.to_string())),
        Column::left("began (UTC)", "began (UTC)", cells(|p| p.began.clone())),
        Column::right(
            "requests/s",
            "requests/s",
            points.iter().map(|p| full(&p.requests_per_s)).collect(),
        ),
        Column::right(
            "CPU µs/request",
            "CPU µs\n/request",
            points.iter().map(|p| full(&p.cpu_us)).collect(),
        ),
        Column::prose("version", cells(|p| p.version.clone())),
    ];
    let layout = Layout::fit(columns, width.saturating_sub(2));
    for line in layout.header().into_iter().chain(layout.rows()) {
        out += &format!("  {line}\n");
    }
    if trend.left_out > 0 {
        let note = format!(
            "{} more of its runs asked something else, under another load or on another machine \
             than the last one, and are left out.",
            trend.left_out
        );
        out += &format!("\n{}", wrap(&note, 2, width));
    }
    out
}

fn table(lines: &[Line], width: usize) -> String {
    let cells = |of: fn(&Line) -> String| lines.iter().map(of).collect::<Vec<_>>();
    let columns = vec![
        Column::right("run", "run", cells(|l| l.number.to_string())),
        Column::left("began (UTC)", "began (UTC)", cells(|l| date::short(l.began_ms))),
        Column::right("took", "took", cells(|l| format!("{} s", l.took_ms / 1000))).goes(2),
        Column::right("laps", "laps", cells(|l| l.laps.to_string())).goes(1),
        Column::left("", "", cells(|l| state(l.state).to_owned())),
        Column::prose("servers", cells(servers)),
    ];
    let layout = Layout::fit(columns, width);
    let mut out = String::new();
    for line in layout.header().into_iter().chain(layout.rows()) {
        out += &line;
        out.push('\n');
    }
    out
}

fn servers(line: &Line) -> String {
    let names = line.servers.join(", ");
    // First, since the rest is what a narrow terminal cuts off.
    let kept = line.baseline.as_ref().map_or_else(String::new, |b| format!("baseline {b} · "));
    match &line.suite {
        Some(suite) => format!("{kept}{suite}: {names}"),
        None => format!("{kept}{}: {names}", line.contract),
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Finished => "",
        State::Interrupted => "interrupted",
        State::UnderWay => "not ended",
        State::Invalid => "no valid laps",
        State::Failed => "failed",
    }
}
