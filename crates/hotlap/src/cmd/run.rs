//! `hotlap run`: the command line becomes a [`RunSpec`], its servers are built and become
//! [`Participants`], they are measured or stressed, and the result is printed, exported and stored.
//! `--dry-run` prints the plan instead.

pub mod announcement;
pub mod dry_run;
pub mod elsewhere;
pub mod finish;
pub mod generators;
pub mod logs;
pub mod measure;
pub mod participants;
pub mod record;
pub mod resume;
pub mod rule;
pub mod shard;
pub mod spec;
pub mod stress;
pub mod timing;

use std::time::Duration;

use hotlap_bench::load_host::LoadHost;

use crate::cli::RunArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Exports;
use crate::interrupt::Interrupt;
use crate::model::Question;
use crate::paths;
use crate::store::Store;
use participants::{Participants, build};
use spec::{RunSpec, Storage};

/// Runs the command.
pub fn run(args: RunArgs, console: &Console) -> anyhow::Result<Exit> {
    let spec = RunSpec::new(&args)?;
    let storage = spec.storage.clone();
    match (spec.shard.clone(), &storage) {
        (Some(shard), Storage::File(to)) if !spec.is_dry => {
            shard::run(&shard, to, console, |store| carry_out(spec, &Storage::File(store), console))
        }
        _ => carry_out(spec, &storage, console),
    }
}

/// Carries out the plan of a run, and stores it there.
fn carry_out(spec: RunSpec, storage: &Storage, console: &Console) -> anyhow::Result<Exit> {
    spec.notes.iter().for_each(|note| console.note(&format!("Note: {note}")));
    let mut exports = Exports::open(&spec.exports)?;
    let store = open_store(&spec, storage, console)?;
    let spec = match spec.resumes {
        true => {
            let earlier = resume::asked(spec.suite.as_deref(), store.as_ref())?;
            spec.going_on(earlier)
        }
        false => spec,
    };
    let interrupt = Interrupt::listen()?;
    // Builds have none, but if it is not permitted, nothing is built.
    drop(measure::priority(&spec)?);
    let mut spec = spec;
    let elsewhere = elsewhere::open(&mut spec, console)?;
    let generators = generators::open(&mut spec, elsewhere.as_deref(), console)?;
    let delay = elsewhere.as_ref().map_or(Duration::ZERO, |host| host.delay())
        + generators.as_ref().map_or(Duration::ZERO, |started| started.host.delay());
    elsewhere::lengthen_slices(&mut spec, delay, console);
    let builds = match &elsewhere {
        Some(host) => elsewhere::build(&spec, host, &interrupt, console)?,
        None if spec.is_dry => dry_run::probe(&spec, &interrupt),
        None => build(&spec, &interrupt, console)?,
    };
    let participants = Participants::new(&spec, &builds, elsewhere, console)?;
    let participants = Participants { generators, ..participants };
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    if !spec.rules.is_empty() && participants.named() < 2 {
        return usage("--fail-if needs at least two servers to compare");
    }
    match spec.question {
        _ if spec.is_dry => dry_run::run(&spec, &participants, store.as_ref(), console),
        Question::Stress => {
            stress::run(&spec, &participants, store, &mut exports, &interrupt, console)
        }
        _ => measure::run(&spec, &participants, store, &mut exports, &interrupt, console),
    }
}

/// The store of a run; `None` with `--no-store`. If the default store cannot be written (no home
/// directory, or a read-only one), the run continues without it. A store given by `--store` must be
/// usable. A dry run creates none.
fn open_store(
    spec: &RunSpec,
    storage: &Storage,
    console: &Console,
) -> anyhow::Result<Option<Store>> {
    let path = match storage {
        Storage::None => return Ok(None),
        Storage::Usual => paths::store(),
        Storage::File(path) => Some(path.clone()),
    };
    let Some(path) = path else {
        console.warn(
            "Warning: this run will not be stored: neither HOME nor XDG_DATA_HOME is set. Use \
             --store FILE",
        );
        return Ok(None);
    };
    let opened = match spec.is_dry {
        true if !spec.resumes && !path.exists() => return Ok(None),
        true => Store::open_existing(&path),
        false => Store::open(&path),
    };
    match opened {
        Ok(store) => Ok(Some(store)),
        Err(why) if *storage == Storage::Usual && why.is_about_its_place() => {
            console.warn(&format!("Warning: this run will not be stored: {why}"));
            Ok(None)
        }
        Err(why) => Err(anyhow::anyhow!("{why}; or use --no-store")),
    }
}
