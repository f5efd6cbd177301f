//! Both profiles by stack, for a differential flame graph.

use std::collections::{BTreeMap, HashMap};

use super::function::Function;
use super::sampled::Sampled;

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

/// The stacks of a reference and a server.
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
