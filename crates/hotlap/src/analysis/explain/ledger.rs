//! The ledger: what each function costs per request, and how two servers differ in it.
//!
//! A function's cost is its share of the samples of a restart times the CPU time per request of the
//! laps without an instrument in that restart. A share does not change with the speed of the
//! machine, and those laps are compared round by round: so noise that all functions share cancels,
//! as does the profiler's own cost. The costs of all functions of a server add up to its CPU time,
//! and their differences to the measured difference, but for samples of unknown functions.

use std::collections::{BTreeMap, BTreeSet};

use hotlap_bench::lap::Share;
use hotlap_servers::observe::Profile;
use hotlap_stats::{Amount, Estimate, MIN_RESTARTS, holm};

use super::amounts::{Amounts, ByRestart, apart};
use super::callers::Callers;
use super::function::{Function, KERNEL};
use super::group::Group;
use super::sampled::{line_of, profile};
use crate::model::ExplainLap;

/// A function has a line of its own if it costs at least this share of all on average. All of those
/// are tested, whatever their difference is; the rest is one line.
const LARGE: f64 = 0.005;

/// The largest p-value that counts, after correction.
const ALPHA: f64 = 0.05;

/// What the functions of two servers cost.
#[derive(Debug)]
pub struct Ledger {
    /// The part of the difference that belongs to no function, in nanoseconds per request.
    pub unexplained: Estimate,
    /// The difference of the profiled laps.
    pub(super) profiled: Amount,
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
    /// The functions of the application that account for most of the difference by calling them,
    /// and for how many nanoseconds per request.
    pub callers: Vec<(Function, f64)>,
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
    /// The function of the application that accounts for most of the difference by calling it, if
    /// it accounts for half of it.
    pub called_by: Option<Function>,
}

/// The functions of one server: samples by group and function.
type Sampled = BTreeMap<(Group, Function), f64>;

/// What a server costs in each restart, in nanoseconds per request.
#[derive(Default)]
struct Costs {
    functions: BTreeMap<(Group, Function), ByRestart>,
    /// All of it.
    total: ByRestart,
    /// What belongs to no function.
    unknown: ByRestart,
    /// The CPU time of the profiled laps.
    profiled: ByRestart,
}

impl Ledger {
    /// The ledger of a server and its reference, from their laps and what each costs without an
    /// instrument; `may_differ` is whether the difference itself could be measured: otherwise no
    /// line is called different. `None` without a profile of both in some restart.
    pub(super) fn of(
        [reference, server]: [&[&ExplainLap]; 2],
        plain: [&ByRestart; 2],
        confidence: f64,
        may_differ: bool,
    ) -> Option<Self> {
        let laps = || reference.iter().chain(server).filter_map(|lap| profile(lap));
        let has_kernel = laps().any(|(profile, _)| has_kernel(profile));
        let callers = Callers::of([reference, server]);
        let [reference, server] = [(reference, plain[0]), (server, plain[1])]
            .map(|(laps, plain)| Costs::of(laps, plain, has_kernel));
        let total = Amounts::of(&reference.total, &server.total, confidence)?;
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
                    let (function, called_by) = (key.1.clone(), callers.most_of(key));
                    group.2.push(FunctionLine { function, cost, differs: false, called_by });
                }
                false => group.3 += 1,
            }
        }
        let line = |(group, (a, b, functions, others))| {
            let (cost, callers) = (of(&a, &b)?, callers.of_group(group));
            Some(GroupLine { group, cost, differs: false, functions, others, callers })
        };
        let mut ledger = Self {
            unexplained: Amounts::of(&reference.unknown, &server.unknown, confidence)?.difference,
            profiled: Amount::of(apart(&reference.profiled, &server.profiled))?,
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
    fn of(laps: &[&ExplainLap], plain: &ByRestart, has_kernel: bool) -> Self {
        let mut restarts = BTreeMap::<u32, (Sampled, Share, f64, f64)>::new();
        for lap in laps {
            let Some((profile, share)) = profile(lap) else { continue };
            let (sampled, cpu, samples, ns) = restarts.entry(lap.restart).or_default();
            *cpu = cpu.and(share);
            *samples += profile.samples() as f64;
            *ns += profile.samples() as f64 * profile.period_ns as f64;
            for stack in &profile.stacks {
                let Some(line) = line_of(profile, stack) else { continue };
                *sampled.entry(line).or_default() += stack.samples as f64;
            }
        }
        let mut costs = Self::default();
        for (restart, (sampled, cpu, samples, ns)) in restarts {
            let (Some(total), Some(profiled)) = (plain.get(&restart), cpu.value()) else {
                continue;
            };
            // Without the kernel's part, the samples are the time in user mode.
            let seen = if has_kernel { 1.0 } else { ns / cpu.amount };
            let each = total * seen / samples;
            if !each.is_finite() {
                continue;
            }
            let known: f64 = sampled.values().sum();
            costs.total.insert(restart, *total);
            costs.profiled.insert(restart, profiled);
            costs.unknown.insert(restart, total - known * each);
            for (line, samples) in sampled {
                costs.functions.entry(line).or_default().insert(restart, samples * each);
            }
        }
        costs
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
