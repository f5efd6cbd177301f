//! The verdicts of a report, and the noise floor. Code uses [`Judged`]. The words are for people,
//! and no code parses them.

use hotlap_bench::speed::Speed;
use hotlap_stats::{Estimate, Inconclusive, Verdict};
use serde::Serialize;

use crate::analysis::{Analysis, Found, Limited, Measure, PerMeasure, ServerComparison};
use crate::model::{Host, Run};
use crate::report::figure::{Figure, ratio};
use crate::text::number::{percent, rounded, spread};

/// Two servers are equal if the interval of their ratio lies within this share of 1. The value is a
/// convention. The rule is an equivalence test at half its usual error rate (Schuirmann, "A
/// comparison of the two one-sided tests procedure and the power approach", Journal of
/// Pharmacokinetics and Biopharmaceutics 15, 1987).
const EQUAL: f64 = 0.05;

/// A noise floor of this share or more counts as unknown, because there are too few restarts.
const UNKNOWN: f64 = 1.0;

/// An interval whose ends differ by this factor or more is too wide to be useful.
const USELESS: f64 = 2.0;

/// The verdict on a server that is compared with another server in one measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Judged {
    /// The server is better.
    Better,
    /// The server is worse.
    Worse,
    /// The interval of the ratio lies within `within_percent` of 1. The percentage is at most 5.
    Equal {
        /// The percentage, rounded up.
        within_percent: f64,
    },
    /// The difference is not significant, and the interval reaches further than 5% from 1.
    NotDecided,
    /// The ends of the interval differ by a factor of two or more, or the interval has no ends.
    NotMeasured,
    /// Both servers serve the full rate of an open loop, so requests/s do not tell them apart.
    BothKeepUp,
    /// There is no figure to compare.
    Unknown,
    /// The data do not permit a verdict.
    Inconclusive {
        /// Why the data do not permit a verdict.
        why: Inconclusive,
    },
}

impl Judged {
    /// Returns the verdict for the result of a comparison.
    pub(super) fn of(found: Found) -> Self {
        match found {
            None => Self::Unknown,
            Some((_, Verdict::Better)) => Self::Better,
            Some((_, Verdict::Worse)) => Self::Worse,
            Some((effect, Verdict::NoDifference)) => Self::undecided(&effect.ratio),
            Some((_, Verdict::Inconclusive(why))) => Self::Inconclusive { why },
        }
    }

    /// Returns the verdict on two servers without a significant difference, given their ratio.
    pub(super) fn undecided(ratio: &Estimate) -> Self {
        // The margin allows for 0.05 not being exact as a binary fraction.
        let far = (ratio.high - 1.0).max(1.0 - ratio.low) - 1e-9;
        match ratio.is_bounded() {
            false => Self::NotMeasured,
            _ if far <= EQUAL => {
                // The percentage is rounded up, so that the interval lies within it.
                let percent = (100.0 * far).max(0.0);
                let tenths = (percent * 10.0).ceil().max(1.0);
                let within_percent = if percent < 1.0 { tenths / 10.0 } else { percent.ceil() };
                Self::Equal { within_percent }
            }
            _ if ratio.high >= USELESS * ratio.low => Self::NotMeasured,
            _ => Self::NotDecided,
        }
    }

    /// Returns why the data do not permit a verdict. `None` if they permit one.
    pub fn inconclusive(self) -> Option<Inconclusive> {
        match self {
            Self::Inconclusive { why } => Some(why),
            _ => None,
        }
    }

    /// Returns the verdict in words: `faster`, `costs more`, `equal within ±2%`. Without a measure,
    /// the verdict is about a capacity.
    pub fn words(self, measure: Option<Measure>) -> String {
        let (better, worse) = match measure {
            Some(Measure::Rate) => ("faster", "slower"),
            Some(measure) if measure.is_cost() => ("costs less", "costs more"),
            Some(Measure::P50 | Measure::P99) => ("shorter", "longer"),
            Some(_) => ("less", "more"),
            None => ("higher", "lower"),
        };
        match self {
            Self::Better => better.to_owned(),
            Self::Worse => worse.to_owned(),
            Self::Equal { within_percent } => format!("equal within ±{within_percent}%"),
            Self::NotDecided => "not decided".to_owned(),
            Self::NotMeasured => "not measured well enough".to_owned(),
            Self::BothKeepUp => "both serve the rate that is offered".to_owned(),
            Self::Unknown => "not known".to_owned(),
            Self::Inconclusive { why } => format!("inconclusive: {}", reason(why)),
        }
    }

    /// Returns the verdict in one word, for narrow terminals on which the row names the measure.
    pub(super) fn word(self, measure: Option<Measure>) -> String {
        match (self, measure) {
            (Self::Equal { .. } | Self::BothKeepUp, _) => "equal".to_owned(),
            (Self::Better, Some(measure)) if measure.is_cost() => "less".to_owned(),
            (Self::Worse, Some(measure)) if measure.is_cost() => "more".to_owned(),
            (Self::Better | Self::Worse, _) => self.words(measure),
            _ => "?".to_owned(),
        }
    }
}

/// Returns why a comparison is inconclusive.
pub fn reason(why: Inconclusive) -> &'static str {
    match why {
        Inconclusive::TooFewRestarts => "fewer than three restarts",
        Inconclusive::TooFewNodes => "fewer than three nodes",
        Inconclusive::NotSteady => "not steady",
        Inconclusive::TooFewRuns => "fewer than three runs on a side",
        Inconclusive::DatabaseBound => {
            "the database uses more than half of the cores that it shares with the servers"
        }
        Inconclusive::ControlDiffers => "the A/A control differs from the reference",
    }
}

/// A server compared with the reference.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgainstReference {
    /// The name of the reference.
    pub reference: String,
    /// The result in each measure. Percentiles are measured under the load, which saturates the
    /// server in a closed loop. The table may show percentiles at a common rate instead.
    #[serde(flatten)]
    pub measures: PerMeasure<MeasureVerdict>,
}

/// The comparison of a server with another server in one measure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeasureVerdict {
    /// The ratio of the server's figure to the other's. `null` if unknown.
    pub ratio: Option<Figure>,
    /// The verdict.
    #[serde(flatten)]
    pub judged: Judged,
    /// The verdict in words: `equal within ±2%`, `not decided`, `not measured well enough`,
    /// `both serve the rate that is offered`, `not known`, or `inconclusive: ` and the reason.
    /// Requests/s are `faster` or `slower`, CPU time `costs less` or `costs more`, and latency is
    /// `shorter` or `longer`. Memory is `less` or `more`, and a capacity is `higher` or `lower`.
    pub words: String,
}

impl AgainstReference {
    /// Returns the result for a server that was compared with the reference.
    pub(super) fn of(run: &Run, analysis: &Analysis, found: &ServerComparison) -> Option<Self> {
        let is_offered = analysis.offered.is_some();
        Some(Self {
            reference: run.servers[analysis.reference?].name.clone(),
            measures: PerMeasure::of(|measure| MeasureVerdict::of(found, measure, is_offered)),
        })
    }
}

impl MeasureVerdict {
    /// Returns the result in one measure. `is_offered` says whether the load has a rate.
    pub(super) fn of(against: &ServerComparison, measure: Measure, is_offered: bool) -> Self {
        let keep_up = is_offered && matches!(against.limited, Some(Limited::Both));
        let found = against.found[measure];
        let judged = match measure {
            Measure::Rate if keep_up => Judged::BothKeepUp,
            _ => Judged::of(found),
        };
        Self::new(found, judged, Some(measure))
    }

    /// Returns the result for a capacity.
    pub(super) fn of_capacity(found: Found) -> Self {
        Self::new(found, Judged::of(found), None)
    }

    fn new(found: Found, judged: Judged, measure: Option<Measure>) -> Self {
        let ratio = found.map(|(effect, _)| ratio(&effect.ratio));
        Self { ratio, judged, words: judged.words(measure) }
    }
}

/// A noise floor above this share needs a remedy.
const NOISY: f64 = 0.1;
const NOISE_REMEDY: &str = " The control is measured in fewer rounds than the servers, so other \
     intervals can be narrower. Repeat the run on a quieter machine, or with a longer --duration.";

/// The difference between the reference and the A/A control.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Noise {
    /// The server that was measured twice.
    pub server: String,
    /// The noise in requests/s.
    pub requests_per_s: MeasureNoise,
    /// The noise in CPU time per request, in microseconds.
    pub cost: MeasureNoise,
    /// The noise in both measures, in one sentence.
    pub sentence: String,
}

/// The difference between the reference and the A/A control in one measure.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeasureNoise {
    /// The ratio of the control's figure to the reference's. `null` if unknown.
    pub ratio: Option<Figure>,
    /// How far the control may be from the reference, as a share. `null` if unknown.
    pub band: Option<f64>,
    /// The band as a range around the reference's figure. `null` if unknown.
    pub around: Option<(f64, f64)>,
}

impl Noise {
    pub(super) fn of(run: &Run, analysis: &Analysis) -> Option<Self> {
        let server = run.servers[analysis.reference?].name.clone();
        analysis.noise[Measure::Rate].or(analysis.noise[Measure::Cost])?;
        let requests_per_s = MeasureNoise::of(analysis, Measure::Rate, 1.0);
        let cost = MeasureNoise::of(analysis, Measure::Cost, 1e-3);
        let of_both = [(requests_per_s.band, "requests/s"), (cost.band, "CPU per request")];
        let known: Vec<String> = of_both
            .into_iter()
            .filter_map(|(band, what)| Some((band.filter(|band| *band < UNKNOWN)?, what)))
            .map(|(band, what)| format!("{} in {what}", spread(band)))
            .collect();
        let adjusted = adjusted(&analysis.speed).map_or(String::new(), |words| format!(" {words}"));
        let sentence = match known.is_empty() {
            true => {
                let level = if run.pool.is_some() { "nodes" } else { "restarts" };
                format!(
                    "Noise floor ({server} against itself): not known, because it needs more \
                     {level}.{adjusted}"
                )
            }
            false => {
                let is_noisy = of_both.iter().any(|(band, _)| band.is_some_and(|b| b > NOISY));
                let remedy = if is_noisy { NOISE_REMEDY } else { "" };
                let known = known.join(", ");
                format!("Noise floor ({server} against itself): {known}.{adjusted}{remedy}")
            }
        };
        Some(Self { server, requests_per_s, cost, sentence })
    }

    /// Adds a citation of the machine's certificate, if it has one.
    pub(super) fn citing(mut self, host: &Host) -> Self {
        if let Some(certificate) = &host.certificate {
            self.sentence += &format!(" {}", certificate.cited(self.cost.band));
        }
        self
    }
}

/// States which figures are adjusted for the speed of the servers' cores. `None` if none is.
pub fn adjusted(speed: &Speed) -> Option<String> {
    let figures = match (speed.cost.is_some(), speed.rate.is_some()) {
        (true, true) => "CPU time and requests/s are",
        (true, false) => "CPU time is",
        (false, true) => "Requests/s are",
        (false, false) => return None,
    };
    let varied = percent(speed.varied * 100.0);
    Some(format!(
        "{figures} adjusted for the speed of the servers' cores, which varied by {varied}."
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the intervals [0.68, 1.23] and [0.83, 1.44] were reported as a result, "no
    /// difference that could be measured".
    #[test]
    fn equal_is_what_lies_within_five_percent() {
        let judged = |low, high| Judged::undecided(&Estimate { value: 1.0, low, high });
        let within = |within_percent| Judged::Equal { within_percent };
        assert_eq!(judged(0.98, 1.013), within(2.0));
        assert_eq!(judged(0.9996, 1.0031), within(0.4));
        assert_eq!(judged(1.0, 1.0), within(0.1));
        assert_eq!(judged(0.95, 1.05), within(5.0));
        assert_eq!(judged(0.949, 1.0), Judged::NotDecided);
        assert_eq!(judged(0.68, 1.23), Judged::NotDecided);
        assert_eq!(judged(0.7, 1.41), Judged::NotMeasured);
        assert_eq!(judged(0.0, f64::INFINITY), Judged::NotMeasured);
        assert_eq!(within(0.4).words(None), "equal within ±0.4%");
    }

    #[test]
    fn words_belong_to_a_measure() {
        let worse = |measure| Judged::Worse.words(measure);
        assert_eq!(worse(Some(Measure::Rate)), "slower");
        assert_eq!(worse(Some(Measure::Cost)), "costs more");
        assert_eq!(Judged::Worse.word(Some(Measure::Cost)), "more");
        assert_eq!(worse(None), "lower");
        let why = Inconclusive::TooFewRestarts;
        assert_eq!(Judged::Inconclusive { why }.word(None), "?");
        assert_eq!(
            Judged::Inconclusive { why }.words(None),
            "inconclusive: fewer than three restarts"
        );
    }
}
