//! Both profiles by stack, for a differential flame graph.

use std::collections::BTreeMap;

use super::function::Function;
use super::sampled::profile;
use crate::model::ExplainLap;

/// Stacks that take less than this share of both servers' cost are left out.
const SMALL: f64 = 1e-4;

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

/// The stacks of a reference and a server, from their laps.
pub(super) fn stacks([reference, server]: [&[&ExplainLap]; 2]) -> Vec<FlameStack> {
    let mut stacks = BTreeMap::<Vec<String>, [f64; 2]>::new();
    for (place, laps) in [reference, server].into_iter().enumerate() {
        for (frames, ns) in costs(laps) {
            stacks.entry(frames).or_default()[place] += ns;
        }
    }
    let all: f64 = stacks.values().flatten().sum();
    let flame = |(frames, ns): (Vec<String>, [f64; 2])| FlameStack {
        frames,
        reference_ns: ns[0],
        server_ns: ns[1],
    };
    let is_small = |stack: &FlameStack| stack.reference_ns + stack.server_ns < SMALL * all;
    stacks.into_iter().map(flame).filter(|stack| !is_small(stack)).collect()
}

/// The cost of each stack of a server, in nanoseconds per request, over all of its laps.
fn costs(laps: &[&ExplainLap]) -> BTreeMap<Vec<String>, f64> {
    let profiles: Vec<_> = laps.iter().filter_map(|lap| profile(lap)).collect();
    let samples: u64 = profiles.iter().map(|(profile, _)| profile.samples()).sum();
    let spent = profiles.iter().map(|(_, share)| *share).reduce(|a, b| a.and(b));
    let Some(each) = spent.and_then(|share| share.value()).filter(|_| samples > 0) else {
        return BTreeMap::new();
    };
    let mut costs = BTreeMap::new();
    for (profile, _) in profiles {
        let titles: Vec<String> =
            profile.frames.iter().map(|frame| Function::of(frame).title()).collect();
        for stack in &profile.stacks {
            let frames = stack.frames.iter().filter_map(|at| titles.get(*at as usize).cloned());
            let cost = stack.samples as f64 / samples as f64 * each;
            *costs.entry(frames.collect::<Vec<_>>()).or_default() += cost;
        }
    }
    costs
}
