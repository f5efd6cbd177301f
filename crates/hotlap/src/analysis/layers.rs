//! What each layer costs: a server compared with the one whose work it adds to.

use hotlap_stats::{Estimate, Verdict};

use super::compare::{Found, ServerPair};
use super::{Analysis, Measure, ServerComparison};
use crate::model::{Lap, Run, Violation};

/// A difference in microseconds per request, and the verdict on its ratio; `None` if unknown.
pub type Difference = Option<(Estimate, Verdict)>;

/// One step: a layer and the one below it.
#[derive(Debug)]
pub struct Step {
    /// The upper layer's server, as an index.
    pub to: usize,
    /// The lower layer's server, as an index.
    pub from: usize,
    /// CPU time added by the step.
    pub cpu_us: Difference,
    /// Wall time added by the step (1/rate).
    pub wall_us: Difference,
    /// The ratio of the upper layer's requests/s to the lower's.
    pub rate: Found,
    /// The ratio of the upper layer's CPU time per request to the lower's.
    pub cost: Found,
    /// Wrong responses of the upper layer.
    pub wrong: u64,
    /// The problem with the upper layer's side effect, if there is one.
    pub side_effect: Option<SideEffect>,
}

/// A side effect that did not happen the right number of times, in most laps of a server.
#[derive(Debug, Clone, Copy)]
pub struct SideEffect {
    /// How often it should have happened in the laps that failed.
    pub required: u64,
    /// How often it happened.
    pub counted: u64,
}

/// The steps of a run under one load.
pub fn steps(run: &Run, analysis: &Analysis) -> Vec<Step> {
    let layers = (0..run.servers.len()).filter(|&i| run.is_compared(i));
    // The steps under one load are one family of comparisons.
    let pairs: Vec<ServerPair> = layers.filter_map(|to| Some((to, below(run, to)?))).collect();
    let found = analysis.compared(&pairs);
    pairs.iter().zip(found).map(|(pair, found)| step(run, analysis, *pair, &found)).collect()
}

/// The layer below; if that one failed, the next one below it. If the run does not name the layer
/// below, it is the previous server.
fn below(run: &Run, layer: usize) -> Option<usize> {
    if run.servers.iter().all(|s| s.part.on.is_none()) {
        return (0..layer).rev().find(|&i| run.is_compared(i));
    }
    let mut on = run.servers[layer].part.on;
    for _ in 0..run.servers.len() {
        match on {
            Some(below) if below != layer && run.is_compared(below) => return Some(below),
            Some(below) => on = run.servers.get(below)?.part.on,
            None => return None,
        }
    }
    None
}

/// The difference is the lower layer's level times (ratio - 1). The errors of both are added as
/// independent ones.
fn step(
    run: &Run,
    analysis: &Analysis,
    (to, from): ServerPair,
    against: &ServerComparison,
) -> Step {
    let level = &analysis.servers[from].level;
    let (rate, cost) = (against.found[Measure::Rate], against.found[Measure::Cost]);
    let cpu = cost.zip(level[Measure::Cost]);
    let wall = rate.zip(level[Measure::Rate]);
    Step {
        to,
        from,
        cpu_us: cpu.map(|((e, v), level)| (difference(&level.scaled(1e-3), &e.ratio), v)),
        wall_us: wall.map(|((e, v), level)| {
            (difference(&inverse(&level).scaled(1e6), &inverse(&e.ratio)), v)
        }),
        rate,
        cost,
        wrong: analysis.servers[to].wrong,
        side_effect: side_effect(run, analysis.load, to),
    }
}

fn difference(level: &Estimate, ratio: &Estimate) -> Estimate {
    let value = level.value * (ratio.value - 1.0);
    // What the ends of one interval do to the difference, while the other stays at its value.
    let end = |ratio_end: f64, level_end: f64| {
        let of_ratio = level.value * (ratio_end - ratio.value);
        let of_level = (level_end - level.value) * (ratio.value - 1.0);
        of_ratio.hypot(of_level)
    };
    Estimate {
        value,
        low: value - end(ratio.low, if value < 0.0 { level.high } else { level.low }),
        high: value + end(ratio.high, if value < 0.0 { level.low } else { level.high }),
    }
}

/// The inverse of a ratio.
pub fn inverse(ratio: &Estimate) -> Estimate {
    Estimate { value: 1.0 / ratio.value, low: 1.0 / ratio.high, high: 1.0 / ratio.low }
}

/// The problem with a server's side effect under a load, if there is one.
pub fn side_effect(run: &Run, load: usize, server: usize) -> Option<SideEffect> {
    // Only laps at full load count here: no step depends on laps at a common rate.
    let rate = run.loads.get(load).and_then(|l| l.rate);
    let own = |l: &&Lap| l.server == server && l.load == load && l.rate() == rate;
    let laps = || run.laps.iter().filter(own);
    let (mut failed, mut required, mut happened) = (0, 0, 0);
    for violation in laps().flat_map(|l| &l.failed) {
        if let Violation::SideEffect { expected, counted } = violation {
            (failed, required, happened) = (failed + 1, required + expected, happened + counted);
        }
    }
    // A single failed lap is left out, as with any validity check. If most laps fail, the server
    // does not do the work of its layer.
    (failed * 2 > laps().count()).then_some(SideEffect { required, counted: happened })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the level of the layer below was taken as exact.
    #[test]
    fn a_price_is_as_uncertain_as_the_level_of_the_layer_below() {
        let level = Estimate { value: 10.0, low: 8.4, high: 11.6 };
        let exact = Estimate { value: 2.0, low: 2.0, high: 2.0 };
        let found = difference(&level, &exact);
        assert_eq!((found.value, found.low, found.high), (10.0, 8.4, 11.6));
        let ratio = Estimate { value: 2.0, low: 1.88, high: 2.12 };
        let found = difference(&level, &ratio);
        // 10 × 0.12 and 1.6 × 1 are 1.2 and 1.6: together 2.
        assert!((found.low - 8.0).abs() < 1e-9 && (found.high - 12.0).abs() < 1e-9, "{found:?}");
        let found = difference(&level, &Estimate { value: 0.5, low: 0.5, high: 0.5 });
        assert_eq!((found.value, found.low, found.high), (-5.0, -5.8, -4.2));
    }
}
