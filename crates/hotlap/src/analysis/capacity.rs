//! Finds the capacity of each server from the laps of a search. The capacity is the highest rate at
//! which a server meets the goals.

use hotlap_bench::slo::Objective;
use hotlap_stats::{ByRestart, Capacity, Estimate, Mean, Survival, Trial, apart, median};

use super::compare::{Found, judged};
use super::{Measure, confidence, latency::Times};
use crate::model::{Lap, Role, Run};

/// Laps are near the capacity if their rates differ from the capacity by at most this share. CPU
/// time per request at the capacity is taken from these laps.
const NEAR: f64 = 0.1;

/// Windows whose rates differ by at most this share are one point of the latency curve.
const ALIKE: f64 = 0.02;

/// The capacities of all servers of a search under one load.
#[derive(Debug)]
pub struct CapacityAnalysis {
    /// The index of the load.
    pub load: usize,
    /// The servers, in the order of the run.
    pub servers: Vec<ServerCapacity>,
    /// The index of the reference.
    pub reference: Option<usize>,
}

/// The results of a search for one server.
#[derive(Debug)]
pub struct ServerCapacity {
    /// The highest rate at which the server meets every goal over a long time, in requests/s.
    pub found: Highest,
    /// The index of the goal that was missed in the most windows.
    pub decisive: Option<usize>,
    /// The logarithm of the capacity in each restart.
    logs: ByRestart,
    /// The standard error that the uncertain slope of the curve adds to the capacity.
    error: f64,
    /// The last counted window in which the server was held at one rate for longer than usual.
    pub held: Option<TrialView>,
    /// The comparison with the reference.
    pub against: Found,
    /// CPU time per request near the capacity, in nanoseconds.
    pub cost_ns: Option<f64>,
    /// The windows of usual length, the lowest rate first.
    pub windows: Vec<TrialView>,
}

/// What a search found for a server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Highest {
    /// The capacity with its interval.
    Rate(Estimate),
    /// At least this rate: the generator could not offer more, or the search ended too early.
    AtLeast(f64),
    /// Below this rate, the lowest that was tried.
    Below(f64),
    /// Nothing is known, because no window counts.
    Unknown,
}

/// One window of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialView {
    /// The number of the restart, from 0.
    pub restart: u32,
    /// The offered rate, in requests/s.
    pub rate: f64,
    /// The length of the window, in nanoseconds.
    pub window_ns: u64,
    /// Whether the window passed its validity checks.
    pub counts: bool,
    /// The indices of the goals that the window missed.
    pub missed: Vec<usize>,
    /// The percentile of the first latency goal, in nanoseconds, and whether it is a lower bound.
    /// `None` without such a goal or without requests.
    pub latency_ns: Option<(u64, bool)>,
}

impl CapacityAnalysis {
    /// Analyses one load of a search.
    pub fn of(run: &Run, load: usize) -> Self {
        let servers = (0..run.servers.len()).map(|server| ServerCapacity::of(run, load, server));
        let reference = run.servers.iter().position(|s| s.role == Role::Reference);
        let mut analysis = Self { load, servers: servers.collect(), reference };
        analysis.compare(run);
        analysis
    }

    /// Analyses all loads of a search. The list is empty for other runs.
    pub fn of_all(run: &Run) -> Vec<Self> {
        let loads = if run.schedule.objectives.is_empty() { 0 } else { run.loads.len() };
        (0..loads).map(|load| Self::of(run, load)).collect()
    }

    /// Compares every server with the reference. A search has no A/A control. The interval of the
    /// ratio rests on the restarts that both servers have.
    fn compare(&mut self, run: &Run) {
        let Some(reference) = self.reference else { return };
        let confidence = confidence(run);
        let criterion = Measure::Rate.criterion(confidence, None);
        let others: Vec<usize> = (0..self.servers.len())
            .filter(|&server| server != reference && run.is_compared(server))
            .collect();
        let compared = others.iter().map(|&server| {
            let [server, reference] = [server, reference].map(|server| &self.servers[server]);
            let error = Mean::known(0.0, server.error.hypot(reference.error));
            let ratio = Mean::of(apart(&server.logs, &reference.logs))?.minus(&error);
            Some((criterion, ratio.effect(confidence)))
        });
        for (found, server) in judged(compared.collect()).into_iter().zip(others) {
            self.servers[server].against = found;
        }
    }

    /// Sorts servers into the order in which tables show them: the highest capacity first.
    pub fn sort(&self, servers: &mut [usize]) {
        let rate = |server: usize| match self.servers[server].found {
            Highest::Rate(rate) => rate.value,
            Highest::AtLeast(rate) => rate,
            Highest::Below(_) | Highest::Unknown => 0.0,
        };
        servers.sort_by(|&a, &b| rate(b).total_cmp(&rate(a)));
    }
}

impl ServerCapacity {
    fn of(run: &Run, load: usize, server: usize) -> Self {
        let objectives = &run.schedule.objectives;
        let laps = || run.laps.iter().filter(|lap| lap.server == server && lap.load == load);
        let counted: Vec<&Lap> = laps().filter(|lap| lap.counts()).collect();
        let view = |lap: &Lap| TrialView::of(lap, objectives);
        let mut windows: Vec<TrialView> = laps().filter(|lap| !lap.is_held()).map(view).collect();
        let holds: Vec<TrialView> =
            counted.iter().filter(|lap| lap.is_held()).map(|lap| view(lap)).collect();
        let held = holds.last().cloned();
        windows.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let counting = windows.iter().filter(|window| window.counts);
        let trials: Vec<Trial> = counting.map(TrialView::trial).collect();
        let fit = Capacity::fit(&trials, Objective::strictest(objectives));
        // How far the server had to step down to meet the goals over a long time, as a factor.
        let step = match (&holds[..], &held) {
            ([first, ..], Some(held)) if held.is_kept() => held.rate / first.rate,
            _ => 1.0,
        };
        let found = match fit.as_ref().and_then(Capacity::mean) {
            Some(mean) => Highest::Rate(mean.exp(confidence(run)).scaled(step)),
            None => bound(&windows),
        };
        let cost_ns = match found {
            Highest::Rate(Estimate { value, .. }) | Highest::AtLeast(value) => {
                cost_near(&counted, value)
            }
            Highest::Below(_) | Highest::Unknown => None,
        };
        Self {
            found,
            decisive: decisive(&windows, objectives.len()),
            error: fit.as_ref().map_or(0.0, Capacity::error),
            logs: fit.as_ref().map(Capacity::logs).unwrap_or_default(),
            held,
            against: None,
            cost_ns,
            windows,
        }
    }

    /// Returns the logarithm of the capacity in each restart. Empty if only a bound is known.
    pub(super) fn logs(&self) -> ByRestart {
        let is_rate = matches!(self.found, Highest::Rate(_));
        if is_rate { self.logs.clone() } else { ByRestart::new() }
    }

    /// Returns the number of restarts that the interval of the capacity rests on.
    pub fn restarts(&self) -> usize {
        self.logs.len()
    }
}

/// The latency of windows at about one rate, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyAtRate {
    /// The mean rate, in requests/s.
    pub rate: f64,
    /// The median latency of the windows.
    pub median_ns: f64,
    /// The lowest latency of a window.
    pub lowest_ns: f64,
    /// The highest latency of a window.
    pub highest_ns: f64,
}

impl ServerCapacity {
    /// Returns the latency at each rate. Windows whose rates differ by at most `ALIKE` are merged.
    pub fn curve(&self) -> Vec<LatencyAtRate> {
        let windows: Vec<(f64, f64)> = self
            .windows
            .iter()
            .filter(|window| window.counts)
            .filter_map(|window| Some((window.rate, window.latency_ns?.0 as f64)))
            .collect();
        let mut points = Vec::new();
        let mut rest = &windows[..];
        while let Some((first, _)) = rest.first() {
            let alike = rest.partition_point(|(rate, _)| *rate <= first * (1.0 + ALIKE));
            let (group, others) = rest.split_at(alike);
            let latency: Vec<f64> = group.iter().map(|(_, ns)| *ns).collect();
            points.push(LatencyAtRate {
                rate: group.iter().map(|(rate, _)| rate).sum::<f64>() / group.len() as f64,
                median_ns: median(&latency).unwrap_or(f64::NAN),
                lowest_ns: latency.iter().copied().fold(f64::INFINITY, f64::min),
                highest_ns: latency.iter().copied().fold(0.0, f64::max),
            });
            rest = others;
        }
        points
    }
}

impl TrialView {
    fn of(lap: &Lap, objectives: &[Objective]) -> Self {
        let missed = (0..objectives.len()).filter(|goal| !objectives[*goal].is_kept(&lap.outcome));
        let missed: Vec<usize> = missed.collect();
        let latency = objectives.iter().find_map(Objective::latency);
        let latency_ns = latency.and_then(|(quantile, _)| {
            let (answered, censored) = Times::of(lap, true);
            let times = Survival::new(answered, censored);
            let found = times.quantile(quantile);
            (!times.is_empty()).then_some((found.ns, found.is_lower_bound))
        });
        let rate = lap.rate().unwrap_or_default();
        let (restart, window_ns) = (lap.restart, lap.outcome.window_ns);
        Self { restart, rate, window_ns, counts: lap.counts(), missed, latency_ns }
    }

    /// Whether the window met every goal.
    pub fn is_kept(&self) -> bool {
        self.missed.is_empty()
    }

    fn trial(&self) -> Trial {
        Trial { restart: self.restart, rate: self.rate, is_kept: self.is_kept() }
    }
}

/// Returns the index of the goal that was missed in the most windows. `None` if no goal was missed.
fn decisive(windows: &[TrialView], goals: usize) -> Option<usize> {
    let missed =
        |goal: &usize| windows.iter().filter(|w| w.counts && w.missed.contains(goal)).count();
    // Of goals that are missed equally often, the first one decides.
    (0..goals).rev().max_by_key(missed).filter(|goal| missed(goal) > 0)
}

/// Returns what the windows prove if they do not bracket the capacity.
fn bound(windows: &[TrialView]) -> Highest {
    let counted = || windows.iter().filter(|window| window.counts);
    match (counted().rfind(|window| window.is_kept()), counted().next()) {
        (Some(kept), _) => Highest::AtLeast(kept.rate),
        (None, Some(lowest)) => Highest::Below(lowest.rate),
        (None, None) => Highest::Unknown,
    }
}

/// Returns the median CPU time per request of laps near a rate, in nanoseconds.
fn cost_near(laps: &[&Lap], rate: f64) -> Option<f64> {
    let is_near = |lap: &&&Lap| {
        lap.rate().is_some_and(|own| (own / rate).ln().abs() <= NEAR) && lap.outcome.responses > 0
    };
    let costs: Vec<f64> = laps.iter().filter(is_near).filter_map(|lap| lap.cost_ns()).collect();
    median(&costs)
}
