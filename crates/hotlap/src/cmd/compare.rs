//! `hotlap compare`: two stored runs.

use std::path::Path;

use anyhow::Context;

use super::report::open;
use super::run::rule::{Rule, Ruling};
use crate::cli::CompareArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Texts;
use crate::record::Run;
use crate::report::comparison::{Comparison, markdown, terminal};
use crate::store::Store;

/// Shows what changed from one run to another.
///
/// # Errors
/// When there is no such run, the two have no server in common, the store cannot be read, or a file
/// cannot be written.
pub fn run(args: &CompareArgs, console: &Console) -> anyhow::Result<Exit> {
    let rules: Vec<Rule> =
        args.fail_if.iter().map(|r| Rule::parse(r)).collect::<anyhow::Result<_>>()?;
    let mut exports = Texts::default();
    exports.open(args.export_json.as_deref(), Comparison::json)?;
    exports.open(args.export_markdown.as_deref(), markdown::render)?;
    let (before, after) = both(args)?;
    let comparison = Comparison::of((&before.0, &before.1), (&after.0, &after.1))?;
    match args.json {
        true => console.print(&comparison.json())?,
        false if exports.to_stdout() => {}
        false => console.print(&terminal::render(&comparison, console.width, console.color))?,
    }
    exports.write(&comparison)?;
    let measured = comparison.tables.iter().flat_map(|t| &t.servers);
    let any = measured.flat_map(|s| &s.changes).any(|c| c.ratio.is_some());
    let ruling = Ruling::on_change(&comparison, &rules);
    ruling.sentences().for_each(|sentence| console.note(sentence));
    Ok(if any { Exit::Ok } else { Exit::Invalid }.and(ruling.exit()))
}

/// A run, and what it is called here.
type Named = (Run, String);

/// The two runs that are meant: the one to compare with first.
fn both(args: &CompareArgs) -> anyhow::Result<(Named, Named)> {
    let store = open(&args.store)?;
    let own = |number: u64| anyhow::Ok((store.run(number)?, format!("run {number}")));
    match (&args.runs[..], &args.baseline) {
        ([before, after], None) => Ok((own(*before)?, own(*after)?)),
        ([_, _], Some(_)) => usage("--baseline and two runs are three: leave one away"),
        (runs, Some(baseline)) => {
            let after = own(runs.first().copied().map_or_else(|| store.last(), Ok)?)?;
            match baseline.parse() {
                Ok(number) => Ok((own(number)?, after)),
                Err(_) => Ok((elsewhere(Path::new(baseline))?, after)),
            }
        }
        ([before], None) => Ok((own(*before)?, own(store.last()?)?)),
        _ => usage(
            "name two runs (hotlap compare 11 12), or one and the store of a baseline (hotlap \
             compare 12 --baseline main.db); hotlap history lists runs",
        ),
    }
}

/// The last run of another store.
fn elsewhere(path: &Path) -> anyhow::Result<Named> {
    let cannot = || "--baseline names a run, or a file with a store".to_owned();
    let store = Store::open_existing(path).with_context(cannot)?;
    let number = store.last()?;
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    Ok((store.run(number)?, format!("run {number} of {file}")))
}
