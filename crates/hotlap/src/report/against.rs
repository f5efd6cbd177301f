//! A server compared with the reference: ratios and verdicts.

use serde::Serialize;

use super::figure::{Figure, ratio};
use super::verdict::Judged;
use crate::analysis::compare::Found;
use crate::analysis::{Analysis, Limited, Measure, PerMeasure, ServerComparison};
use crate::model::Run;

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
    /// The verdict.
    #[serde(flatten)]
    pub judged: Judged,
    /// The verdict in words: `faster`, `slower`, `equal within ±2%`, `not decided`, `not measured
    /// well enough`, `both serve the rate that is offered`, `not known`, or `inconclusive: ` and
    /// why. CPU time is `costs less` or `costs more`, latency `shorter` or `longer`, memory `less`
    /// or `more`, a capacity `higher` or `lower`.
    pub words: String,
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
    /// The result in a measure. `is_offered` says whether the load has a rate.
    pub(super) fn of(against: &ServerComparison, measure: Measure, is_offered: bool) -> Self {
        let keep_up = is_offered && matches!(against.limited, Some(Limited::Both));
        let found = against.found[measure];
        let judged = match measure {
            Measure::Rate if keep_up => Judged::BothKeepUp,
            _ => Judged::of(found),
        };
        Self::new(found, judged, Some(measure))
    }

    /// The result for a capacity.
    pub(super) fn of_capacity(found: Found) -> Self {
        Self::new(found, Judged::of(found), None)
    }

    fn new(found: Found, judged: Judged, measure: Option<Measure>) -> Self {
        let ratio = found.map(|(effect, _)| ratio(&effect.ratio));
        Self { ratio, judged, words: judged.words(measure) }
    }
}
