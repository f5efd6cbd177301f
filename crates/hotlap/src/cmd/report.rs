//! `hotlap report`: shows a stored run again.

use crate::cli::{ReportArgs, StoreArgs};
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Exports;
use crate::paths;
use crate::render::terminal;
use crate::report::Report;
use crate::store::Store;
use crate::text::{number, wrap};

/// Shows a stored run, and writes it to the requested files.
pub fn run(args: &ReportArgs, console: &Console) -> anyhow::Result<Exit> {
    let mut exports = Exports::open(&args.exports)?;
    let store = open(&args.store)?;
    let number = args.run.map_or_else(|| store.last_with_figures(), Ok)?;
    let run = store.run(number)?;
    let report = Report::of(&run);
    let printed = console.result(exports.to_stdout(), |color| {
        let began = number::utc_to_minute(run.began_ms);
        let took = run.took_ms.div_ceil(1000);
        let head = format!("Run {number}, {began} UTC, {took} s: {}", report.run.command);
        let head = wrap(&head, 2, console.width);
        let render = if args.details { terminal::detailed } else { terminal::render };
        format!("\n{head}{}", render(&report, console.width, color))
    });
    exports.finish(&report)?;
    printed?;
    Ok(Exit::Ok)
}

/// Opens the store given by `--store`, or the default store. The store must exist.
pub fn open(args: &StoreArgs) -> anyhow::Result<Store> {
    let Some(path) = args.store.clone().or_else(paths::store) else {
        return usage(
            "no place for the store: neither HOME nor XDG_DATA_HOME is set. Use --store FILE",
        );
    };
    Ok(Store::open_existing(&path)?)
}
