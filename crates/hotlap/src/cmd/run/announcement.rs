//! One sentence that says what will be measured, and how long it takes.

use hotlap_bench::experiment::Experiment;
use hotlap_bench::explain::Explain;
use hotlap_bench::participant::Participant;
use hotlap_bench::stress::Scenario;

use super::participants::is_named;
use super::timing;
use crate::model::{Question, Run};
use crate::store::Store;
use crate::text::number::plural;

/// For a run that begins or continues; a run that has a number has begun before.
pub fn of(
    run: &Run,
    experiment: &Experiment,
    scenarios: &[Scenario],
    store: Option<&Store>,
) -> String {
    let takes = timing::stress(&experiment.participants, &run.stress, scenarios).as_secs();
    if let (Some(number), false) = (run.number, run.stress.is_empty()) {
        return format!("Continuing run {number} after its measurement: stress, about {takes} s.");
    }
    let named = |e: &&Participant| is_named(e) && !is_out(run, e);
    let count = experiment.participants.iter().filter(named).count();
    let mut words = match run.number {
        _ if run.question == Question::Explain => "Explaining".to_owned(),
        _ if run.question == Question::Capacity => "Searching the capacity of".to_owned(),
        Some(number) => format!("Continuing run {number}: measuring"),
        None => "Measuring".to_owned(),
    };
    words += &format!(" {}", plural(count, "server"));
    if experiment.restarts.is_none() || experiment.rounds.is_none() {
        let start_s = timing::first_start(experiment, store).as_secs();
        let lap_s = experiment.budget.saturating_sub(experiment.past.spent).as_secs();
        words += &format!(
            " takes about {} s: {start_s} s until all are warmed up, then {lap_s} s (--duration)",
            start_s + lap_s
        );
    }
    if let Explain::After(time) = experiment.explain {
        words += &format!("; then explaining for about {} s", time.as_secs());
    }
    if takes > 0 {
        words += &format!("; then stress for about {takes} s");
    }
    words + "."
}

/// For a stress run without a measurement.
pub fn of_stress(participants: &[Participant], run: &Run, scenarios: &[Scenario]) -> String {
    format!(
        "Stressing {} with {}: about {} s.",
        plural(participants.iter().filter(|e| is_named(e)).count(), "server"),
        plural(scenarios.len(), "scenario"),
        timing::stress(participants, &run.stress, scenarios).as_secs()
    )
}

fn is_out(run: &Run, participant: &Participant) -> bool {
    run.servers.iter().any(|s| s.name == participant.name && s.failure.is_some())
}
