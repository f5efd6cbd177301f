//! `hotlap load --generator-on`: the load comes from other hosts.

use std::time::Duration;

use hotlap_agent::{Contributions, Fault, Generators, GroupError, GroupOutcome};
use hotlap_load::Outcome;
use hotlap_load::plan::{Plan, Request};

use super::requests::Asked;
use super::view::LoadView;
use crate::cli::LoadArgs;
use crate::console::Console;
use crate::exit::{server_failed, usage};
use crate::interrupt::Interrupt;

/// How often generators are asked how far they have come.
const POLL: Duration = Duration::from_millis(200);

/// Starts the agents that the flags name; `None` if they name none.
pub fn open(args: &LoadArgs) -> anyhow::Result<Option<Generators>> {
    if args.generator_on.is_empty() {
        return Ok(None);
    }
    Ok(Some(Generators::open(&args.generator_on, args.sample_from.as_ref())?))
}

/// The requests with their expected responses, and notes for the user, as [`Asked::requests`], but
/// learned from the first generator's host: this one may not reach the server.
pub fn requests(
    asked: &Asked,
    args: &LoadArgs,
    generators: &Generators,
) -> anyhow::Result<(Vec<Request>, Vec<String>)> {
    let Some(probe) = asked.probe(args) else {
        return Ok((asked.unchecked(), asked.notes().to_vec()));
    };
    let host = probe.host.clone();
    match generators.probe(probe) {
        Ok(probed) => Ok((probed.requests, probed.notes)),
        Err(GroupError::Start(error)) if matches!(error.fault, Fault::Refused(_)) => {
            server_failed(format!("{host}: {error}"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs the load with a live line; Ctrl-C ends it early and keeps the results so far. `None` if a
/// generator was lost; the user knows then.
pub fn drive(
    generators: &Generators,
    plan: &Plan,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Option<(Outcome, Option<Contributions>)>> {
    let running = match generators.start(plan) {
        Err(GroupError::Division(why)) => return usage(why),
        running => running?,
    };
    let mut view = LoadView::start(plan, console);
    let mut is_stopped = false;
    while !running.is_finished() {
        std::thread::sleep(POLL);
        if interrupt.asked() && !std::mem::replace(&mut is_stopped, true) {
            running.stop();
        }
        view.show(running.progress());
    }
    let joined = running.join();
    view.clear();
    match joined {
        Ok(GroupOutcome { outcome, contributions }) => Ok(Some((outcome, Some(contributions)))),
        Err(error @ GroupError::Lost(_)) => {
            console.warn(&format!("NOT VALID: {error}"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
