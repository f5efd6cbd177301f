//! Servers whose capacity is known: queues with Poisson arrivals and a known service time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_bench::experiment::Experiment;
use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::Role;
use hotlap_bench::slo::Objective;
use hotlap_stats::Estimate;
use hotlap_testbed::Calibrated;

use super::arena::Arena;
use crate::analysis::CapacityAnalysis;
use crate::analysis::capacity::Highest;
use crate::console::Console;
use crate::export::Exports;
use crate::recorder::Recorder;

/// The goal of all searches.
pub const GOAL: Objective = Objective::Latency { quantile: 0.99, limit_ns: 10_000_000 };

/// Enough connections that requests wait in the server.
const CONNECTIONS: usize = 64;

/// The warm-up of servers that need none.
const WARM: Duration = Duration::from_secs(1);

/// A queue, and the highest rate that meets the goal for long.
#[derive(Debug, Clone, Copy)]
pub struct KnownQueue {
    /// What it is, in words.
    pub name: &'static str,
    /// The server.
    pub server: Calibrated,
    /// The capacity, in requests/s, from 40 simulated minutes at each rate:
    /// `tests/capacity.rs` of `hotlap-stats` computes it, and checks its queue against the formula
    /// for M/D/1 (Erlang, 1909).
    pub rate: f64,
}

/// One worker, two workers, and one for which 1 request of 100 takes 20 times as long.
pub const QUEUES: [KnownQueue; 3] = [
    KnownQueue {
        name: "one worker, 0.5 ms",
        server: Calibrated::Queue { workers: 1, us: 500, slow_us: 500, one_in: 1 },
        rate: 1_767.3,
    },
    KnownQueue {
        name: "two workers, 1 ms",
        server: Calibrated::Queue { workers: 2, us: 1_000, slow_us: 1_000, one_in: 1 },
        rate: 1_758.0,
    },
    KnownQueue {
        name: "0.25 ms; 1 in 100 takes 5 ms",
        server: Calibrated::Queue { workers: 1, us: 250, slow_us: 5_000, one_in: 100 },
        rate: 3_082.4,
    },
];

/// Searches the capacities of all queues, as `hotlap capacity` does. Returns them in order, and the
/// number of restarts; `None` for one that was not found.
pub fn search(
    arena: &Arena,
    budget: Duration,
    seed: u64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<Option<(Estimate, usize)>>> {
    let role = |place| if place == 0 { Role::Reference } else { Role::Plain };
    let participant = |(place, queue): (usize, &KnownQueue)| {
        arena.participant(queue.name, queue.server, role(place))
    };
    let participants = QUEUES.iter().enumerate().map(participant).collect();
    let experiment = Experiment {
        objectives: vec![GOAL],
        precision: Some(0.05),
        ..arena.experiment(participants, CONNECTIONS, None, budget, seed)
    };
    let mut runner = LocalRunner::new(
        arena.setting(None, WARM),
        &experiment.participants,
        &experiment.loads,
        Arc::clone(stop),
    );
    let (mut exports, quiet) = (Exports::default(), Console { quiet: true, ..Console::plain(80) });
    let kept = Recorder::new(arena.record(&experiment), None, &mut exports, &quiet)?
        .keep(&experiment, &mut runner);
    let analysis = CapacityAnalysis::of(&kept.run, 0);
    let found = analysis.servers.iter().map(|server| match server.found {
        Highest::Rate(rate) => Some((rate, server.restarts())),
        Highest::AtLeast(_) | Highest::Below(_) | Highest::Unknown => None,
    });
    Ok(found.collect())
}
