//! The cost of layers, in words.

use hotlap_stats::{Estimate, Verdict};
use serde::Serialize;

use super::figure::{Figure, difference, ratio};
use crate::analysis::layers::{Difference, SideEffect, Step, steps};
use crate::analysis::{Analysis, Found};
use crate::model::Run;
use crate::text::number::count;

/// One step: a layer and the one below it.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct LayerStep {
    /// The index of the load.
    pub load: usize,
    /// The lower layer.
    pub from: String,
    /// The upper layer.
    pub to: String,
    /// The names of both, the upper layer first; for variants of one server, without the server's
    /// name.
    #[serde(skip)]
    pub short: (String, String),
    /// The cost of the step, in microseconds of CPU time per request.
    pub cpu_us: Option<Figure>,
    /// The cost of the step, in microseconds of wall time per request (1/rate).
    pub wall_us: Option<Figure>,
    /// The ratio of the upper layer's requests/s to the lower's.
    pub requests_per_s: Option<Figure>,
    /// The ratio of the upper layer's CPU time per request to the lower's.
    pub cost: Option<Figure>,
    /// The problem with the upper layer's side effect; empty if there is none.
    pub side_effect: String,
    /// Why the CPU time is uncertain, in a few words; empty if it is not.
    #[serde(skip)]
    pub caution: &'static str,
    /// The step in one sentence.
    pub sentence: String,
}

impl LayerStep {
    /// The steps of a run under one load.
    pub(super) fn all_of(run: &Run, analysis: &Analysis) -> Vec<Self> {
        steps(run, analysis).iter().map(|step| Self::of(run, analysis.load, step)).collect()
    }

    fn of(run: &Run, load: usize, step: &Step) -> Self {
        let (to, from) = (&run.servers[step.to].name, &run.servers[step.from].name);
        let side_effect = match (step.wrong, step.side_effect) {
            (0, None) => String::new(),
            (0, Some(found)) => side_effect(found),
            (n, _) => {
                format!("{} of its responses were wrong, so its step is not measured", count(n))
            }
        };
        let is_priced = side_effect.is_empty();
        let of_ratio = |found: Found| found.map(|(effect, _)| ratio(&effect.ratio));
        Self {
            load,
            sentence: match is_priced {
                true => sentence(to, from, step.cpu_us, step.wall_us),
                false => format!("{to}: {side_effect}."),
            },
            short: (short(to, from).to_owned(), short(from, to).to_owned()),
            caution: match (is_priced, step.cpu_us) {
                (false, _) => "not measured: see below",
                (true, None) => "too few laps",
                (true, Some((difference, verdict))) => caution(&difference, verdict),
            },
            from: from.clone(),
            to: to.clone(),
            cpu_us: step.cpu_us.map(|(d, _)| difference(&d)),
            wall_us: step.wall_us.map(|(d, _)| difference(&d)),
            requests_per_s: of_ratio(step.rate),
            cost: of_ratio(step.cost),
            side_effect,
        }
    }
}

/// The problem with a side effect.
pub(super) fn side_effect(SideEffect { required, counted }: SideEffect) -> String {
    let less = if counted < required { "work was dropped" } else { "work was done twice" };
    format!(
        "its side effect happened {} times instead of {} times ({less}), so its step is not \
         measured",
        count(counted),
        count(required)
    )
}

/// The cost of one step.
fn sentence(to: &str, on: &str, cpu: Difference, wall: Difference) -> String {
    let clause = |found: Difference, what: &str| {
        let (estimate, verdict) = found?;
        let caution = match caution(&estimate, verdict) {
            "" => String::new(),
            words => format!(" ({words})"),
        };
        Some(format!("{} {what}{caution}", difference(&estimate).full()))
    };
    let clauses: Vec<String> =
        [clause(cpu, "of CPU"), clause(wall, "of wall time")].into_iter().flatten().collect();
    match clauses.is_empty() {
        true => format!("{to}: too few laps count."),
        false => format!("{to}, on {}: {} a request.", short(on, to), clauses.join(", ")),
    }
}

/// Why a difference is uncertain; empty if it is not.
fn caution(difference: &Estimate, verdict: Verdict) -> &'static str {
    match verdict {
        _ if !difference.is_bounded() => "too few laps for an interval",
        Verdict::Inconclusive(_) => "inconclusive",
        Verdict::NoDifference => "not decided",
        _ => "",
    }
}

/// A variant's own name, beside another of the same server.
fn short<'a>(name: &'a str, beside: &str) -> &'a str {
    match (name.split_once(':'), beside.split_once(':')) {
        (Some((base, variant)), Some((other, _))) if base == other => variant,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_its_difference_in_microseconds() {
        let cpu = Estimate { value: 1.74, low: 1.6, high: 1.9 };
        let wall = Estimate { value: -0.2, low: -1.1, high: 0.7 };
        assert_eq!(
            sentence(
                "a:json",
                "a:plain",
                Some((cpu, Verdict::Worse)),
                Some((wall, Verdict::NoDifference))
            ),
            "a:json, on plain: +1.74 µs [+1.60, +1.90] of CPU, −0.20 µs [−1.10, +0.70] of wall time (not \
             decided) a request."
        );
    }
}
