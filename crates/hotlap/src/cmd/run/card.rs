//! The experiment card: who is to run, under which loads, and what is asked; typed, or read from a
//! suite.
//!
//! Apart from the grid because nothing is probed, built or started here: what is wrong with a
//! command line or a suite is told before anything has been waited for.

use std::hash::Hasher;
use std::time::Duration;

use anyhow::Context;
use fnv::FnvHasher;
use hotlap_bench::participant::{Load, Participant, Role};
use hotlap_bench::stress::Scenario;
use hotlap_bench::suite::{
    Absent, Loading, Publication, PublishedFigure, Question, Suite, Written,
};
use hotlap_load::plan::Reuse;
use hotlap_servers::contract::{Ask, Contract, Exchange, Name};
use hotlap_servers::launch::Counts;

use crate::assets;
use crate::cli::{RequestArgs, RunArgs, Shape};
use crate::cmd::load::requests::{headers, method, text_or_file};
use crate::exit::usage;
use crate::model::{self, Published, Than};
use crate::quantity;
use crate::redact;

/// Raced when nothing is named.
const QUICK: &str = "quick";

/// Connections, unless it is said.
const CONNECTIONS: usize = 64;

/// What is to be raced.
#[derive(Debug)]
pub struct Card {
    /// The suite that it was read from.
    pub suite: Option<Suite>,
    /// What is asked.
    pub question: Question,
    /// What servers of the catalogue are held to.
    pub contract: Option<Name>,
    /// What commands and URLs are asked.
    pub ask: Ask,
    /// Who is to run.
    pub runners: Vec<Runner>,
    /// Names typed for them, in their order.
    pub names: Vec<String>,
    /// The reference, as typed.
    pub reference: Option<String>,
    /// Time to spend, if it is said.
    pub budget: Option<Duration>,
    /// The relative half width of the intervals at which it stops early.
    pub precision: Option<f64>,
    /// Length of a slice, if it is said.
    pub slice: Option<Duration>,
    /// Cores for the servers.
    pub cpus: Option<usize>,
    loads: Vec<Loading>,
}

/// One who is to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Runner {
    /// A server of the catalogue or a pattern, a command, or a URL.
    pub run: String,
    /// What tables call it, if that is settled.
    pub name: Option<String>,
    /// How many cores it is to use, and its name without that.
    pub cpus: Option<(usize, String)>,
    /// The runner that it stands on, as an index.
    pub on: Option<usize>,
    /// A side effect that must happen once a request.
    pub counts: Option<Counts>,
    /// What was published for it; servers in it are indices of runners.
    pub published: Vec<Published>,
    /// The line of the suite that names it.
    pub line: usize,
}

impl Card {
    /// What the command line means.
    ///
    /// # Errors
    /// When it, or the suite that it names, makes no sense.
    pub fn of(args: &RunArgs) -> anyhow::Result<Self> {
        let named = match (&args.suite, args.servers.is_empty()) {
            (Some(suite), _) => suite,
            (None, true) => {
                needs_servers(args)?;
                QUICK
            }
            (None, false) => return Self::typed(args),
        };
        match Suite::open(named, &assets::suites()?) {
            Ok(suite) => Self::read(args, suite),
            Err(error) => usage(error.to_string()),
        }
    }

    fn typed(args: &RunArgs) -> anyhow::Result<Self> {
        let before = |place: usize| place.checked_sub(1).filter(|_| args.layers);
        let runner = |(place, run): (usize, &String)| Runner {
            run: run.clone(),
            name: None,
            cpus: None,
            on: before(place),
            counts: None,
            published: Vec::new(),
            line: 0,
        };
        Ok(Self {
            suite: None,
            question: if args.layers { Question::Layers } else { Question::Compare },
            contract: contract(args)?,
            ask: ask(&args.request)?,
            runners: args.servers.iter().enumerate().map(runner).collect(),
            names: args.names.clone(),
            reference: args.reference.clone(),
            budget: args.schedule.duration,
            precision: args.schedule.precision,
            slice: args.schedule.slice,
            cpus: args.schedule.server_cpus,
            loads: vec![shaped(&args.shape)],
        })
    }

    fn read(args: &RunArgs, suite: Suite) -> anyhow::Result<Self> {
        let typed = &args.schedule;
        let span = |said: &Option<Written>| written(&suite, said, quantity::span);
        let share = |said: &Option<Written>| written(&suite, said, quantity::share);
        let budget = typed.duration.map_or_else(|| span(&suite.budget), |typed| Ok(Some(typed)))?;
        let slice = typed.slice.map_or_else(|| span(&suite.slice), |typed| Ok(Some(typed)))?;
        let precision =
            typed.precision.map_or_else(|| share(&suite.precision), |typed| Ok(Some(typed)))?;
        let shape = &args.shape;
        let shapes =
            [shape.connections.is_some(), shape.disable_keepalive, shape.pipeline.is_some()];
        let loads = match suite.loads.as_slice() {
            [] => vec![shaped(shape)],
            _ if shapes.contains(&true) || shape.threads.is_some() => {
                return usage(format!(
                    "the suite {} says how servers are loaded: leave out -c, -t, --disable-keepalive and \
                     --pipeline",
                    suite.name
                ));
            }
            loads => loads.to_vec(),
        };
        Ok(Self {
            question: suite.question,
            contract: contract(args)?.or(suite.contract),
            ask: asked(&suite, &args.request)?,
            runners: runners(&suite),
            names: Vec::new(),
            reference: args.reference.clone(),
            budget,
            precision,
            slice,
            cpus: args.schedule.server_cpus.or(suite.cpus),
            loads,
            suite: Some(suite),
        })
    }

    /// What its report says of it.
    #[must_use]
    pub fn about(&self) -> &str {
        self.suite.as_ref().map_or("", |s| &s.about)
    }

    /// Who was published and takes no part.
    #[must_use]
    pub fn absent(&self) -> &[Absent] {
        self.suite.as_ref().map_or(&[], |s| &s.absent)
    }

    /// What each server meets once all is measured; for a stress, all that it meets.
    #[must_use]
    pub fn scenarios(&self) -> &[Scenario] {
        self.suite.as_ref().map_or(&[], |s| &s.stress)
    }

    /// Whether servers without a toolchain are left out.
    #[must_use]
    pub fn leaves_out_missing(&self) -> bool {
        self.suite.as_ref().is_some_and(|s| s.leave_out_missing)
    }

    /// The loads, for a generator of so many cores.
    ///
    /// # Errors
    /// When one makes no sense.
    pub fn loads(&self, cores: usize) -> anyhow::Result<Vec<Load>> {
        let load = |loading: &Loading| {
            let Loading { connections, pipeline, .. } = *loading;
            let threads = loading.threads.unwrap_or(cores.clamp(1, connections.max(1)));
            if connections == 0 || threads == 0 || pipeline == 0 {
                return usage(
                    "0 connections, threads or requests in flight send nothing: use at least 1",
                );
            }
            if threads > connections {
                return usage(format!(
                    "{threads} threads for {connections} connections: a thread needs a \
                     connection of its own, so use at most {connections} threads"
                ));
            }
            let (request, asked) = self.request(loading)?;
            Ok(Load {
                name: if loading.name.is_empty() { asked } else { loading.name.clone() },
                connections,
                threads,
                reuse: if loading.close { Reuse::Close } else { Reuse::KeepAlive },
                pipeline,
                request,
                rate: loading.rate,
            })
        };
        self.loads.iter().map(load).collect()
    }

    /// The loads as they are kept, with the requests that they send to these servers.
    #[must_use]
    pub fn described(&self, loads: &[Load], participants: &[Participant]) -> Vec<model::Load> {
        let request = |load: &Load| {
            let mut requests: Vec<String> = Vec::new();
            for participant in participants.iter().filter(|e| e.role != Role::Ceiling) {
                let exchange = participant.contract.exchanges.get(load.request);
                let request = exchange.map(|exchange| match participant.contract.name {
                    Some(_) => exchange.name.clone(),
                    None => described(exchange),
                });
                requests.extend(request.filter(|request| !requests.contains(request)));
            }
            requests.join(", ")
        };
        let described = |load| model::Load { request: request(load), ..model::Load::from(load) };
        loads.iter().map(described).collect()
    }

    /// Which request of the contract a load means: its index, and its name where it was named.
    fn request(&self, loading: &Loading) -> anyhow::Result<(usize, String)> {
        let Some(named) = &loading.request else { return Ok((0, String::new())) };
        let exchanges = self.contract.map(|name| Contract::of(name, None).exchanges);
        let names: Vec<String> =
            exchanges.unwrap_or_default().into_iter().map(|e| e.name).collect();
        let counted = named.parse().ok().filter(|n: &usize| *n < names.len());
        match counted.or_else(|| names.iter().position(|n| n == named)) {
            Some(found) => Ok((found, names[found].clone())),
            None => {
                let there = match names.is_empty() {
                    true => "say `contract` too".to_owned(),
                    false => format!("the contract has {}", names.join(", ")),
                };
                let suite = self.suite.as_ref().context("only a suite names requests")?;
                let what = format!("no request is called {named:?}: {there}");
                usage(suite.wrong(loading.line, what).to_string())
            }
        }
    }
}

/// A request to a command or URL: method and path, and a hash of its headers and body if it has
/// any, so that loads of two runs can be told apart. Of a header that may hold a secret, only the
/// name is hashed.
fn described(exchange: &Exchange) -> String {
    if exchange.headers.is_empty() && exchange.body.is_empty() {
        return exchange.name.clone();
    }
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        redact::is_secret(&name)
            || ["auth", "cookie", "key", "secret", "token"].iter().any(|part| name.contains(part))
    };
    let mut hasher = FnvHasher::default();
    for (name, value) in &exchange.headers {
        let value = if is_secret(name) { "" } else { value };
        hasher.write(format!("{}\n{value}\n", name.to_ascii_lowercase()).as_bytes());
    }
    hasher.write(&exchange.body);
    format!("{} (request {:08x})", exchange.name, hasher.finish() as u32)
}

/// Refuses options that are about the servers on the command line where there are none: the quick
/// suite would run in their place.
fn needs_servers(args: &RunArgs) -> anyhow::Result<()> {
    let given = [
        ("--layers", args.layers),
        ("--scenario", !args.scenarios.is_empty()),
        ("--stress", args.stress),
        ("--name", !args.names.is_empty()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => usage(format!(
            "{option} needs servers, and none is named: add them, for instance \
             `hotlap run go/net-http 'node app.js' {option} ...`"
        )),
    }
}

/// What a suite says of something, read; an error has its line.
fn written<T>(
    suite: &Suite,
    said: &Option<Written>,
    read: fn(&str) -> Result<T, String>,
) -> anyhow::Result<Option<T>> {
    let Some(said) = said else { return Ok(None) };
    match read(&said.text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => usage(suite.wrong(said.line, error).to_string()),
    }
}

/// The one load that the command line means.
fn shaped(shape: &Shape) -> Loading {
    Loading {
        name: String::new(),
        connections: shape.connections.unwrap_or(CONNECTIONS),
        threads: shape.threads,
        close: shape.disable_keepalive,
        pipeline: shape.pipeline.unwrap_or(1),
        request: None,
        rate: None,
        line: 0,
    }
}

fn runners(suite: &Suite) -> Vec<Runner> {
    let entries = suite.servers.iter().enumerate();
    let runner = |(index, entry): (usize, &hotlap_bench::suite::Entry)| Runner {
        run: entry.run.clone(),
        name: (entry.name.is_some() || entry.cpus.is_some()).then(|| entry.title()),
        cpus: entry.cpus.map(|n| (n, entry.name.clone().unwrap_or_else(|| entry.run.clone()))),
        on: entry.on,
        counts: entry.counts.clone(),
        published: suite.published.iter().flat_map(|s| published(s, index)).collect(),
        line: entry.line,
    };
    entries.map(runner).collect()
}

/// What a source published for one of the suite's entries.
fn published(source: &Publication, entry: usize) -> Vec<Published> {
    // Set against the reference's figure under the same load; its first, where it has none there.
    let than = |row: &PublishedFigure| {
        let reference = source.reference?;
        let own = || source.rows.iter().filter(|r| r.entry == reference);
        let base = own().find(|r| r.load == row.load)?;
        Some(Than { server: reference, requests_per_s: base.requests_per_s })
    };
    let rows = source.rows.iter().filter(|row| row.entry == entry);
    rows.map(|row| Published {
        load: row.load,
        called: row.called.clone(),
        requests_per_s: row.requests_per_s,
        latency_ms: row.latency_ms,
        memory_mb: row.memory_mb,
        cpu_percent: row.cpu_percent,
        than: than(row),
        year: source.year,
        source: source.source.clone(),
        machine: source.machine.clone(),
        command: source.command.clone(),
        doubt: row.doubt.clone(),
        source_doubt: source.doubt.clone(),
        socket_errors: row.socket_errors,
    })
    .collect()
}

fn contract(args: &RunArgs) -> anyhow::Result<Option<Name>> {
    let Some(name) = args.request.contract.as_deref() else { return Ok(None) };
    let all = Name::ALL.map(Name::as_str).join(", ");
    match Name::of(name) {
        Some(name) => Ok(Some(name)),
        None => usage(format!("no contract is called {name}: there are {all}")),
    }
}

/// The request for commands and URLs: what is typed goes before what the suite says.
fn asked(suite: &Suite, args: &RequestArgs) -> anyhow::Result<Ask> {
    let said = suite.request.clone().unwrap_or_default();
    let mut all: Vec<String> = said.headers.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    all.extend(args.headers.iter().cloned());
    ask(&RequestArgs {
        contract: None,
        path: args.path.clone().or(said.path),
        method: args.method.clone().or(said.method),
        headers: all,
        body: args.body.clone().or(said.body),
        expect_status: args.expect_status.or(said.expect_status),
        expect_body: args.expect_body.clone().or(said.expect_body),
        insecure: args.insecure,
    })
}

/// The request for commands and URLs.
fn ask(args: &RequestArgs) -> anyhow::Result<Ask> {
    let body = args.body.as_deref().map(text_or_file).transpose()?.unwrap_or_default();
    let usual = if body.is_empty() { "GET" } else { "POST" };
    let path = args.path.clone().unwrap_or_else(|| "/".to_owned());
    if !path.starts_with('/') || path.chars().any(|c| c.is_control() || c == ' ') {
        return usage(format!("{path:?} is no path: it begins with / and has no blanks"));
    }
    Ok(Ask {
        method: method(args.method.as_deref().unwrap_or(usual))?,
        path,
        headers: headers(&args.headers)?,
        body,
        status: args.expect_status,
        answer: args.expect_body.as_deref().map(text_or_file).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest of 32 bits with the value of a header in it can be tried against a list of guesses.
    #[test]
    fn the_value_of_a_header_that_is_redacted_is_not_in_the_digest() {
        let request = |name: &str, value: &str| {
            let headers = vec![(name.to_owned(), value.to_owned())];
            described(&Contract::custom(&Ask { headers, ..Ask::default() }).exchanges[0])
        };
        redact::names(&["x-of-this-test".to_owned()]);
        let named = request("X-Of-This-Test", "s3cr3t");
        assert!(named.starts_with("GET / (request "), "{named}");
        assert_eq!(named, request("x-of-this-test", "0th3r"));
        assert_eq!(request("Authorization", "Bearer a"), request("Authorization", "Bearer b"));
        assert_eq!(request("X-Token", "a"), request("X-Token", "b"));
        // Headers that hold no secret tell the loads of two runs apart.
        assert_ne!(request("X-Other", "s3cr3t"), request("X-Other", "0th3r"));
        assert_ne!(request("X-Of-This-Test", ""), request("X-Other", ""));
    }
}
