//! How a server scales: its requests/s by the number of its threads, or by the one property in
//! which the loads differ.

use hotlap_stats::Estimate;

use super::{Analysis, Measure};
use crate::model::{Load, Run};

/// The property in which the points of a curve differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// Threads of the server.
    Threads,
    /// Connections of the load.
    Connections,
    /// Requests in flight on each connection.
    Pipeline,
    /// Threads of the generator.
    GeneratorThreads,
}

/// How one server scales.
#[derive(Debug)]
pub struct Curve {
    /// The index of the server; if several differ in their threads, of the one with the fewest.
    pub server: usize,
    /// The property that differs.
    pub parameter: Parameter,
    /// The points, lowest value first.
    pub points: Vec<CurvePoint>,
}

/// One server under one of the loads of the curve.
#[derive(Debug)]
pub struct CurvePoint {
    /// The index of the load.
    pub load: usize,
    /// The value of the property.
    pub at: usize,
    /// Requests/s.
    pub rate: Option<Estimate>,
    /// Requests/s is a lower bound.
    pub generator_limited: bool,
    /// What requests/s would be if it grew in proportion to the property, from the first point on.
    pub ideal: Option<f64>,
    /// The growth from the previous point as a share of proportional growth: 1 is all.
    pub efficiency: Option<f64>,
    /// The number of cores of the servers, if the point has more threads than that.
    pub beyond_cores: Option<usize>,
}

/// A point of a curve: load and server, by index, and the value of the property.
type Spot = (usize, usize, usize);

/// One curve per server; none if neither threads nor loads form a series.
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

    /// The value of the property in a load.
    fn of(self, load: &Load) -> usize {
        match self {
            Self::Connections => load.connections,
            Self::Pipeline => load.pipeline,
            Self::GeneratorThreads => load.threads,
            Self::Threads => 0,
        }
    }
}

/// Servers that differ only in their number of threads: their indices and threads, fewest first.
fn families(run: &Run) -> Vec<Vec<(usize, usize)>> {
    let mut families: Vec<(&str, Vec<(usize, usize)>)> = Vec::new();
    for (index, server) in run.servers.iter().enumerate().filter(|(_, s)| s.failure.is_none()) {
        let Some(cpus) = server.part.cpus else { continue };
        match families.iter_mut().find(|(base, _)| *base == server.part.base) {
            Some((_, members)) => members.push((index, cpus)),
            None => families.push((&server.part.base, vec![(index, cpus)])),
        }
    }
    let mut families: Vec<_> =
        families.into_iter().map(|(_, m)| m).filter(|m| m.len() > 1).collect();
    families.iter_mut().for_each(|members| members.sort_by_key(|(_, cpus)| *cpus));
    families
}

/// The one property in which the loads differ, if there is exactly one.
fn varied(loads: &[Load]) -> Option<Parameter> {
    let first = loads.first()?;
    let differs =
        |parameter: &Parameter| loads.iter().any(|l| parameter.of(l) != parameter.of(first));
    let mut varied = Parameter::OF_LOADS.into_iter().filter(differs);
    let (one, others) = (varied.next()?, varied.next());
    let rest = |l: &Load| (l.keep_alive, l.request.clone(), l.rate);
    let alike = loads.iter().all(|l| rest(l) == rest(first));
    (alike && others.is_none()).then_some(one)
}

/// The number of cores of the servers, if it is less than this number of threads.
pub fn beyond_cores(run: &Run, threads: usize) -> Option<usize> {
    let cores = match run.schedule.server_cpus.len() {
        0 => run.host.cores as usize,
        pinned => pinned,
    };
    (cores > 0 && threads > cores).then_some(cores)
}

/// The ideal is a straight line through the origin and the first point.
fn curve(run: &Run, parameter: Parameter, spots: &[Spot], analyses: &[Analysis]) -> Curve {
    let measured = |&(load, server, _): &Spot| &analyses[load].servers[server];
    // Between two points of which one is a lower bound, growth is unknown.
    let exactly = |spot: &Spot| {
        let rate = measured(spot).level[Measure::Rate]?;
        (!measured(spot).generator_limited).then_some(rate.value)
    };
    let lowest = spots.first().and_then(|spot| Some((spot.2 as f64, exactly(spot)?)));
    let efficiency = |before: &Spot, spot: &Spot| {
        let grown = exactly(spot)? / exactly(before)?;
        Some(grown / (spot.2 as f64 / before.2 as f64)).filter(|e| e.is_finite())
    };
    let point = |(n, spot): (usize, &Spot)| CurvePoint {
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
