//! The ledger: what each function costs per request, and how two servers differ in it.
//!
//! The costs of all functions of a server add up to its CPU time (`sampled`), and their
//! differences to the measured difference, but for samples of unknown functions.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hotlap_observe::{Frame, Observation, Profile, Stack};
use hotlap_stats::{ByRestart, Estimate, MIN_RESTARTS, Mean, Share, apart, holm};

use super::counts::Amounts;
use super::function::{CodeGroup, Function, KERNEL, UNKNOWN};
use crate::model::ExplainLap;

/// A function has a line of its own if it costs at least this share of all on average. All of those
/// are tested, whatever their difference is. The rest is one line.
const LARGE: f64 = 0.005;

/// The largest p-value that counts, after correction.
const ALPHA: f64 = 0.05;

/// What the functions of two servers cost.
#[derive(Debug)]
pub struct Ledger {
    /// The part of the difference that belongs to no function, in nanoseconds per request.
    pub unexplained: Estimate,
    /// The difference of the profiled laps.
    pub(super) profiled: Mean,
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
    pub group: CodeGroup,
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
    functions: BTreeMap<(CodeGroup, Function), ByRestart>,
    /// All of it.
    total: ByRestart,
    /// What belongs to no function.
    unknown: ByRestart,
    /// The CPU time of the profiled laps.
    profiled: ByRestart,
}

impl Ledger {
    /// The ledger of a server and its reference. `may_differ` is whether the difference itself
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
    let profiles = || servers.iter().flat_map(|sampled| &sampled.profiles).map(|(_, own)| own);
    let lost: u64 = profiles().map(|profile| profile.lost).sum();
    let all = lost + profiles().map(|profile| profile.samples()).sum::<u64>();
    if all > 0 { lost as f64 / all as f64 } else { 0.0 }
}

/// The profiles of a server.
///
/// A sample of a restart stands for an equal part of the CPU time per request of the laps without
/// an instrument in that restart. A share of the samples does not change with the speed of the
/// machine, and those laps are compared round by round: so noise that all functions share cancels,
/// as does the profiler's own cost. Ledger, callers and flame graph all count in these costs, so
/// they agree with each other and with the measured difference.
#[derive(Debug)]
pub(super) struct Sampled<'a> {
    profiles: Vec<(u32, &'a Profile)>,
    /// By restart.
    restarts: BTreeMap<u32, Cost>,
    /// Whether the kernel's part was sampled too.
    has_kernel: bool,
}

/// What a server costs in a restart, in nanoseconds per request.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Without an instrument.
    plain: f64,
    /// In the profiled laps.
    profiled: f64,
    /// What a sample stands for.
    sample: f64,
}

/// A stack that was sampled.
struct Sample<'a> {
    restart: u32,
    profile: &'a Profile,
    stack: &'a Stack,
    /// What it stands for, in nanoseconds per request of its restart.
    ns: f64,
}

impl<'a> Sampled<'a> {
    /// The profiles of a reference and a server, from their laps and what each costs without an
    /// instrument, in the restarts that have a profile of both. `None` without such a restart.
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
            // Without the kernel's part, the samples are the time in user mode.
            let seen = if has_kernel { 1.0 } else { ns / cpu.amount };
            let sample = plain * seen / samples;
            sample.is_finite().then_some((restart, Cost { plain, profiled, sample }))
        };
        Self { profiles, restarts: sums.into_iter().filter_map(cost).collect(), has_kernel }
    }

    /// What the server costs in each restart.
    fn by_restart(&self, of: fn(&Cost) -> f64) -> ByRestart {
        self.restarts.iter().map(|(restart, cost)| (*restart, of(cost))).collect()
    }

    /// All stacks of all laps.
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

    /// All stacks of all laps, each with what it adds to the mean of the restarts.
    fn mean_samples(&self) -> impl Iterator<Item = Sample<'a>> {
        let restarts = self.restarts.len() as f64;
        self.samples().map(move |sample| Sample { ns: sample.ns / restarts, ..sample })
    }
}

impl Sample<'_> {
    /// The line of the ledger to which it belongs. `None` if nothing is known of it.
    fn line(&self) -> Option<(CodeGroup, Function)> {
        let stack = || self.profile.stack(self.stack);
        let top = stack().next_back().filter(|frame| frame.library != UNKNOWN)?;
        Some((CodeGroup::of(stack()), Function::of(top).line()))
    }
}

/// The profile of a lap, and its CPU time and requests.
fn profile(explains: &ExplainLap) -> Option<(&Profile, Share)> {
    match &explains.observation {
        Some(Observation::Profile(profile)) => Some((profile, explains.cost_share()?)),
        _ => None,
    }
}

fn has_kernel(profile: &Profile) -> bool {
    profile.frames.iter().any(|frame| frame.library == KERNEL)
}

/// A caller is named if it accounts for this part of the difference.
const MOST: f64 = 0.5;

/// A caller is named with a group if it accounts for this part of the difference.
const NAMED: f64 = 0.1;

/// The nearest function of the application in a stack, outermost frame first. One of the standard
/// library only if there is no other.
fn caller<'a>(stack: impl DoubleEndedIterator<Item = &'a Frame>) -> Option<Function> {
    let mut callers = stack
        .rev()
        .filter(|frame| CodeGroup::of_one(frame) == CodeGroup::Application)
        .map(Function::of)
        .peekable();
    let nearest = callers.peek().cloned();
    callers.find(|function| !function.is_standard()).or(nearest).map(Function::line)
}

/// How the cost of two servers differs, by line of the ledger and by caller. Time in `memset` says
/// little until its caller is known.
#[derive(Debug, Default)]
struct Callers {
    /// In nanoseconds per request. Under `None`, what no function of the application called.
    differences: BTreeMap<(CodeGroup, Function), BTreeMap<Option<Function>, f64>>,
}

impl Callers {
    /// The callers in a reference and a server.
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

    /// The function of the application that accounts for most of the difference in a line. A line
    /// of the application itself needs none.
    fn most_of(&self, line: &(CodeGroup, Function)) -> Option<Function> {
        if line.0 == CodeGroup::Application {
            return None;
        }
        let by_caller = self.differences.get(line)?;
        let all: f64 = by_caller.values().sum();
        let (caller, _) = by_caller.iter().find(|(_, ns)| *ns / all >= MOST)?;
        caller.clone()
    }

    /// The functions of the application that account for the difference in a group by calling its
    /// functions: those that account for a part of it that is worth naming, the largest first, and
    /// for how many nanoseconds per request.
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

/// A stack, and what it costs both servers.
#[derive(Debug, Clone, PartialEq)]
pub struct FlameStack {
    /// Its functions, outermost first.
    pub frames: Vec<String>,
    /// The reference's cost, in nanoseconds per request.
    pub reference_ns: f64,
    /// The server's.
    pub server_ns: f64,
}

/// The stacks of a reference and a server, for a differential flame graph.
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
