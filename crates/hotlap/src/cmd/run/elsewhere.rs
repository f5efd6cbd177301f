//! The host of the servers, if it is another one (`--server-on`).

use std::sync::Arc;
use std::time::Duration;

use hotlap_agent::server::{Build, RemoteHost, Wanted};
use hotlap_bench::local::shortest_slice;
use hotlap_servers::machine;

use super::participants::{Builds, from_catalogue};
use super::spec::RunSpec;
use crate::console::Console;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::model::{Controller, Host};
use crate::text::number;

/// Starts the agent, if there is another host, and gives the spec its cores.
pub fn open(spec: &mut RunSpec, console: &Console) -> anyhow::Result<Option<Arc<RemoteHost>>> {
    let Some(elsewhere) = &spec.elsewhere else { return Ok(None) };
    let wanted = Wanted {
        address: elsewhere.address,
        cpus: spec.server_cpus,
        starts: spec.starts_servers(),
    };
    let host = RemoteHost::open(&elsewhere.command, wanted).map_err(anyhow::Error::msg)?;
    let description = host.description();
    // Without pinning, the generator has no cores either.
    match spec.cores.generator.len() {
        0 => spec.server_cpus = spec.server_cpus.or(Some(description.machine.allowed)),
        _ if description.is_this_machine() => {
            spec.cores = machine::split_here(spec.server_cpus);
            let cores = spec.cores.generator.len();
            spec.loads.iter_mut().for_each(|load| load.use_cores(cores));
        }
        _ => {
            spec.cores.server.clone_from(&description.cores);
            let notes = description.notes.iter().map(|note| format!("{}: {note}", host.name()));
            spec.cores.notes.extend(notes);
        }
    }
    let at = host.address().map(|ip| format!(", at {ip}"));
    console.note(&format!("Servers run on {}{}.", host.name(), at.unwrap_or_default()));
    Ok(Some(Arc::new(host)))
}

/// Replaces the length of slices that the user chose if readings from other hosts, which may take
/// this long, are too imprecise for it.
pub fn lengthen_slices(spec: &mut RunSpec, delay: Duration, console: &Console) {
    let shortest = shortest_slice(delay);
    let ms = |time: Duration| number::time(time.as_secs_f64() * 1e3);
    if let Some(slice) = spec.slice.filter(|slice| *slice < shortest) {
        console.warn(&format!(
            "Warning: slices are {} long instead of {}: a round trip to the other hosts takes {}, \
             and shorter slices would be measured imprecisely.",
            ms(shortest),
            ms(slice),
            ms(delay)
        ));
        spec.slice = Some(shortest);
    }
}

/// Builds the catalogue servers there, or for a dry run, probes their toolchains.
pub fn build(
    spec: &RunSpec,
    host: &RemoteHost,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Builds> {
    let ids: Vec<String> = from_catalogue(spec).iter().map(|server| server.id.clone()).collect();
    if ids.is_empty() {
        return Ok(Builds::new());
    }
    let live = Live::start(console);
    let build = Build { ids: &ids, probes: spec.is_dry, stop: interrupt.flag() };
    let built = host.build(build, |step| live.phase(format!("{}: {step}", host.name())));
    let built = built.map_err(anyhow::Error::msg)?.into_iter();
    let launched = built.map(|built| built.map(|built| (built.launch, built.version)));
    Ok(ids.into_iter().zip(launched).collect())
}

/// The facts of both machines. `here` is this one, where the load is generated.
pub fn facts(host: &RemoteHost, here: Host) -> Host {
    let mut there = Host::of(host.description().machine.clone());
    let doubts = here.doubts.iter().map(|doubt| format!("on the generator's host: {doubt}"));
    there.doubts.extend(doubts);
    let address = host.address().map(|ip| ip.to_string());
    let controller =
        Controller { command: host.command().to_owned(), address, machine: here.machine };
    Host { controller: Some(controller), ..there }
}
