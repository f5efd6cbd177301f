//! Answers the questions of some suites. What does each layer cost, compared with the layer below?
//! How do servers scale with their threads, or with the one property in which the loads differ? How
//! do published figures compare with measured ones?

use hotlap_load::plan::Shape;
use hotlap_stats::{Estimate, Verdict};

use super::compare::{Found, ServerPair};
use super::{Analysis, Measure, ServerComparison};
use crate::model::{Lap, Load, Published, Run, Violation};

/// A difference in microseconds per request, and the verdict on the ratio. `None` if unknown.
pub type Difference = Option<(Estimate, Verdict)>;

/// The step from one layer to the layer above it.
#[derive(Debug)]
pub struct Step {
    /// The index of the upper layer's server.
    pub to: usize,
    /// The index of the lower layer's server.
    pub from: usize,
    /// The CPU time that the step adds.
    pub cpu_us: Difference,
    /// The wall time that the step adds, where wall time is 1 ÷ rate.
    pub wall_us: Difference,
    /// The ratio of the upper layer's requests/s to the lower's.
    pub rate: Found,
    /// The ratio of the upper layer's CPU time per request to the lower's.
    pub cost: Found,
    /// The number of wrong responses of the upper layer.
    pub wrong: u64,
    /// The problem with the upper layer's side effect. `None` without a problem.
    pub side_effect: Option<SideEffect>,
}

/// A side effect that happened the wrong number of times in most laps of a server.
#[derive(Debug, Clone, Copy)]
pub struct SideEffect {
    /// How often the side effect should have happened in the laps that failed.
    pub required: u64,
    /// How often the side effect happened in the laps that failed.
    pub counted: u64,
}

/// Returns the steps of a run under one load.
pub fn steps(run: &Run, analysis: &Analysis) -> Vec<Step> {
    let layers = (0..run.servers.len()).filter(|&i| run.is_compared(i));
    // The steps under one load are one family of comparisons.
    let pairs: Vec<ServerPair> = layers.filter_map(|to| Some((to, below(run, to)?))).collect();
    let found = analysis.compared(&pairs);
    pairs.iter().zip(found).map(|(pair, found)| step(run, analysis, *pair, &found)).collect()
}

/// Finds the layer below a layer. A layer that cannot be compared is skipped. If the run does not
/// name any layer below, the previous server is used.
fn below(run: &Run, layer: usize) -> Option<usize> {
    if run.servers.iter().all(|s| s.on.is_none()) {
        return (0..layer).rev().find(|&i| run.is_compared(i));
    }
    let mut on = run.servers[layer].on;
    for _ in 0..run.servers.len() {
        match on {
            Some(below) if below != layer && run.is_compared(below) => return Some(below),
            Some(below) => on = run.servers.get(below)?.on,
            None => return None,
        }
    }
    None
}

/// Computes one step. A difference is the lower layer's level × (ratio − 1). The errors of the
/// level and the ratio are added as independent errors.
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
    // The distance from the value to one end of the interval. The two factors have independent
    // errors.
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

/// Returns the inverse of a ratio, with its interval.
pub fn inverse(ratio: &Estimate) -> Estimate {
    Estimate { value: 1.0 / ratio.value, low: 1.0 / ratio.high, high: 1.0 / ratio.low }
}

/// Returns the problem with a server's side effect under a load. `None` without a problem.
pub fn side_effect(run: &Run, load: usize, server: usize) -> Option<SideEffect> {
    // Only main laps count here, because no step depends on laps at a common rate.
    let rate = run.loads.get(load).and_then(|l| l.rate);
    let own = |l: &&Lap| l.server == server && l.load == load && l.rate() == rate;
    let laps = || run.laps.iter().filter(own);
    let (mut failed, mut required, mut happened) = (0, 0, 0);
    for violation in laps().flat_map(|l| &l.failed) {
        if let Violation::SideEffect { expected, counted } = violation {
            (failed, required, happened) = (failed + 1, required + expected, happened + counted);
        }
    }
    // A single failed lap is excluded, as with any validity check. If most laps fail, the server
    // does not do the work of its layer.
    (failed * 2 > laps().count()).then_some(SideEffect { required, counted: happened })
}

/// The property in which the points of a curve differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// The number of threads of the server.
    Threads,
    /// The number of connections of the load.
    Connections,
    /// The number of requests in flight on each connection.
    Pipeline,
    /// The number of threads of the generator.
    GeneratorThreads,
}

/// A curve that shows how one server scales.
#[derive(Debug)]
pub struct Curve {
    /// The index of the server. If servers differ in threads, this is the one with the fewest
    /// threads.
    pub server: usize,
    /// The property in which the points differ.
    pub parameter: Parameter,
    /// The points, with the lowest value of the property first.
    pub points: Vec<ScalingPoint>,
}

/// One point of a curve: one server under one load.
#[derive(Debug)]
pub struct ScalingPoint {
    /// The index of the load.
    pub load: usize,
    /// The value of the property.
    pub at: usize,
    /// The requests/s of the server.
    pub rate: Option<Estimate>,
    /// Whether requests/s are a lower bound, because the generator was the limit.
    pub generator_limited: bool,
    /// The requests/s that proportional growth from the first point would give.
    pub ideal: Option<f64>,
    /// The growth from the previous point as a share of proportional growth. 1 is proportional.
    pub efficiency: Option<f64>,
    /// The number of cores of the servers, if the point has more threads than cores.
    pub beyond_cores: Option<usize>,
}

/// A point of a curve: the index of the load, the index of the server, and the property's value.
type Spot = (usize, usize, usize);

/// Returns the curves: one per family of servers and load, or else one per server. The list is
/// empty if neither threads nor loads form a series.
pub fn curves(run: &Run, analyses: &[Analysis]) -> Vec<Curve> {
    let families = families(run);
    if !families.is_empty() {
        let spots = |load: usize, family: &[(usize, usize)]| -> Vec<Spot> {
            family.iter().map(|&(server, cpus)| (load, server, cpus)).collect()
        };
        let all = (0..analyses.len()).flat_map(|load| families.iter().map(move |f| (load, f)));
        return all
            .map(|(load, family)| curve(run, Parameter::Threads, &spots(load, family), analyses))
            .collect();
    }
    let Some(parameter) = varied(&run.loads) else { return Vec::new() };
    let at = |load: &usize| parameter.of(&run.loads[*load]);
    let mut loads: Vec<usize> = (0..run.loads.len()).collect();
    loads.sort_by_key(at);
    let mut servers: Vec<usize> =
        (0..run.servers.len()).filter(|&server| run.is_shown(server)).collect();
    analyses[0].sort(run, &mut servers);
    let spots = |server| loads.iter().map(|load| (*load, server, at(load))).collect::<Vec<_>>();
    servers.into_iter().map(|server| curve(run, parameter, &spots(server), analyses)).collect()
}

impl Parameter {
    const OF_LOADS: [Self; 3] = [Self::Connections, Self::Pipeline, Self::GeneratorThreads];

    /// Returns the value of the property in a load.
    fn of(self, load: &Load) -> usize {
        match self {
            Self::Connections => load.shape.connections,
            Self::Pipeline => load.shape.pipeline,
            Self::GeneratorThreads => load.shape.threads,
            Self::Threads => 0,
        }
    }
}

/// Finds servers that differ only in their number of threads. Each server of a family has its index
/// and its threads, and the server with the fewest threads comes first.
fn families(run: &Run) -> Vec<Vec<(usize, usize)>> {
    let mut families: Vec<(&str, Vec<(usize, usize)>)> = Vec::new();
    for (index, server) in run.servers.iter().enumerate().filter(|(_, s)| s.failure.is_none()) {
        let Some((cpus, base)) = &server.cpus else { continue };
        match families.iter_mut().find(|(known, _)| known == base) {
            Some((_, members)) => members.push((index, *cpus)),
            None => families.push((base, vec![(index, *cpus)])),
        }
    }
    let mut families: Vec<_> =
        families.into_iter().map(|(_, m)| m).filter(|m| m.len() > 1).collect();
    families.iter_mut().for_each(|members| members.sort_by_key(|(_, cpus)| *cpus));
    families
}

/// Returns the property in which the loads differ. `None` unless they differ in exactly one.
fn varied(loads: &[Load]) -> Option<Parameter> {
    let first = loads.first()?;
    let differs =
        |parameter: &Parameter| loads.iter().any(|l| parameter.of(l) != parameter.of(first));
    let mut varied = Parameter::OF_LOADS.into_iter().filter(differs);
    let (one, others) = (varied.next()?, varied.next());
    let rest = |l: &Load| Load {
        name: String::new(),
        shape: Shape { connections: 0, threads: 0, pipeline: 0, ..l.shape },
        has_usual_threads: true,
        ..l.clone()
    };
    let alike = loads.iter().all(|l| rest(l) == rest(first));
    (alike && others.is_none()).then_some(one)
}

/// Returns the number of cores of the servers, if `threads` is larger than that number.
pub fn beyond_cores(run: &Run, threads: usize) -> Option<usize> {
    let cores = match run.schedule.server_cpus.len() {
        0 => run.host.machine.allowed,
        pinned => pinned,
    };
    (cores > 0 && threads > cores).then_some(cores)
}

/// Computes a curve. The ideal is a straight line through the origin and the first point.
fn curve(run: &Run, parameter: Parameter, spots: &[Spot], analyses: &[Analysis]) -> Curve {
    let measured = |&(load, server, _): &Spot| &analyses[load].servers[server];
    // The growth between two points is unknown if either point is a lower bound.
    let exactly = |spot: &Spot| {
        let rate = measured(spot).level[Measure::Rate]?;
        (!measured(spot).generator_limited).then_some(rate.value)
    };
    let lowest = spots.first().and_then(|spot| Some((spot.2 as f64, exactly(spot)?)));
    let efficiency = |before: &Spot, spot: &Spot| {
        let grown = exactly(spot)? / exactly(before)?;
        Some(grown / (spot.2 as f64 / before.2 as f64)).filter(|e| e.is_finite())
    };
    let point = |(n, spot): (usize, &Spot)| ScalingPoint {
        load: spot.0,
        at: spot.2,
        rate: measured(spot).level[Measure::Rate],
        generator_limited: measured(spot).generator_limited,
        ideal: lowest.map(|(at, rate)| rate / at * spot.2 as f64),
        efficiency: n.checked_sub(1).and_then(|before| efficiency(&spots[before], spot)),
        beyond_cores: match parameter {
            Parameter::Threads => beyond_cores(run, spot.2),
            _ => None,
        },
    };
    let server = spots.first().map_or(0, |spot| spot.1);
    Curve { server, parameter, points: spots.iter().enumerate().map(point).collect() }
}

/// The measured ratio of a server to the server that a source compares it with. Only ratios can be
/// compared between machines. So each published figure is divided by another figure of its source.
#[derive(Debug, Clone, Copy)]
pub enum MeasuredRatio {
    /// The measured ratio, with its interval.
    Known(Estimate),
    /// A lower bound, because the generator limited the server.
    AtLeast(f64),
    /// An upper bound, because the generator limited the other server.
    AtMost(f64),
    /// The ratio is unknown, because the generator limited both servers.
    Limited,
    /// The ratio is unknown, for example because one of the two servers was not measured.
    Unknown,
}

/// Returns the ratio of a published figure to the figure that its source compares it with. `None`
/// if the source compares it with no other server.
pub fn ratio_then(server: usize, then: &Published) -> Option<f64> {
    let base = then.than.as_ref().filter(|base| base.server != server)?;
    Some(then.figure.requests_per_s / base.requests_per_s)
}

/// Returns the ratio of a server's measured requests/s to the measured requests/s of the server
/// that a source compares it with.
pub fn ratio_here(
    run: &Run,
    analysis: &Analysis,
    server: usize,
    then: &Published,
) -> MeasuredRatio {
    let base = then.than.as_ref().map(|base| base.server).filter(|base| *base != server);
    let Some(base) = base.filter(|base| run.is_compared(*base) && run.is_compared(server)) else {
        return MeasuredRatio::Unknown;
    };
    if let Some((effect, _)) = analysis.compared(&[(server, base)])[0].found[Measure::Rate] {
        return MeasuredRatio::Known(effect.ratio);
    }
    let (server, base) = (&analysis.servers[server], &analysis.servers[base]);
    let rates = server.level[Measure::Rate].zip(base.level[Measure::Rate]);
    let ratio = rates.map(|(rate, base)| rate.value / base.value);
    match (server.generator_limited, base.generator_limited, ratio) {
        (true, false, Some(ratio)) => MeasuredRatio::AtLeast(ratio),
        (false, true, Some(ratio)) => MeasuredRatio::AtMost(ratio),
        (true, true, _) => MeasuredRatio::Limited,
        _ => MeasuredRatio::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: the level of the layer below was taken as exact.
    #[test]
    fn a_price_is_as_uncertain_as_the_level_of_the_layer_below() {
        let level = Estimate { value: 10.0, low: 8.4, high: 11.6 };
        let exact = Estimate { value: 2.0, low: 2.0, high: 2.0 };
        let found = difference(&level, &exact);
        assert_eq!((found.value, found.low, found.high), (10.0, 8.4, 11.6));
        let ratio = Estimate { value: 2.0, low: 1.88, high: 2.12 };
        let found = difference(&level, &ratio);
        // The errors are 10 × 0.12 = 1.2 and 1.6 × 1 = 1.6. The root of their summed squares is 2.
        assert!((found.low - 8.0).abs() < 1e-9 && (found.high - 12.0).abs() < 1e-9, "{found:?}");
        let found = difference(&level, &Estimate { value: 0.5, low: 0.5, high: 0.5 });
        assert_eq!((found.value, found.low, found.high), (-5.0, -5.8, -4.2));
    }
}
