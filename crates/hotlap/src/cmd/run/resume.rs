//! `--resume`: continues an interrupted run with a new restart of every server.
//!
//! The order of the laps depends only on the seed, the restart and the round, so the order can be
//! continued. The interrupted restart keeps its laps. If a number of restarts was given, one more
//! replaces the interrupted one.

use std::time::Duration;

use hotlap_bench::experiment::{Experiment, Growth, Past, Place};
use hotlap_bench::participant::Participant;
use hotlap_stats::Histogram;

use super::logs::Logs;
use crate::exit::usage;
use crate::model::{Lap, Load, Run, RunState, Server};
use crate::store::Store;

/// Finds the run to continue: the last run of the suite.
pub fn asked(suite: Option<&str>, store: Option<&Store>) -> anyhow::Result<Run> {
    match (suite, store) {
        (Some(suite), Some(store)) => earlier(store, suite),
        (None, _) => usage("--resume needs a suite: --suite NAME --resume"),
        (_, None) => usage("--resume needs the store with the interrupted run: add --store FILE"),
    }
}

/// Returns the last run of a suite, if that run has not finished.
pub fn earlier(store: &Store, suite: &str) -> anyhow::Result<Run> {
    let Some(number) = store.last_of(suite)? else {
        return usage(format!(
            "no run of the suite {suite} is stored, so there is nothing to resume: --resume \
             continues only a run of the suite that --suite names"
        ));
    };
    if Logs::is_under_way(number, store.path()) {
        return usage(format!(
            "run {number}, the last of the suite {suite}, is being measured by another hotlap: wait \
             until it ends"
        ));
    }
    let run = store.run(number)?;
    if matches!(run.state, RunState::Finished | RunState::Invalid) {
        return usage(format!(
            "run {number}, the last of the suite {suite}, is finished: leave out --resume to run \
             it again"
        ));
    }
    Ok(run)
}

/// Checks that an earlier run had the same question, loads and requests.
pub fn same_suite(earlier: &Run, now: &Run) -> anyhow::Result<()> {
    let both = || earlier.loads.iter().zip(&now.loads);
    // The figures of each request are stored in the order of the earlier run.
    let have_same_requests =
        |load: &Load, other: &Load| load.requests.is_empty() || load.requests == other.requests;
    let are_same = both().all(|(load, other)| {
        load.name == other.name && load.is_same(other) && have_same_requests(load, other)
    });
    let is_alike = earlier.loads.len() == now.loads.len() && are_same;
    if is_alike && earlier.question == now.question {
        return Ok(());
    }
    let number = earlier.number.unwrap_or(0);
    usage(format!(
        "run {number} cannot be resumed: the suite or the options have changed since. Give the \
         same options, or leave out --resume to begin a new run"
    ))
}

/// Checks that servers, load and database come from the same places as in the earlier run.
fn same_place(earlier: &Run, now: &Run) -> anyhow::Result<()> {
    let number = earlier.number.unwrap_or(0);
    let place = |run: &Run| run.host.controller.as_ref().map(|other| other.command.clone());
    if place(earlier) != place(now) {
        return usage(format!(
            "run {number} cannot be resumed: its servers ran on another host. Give the same \
             --server-on, or none if it had none"
        ));
    }
    let sources = |run: &Run| -> Vec<String> {
        run.host.generators.iter().map(|own| own.command.clone()).collect()
    };
    if sources(earlier) != sources(now) {
        return usage(format!(
            "run {number} cannot be resumed: its load came from other generators. Give the same \
             --generator-on, or none if it had none"
        ));
    }
    if earlier.database != now.database {
        return usage(format!(
            "run {number} cannot be resumed: its servers had another database. Give the same \
             --with-postgres, --postgres and --database, or none if it had none"
        ));
    }
    Ok(())
}

/// Turns an experiment into the rest of an earlier one, with the earlier schedule. `now` is the
/// record that a new run would have.
pub fn go_on(experiment: &mut Experiment, earlier: &Run, now: &Run) -> anyhow::Result<()> {
    let number = earlier.number.unwrap_or(0);
    same_suite(earlier, now)?;
    same_place(earlier, now)?;
    let unbuilt = ["toolchain", "build"];
    let is_out =
        |s: &Server| s.failure.as_ref().is_some_and(|r| !unbuilt.contains(&r.phase.as_str()));
    let started = |s: &&Server| s.failure.is_none() || is_out(s);
    let mut participants: Vec<Participant> = Vec::new();
    for server in earlier.servers.iter().take_while(started) {
        let found = experiment
            .participants
            .iter()
            .find(|e| (&e.name, e.role) == (&server.name, server.role));
        match (found, experiment.participants.first()) {
            (Some(participant), _) => participants.push(participant.clone()),
            // This server has failed and is never started again, so any participant can stand in
            // for it.
            (None, Some(any)) if server.failure.is_some() => {
                participants.push(Participant {
                    name: server.name.clone(),
                    role: server.role,
                    ..any.clone()
                });
            }
            _ => {
                return usage(format!(
                    "run {number} cannot be resumed: {} is not among the servers that can run now. \
                     Leave out --resume to begin a new run",
                    server.name
                ));
            }
        }
    }
    let schedule = &earlier.schedule;
    let some = |count: u32| (count > 0).then_some(count);
    experiment.participants = participants;
    experiment.seed = earlier.seed;
    experiment.budget = Duration::from_secs_f64(schedule.duration_s);
    experiment.growth = Growth::None;
    (experiment.precision, experiment.limit) = (schedule.precision, schedule.limit);
    (experiment.restarts, experiment.rounds) = (some(schedule.restarts), some(schedule.rounds));
    experiment.from = from(earlier);
    experiment.past = past(earlier);
    // One restart is added to replace the unfinished one.
    experiment.restarts = experiment.restarts.map(|restarts| restarts + unfinished(earlier));
    if experiment.restarts.is_some_and(|restarts| experiment.from.restart >= restarts) {
        return usage(format!(
            "run {number} already has all its restarts: leave out --resume to begin a new run"
        ));
    }
    Ok(())
}

/// The place of the next restart. The interrupted restart is not continued, because its servers
/// have ended and may perform differently after a new start.
fn from(earlier: &Run) -> Place {
    let last = earlier.laps.iter().filter(|l| earlier.is_main(l)).map(|l| l.restart).max();
    Place { restart: last.map_or(0, |restart| restart + 1), round: 0 }
}

/// The number of unfinished restarts: 1 if the last restart lacks rounds, otherwise 0.
fn unfinished(earlier: &Run) -> u32 {
    let flat = || earlier.laps.iter().filter(|l| earlier.is_main(l));
    let last = flat().map(|l| l.restart).max();
    let rounds = flat().filter(|l| Some(l.restart) == last).map(|l| l.round + 1).max();
    u32::from(rounds.is_some_and(|rounds| rounds < earlier.schedule.rounds))
}

/// Returns a lap without its histograms. How a run continues depends only on the other figures.
fn without_times(lap: &Lap) -> Lap {
    let mut lap = lap.clone();
    lap.outcome.histograms_mut().into_iter().for_each(Histogram::clear);
    lap
}

fn past(earlier: &Run) -> Past {
    let good = earlier.laps.iter().filter(|l| earlier.is_main(l) && l.counts());
    let ended_ms = |lap: &Lap| lap.at_ms + lap.outcome.window_ns / 1_000_000;
    let began_ms = earlier.laps.first().map_or(0, |l| l.at_ms);
    // The first warm-ups under further loads belong to the first start.
    let first = || earlier.laps.iter().filter(|l| (l.restart, l.round) == (0, 0));
    let switches = first().zip(first().skip(1)).filter(|(lap, next)| lap.load != next.load);
    let warming_ms: u64 =
        switches.map(|(lap, next)| next.at_ms.saturating_sub(ended_ms(lap))).sum();
    let failure = |(i, server): (usize, &Server)| server.failure.as_ref().map(|_| i);
    Past {
        laps: good.map(without_times).collect(),
        out: earlier.servers.iter().enumerate().filter_map(failure).collect(),
        probed: earlier.schedule.probed.clone(),
        rate: earlier.laps.iter().find(|l| !earlier.is_main(l)).and_then(|l| l.rate()),
        spent: Duration::from_millis(earlier.laps.last().map_or(0, ended_ms)),
        starting: Duration::from_millis(began_ms + warming_ms),
    }
}
