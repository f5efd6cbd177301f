//! How a server scales: its requests/s over the number of its threads, or under loads that differ
//! in one number only.

use super::figure::rounded;
use super::{Figure, ScalePoint, Scaling, Table};
use crate::record::{Load, Run};

/// A number of a load, and what it is called.
type Parameter = (&'static str, fn(&Load) -> usize);

const PARAMETERS: [Parameter; 3] = [
    ("connections", |l| l.connections),
    ("requests in flight on each connection", |l| l.pipeline),
    ("generator threads", |l| l.threads),
];

/// One place on a curve: which table, which row, and its value.
type Spot<'a> = (usize, &'a str, usize);

/// One curve a server; none where neither threads nor loads form a scale.
#[must_use]
pub fn scaling(run: &Run, tables: &[Table]) -> Vec<Scaling> {
    let families = families(run);
    if !families.is_empty() {
        let per_load = |load: usize| {
            families.iter().map(move |f| f.iter().map(|&(name, n)| (load, name, n)).collect())
        };
        return (0..tables.len())
            .flat_map(per_load)
            .map(|spots: Vec<Spot>| curve(run, "threads", &spots, tables))
            .collect();
    }
    let Some((parameter, of)) = varied(&run.loads) else { return Vec::new() };
    let mut order: Vec<usize> = (0..run.loads.len()).collect();
    order.sort_by_key(|&load| of(&run.loads[load]));
    let names = tables.first().into_iter().flat_map(|t| &t.rows).map(|r| r.name.as_str());
    names
        .map(|name| {
            let spots: Vec<Spot> =
                order.iter().map(|&load| (load, name, of(&run.loads[load]))).collect();
            curve(run, parameter, &spots, tables)
        })
        .collect()
}

/// Servers that differ in their number of threads alone: their names, the fewest threads first.
fn families(run: &Run) -> Vec<Vec<(&str, usize)>> {
    let mut families: Vec<(&str, Vec<(&str, usize)>)> = Vec::new();
    for server in run.servers.iter().filter(|s| s.failure.is_none()) {
        let Some(cpus) = server.part.cpus else { continue };
        let member = (server.name.as_str(), cpus);
        match families.iter_mut().find(|(base, _)| *base == server.part.base) {
            Some((_, members)) => members.push(member),
            None => families.push((&server.part.base, vec![member])),
        }
    }
    let mut families: Vec<_> =
        families.into_iter().map(|(_, m)| m).filter(|m| m.len() > 1).collect();
    families.iter_mut().for_each(|members| members.sort_by_key(|(_, cpus)| *cpus));
    families
}

fn varied(loads: &[Load]) -> Option<Parameter> {
    let differs = |(_, of): &Parameter| loads.iter().any(|l| of(l) != of(&loads[0]));
    let mut varied = PARAMETERS.into_iter().filter(differs);
    let (one, others) = (varied.next()?, varied.next());
    let alike = loads.iter().all(|l| {
        (l.keep_alive, &l.request, l.rate)
            == (loads[0].keep_alive, &loads[0].request, loads[0].rate)
    });
    (alike && others.is_none()).then_some(one)
}

/// How many threads the servers have cores for.
fn cores(run: &Run) -> usize {
    match run.schedule.server_cpus.len() {
        0 => run.host.cores as usize,
        pinned => pinned,
    }
}

/// What is to be told of a server that is told to use so many cores; empty where it has them.
#[must_use]
pub fn beyond(run: &Run, cpus: usize) -> String {
    match cores(run) {
        0 => String::new(),
        cores if cpus <= cores => String::new(),
        1 => "more threads than cores: the servers have one here".to_owned(),
        cores => format!("more threads than cores: the servers have {cores} here"),
    }
}

/// The ideal is a straight line through nothing and the least value.
fn curve(run: &Run, parameter: &str, spots: &[Spot], tables: &[Table]) -> Scaling {
    let row = |(load, name, _): &Spot| {
        let mut rows = tables.get(*load)?.rows.iter();
        rows.find(|r| r.name == *name)
    };
    // Between two of which one is a lower bound nothing is known to grow.
    let exactly = |spot: &Spot| row(spot).filter(|r| !r.is_bound)?.requests_per_s.as_ref();
    let least = spots.first().and_then(|spot| Some((spot.2 as f64, exactly(spot)?.value)));
    let mut points: Vec<ScalePoint> = Vec::new();
    let mut before: Option<&Spot> = None;
    for spot in spots {
        let requests_per_s = row(spot).and_then(|r| match r.is_bound {
            true => r.requests_per_s.as_ref().map(Figure::at_least),
            false => r.requests_per_s.clone(),
        });
        let step = before.replace(spot).and_then(|before| {
            let grown = exactly(spot)?.value / exactly(before)?.value;
            Some(rounded(grown / (spot.2 as f64 / before.2 as f64)))
        });
        points.push(ScalePoint {
            load: spot.0,
            at: spot.2 as u64,
            requests_per_s,
            ideal: least.map(|(at, rate)| rounded(rate / at * spot.2 as f64)),
            efficiency: step.filter(|e| e.is_finite()),
            note: if parameter == "threads" { beyond(run, spot.2) } else { String::new() },
        });
    }
    let server = spots.first().map_or("", |(_, name, _)| name);
    let base = run.servers.iter().find(|s| s.name == server).map_or("", |s| &s.part.base);
    let load = spots.first().map_or(0, |spot| spot.0);
    let under = match parameter == "threads" && run.loads.len() > 1 {
        true => format!(" ({})", tables[load].title),
        false => String::new(),
    };
    let called = if base.is_empty() { server } else { base };
    Scaling {
        server: server.to_owned(),
        parameter: parameter.to_owned(),
        sentence: format!("{called}{under} over {parameter}: {}.", said(&points)),
        points,
    }
}

/// `1: 5,000 · 2: 9,500 (95 % of twice) · 4: …`.
fn said(points: &[ScalePoint]) -> String {
    let one = |point: &ScalePoint| {
        let rate = point.requests_per_s.as_ref().map_or("not measured", |f| f.text.as_str());
        let mut more: Vec<String> = Vec::new();
        more.extend(point.efficiency.map(|e| format!("{:.0} % of proportion", e * 100.0)));
        more.extend((!point.note.is_empty()).then(|| "more threads than cores".to_owned()));
        match more.is_empty() {
            true => format!("{}: {rate}", point.at),
            false => format!("{}: {rate} ({})", point.at, more.join(", ")),
        }
    };
    points.iter().map(one).collect::<Vec<_>>().join(" · ")
}
