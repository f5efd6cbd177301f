//! The ledger: what each function costs per request, and how two servers differ in each function.
//!
//! The costs of all functions of a server add up to its CPU time (`Sampled`). The differences of
//! all functions add up to the measured difference. Only unknown functions are missing, and the
//! kernel if it was not sampled.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hotlap_observe::{Frame, Observation, Profile, Stack};
use hotlap_stats::{ByRestart, Estimate, MIN_RESTARTS, Mean, Share, apart, holm};

use super::counts::Amounts;
use super::function::{CodeGroup, Function, KERNEL, UNKNOWN};
use crate::model::ExplainLap;

/// A function has a separate line if its average cost is at least this share of the total. The
/// difference plays no part, so that it does not choose what is tested. All other functions of a
/// group are only counted.
const LARGE: f64 = 0.005;

/// The largest p-value, after correction, at which a line differs.
const ALPHA: f64 = 0.05;

/// The costs of two servers, divided among functions.
#[derive(Debug)]
pub struct Ledger {
    /// The part of the difference that belongs to no function, in nanoseconds per request.
    pub unexplained: Estimate,
    /// The difference in CPU time per request between the profiled laps of the two servers.
    pub(super) profiled: Mean,
    /// The groups of functions, the largest difference first.
    pub groups: Vec<GroupLine>,
    /// Whether the functions of the kernel were sampled too.
    pub has_kernel: bool,
    /// The share of samples that were lost.
    pub lost: f64,
}

/// A group of functions in the ledger.
#[derive(Debug)]
pub struct GroupLine {
    /// The group.
    pub group: CodeGroup,
    /// The cost of the group, in nanoseconds per request.
    pub cost: Amounts,
    /// Whether the two servers differ in the cost of the group.
    pub differs: bool,
    /// The functions that are large enough for a line, the largest difference first.
    pub functions: Vec<FunctionLine>,
    /// The number of functions that are too small for a line.
    pub others: usize,
    /// The functions of the application whose calls account for parts of the difference. Each has
    /// the nanoseconds per request that it accounts for.
    pub callers: Vec<(Function, f64)>,
}

/// A function in the ledger.
#[derive(Debug)]
pub struct FunctionLine {
    /// The function.
    pub function: Function,
    /// The cost of the function, in nanoseconds per request.
    pub cost: Amounts,
    /// Whether the two servers differ in the cost of the function.
    pub differs: bool,
    /// The function of the application whose calls account for at least half of the difference.
    /// `None` if no function does.
    pub called_by: Option<Function>,
}

/// The costs of a server in each restart, in nanoseconds per request.
#[derive(Default)]
struct Costs {
    functions: BTreeMap<(CodeGroup, Function), ByRestart>,
    /// The CPU time of the laps without an instrument.
    total: ByRestart,
    /// The part of the total that belongs to no function.
    unknown: ByRestart,
    /// The CPU time of the profiled laps.
    profiled: ByRestart,
}

impl Ledger {
    /// Computes the ledger of a server and its reference. No line is called different unless
    /// `may_differ` says that the total difference is significant.
    pub(super) fn of(servers: &[Sampled; 2], confidence: f64, may_differ: bool) -> Option<Self> {
        let callers = Callers::of(servers);
        let [reference, server] = [0, 1].map(|place| Costs::of(&servers[place]));
        let total = Amounts::of(&reference.total, &server.total, confidence)?;
        let of = |a: &ByRestart, b: &ByRestart| {
            // A function without samples in a restart cost nothing in that restart.
            let whole = |values: &ByRestart, all: &ByRestart| {
                all.keys().map(|r| (*r, values.get(r).copied().unwrap_or(0.0))).collect()
            };
            Amounts::of(&whole(a, &reference.total), &whole(b, &server.total), confidence)
        };
        let none = ByRestart::new();
        let keys: BTreeSet<&(CodeGroup, Function)> =
            reference.functions.keys().chain(server.functions.keys()).collect();
        let mut groups =
            BTreeMap::<CodeGroup, (ByRestart, ByRestart, Vec<FunctionLine>, usize)>::new();
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
            profiled: Mean::of(apart(&server.profiled, &reference.profiled))?,
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

    /// Decides which lines differ. First, the p-values of groups are corrected for the number of
    /// groups. In groups that differ, the p-values of functions are then corrected for the number
    /// of these functions. So if nothing differs, at most one explanation in 20 calls any line
    /// different.
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

/// Returns the share of samples that were lost.
fn lost(servers: &[Sampled; 2]) -> f64 {
    let profiles = || servers.iter().flat_map(|sampled| &sampled.profiles).map(|(_, own)| own);
    let lost: u64 = profiles().map(|profile| profile.lost).sum();
    let all = lost + profiles().map(|profile| profile.samples()).sum::<u64>();
    if all > 0 { lost as f64 / all as f64 } else { 0.0 }
}

/// The profiles of a server.
///
/// Each sample of a restart gets an equal part of the CPU time per request in that restart. This
/// CPU time comes from the laps without an instrument, which are compared round by round. A share
/// of samples does not change with the speed of the machine. So noise that all functions share
/// cancels, and so does the profiler's own cost. Ledger, callers and flame graph all use these
/// costs, so they agree with one another and with the measured difference.
#[derive(Debug)]
pub(super) struct Sampled<'a> {
    profiles: Vec<(u32, &'a Profile)>,
    /// The cost of the server in each restart.
    restarts: BTreeMap<u32, Cost>,
    /// Whether the functions of the kernel were sampled too.
    has_kernel: bool,
}

/// The cost of a server in one restart, in nanoseconds per request.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// The cost in laps without an instrument.
    plain: f64,
    /// The cost in profiled laps.
    profiled: f64,
    /// The cost of one sample.
    sample: f64,
}

/// A sampled stack.
struct Sample<'a> {
    restart: u32,
    profile: &'a Profile,
    stack: &'a Stack,
    /// The cost of the stack, in nanoseconds per request of its restart.
    ns: f64,
}

impl<'a> Sampled<'a> {
    /// Returns the profiles of a reference and a server. `plain` has the cost of each server
    /// without an instrument. Only restarts with a profile of both servers are used. `None` without
    /// such a restart.
    pub(super) fn of_both(
        laps: [&[&'a ExplainLap]; 2],
        plain: [&ByRestart; 2],
    ) -> Option<[Self; 2]> {
        let all = || laps.into_iter().flatten().filter_map(|explains| profile(explains));
        let has_kernel = all().any(|(profile, _)| has_kernel(profile));
        let [mut a, mut b] = [0, 1].map(|place| Self::of(laps[place], plain[place], has_kernel));
        a.restarts.retain(|restart, _| b.restarts.contains_key(restart));
        b.restarts.retain(|restart, _| a.restarts.contains_key(restart));
        (!a.restarts.is_empty()).then_some([a, b])
    }

    fn of(laps: &[&'a ExplainLap], plain: &ByRestart, has_kernel: bool) -> Self {
        let mut profiles = Vec::new();
        let mut sums = BTreeMap::<u32, (Share, f64, f64)>::new();
        for explains in laps {
            let Some((profile, share)) = profile(explains) else { continue };
            profiles.push((explains.lap.restart, profile));
            let (cpu, samples, ns) = sums.entry(explains.lap.restart).or_default();
            *cpu = cpu.and(share);
            *samples += profile.samples() as f64;
            *ns += profile.samples() as f64 * profile.period_ns as f64;
        }
        let cost = |(restart, (cpu, samples, ns)): (u32, (Share, f64, f64))| {
            let (plain, profiled) = (*plain.get(&restart)?, cpu.value()?);
            // Without samples of the kernel, the samples cover only the time in user mode.
            let seen = if has_kernel { 1.0 } else { ns / cpu.amount };
            let sample = plain * seen / samples;
            sample.is_finite().then_some((restart, Cost { plain, profiled, sample }))
        };
        Self { profiles, restarts: sums.into_iter().filter_map(cost).collect(), has_kernel }
    }

    /// Returns the cost that `of` selects, in each restart.
    fn by_restart(&self, of: fn(&Cost) -> f64) -> ByRestart {
        self.restarts.iter().map(|(restart, cost)| (*restart, of(cost))).collect()
    }

    /// Returns the stacks of all laps.
    fn samples(&self) -> impl Iterator<Item = Sample<'a>> {
        self.profiles.iter().flat_map(|(restart, profile)| {
            let each = self.restarts.get(restart).map(|cost| cost.sample);
            let sample = move |stack: &'a Stack| {
                let ns = stack.samples as f64 * each?;
                Some(Sample { restart: *restart, profile, stack, ns })
            };
            profile.stacks.iter().filter_map(sample)
        })
    }

    /// Returns the stacks of all laps, each with its contribution to the mean of the restarts.
    fn mean_samples(&self) -> impl Iterator<Item = Sample<'a>> {
        let restarts = self.restarts.len() as f64;
        self.samples().map(move |sample| Sample { ns: sample.ns / restarts, ..sample })
    }
}

impl Sample<'_> {
    /// Returns the ledger line to which the sample belongs. `None` if its function is unknown.
    fn line(&self) -> Option<(CodeGroup, Function)> {
        let stack = || self.profile.stack(self.stack);
        let top = stack().next_back().filter(|frame| frame.library != UNKNOWN)?;
        Some((CodeGroup::of(stack()), Function::of(top).line()))
    }
}

/// Returns the profile of a lap, with the lap's CPU time and requests.
fn profile(explains: &ExplainLap) -> Option<(&Profile, Share)> {
    match &explains.observation {
        Some(Observation::Profile(profile)) => Some((profile, explains.cost_share()?)),
        _ => None,
    }
}

fn has_kernel(profile: &Profile) -> bool {
    profile.frames.iter().any(|frame| frame.library == KERNEL)
}

/// The smallest part of a function's difference that a named caller accounts for.
const MOST: f64 = 0.5;

/// The smallest part of a group's difference that a named caller accounts for.
const NAMED: f64 = 0.1;

/// Returns the nearest function of the application in a stack that begins with the outermost frame.
/// A function of the standard library is returned only if there is no other.
fn caller<'a>(stack: impl DoubleEndedIterator<Item = &'a Frame>) -> Option<Function> {
    let mut callers = stack
        .rev()
        .filter(|frame| CodeGroup::of_one(frame) == CodeGroup::Application)
        .map(Function::of)
        .peekable();
    let nearest = callers.peek().cloned();
    callers.find(|function| !function.is_standard()).or(nearest).map(Function::line)
}

/// The difference in cost between two servers, by ledger line and by caller. Time in `memset` says
/// little until its caller is known.
#[derive(Debug, Default)]
struct Callers {
    /// The differences in nanoseconds per request. `None` is for stacks without a function of the
    /// application.
    differences: BTreeMap<(CodeGroup, Function), BTreeMap<Option<Function>, f64>>,
}

impl Callers {
    /// Finds the callers in a reference and a server.
    fn of(servers: &[Sampled; 2]) -> Self {
        let mut callers = Self::default();
        for (sampled, sign) in servers.iter().zip([-1.0, 1.0]) {
            for sample in sampled.mean_samples() {
                let Some(line) = sample.line() else { continue };
                let caller = caller(sample.profile.stack(sample.stack));
                let by_caller = callers.differences.entry(line).or_default();
                *by_caller.entry(caller).or_default() += sign * sample.ns;
            }
        }
        callers
    }

    /// Returns the function of the application that accounts for most of the difference in a line.
    /// A line of the application itself needs no caller.
    fn most_of(&self, line: &(CodeGroup, Function)) -> Option<Function> {
        if line.0 == CodeGroup::Application {
            return None;
        }
        let by_caller = self.differences.get(line)?;
        let all: f64 = by_caller.values().sum();
        let (caller, _) = by_caller.iter().find(|(_, ns)| *ns / all >= MOST)?;
        caller.clone()
    }

    /// Returns the functions of the application whose calls into a group account for the
    /// difference. Each function has its nanoseconds per request, and the largest comes first. A
    /// function that accounts for less than `NAMED` is left out.
    fn of_group(&self, group: CodeGroup) -> Vec<(Function, f64)> {
        if group == CodeGroup::Application {
            return Vec::new();
        }
        let lines = || self.differences.iter().filter(|((of, _), _)| *of == group);
        let all: f64 = lines().flat_map(|(_, by_caller)| by_caller.values()).sum();
        let mut sums = BTreeMap::<&Function, f64>::new();
        for (caller, ns) in lines().flat_map(|(_, by_caller)| by_caller) {
            if let Some(caller) = caller {
                *sums.entry(caller).or_default() += ns;
            }
        }
        let mut named: Vec<(Function, f64)> = sums
            .into_iter()
            .filter(|(_, ns)| ns / all >= NAMED)
            .map(|(caller, ns)| (caller.clone(), ns))
            .collect();
        named.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
        named
    }
}

/// A stack, with its cost in both servers.
#[derive(Debug, Clone, PartialEq)]
pub struct FlameStack {
    /// The functions of the stack, outermost first.
    pub frames: Vec<String>,
    /// The cost of the stack in the reference, in nanoseconds per request.
    pub reference_ns: f64,
    /// The cost of the stack in the server, in nanoseconds per request.
    pub server_ns: f64,
}

/// Returns the stacks of a reference and a server, for a differential flame graph.
pub(super) fn stacks(servers: &[Sampled; 2]) -> Vec<FlameStack> {
    let mut stacks = BTreeMap::<Vec<String>, [f64; 2]>::new();
    for (place, sampled) in servers.iter().enumerate() {
        let mut titles = HashMap::new();
        for sample in sampled.mean_samples() {
            let frames = sample.profile.stack(sample.stack);
            let title = |frame| {
                let title = || Function::of(frame).title();
                titles.entry(std::ptr::from_ref(frame)).or_insert_with(title).clone()
            };
            stacks.entry(frames.map(title).collect()).or_default()[place] += sample.ns;
        }
    }
    let flame = |(frames, ns): (Vec<String>, [f64; 2])| FlameStack {
        frames,
        reference_ns: ns[0],
        server_ns: ns[1],
    };
    stacks.into_iter().map(flame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_function_that_is_not_standard_calls() {
        let found = |stack: &[(&str, &str)]| {
            let frame = |(function, library): &(&str, &str)| Frame {
                function: (*function).to_owned(),
                library: (*library).to_owned(),
            };
            let frames: Vec<Frame> = stack.iter().map(frame).collect();
            caller(frames.iter()).map(|function| function.name)
        };
        let handle = ("main.handle", "app");
        let write = ("internal/poll.(*FD).Write", "app");
        let call = ("do_syscall_64", "kernel");
        assert_eq!(found(&[handle, write, call]).as_deref(), Some("main.handle"));
        assert_eq!(found(&[write, call]).as_deref(), Some("internal/poll.(*FD).Write"));
        assert_eq!(found(&[("malloc", "libc.so.6")]), None);
    }
}
