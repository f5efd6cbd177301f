//! The results of a stress run as tables with remarks, for every output.

use hotlap_bench::stress::Impact;

use super::{ScenarioResult, Stress, StressedServer};
use crate::text::table::{Cell, Column, Table, Tone};

/// A table, with remarks on its rows.
#[derive(Debug)]
pub struct StressSection {
    /// The server, if the table is about one; else empty.
    pub title: String,
    /// One row per scenario, or one row per server if there is one scenario.
    pub table: Table,
    /// Problems of the servers, in the order of the rows.
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
    /// One table of all servers if there is one scenario, else one table per server.
    pub fn sections(&self) -> Vec<StressSection> {
        if self.scenarios.len() == 1 {
            let rows = self.servers.iter().filter_map(|s| Some((s, s.results.first()?)));
            return vec![StressSection {
                title: String::new(),
                table: table(&rows.collect::<Vec<_>>(), Subject::Server),
                remarks: self.servers.iter().flat_map(|s| remarks(s, Subject::Server)).collect(),
            }];
        }
        let section = |server: &StressedServer| StressSection {
            title: match server.version.is_empty() {
                true => server.name.clone(),
                false => format!("{} · {}", server.name, server.version),
            },
            table: table(
                &server.results.iter().map(|result| (server, result)).collect::<Vec<_>>(),
                Subject::Scenario,
            ),
            remarks: remarks(server, Subject::Scenario),
        };
        self.servers.iter().map(section).collect()
    }

    /// The sentences that add something to the tables.
    pub fn summary(&self) -> &[String] {
        if self.scenarios.len() == 1 { &[] } else { &self.sentences }
    }
}

/// What the rows of a table stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Server,
    Scenario,
}

fn table(rows: &[(&StressedServer, &ScenarioResult)], subject: Subject) -> Table {
    let cells = |of: fn(&ScenarioResult) -> &str| rows.iter().map(move |(_, r)| of(r));
    let of_each_server = subject == Subject::Server;
    // For several servers under overload, errors by kind matter most; for several scenarios, the
    // effect on normal clients does.
    let unless_server = |column: Column, order| match of_each_server {
        true => column.drop_order(order),
        false => column,
    };
    let unless_scenario = |column: Column, order| match of_each_server {
        true => column,
        false => column.drop_order(order),
    };
    let names = match subject {
        Subject::Server => Column::name("server", rows.iter().map(|(s, _)| &s.name)),
        Subject::Scenario => Column::name("scenario", cells(|r| &r.scenario)),
    };
    let published = rows.iter().filter(|_| of_each_server).map(|(s, _)| s.published.join("; "));
    let mut published: Vec<Cell> = published.map(Cell::from).collect();
    published.resize(rows.len(), Cell::default());
    Table::new(vec![
        names,
        Column::left("verdict", cells(|r| r.verdict.as_str())),
        unless_server(Column::right("of fair\nshare", cells(|r| &r.of_fair_share)), 2),
        unless_server(Column::right("p99", cells(|r| &r.p99)), 4),
        unless_server(Column::right("errors", cells(|r| &r.errors)), 2),
        Column::left("other clients", cells(|r| &r.others)).drop_order(5),
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

/// Remarks on a server, next to its row or table.
fn remarks(server: &StressedServer, subject: Subject) -> Vec<Remark> {
    let of_server = |text: String| match subject {
        Subject::Server => format!("{}: {text}", server.name),
        Subject::Scenario => text,
    };
    let mut remarks = Vec::new();
    for result in server.results.iter().filter(|r| !(r.reasons.is_empty() && r.log_tail.is_empty()))
    {
        let about = match subject {
            Subject::Server => &server.name,
            Subject::Scenario => &result.scenario,
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
