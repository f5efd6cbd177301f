//! `hotlap merge`: merges the shards of a pool into one run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cli::MergeArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Exports;
use crate::model::Shard;
use crate::pool::apart::apart;
use crate::pool::merge::{Kind, Measured, merged, node};
use crate::render::terminal;
use crate::report::Report;
use crate::store::Store;

/// The shards of each kind of machine.
type ByKind = BTreeMap<Kind, Vec<Measured>>;

/// Merges the shards, and shows or exports the result.
pub fn run(args: &MergeArgs, console: &Console) -> anyhow::Result<Exit> {
    let mut exports = Exports::open(&args.exports)?;
    let (kinds, missing) = read(&files(&args.stores)?)?;
    let mut shards = chosen(kinds, args.kind)?;
    let conditions: Vec<_> = shards.iter().map(|shard| shard.condition).collect();
    for (shard, apart) in shards.iter_mut().zip(apart(&conditions)) {
        shard.apart = apart;
    }
    let run = match merged(&shards, missing) {
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

/// Returns the given stores, and the stores in the given folders.
fn files(named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut own: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        own.retain(|file| file.extension().is_some_and(|extension| extension == "db"));
        if own.is_empty() {
            return usage(format!(
                "{} has no shard (*.db): `hotlap run --suite NAME --shard 0/12 --store FILE` \
                 measures one",
                path.display()
            ));
        }
        own.sort();
        files.extend(own);
    }
    Ok(files)
}

/// Reads the shards of each kind of machine, and finds the numbers of missing shards. Only one run
/// at a time is in memory with all of its histograms.
fn read(files: &[PathBuf]) -> anyhow::Result<(ByKind, Vec<usize>)> {
    let mut kinds = ByKind::new();
    let mut found = BTreeMap::<usize, (&Path, Shard)>::new();
    for file in files {
        let name = file.display();
        let store =
            Store::open_existing(file).map_err(|why| anyhow::Error::msg(why.of_argument()))?;
        let run = store
            .last()
            .and_then(|number| store.run(number))
            .with_context(|| format!("cannot read {name}"))?;
        let Some(shard) = run.shard.clone() else {
            return usage(format!(
                "{name} is not a shard: name only files that `hotlap run --shard` wrote, or move \
                 {name} away"
            ));
        };
        if let Some((first, of_first)) = found.values().next()
            && let Some(why) = of_first.other_pool(&shard)
        {
            let first = first.display();
            return usage(format!(
                "{name} is a shard of a different pool than {first}: {why}. Merge shards of the \
                 same suite and options, or measure {name} again"
            ));
        }
        if let Some((other, _)) = found.insert(shard.number, (file, shard.clone())) {
            let (number, other) = (shard.number, other.display());
            return usage(format!("{other} and {name} are both shard {number}: leave out one"));
        }
        kinds.entry(Kind::of(&run)).or_default().push(Measured::new(shard, run));
    }
    kinds.values_mut().for_each(|shards| shards.sort_by_key(|measured| measured.shard.number));
    let of = found.values().next().map_or(0, |(_, shard)| shard.of);
    Ok((kinds, (0..of).filter(|number| !found.contains_key(number)).collect()))
}

/// Returns the shards of the requested kind, or of the only kind.
fn chosen(kinds: ByKind, asked: Option<usize>) -> anyhow::Result<Vec<Measured>> {
    let count = kinds.len();
    match asked {
        Some(kind) if kind == 0 || kind > count => {
            usage(format!("there is no kind {kind}. Choose one with --kind: {}", list(&kinds)))
        }
        None if count > 1 => usage(format!(
            "the shards ran on different kinds of machines, whose results are not merged. Choose \
             one with --kind: {}",
            list(&kinds)
        )),
        kind => Ok(kinds.into_values().nth(kind.unwrap_or(1) - 1).unwrap_or_default()),
    }
}

/// Lists the kinds by number, each with its shards and nodes.
fn list(kinds: &ByKind) -> String {
    let each = kinds.iter().enumerate().map(|(place, (kind, shards))| {
        let numbers: Vec<String> = shards.iter().map(|m| m.shard.number.to_string()).collect();
        let mut nodes: Vec<String> = shards.iter().map(|m| node(&m.run)).collect();
        nodes.sort();
        nodes.dedup();
        let (numbers, nodes) = (numbers.join(", "), nodes.join(", "));
        format!("\n  {}: {kind} (shards {numbers} on {nodes})", place + 1)
    });
    each.collect()
}
