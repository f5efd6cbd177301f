//! `hotlap check`: build, start, verify the answers, stop. The catalogue's test.

use std::time::Duration;

use anyhow::Context;
use hotlap_harness::catalogue::Catalogue;
use hotlap_harness::contract::Name;
use hotlap_harness::cores;
use hotlap_harness::entrant::{Entrant, Load};
use hotlap_harness::live::{Live, Setting};
use hotlap_harness::manifest;
use hotlap_harness::process::Warden;
use hotlap_harness::toolchain::Unready;
use hotlap_harness::track::{Ready, Retired, Track};
use hotlap_load::plan::Reuse;
use serde_json::json;

use super::run::grid::{self, build_all};
use super::run::{GRACE, Logs, START_LIMIT};
use crate::cli::CheckArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::interrupt::Interrupt;
use crate::report::figure::{megabytes, time};
use crate::shelf;

/// One thing to check: a server under one contract, or why it cannot be.
struct Case {
    id: String,
    contract: String,
    version: String,
    entrant: Result<Entrant, Unready>,
}

/// What came of it.
enum Found {
    Passed(Ready),
    Built,
    Skipped(String, String),
    Failed(Retired),
}

/// Checks servers, one line each.
///
/// # Errors
/// When a name means nothing or the system refuses.
pub fn run(args: &CheckArgs, console: &Console) -> anyhow::Result<Exit> {
    let wanted = args.contract.as_deref().map(contract).transpose()?;
    let interrupt = Interrupt::listen()?;
    let cases = cases(args, wanted, &interrupt, console)?;
    let logs = Logs::new()?;
    let entrants: Vec<Entrant> =
        cases.iter().filter_map(|c| c.entrant.as_ref().ok().cloned()).collect();
    let mut track = track(&entrants, &logs, &interrupt)?;
    let width = cases.iter().map(|c| c.id.chars().count()).max().unwrap_or(0);
    let (mut all, mut next) = (Vec::new(), 0);
    for case in &cases {
        if interrupt.asked() {
            break;
        }
        let found = match &case.entrant {
            Err(why) => skipped_or_failed(why),
            Ok(_) if args.build_only => Found::Built,
            Ok(_) => {
                let found = track.start(next);
                let unclean = track.stop(next);
                next += 1;
                found.map_or_else(Found::Failed, |ready| with_note(ready, unclean))
            }
        };
        if !args.json {
            console.print(&line(case, &found, width, console))?;
        }
        all.push(found);
    }
    if args.json {
        let rows: Vec<_> = cases.iter().zip(&all).map(|(c, f)| as_json(c, f)).collect();
        console.print(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    }
    Ok(if interrupt.asked() { Exit::Interrupted } else { verdict(args, &all, console) })
}

fn contract(name: &str) -> anyhow::Result<Name> {
    let all = || Name::ALL.map(Name::as_str).join(", ");
    Name::of(name)
        .map_or_else(|| usage(format!("no contract is called {name}: there are {}", all())), Ok)
}

fn cases(
    args: &CheckArgs,
    wanted: Option<Name>,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    let mut servers: Vec<manifest::Server> = Vec::new();
    let strangers: Vec<&String> = args.servers.iter().filter(|s| grid::is_stranger(s)).collect();
    if strangers.is_empty() || strangers.len() < args.servers.len() {
        let catalogue = Catalogue::open(&shelf::servers()?)?;
        if let Some(broken) = catalogue.broken.first() {
            return usage(broken.to_string());
        }
        let patterns = args.servers.iter().filter(|s| !grid::is_stranger(s));
        for pattern in patterns {
            servers.extend(super::list::select(&catalogue, Some(pattern))?.into_iter().cloned());
        }
        if args.servers.is_empty() {
            servers = catalogue.servers;
        }
    }
    for text in strangers {
        let entrant = grid::stranger(text, args.shell)?;
        let (id, version) = (text.clone(), String::new());
        cases.push(Case { id, contract: "own".to_owned(), version, entrant: Ok(entrant) });
    }
    servers.retain(|s| wanted.is_none_or(|w| s.contracts.contains(&w)));
    let built = build_all(&servers.iter().collect::<Vec<_>>(), interrupt, console);
    for (server, built) in servers.iter().zip(built) {
        for &name in server.contracts.iter().filter(|c| wanted.is_none_or(|w| w == **c)) {
            let version = built.as_ref().map_or(String::new(), |b| b.version.clone());
            let entrant = match &built {
                Err(why) => Err(why.clone()),
                Ok(built) => {
                    let (launch, version) = (built.launch(server), built.version.clone());
                    Ok(grid::catalogued(&server.id, server, Some(name), launch, version)?)
                }
            };
            let contract = name.as_str().to_owned();
            cases.push(Case { id: server.id.clone(), contract, version, entrant });
        }
    }
    Ok(cases)
}

fn track(entrants: &[Entrant], logs: &Logs, interrupt: &Interrupt) -> anyhow::Result<Live> {
    let setting = Setting {
        lap: Duration::from_millis(500),
        ramp: Duration::ZERO,
        timeout: Duration::from_secs(2),
        start_limit: START_LIMIT,
        warm_limit: Duration::from_secs(1),
        grace: GRACE,
        freeze: false,
        counters: false,
        cores: cores::split_here(None),
        warden: Warden::this_program("__warden").context("cannot find hotlap's own program")?,
        logs: logs.folder().to_owned(),
    };
    let load = Load {
        name: String::new(),
        connections: 1,
        threads: 1,
        reuse: Reuse::KeepAlive,
        pipeline: 1,
        request: 0,
    };
    Ok(Live::new(setting, entrants, &[load], interrupt.shared()))
}

fn with_note(mut ready: Ready, unclean: Option<String>) -> Found {
    ready.notes.extend(unclean);
    Found::Passed(ready)
}

fn skipped_or_failed(why: &Unready) -> Found {
    match why {
        Unready::Absent(a) => Found::Skipped(format!("{}: {}", a.command, a.why), a.cure.clone()),
        Unready::Failed(e) => Found::Failed(Retired {
            phase: "build".to_owned(),
            cause: format!("{}: {}", e.what, e.cause),
            last_words: e.last_words.clone(),
            cure: e.cure.clone(),
        }),
    }
}

fn line(case: &Case, found: &Found, width: usize, console: &Console) -> String {
    let ink = |code: &'static str| if console.color { code } else { "" };
    let (word, color, rest) = match found {
        Found::Passed(ready) => {
            let badges = match ready.badges {
                (_, 0) => String::new(),
                (passed, made) => format!("{passed}/{made}"),
            };
            let rss = match ready.rss_bytes {
                0 => String::new(),
                bytes => megabytes(bytes as f64).text,
            };
            let rest =
                format!("{badges:>5}  {:>8}  {rss:>7}  {}", time(ready.ready_ms), case.version);
            ("ok", ink("\x1b[32m"), rest)
        }
        Found::Built => ("built", ink("\x1b[32m"), case.version.clone()),
        Found::Skipped(why, _) => ("skip", ink("\x1b[33m"), why.clone()),
        Found::Failed(why) => ("FAILED", ink("\x1b[31m"), why.to_string()),
    };
    let mut out = format!(
        "{color}{word:<6}{}  {:<width$}  {:<8}  {rest}",
        ink("\x1b[0m"),
        case.id,
        case.contract
    );
    out.truncate(out.trim_end().len());
    out.push('\n');
    match found {
        Found::Passed(ready) if !console.quiet => {
            ready.notes.iter().for_each(|note| out += &format!("          {note}\n"));
        }
        Found::Skipped(_, cure) => out += &format!("          {cure}\n"),
        Found::Failed(why) => {
            for words in &why.last_words {
                let tame: String =
                    words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                out += &format!("          | {tame}\n");
            }
            if !why.cure.is_empty() {
                out += &format!("          {}\n", why.cure);
            }
        }
        _ => {}
    }
    out
}

fn as_json(case: &Case, found: &Found) -> serde_json::Value {
    let mut row = json!({
        "id": case.id,
        "contract": case.contract,
        "version": case.version,
    });
    let more = match found {
        Found::Passed(ready) => json!({
            "state": "passed",
            "badges": ready.badges,
            "ready_ms": ready.ready_ms,
            "rss_bytes": ready.rss_bytes,
            "notes": ready.notes,
        }),
        Found::Built => json!({ "state": "built" }),
        Found::Skipped(why, cure) => json!({ "state": "skipped", "why": why, "cure": cure }),
        Found::Failed(why) => json!({ "state": "failed", "why": why }),
    };
    if let (Some(row), serde_json::Value::Object(more)) = (row.as_object_mut(), more) {
        row.extend(more);
    }
    row
}

fn verdict(args: &CheckArgs, all: &[Found], console: &Console) -> Exit {
    let count = |is: fn(&Found) -> bool| all.iter().filter(|f| is(f)).count();
    let failed = count(|f| matches!(f, Found::Failed(_)));
    let skipped = count(|f| matches!(f, Found::Skipped(..)));
    let passed = all.len() - failed - skipped;
    console.note(&format!("\n{passed} passed, {failed} failed, {skipped} skipped."));
    match failed > 0 || (args.strict && skipped > 0) {
        true => Exit::ServerFailed,
        false => Exit::Ok,
    }
}
