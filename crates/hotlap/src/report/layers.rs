//! What each layer costs: a step against the one that it stands on.

use hotlap_stats::Estimate;

use super::figure::{count, ratio};
use super::standing::{Against, Pair, Standing, is_compared};
use super::{Step, sentence};
use crate::record::{Lap, Run, Violation};

/// Each step that stands on another.
#[must_use]
pub fn steps(run: &Run, standing: &Standing) -> Vec<Step> {
    let steps = (0..run.servers.len()).filter(|&i| is_compared(run, i));
    // The steps under one load are one family of comparisons.
    let pairs: Vec<Pair> = steps.filter_map(|to| Some((to, below(run, to)?))).collect();
    let found = standing.compared(&pairs);
    pairs.iter().zip(found).map(|(pair, found)| step(run, standing, *pair, &found)).collect()
}

/// The step that one stands on; where that one is out, the next below it. Where nothing is said of
/// who stands on whom, it is the one before.
fn below(run: &Run, step: usize) -> Option<usize> {
    if run.servers.iter().all(|s| s.part.on.is_none()) {
        return (0..step).rev().find(|&i| is_compared(run, i));
    }
    let mut on = run.servers[step].part.on;
    for _ in 0..run.servers.len() {
        match on {
            Some(below) if below != step && is_compared(run, below) => return Some(below),
            Some(below) => on = run.servers.get(below)?.part.on,
            None => return None,
        }
    }
    None
}

/// The difference is the lower step's level times (ratio - 1), its interval that of the ratio: what
/// the level's own interval adds is the same for both steps and cancels in their comparison.
fn step(run: &Run, standing: &Standing, (to, from): Pair, found: &Against) -> Step {
    let below = &standing.servers[from];
    let cpu = found
        .cost
        .zip(below.cost)
        .map(|((e, v), level)| (difference(level.value / 1e3, &e.ratio), v));
    let wall = found.rate.zip(below.rate).map(|((e, v), level)| {
        let inverse = sentence::inverse(&e.ratio);
        (difference(1e6 / level.value, &inverse), v)
    });
    let name = run.servers[to].name.clone();
    let other = &run.servers[from].name;
    let short =
        (sentence::short(&name, other).to_owned(), sentence::short(other, &name).to_owned());
    let side_effect = match standing.servers[to].wrong {
        0 => side_effect(run, standing.load, to),
        n => format!("{} of its responses were wrong, so that its step has no price", count(n)),
    };
    Step {
        load: standing.load,
        from: run.servers[from].name.clone(),
        sentence: match side_effect.is_empty() {
            true => sentence::step(&name, &run.servers[from].name, cpu, wall),
            false => format!("{name}: {side_effect}."),
        },
        to: name,
        short,
        caution: match side_effect.is_empty() {
            true => cpu.map_or("too few laps", |(d, v)| sentence::caution(&d, v)),
            false => "no step: see below",
        },
        cpu_us: cpu.map(|(d, _)| sentence::difference(&d)),
        wall_us: wall.map(|(d, _)| sentence::difference(&d)),
        requests_per_s: found.rate.map(|(e, _)| ratio(&e.ratio)),
        cost: found.cost.map(|(e, _)| ratio(&e.ratio)),
        side_effect,
    }
}

fn difference(level: f64, ratio: &Estimate) -> Estimate {
    Estimate {
        value: level * (ratio.value - 1.0),
        low: level * (ratio.low - 1.0),
        high: level * (ratio.high - 1.0),
    }
}

/// What is wrong with a server's side effect under a load; empty where nothing is.
#[must_use]
pub fn side_effect(run: &Run, load: usize, server: usize) -> String {
    // Paced laps, which no price rests on, may bear what those at full load do not.
    let rate = run.loads.get(load).and_then(|l| l.rate);
    let own = |l: &&Lap| l.server == server && l.load == load && l.rate == rate;
    let laps = || run.laps.iter().filter(own);
    let (mut failed, mut must, mut did) = (0, 0, 0);
    for violation in laps().flat_map(|l| &l.failed) {
        if let Violation::SideEffect { expected, counted } = violation {
            (failed, must, did) = (failed + 1, must + expected, did + counted);
        }
    }
    // One lap that fails is left out, as with any validity check; a step whose laps do is none.
    if failed * 2 <= laps().count() {
        return String::new();
    }
    let less = if did < must { "work was dropped" } else { "work was done twice" };
    format!(
        "its side effect happened {} times where it had to {} times ({less}), so that it is no \
         step to be priced",
        count(did),
        count(must)
    )
}
