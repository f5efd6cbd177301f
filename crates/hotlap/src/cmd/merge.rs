//! `hotlap merge`: the shards of a folder, as one run.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;

use crate::cli::MergeArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Exports;
use crate::pool::apart::{Condition, apart};
use crate::pool::kind::Kind;
use crate::pool::merge::{Measured, lighten, merged, node};
use crate::pool::plan::{Plan, store_of};
use crate::render::terminal;
use crate::report::Report;
use crate::store::Store;

/// The shards of each kind of machine.
type ByKind = BTreeMap<Kind, Vec<(Measured, Condition)>>;

/// Merges.
pub fn run(args: &MergeArgs, console: &Console) -> anyhow::Result<Exit> {
    let plan = Plan::read(&args.folder)?;
    let mut exports = Exports::open(&args.exports)?;
    let (kinds, missing) = read(&plan, &args.folder)?;
    let shards = chosen(kinds, args)?;
    let why = apart(&shards.iter().map(|(_, condition)| *condition).collect::<Vec<_>>());
    let shards: Vec<Measured> = shards
        .into_iter()
        .zip(why)
        .map(|((measured, _), apart)| Measured { apart, ..measured })
        .collect();
    let run = match merged(&plan, &shards, missing) {
        Ok(run) => run,
        Err(why) => {
            console.warn(&format!("error: {why}"));
            return Ok(Exit::Invalid);
        }
    };
    let report = Report::of(&run);
    let printed = console.result(exports.to_stdout(), |color| {
        let render = if args.details { terminal::detailed } else { terminal::render };
        format!("\n{}", render(&report, console.width, color))
    });
    exports.finish(&report)?;
    printed?;
    Ok(match run.has_valid_laps() {
        true => Exit::Ok,
        false => Exit::Invalid,
    })
}

/// The results in a folder by kind of machine, and the numbers of the shards without one. One store
/// is in memory at a time.
fn read(plan: &Plan, folder: &Path) -> anyhow::Result<(ByKind, Vec<usize>)> {
    let (mut kinds, mut missing) = (ByKind::new(), Vec::new());
    for expected in plan.each() {
        let shard = expected.shard;
        let file = folder.join(store_of(shard));
        if !file.exists() {
            missing.push(shard);
            continue;
        }
        let store = Store::open_existing(&file)?;
        let mut run = store
            .last()
            .and_then(|number| store.run(number))
            .with_context(|| format!("cannot read shard {shard}"))?;
        expected.check(&run, &file).or_else(usage)?;
        let condition = Condition::of(&run);
        lighten(&mut run);
        let (noise, ceiling_ns) = (condition.noise, condition.ceiling_ns);
        let kind = Kind::of(&run);
        let measured = Measured { shard, run, noise, ceiling_ns, apart: None };
        kinds.entry(kind).or_default().push((measured, condition));
    }
    missing.sort_unstable();
    if kinds.is_empty() {
        return usage(format!(
            "no shard in {} is done: hotlap run --shard {} begins",
            folder.display(),
            shell_words::quote(&folder.join("shard-0.toml").to_string_lossy())
        ));
    }
    Ok((kinds, missing))
}

/// The shards of the kind that is asked for, or of the only one.
fn chosen(kinds: ByKind, args: &MergeArgs) -> anyhow::Result<Vec<(Measured, Condition)>> {
    let count = kinds.len();
    match args.kind {
        Some(kind) if kind > count => usage(format!("--kind {kind}: {}", list(&kinds))),
        None if count > 1 => usage(format!(
            "the shards ran on different kinds of machines, whose results are not merged. Choose \
             one with --kind: {}",
            list(&kinds)
        )),
        kind => Ok(kinds.into_values().nth(kind.unwrap_or(1) - 1).unwrap_or_default()),
    }
}

/// The kinds by number, each with its shards and nodes.
fn list(kinds: &ByKind) -> String {
    let each = kinds.iter().enumerate().map(|(place, (kind, shards))| {
        let numbers: Vec<String> = shards.iter().map(|(m, _)| m.shard.to_string()).collect();
        let mut nodes: Vec<String> = shards.iter().map(|(m, _)| node(&m.run)).collect();
        nodes.sort();
        nodes.dedup();
        let (numbers, nodes) = (numbers.join(", "), nodes.join(", "));
        format!("\n  {}: {kind} (shards {numbers} on {nodes})", place + 1)
    });
    each.collect()
}
