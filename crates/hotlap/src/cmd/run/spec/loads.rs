//! The loads of a run: the load that the flags describe, or the loads of the suite.

use anyhow::Context;
use hotlap_bench::local::LEAST_RATE;
use hotlap_bench::participant::Load;
use hotlap_bench::suite::{Loading, Suite};
use hotlap_load::plan::CONNECTIONS;
use hotlap_servers::contract::{Contract, Name};

use super::options;
use crate::cli::{RunArgs, ShapeArgs};
use crate::exit::usage;

/// Returns the loads, with one thread each unless a number was given. `contracts` define the
/// request names that a suite may use. With several contracts, a load that names no request is
/// repeated for each contract. With `sends_all`, a load sends all requests unless it names one.
pub fn loads(
    args: &RunArgs,
    suite: Option<&Suite>,
    contracts: &[Name],
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
    let loadings: Vec<Loading> =
        loadings.into_iter().flat_map(|loading| for_each_contract(loading, contracts)).collect();
    let https = shape.https || suite.is_some_and(|suite| suite.https);
    let loads = loadings.iter().map(|loading| load(loading, https, suite, contracts));
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

/// Returns a copy of the load for each contract. If the load names a request, or there are not
/// several contracts, returns only the load itself.
fn for_each_contract(loading: Loading, contracts: &[Name]) -> Vec<Loading> {
    if contracts.len() < 2 || loading.request.is_some() {
        return vec![loading];
    }
    let of = |contract: &Name| {
        let first = Contract::of(*contract, None).exchanges.swap_remove(0).name;
        let name = match loading.name.is_empty() {
            true => String::new(),
            false => format!("{}, {first}", loading.name),
        };
        Loading { name, request: Some(first), ..loading.clone() }
    };
    contracts.iter().map(of).collect()
}

/// Returns the single load that the command line describes.
fn typed(shape: &ShapeArgs) -> anyhow::Result<Loading> {
    let connection = &shape.connection;
    let (in_flight, closes) =
        (shape.connections.unwrap_or(CONNECTIONS), connection.disable_keepalive);
    Ok(Loading {
        name: String::new(),
        shape: connection.shape(in_flight, shape.threads, closes)?,
        has_usual_threads: shape.threads.is_none(),
        protocol: connection.protocol(),
        request: None,
        rate: None,
        line: 0,
    })
}

fn load(
    loading: &Loading,
    https: bool,
    suite: Option<&Suite>,
    contracts: &[Name],
) -> anyhow::Result<Load> {
    let (request, asked) = request(loading, suite, contracts)?;
    Ok(Load {
        name: if loading.name.is_empty() { asked } else { loading.name.clone() },
        shape: loading.shape,
        has_usual_threads: loading.has_usual_threads,
        protocol: loading.protocol,
        https,
        request: Some(request),
        rate: loading.rate,
        ..Load::new(loading.shape.connections)
    })
}

/// Finds the request of the contract that a load sends. Returns the index of the request, and its
/// name if the suite gives one.
fn request(
    loading: &Loading,
    suite: Option<&Suite>,
    contracts: &[Name],
) -> anyhow::Result<(usize, String)> {
    let Some(named) = &loading.request else { return Ok((0, String::new())) };
    let exchanges = contracts.iter().flat_map(|name| Contract::of(*name, None).exchanges);
    let names: Vec<String> = exchanges.map(|exchange| exchange.name).collect();
    let counted = named.parse().ok().filter(|n: &usize| *n < names.len());
    match counted.or_else(|| names.iter().position(|n| n == named)) {
        Some(found) => Ok((found, names[found].clone())),
        None => {
            let there = match names.is_empty() {
                true => "add the key `contract` to the suite".to_owned(),
                false => format!("the contract has {}", names.join(", ")),
            };
            let suite = suite.context("only a suite can name requests")?;
            let what = format!("no request {named:?}: {there}");
            usage(suite.wrong(loading.line, what).to_string())
        }
    }
}
