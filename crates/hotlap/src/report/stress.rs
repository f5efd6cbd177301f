//! The effect of overload, slow clients and malformed input on servers.
//!
//! Servers are not compared with each other. Each scenario has a verdict rather than a figure with
//! an interval.

use hotlap_bench::stress::{
    ClientService, ERRORS, Fate, Impact, MEMORY_LEAST_BYTES, MEMORY_TIMES, Observed, P99_LEAST_NS,
    P99_TIMES, PACE, StressTrial, Subject, THREADS_LEAST, THREADS_TIMES, words,
};
use serde::Serialize;

use crate::model::{Run, ServerFailure};
use crate::text::number;
use crate::text::table::{Cell, Column, Table, Tone, UNKNOWN};

/// The results of a stress run.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stress {
    /// The title, in parts: the scenario if there is only one, and the number of normal clients.
    pub title: Vec<String>,
    /// The name and the description of each scenario.
    pub scenarios: Vec<(String, String)>,
    /// The meaning of each verdict except `unaffected`, one line each.
    pub rules: Vec<String>,
    /// The servers, in the order in which they were stressed.
    pub servers: Vec<StressedServer>,
    /// One sentence about each server that has a result.
    pub sentences: Vec<String>,
}

/// The results of one server.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StressedServer {
    /// The server's name in tables.
    pub name: String,
    /// The server's version, as its toolchain reports it.
    pub version: String,
    /// One result per scenario.
    pub results: Vec<ScenarioResult>,
    /// Why there are no further results, if the server failed.
    pub failure: Option<ServerFailure>,
    /// Notes about the server.
    pub notes: Vec<String>,
    /// The server's published socket errors under overload: `2016: 38 read, 21 write`.
    pub published: Vec<String>,
    /// All values that were measured in each scenario.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")
    )]
    pub measured: Vec<StressTrial>,
}

/// The result of one server in one scenario.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScenarioResult {
    /// The name of the scenario.
    pub scenario: String,
    /// The verdict: `unaffected`, `slowed`, `degraded`, `failing` or `down`.
    pub verdict: Impact,
    /// Throughput of normal clients during the scenario, relative to their fair share: `93%`.
    pub of_fair_share: String,
    /// The p99 of normal clients before and during the scenario: `1.2 ms → 3.1 ms`.
    pub p99: String,
    /// The number of requests of normal clients that failed during the scenario.
    pub errors: String,
    /// Outcomes of the other clients (`40 × 4xx, 20 closed`), or their throughput.
    pub others: String,
    /// Errors of the other clients, if they are well behaved: `38 × connection reset`, or `none`.
    pub others_errors: String,
    /// The memory before, during and after the scenario: `7 → 31 → 12 MB`.
    pub memory: String,
    /// The number of threads before, during and after the scenario.
    pub threads: String,
    /// The time from the end of the scenario to the first correct response on a new connection.
    pub recovered: String,
    /// The problems that led to the verdict. Empty if there are none.
    pub reasons: Vec<String>,
    /// The last lines that the server printed, if it exited.
    pub log_tail: Vec<String>,
}

impl Stress {
    /// Returns the stress results of a run. `None` if no server was stressed.
    pub fn of(run: &Run) -> Option<Self> {
        let good = run.stress.first()?.good;
        let servers: Vec<StressedServer> =
            run.stress.iter().map(|s| StressedServer::of(run, s)).collect();
        let mut scenarios: Vec<(String, String)> = Vec::new();
        for trial in run.stress.iter().flat_map(|s| &s.trials) {
            if !scenarios.iter().any(|(name, _)| *name == trial.scenario) {
                scenarios.push((trial.scenario.clone(), trial.about.clone()));
            }
        }
        let mut title = vec!["stress".to_owned()];
        if let [(name, about)] = scenarios.as_slice() {
            title.push(format!("{name}: {about}"));
        }
        title.push(format!("{good} normal clients, keep-alive"));
        Some(Self {
            title,
            scenarios,
            rules: rules(),
            sentences: servers.iter().filter_map(sentence).collect(),
            servers,
        })
    }

    /// Whether no server failed, and no scenario left a server down.
    pub fn all_stand(&self) -> bool {
        let stands = |s: &StressedServer| {
            s.failure.is_none() && s.measured.iter().all(|t| t.judgement.impact != Impact::Down)
        };
        self.servers.iter().all(stands)
    }
}

impl StressedServer {
    fn of(run: &Run, subject: &Subject) -> Self {
        let server = run.servers.iter().find(|s| s.name == subject.name);
        let published = server.into_iter().flat_map(|s| &s.published);
        Self {
            name: subject.name.clone(),
            version: subject.version.clone(),
            results: subject.trials.iter().map(ScenarioResult::of).collect(),
            failure: subject.failure.clone(),
            notes: subject.notes.clone(),
            published: published
                .filter_map(|then| {
                    let errors = socket_errors(then.figure.socket_errors?);
                    Some(format!("{}: {errors}", then.citation.year))
                })
                .collect(),
            measured: subject.trials.clone(),
        }
    }
}

/// Lists errors by kind, in the classes that wrk uses.
fn socket_errors([connect, read, write, timeout]: [u64; 4]) -> String {
    let kinds = [(connect, "connect"), (read, "read"), (write, "write"), (timeout, "timeout")];
    let some: Vec<String> = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{} {kind}", number::count(*count)))
        .collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

/// Lists failures by kind (`38 × connection reset, 3 × timeout`), or says why no client connected.
fn by_kind(pace: &ClientService) -> String {
    if let Some(why) = &pace.unreachable {
        return why.clone();
    }
    let mut kinds: Vec<(u64, &str)> = Vec::new();
    for failure in &pace.failures {
        match kinds.iter_mut().find(|(_, kind)| *kind == words(failure.failure)) {
            Some((count, _)) => *count += failure.count,
            None => kinds.push((failure.count, words(failure.failure))),
        }
    }
    kinds.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    kinds.extend((pace.unanswered > 0).then_some((pace.unanswered, "no response by the end")));
    let counts: Vec<String> =
        kinds.iter().map(|(count, kind)| format!("{} × {kind}", number::count(*count))).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

impl ScenarioResult {
    fn of(trial: &StressTrial) -> Self {
        let Observed { before, during, fate, held, recovered_ms, others, .. } = &trial.observed;
        let fair = during.requests_per_s * trial.observed.crowding.max(1.0);
        let share = fair / before.requests_per_s.max(f64::MIN_POSITIVE) * 100.0;
        let ms = |ns: u64| number::time(ns as f64 / 1e6);
        let p99 = match (before.p99_ns, during.p99_ns) {
            (_, 0) => UNKNOWN.to_owned(),
            (then, now) => format!("{} → {}", ms(then), ms(now)),
        };
        let mb = |bytes: u64| number::grouped(bytes as f64 / 1e6, 0);
        Self {
            scenario: trial.scenario.clone(),
            verdict: trial.judgement.impact,
            of_fair_share: format!("{}%", number::grouped(share, 0)),
            p99,
            errors: number::count(during.failed()),
            others: match (fate, others) {
                (Some(fate), _) => outcomes(fate),
                (None, Some(others)) => {
                    format!("{} requests/s", number::rate(others.requests_per_s))
                }
                (None, None) => String::new(),
            },
            others_errors: others.as_ref().map_or_else(String::new, by_kind),
            memory: held.map_or_else(String::new, |[first, middle, last]| {
                let [first, middle, last] = [first, middle, last].map(|h| mb(h.rss_bytes));
                format!("{first} → {middle} → {last} MB")
            }),
            threads: held.map_or_else(String::new, |[first, middle, last]| {
                format!("{} → {} → {}", first.threads, middle.threads, last.threads)
            }),
            recovered: recovered_ms.map_or_else(|| "never".to_owned(), number::time),
            reasons: trial.judgement.reasons.iter().map(ToString::to_string).collect(),
            log_tail: trial.log_tail.clone(),
        }
    }
}

/// Lists the outcomes of the attacking clients: `240 × 4xx, 20 closed`.
fn outcomes(fate: &Fate) -> String {
    let classes = [(2, "2xx"), (3, "3xx"), (4, "4xx"), (5, "5xx"), (0, "no HTTP")];
    let answered = classes.map(|(class, name)| (fate.of_class(class), format!("× {name}")));
    let rest = [
        (fate.closed, "closed".to_owned()),
        (fate.silent, "left waiting".to_owned()),
        (fate.refused, "refused".to_owned()),
    ];
    let parts = answered.into_iter().chain(rest).filter(|(count, _)| *count > 0);
    let parts: Vec<String> =
        parts.map(|(count, what)| format!("{} {what}", number::count(count))).collect();
    parts.join(", ")
}

/// Returns one sentence about a server. `None` if the server has no results.
fn sentence(server: &StressedServer) -> Option<String> {
    let all = server.results.len();
    let well = server.results.iter().filter(|l| l.verdict == Impact::Unaffected).count();
    if all == 0 {
        return None;
    }
    let worse: Vec<String> = [
        (Impact::Down, "down after"),
        (Impact::Failing, "requests from normal clients failed under"),
        (Impact::Degraded, "did not fully recover from"),
        (Impact::Slowed, "normal clients slowed by"),
    ]
    .iter()
    .filter_map(|(verdict, words)| {
        let of = server.results.iter().filter(|l| l.verdict == *verdict);
        let names: Vec<&str> = of.map(|l| l.scenario.as_str()).collect();
        (!names.is_empty()).then(|| format!("{words} {}", names.join(", ")))
    })
    .collect();
    Some(match worse.is_empty() {
        true if all == 1 => {
            format!("{} withstands {}.", server.name, server.results[0].scenario)
        }
        true => format!("{} withstands all {all} scenarios.", server.name),
        false if all == 1 => format!("{}: {}.", server.name, worse.join("; ")),
        false => {
            format!("{} withstands {well} of {all} scenarios; {}.", server.name, worse.join("; "))
        }
    })
}

fn rules() -> Vec<String> {
    vec![
        format!(
            "slowed: normal clients had under {:.0}% of their fair throughput, or a p99 over \
             {P99_TIMES:.0} times the fair p99 and {:.0} ms more than before the attack",
            PACE * 100.0,
            P99_LEAST_NS as f64 / 1e6
        ),
        format!(
            "degraded: serves again, but at under a third of its previous throughput, or stays \
             busy, or keeps too much: over {MEMORY_TIMES:.0} times its previous memory (and {} MB \
             more), or over {THREADS_TIMES:.0} times its previous threads (and {THREADS_LEAST} \
             more)",
            MEMORY_LEAST_BYTES / 1_000_000
        ),
        format!("failing: over {:.1}% of the normal clients' requests failed", ERRORS * 100.0),
        "down: ended, did not serve, or still failed requests once the stress was over".to_owned(),
    ]
}

/// A table of results, with remarks on its rows.
#[derive(Debug)]
pub struct StressSection {
    /// The name and version of the server, if the table is about one server. Empty otherwise.
    pub title: String,
    /// One row per scenario, or one row per server if there is only one scenario.
    pub table: Table,
    /// Remarks on the servers, in the order of the rows.
    pub remarks: Vec<Remark>,
}

/// A remark on a server.
#[derive(Debug, PartialEq, Eq)]
pub struct Remark {
    /// The remark, in one sentence.
    pub text: String,
    /// The last lines that the server printed.
    pub log_tail: Vec<String>,
}

impl Stress {
    /// Returns a table of all servers if there is only one scenario, and a table per server
    /// otherwise.
    pub fn sections(&self) -> Vec<StressSection> {
        if self.scenarios.len() == 1 {
            let rows = self.servers.iter().filter_map(|s| Some((s, s.results.first()?)));
            return vec![StressSection {
                title: String::new(),
                table: table(&rows.collect::<Vec<_>>(), Rows::Servers),
                remarks: self.servers.iter().flat_map(|s| remarks(s, Rows::Servers)).collect(),
            }];
        }
        let section = |server: &StressedServer| StressSection {
            title: match server.version.is_empty() {
                true => server.name.clone(),
                false => format!("{} · {}", server.name, server.version),
            },
            table: table(
                &server.results.iter().map(|result| (server, result)).collect::<Vec<_>>(),
                Rows::Scenarios,
            ),
            remarks: remarks(server, Rows::Scenarios),
        };
        self.servers.iter().map(section).collect()
    }

    /// Returns the sentences that add something to the tables. Empty if there is only one scenario.
    pub fn summary(&self) -> &[String] {
        if self.scenarios.len() == 1 { &[] } else { &self.sentences }
    }
}

/// What each row of a table shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    Servers,
    Scenarios,
}

fn table(rows: &[(&StressedServer, &ScenarioResult)], of: Rows) -> Table {
    let cells = |of: fn(&ScenarioResult) -> &str| rows.iter().map(move |(_, r)| of(r));
    let of_each_server = of == Rows::Servers;
    // In a table of servers, the errors by kind matter most. In a table of scenarios, the effect on
    // normal clients matters most.
    let unless_server = |column: Column, order| match of_each_server {
        true => column.drop_order(order),
        false => column,
    };
    let unless_scenario = |column: Column, order| match of_each_server {
        true => column,
        false => column.drop_order(order),
    };
    let names = match of {
        Rows::Servers => Column::name("server", rows.iter().map(|(s, _)| &s.name)),
        Rows::Scenarios => Column::name("scenario", cells(|r| &r.scenario)),
    };
    let published = rows.iter().filter(|_| of_each_server).map(|(s, _)| s.published.join("; "));
    let mut published: Vec<Cell> = published.map(Cell::from).collect();
    published.resize(rows.len(), Cell::default());
    Table::new(vec![
        names,
        Column::left("verdict", cells(|r| r.verdict.as_str())),
        unless_server(Column::right("of fair\nshare", cells(|r| &r.of_fair_share)), 6),
        unless_server(Column::right("p99", cells(|r| &r.p99)), 4),
        unless_server(Column::right("errors", cells(|r| &r.errors)), 5),
        Column::left("other clients", cells(|r| &r.others)).drop_order(3),
        unless_scenario(Column::left("their errors", cells(|r| &r.others_errors)), 4),
        Column::right("memory", cells(|r| &r.memory)).drop_order(2),
        Column::right("threads", cells(|r| &r.threads)).drop_order(1),
        unless_scenario(Column::right("recovery", cells(|r| &r.recovered)), 1),
        Column::left("published\nerrors", published).drop_order(3),
    ])
    .with_tones(rows.iter().map(|(_, result)| tone(result)).collect())
}

fn tone(result: &ScenarioResult) -> Tone {
    match result.verdict {
        Impact::Unaffected => Tone::Good,
        Impact::Failing | Impact::Down => Tone::Bad,
        Impact::Slowed | Impact::Degraded => Tone::Warning,
    }
}

/// Returns the remarks on a server, which appear next to its row or below its table.
fn remarks(server: &StressedServer, of: Rows) -> Vec<Remark> {
    let of_server = |text: String| match of {
        Rows::Servers => format!("{}: {text}", server.name),
        Rows::Scenarios => text,
    };
    let mut remarks = Vec::new();
    for result in server.results.iter().filter(|r| !(r.reasons.is_empty() && r.log_tail.is_empty()))
    {
        let about = match of {
            Rows::Servers => &server.name,
            Rows::Scenarios => &result.scenario,
        };
        remarks.push(Remark {
            text: format!("{about}: {}", result.reasons.join("; ")),
            log_tail: result.log_tail.clone(),
        });
    }
    if let Some(failure) = &server.failure {
        remarks.push(Remark {
            text: of_server(format!("{}: {}", failure.phase, failure.cause)),
            log_tail: failure.log_tail.clone(),
        });
        remarks.push(Remark { text: failure.remedy.clone(), log_tail: Vec::new() });
    }
    let notes = server.notes.iter().map(|note| of_server(format!("Note: {note}")));
    remarks.extend(notes.map(|text| Remark { text, log_tail: Vec::new() }));
    remarks.retain(|remark| !remark.text.is_empty());
    remarks
}
