//! `hotlap run`: turns the command line into a [`RunSpec`], builds the servers, and collects them
//! as [`Participants`]. The participants are measured or stressed, and the result is printed,
//! exported and stored. `--dry-run` prints the plan instead.

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
use crate::store::{Store, StoreError};
use hosts::RunHosts;
use participants::{Participants, build, build_there, install};
use spec::{RunSpec, Storage};

/// Carries out `hotlap run`.
pub fn run(args: RunArgs, console: &Console) -> anyhow::Result<Exit> {
    let spec = RunSpec::new(&args)?;
    match (&spec.shard, &spec.storage) {
        (Some(shard), Storage::File(to)) if !spec.is_dry => {
            shard::run(shard, to, console, |store| carry_out(&spec, &Storage::File(store), console))
        }
        (_, storage) => carry_out(&spec, storage, console),
    }
}

/// Carries out the plan of a run, and stores the run in `storage`.
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
    // An interrupted build returns an error, so the interrupt is checked first.
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
    // Builds run with normal priority, so the raised priority is dropped. If raising it is not
    // permitted, nothing is built.
    drop(measure::priority(spec)?);
    // This may install PostgreSQL, which the hosts look for next.
    install(spec, interrupt, console)?;
    let hosts = RunHosts::open(spec, interrupt, console)?;
    let builds = match &hosts.servers {
        Some(host) => build_there(spec, host, interrupt, console)?,
        None if spec.is_dry => dry_run::probe(spec, interrupt),
        None => build(spec, interrupt, console)?,
    };
    Participants::new(spec, &builds, hosts, console)
}

/// Opens the store of a run. Returns `None` with `--no-store`, and for a dry run without `--resume`
/// if the store does not exist or has no run. If the default store cannot be written (no home
/// directory, or a read-only one), the run continues without a store. A store given by `--store`
/// must be usable.
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
    // These options do not work without a store.
    let needs_store = spec.resumes || spec.shard.is_some() || spec.baseline.is_some();
    let Some(path) = path else {
        if needs_store {
            return usage("neither HOME nor XDG_DATA_HOME is set: name a store with --store FILE");
        }
        console.warn(
            "Warning: this run will not be stored: neither HOME nor XDG_DATA_HOME is set. Use \
             --store FILE",
        );
        return Ok(None);
    };
    let opened = match spec.is_dry {
        true => Store::open_existing(&path),
        false => Store::open(&path),
    };
    match opened {
        Ok(store) => Ok(Some(store)),
        Err(StoreError::Missing { .. } | StoreError::Empty { .. })
            if spec.is_dry && !spec.resumes =>
        {
            Ok(None)
        }
        Err(why) if needs_store => Err(why.into()),
        Err(why) if *storage == Storage::Usual && why.is_about_its_place() => {
            console.warn(&format!("Warning: this run will not be stored: {why}"));
            Ok(None)
        }
        Err(why) => Err(anyhow::anyhow!("{why}, or use --no-store")),
    }
}
