//! What the profiles of two servers sampled, and what a sample stands for.
//!
//! A sample of a restart stands for an equal part of the CPU time per request of the laps without
//! an instrument in that restart. A share of the samples does not change with the speed of the
//! machine, and those laps are compared round by round: so noise that all functions share cancels,
//! as does the profiler's own cost. Ledger, callers and flame graph all count in these costs, so
//! they agree with each other and with the measured difference.

use std::collections::BTreeMap;

use hotlap_observe::{Observation, Profile, Stack};

use hotlap_stats::Share;

use super::amounts::ByRestart;
use super::function::{Function, KERNEL, UNKNOWN};
use super::group::Group;
use crate::model::ExplainLap;

/// The profiles of a server.
#[derive(Debug)]
pub(super) struct Sampled<'a> {
    profiles: Vec<(u32, &'a Profile)>,
    /// By restart.
    restarts: BTreeMap<u32, Cost>,
    /// Whether the kernel's part was sampled too.
    pub(super) has_kernel: bool,
}

/// What a server costs in a restart, in nanoseconds per request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// Without an instrument.
    pub(super) plain: f64,
    /// In the profiled laps.
    pub(super) profiled: f64,
    /// What a sample stands for.
    sample: f64,
}

/// A stack that was sampled.
pub(super) struct Sample<'a> {
    pub(super) restart: u32,
    pub(super) profile: &'a Profile,
    pub(super) stack: &'a Stack,
    /// What it stands for, in nanoseconds per request of its restart.
    pub(super) ns: f64,
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
    pub(super) fn by_restart(&self, of: fn(&Cost) -> f64) -> ByRestart {
        self.restarts.iter().map(|(restart, cost)| (*restart, of(cost))).collect()
    }

    /// All stacks of all laps.
    pub(super) fn samples(&self) -> impl Iterator<Item = Sample<'a>> {
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
    pub(super) fn mean_samples(&self) -> impl Iterator<Item = Sample<'a>> {
        let restarts = self.restarts.len() as f64;
        self.samples().map(move |sample| Sample { ns: sample.ns / restarts, ..sample })
    }

    /// Samples that were lost, and all.
    pub(super) fn lost(&self) -> (u64, u64) {
        self.profiles.iter().fold((0, 0), |(lost, all), (_, profile)| {
            (lost + profile.lost, all + profile.lost + profile.samples())
        })
    }
}

impl Sample<'_> {
    /// The line of the ledger to which it belongs; `None` if nothing is known of it.
    pub(super) fn line(&self) -> Option<(Group, Function)> {
        let stack = || self.profile.stack(self.stack);
        let top = stack().next_back().filter(|frame| frame.library != UNKNOWN)?;
        Some((Group::of(stack()), Function::of(top).line()))
    }
}

/// The profile of a lap that counts, and its CPU time and requests.
fn profile(explains: &ExplainLap) -> Option<(&Profile, Share)> {
    match &explains.observation {
        Some(Observation::Profile(profile)) if explains.counts() => {
            Some((profile, explains.cost_share()?))
        }
        _ => None,
    }
}

fn has_kernel(profile: &Profile) -> bool {
    profile.frames.iter().any(|frame| frame.library == KERNEL)
}
