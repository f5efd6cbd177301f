//! The requests of a run: contracts for catalogue servers, and requests for commands and URLs.

use hotlap_bench::suite::Suite;
use hotlap_servers::contract::{Ask, Fields, Name, Requests};

use crate::cli::{ReplayMode, RequestArgs};
use crate::cmd::load::access_log;
use crate::cmd::load::requests::{expected, from_file, headers, method, text_or_file};
use crate::exit::usage;

/// Returns the contracts given by `--contract`, or else by the suite. An empty list means that each
/// server has its usual contract.
pub fn contracts(args: &RequestArgs, suite: Option<&Suite>) -> anyhow::Result<Vec<Name>> {
    let contracts = match args.contract.as_deref() {
        Some(names) => Name::list(names).or_else(usage)?,
        None => suite.map_or_else(Vec::new, |suite| suite.contracts.clone()),
    };
    match contracts.iter().find(|name| name.is_a_mix()) {
        Some(mix) if contracts.len() > 1 => {
            usage(format!("the contract {mix} has several requests: measure it in a separate run"))
        }
        _ => Ok(contracts),
    }
}

/// Returns the requests to commands and URLs, and notes for the user. The requests come from a
/// requests file or an access log, or from the flags and the suite. `seed` is the seed of the
/// requests' fields.
pub fn requests(
    args: &RequestArgs,
    suite: Option<&Suite>,
    seed: u64,
) -> anyhow::Result<(Requests, Vec<String>)> {
    let (file, log) = match (&args.requests_file, &args.ask.access_log, suite) {
        (None, None, Some(suite)) => (&suite.requests_file, &suite.access_log),
        (file, log, _) => (file, log),
    };
    if let Some(log) = log {
        if args.ask.replay.replay == Some(ReplayMode::Times) {
            return usage(
                "--replay times works with `hotlap load` only, because a run chooses the rates \
                 itself: leave out --replay times",
            );
        }
        let headers = headers(&args.ask.headers)?;
        let (log, notes) = access_log::read(log, args.ask.replay, seed, 1.0, &headers)?;
        return Ok((log.requests, notes));
    }
    access_log::needs_log(args.ask.replay)?;
    let Some(file) = file else { return Ok((ask(args, suite)?.into(), Vec::new())) };
    let common = Ask { headers: headers(&args.ask.headers)?, ..Ask::default() };
    let (server, requests) = from_file(file, None, &common)?;
    if server.is_some() {
        return usage(format!(
            "{} names a server, but a run sends these requests to each server: write paths instead \
             of URLs",
            file.display()
        ));
    }
    let fields = Fields { seed, ..requests.fields };
    Ok((Requests { fields, ..requests }, Vec::new()))
}

/// Returns the single request to commands and URLs. Flags take precedence over the suite, but the
/// headers of both are sent.
fn ask(args: &RequestArgs, suite: Option<&Suite>) -> anyhow::Result<Ask> {
    let said = suite.and_then(|suite| suite.request.clone()).unwrap_or_default();
    let mut all: Vec<String> = said.headers.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    all.extend(args.ask.headers.iter().cloned());
    let read = |text: Option<String>| text.as_deref().map(text_or_file).transpose();
    let body = read(args.ask.body.clone().or(said.body))?.unwrap_or_default();
    let usual = if body.is_empty() { "GET" } else { "POST" };
    let path = args.path.clone().or(said.path).unwrap_or_else(|| "/".to_owned());
    if !path.starts_with('/') || path.chars().any(|c| c.is_control() || c == ' ') {
        return usage(format!(
            "{path:?} is not a path: a path begins with / and has no spaces or control characters"
        ));
    }
    Ok(Ask {
        name: None,
        weight: 1,
        method: method(args.ask.method.clone().or(said.method).as_deref().unwrap_or(usual))?,
        path,
        headers: headers(&all)?,
        body,
        status: expected(args.ask.expect_status.or(said.expect_status)),
        answer: read(args.ask.expect_body.clone().or(said.expect_body))?,
    })
}
