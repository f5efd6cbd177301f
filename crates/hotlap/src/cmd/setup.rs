//! `hotlap setup`: what is missing, by package manager, and the command that brings it.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::Context;
use hotlap_harness::catalogue::Catalogue;
use hotlap_harness::install::Manager;
use hotlap_harness::manifest::Server;
use hotlap_harness::toolchain::{Absence, AbsenceKind, probe_all};

use crate::cli::SetupArgs;
use crate::console::Console;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::shelf;

/// Prints the commands, or runs them.
///
/// # Errors
/// When the catalogue cannot be read, or a command cannot be started.
pub fn run(args: &SetupArgs, console: &Console) -> anyhow::Result<Exit> {
    let catalogue = Catalogue::open(&shelf::servers()?)?;
    let servers = super::list::select(&catalogue, args.pattern.as_deref())?;
    install(&servers, args.yes, console)
}

/// What these servers are missing: told, or with `yes` installed.
///
/// # Errors
/// When a command cannot be started.
pub fn install(servers: &[&Server], yes: bool, console: &Console) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let probed = probe_all(servers, interrupt.flag());
    let absent: Vec<(&Server, Absence)> =
        servers.iter().zip(probed).filter_map(|(s, p)| Some((*s, p.err()?))).collect();
    if absent.is_empty() {
        console.print("Nothing is missing.\n")?;
        return Ok(Exit::Ok);
    }
    let Some(manager) = Manager::here() else {
        console.print(&by_hand(&absent, None))?;
        return Ok(Exit::Ok);
    };
    let packages: BTreeSet<&String> = absent
        .iter()
        .filter(|(_, a)| a.kind != AbsenceKind::Unreachable)
        .flat_map(|(s, _)| manager.packages(&s.toolchain.install))
        .collect();
    let packages: Vec<String> = packages.into_iter().cloned().collect();
    let mut exit = Exit::Ok;
    if !packages.is_empty() {
        let command = manager.command(&packages, !yes);
        console.print(&format!(
            "# {} for {}\n{}\n",
            plural(packages.len(), "package"),
            plural(absent.len(), "server"),
            shell_words::join(&command)
        ))?;
        if yes {
            exit = carry_out(&command)?;
        }
    }
    console.print(&by_hand(&absent, Some(manager)))?;
    if !yes {
        console.note("\n`hotlap setup --yes` runs it.");
    } else if exit == Exit::Ok {
        exit = still_missing(servers, &interrupt, console);
    }
    Ok(exit)
}

/// What no package manager here brings.
fn by_hand(absent: &[(&Server, Absence)], manager: Option<Manager>) -> String {
    let mut out = String::new();
    for (server, absence) in absent {
        let brought = manager.is_some_and(|m| !m.packages(&server.toolchain.install).is_empty());
        if !brought || absence.kind == AbsenceKind::Unreachable {
            out += &format!("# {}: {}\n#   {}\n", server.id, absence.why, absence.cure);
        }
    }
    out
}

fn carry_out(command: &[String]) -> anyhow::Result<Exit> {
    let (program, arguments) = command.split_first().context("an empty command")?;
    let status = Command::new(program)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .with_context(|| format!("cannot start {program}"))?;
    Ok(if status.success() { Exit::Ok } else { Exit::Error })
}

fn still_missing(servers: &[&Server], interrupt: &Interrupt, console: &Console) -> Exit {
    let mut exit = Exit::Ok;
    for (server, probed) in servers.iter().zip(probe_all(servers, interrupt.flag())) {
        if let Err(absence) = probed {
            console.note(&format!("{}: still {}", server.id, absence));
            if absence.kind != AbsenceKind::Unreachable {
                exit = Exit::Error;
            }
        }
    }
    exit
}

fn plural(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
