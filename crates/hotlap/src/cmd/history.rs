//! `hotlap history`: lists stored runs.

use crate::cli::HistoryArgs;
use crate::console::Console;
use crate::exit::Exit;
use crate::model::RunState;
use crate::render::terminal;
use crate::report::trend::ServerTrend;
use crate::store::{ListedRun, Store};
use crate::text::table::{Column, Table};
use crate::text::{layout, number};

/// Lists the stored runs.
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

/// Shows one server over all runs.
fn trend(
    store: &Store,
    lines: &[ListedRun],
    server: &str,
    json: bool,
    console: &Console,
) -> anyhow::Result<Exit> {
    let runs = lines.iter().map(|l| store.outline(l.number)).collect::<Result<Vec<_>, _>>()?;
    let Some(trend) = ServerTrend::of(&runs, server) else { return Ok(Exit::Ok) };
    match json {
        true => console.json(&trend)?,
        false => console.result(false, |color| terminal::trend(&trend, console.width, color))?,
    }
    Ok(Exit::Ok)
}

fn table(lines: &[ListedRun], width: usize) -> String {
    let cells = |of: fn(&ListedRun) -> String| lines.iter().map(of).collect::<Vec<_>>();
    let table = Table::new(vec![
        Column::right("run", cells(|l| l.number.to_string())),
        Column::left("began (UTC)", cells(|l| number::utc_to_minute(l.began_ms))),
        Column::right("took", cells(|l| format!("{} s", l.took_ms.div_ceil(1000)))).drop_order(2),
        Column::right("laps", cells(|l| l.laps.to_string())).drop_order(1),
        Column::left("", cells(|l| state(l.state).to_owned())),
        Column::prose("servers", cells(servers)),
    ]);
    layout::lines(&table, width).all().map(|line| format!("{line}\n")).collect()
}

fn servers(line: &ListedRun) -> String {
    let names = line.servers.join(", ");
    // The baseline comes first, since a narrow terminal cuts off the end of the line.
    let kept = line.baseline.as_ref().map_or_else(String::new, |b| format!("baseline {b} · "));
    match &line.suite {
        Some(suite) => format!("{kept}{suite}: {names}"),
        None => format!("{kept}{}: {names}", line.contract),
    }
}

fn state(state: RunState) -> &'static str {
    match state {
        RunState::Finished => "",
        RunState::Interrupted => "interrupted",
        RunState::UnderWay => "not ended",
        RunState::Invalid => "no valid laps",
        RunState::Failed => "failed",
    }
}
