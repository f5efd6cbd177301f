//! Builds servers of the catalogue, with a live line.

use std::sync::Mutex;

use hotlap_servers::build::{BuildEvent, Builder, Built, Unready};
use hotlap_servers::catalogue::CatalogueServer;
use hotlap_servers::process::Supervisor;

use crate::console::Console;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::paths;

/// Builds servers, and returns the results in their order. A live line shows the current step.
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
