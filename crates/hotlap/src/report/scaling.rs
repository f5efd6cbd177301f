//! How a server scales: its requests/s under loads that differ in one number only.

use super::figure::rounded;
use super::{ScalePoint, Scaling, Table};
use crate::record::{Load, Run};

/// A number of a load, and what it is called.
type Parameter = (&'static str, fn(&Load) -> usize);

const PARAMETERS: [Parameter; 3] = [
    ("connections", |l| l.connections),
    ("requests in flight on each connection", |l| l.pipeline),
    ("generator threads", |l| l.threads),
];

/// One curve a server; none where the loads do not differ in exactly one number.
#[must_use]
pub fn scaling(run: &Run, tables: &[Table]) -> Vec<Scaling> {
    let Some((parameter, of)) = varied(&run.loads) else { return Vec::new() };
    let mut order: Vec<usize> = (0..run.loads.len()).collect();
    order.sort_by_key(|&load| of(&run.loads[load]));
    let names = tables.first().into_iter().flat_map(|t| &t.rows).map(|r| &r.name);
    names.map(|name| curve(name, parameter, &order, tables, |load| of(&run.loads[load]))).collect()
}

fn varied(loads: &[Load]) -> Option<Parameter> {
    let differs = |(_, of): &Parameter| loads.iter().any(|l| of(l) != of(&loads[0]));
    let mut varied = PARAMETERS.into_iter().filter(differs);
    let (one, others) = (varied.next()?, varied.next());
    let alike = loads.iter().all(|l| l.keep_alive == loads[0].keep_alive);
    (alike && others.is_none()).then_some(one)
}

/// The ideal is a straight line through nothing and the least load.
fn curve(
    name: &str,
    parameter: &str,
    order: &[usize],
    tables: &[Table],
    at: impl Fn(usize) -> usize,
) -> Scaling {
    let rate = |load: usize| {
        let row = tables.get(load)?.rows.iter().find(|r| r.name == name)?;
        row.requests_per_s.clone()
    };
    let least = order.first().and_then(|&load| Some((at(load) as f64, rate(load)?.value)));
    let point = |&load: &usize| ScalePoint {
        load,
        at: at(load) as u64,
        requests_per_s: rate(load),
        ideal: least.map(|(at_least, rate)| rounded(rate / at_least * at(load) as f64)),
    };
    Scaling {
        server: name.to_owned(),
        parameter: parameter.to_owned(),
        points: order.iter().map(point).collect(),
    }
}
