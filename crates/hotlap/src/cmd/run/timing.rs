//! Durations, time limits and estimates, and the sentence that announces what will be measured and
//! how long it takes.

use std::time::Duration;

use hotlap_bench::experiment::{Experiment, Explain};
use hotlap_bench::local::{self, Expected, ExpectedLoad, Forecast, LENGTHS, longest_service};
use hotlap_bench::participant::{Load, Participant, Role};
use hotlap_bench::slo::usual_window;
use hotlap_bench::stress::{Scenario, Subject};

use super::participants::is_named;
use crate::model::{Probed, Question, Run, Warmup};
use crate::store::{LastStart, Store};
use crate::text::number::plural;

/// The measuring time without `--duration`. A row is one server under one load. Control and ceiling
/// count. The first value is the time for up to as many rows as the second value says. Each further
/// row adds the third.
const BUDGET: (Duration, usize, Duration) = (Duration::from_secs(60), 4, Duration::from_secs(25));

/// The measuring time of a search without `--duration`, for each server, each load and each second
/// of a window. This time is enough for a bracket, five restarts of six windows, and half a minute
/// at the rate that was found.
const SEARCH: Duration = Duration::from_secs(90);

/// The time to explain two servers. More servers take longer. With the first starts, an explanation
/// takes less than 90 s, unless servers need many seconds to become steady.
const EXPLAIN: Duration = Duration::from_secs(45);

/// The duration of a run divided by this number is the time limit of the probes at each slice
/// length that is tried.
pub const PROBING: u32 = 5;

/// The time limit for a server's first correct response, if `--start-timeout` does not apply. A JVM
/// that first compiles a language's runtime takes many seconds on a busy machine.
pub const START_LIMIT: Duration = Duration::from_secs(120);

/// The time limit of a warm-up. Most servers are steady after a second, and servers on a JVM after
/// ten seconds. A large application may compile for a minute.
pub const WARM_LIMIT: Duration = Duration::from_secs(60);

/// How long a server must be steady before it is measured: the minimum, the maximum, and a divisor.
/// The duration of the run divided by the third value is the limit for all servers together. Within
/// a second, a server that becomes 3% cheaper per second looks the same as a steady server.
const LEVEL: (Duration, Duration, u32) = (Duration::from_secs(1), Duration::from_secs(3), 2);

/// The time limit for a server to stop.
pub const GRACE: Duration = Duration::from_secs(5);

/// The approximate times of the first start of a server that was never measured: until the server
/// responds, and until its steady time under each load begins. Runtimes with a JIT compiler take
/// longer.
const FIRST_START: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(500));

/// The assumed mean service time of a server that was never measured.
const SERVICE: Duration = Duration::from_millis(1);

/// The approximate time to start a server, load it for the first time and end it, and the time of
/// each scenario.
const STRESS: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(3));

/// The measuring time of an experiment without `--duration`.
pub fn usual_budget(experiment: &Experiment) -> Duration {
    if !experiment.objectives.is_empty() {
        let window = usual_window(&experiment.objectives).as_secs_f64();
        return SEARCH.mul_f64(window) * u32::try_from(rows(experiment)).unwrap_or(u32::MAX);
    }
    if experiment.explain == Explain::Only {
        return explaining(experiment);
    }
    let (least, servers, each) = BUDGET;
    least + each * u32::try_from(rows(experiment).saturating_sub(servers)).unwrap_or(u32::MAX)
}

/// The time to explain the differences between the servers of an experiment.
pub fn explaining(experiment: &Experiment) -> Duration {
    let servers = experiment.participants.iter().filter(|e| is_named(e)).count();
    EXPLAIN / 2 * u32::try_from(servers).unwrap_or(u32::MAX).max(2)
}

/// How long each server must be steady in its first warm-up.
pub fn level_for(experiment: &Experiment) -> Duration {
    let (least, most, part) = LEVEL;
    let warmups = u32::try_from(rows(experiment).max(1)).unwrap_or(u32::MAX);
    (experiment.budget / warmups.saturating_mul(part)).clamp(least, most)
}

/// Returns what the forecast assumes about a server under a load. The assumption is based on the
/// warm-up and the slice length of the server's last run. `recovers` says whether the shortest
/// slices sufficed for the server. Returns `None` if the warm-up ended without responses.
fn expected_load(
    load: &Load,
    warmup: &Warmup,
    slice_ms: f64,
    recovers: bool,
) -> Option<ExpectedLoad> {
    let rate = warmup.curve.last().filter(|rate| **rate > 0.0)?;
    let slice = Duration::from_secs_f64(slice_ms / 1e3);
    // With few connections up, the service time computed from the rate would be too long.
    let service = Duration::from_secs_f64(load.shape.in_flight() as f64 / rate);
    Some(ExpectedLoad {
        warm_up: Duration::from_secs_f64(warmup.window_ms * warmup.curve.len() as f64 / 1e3),
        service: service.min(longest_service(slice)),
        recovers,
    })
}

/// Forecasts how long an experiment takes. Starts, warm-ups and service times are assumed to be as
/// in the last run of each server.
pub fn forecast(experiment: &Experiment, store: Option<&Store>) -> Forecast {
    let expected = |participant: &Participant| {
        // The forecast is only an estimate, so errors of the store are not reported.
        let last = store.and_then(|store| store.first_start(&participant.name).ok()?);
        let ready_ms = last.as_ref().and_then(|last| last.start.ready.ready_ms);
        let ready = match &last {
            Some(_) => Duration::from_secs_f64(ready_ms.unwrap_or(0.0) / 1e3),
            None => FIRST_START.0,
        };
        let usual = ExpectedLoad {
            warm_up: FIRST_START.1 + level_for(experiment),
            service: SERVICE,
            recovers: participant.role == Role::Ceiling,
        };
        let load = |(number, load): (usize, &Load)| {
            let LastStart { start, slices_ms, probed } = last.as_ref()?;
            let warmup = start.warmups.iter().find(|warmup| warmup.load == number)?;
            // Only a server that costs more or less in the shortest slices is probed again.
            let is_own = |own: &&Probed| own.participant == start.server && own.load == number;
            let shortest_ms = LENGTHS[0].as_secs_f64() * 1e3;
            let recovers = probed.iter().filter(is_own).all(|own| own.slice_ms <= shortest_ms);
            expected_load(load, warmup, *slices_ms.get(number)?, recovers)
        };
        let loads = experiment.loads.iter().enumerate();
        Expected { ready, loads: loads.map(|own| load(own).unwrap_or(usual)).collect() }
    };
    let expected: Vec<Expected> = experiment.participants.iter().map(expected).collect();
    local::forecast(experiment, &expected, experiment.budget / PROBING)
}

/// The approximate time of a stress run, without the scenarios that are already done.
pub fn stress(participants: &[Participant], met: &[Subject], scenarios: &[Scenario]) -> Duration {
    let left = |participant: &Participant| {
        let subject = met.iter().find(|subject| subject.name == participant.name);
        subject.map_or(scenarios.len(), |subject| subject.left(scenarios).len())
    };
    let takes = |scenarios: usize| match u32::try_from(scenarios) {
        Ok(0) | Err(_) => Duration::ZERO,
        Ok(n) => STRESS.0 + STRESS.1 * n,
    };
    participants.iter().filter(|e| is_named(e)).map(|participant| takes(left(participant))).sum()
}

/// The number of servers times the number of loads. Each server is measured under each load.
fn rows(experiment: &Experiment) -> usize {
    experiment.participants.len() * experiment.loads.len().max(1)
}

/// Announces a run that begins or continues. A run that has a number has begun before.
pub fn announcement(
    run: &Run,
    experiment: &Experiment,
    scenarios: &[Scenario],
    store: Option<&Store>,
) -> String {
    let takes = stress(&experiment.participants, &run.stress, scenarios).as_secs();
    if let (Some(number), false) = (run.number, run.stress.is_empty()) {
        return format!(
            "Run {number} is measured. Continuing with its stress scenarios, for about \
             {takes} s."
        );
    }
    let named = |e: &&Participant| is_named(e) && !is_out(run, e);
    let count = experiment.participants.iter().filter(named).count();
    let mut words = match run.number {
        _ if run.question == Question::Explain => "Explaining".to_owned(),
        _ if run.question == Question::Capacity => "Searching for the capacity of".to_owned(),
        Some(number) => format!("Continuing run {number}: measuring"),
        None => "Measuring".to_owned(),
    };
    words += &format!(" {}", plural(count, "server"));
    let Forecast { starting, whole, .. } = forecast(experiment, store);
    let [start_s, rest_s] = [starting, whole.saturating_sub(starting)].map(whole_seconds);
    let option = match experiment.restarts.is_none() || experiment.rounds.is_none() {
        true => " (--duration)",
        false => "",
    };
    words += &format!(
        " takes about {} s: {start_s} s until all are warmed up, then {rest_s} s{option}",
        start_s + rest_s
    );
    if let Explain::After(time) = experiment.explain {
        words += &format!(". Explaining the differences then takes about {} s", time.as_secs());
    }
    if takes > 0 {
        words += &format!(". Stress then takes about {takes} s");
    }
    words + "."
}

/// Announces a stress run without a measurement.
pub fn announcement_of_stress(
    participants: &[Participant],
    run: &Run,
    scenarios: &[Scenario],
) -> String {
    format!(
        "Stressing {} with {}: about {} s.",
        plural(participants.iter().filter(|e| is_named(e)).count(), "server"),
        plural(scenarios.len(), "scenario"),
        stress(participants, &run.stress, scenarios).as_secs()
    )
}

/// Returns a time in seconds, rounded up.
pub fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

fn is_out(run: &Run, participant: &Participant) -> bool {
    run.servers.iter().any(|s| s.name == participant.name && s.failure.is_some())
}
