//! Work of known cost: it is timed alone, without hotlap. Then hotlap must find it as the
//! difference between a server that does the work and one that does not.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::Role;
use hotlap_stats::Estimate;

use super::arena::Arena;
use super::claim::{Claim, Unit};
use crate::analysis::{Analysis, Measure};
use crate::console::Console;
use crate::export::Exports;
use crate::recorder::Recorder;

/// The work of both servers of a pair, which is about half of what a request costs.
const BASE: &str = "working:2000";

/// The time of a trial, and of a warm-up in it.
const BUDGET: Duration = Duration::from_secs(10);
const WARM: Duration = Duration::from_millis(300);

/// The length of the slices of a lap.
const SLICE: Duration = Duration::from_millis(12);

/// The tolerance of a difference, as a share of what the work costs alone.
const TOLERANCE: f64 = 0.06;

/// Work to find.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// What it is, in words.
    pub name: &'static str,
    /// The work, as a calibrated server is written.
    work: &'static str,
    connections: usize,
    /// The number of requests in a stretch in which the work is timed alone.
    stretch: u64,
}

/// A loop on many and on few connections, system calls, and bursts.
pub const TRIALS: [Trial; 4] = [
    Trial { name: "a loop", work: "working:1500", connections: 64, stretch: 1_000 },
    Trial { name: "a loop, 4 connections", work: "working:1500", connections: 4, stretch: 1_000 },
    Trial { name: "20 system calls", work: "calling:20", connections: 64, stretch: 1_000 },
    Trial {
        name: "40 ms every 20,000 requests",
        work: "bursting:20000:40000",
        connections: 64,
        stretch: 20_000,
    },
];

/// Measures a pair of servers, and claims that their difference is what the work costs alone.
pub fn measure(
    arena: &Arena,
    trial: &Trial,
    seed: u64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Claim> {
    let participants = vec![
        arena.participant("without", BASE, Role::Reference),
        arena.participant("with", format!("{BASE}+{}", trial.work), Role::Plain),
    ];
    let experiment = arena.experiment(participants, trial.connections, Some(SLICE), BUDGET, seed);
    let mut runner = LocalRunner::new(
        arena.setting(experiment.slice, WARM),
        &experiment.participants,
        &experiment.loads,
        Arc::clone(stop),
    );
    let (mut exports, quiet) = (Exports::default(), Console { quiet: true, ..Console::plain(80) });
    let before_ns = arena.alone_ns(trial.work, trial.stretch)?;
    let kept = Recorder::new(arena.record(&experiment), None, &mut exports, &quiet)?
        .keep(&experiment, &mut runner);
    let after_ns = arena.alone_ns(trial.work, trial.stretch)?;
    let analysis = Analysis::of(&kept.run, 0);
    let base_us = analysis.servers[0].level[Measure::Cost].map(|cost| cost.value / 1e3);
    let ratio = analysis.servers[1].against.and_then(|against| against.found[Measure::Cost]);
    let found_us = base_us.zip(ratio).map(|(us, (effect, _))| difference(us, &effect.ratio));
    Ok(claim(trial.name, found_us, f64::midpoint(before_ns, after_ns) / 1e3))
}

/// A server's cost less that of the reference, by the latter and the ratio of the two.
pub fn difference(reference: f64, ratio: &Estimate) -> Estimate {
    let more = |ratio: f64| reference * (ratio - 1.0);
    Estimate { value: more(ratio.value), low: more(ratio.low), high: more(ratio.high) }
}

/// How far a difference may be from the truth: a share of it, or as far as the interval reaches.
pub fn tolerance(found: &Estimate, real: f64) -> f64 {
    let reach = if real > found.value { found.high - found.value } else { found.value - found.low };
    reach.max(real * TOLERANCE)
}

fn claim(name: &str, found_us: Option<Estimate>, alone_us: f64) -> Claim {
    Claim {
        server: "more CPU time a request".to_owned(),
        figure: name.to_owned(),
        unit: Unit::Us,
        claimed: found_us.map_or(f64::NAN, |found| found.value),
        real: alone_us,
        tolerance: found_us.map_or(0.0, |found| tolerance(&found, alone_us)),
        least: None,
        bare: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::selftest::claim::Word;

    #[test]
    fn a_cost_is_found_within_six_per_cent_or_within_its_interval() {
        let word = |low, high, alone_us| {
            let ratio = Estimate { value: 1.5, low, high };
            claim("", Some(difference(4.0, &ratio)), alone_us).judge()
        };
        assert_eq!(word(1.49, 1.51, 1.9), Word::Right);
        assert_eq!(word(1.49, 1.51, 1.8), Word::Off);
        assert_eq!(word(1.44, 1.51, 1.8), Word::Right);
        assert_eq!(word(1.49, 1.51, 2.2), Word::Off);
        assert_eq!(word(1.49, 1.56, 2.2), Word::Right);
        assert_eq!(claim("", None, 2.0).judge(), Word::Off);
    }
}
