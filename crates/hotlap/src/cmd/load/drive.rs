//! How a load is carried out: by this process, or by generators on other hosts (`--generator-on`),
//! with a live line.

use std::time::{Duration, Instant};

use hotlap_agent::{Contributions, Fault, Generators, GroupError, GroupOutcome};
use hotlap_load::plan::{Pace, Plan, Request, Stop};
use hotlap_load::{Error, Outcome, Progress, Session};

use super::requests::Asked;
use crate::cli::LoadArgs;
use crate::console::Console;
use crate::exit::{server_failed, usage};
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::text::number;

/// Runs the load with a live line; Ctrl-C ends it early and keeps the results so far.
pub fn here(plan: &Plan, interrupt: &Interrupt, console: &Console) -> anyhow::Result<Outcome> {
    let session = match Session::start(plan) {
        Err(Error::Plan(error)) => return usage(error.to_string()),
        session => session?,
    };
    let mut view = LoadView::start(plan, console);
    while !session.is_finished() {
        std::thread::sleep(Duration::from_millis(50));
        if interrupt.asked() {
            session.stop();
        }
        view.show(session.progress());
    }
    let outcome = session.join()?;
    view.clear();
    Ok(outcome)
}

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
pub fn with_generators(
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

/// Shows the rate so far, and the time left if it is known.
struct LoadView {
    live: Live,
    began: Instant,
}

impl LoadView {
    /// Begins with the load; shows nothing where the console has no live view.
    fn start(plan: &Plan, console: &Console) -> Self {
        let quiet = Console { quiet: true, ..*console };
        let live = Live::start(if console.live { console } else { &quiet });
        match (plan.stop, &plan.pace) {
            (Stop::After(time), _) => live.left(plan.warmup + time),
            (Stop::Requests(_), Pace::Recorded(due)) => live.left(due.span()),
            (Stop::Requests(_), _) => {}
        }
        Self { live, began: Instant::now() }
    }

    /// Shows how far the load has come.
    fn show(&mut self, progress: Progress) {
        let rate = progress.responses as f64 / self.began.elapsed().as_secs_f64();
        let rate = number::rate(rate);
        self.live.phase(format!("{rate} requests/s, {} failed", progress.failures));
    }

    /// Removes the line.
    fn clear(&mut self) {
        self.live.clear();
    }
}
