//! The ledger: what each function costs per request, and how two servers differ in it.
//!
//! A function's cost is its share of the samples times the CPU time per request of the laps in
//! which it was sampled. So the costs of all functions of a server add up to that CPU time, and
//! their differences to the difference of the profiled laps.

use std::collections::{BTreeMap, BTreeSet};

use hotlap_bench::lap::Share;
use hotlap_servers::observe::{Observation, Profile};
use hotlap_stats::{Amount, MIN_RESTARTS, holm};

use super::amounts::{Amounts, ByRestart, apart};
use super::function::{Function, KERNEL};
use super::group::Group;
use crate::model::ExplainLap;

/// A function has a line of its own if it costs at least this share of all on average. All of those
/// are tested, whatever their difference is; the rest is one line.
const LARGE: f64 = 0.005;

/// The largest p-value that counts, after correction.
const ALPHA: f64 = 0.05;

/// What the functions of two servers cost.
#[derive(Debug)]
pub struct Ledger {
    /// The CPU time per request of the profiled laps, in nanoseconds.
    pub total: Amounts,
    /// Its difference, restart by restart.
    pub(super) apart: Amount,
    /// The groups, the largest difference first.
    pub groups: Vec<GroupLine>,
    /// Whether the kernel's part was sampled too.
    pub has_kernel: bool,
    /// The share of samples that were lost.
    pub lost: f64,
}

/// The line of a group.
#[derive(Debug)]
pub struct GroupLine {
    /// The group.
    pub group: Group,
    /// Its cost in nanoseconds per request.
    pub cost: Amounts,
    /// Whether the two servers differ.
    pub differs: bool,
    /// Its functions of some size, the largest difference first.
    pub functions: Vec<FunctionLine>,
    /// The number of other functions.
    pub others: usize,
}

/// The line of a function.
#[derive(Debug)]
pub struct FunctionLine {
    /// The function.
    pub function: Function,
    /// Its cost in nanoseconds per request.
    pub cost: Amounts,
    /// Whether the two servers differ.
    pub differs: bool,
}

/// The functions of one server: samples by group and function.
type Sampled = BTreeMap<(Group, Function), f64>;

/// The cost of each function in each restart, in nanoseconds per request.
#[derive(Default)]
struct Costs {
    functions: BTreeMap<(Group, Function), ByRestart>,
    total: ByRestart,
}

impl Ledger {
    /// The ledger of a server and its reference, from their laps; `may_differ` is whether the
    /// difference itself could be measured: otherwise no line is called different. `None` without a
    /// profile of both in some restart.
    pub(super) fn of(
        [reference, server]: [&[&ExplainLap]; 2],
        confidence: f64,
        may_differ: bool,
    ) -> Option<Self> {
        let laps = || reference.iter().chain(server).filter_map(|lap| profile(lap));
        let has_kernel = laps().any(|(profile, _)| has_kernel(profile));
        let [reference, server] = [reference, server].map(|laps| Costs::of(laps, has_kernel));
        let total = Amounts::of(&reference.total, &server.total, confidence)?;
        let apart = Amount::of(apart(&reference.total, &server.total))?;
        let of = |a: &ByRestart, b: &ByRestart| {
            // A function that was not sampled in a restart cost nothing then.
            let whole = |values: &ByRestart, all: &ByRestart| {
                all.keys().map(|r| (*r, values.get(r).copied().unwrap_or(0.0))).collect()
            };
            Amounts::of(&whole(a, &reference.total), &whole(b, &server.total), confidence)
        };
        let none = ByRestart::new();
        let keys: BTreeSet<&(Group, Function)> =
            reference.functions.keys().chain(server.functions.keys()).collect();
        let mut groups = BTreeMap::<Group, (ByRestart, ByRestart, Vec<FunctionLine>, usize)>::new();
        for key in keys {
            let a = reference.functions.get(key).unwrap_or(&none);
            let b = server.functions.get(key).unwrap_or(&none);
            let group = groups.entry(key.0).or_default();
            a.iter().for_each(|(restart, ns)| *group.0.entry(*restart).or_default() += ns);
            b.iter().for_each(|(restart, ns)| *group.1.entry(*restart).or_default() += ns);
            let cost = of(a, b)?;
            let mean = |cost: &Amounts| cost.reference.value + cost.server.value;
            match mean(&cost) >= LARGE * mean(&total) {
                true => {
                    let function = key.1.clone();
                    group.2.push(FunctionLine { function, cost, differs: false });
                }
                false => group.3 += 1,
            }
        }
        let line = |(group, (a, b, functions, others))| {
            Some(GroupLine { group, cost: of(&a, &b)?, differs: false, functions, others })
        };
        let mut ledger = Self {
            total,
            apart,
            groups: groups.into_iter().map(line).collect::<Option<_>>()?,
            has_kernel,
            lost: lost(laps().map(|(profile, _)| profile)),
        };
        if may_differ && total.restarts >= MIN_RESTARTS {
            ledger.judge();
        }
        ledger.sort();
        Some(ledger)
    }

    /// Says which lines differ: groups are corrected for the number of groups; then the functions
    /// of those that differ, for the number of these functions. So if nothing differs, at most one
    /// explanation in twenty calls any line different.
    fn judge(&mut self) {
        let p: Vec<f64> = self.groups.iter().map(|group| group.cost.p).collect();
        for (group, p) in self.groups.iter_mut().zip(holm(&p)) {
            group.differs = p <= ALPHA;
        }
        let mut functions: Vec<&mut FunctionLine> = self
            .groups
            .iter_mut()
            .filter(|group| group.differs)
            .flat_map(|group| &mut group.functions)
            .collect();
        let p: Vec<f64> = functions.iter().map(|line| line.cost.p).collect();
        for (line, p) in functions.iter_mut().zip(holm(&p)) {
            line.differs = p <= ALPHA;
        }
    }

    fn sort(&mut self) {
        let size = |cost: &Amounts| cost.difference.value.abs();
        for group in &mut self.groups {
            group.functions.sort_by(|a, b| size(&b.cost).total_cmp(&size(&a.cost)));
        }
        self.groups.sort_by(|a, b| size(&b.cost).total_cmp(&size(&a.cost)));
    }
}

impl Costs {
    fn of(laps: &[&ExplainLap], has_kernel: bool) -> Self {
        let mut restarts = BTreeMap::<u32, (Sampled, Share, f64)>::new();
        for lap in laps {
            let Some((profile, share)) = profile(lap) else { continue };
            let (sampled, cpu, samples_ns) = restarts.entry(lap.restart).or_default();
            *cpu = cpu.and(share);
            *samples_ns += profile.samples() as f64 * profile.period_ns as f64;
            for (key, samples) in folded(profile) {
                *sampled.entry(key).or_default() += samples;
            }
        }
        let mut costs = Self::default();
        for (restart, (sampled, cpu, samples_ns)) in restarts {
            let all: f64 = sampled.values().sum();
            // Without the kernel's part, samples are all that is known of the time in user mode.
            let spent = if has_kernel { cpu.value() } else { Some(samples_ns / cpu.of) };
            let Some(each) = spent.filter(|ns| all > 0.0 && ns.is_finite()) else { continue };
            costs.total.insert(restart, each);
            for (key, samples) in sampled {
                let by_restart = costs.functions.entry(key).or_default();
                by_restart.insert(restart, samples / all * each);
            }
        }
        costs
    }
}

/// The profile of a lap that counts, and its CPU time and requests.
pub(super) fn profile(lap: &ExplainLap) -> Option<(&Profile, Share)> {
    match &lap.observation {
        Some(Observation::Profile(profile)) if lap.counts() => Some((profile, lap.cost_share()?)),
        _ => None,
    }
}

fn has_kernel(profile: &Profile) -> bool {
    profile.frames.iter().any(|frame| frame.library == KERNEL)
}

fn lost<'a>(profiles: impl Iterator<Item = &'a Profile>) -> f64 {
    let (lost, all) = profiles.fold((0, 0), |(lost, all), profile| {
        (lost + profile.lost, all + profile.lost + profile.samples())
    });
    if all > 0 { lost as f64 / all as f64 } else { 0.0 }
}

/// The samples of a profile by the function on top of the stack, and its group.
fn folded(profile: &Profile) -> Sampled {
    let mut sampled = Sampled::new();
    for stack in &profile.stacks {
        let frames = || stack.frames.iter().filter_map(|at| profile.frames.get(*at as usize));
        let function = frames().next_back().map_or_else(Function::unknown, Function::of);
        let key = (Group::of(frames()), function.line());
        *sampled.entry(key).or_default() += stack.samples as f64;
    }
    sampled
}
