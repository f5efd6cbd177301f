//! `hotlap run`: the command line becomes a [`RunSpec`], its servers are built and become
//! [`Participants`], they are measured or stressed, and the result is printed, exported and stored.
//! `--dry-run` prints the plan instead.

pub mod dry_run;
pub mod finish;
pub mod hosts;
pub mod logs;
pub mod measure;
pub mod participants;
pub mod record;
pub mod resume;
pub mod rule;
pub mod shard;
pub mod spec;
pub mod timing;

use crate::cli::RunArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Exports;
use crate::interrupt::Interrupt;
use crate::paths;
use crate::store::Store;
use hosts::RunHosts;
use participants::{Participants, build, build_there};
use spec::{RunSpec, Storage};

/// Runs the command.
pub fn run(args: RunArgs, console: &Console) -> anyhow::Result<Exit> {
    let spec = RunSpec::new(&args)?;
    match (&spec.shard, &spec.storage) {
        (Some(shard), Storage::File(to)) if !spec.is_dry => {
            shard::run(shard, to, console, |store| carry_out(&spec, &Storage::File(store), console))
        }
        (_, storage) => carry_out(&spec, storage, console),
    }
}

/// Carries out the plan of a run, and stores it there.
fn carry_out(spec: &RunSpec, storage: &Storage, console: &Console) -> anyhow::Result<Exit> {
    spec.notes.iter().for_each(|note| console.note(&format!("Note: {note}")));
    let mut exports = Exports::open(&spec.exports)?;
    let store = open_store(spec, storage, console)?;
    let earlier = match spec.resumes {
        true => Some(resume::asked(spec.suite.as_deref(), store.as_ref())?),
        false => None,
    };
    let interrupt = Interrupt::listen()?;
    let participants = prepare(spec, &interrupt, console);
    // A build that was interrupted has failed.
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    let participants = participants?;
    if !spec.rules.is_empty() && participants.named() < 2 {
        return usage("--fail-if needs at least two servers to compare");
    }
    match spec.is_dry {
        true => dry_run::run(spec, &participants, earlier, store.as_ref(), console),
        false => {
            measure::run(spec, &participants, earlier, store, &mut exports, &interrupt, console)
        }
    }
}

/// Starts the agents on other hosts, and builds the servers.
fn prepare(
    spec: &RunSpec,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Participants> {
    // Builds have none, but if it is not permitted, nothing is built.
    drop(measure::priority(spec)?);
    let hosts = RunHosts::open(spec, interrupt, console)?;
    let builds = match &hosts.servers {
        Some(host) => build_there(spec, host, interrupt, console)?,
        None if spec.is_dry => dry_run::probe(spec, interrupt),
        None => build(spec, interrupt, console)?,
    };
    Participants::new(spec, &builds, hosts, console)
}

/// The store of a run. `None` with `--no-store`. If the default store cannot be written (no home
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
