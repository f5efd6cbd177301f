//! The ledger: what each function costs per request, and how two servers differ in it.
//!
//! The costs of all functions of a server add up to its CPU time (`sampled`), and their
//! differences to the measured difference, but for samples of unknown functions.

use std::collections::{BTreeMap, BTreeSet};

use hotlap_stats::{Amount, Estimate, MIN_RESTARTS, holm};

use super::amounts::{Amounts, ByRestart, apart};
use super::callers::Callers;
use super::function::Function;
use super::group::Group;
use super::sampled::Sampled;

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
    /// The ledger of a server and its reference; `may_differ` is whether the difference itself
    /// could be measured: otherwise no line is called different.
    pub(super) fn of(servers: &[Sampled; 2], confidence: f64, may_differ: bool) -> Option<Self> {
        let callers = Callers::of(servers);
        let [reference, server] = [0, 1].map(|place| Costs::of(&servers[place]));
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
            has_kernel: servers[0].has_kernel,
            lost: lost(servers),
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
    fn of(sampled: &Sampled) -> Self {
        let mut costs = Self {
            total: sampled.by_restart(|cost| cost.plain),
            profiled: sampled.by_restart(|cost| cost.profiled),
            ..Self::default()
        };
        costs.unknown = costs.total.clone();
        for sample in sampled.samples() {
            let (Some(line), Some(left)) = (sample.line(), costs.unknown.get_mut(&sample.restart))
            else {
                continue;
            };
            *left -= sample.ns;
            let function = costs.functions.entry(line).or_default();
            *function.entry(sample.restart).or_default() += sample.ns;
        }
        costs
    }
}

/// The share of samples that were lost.
fn lost(servers: &[Sampled; 2]) -> f64 {
    let [(lost, all), other] = [0, 1].map(|place| servers[place].lost());
    let (lost, all) = (lost + other.0, all + other.1);
    if all > 0 { lost as f64 / all as f64 } else { 0.0 }
}
