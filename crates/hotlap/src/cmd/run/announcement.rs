//! What is about to happen, and how long it takes, in a sentence.

use std::time::Duration;

use hotlap_bench::experiment::Experiment;
use hotlap_bench::participant::Participant;
use hotlap_bench::stress::Scenario;

use super::stress;
use crate::model::{Run, Warmup};
use crate::store::Store;
use crate::text::number::plural;

/// What a first start takes, about, of a server that was never raced: to answer and be held against
/// its contract, and to be warmed up by each load. Runtimes that compile what they run take longer.
const FIRST_START: (Duration, Duration) = (Duration::from_millis(800), Duration::from_millis(1500));

/// Of a run that is to begin, or to go on: one that has a number has begun before.
#[must_use]
pub fn of(
    run: &Run,
    experiment: &Experiment,
    scenarios: &[Scenario],
    store: Option<&Store>,
) -> String {
    let takes = stress::takes(&experiment.participants, &run.stress, scenarios).as_secs();
    if let (Some(number), false) = (run.number, run.stress.is_empty()) {
        return format!("Run {number} goes on after its race: with a stress of about {takes} s.");
    }
    let named = |e: &&Participant| stress::is_named(e) && !is_out(run, e);
    let count = experiment.participants.iter().filter(named).count();
    let mut words = match run.number {
        Some(number) => format!("Run {number} goes on: racing"),
        None => "Racing".to_owned(),
    };
    words += &format!(" {}", plural(count, "server"));
    if experiment.restarts.is_none() || experiment.rounds.is_none() {
        words += &format!(
            " for about {} s (--duration), once all have been started, which takes about {} s",
            experiment.budget.saturating_sub(experiment.past.spent).as_secs(),
            first_start(experiment, store).as_secs()
        );
    }
    if takes > 0 {
        words += &format!("; then a stress of about {takes} s");
    }
    words + "."
}

fn is_out(run: &Run, participant: &Participant) -> bool {
    run.servers.iter().any(|s| s.name == participant.name && s.failure.is_some())
}

/// What it takes to start all for the first time, about: what it took each when it was last raced.
fn first_start(experiment: &Experiment, store: Option<&Store>) -> Duration {
    let loads = u32::try_from(experiment.loads.len()).unwrap_or(u32::MAX);
    let of = |participant: &Participant| {
        // This is an estimate, for which no error of the store is told.
        let last = store?.first_start(&participant.name).ok()??;
        let warm_ms = |w: &Warmup| w.window_ms * w.curve.len() as f64;
        let each_ms = last.warmups.iter().map(warm_ms).sum::<f64>() / last.warmups.len() as f64;
        Some(Duration::from_secs_f64(
            (last.ready_ms.unwrap_or(0.0) + each_ms * f64::from(loads)) / 1e3,
        ))
    };
    let usual = FIRST_START.0 + FIRST_START.1 * loads;
    experiment.participants.iter().map(|participant| of(participant).unwrap_or(usual)).sum()
}
