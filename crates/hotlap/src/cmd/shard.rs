//! `hotlap run --shard`: a shard of a plan. It is a run of its own; its store becomes part of the
//! folder once it is whole.

use std::path::Path;

use anyhow::Context;

use super::run::carry_out;
use super::run::spec::RunSpec;
use crate::cli;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::model::State;
use crate::pool::outcome::{Published, Unfinished, is_writable, publish_patiently};
use crate::pool::plan::{Shard, store_of};
use crate::store::Store;

/// Runs a shard, unless its result is there.
pub fn run(file: &Path, console: &Console) -> anyhow::Result<Exit> {
    let shard = Shard::read(file)?;
    let to = file.with_file_name(store_of(shard.shard));
    let number = shard.shard;
    if to.exists() {
        let store = Store::open_existing(&to)?;
        shard.check(&store.outline(store.last()?)?, &to).or_else(usage)?;
        console.note(&format!("Shard {number} is there: {}", to.display()));
        return Ok(Exit::Ok);
    }
    is_writable(&to).with_context(|| {
        let folder = to.parent().unwrap_or(Path::new(".")).display();
        format!("cannot write to {folder}, where the result belongs")
    })?;
    let unfinished = Unfinished::new().context("cannot make a folder for the store")?;
    let store = unfinished.store();
    let words = words(&shard, file, &store, &typed());
    let args = cli::run_args(&words).or_else(usage)?;
    let spec = RunSpec::new(&args)?.of_shard(&shard.servers, &shard.reference, node())?;
    let is_dry = spec.is_dry;
    let exit = carry_out(spec, console)?;
    if is_dry || !matches!(exit, Exit::Ok | Exit::ServerFailed) || !is_finished(&store)? {
        return Ok(exit);
    }
    let published = publish_patiently(&store, &to).or_else(|error| {
        let kept = unfinished.keep();
        Err(error).with_context(|| {
            format!(
                "cannot write {}. The result is kept: copy {} to that path",
                to.display(),
                kept.display()
            )
        })
    })?;
    match published {
        Published::Here => console.note(&format!("Shard {number} is done: {}", to.display())),
        Published::Earlier => console.note(&format!(
            "Shard {number} was finished by another task meanwhile, whose result is kept: {}",
            to.display()
        )),
    }
    Ok(exit)
}

/// The words after `hotlap run` that a shard stands for; `given` are those typed for this shard.
fn words(shard: &Shard, file: &Path, store: &Path, given: &[String]) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    // With a `/`, so that it is a path and not the name of a suite.
    let suite = std::path::absolute(file.with_file_name(&shard.suite));
    let suite = suite.unwrap_or_else(|_| file.with_file_name(&shard.suite));
    let mut words = vec!["--suite".to_owned(), text(&suite), "--store".to_owned(), text(store)];
    words.extend(["--seed".to_owned(), shard.seed.to_string()]);
    words.extend(shard.options.iter().cloned());
    words.extend(given.iter().cloned());
    words
}

/// What was typed after `hotlap run`, without the file of the shard.
fn typed() -> Vec<String> {
    let typed = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    without_shard(&typed.collect::<Vec<_>>())
}

fn without_shard(typed: &[String]) -> Vec<String> {
    let mut words = typed.iter().skip_while(|word| *word != "run").skip(1);
    let mut left = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--shard" => drop(words.next()),
            own if own.starts_with("--shard=") => {}
            _ => left.push(word.clone()),
        }
    }
    left
}

/// The name of this machine: what the scheduler calls it, or its host name.
fn node() -> String {
    let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    of("HOTLAP_NODE").or_else(|| of("SLURMD_NODENAME")).unwrap_or_else(host)
}

/// Whether a store has a run that ended as planned. Everything is in its one file once it is
/// closed.
fn is_finished(store: &Path) -> anyhow::Result<bool> {
    if !store.exists() {
        return Ok(false);
    }
    let store = Store::open_existing(store)?;
    Ok(store.outline(store.last()?)?.state == State::Finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_shard_is_a_run_of_the_suite_beside_its_file() {
        let shard = Shard {
            version: 1,
            shard: 3,
            of: 4,
            suite: "mine.toml".into(),
            seed: 5,
            reference: "a".to_owned(),
            servers: split("a b"),
            options: split("--rounds 2"),
        };
        let file = Path::new("/pool/shard-3.toml");
        let words = words(&shard, file, Path::new("/tmp/s.db"), &split("--rounds 3"));
        let line = "--suite /pool/mine.toml --store /tmp/s.db --seed 5 --rounds 2 --rounds 3";
        assert_eq!(words, split(line));
    }

    #[test]
    fn options_beside_the_shard_are_kept() {
        let left = |line: &str| without_shard(&split(line)).join(" ");
        assert_eq!(left("-q run --shard a/shard-0.toml -d 2s"), "-d 2s");
        assert_eq!(left("run --no-pin --shard=x -t 2"), "--no-pin -t 2");
        assert_eq!(left("run --shard x"), "");
    }
}
