//! The end of a run: the table, the exports, and the exit code.

use std::collections::BTreeSet;

use hotlap_bench::experiment::Over;
use hotlap_bench::suite::Question;
use hotlap_bench::validity::is_failing;

use super::rule::Ruling;
use super::spec::{RunSpec, Storage};
use crate::console::Console;
use crate::exit::Exit;
use crate::export::Exports;
use crate::model::{Role, Run, Server, Violation};
use crate::recorder::Kept;
use crate::render::terminal;
use crate::report::Report;

/// Prints the table of a run that has ended, writes the exports, and returns the exit code.
pub fn finish(
    kept: &Kept,
    spec: &RunSpec,
    exports: &mut Exports,
    console: &Console,
) -> anyhow::Result<Exit> {
    let mut report = Report::of(&kept.run);
    let ruling = Ruling::on(&report, &spec.rules);
    report.broken.clone_from(&ruling.broken);
    report.ruling = ruling.sentences().cloned().collect();
    let printed = console.result(exports.to_stdout(), |color| {
        let render = if spec.has_details { terminal::detailed } else { terminal::render };
        let mut text = render(&report, console.width, color);
        let has_laps = !kept.run.laps.is_empty() || !kept.run.stress.is_empty();
        let is_told = has_laps && !kept.store_failed && !console.quiet;
        // The store of a shard is published only after a complete run, and then announced.
        if let Some(number) = kept.run.number.filter(|_| is_told && spec.shard.is_none()) {
            text += &stored(number, &spec.storage, exports.is_empty());
        }
        text
    });
    // Every export is tried, even if another export fails.
    let exported = exports.finish(&report);
    if kept.store_failed {
        console.warn(&match &kept.rescued {
            Some(path) => format!(
                "Warning: the store failed. The run is in a store of its own: hotlap report --store \
                 {}",
                shell_words::quote(&path.to_string_lossy())
            ),
            None => "Warning: the store failed, and the run could not be stored anywhere else: \
                     save this output"
                .to_owned(),
        });
    }
    exported?;
    // A closed pipe (`hotlap run | head`) or terminal changes neither exports nor the exit code.
    if let Err(error) = printed
        && error.kind() != std::io::ErrorKind::BrokenPipe
        && kept.over != Over::Interrupted
    {
        return Err(error.into());
    }
    let mut exit = match () {
        () if kept.over == Over::Interrupted => Exit::Interrupted,
        () if kept.run.servers.iter().any(has_failed) => Exit::ServerFailed,
        () if has_wrong_responses(&report, kept) => Exit::ServerFailed,
        () if fails_requests(&kept.run) => Exit::ServerFailed,
        () if report.stress.as_ref().is_some_and(|s| !s.all_stand()) => Exit::ServerFailed,
        () if kept.run.question == Question::Stress => Exit::Ok,
        () if kept.run.question == Question::Capacity => match is_searched(&report) {
            true => Exit::Ok,
            false => Exit::Invalid,
        },
        () if kept.run.question == Question::Explain => match report.explanations.is_empty() {
            true => Exit::Invalid,
            false => Exit::Ok,
        },
        () if !is_measured(&report) => Exit::Invalid,
        () => Exit::Ok,
    };
    if kept.store_failed {
        exit = exit.and(Exit::Error);
    }
    ruling.sentences().for_each(|sentence| console.warn(sentence));
    Ok(exit.and(ruling.exit()))
}

/// Whether a server failed. The A/A control does not count: as a second copy of a server, it is not
/// needed for the comparison.
fn has_failed(server: &Server) -> bool {
    server.failure.is_some() && server.role != Role::Control
}

fn has_wrong_responses(report: &Report, kept: &Kept) -> bool {
    let is_wrong = |violation: &Violation| matches!(violation, Violation::WrongAnswers { .. });
    report.tables.iter().flat_map(|t| &t.rows).any(|row| row.wrong_responses > 0)
        || kept.run.explain.iter().flat_map(|explains| &explains.lap.failed).any(is_wrong)
}

/// Whether a server failed more requests under a load than the validity checks allow in a lap. Only
/// comparisons count, because searches and stress runs make servers fail on purpose.
fn fails_requests(run: &Run) -> bool {
    if !matches!(run.question, Question::Compare | Question::Layers | Question::Scale) {
        return false;
    }
    let pairs: BTreeSet<(usize, usize)> =
        run.laps.iter().map(|lap| (lap.server, lap.load)).collect();
    pairs.into_iter().any(|pair| {
        let own = run.laps.iter().filter(|lap| (lap.server, lap.load) == pair);
        is_failing(own.map(|lap| &lap.outcome))
    })
}

/// Whether a search has a result for every server that took part.
fn is_searched(report: &Report) -> bool {
    let rows = || report.capacity.iter().flat_map(|results| &results.rows);
    rows().next().is_some() && rows().all(|row| row.capacity.is_some() || row.below.is_some())
}

/// Whether every server that took part, except for the ceiling, has figures under every load.
fn is_measured(report: &Report) -> bool {
    let rows = || {
        let all = report.tables.iter().flat_map(|t| &t.rows);
        all.filter(|row| row.role != Role::Ceiling)
    };
    rows().next().is_some() && rows().all(|row| row.requests_per_s.is_some())
}

/// Tells the user how to show a stored run again.
fn stored(number: u64, storage: &Storage, needs_page: bool) -> String {
    let store = match storage {
        Storage::File(file) => format!(" --store {}", shell_words::quote(&file.to_string_lossy())),
        Storage::Usual | Storage::None => String::new(),
    };
    let page = if needs_page { " --export-html report.html" } else { "" };
    format!("  Run {number} stored. Look at it: hotlap report {number}{store}{page}\n")
}
