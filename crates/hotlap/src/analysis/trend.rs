//! One server over many runs: its figures, and where they changed.

use hotlap_stats::{Estimate, change_points, median};

use super::{Analysis, Measure, PerMeasure};
use crate::model::Run;

/// The measures that are followed.
pub const FOLLOWED: [Measure; 2] = [Measure::Cost, Measure::Rate];

/// A server over several runs.
#[derive(Debug)]
pub struct Trend<'a> {
    /// The last of the runs, which the others are compared with.
    pub last: &'a Run,
    /// The comparable runs in which it was measured, oldest first.
    pub points: Vec<TrendPoint<'a>>,
    /// How many runs of this server are not comparable with the last one.
    pub left_out: usize,
}

/// A server in one run.
#[derive(Debug)]
pub struct TrendPoint<'a> {
    /// The run.
    pub run: &'a Run,
    /// The server, as an index.
    pub server: usize,
    /// The level of each measure, under the first load of the run.
    pub level: PerMeasure<Option<Estimate>>,
}

/// A change of level.
#[derive(Debug, Clone, Copy)]
pub struct LevelChange {
    /// The first point of the new level, as an index.
    pub at: usize,
    /// The median of the level before.
    pub before: f64,
    /// The median of the level after.
    pub after: f64,
}

impl<'a> Trend<'a> {
    /// A server over these runs, oldest first; `None` if none of them has it.
    ///
    /// Runs are comparable if they sent the same requests under the same load on the same machine.
    pub fn of(runs: &'a [Run], server: &str) -> Option<Self> {
        let place = |run: &Run| run.servers.iter().position(|s| s.name == server);
        let own: Vec<&Run> =
            runs.iter().filter(|run| place(run).is_some() && !run.is_search()).collect();
        let last = *own.last()?;
        let is_alike = |run: &&&Run| {
            let loads = run.loads.first().zip(last.loads.first());
            key(run) == key(last) && loads.is_none_or(|(load, other)| load.is_same(other))
        };
        let alike: Vec<&Run> = own.iter().filter(is_alike).copied().collect();
        let point = |run: &&'a Run| {
            let server = place(run)?;
            let level = Analysis::of(run, 0).servers.get(server)?.level;
            level[Measure::Rate].is_some().then_some(TrendPoint { run, server, level })
        };
        let points = alike.iter().filter_map(point).collect();
        Some(Self { last, points, left_out: own.len() - alike.len() })
    }

    /// The values of a measure, one for each point.
    pub fn values(&self, measure: Measure) -> Vec<Option<f64>> {
        self.points.iter().map(|point| Some(point.level[measure]?.value)).collect()
    }
}

/// Where values change their level, see [`hotlap_stats::change_points`].
pub fn level_changes(values: &[Option<f64>]) -> Vec<LevelChange> {
    let series: Vec<f64> = values.iter().map(|v| v.unwrap_or(f64::NAN)).collect();
    let found = change_points(&series);
    let level = |from: usize, to: usize| {
        let known: Vec<f64> = values[from..to].iter().flatten().copied().collect();
        median(&known).unwrap_or(f64::NAN)
    };
    let change = |(n, &at): (usize, &usize)| {
        let from = if n == 0 { 0 } else { found[n - 1] };
        let to = found.get(n + 1).copied().unwrap_or(values.len());
        LevelChange { at, before: level(from, at), after: level(at, to) }
    };
    found.iter().enumerate().map(change).collect()
}

/// What two runs must have in common to be comparable.
#[derive(PartialEq)]
struct Key<'a> {
    contract: &'a str,
    server_cpus: &'a [usize],
    cpu: &'a str,
    fingerprint: Option<&'a str>,
}

fn key(run: &Run) -> Key<'_> {
    Key {
        contract: &run.contract,
        server_cpus: &run.schedule.server_cpus,
        cpu: &run.host.cpu,
        fingerprint: run.host.fingerprint(),
    }
}
