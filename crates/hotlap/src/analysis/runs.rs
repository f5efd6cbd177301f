//! Compares stored runs with other runs, and follows one server over many runs ([`Trend`]).
//!
//! Each run is one sample of the machine, so intervals are computed over runs, and a verdict needs
//! three runs on each side. If all runs have a ceiling, requests/s and CPU time are compared as
//! ratios to the ceiling, which is the same program in all runs. An effect of the machine on both
//! the server and the ceiling cancels in the ratio.

use hotlap_stats::{
    ByRestart, Effect, Estimate, Inconclusive, MIN_RESTARTS, Mean, change_points, median, pairs,
    totals,
};

use super::capacity::{CapacityAnalysis, Highest, ServerCapacity};
use super::compare::{Compared, Found, found_in_families, judged};
use super::{Analysis, Limited, Measure, MeasuredServer, PerMeasure, ServerComparison, confidence};
use crate::model::{Load, Run};

/// The earlier runs and the later runs. Neither side is empty.
pub type Sides<'a> = [&'a [Run]; 2];

/// A server or a load that all runs have, as its index in each run of each side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched(pub [Vec<usize>; 2]);

impl Matched {
    /// Returns the index in the first run of each side.
    pub fn first(&self) -> [usize; 2] {
        self.0.each_ref().map(|of| of[0])
    }

    /// Applies a function to each run and to the index in that run.
    fn in_all<'a, R, T>(&self, runs: [&'a [R]; 2], of: impl Fn(&'a R, usize) -> T) -> [Vec<T>; 2] {
        [0, 1].map(|n| runs[n].iter().zip(&self.0[n]).map(|(run, at)| of(run, *at)).collect())
    }

    /// Finds a server or a load in each run. `None` if any run does not have it.
    fn in_each(sides: Sides, find: impl Fn([usize; 2]) -> Option<usize>) -> Option<Self> {
        let side = |n: usize| (0..sides[n].len()).map(|run| find([n, run])).collect();
        let both: [Option<Vec<usize>>; 2] = [side(0), side(1)];
        let [before, after] = both;
        Some(Self([before?, after?]))
    }
}

/// Returns the servers that have the same name in all runs. If each run has only one server, the
/// names do not matter.
pub fn matched_servers(sides: Sides) -> Vec<Matched> {
    let all = sides.map(|runs| runs.iter().map(compared).collect::<Vec<_>>());
    if all.iter().flatten().all(|servers| servers.len() == 1) {
        return vec![Matched(all.map(|runs| runs.into_iter().flatten().collect()))];
    }
    let same = |&own: &usize| {
        let name = &sides[1][0].servers[own].name;
        let is_same = |run: &Run, server: usize| run.servers[server].name == *name;
        Matched::in_each(sides, |[side, run]| {
            all[side][run].iter().copied().find(|&server| is_same(&sides[side][run], server))
        })
    };
    all[1][0].iter().filter_map(same).collect()
}

/// Returns the indices of the servers of a run that can be compared.
pub fn compared(run: &Run) -> Vec<usize> {
    (0..run.servers.len()).filter(|&i| run.is_compared(i)).collect()
}

/// Returns the loads that all runs have. [`Load::is_same`] decides whether two loads are the same.
/// If the requests of a load are unknown, the runs must also have a contract in common.
pub fn matched_loads(sides: Sides) -> Vec<Matched> {
    let newest = &sides[1][0];
    let mut all: Vec<Matched> = Vec::new();
    for load in &newest.loads {
        let same = Matched::in_each(sides, |[side, run]| {
            let is_taken = |place| all.iter().any(|taken| taken.0[side][run] == place);
            let run = &sides[side][run];
            let is_same = |(place, other): (usize, &Load)| {
                let is_unknown = load.sends.is_empty() || other.sends.is_empty();
                let is_alike = load.is_same(other) && !is_taken(place);
                is_alike && (!is_unknown || share_a_contract(newest, run))
            };
            run.loads.iter().enumerate().position(is_same)
        });
        all.extend(same);
    }
    all
}

/// Whether two runs have a contract or a path in common.
fn share_a_contract(one: &Run, other: &Run) -> bool {
    let theirs = || other.contract.split(", ");
    one.contract.split(", ").any(|own| theirs().any(|other| other == own))
}

/// The analyses of the runs of both sides under one load.
#[derive(Debug)]
pub struct AnalysedSides<A> {
    runs: [Vec<A>; 2],
    /// The reason why no verdict is possible, whatever the runs measured.
    too_few: Option<Inconclusive>,
    /// The confidence of every interval: the highest confidence of any run.
    confidence: f64,
}

/// The two sides of a comparison of runs that compare servers.
pub type LoadSides = AnalysedSides<Analysis>;

/// The two sides of a comparison of searches.
pub type SearchSides = AnalysedSides<CapacityAnalysis>;

impl<A> AnalysedSides<A> {
    fn new(sides: Sides, load: &Matched, analysed: impl Fn(&Run, usize) -> A) -> Self {
        let is_few = |runs: &[Run]| runs.len() < MIN_RESTARTS as usize;
        Self {
            runs: load.in_all(sides, analysed),
            too_few: sides.into_iter().any(is_few).then_some(Inconclusive::TooFewRuns),
            confidence: sides.into_iter().flatten().map(confidence).fold(0.0, f64::max),
        }
    }

    /// Returns the level over the runs of one side.
    fn level(&self, runs: &[ByRestart]) -> Option<Estimate> {
        Some(Mean::of_runs(runs)?.exp(self.confidence))
    }

    /// Returns the ratio of the later side to the earlier side, with Welch's interval over runs.
    fn change(&self, [before, after]: [Vec<ByRestart>; 2]) -> Option<Effect> {
        Some(Mean::of_runs(&after)?.minus(&Mean::of_runs(&before)?).effect(self.confidence))
    }

    /// Returns one server in each run of both sides.
    fn in_each<'a, S>(
        &'a self,
        server: &Matched,
        of: impl Fn(&'a A, usize) -> &'a S,
    ) -> [Vec<&'a S>; 2] {
        server.in_all(self.runs.each_ref().map(Vec::as_slice), of)
    }
}

/// One server in each run of both sides.
type InEach<'a> = [Vec<&'a MeasuredServer>; 2];

impl LoadSides {
    /// Analyses the runs under a load that they all have.
    pub fn of(sides: Sides, load: &Matched) -> Self {
        Self::new(sides, load, Analysis::of)
    }

    /// Compares each server of the later runs with itself in the earlier runs.
    pub fn compared(&self, servers: &[Matched]) -> Vec<ServerComparison> {
        let compared = |server: &Matched| {
            let in_each = self.measured(server);
            PerMeasure::of(|measure| self.compared_in(&in_each, measure))
        };
        let compared: Vec<_> = servers.iter().map(compared).collect();
        let limited = |server: &Matched| keep_up(&self.measured(server)).then_some(Limited::Both);
        let found = found_in_families(&compared).into_iter().zip(servers);
        found.map(|(found, server)| ServerComparison { found, limited: limited(server) }).collect()
    }

    /// Returns the level of a server in a measure on each side, and whether it is a lower bound.
    pub fn levels(&self, server: &Matched, measure: Measure) -> [Option<(Estimate, bool)>; 2] {
        self.measured(server).map(|servers| {
            let level = match &servers[..] {
                [server] => server.level[measure],
                _ => self.level(&logs(&servers, None, measure)),
            };
            let is_lower_bound = servers.iter().any(|server| server.is_lower_bound[measure]);
            level.map(|level| (level, is_lower_bound))
        })
    }

    /// Returns the change of the ceiling from the earlier side to the later side. `None` if servers
    /// are not compared as ratios to the ceiling in this measure.
    pub fn ceiling(&self, measure: Measure) -> Option<Effect> {
        let ceilings = self.ceilings(measure)?;
        let of = |n: usize| logs(&ceilings[n], None, measure);
        self.change([of(0), of(1)])
    }

    fn measured(&self, server: &Matched) -> InEach<'_> {
        self.in_each(server, |run, server| &run.servers[server])
    }

    /// Returns the ceiling in each run. `None` unless servers are compared as ratios to the
    /// ceiling in this measure. The measure must be requests/s or CPU time, and known for the
    /// ceiling in all runs.
    fn ceilings(&self, measure: Measure) -> Option<InEach<'_>> {
        let ceilings = [ceilings(&self.runs[0])?, ceilings(&self.runs[1])?];
        let is_known = |ceiling: &&MeasuredServer| match measure {
            Measure::Rate => !ceiling.generator_limited,
            _ => measure == Measure::Cost,
        };
        ceilings.iter().flatten().all(is_known).then_some(ceilings)
    }

    /// Returns the logarithms of one server's figures as ratios to the ceiling. `None` if any run
    /// has no such ratio.
    fn relative(&self, server: &InEach, measure: Measure) -> Option<[Vec<ByRestart>; 2]> {
        let ceilings = self.ceilings(measure)?;
        let of = |n: usize| logs(&server[n], Some(&ceilings[n]), measure);
        Some([of(0), of(1)]).filter(|s| !s.iter().flatten().any(ByRestart::is_empty))
    }

    /// Whether a server is compared by its ratios to the ceiling.
    pub fn is_relative(&self, server: &Matched, measure: Measure) -> bool {
        self.relative(&self.measured(server), measure).is_some()
    }

    /// Compares one server on both sides. `None` if the generator limits the measure, or if any run
    /// has a lower bound or wrong responses. Requests/s are not compared if the server serves the
    /// full rate of an open loop in all runs.
    fn compared_in(&self, server: &InEach, measure: Measure) -> Compared {
        let any = |is: &dyn Fn(&MeasuredServer) -> bool| server.iter().flatten().any(|s| is(s));
        let is_hidden = (measure.is_hidden_by_generator() && any(&|s| s.generator_limited))
            || any(&|s| s.is_lower_bound[measure] || s.wrong > 0)
            || (measure == Measure::Rate && keep_up(server));
        if is_hidden {
            return None;
        }
        let plain = || server.each_ref().map(|side| logs(side, None, measure));
        let effect = self.change(self.relative(server, measure).unwrap_or_else(plain))?;
        let control_differs = || self.runs.iter().flatten().any(|run| run.control_differs(measure));
        let sides = || self.runs.iter().zip(server);
        let is_bound = || {
            sides().any(|(runs, servers)| {
                runs.iter().zip(servers).any(|(run, server)| run.is_database_bound(server, measure))
            })
        };
        let withheld = any(&|s| s.is_unsteady_in(measure))
            .then_some(Inconclusive::NotSteady)
            .or(self.too_few)
            .or_else(|| control_differs().then_some(Inconclusive::ControlDiffers))
            .or_else(|| is_bound().then_some(Inconclusive::DatabaseBound));
        Some((measure.criterion(self.confidence, withheld), effect))
    }
}

/// Returns the ceiling in each run. `None` if any run has no ceiling.
fn ceilings(runs: &[Analysis]) -> Option<Vec<&MeasuredServer>> {
    runs.iter().map(|run| Some(&run.servers[run.ceiling?])).collect()
}

/// Returns the logarithm of a server's figure in each restart of each run. With `ceilings`, the
/// figure is the ratio to the ceiling.
fn logs(
    servers: &[&MeasuredServer],
    ceilings: Option<&[&MeasuredServer]>,
    measure: Measure,
) -> Vec<ByRestart> {
    let of = |(run, server): (usize, &&MeasuredServer)| match ceilings {
        None => totals(&server.readings[measure]),
        Some(ceilings) => pairs(&server.readings[measure], &ceilings[run].readings[measure]),
    };
    servers.iter().enumerate().map(of).collect()
}

/// Whether a server serves the full rate of an open loop in all runs.
fn keep_up(server: &InEach) -> bool {
    server.iter().flatten().all(|server| server.keeps_up)
}

impl SearchSides {
    /// Analyses the searches under a load that they all have.
    pub fn of(sides: Sides, load: &Matched) -> Self {
        Self::new(sides, load, CapacityAnalysis::of)
    }

    /// Returns the capacity of a server on each side. With several searches on a side, the capacity
    /// is unknown if any of them found only a bound.
    pub fn capacities(&self, server: &Matched) -> [Highest; 2] {
        self.found(server).map(|found| match &found[..] {
            [found] => found.found,
            _ => self.level(&restarts(&found)).map_or(Highest::Unknown, Highest::Rate),
        })
    }

    fn found(&self, server: &Matched) -> [Vec<&ServerCapacity>; 2] {
        self.in_each(server, |run, server| &run.servers[server])
    }

    /// Compares the capacity of each server in the later searches with its capacity in the earlier
    /// searches. `None` if any capacity is only a bound.
    pub fn compared(&self, servers: &[Matched]) -> Vec<Found> {
        let criterion = Measure::Rate.criterion(self.confidence, self.too_few);
        let effect = |server: &Matched| {
            let sides = self.found(server).map(|found| restarts(&found));
            Some((criterion, self.change(sides)?))
        };
        judged(servers.iter().map(effect).collect())
    }
}

/// Returns the logarithm of the capacity in each restart of each search.
fn restarts(found: &[&ServerCapacity]) -> Vec<ByRestart> {
    found.iter().map(|found| found.logs()).collect()
}

/// The measures for which trends are shown.
pub const FOLLOWED: [Measure; 2] = [Measure::Cost, Measure::Rate];

/// A server over several runs.
#[derive(Debug)]
pub struct Trend<'a> {
    /// The last run of the server, with which the other runs are compared.
    pub last: &'a Run,
    /// The comparable runs in which the server was measured, oldest first.
    pub points: Vec<TrendPoint<'a>>,
    /// The number of runs of the server that are not comparable with the last one.
    pub left_out: usize,
}

/// A server in one run.
#[derive(Debug)]
pub struct TrendPoint<'a> {
    /// The run.
    pub run: &'a Run,
    /// The index of the server.
    pub server: usize,
    /// The level of each measure, under the first load of the run.
    pub level: PerMeasure<Option<Estimate>>,
}

/// A change in the level of a measure over several runs.
#[derive(Debug, Clone, Copy)]
pub struct LevelChange {
    /// The index of the first point of the new level.
    pub at: usize,
    /// The median of the values before the change.
    pub before: f64,
    /// The median of the values after the change.
    pub after: f64,
}

impl<'a> Trend<'a> {
    /// Follows a server over runs that are sorted oldest first. `None` if no run has the server.
    ///
    /// Runs are comparable if requests, first load, machine and server cores are the same.
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

    /// Returns the values of a measure, one for each point.
    pub fn values(&self, measure: Measure) -> Vec<Option<f64>> {
        self.points.iter().map(|point| Some(point.level[measure]?.value)).collect()
    }
}

/// Finds where the values change their level, see [`hotlap_stats::change_points`].
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

/// Returns the facts that two runs must have in common to be comparable.
fn key(run: &Run) -> (&str, &[usize], &str, &str) {
    let machine = &run.host.machine;
    (&run.contract, &run.schedule.server_cpus, &machine.cpu, &machine.fingerprint)
}
