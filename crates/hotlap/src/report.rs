//! The report: the rounded figures and the sentences that renderers show. The file
//! `schemas/report.schema.json` describes its JSON form.
//!
//! A report is made from one [`crate::analysis::Analysis`] per load, or from the analyses of a
//! search or of explain laps. The renderers ([`crate::render`]) only lay out the report and
//! compute nothing.

pub mod capacity;
pub mod comparison;
pub mod explain;
pub mod figure;
mod heading;
mod laps;
pub mod latency;
mod overview;
mod pool;
mod results;
mod sentences;
pub mod stress;
mod suite;
pub mod timeline;
pub mod trend;
pub mod verdict;
pub mod warnings;

use std::iter::zip;

use serde::Serialize;

use crate::analysis::{Analysis, CapacityAnalysis, Explanation};
use crate::model::{Host, Question, Run};
use crate::text::number::plural;

pub use crate::analysis::{Measure, PerMeasure};
pub use crate::model::{Absent, Role, RunState};
pub use capacity::{CapacityResults, CapacityRow};
pub use explain::{CountRow, ExplanationResults, LedgerKind, LedgerRow};
pub use figure::Figure;
pub use heading::{Heading, HostView, cores_in_words, request_and_load, shape_words};
pub use laps::{LapView, StartView, WarmupView};
pub use latency::{Latency, OpenLoopView, RequestRow};
pub use overview::Overview;
pub use pool::{NodeDifference, PoolView, ShardView};
pub use results::{ErrorCount, FACTS, Fact, LoadResults, Row, Value};
pub use suite::{Failed, LayerStep, PublishedSource, PublishedView, ScalePoint, Scaling, absence};
pub use verdict::{AgainstReference, MeasureNoise, MeasureVerdict, Noise};

/// The report on a run.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// The version of the document format: 1.
    pub schema: u32,
    /// What was run, when, and how it ended.
    pub run: Heading,
    /// The machine that ran the servers, and the machines that generated the load.
    pub host: HostView,
    /// The result in sentences, the verdict first.
    pub sentences: Vec<String>,
    /// The noise floor under the first load. `null` if it is unknown.
    pub noise: Option<Noise>,
    /// Warnings, each with a remedy.
    pub warnings: Vec<String>,
    /// One table per load. Empty for a search of capacities and for `explain`.
    pub tables: Vec<LoadResults>,
    /// The capacities that a search found, load by load. Empty for other runs.
    pub capacity: Vec<CapacityResults>,
    /// The sources of differences in CPU time per request. Empty unless the run looked for them.
    pub explanations: Vec<ExplanationResults>,
    /// The servers that failed, each with the reason.
    pub failed: Vec<Failed>,
    /// The steps of a suite that asks what each layer costs. Empty for other questions.
    pub layers: Vec<LayerStep>,
    /// How each server scales. Empty if neither threads nor loads form a scale.
    pub scaling: Vec<Scaling>,
    /// Servers that the suite's sources list but the run does not include, each with the reason.
    pub absent: Vec<Absent>,
    /// The effect of overload and misbehaving clients on servers. `null` unless the run tested it.
    pub stress: Option<stress::Stress>,
    /// The nodes and shards of a merged run. `null` for a run of one machine.
    pub pool: Option<PoolView>,
    /// Every start of a server, with its warm-up curves.
    pub starts: Vec<StartView>,
    /// Every lap, in the order of measurement.
    pub laps: Vec<LapView>,
    /// The rules of `--fail-if` that servers broke.
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
    /// The rule and the measured figure, in one sentence.
    pub sentence: String,
}

impl Report {
    /// Builds the report on a run, which need not have finished.
    pub fn of(run: &Run) -> Self {
        let searches = CapacityAnalysis::of_all(run);
        let capacity: Vec<CapacityResults> =
            searches.iter().map(|search| CapacityResults::of(run, search)).collect();
        // Laps of a search have different rates, so a level over all laps would mean nothing.
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
            noise: tables
                .first()
                .and_then(|t| t.noise.clone())
                .map(|noise| noise.citing(&run.host)),
            warnings: [
                warnings::sentences(run, &analyses, &searches),
                explain::warnings(run),
                // The sentence about a noise floor already includes this sentence.
                zip(&analyses, &tables)
                    .filter(|(_, table)| table.noise.is_none())
                    .filter_map(|(analysis, _)| verdict::adjusted(&analysis.speed))
                    .collect(),
            ]
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

/// Returns the name of a measure in tables.
pub fn measure_name(measure: Measure) -> &'static str {
    match measure {
        Measure::Rate => "requests/s",
        Measure::Cost => "CPU µs/request",
        Measure::Database => "database µs/request",
        Measure::Total => "total µs/request",
        Measure::P50 => "p50",
        Measure::P99 => "p99",
        Measure::Memory => "memory",
    }
}

impl Report {
    /// Returns the sentences at the top of the page. With several loads, only the first one is
    /// returned, since each load has its own section. Without a comparison, the sentences state
    /// what was measured.
    pub fn headline(&self) -> Vec<String> {
        if !self.shared_sentences().is_empty() {
            return self.shared_sentences().to_vec();
        }
        if self.tables.len() > 1 {
            let mut firsts = self.tables.iter().filter_map(|t| Some((t, t.sentences.first()?)));
            if let Some((load, sentence)) = firsts.next() {
                return vec![format!("{}: {sentence}", load.title)];
            }
        }
        if self.capacity.len() > 1 {
            return self.sentences.first().cloned().into_iter().collect();
        }
        let steps = self.layers.iter().map(|step| &step.sentence);
        let stress = self.stress.iter().flat_map(|found| &found.sentences);
        let sentences: Vec<String> = steps.chain(&self.sentences).chain(stress).cloned().collect();
        if !sentences.is_empty() {
            return sentences;
        }
        let rows = self.tables.iter().flat_map(|t| &t.rows).filter(|r| r.role != Role::Ceiling);
        let measured: Vec<String> = rows.filter_map(measured).collect();
        match (measured.is_empty(), self.failed.as_slice()) {
            (false, _) => measured,
            (true, []) => vec!["Nothing was measured.".to_owned()],
            (true, [only]) => vec![format!("{} failed: nothing was measured.", only.name)],
            (true, all) => vec![format!("All {} servers failed: nothing was measured.", all.len())],
        }
    }

    /// Returns the sentence that several tables share, if each of them has only this sentence.
    /// Empty otherwise.
    pub fn shared_sentences(&self) -> &[String] {
        match &self.tables[..] {
            [first, others @ ..]
                if !others.is_empty()
                    && first.sentences.len() == 1
                    && others.iter().all(|table| table.sentences == first.sentences) =>
            {
                &first.sentences
            }
            _ => &[],
        }
    }

    /// Returns the sentences of a table. Empty if all tables share one sentence.
    pub fn own_sentences<'a>(&self, load: &'a LoadResults) -> &'a [String] {
        if self.shared_sentences().is_empty() { &load.sentences } else { &[] }
    }

    /// Returns how the run was measured, as names and values. Unknown facts are left out.
    pub fn facts(&self) -> Vec<(String, String)> {
        let run = &self.run;
        let schedule = &run.schedule;
        let size = match (schedule.restarts, schedule.rounds) {
            (0, _) | (_, 0) => "as many restarts and rounds as the time allows".to_owned(),
            (restarts, rounds) => format!(
                "{} × {}",
                plural(restarts as usize, "restart"),
                plural(rounds as usize, "round")
            ),
        };
        let frozen = if schedule.freeze { ", servers frozen outside of their slices" } else { "" };
        let mut facts = vec![
            ("host", self.host.line.clone()),
            ("hotlap", run.hotlap.clone()),
            ("suite", run.suite.clone().unwrap_or_default()),
            ("about", run.about.clone()),
            ("began", run.began.clone()),
            ("took", run.took_s.map_or_else(String::new, |took_s| format!("{took_s:.1} s"))),
            ("seed of the order", run.seed.to_string()),
        ];
        facts.extend(run.loads_in_words.iter().map(|load| ("load", load.clone())));
        if schedule.duration_s > 0.0 {
            facts.push(("planned", format!("{size}, {:.0} s in all{frozen}", schedule.duration_s)));
        }
        let controller = self.host.facts.controller.as_ref();
        facts.extend(controller.map(|controller| {
            let at = controller.address.iter().map(|address| format!(", at {address}"));
            ("servers on", controller.command.clone() + &at.collect::<String>())
        }));
        let generators = self.host.facts.generators.iter();
        facts
            .extend(generators.map(|own| ("load from", format!("{} ({})", own.command, own.name))));
        facts.extend(machine_facts(&self.host.facts));
        let all = facts.into_iter().map(|(name, value)| (name.to_owned(), value));
        all.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Returns the order of the servers' laps, with one line per round.
    pub fn lap_order(&self) -> String {
        let mut out = String::new();
        let mut last = None;
        for lap in &self.laps {
            let round = (lap.load, lap.restart, lap.round, lap.rate.is_some());
            out += &match last == Some(round) {
                true => " · ".to_owned(),
                false => format!("\nrestart {} round {}: ", lap.restart, lap.round),
            };
            out += &lap.server;
            last = Some(round);
        }
        out.trim_start().to_owned()
    }

    /// Returns a hint on how to see what the terminal leaves out. Empty if nothing was measured.
    pub fn hint(&self) -> String {
        let rows = || self.tables.iter().filter(|t| t.is_measured).flat_map(|t| &t.rows);
        let has_requests = self.tables.iter().any(|table| !table.by_request.is_empty());
        let more = if has_requests { "Figures of each request, and more" } else { "More figures" };
        match (rows().next(), rows().any(|row| row.errors > 0)) {
            (None, _) if !self.explanations.is_empty() => "All functions: --details".to_owned(),
            (None, _) => String::new(),
            (_, true) => format!("{more}, and errors by kind: --details"),
            (_, false) => format!("No request errors. {more}: --details"),
        }
    }

    /// Returns the steps between the layers under one load.
    pub fn steps(&self, load: &LoadResults) -> impl Iterator<Item = &LayerStep> {
        let load = load.load;
        self.layers.iter().filter(move |step| step.load == load)
    }
}

/// States the figures of one server in a sentence, without a comparison.
fn measured(row: &Row) -> Option<String> {
    let rate = row.requests_per_s.as_ref()?.full();
    let cost = row
        .cpu_us
        .as_ref()
        .map(|cost| format!(", at {} of CPU time each", results::in_micros(cost)));
    Some(format!("{} serves {rate} requests/s{}.", row.name, cost.unwrap_or_default()))
}

/// Returns facts about the servers' machine. The value of an unknown fact is empty.
fn machine_facts(host: &Host) -> Vec<(&'static str, String)> {
    let machine = &host.machine;
    let number = |number: usize| if number > 0 { number.to_string() } else { String::new() };
    let digits = |value: Option<f64>, digits: usize| {
        value.map_or_else(String::new, |value| format!("{value:.digits$}"))
    };
    let yes = |known: Option<bool>| match known {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => String::new(),
    };
    vec![
        ("physical cores", number(machine.cores)),
        ("hardware threads", number(machine.threads)),
        ("quota, cores", digits(machine.quota, 2)),
        ("governor", machine.governor.clone().unwrap_or_default()),
        ("turbo", yes(machine.turbo)),
        ("two threads a core", yes(machine.smt)),
        ("on battery", yes(machine.battery)),
        ("load average", digits(machine.load, 2)),
        ("busy before the run, %", digits(machine.busy, 0)),
        ("stolen before the run, %", digits(machine.steal, 1)),
        ("fingerprint", machine.fingerprint.clone()),
        ("node", host.node.clone().unwrap_or_default()),
    ]
}
