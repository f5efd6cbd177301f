//! Checks what was read: a value that a damaged disk or another program changed is an error when it
//! is read, rather than a panic or a wrong figure later.

use hotlap_servers::observe::Observation;

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

/// What is wrong with a run, if anything.
pub(super) fn check(run: &Run) -> Result<(), String> {
    let (servers, loads) = (run.servers.len(), run.loads.len());
    let counts = |what: &str, counts: &[u64]| match counts.iter().find(|c| **c > MOST) {
        None => Ok(()),
        Some(count) => Err(format!("{what}: a count of {count}")),
    };
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
        is_time("a start", start.ready_ms.unwrap_or_default())?;
        counts("start", &[start.rss_bytes.unwrap_or_default()])?;
        start.warmups.iter().try_for_each(|w| within("warm-up of load", w.load, loads))?;
    }
    for lap in &run.laps {
        within("lap of server", lap.server, servers)?;
        within("lap of load", lap.load, loads)?;
        numbers("lap", &[lap.restart, lap.round, lap.place])?;
        is_time("a lap's rate", lap.rate.unwrap_or_default())?;
        is_time("a generator's load", lap.generator.1)?;
        let (asked, up, again) = lap.connections;
        counts("lap", &[lap.at_ms, lap.window_ns, lap.answers, lap.due, lap.in_flight])?;
        counts("lap", &[asked, up, again, lap.bytes.0, lap.bytes.1, lap.generator.0])?;
        lap.failures.iter().try_for_each(|f| counts("failures", &[f.count]))?;
        lap.statuses.iter().try_for_each(|(_, count)| counts("statuses", &[*count]))?;
        let mut own = lap.by_request.iter();
        own.try_for_each(|own| counts("request", &[own.answers, own.failures]))?;
        let mut own = lap.generators.iter();
        own.try_for_each(|own| counts("generator", &[own.responses, own.failures, own.sent]))?;
        let mut ticks = lap.series.iter();
        ticks.try_for_each(|t| counts("series", &[t.responses, t.failures, t.max_ns, t.sum_ns]))?;
    }
    for lap in &run.explain {
        within("lap of server", lap.server, servers)?;
        within("lap of load", lap.load, loads)?;
        numbers("lap", &[lap.restart, lap.round, lap.place])?;
        counts("lap", &[lap.at_ms, lap.requests, lap.cpu_ns.unwrap_or_default(), lap.answers])?;
        counts("lap", &[lap.bytes.0, lap.bytes.1])?;
        lap.observation.iter().try_for_each(observation)?;
    }
    let observing = &run.schedule.observing;
    observing.env.iter().try_for_each(|(server, _)| within("flags of server", *server, servers))?;
    let mut missing = observing.missing.iter();
    missing.try_for_each(|missing| within("instrument of server", missing.server, servers))
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
