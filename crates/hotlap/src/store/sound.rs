//! Checks what was read: a value that a damaged disk or another program changed is an error when it
//! is read, rather than a panic or a wrong figure later.

use hotlap_load::Outcome;
use hotlap_observe::Observation;

use crate::model::Run;

/// The highest accepted count, of requests, bytes, nanoseconds and so on: two thousand of these
/// still fit into 64 bits.
const MOST: u64 = 1 << 53;

/// The highest accepted number of a restart, of a round, and of a place in a round. A run of a year
/// has fewer.
const LAST: u32 = 1 << 24;

fn within(what: &str, index: usize, of: usize) -> Result<(), String> {
    match index < of {
        true => Ok(()),
        false => Err(format!("{what} {index} of {of}")),
    }
}

fn counts(what: &str, counts: &[u64]) -> Result<(), String> {
    match counts.iter().find(|count| **count > MOST) {
        None => Ok(()),
        Some(count) => Err(format!("{what}: a count of {count}")),
    }
}

/// What is wrong with a run, if anything.
pub(super) fn check(run: &Run) -> Result<(), String> {
    let (servers, loads) = (run.servers.len(), run.loads.len());
    let numbers = |what: &str, numbers: &[u32]| match numbers.iter().find(|n| **n > LAST) {
        None => Ok(()),
        Some(number) => Err(format!("{what}: number {number} of a restart, round or place")),
    };
    let is_time = |what: &str, value: f64| match value.is_finite() && value >= 0.0 {
        true => Ok(()),
        false => Err(format!("{what} of {value}")),
    };
    counts("run", &[run.began_ms, run.took_ms])?;
    references(run)?;
    for start in &run.starts {
        within("start of server", start.server, servers)?;
        numbers("start", &[start.restart])?;
        is_time("a start", start.ready.ready_ms.unwrap_or_default())?;
        counts("start", &[start.ready.rss_bytes.unwrap_or_default()])?;
        start.warmups.iter().try_for_each(|w| within("warm-up of load", w.load, loads))?;
    }
    let explaining = run.explain.iter().map(|explains| &explains.lap);
    for lap in run.laps.iter().chain(explaining) {
        within("lap of server", lap.server, servers)?;
        within("lap of load", lap.load, loads)?;
        numbers("lap", &[lap.restart, lap.round, lap.place])?;
        is_time("a lap's rate", lap.rate().unwrap_or_default())?;
        outcome(&lap.outcome)?;
        let usage = lap.usage.unwrap_or_default();
        counts("lap", &[lap.at_ms, usage.wall_ns, usage.requests, usage.cpu_ns.unwrap_or(0)])?;
        let mut own = lap.generators.iter();
        own.try_for_each(|own| counts("generator", &[own.responses, own.failures, own.sent]))?;
    }
    let mut observations = run.explain.iter().filter_map(|explains| explains.observation.as_ref());
    observations.try_for_each(observation)?;
    let observing = &run.schedule.observing;
    observing.env.iter().try_for_each(|(server, _)| within("flags of server", *server, servers))?;
    let mut missing = observing.missing.iter();
    missing.try_for_each(|missing| within("instrument of server", missing.server, servers))
}

/// What is wrong with an outcome, if anything.
fn outcome(found: &Outcome) -> Result<(), String> {
    let (asked, bytes) = (&found.connections, &found.bytes);
    let mut all = vec![found.window_ns, found.responses, found.due, found.in_flight, found.queued];
    all.extend([asked.requested, asked.established, asked.reopened, bytes.received, bytes.sent]);
    all.extend(found.threads.iter().flat_map(|own| [own.cpu_ns, own.wall_ns, own.idle_ns]));
    all.extend(found.failures.0.iter().map(|failed| failed.count));
    all.extend(found.statuses.values());
    all.extend(found.by_request.iter().flat_map(|own| [own.responses, own.failures]));
    let ticks = found.series.iter();
    all.extend(ticks.flat_map(|t| [t.responses, t.failures, t.max_ns, t.sum_ns]));
    counts("lap", &all)
}

/// What is wrong with the indices of servers and loads in the description of a run, if anything.
fn references(run: &Run) -> Result<(), String> {
    let (servers, loads) = (run.servers.len(), run.loads.len());
    for server in &run.servers {
        let than = server.published.iter().filter_map(|figure| figure.than.as_ref());
        than.map(|than| than.server)
            .chain(server.part.on)
            .try_for_each(|other| within("reference to server", other, servers))?;
    }
    for layer in 0..servers {
        let mut on = run.servers[layer].part.on;
        for _ in 0..servers {
            on = on.and_then(|below| run.servers[below].part.on);
        }
        if on.is_some() {
            return Err(format!("layers below server {layer} without an end"));
        }
    }
    for probed in &run.schedule.probed {
        within("probe of server", probed.participant, servers)?;
        within("probe of load", probed.load, loads)?;
    }
    Ok(())
}

/// What is wrong with an observation, if anything.
fn observation(seen: &Observation) -> Result<(), String> {
    let is_count = |count: u64| match count <= MOST {
        true => Ok(()),
        false => Err(format!("observation: a count of {count}")),
    };
    match seen {
        Observation::Profile(profile) => {
            is_count(profile.period_ns)?;
            let frames = profile.frames.len();
            let stacks = profile.stacks.iter();
            if stacks.clone().flat_map(|stack| &stack.frames).any(|at| *at as usize >= frames) {
                return Err(format!("a stack refers to more than {frames} frames"));
            }
            stacks.into_iter().try_for_each(|stack| is_count(stack.samples))
        }
        Observation::SystemCalls(calls) => calls.values().try_for_each(|count| is_count(*count)),
        Observation::Events(_) => Ok(()),
    }
}
