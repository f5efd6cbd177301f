//! `hotlap setup`: prints the commands that install missing toolchains. With `--yes`, installs the
//! toolchains and builds every server that can run.

use std::fs::File;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Context;
use hotlap_servers::build::{
    BuildEvent, Builder, Built, InstallError, InstallProgress, MissingKind, MissingPackages,
    MissingToolchain, PackageManager, Unready, probe_with_databases,
};
use hotlap_servers::catalogue::{Catalogue, CatalogueServer};
use hotlap_servers::process::Supervisor;

use crate::assets;
use crate::cli::SetupArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::paths;
use crate::text::number::{megabytes, plural};
use crate::text::visible;

/// Prints the installation commands, or runs them and builds the servers.
pub fn run(args: &SetupArgs, console: &Console) -> anyhow::Result<Exit> {
    let catalogue = Catalogue::open(&assets::servers()?)?;
    let servers = super::list::select(&catalogue, args.pattern.as_deref());
    let servers = servers.or_else(|error| usage(error.to_string()))?;
    let interrupt = Interrupt::listen()?;
    let exit = install(&servers, args.yes, &interrupt, console)?;
    if !args.yes || interrupt.asked() {
        return Ok(exit);
    }
    let began = Instant::now();
    let supervisor =
        Supervisor::this_program("__supervisor").context("cannot find hotlap's own program")?;
    let built = build_all(&servers, &supervisor, &interrupt, console)?;
    let ready = built.iter().filter(|b| b.is_ok()).count();
    let took = began.elapsed().as_secs();
    let all = plural(built.len(), "server");
    console.print(&format!("Built {ready} of {all} in {took} s.\n"))?;
    let mut exit = exit;
    for (server, why) in servers.iter().zip(&built) {
        if let Err(Unready::Failed(error)) = why {
            console.note(&format!("{}: {error}", server.id));
            error.log_tail.iter().for_each(|line| console.note(&format!("    | {line}")));
            exit = exit.and(Exit::ServerFailed);
        }
    }
    Ok(exit)
}

/// Prints the commands that install the toolchains that these servers lack. With `yes`, also runs
/// the commands.
pub fn install(
    servers: &[&CatalogueServer],
    yes: bool,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Exit> {
    let probed = probe_with_databases(servers, interrupt.flag());
    if interrupt.asked() {
        // A toolchain whose check did not finish must not be installed as if it were missing.
        return Ok(Exit::Interrupted);
    }
    let absent: Vec<(&CatalogueServer, MissingToolchain)> =
        servers.iter().zip(probed).filter_map(|(s, p)| Some((*s, p.err()?))).collect();
    if absent.is_empty() {
        console.print("Nothing is missing.\n")?;
        return Ok(Exit::Ok);
    }
    let mut missing =
        MissingPackages::of(PackageManager::here(), absent.iter().map(|(s, a)| (*s, a)));
    let size = missing.measure();
    if !missing.packages.is_empty() {
        let takes = size.map_or(String::new(), |size| {
            format!(
                ": {} download, {} on disk, about {} s",
                megabytes(size.download_bytes as f64),
                megabytes(size.disk_bytes as f64),
                size.about_s()
            )
        });
        console.print(&format!(
            "# {} for {}{takes}\n",
            plural(missing.packages.len(), "package"),
            plural(missing.servers.len(), "server"),
        ))?;
        for command in missing.commands(!yes) {
            console.print(&format!("{}\n", visible(&shell_words::join(&command))))?;
        }
    }
    for package in &missing.unknown {
        console.print(&format!("# {}: no such package here\n", visible(package)))?;
    }
    for (id, absence) in &missing.other {
        let [id, why, remedy] = [id.as_str(), &absence.why, &absence.remedy].map(visible);
        console.print(&format!("# {id}: {why}\n#   {remedy}\n"))?;
    }
    if !yes {
        if !missing.packages.is_empty() {
            console.note("\nWith --yes, hotlap runs these commands, and builds the servers.");
        }
        return Ok(Exit::Ok);
    }
    carry_out(&missing, interrupt, console)?;
    Ok(still_missing(servers, interrupt, console))
}

fn carry_out(
    missing: &MissingPackages,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<()> {
    let log = paths::cache()?.join("setup.log");
    let name = visible(&log.to_string_lossy());
    // The log must not contain the output of an earlier installation.
    File::create(&log).map_err(|error| {
        anyhow::anyhow!(
            "cannot write {name} ({error}): set HOTLAP_CACHE to a folder that you can write to"
        )
    })?;
    let mut live = Live::start(console);
    let result = missing.run(&log, interrupt.flag(), &mut |progress| match progress {
        InstallProgress::Line(line) => live.phase(format!("installing: {line}")),
        InstallProgress::Waiting => live.say(&format!(
            "Waiting for the package manager: stopping it would leave packages half installed. \
             A second Ctrl-C stops only hotlap. The installation continues, and its log is \
             {name}."
        )),
    });
    live.clear();
    if let Err(InstallError::Ended { log_tail, .. }) = &result {
        log_tail.iter().for_each(|line| console.note(&format!("    | {line}")));
        console.note(&format!("The full log is in {name}."));
    }
    Ok(result?)
}

/// Reports the toolchains that are still missing after the installation.
fn still_missing(servers: &[&CatalogueServer], interrupt: &Interrupt, console: &Console) -> Exit {
    let mut exit = Exit::Ok;
    let probed = probe_with_databases(servers, interrupt.flag());
    if interrupt.asked() {
        return Exit::Interrupted;
    }
    for (server, probed) in servers.iter().zip(probed) {
        match probed {
            Err(absence) if absence.kind != MissingKind::Unreachable => {
                console.note(&format!("{} is still not ready: {absence}", server.id));
                exit = Exit::ServerFailed;
            }
            _ => {}
        }
    }
    exit
}

/// Builds servers, and returns the results in the same order. A live line shows the current step.
pub fn build_all(
    servers: &[&CatalogueServer],
    supervisor: &Supervisor,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Vec<Result<Built, Unready>>> {
    let live = Mutex::new(Live::start(console));
    let say = |act: &dyn Fn(&Live)| {
        if let Ok(live) = live.lock() {
            act(&live);
        }
    };
    let cache = paths::cache()?;
    let on = |event: BuildEvent<'_>| match event {
        BuildEvent::Built { server, built } if built.fresh => {
            let took = built.took.as_secs_f64();
            say(&|live| live.say(&format!("built {server} in {took:.0} s")));
        }
        BuildEvent::Step { server, command, .. } => {
            say(&|live| live.phase(format!("building {server}: {command}")));
        }
        _ => {}
    };
    Ok(Builder { cache: &cache, supervisor, stop: interrupt.flag(), on: &on }.build_all(servers))
}
