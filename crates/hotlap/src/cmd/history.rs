//! `hotlap history`: what is stored.

use crate::cli::HistoryArgs;
use crate::console::Console;
use crate::exit::Exit;
use crate::record::State;
use crate::report::date;
use crate::report::layout::{Column, Layout};
use crate::store::Line;

/// Lists the stored runs.
///
/// # Errors
/// When the store cannot be read.
pub fn run(args: &HistoryArgs, console: &Console) -> anyhow::Result<Exit> {
    let store = super::report::open(&args.store)?;
    let lines = store.lines(args.server.as_deref())?;
    if args.json {
        console.print(&(serde_json::to_string_pretty(&lines)? + "\n"))?;
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
    match &line.suite {
        Some(suite) => format!("{suite}: {names}"),
        None => format!("{}: {names}", line.contract),
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Finished => "",
        State::Interrupted => "interrupted",
        State::UnderWay => "not ended",
        State::Failed => "failed",
    }
}
