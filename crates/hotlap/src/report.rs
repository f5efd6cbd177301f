//! Finished words and figures: everything that renderers show, and the document described by
//! `schemas/report.schema.json`.
//!
//! The input is an [`crate::analysis::Analysis`] of each load; the output is rounded and in words.
//! The renderers ([`crate::render`]) lay it out and compute nothing.

mod against;
pub mod capacity;
pub mod comparison;
pub mod explain;
mod facts;
mod failed;
pub mod failures;
pub mod figure;
mod heading;
mod laps;
mod latency;
mod layers;
mod loads;
mod noise;
pub mod open_loop;
mod pool;
mod published;
mod request;
mod results;
mod row;
mod scaling;
mod sentences;
mod sources;
pub mod stress;
mod tables;
pub mod trend;
pub mod verdict;
mod warnings;

use serde::Serialize;

use crate::analysis::{Analysis, CapacityAnalysis, Explanation};
use crate::model::{Question, Run};

pub use crate::analysis::{Measure, PerMeasure};
pub use crate::model::{Absent, Role, State};
pub use against::{AgainstReference, MeasureVerdict};
pub use capacity::{CapacityResults, CapacityRow};
pub use explain::{CountRow, ExplanationResults, LedgerKind, LedgerRow};
pub use failed::Failed;
pub use figure::Figure;
pub use heading::{Heading, HostView, cores_in_words};
pub use laps::{LapView, StartView, WarmupView};
pub use latency::Latency;
pub use layers::LayerStep;
pub use loads::request_and_load;
pub use noise::{MeasureNoise, Noise};
pub use open_loop::OpenLoopView;
pub use pool::{NodeDifference, PoolView, ShardView};
pub use published::PublishedView;
pub use request::RequestRow;
pub use results::LoadResults;
pub use row::{ErrorCount, Row};
pub use scaling::{ScalePoint, Scaling};
pub use sources::Source;

/// The report on a run.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Report {
    /// Version of the form of this document: 1.
    pub schema: u32,
    /// The run.
    pub run: Heading,
    /// The machine.
    pub host: HostView,
    /// The result in sentences, the verdict first.
    pub sentences: Vec<String>,
    /// The noise floor.
    pub noise: Option<Noise>,
    /// Warnings, each with a remedy.
    pub warnings: Vec<String>,
    /// One table a load; none for a search.
    pub tables: Vec<LoadResults>,
    /// The capacities that a search found, load by load; empty for other runs.
    pub capacity: Vec<CapacityResults>,
    /// Where differences in CPU time per request come from; empty unless that was measured.
    pub explanations: Vec<ExplanationResults>,
    /// Servers that failed, and why.
    pub failed: Vec<Failed>,
    /// Each step of a suite about layers; empty for other questions.
    pub layers: Vec<LayerStep>,
    /// How each server scales; empty where neither threads nor loads form a scale.
    pub scaling: Vec<Scaling>,
    /// Servers of the suite's sources that are not part of the run, with the reason.
    pub absent: Vec<Absent>,
    /// The effect of overload and misbehaving clients on servers; `null` if that was not tested.
    pub stress: Option<stress::Stress>,
    /// The nodes and shards of a merged run; `null` for a run of one machine.
    pub pool: Option<PoolView>,
    /// Every start with its warm-up curves.
    pub starts: Vec<StartView>,
    /// Every lap, in the order of measurement.
    pub laps: Vec<LapView>,
    /// Rules of `--fail-if` that servers break.
    #[serde(skip)]
    pub broken: Vec<BrokenRule>,
    /// The outcome of each rule of `--fail-if`, in sentences.
    #[serde(skip)]
    pub ruling: Vec<String>,
}

/// A rule of `--fail-if` that a server breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenRule {
    /// The server's name in tables.
    pub server: String,
    /// The index of the load.
    pub load: usize,
    /// The rule and the figure, in a sentence.
    pub sentence: String,
}

impl Report {
    /// The report on a run, finished or not.
    pub fn of(run: &Run) -> Self {
        let searches = CapacityAnalysis::of_all(run);
        let capacity: Vec<CapacityResults> =
            searches.iter().map(|search| CapacityResults::of(run, search)).collect();
        // The laps of a search have rates of their own: their levels mean nothing.
        let analyses = match run.question {
            Question::Capacity | Question::Explain => Vec::new(),
            _ => Analysis::of_all(run),
        };
        let tables: Vec<LoadResults> = analyses.iter().map(|a| LoadResults::of(run, a)).collect();
        let explanations: Vec<ExplanationResults> = Explanation::of_all(run)
            .iter()
            .map(|explanation| ExplanationResults::of(run, explanation))
            .collect();
        let servers = 0..run.servers.len();
        Self {
            schema: 1,
            run: Heading::of(run),
            host: HostView::of(&run.host),
            sentences: tables
                .iter()
                .flat_map(LoadResults::sentences_with_load)
                .chain(capacity.iter().flat_map(CapacityResults::sentences_with_load))
                .chain(explanations.iter().map(|found| found.sentence.clone()))
                .collect(),
            noise: tables.first().and_then(|t| t.noise.clone()),
            warnings: [warnings::sentences(run, &analyses, &searches), explain::warnings(run)]
                .concat(),
            tables,
            capacity,
            explanations,
            failed: servers.filter_map(|server| Failed::of(run, &analyses, server)).collect(),
            layers: match run.question {
                Question::Layers => {
                    analyses.iter().flat_map(|a| LayerStep::all_of(run, a)).collect()
                }
                _ => Vec::new(),
            },
            scaling: Scaling::all_of(run, &analyses),
            absent: run.absent.clone(),
            stress: stress::Stress::of(run),
            pool: PoolView::of(run, &analyses),
            starts: run.starts.iter().map(|s| StartView::of(run, s)).collect(),
            laps: run.laps.iter().map(|l| LapView::of(run, l)).collect(),
            broken: Vec::new(),
            ruling: Vec::new(),
        }
    }
}

/// The name of a measure in tables.
pub fn measure_name(measure: Measure) -> &'static str {
    match measure {
        Measure::Rate => "requests/s",
        Measure::Cost => "CPU µs/request",
        Measure::P50 => "p50",
        Measure::P99 => "p99",
        Measure::Memory => "memory",
    }
}
