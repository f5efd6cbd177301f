//! The loads: the one described by flags, or those of the suite.

use anyhow::Context;
use hotlap_bench::local::LEAST_RATE;
use hotlap_bench::participant::Load;
use hotlap_bench::suite::{Loading, STREAMS, Suite};
use hotlap_load::plan::{self, CONNECTIONS, Protocol, Reuse};
use hotlap_servers::contract::{Contract, Name};

use super::options;
use crate::cli::{RunArgs, Shape};
use crate::exit::usage;

/// The loads, with one thread unless a number was given. `contract` defines the request names that
/// a suite may use. With `sends_all`, a load sends all requests unless it names one.
pub fn loads(
    args: &RunArgs,
    suite: Option<&Suite>,
    contract: Option<Name>,
    sends_all: bool,
) -> anyhow::Result<Vec<Load>> {
    let (shape, rate) = (&args.common.shape, args.rate);
    let loadings = match suite.filter(|suite| !suite.loads.is_empty()) {
        None => vec![typed(shape)?],
        Some(suite) => {
            options::have_no_loads(args, suite)?;
            suite.loads.clone()
        }
    };
    let https = shape.https || suite.is_some_and(|suite| suite.https);
    let loads = loadings.iter().map(|loading| load(loading, https, suite, contract));
    let mut loads = loads.collect::<anyhow::Result<Vec<_>>>()?;
    for (load, loading) in loads.iter_mut().zip(&loadings) {
        if sends_all && loading.request.is_none() {
            load.request = None;
        }
    }
    let rates = rate.into_iter().chain(loads.iter().filter_map(|load| load.rate));
    if let Some(low) = rates.into_iter().find(|rate| *rate < LEAST_RATE) {
        return usage(format!(
            "{low} requests/s is too low for laps, which are short: use {LEAST_RATE} or more, or \
             `hotlap load --rate {low}`"
        ));
    }
    if rate.is_some() && loads.iter().all(|load| load.rate.is_some()) {
        return usage("the suite gives each load a rate: leave out --rate");
    }
    Ok(loads)
}

/// How many connections, with how many streams each, carry this many requests at a time. All
/// connections have the same number of streams. Without a number that was asked for, this is the
/// largest number up to [`STREAMS`] by which the requests can be divided.
pub fn streams(
    in_flight: usize,
    streams: Option<usize>,
    closes: bool,
) -> anyhow::Result<(usize, usize)> {
    let usual = || {
        let most = if closes { 1 } else { STREAMS };
        (1..=most).rev().find(|streams| in_flight.is_multiple_of(*streams)).unwrap_or(1)
    };
    let streams = streams.unwrap_or_else(usual).max(1);
    if !in_flight.is_multiple_of(streams) {
        return usage(format!(
            "{in_flight} requests at a time (-c) cannot be divided among connections of {streams} \
             streams: use -c {} or {}, or other --streams",
            (in_flight / streams).max(1) * streams,
            in_flight.next_multiple_of(streams)
        ));
    }
    Ok((in_flight / streams, streams))
}

/// The one load that the command line describes.
fn typed(shape: &Shape) -> anyhow::Result<Loading> {
    let connections = shape.connections.unwrap_or(CONNECTIONS);
    let (protocol, (connections, pipeline)) = match shape.connection.http2 {
        true => (
            Protocol::Http2,
            streams(connections, shape.connection.streams, shape.connection.disable_keepalive)?,
        ),
        false => (Protocol::Http1, (connections, shape.connection.pipeline.unwrap_or(1))),
    };
    Ok(Loading {
        name: String::new(),
        connections,
        threads: shape.threads,
        reuse: Reuse::of(shape.connection.disable_keepalive),
        protocol,
        pipeline,
        request: None,
        rate: None,
        line: 0,
    })
}

fn load(
    loading: &Loading,
    https: bool,
    suite: Option<&Suite>,
    contract: Option<Name>,
) -> anyhow::Result<Load> {
    let Loading { connections, pipeline, .. } = *loading;
    let threads = loading.threads.unwrap_or(1);
    let (request, asked) = request(loading, suite, contract)?;
    Ok(Load {
        name: if loading.name.is_empty() { asked } else { loading.name.clone() },
        shape: plan::Shape { connections, threads, reuse: loading.reuse, pipeline },
        has_usual_threads: loading.threads.is_none(),
        protocol: loading.protocol,
        https,
        request: Some(request),
        rate: loading.rate,
        ..Load::new(connections)
    })
}

/// Which request of the contract a load sends: its index, and its name if the suite gives one.
fn request(
    loading: &Loading,
    suite: Option<&Suite>,
    contract: Option<Name>,
) -> anyhow::Result<(usize, String)> {
    let Some(named) = &loading.request else { return Ok((0, String::new())) };
    let exchanges = contract.map(|name| Contract::of(name, None).exchanges);
    let names: Vec<String> = exchanges.unwrap_or_default().into_iter().map(|e| e.name).collect();
    let counted = named.parse().ok().filter(|n: &usize| *n < names.len());
    match counted.or_else(|| names.iter().position(|n| n == named)) {
        Some(found) => Ok((found, names[found].clone())),
        None => {
            let there = match names.is_empty() {
                true => "say `contract` too".to_owned(),
                false => format!("the contract has {}", names.join(", ")),
            };
            let suite = suite.context("only a suite can name requests")?;
            let what = format!("no request {named:?}: {there}");
            usage(suite.wrong(loading.line, what).to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: 15 requests at a time over connections of 10 streams were 20.
    #[test]
    fn as_many_requests_are_in_flight_as_asked() {
        let of = |in_flight, asked| streams(in_flight, asked, false).ok();
        assert_eq!(of(64, None), Some((8, 8)));
        assert_eq!(of(15, None), Some((3, 5)));
        assert_eq!(of(13, None), Some((13, 1)));
        assert_eq!(of(20, Some(10)), Some((2, 10)));
        assert_eq!(of(15, Some(10)), None);
        assert_eq!(streams(64, None, true).ok(), Some((64, 1)));
    }
}
