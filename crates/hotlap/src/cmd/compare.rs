//! `hotlap compare`: two stored runs.

use std::path::Path;

use anyhow::Context;

use super::report::open;
use super::run::rule::{Rule, Ruling};
use crate::cli::CompareArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Texts;
use crate::model::Run;
use crate::render::{json, markdown, terminal};
use crate::report::comparison::RunComparison;
use crate::store::Store;

/// Shows what changed from one run to another.
///
/// # Errors
/// When a run does not exist, the two have no server in common, the store cannot be read, or a file
/// cannot be written.
pub fn run(args: &CompareArgs, console: &Console) -> anyhow::Result<Exit> {
    let rules: Vec<Rule> =
        args.fail_if.iter().map(|r| Rule::parse(r)).collect::<anyhow::Result<_>>()?;
    let mut exports = Texts::default();
    exports.open(args.export_json.as_deref(), json)?;
    exports.open(args.export_markdown.as_deref(), markdown::comparison)?;
    if args.json && exports.to_stdout() {
        return usage("--json and an export both write to standard output: leave one out");
    }
    let (before, after) = both(args)?;
    let is_search = after.0.is_search();
    if let Some(text) = mismatched(&args.fail_if, &rules, is_search) {
        return usage(match is_search {
            true => format!("--fail-if {text:?}: searches only have \"capacity -5%\""),
            false => format!("--fail-if {text:?} needs two runs of `hotlap capacity`"),
        });
    }
    let comparison = RunComparison::of((&before.0, &before.1), (&after.0, &after.1))
        .or_else(|error| usage(error.to_string()))?;
    let printed = match args.json {
        true => console.json(&comparison),
        false => {
            let render = |color| terminal::comparison(&comparison, console.width, color);
            console.result(exports.to_stdout(), render).map_err(Into::into)
        }
    };
    exports.write(&comparison)?;
    printed?;
    let measured = comparison.tables.iter().flat_map(|t| &t.servers);
    let any = measured.flat_map(|s| &s.changes).any(|c| c.found.ratio.is_some());
    let ruling = Ruling::on_change(&comparison, &rules);
    ruling.sentences().for_each(|sentence| console.warn(sentence));
    Ok(if any { Exit::Ok } else { Exit::Invalid }.and(ruling.exit()))
}

/// The first rule that is about capacities if the runs are no searches, or the reverse.
fn mismatched<'a>(texts: &'a [String], rules: &[Rule], is_search: bool) -> Option<&'a String> {
    let mut both = texts.iter().zip(rules);
    both.find(|(_, rule)| rule.is_about_capacity() != is_search).map(|(text, _)| text)
}

/// A run, and its name in messages.
type Named = (Run, String);

/// The two runs to compare: the earlier one first.
fn both(args: &CompareArgs) -> anyhow::Result<(Named, Named)> {
    let store = open(&args.store)?;
    let own = |number: u64| anyhow::Ok((store.run(number)?, format!("run {number}")));
    match (&args.runs[..], &args.baseline) {
        ([before, after], None) => Ok((own(*before)?, own(*after)?)),
        ([_, _], Some(_)) => usage("--baseline is compared with one run: name no second one"),
        (runs, Some(baseline)) => {
            let before = before(&store, baseline)?;
            let after = runs.first().copied().map_or_else(|| store.last(), Ok)?;
            if before.1.is_here && before.0.number == Some(after) {
                return usage(format!(
                    "run {after} is the baseline {baseline} itself: make another run, or name \
                     the run to compare"
                ));
            }
            Ok(((before.0, before.1.name), own(after)?))
        }
        ([before], None) => Ok((own(*before)?, own(store.last()?)?)),
        _ => usage(
            "name two runs (hotlap compare 11 12), or one and a baseline (hotlap compare 12 \
             --baseline main); hotlap history lists runs",
        ),
    }
}

/// The name of a baseline, and whether it is in the same store as the run compared with it.
struct Called {
    name: String,
    is_here: bool,
}

/// The run that `--baseline` refers to: a number, a name, or a store file.
fn before(store: &Store, baseline: &str) -> anyhow::Result<(Run, Called)> {
    let here = |name: String| Called { name, is_here: true };
    if let Ok(number) = baseline.parse() {
        return Ok((store.run(number)?, here(format!("run {number}"))));
    }
    let names = match store.baseline(baseline)? {
        Ok(number) => return Ok((store.run(number)?, here(format!("{baseline} (run {number})")))),
        Err(names) => names,
    };
    let path = Path::new(baseline);
    if !path.exists() {
        let there = match names.is_empty() {
            true => "there is none yet".to_owned(),
            false => format!("there are {}", names.join(", ")),
        };
        return usage(format!(
            "no baseline or file {baseline} ({there}). `hotlap run … --save-baseline \
             {baseline}` saves one"
        ));
    }
    let other = Store::open_existing(path)
        .with_context(|| "--baseline takes a baseline, a run number or a store file")?;
    let number = other.last()?;
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    Ok((other.run(number)?, Called { name: format!("run {number} of {file}"), is_here: false }))
}
