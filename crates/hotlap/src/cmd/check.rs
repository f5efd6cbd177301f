//! `hotlap check`: builds servers, starts them, verifies their responses and stops them. This
//! command is the test of the catalogue.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use hotlap_bench::participant::Origin;
use hotlap_servers::build::Builder;
use hotlap_servers::catalogue::{Catalogue, CatalogueServer, SpokenProtocol};
use hotlap_servers::check::{CheckOutcome, CheckedServer, Checker, ContractReport};
use hotlap_servers::contract::Name;
use hotlap_servers::database::{Database, DatabaseSetting, Programs, Schema};
use hotlap_servers::process::Supervisor;
use serde_json::json;

use super::load::requests::expected;
use super::run::logs::Logs;
use super::run::measure::start_database;
use super::run::spec::server;
use super::setup::build_all;
use crate::assets;
use crate::cli::CheckArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::interrupt::Interrupt;
use crate::paths;
use crate::text::number::{megabytes, time};
use crate::text::{visible, visible_lines, wrap};

/// The indentation of the lines below a row.
const INDENT: usize = 10;

/// Checks servers, and prints one line for each, with its problems below.
pub fn run(args: &CheckArgs, console: &Console) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let contracts = args.contract.as_deref().map_or(Ok(Vec::new()), Name::list).or_else(usage)?;
    let (servers, strangers) = chosen(args, &contracts)?;
    let servers: Vec<&CatalogueServer> = servers.iter().collect();
    let supervisor =
        Supervisor::this_program("__supervisor").context("cannot find hotlap's own program")?;
    let built = build_all(&servers, &supervisor, &interrupt, console)?;
    if args.build_only {
        return built_only(&servers, &built, console);
    }
    let cache = paths::cache()?;
    let logs = Logs::new()?;
    let database = database(&servers, &supervisor, &logs, &interrupt, console)?;
    let checker = Checker {
        database: database.as_ref(),
        builder: Builder {
            cache: &cache,
            supervisor: &supervisor,
            stop: interrupt.flag(),
            on: &|_| {},
        },
        logs: logs.folder(),
        start_limit: args.start.start_timeout,
        contracts: &contracts,
    };
    let names = servers.iter().map(|s| &s.id).chain(&strangers);
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let failed = Mutex::new(None);
    let show = |row: &CheckedServer| {
        if !args.json {
            // An error is reported at the end, so that the remaining servers are still checked.
            if let Err(error) = console.print(&line(row, width, console)) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    };
    let at_a_time = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut rows = checker.check_all(&servers, at_a_time, &show);
    for (number, text) in (servers.len()..).zip(&strangers) {
        let row = custom(&checker, number, text, args)?;
        show(&row);
        rows.push(row);
    }
    if args.json {
        let rows: Vec<_> = rows.iter().map(as_json).collect();
        console.json(&rows)?;
    }
    let exit = if interrupt.asked() { Exit::Interrupted } else { verdict(args, &rows, console) };
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(exit), |error| Err(error.into()))
}

/// Starts the database if a server needs one. Without PostgreSQL, such servers are skipped.
fn database(
    servers: &[&CatalogueServer],
    supervisor: &Supervisor,
    logs: &Logs,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Option<Arc<Database>>> {
    let servers = servers.iter().filter(|server| server.needs_database()).count();
    let (1.., Ok(programs)) = (servers, Programs::find(None)) else { return Ok(None) };
    let (schema, cores) = (Schema::Contracts, Vec::new());
    let setting = DatabaseSetting { programs, schema, url: None, cores, servers };
    start_database(&setting, supervisor, logs, interrupt, console).map(Some)
}

/// Returns the selected servers of the catalogue, and the given commands and URLs.
fn chosen(
    args: &CheckArgs,
    contracts: &[Name],
) -> anyhow::Result<(Vec<CatalogueServer>, Vec<String>)> {
    let (strangers, patterns): (Vec<String>, Vec<String>) =
        args.servers.iter().cloned().partition(|s| server::is_custom(s));
    if strangers.is_empty() && args.expect_status.is_some() {
        return usage(
            "--expect-status applies to commands and URLs, but only built-in servers are checked, \
             whose contracts define the responses. Leave out --expect-status",
        );
    }
    let mut servers = Vec::new();
    if strangers.is_empty() || !patterns.is_empty() {
        let catalogue = Catalogue::open(&assets::servers()?)?;
        if let Some(broken) = catalogue.broken.first() {
            return usage(broken.to_string());
        }
        for pattern in &patterns {
            let found = super::list::select(&catalogue, Some(pattern));
            let found = found.or_else(|error| usage(server::unknown(&error)))?;
            servers.extend(found.into_iter().cloned());
        }
        if patterns.is_empty() {
            servers = catalogue.servers;
        }
    }
    if !contracts.is_empty() {
        servers.retain(|server| server.contracts.iter().any(|name| contracts.contains(name)));
    }
    Ok((servers, strangers))
}

fn custom(
    checker: &Checker,
    number: usize,
    text: &str,
    args: &CheckArgs,
) -> anyhow::Result<CheckedServer> {
    let (start, mut ask) = server::custom(text, args.shell)?;
    ask.status = expected(args.expect_status);
    match (&start, &args.path) {
        (_, None) => {}
        (Origin::Running { .. }, Some(_)) => {
            return usage(
                "--path applies to commands only. Put the path of a URL into the URL, as in \
                 http://localhost:8080/health.",
            );
        }
        (Origin::Launch(_), Some(path)) if path.starts_with('/') => ask.path.clone_from(path),
        (Origin::Launch(_), Some(path)) => {
            return usage(format!(
                "--path {path}: a path must begin with /, as in --path /{path}."
            ));
        }
    }
    Ok(match start {
        Origin::Launch(launch) => checker.check_command(number, text, launch, &ask),
        Origin::Running { target, host, .. } => {
            checker.check_running(text, &target, &host, &ask, false)
        }
    })
}

fn built_only(
    servers: &[&CatalogueServer],
    built: &[Result<hotlap_servers::build::Built, hotlap_servers::build::Unready>],
    console: &Console,
) -> anyhow::Result<Exit> {
    let mut exit = Exit::Ok;
    for (server, built) in servers.iter().zip(built) {
        let state = match built {
            Ok(built) => format!("built   {}  {}", server.id, built.version),
            Err(why) => {
                exit = Exit::ServerFailed;
                format!("NOT     {}  {why}", server.id)
            }
        };
        console.print(&format!("{}\n", visible_lines(&state)))?;
    }
    Ok(exit)
}

/// Formats a row as one line, with its problems in the lines below.
fn line(row: &CheckedServer, width: usize, console: &Console) -> String {
    let ink = |code: &'static str| if console.color { code } else { "" };
    let mut contracts: Vec<&str> =
        row.reports.iter().filter_map(|report| Some(report.contract?.as_str())).collect();
    // The checks over a second protocol repeat the same contracts.
    let mut seen = HashSet::new();
    contracts.retain(|name| seen.insert(*name));
    let (word, color, rest) = match &row.outcome {
        CheckOutcome::Passed => {
            let (passed, made) = row.conformance();
            let rss = match row.rss_bytes {
                0 => String::new(),
                bytes => megabytes(bytes as f64),
            };
            let ready = match row.ready {
                Duration::ZERO => String::new(),
                ready => time(ready.as_secs_f64() * 1e3),
            };
            let conformance = match made {
                0 => String::new(),
                made => format!("{passed}/{made}"),
            };
            let others: Vec<&str> = others(row).map(SpokenProtocol::as_str).collect();
            let others = match others.is_empty() {
                true => String::new(),
                false => format!("{} ok, ", others.join(" ")),
            };
            let rest = format!("{conformance:>5}  {ready:>7}  {rss:>7}  {others}{}", row.version);
            ("ok", "\x1b[32m", rest)
        }
        CheckOutcome::Skipped(absence) => {
            ("skip", "\x1b[33m", format!("{}: {}", absence.command, absence.why))
        }
        CheckOutcome::Unbuilt(error) => ("FAILED", "\x1b[31m", error.to_string()),
        CheckOutcome::ServerFailure(failure) => ("FAILED", "\x1b[31m", failure.to_string()),
        CheckOutcome::Failed => ("FAILED", "\x1b[31m", wrong(row)),
    };
    let contracts = contracts.join(" ");
    let (color, plain) = (ink(color), ink("\x1b[0m"));
    let (id, rest) = (visible(&row.id), visible_lines(&rest));
    let mut out = format!("{color}{word:<6}{plain}  {id:<width$}  {contracts:<14}  {rest}");
    out.truncate(out.trim_end().len());
    out.push('\n');
    for below in below(row, console) {
        for words in below.lines() {
            out += &" ".repeat(INDENT);
            out += &visible(words);
            out.push('\n');
        }
    }
    out
}

/// The checked protocols other than HTTP/1.1 without TLS.
fn others(row: &CheckedServer) -> impl Iterator<Item = SpokenProtocol> {
    let checked = |protocol: &SpokenProtocol| row.passed_over(*protocol).is_some();
    SpokenProtocol::ALL.into_iter().filter(|p| *p != SpokenProtocol::Http1).filter(checked)
}

/// Says which protocols had wrong responses, if more than HTTP/1.1 was checked.
fn wrong(row: &CheckedServer) -> String {
    let failed = |protocol: &SpokenProtocol| row.passed_over(*protocol) == Some(false);
    let over: Vec<&str> =
        SpokenProtocol::ALL.iter().filter(|p| failed(p)).map(|p| p.title()).collect();
    match others(row).next() {
        None => "wrong responses".to_owned(),
        Some(_) => format!("wrong responses over {}", over.join(" and ")),
    }
}

/// Returns the lines below a row: failed checks, the last output, the remedy, and notes.
fn below(row: &CheckedServer, console: &Console) -> Vec<String> {
    let over = |protocol: SpokenProtocol, what: String| match protocol {
        SpokenProtocol::Http1 => what,
        _ => format!("{}: {what}", protocol.title()),
    };
    let mut below: Vec<String> =
        row.failures().map(|(report, check)| over(report.protocol, check.to_string())).collect();
    let ended =
        |report: &ContractReport| Some(over(report.protocol, report.findings.ended.clone()?));
    below.extend(row.reports.iter().filter_map(ended));
    match &row.outcome {
        CheckOutcome::Skipped(absence) => below.push(absence.remedy.clone()),
        CheckOutcome::Unbuilt(error) => {
            below.extend(error.log_tail.iter().map(|l| format!("| {l}")))
        }
        CheckOutcome::ServerFailure(failure) => {
            below.extend(failure.log_tail.iter().map(|l| format!("| {l}")));
            below.push(failure.remedy.clone());
        }
        CheckOutcome::Passed | CheckOutcome::Failed => {}
    }
    if !console.quiet {
        let unmet = unmet(row);
        below.extend(unmet.map(|words| wrap(&words, 0, console.width.saturating_sub(INDENT))));
        below.extend(row.notes.iter().cloned());
    }
    below
}

/// Describes the conformance checks that a server fails. The row itself shows only how many checks
/// passed. `None` if the server passes all.
fn unmet(row: &CheckedServer) -> Option<String> {
    let (passed, made) = row.conformance();
    let failed: Vec<&str> = row.unmet().map(|check| check.name.as_str()).collect();
    let still = match row.outcome {
        CheckOutcome::Passed => " The server can still be measured.",
        _ => "",
    };
    (passed < made).then(|| {
        format!(
            "{} of {made} optional HTTP/1.1 checks failed: {}.{still} --json shows what each check \
             expected and got.",
            made - passed,
            failed.join(", ")
        )
    })
}

fn as_json(row: &CheckedServer) -> serde_json::Value {
    let (state, why) = match &row.outcome {
        CheckOutcome::Passed => ("passed", String::new()),
        CheckOutcome::Skipped(absence) => ("skipped", absence.to_string()),
        CheckOutcome::Unbuilt(error) => ("failed", error.to_string()),
        CheckOutcome::ServerFailure(failure) => ("failed", failure.to_string()),
        CheckOutcome::Failed => ("failed", wrong(row)),
    };
    let checks = |checks: &[hotlap_servers::verify::Check]| -> Vec<serde_json::Value> {
        checks
            .iter()
            .map(
                |c| json!({ "name": c.name, "expected": c.expected, "got": c.got, "pass": c.pass }),
            )
            .collect()
    };
    let reports: Vec<_> = row
        .reports
        .iter()
        .map(|ContractReport { contract, protocol, findings }| {
            json!({
                "contract": contract.map(Name::as_str),
                "protocol": protocol,
                "required": checks(&findings.required),
                "conformance": checks(&findings.conformance),
                "ended": findings.ended,
            })
        })
        .collect();
    json!({
        "id": row.id,
        "state": state,
        "why": why,
        "version": row.version,
        "ready_ms": row.ready.as_secs_f64() * 1e3,
        "rss_bytes": row.rss_bytes,
        "reports": reports,
        "notes": row.notes,
    })
}

/// Returns the exit code. A missing toolchain skips a row. With `--strict`, a skipped row is a
/// failure, unless no reachable registry has the toolchain.
fn verdict(args: &CheckArgs, rows: &[CheckedServer], console: &Console) -> Exit {
    use hotlap_servers::build::MissingKind::Unreachable;
    let count = |is: &dyn Fn(&CheckOutcome) -> bool| rows.iter().filter(|r| is(&r.outcome)).count();
    let passed = count(&|s| *s == CheckOutcome::Passed);
    let skipped = count(&|s| matches!(s, CheckOutcome::Skipped(_)));
    let missing = count(&|s| matches!(s, CheckOutcome::Skipped(a) if a.kind != Unreachable));
    let failed = rows.len() - passed - skipped;
    console.note(&format!("\n{passed} passed, {failed} failed, {skipped} skipped"));
    match failed > 0 || (args.strict && missing > 0) {
        true => Exit::ServerFailed,
        false => Exit::Ok,
    }
}
