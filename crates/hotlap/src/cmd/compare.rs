//! `hotlap compare`: compares stored runs.

use std::path::Path;

use anyhow::Context;

use super::report::open;
use super::run::rule::{Rule, Ruling};
use crate::cli::CompareArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Exports;
use crate::model::Run;
use crate::quantity::RunNumbers;
use crate::render::{markdown, terminal};
use crate::report::comparison::RunComparison;
use crate::store::Store;
use crate::text;

/// Shows what changed from the earlier runs to the later runs.
pub fn run(args: &CompareArgs, console: &Console) -> anyhow::Result<Exit> {
    let rules: Vec<Rule> =
        args.fail_if.iter().map(|r| Rule::parse(r)).collect::<anyhow::Result<_>>()?;
    let mut exports = Exports::default();
    exports.add(args.export_json.as_deref(), text::json)?;
    exports.add(args.export_markdown.as_deref(), markdown::comparison)?;
    if args.json && exports.to_stdout() {
        return usage("--json and an export both write to standard output: leave out one of them");
    }
    let [before, after] = both(args)?;
    let is_search = after.runs[0].is_search();
    if let Some(text) = Rule::mismatched(&args.fail_if, &rules, is_search) {
        return usage(match is_search {
            true => format!(
                "--fail-if {text:?} does not apply to `hotlap capacity`: use a rule \
                 like \"capacity -5%\""
            ),
            false => format!("--fail-if {text:?} needs runs of `hotlap capacity`"),
        });
    }
    let comparison = RunComparison::of(before.named(), after.named())
        .or_else(|error| usage(error.to_string()))?;
    let printed = match args.json {
        true => console.json(&comparison),
        false => {
            let render = |color| terminal::comparison(&comparison, console.width, color);
            console.result(exports.to_stdout(), render).map_err(Into::into)
        }
    };
    exports.finish(&comparison)?;
    printed?;
    let measured = comparison.tables.iter().flat_map(|t| &t.servers);
    let any = measured.flat_map(|s| &s.changes).any(|c| c.found.ratio.is_some());
    let ruling = Ruling::on_change(&comparison, &rules);
    ruling.sentences().for_each(|sentence| console.warn(sentence));
    Ok(if any { Exit::Ok } else { Exit::Invalid }.and(ruling.exit()))
}

/// The runs on one side of a comparison, and their name in messages.
struct Side {
    runs: Vec<Run>,
    name: String,
    /// Whether the runs are in the store that `--store` names.
    is_here: bool,
}

impl Side {
    /// Reads runs from a store by their numbers.
    fn of(store: &Store, numbers: &[u64]) -> anyhow::Result<Self> {
        let runs = numbers.iter().map(|&number| store.run(number)).collect::<Result<_, _>>()?;
        Ok(Self { runs, name: named(numbers), is_here: true })
    }

    fn named(&self) -> (&[Run], &str) {
        (&self.runs, &self.name)
    }

    fn number_in_common(&self, other: &Self) -> Option<u64> {
        let mut numbers = self.runs.iter().filter_map(|run| run.number);
        let is_of_other = |number: &u64| other.runs.iter().any(|run| run.number == Some(*number));
        numbers.find(is_of_other).filter(|_| self.is_here && other.is_here)
    }
}

/// Names runs in messages, as in `run 11`, `runs 11–13`, or `runs 11, 13`.
fn named(numbers: &[u64]) -> String {
    let all: Vec<String> = numbers.iter().map(u64::to_string).collect();
    match (numbers, &all[..]) {
        ([_], [one]) => format!("run {one}"),
        ([first, .., last], [begin, .., end]) if last - first + 1 == all.len() as u64 => {
            format!("runs {begin}–{end}")
        }
        _ => format!("runs {}", all.join(", ")),
    }
}

/// Returns the two sides to compare, the earlier one first.
fn both(args: &CompareArgs) -> anyhow::Result<[Side; 2]> {
    let store = open(&args.store)?;
    let own = |runs: &RunNumbers| Side::of(&store, &runs.0);
    let last = || Side::of(&store, &[store.last()?]);
    let [before, after] = match (&args.runs[..], &args.baseline) {
        ([before, after], None) => [own(before)?, own(after)?],
        ([_, _], Some(_)) => {
            return usage(
                "--baseline already names the runs of one side: name only the other runs",
            );
        }
        ([after], Some(baseline)) => [before(&store, baseline)?, own(after)?],
        ([], Some(baseline)) => [before(&store, baseline)?, last()?],
        ([before], None) => [own(before)?, last()?],
        _ => {
            return usage(
                "no runs are named: write hotlap compare 11-13 14-16, or hotlap compare 14-16 \
                 --baseline main. hotlap history lists runs",
            );
        }
    };
    match before.number_in_common(&after) {
        Some(number) => usage(format!(
            "run {number} is on both sides ({} and {}): name different runs for each side, or \
             make another run",
            before.name, after.name
        )),
        None => Ok([before, after]),
    }
}

/// Reads the runs that `--baseline` refers to by numbers, by a name, or by a store file.
fn before(store: &Store, baseline: &str) -> anyhow::Result<Side> {
    if let Ok(numbers) = baseline.parse::<RunNumbers>() {
        return Side::of(store, &numbers.0);
    }
    let names = match store.baseline(baseline)? {
        Ok(numbers) => {
            let side = Side::of(store, &numbers)?;
            let name = format!("{baseline} ({})", side.name);
            return Ok(Side { name, ..side });
        }
        Err(names) => names,
    };
    let path = Path::new(baseline);
    if !path.exists() {
        let there = match names.is_empty() {
            true => "none is saved yet".to_owned(),
            false => format!("saved so far: {}", names.join(", ")),
        };
        return usage(format!(
            "no baseline or file {baseline} ({there}). `hotlap run … --save-baseline \
             {baseline}` saves one"
        ));
    }
    let other = Store::open_existing(path)
        .map_err(|why| anyhow::Error::msg(why.of_argument()))
        .with_context(|| "--baseline takes a baseline, run numbers or a store file")?;
    let side = Side::of(&other, &other.newest()?)?;
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(Side { name: format!("{} of {file}", side.name), is_here: false, ..side })
}
