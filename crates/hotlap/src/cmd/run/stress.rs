//! `hotlap run --stress`: what becomes of servers and of their good clients when others misbehave.

use std::time::SystemTime;

use anyhow::Context;
use hotlap_harness::cores::{self, Split};
use hotlap_harness::entrant::{Entrant, Role};
use hotlap_harness::host::Host;
use hotlap_harness::process::Warden;
use hotlap_harness::stress::{Event, Scenario, Setting, Timing, stress};

use super::card::Card;
use super::grid::Grid;
use super::{GRACE, Logs, START_LIMIT, unpinned};
use crate::cli::RunArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::export::Exports;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::record;
use crate::report::Form;
use crate::report::stress::{Heading, StressReport, json, markdown, terminal};

/// The good clients' connections: enough to keep a server of one thread at work all the time, and
/// few enough that each of them notices who else comes.
const GOOD: usize = 8;

/// How long one scenario takes, about, in seconds: the rest of it is waiting for the end.
const SCENARIO_S: usize = 3;

/// What is to be stressed, whoever asks: the command line or a suite.
#[derive(Debug)]
pub struct Order<'a> {
    /// Who is stressed, one after the other.
    pub entrants: &'a [Entrant],
    /// Who can take no part, with the reason.
    pub absent: &'a [record::Server],
    /// What happens to each.
    pub scenarios: Vec<Scenario>,
    /// Who runs on which cores.
    pub split: Split,
    /// A server on another machine may be stressed too.
    pub target_is_mine: bool,
    /// What a suite says of itself; empty when it is none.
    pub about: String,
}

/// Stresses what the command line names, or a suite does.
///
/// # Errors
/// When the command line makes no sense, a file cannot be written, or the system refuses.
pub fn run(card: &Card, args: &RunArgs, console: &Console) -> anyhow::Result<Exit> {
    let scenarios = chosen(&args.scenarios)?;
    if args.exports.export_csv.is_some() || args.exports.export_html.is_some() {
        return usage("a stress is exported with --export-json and --export-markdown");
    }
    let mut exports = Exports::open(&args.exports)?;
    let interrupt = Interrupt::listen()?;
    let grid = Grid::of(card, args, &interrupt, console)?;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    let (pinned, asked) = (!args.schedule.no_pin && !grid.all_run_already(), card.cpus);
    let named = |e: &&Entrant| matches!(e.role, Role::Contestant | Role::Reference);
    let entrants: Vec<Entrant> = grid.entrants.iter().filter(named).cloned().collect();
    let absent: Vec<record::Server> =
        grid.servers.iter().filter(|s| s.retired.is_some()).cloned().collect();
    let order = Order {
        entrants: &entrants,
        absent: &absent,
        scenarios,
        split: if pinned { cores::split_here(asked) } else { unpinned() },
        target_is_mine: args.shape.target_is_mine,
        about: card.suite.as_ref().map_or_else(String::new, |suite| suite.about.clone()),
    };
    let report = hold(order, &interrupt, console)?;
    conclude(&report, &mut exports, console)
}

/// The scenarios of these names; all, where none is named.
///
/// # Errors
/// When a name means none of them.
pub fn chosen(names: &[String]) -> anyhow::Result<Vec<Scenario>> {
    let all = Scenario::all();
    for name in names {
        if !all.iter().any(|s| s.name == *name) {
            let there: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
            return usage(format!(
                "no scenario is called {name:?}: there are {}",
                there.join(", ")
            ));
        }
    }
    let is_chosen = |s: &Scenario| names.is_empty() || names.contains(&s.name);
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// Stresses servers one after the other: only one of them runs at a time.
///
/// # Errors
/// When the system refuses what it takes.
pub fn hold(
    order: Order<'_>,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<StressReport> {
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (servers, scenarios) = (order.entrants.len(), order.scenarios.len());
    console.note(&format!(
        "Stressing {servers} server{} with {scenarios} scenario{}: about {} s.",
        if servers == 1 { "" } else { "s" },
        if scenarios == 1 { "" } else { "s" },
        servers * (scenarios * SCENARIO_S + 2)
    ));
    let logs = Logs::new()?;
    let mut title = vec!["stress".to_owned(), format!("{GOOD} good clients, keep-alive")];
    if !order.split.server.is_empty() {
        let (server, generator) = (&order.split.server, &order.split.generator);
        let (server, generator) = (cores::list(server), cores::list(generator));
        title.push(format!("server on core {server}, all clients on core {generator}"));
    }
    let setting = Setting {
        scenarios: order.scenarios,
        timing: Timing::default(),
        good: GOOD,
        cores: order.split,
        warden: Warden::this_program("__warden").context("cannot find hotlap's own program")?,
        logs: logs.folder().to_owned(),
        start_limit: START_LIMIT,
        grace: GRACE,
        target_is_mine: order.target_is_mine,
    };
    let mut live = Live::start(console);
    let mut subjects = Vec::new();
    for entrant in order.entrants {
        if interrupt.asked() {
            break;
        }
        subjects.push(stress(entrant, &setting, interrupt.flag(), &mut |event| match event {
            Event::Scenario { server, scenario } => live.phase(format!("{server}: {scenario}")),
            Event::Trial { server, trial } => {
                let verdict = trial.judgement.verdict.as_str();
                live.say(&format!("{server}: {}: {verdict}", trial.scenario));
            }
        }));
    }
    live.clear();
    let mut host = record::Host::from(&Host::describe());
    host.doubts.extend(setting.cores.notes.iter().cloned());
    let heading = Heading {
        began_ms: began.as_millis() as u64,
        command: std::env::args().collect(),
        about: order.about,
        title,
        host,
        interrupted: interrupt.asked(),
    };
    Ok(StressReport::of(&heading, &subjects, order.absent))
}

/// Prints and exports, and says how it ended: a server that is down, or could take no part, failed.
///
/// # Errors
/// When standard output or an export cannot be written.
pub fn conclude(
    report: &StressReport,
    exports: &mut Exports,
    console: &Console,
) -> anyhow::Result<Exit> {
    if !exports.to_stdout() {
        console.print(&terminal::render(report, console.width, console.color))?;
    }
    exports.finish_with(&|form| match form {
        Form::Markdown => markdown::render(report),
        _ => json::render(report),
    })?;
    Ok(match () {
        () if report.interrupted => Exit::Interrupted,
        () if !report.all_stand() => Exit::ServerFailed,
        () => Exit::Ok,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_chosen_by_name_and_what_is_none_is_told() {
        assert_eq!(chosen(&[]).unwrap().len(), 10);
        let two = chosen(&["garbage".to_owned(), "churn".to_owned()]).unwrap();
        assert_eq!(two.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["churn", "garbage"]);
        let error = chosen(&["garbag".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("no scenario is called \"garbag\": there are overload, churn"));
    }
}
