//! The requests: the contract of catalogue servers, and the request to commands and URLs.

use hotlap_bench::suite::Suite;
use hotlap_servers::contract::{Ask, Name};

use crate::cli::RequestArgs;
use crate::cmd::load::requests::{headers, method, text_or_file};
use crate::exit::usage;

/// The contract given by `--contract`, or else the suite's.
///
/// # Errors
/// When no contract has that name.
pub fn contract(args: &RequestArgs, suite: Option<&Suite>) -> anyhow::Result<Option<Name>> {
    let Some(name) = args.contract.as_deref() else {
        return Ok(suite.and_then(|suite| suite.contract));
    };
    let all = Name::ALL.map(Name::as_str).join(", ");
    match Name::of(name) {
        Some(name) => Ok(Some(name)),
        None => usage(format!("no contract {name}: there are {all}")),
    }
}

/// The request for commands and URLs. Flags take precedence over the suite; headers of both are
/// sent.
///
/// # Errors
/// When a path, method or header is malformed, or the file of a body cannot be read.
pub fn ask(args: &RequestArgs, suite: Option<&Suite>) -> anyhow::Result<Ask> {
    let said = suite.and_then(|suite| suite.request.clone()).unwrap_or_default();
    let mut all: Vec<String> = said.headers.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    all.extend(args.headers.iter().cloned());
    let read = |text: Option<String>| text.as_deref().map(text_or_file).transpose();
    let body = read(args.body.clone().or(said.body))?.unwrap_or_default();
    let usual = if body.is_empty() { "GET" } else { "POST" };
    let path = args.path.clone().or(said.path).unwrap_or_else(|| "/".to_owned());
    if !path.starts_with('/') || path.chars().any(|c| c.is_control() || c == ' ') {
        return usage(format!("{path:?} is not a path: it must begin with / and have no spaces"));
    }
    Ok(Ask {
        method: method(args.method.clone().or(said.method).as_deref().unwrap_or(usual))?,
        path,
        headers: headers(&all)?,
        body,
        status: args.expect_status.or(said.expect_status),
        answer: read(args.expect_body.clone().or(said.expect_body))?,
    })
}
