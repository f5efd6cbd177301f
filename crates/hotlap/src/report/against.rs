//! A server compared with the reference: ratios, and verdicts in words.

use hotlap_stats::{Inconclusive, Verdict};
use serde::Serialize;

use super::capacity::{self, LOWER};
use super::figure::{Figure, ratio};
use super::undecided;
use crate::analysis::compare::Found;
use crate::analysis::{Analysis, Limited, Measure, PerMeasure, ServerComparison};
use crate::model::Run;

/// The verdict that a server's requests/s are less than the other's.
const SLOWER: &str = "slower";

/// The verdict that a server's CPU time per request is more than the other's.
const COSTS_MORE: &str = "costs more";

/// The verdict that a server's service time is more than the other's.
const LONGER: &str = "longer";

/// The verdict that a server's memory is more than the other's.
const MORE: &str = "more";

/// Replaces a verdict on requests/s if both servers serve the full rate of an open loop.
const KEEP_UP: &str = "both serve the rate that is offered";

/// The verdict if there is no figure to compare.
const NOT_KNOWN: &str = "not known";

/// The start of a verdict that the data do not permit; the reason follows.
const INCONCLUSIVE: &str = "inconclusive";

/// A server compared with the reference.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct AgainstReference {
    /// Name of the reference.
    pub reference: String,
    /// The result in each measure.
    #[serde(flatten)]
    pub measures: PerMeasure<MeasureVerdict>,
}

/// One measure of a server compared with another.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct MeasureVerdict {
    /// The ratio of the server's figure to the other's; `null` if unknown.
    pub ratio: Option<Figure>,
    /// `faster`, `slower`, `equal within ±2%`, `not decided`, `not measured well enough`, or
    /// `inconclusive: ` and why. CPU time is `costs less` or `costs more`, latency `shorter` or
    /// `longer`, memory `less` or `more`, a capacity `higher` or `lower`.
    pub verdict: String,
}

impl AgainstReference {
    /// A server that was compared with the reference.
    pub(super) fn of(run: &Run, analysis: &Analysis, found: &ServerComparison) -> Option<Self> {
        let is_offered = analysis.offered.is_some();
        Some(Self {
            reference: run.servers[analysis.reference?].name.clone(),
            measures: PerMeasure::of(|measure| MeasureVerdict::of(found, measure, is_offered)),
        })
    }
}

impl MeasureVerdict {
    /// The result in a measure; `open_loop` says whether the load has a rate.
    pub(super) fn of(against: &ServerComparison, measure: Measure, is_offered: bool) -> Self {
        let found = against.found[measure];
        let keep_up = is_offered && matches!(against.limited, Some(Limited::Both));
        let verdict = match measure {
            Measure::Rate if keep_up => KEEP_UP.to_owned(),
            _ => words(measure, found),
        };
        Self { ratio: found.map(|(effect, _)| ratio(&effect.ratio)), verdict }
    }

    /// The result for a capacity.
    pub(super) fn of_capacity(found: Found) -> Self {
        Self {
            ratio: found.map(|(effect, _)| ratio(&effect.ratio)),
            verdict: found.map_or_else(|| NOT_KNOWN.to_owned(), capacity::words),
        }
    }

    /// Whether the verdict is that the server is worse than the other.
    pub fn is_worse(&self) -> bool {
        [SLOWER, COSTS_MORE, LONGER, MORE, LOWER].contains(&self.verdict.as_str())
    }

    /// Whether both servers serve the full rate of an open loop, so that requests/s do not tell
    /// them apart.
    pub fn both_keep_up(&self) -> bool {
        self.verdict == KEEP_UP
    }

    /// Why the comparison is inconclusive, as `inconclusive: …`; `None` if it is not.
    pub fn inconclusive(&self) -> Option<&str> {
        Some(self.verdict.as_str()).filter(|verdict| verdict.starts_with(INCONCLUSIVE))
    }
}

/// A verdict, in the words of its measure.
fn words(measure: Measure, found: Found) -> String {
    let (better, worse) = match measure {
        Measure::Rate => ("faster", SLOWER),
        Measure::Cost => ("costs less", COSTS_MORE),
        Measure::P50 | Measure::P99 => ("shorter", LONGER),
        Measure::Memory => ("less", MORE),
    };
    let Some((effect, verdict)) = found else { return NOT_KNOWN.to_owned() };
    let words = match verdict {
        Verdict::Better => better,
        Verdict::Worse => worse,
        Verdict::NoDifference => return undecided::words(&effect.ratio),
        Verdict::Inconclusive(why) => match why {
            Inconclusive::TooFewRestarts => "inconclusive: fewer than three restarts",
            Inconclusive::TooFewNodes => "inconclusive: fewer than three nodes",
            Inconclusive::NotSteady => "inconclusive: not steady",
            Inconclusive::TooFewRuns => "inconclusive: fewer than three runs on a side",
            Inconclusive::ControlDiffers => {
                "inconclusive: the A/A control differs from the reference"
            }
        },
    };
    words.to_owned()
}
