//! `hotlap report`: a stored run, shown again.

use crate::cli::{ReportArgs, StoreArgs};
use crate::console::Console;
use crate::exit::Exit;
use crate::export::Exports;
use crate::report::{Report, date, terminal};
use crate::store::{Store, StoreError};

/// Shows a run, or writes it to files.
///
/// # Errors
/// When there is no such run, the store cannot be read, or a file cannot be written.
pub fn run(args: &ReportArgs, console: &Console) -> anyhow::Result<Exit> {
    let mut exports = Exports::open(&args.exports)?;
    let store = open(&args.store)?;
    let number = args.run.map_or_else(|| store.last(), Ok)?;
    let run = store.run(number)?;
    let report = Report::of(&run);
    if !exports.to_stdout() {
        let began = date::short(run.began_ms);
        let took = run.took_ms.div_ceil(1000);
        let head = format!("Run {number}, {began} UTC, {took} s: {}", report.run.command);
        let head = terminal::wrap(&head, 2, console.width);
        let text = terminal::render(&report, console.width, console.color);
        console.print(&format!("\n{head}{text}"))?;
    }
    exports.finish(&report)?;
    Ok(Exit::Ok)
}

/// The store that was named, or the usual one; it must be there.
///
/// # Errors
/// When it is not there or cannot be read.
pub fn open(args: &StoreArgs) -> Result<Store, StoreError> {
    Store::open_existing(&args.store.clone().unwrap_or_else(Store::usual_path))
}
