//! The noise floor: the reference compared with itself.

use serde::Serialize;

use super::figure::{Figure, ratio};
use crate::analysis::{Analysis, Measure};
use crate::model::Run;
use crate::text::number::{rounded, spread};

/// The difference between the reference and the A/A control.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Noise {
    /// The server that was measured twice.
    pub server: String,
    /// In requests/s.
    pub requests_per_s: MeasureNoise,
    /// In CPU time per request, in microseconds.
    pub cost: MeasureNoise,
    /// Both in one sentence.
    pub sentence: String,
}

/// The difference between the reference and the A/A control in one measure.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct MeasureNoise {
    /// The ratio of the control's figure to the reference's; `null` if unknown.
    pub ratio: Option<Figure>,
    /// How far the control may be from the reference, as a share; `null` if unknown.
    pub band: Option<f64>,
    /// The same as a range around the reference's figure.
    pub around: Option<(f64, f64)>,
}

impl Noise {
    pub(super) fn of(run: &Run, analysis: &Analysis) -> Option<Self> {
        let server = run.servers[analysis.reference?].name.clone();
        analysis.noise[Measure::Rate].or(analysis.noise[Measure::Cost])?;
        let requests_per_s = MeasureNoise::of(analysis, Measure::Rate, 1.0);
        let cost = MeasureNoise::of(analysis, Measure::Cost, 1e-3);
        let of_both = [
            requests_per_s.band.map(|band| format!("{} in requests/s", spread(band))),
            cost.band.map(|band| format!("{} in CPU per request", spread(band))),
        ];
        let known: Vec<String> = of_both.into_iter().flatten().collect();
        let sentence = match known.is_empty() {
            true => {
                let level = if run.pool.is_some() { "nodes" } else { "restarts" };
                format!("Noise floor ({server} against itself): not known, it needs more {level}.")
            }
            false => {
                format!("Noise floor ({server} against itself): {}.", known.join(", "))
            }
        };
        Some(Self { server, requests_per_s, cost, sentence })
    }
}

impl MeasureNoise {
    fn of(analysis: &Analysis, measure: Measure, unit: f64) -> Self {
        let band = analysis.noise_band(measure).map(rounded);
        let level = analysis.reference.and_then(|r| analysis.servers[r].level[measure]);
        let around = level.zip(band).map(|(level, band)| {
            let (value, band) = (level.value * unit, 1.0 + band);
            (rounded(value / band), rounded(value * band))
        });
        Self { ratio: analysis.noise[measure].map(|effect| ratio(&effect.ratio)), band, around }
    }
}
