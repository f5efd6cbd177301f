//! What a suite adds to a report: published figures, the cost of layers, how servers scale; and
//! servers that failed.

use hotlap_stats::{Estimate, Verdict};
use serde::Serialize;

use crate::analysis::suites::{
    Curve, Difference, MeasuredRatio, Parameter, ScalingPoint, SideEffect, Step, curves,
    ratio_here, ratio_then, steps,
};
use crate::analysis::{Analysis, Found};
use crate::model::{Absent, Load, Published, Role, Run, ServerFailure};
use crate::report::figure::{
    Figure, bare, cell, difference, exactly, per_second, ratio, text_cell,
};
use crate::report::heading::load_title;
use crate::text::number;
use crate::text::number::{count, rounded};
use crate::text::table::{Cell, Column, Table};

/// A published figure beside the measured one.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PublishedView {
    /// The name of the server in the source.
    pub called: String,
    /// Published requests per second.
    pub requests_per_s: Figure,
    /// Published average, standard deviation and longest latency, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// Published memory, in MB.
    pub memory_mb: Option<f64>,
    /// Published CPU use, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// The year.
    pub year: u32,
    /// The source.
    pub source: String,
    /// The machine.
    pub machine: String,
    /// How it was measured.
    pub command: String,
    /// The server that the ratios are relative to. Empty if there is none.
    pub relative_to: String,
    /// The published ratio to that server.
    pub ratio_then: Option<Figure>,
    /// The measured ratio to that server.
    pub ratio_here: Option<Figure>,
    /// `2016: 2.30× of puma · here: 4.10× [4.00, 4.20]`.
    pub sentence: String,
    /// Why it cannot be trusted. Empty if there is no known reason.
    pub doubt: String,
    /// Why the whole source cannot be trusted. Empty if there is no known reason.
    pub source_doubt: String,
    /// Published socket errors under overload: connect, read, write, timeout.
    pub socket_errors: Option<[u64; 4]>,
}

impl PublishedView {
    /// All figures published for a server under this load.
    pub(super) fn all_of<'a>(
        run: &'a Run,
        analysis: &'a Analysis,
        server: usize,
    ) -> impl Iterator<Item = Self> + 'a {
        let all = run.servers[server].published.iter().filter(|p| p.figure.load == analysis.load);
        all.map(move |then| Self::of(run, analysis, server, then))
    }

    fn of(run: &Run, analysis: &Analysis, server: usize, then: &Published) -> Self {
        let Published { figure, citation, than } = then;
        let base = than.as_ref();
        let relative_to = base.map_or("", |base| run.servers[base.server].name.as_str());
        let ratio_then = ratio_then(server, then).map(|value| ratio(&exactly(value)));
        let here = ratio_here(run, analysis, server, then);
        let bound =
            |sign: &str, value: f64| bare(value, format!("{sign} {}", ratio(&exactly(value)).text));
        let ratio_here = match here {
            MeasuredRatio::Known(estimate) => Some(ratio(&estimate)),
            MeasuredRatio::AtLeast(value) => Some(bound("≥", value)),
            MeasuredRatio::AtMost(value) => Some(bound("≤", value)),
            MeasuredRatio::Limited | MeasuredRatio::Unknown => None,
        };
        let here = match (&ratio_here, here) {
            (Some(figure), _) => figure.full(),
            (None, MeasuredRatio::Limited) => {
                "not known, the load generator limited both".to_owned()
            }
            _ => "not measured".to_owned(),
        };
        let sentence = match (&ratio_then, base) {
            (Some(r), _) => {
                format!("{}: {} of {relative_to} · here: {here}", citation.year, r.text)
            }
            (None, Some(_)) => format!("{}: 1×, the others are relative to it", citation.year),
            (None, None) => format!(
                "{}: {} requests/s, without a ratio",
                citation.year,
                number::rate(figure.requests_per_s)
            ),
        };
        let requests = number::grouped(figure.requests_per_s.round(), 0);
        Self {
            called: figure.called.clone(),
            requests_per_s: bare(figure.requests_per_s, requests),
            latency_ms: figure.latency_ms,
            memory_mb: figure.memory_mb,
            cpu_percent: figure.cpu_percent,
            year: citation.year,
            source: citation.source.clone(),
            machine: citation.machine.clone(),
            command: citation.command.clone(),
            relative_to: relative_to.to_owned(),
            ratio_then,
            ratio_here,
            sentence,
            doubt: figure.doubt.clone(),
            source_doubt: citation.doubt.clone(),
            socket_errors: figure.socket_errors,
        }
    }

    /// The sentence, and the reason for caution.
    pub fn sentence_with_doubt(&self) -> String {
        match self.doubt.is_empty() {
            true => self.sentence.clone(),
            false => format!("{} · doubt: {}", self.sentence, self.doubt),
        }
    }
}

/// The figures of one source for the servers of a table.
#[derive(Debug)]
pub struct PublishedSource<'a> {
    /// One of its rows, for the facts that all of them share.
    pub any: &'a PublishedView,
    /// The servers, and their published figures.
    pub rows: Vec<(&'a str, &'a PublishedView)>,
}

impl PublishedSource<'_> {
    /// The year and the source.
    pub fn heading(&self) -> String {
        format!("Published in {}: {}", self.any.year, self.any.source)
    }

    /// Published figures beside measured ones, for outputs that have room for a table.
    pub fn table(&self) -> Table {
        let cells = |of: fn(&PublishedView) -> Cell| self.rows.iter().map(move |(_, p)| of(p));
        let number =
            |number: Option<f64>| Cell::from(number.map_or(String::new(), |n| n.to_string()));
        let base = match self.any.relative_to.as_str() {
            "" => String::new(),
            base => format!(" of {base}"),
        };
        let latency = |p: &PublishedView| {
            let figures = p.latency_ms.map(|all| all.map(|ms| ms.to_string()).join("/"));
            Cell::from(figures.unwrap_or_default())
        };
        Table::new(vec![
            Column::name("here", self.rows.iter().map(|(server, _)| *server)),
            Column::left("there", cells(|p| Cell::from(&p.called))),
            Column::right("requests/s then", cells(|p| text_cell(Some(&p.requests_per_s)))),
            Column::right("latency ms (avg/stdev/max)", cells(latency)),
            Column::right("MB", self.rows.iter().map(|(_, p)| number(p.memory_mb))),
            Column::right("%CPU", self.rows.iter().map(|(_, p)| number(p.cpu_percent))),
            Column::right(&format!("then{base}"), cells(|p| text_cell(p.ratio_then.as_ref()))),
            Column::right(&format!("here{base}"), cells(|p| cell(p.ratio_here.as_ref()))),
            Column::left("doubt", cells(|p| Cell::from(&p.doubt))),
        ])
    }

    /// The machine and the method of a source, and the reason for caution, in parts.
    pub fn circumstances(&self) -> Vec<String> {
        let doubt = match self.any.source_doubt.as_str() {
            "" => String::new(),
            doubt => format!("doubt: {doubt}"),
        };
        let parts = [self.any.machine.clone(), self.any.command.clone(), doubt];
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }
}

/// One step: a layer and the one below it.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayerStep {
    /// The index of the load.
    pub load: usize,
    /// The lower layer.
    pub from: String,
    /// The upper layer.
    pub to: String,
    /// The names of both, the upper layer first. For variants of one server, without the server's
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
    /// The problem with the upper layer's side effect. Empty if there is none.
    pub side_effect: String,
    /// Why the CPU time is uncertain, in a few words. Empty if it is not.
    #[serde(skip)]
    pub caution: &'static str,
    /// The step in one sentence.
    pub sentence: String,
}

impl LayerStep {
    /// Steps as a table, for every output.
    pub fn table<'a>(steps: impl Iterator<Item = &'a Self>) -> Table {
        let steps: Vec<&Self> = steps.collect();
        let cells = |of: fn(&Self) -> Cell| steps.iter().map(move |step| of(step));
        Table::new(vec![
            Column::name("step", cells(|s| Cell::from(&s.to).shortened_to(&s.short.0))),
            Column::name("on", cells(|s| Cell::from(&s.from).shortened_to(&s.short.1))),
            Column::right("CPU\na request", cells(|s| cell(s.cpu_us.as_ref()))),
            Column::right("wall time\na request", cells(|s| cell(s.wall_us.as_ref())))
                .drop_order(1),
            Column::right("CPU", cells(|s| cell(s.cost.as_ref()))).wide(),
            Column::right("requests/s", cells(|s| cell(s.requests_per_s.as_ref()))).wide(),
            Column::left("", cells(remark)),
        ])
    }

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

/// Why a difference is uncertain. Empty if it is not.
fn caution(difference: &Estimate, verdict: Verdict) -> &'static str {
    match verdict {
        _ if !difference.is_bounded() => "not measured well enough",
        Verdict::Inconclusive(_) => "inconclusive",
        Verdict::NoDifference => "not decided",
        _ => "",
    }
}

/// A variant's own name, next to another of the same server.
fn short<'a>(name: &'a str, beside: &str) -> &'a str {
    match (name.split_once(':'), beside.split_once(':')) {
        (Some((base, variant)), Some((other, _))) if base == other => variant,
        _ => name,
    }
}

/// How one server scales.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Scaling {
    /// Name of the server.
    pub server: String,
    /// The property in which the loads differ: `connections`.
    pub parameter: String,
    /// The points, lowest value first.
    pub points: Vec<ScalePoint>,
    /// How it scales, in one sentence.
    pub sentence: String,
}

/// One server under one of the loads that it scales over.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScalePoint {
    /// The index of the load.
    pub load: usize,
    /// The value of the property.
    pub at: u64,
    /// Correct responses per second.
    pub requests_per_s: Option<Figure>,
    /// What requests/s would be if it grew in proportion, from the first point on.
    pub ideal: Option<f64>,
    /// The growth from the previous point as a share of proportional growth: 1 is all.
    pub efficiency: Option<f64>,
    /// The limit: more threads than cores; else empty.
    pub note: String,
}

impl Scaling {
    /// One curve per server. None if neither threads nor loads form a series.
    pub(super) fn all_of(run: &Run, analyses: &[Analysis]) -> Vec<Self> {
        curves(run, analyses).iter().map(|curve| Self::of(run, curve)).collect()
    }

    fn of(run: &Run, curve: &Curve) -> Self {
        let server = &run.servers[curve.server];
        let parameter = parameter_words(curve.parameter);
        let points: Vec<ScalePoint> = curve.points.iter().map(ScalePoint::of).collect();
        let load = points.first().map_or(0, |point| point.load);
        let all: Vec<&Load> = run.loads.iter().collect();
        let under = match curve.parameter == Parameter::Threads && all.len() > 1 {
            true => format!(" ({})", load_title(&run.loads[load], &all)),
            false => String::new(),
        };
        let name = server.cpus.as_ref().map_or(&server.name, |(_, base)| base);
        Self {
            server: server.name.clone(),
            parameter: parameter.to_owned(),
            sentence: format!("{name}{under} over {parameter}: {}.", words(&points)),
            points,
        }
    }
}

impl ScalePoint {
    fn of(point: &ScalingPoint) -> Self {
        let figure = point.rate.as_ref().map(per_second);
        Self {
            load: point.load,
            at: point.at as u64,
            requests_per_s: match point.generator_limited {
                true => figure.as_ref().map(Figure::at_least),
                false => figure,
            },
            ideal: point.ideal.map(rounded),
            efficiency: point.efficiency.map(rounded),
            note: point.beyond_cores.map_or_else(String::new, beyond_cores),
        }
    }
}

fn parameter_words(parameter: Parameter) -> &'static str {
    match parameter {
        Parameter::Threads => "threads",
        Parameter::Connections => "connections",
        Parameter::Pipeline => "requests in flight on each connection",
        Parameter::GeneratorThreads => "generator threads",
    }
}

/// States that a server has more threads than cores.
pub(super) fn beyond_cores(cores: usize) -> String {
    match cores {
        1 => "more threads than cores: the servers have one here".to_owned(),
        cores => format!("more threads than cores: the servers have {cores} here"),
    }
}

/// `1: 5,000 · 2: 9,500 (95% of proportion) · 4: …`.
fn words(points: &[ScalePoint]) -> String {
    let one = |point: &ScalePoint| {
        let rate = point.requests_per_s.as_ref().map_or("not measured", |f| f.text.as_str());
        let mut more: Vec<String> = Vec::new();
        more.extend(point.efficiency.map(|e| format!("{:.0}% of proportion", e * 100.0)));
        more.extend((!point.note.is_empty()).then(|| "more threads than cores".to_owned()));
        match more.is_empty() {
            true => format!("{}: {rate}", point.at),
            false => format!("{}: {rate} ({})", point.at, more.join(", ")),
        }
    };
    points.iter().map(one).collect::<Vec<_>>().join(" · ")
}

/// A server that failed.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failed {
    /// Its name in tables.
    pub name: String,
    /// How it was started.
    pub command: String,
    /// The phase, the cause, the last lines of its output, and the remedy.
    #[serde(flatten)]
    pub why: ServerFailure,
    /// Figures published for it elsewhere.
    pub published: Vec<PublishedView>,
}

impl Failed {
    /// The entry for a server of a run, if it failed.
    pub(super) fn of(run: &Run, analyses: &[Analysis], index: usize) -> Option<Self> {
        let server = &run.servers[index];
        let why = server.failure.clone()?;
        // The A/A control is the same program as the reference. If it alone fails, a note says so.
        if server.role == Role::Control {
            return None;
        }
        let published = analyses.iter().flat_map(|a| PublishedView::all_of(run, a, index));
        Some(Self {
            name: server.name.clone(),
            command: server.command.clone(),
            why,
            published: published.collect(),
        })
    }
}

/// A published server that is not part of the run, in a sentence.
pub fn absence(absent: &Absent) -> String {
    let figure = absent.requests_per_s.map_or_else(String::new, |r| {
        format!(" ({} requests/s then)", number::grouped(r.round(), 0))
    });
    format!("Not included: {}{figure}: {}", absent.name, absent.why)
}

/// Why a step is uncertain.
fn remark(step: &LayerStep) -> Cell {
    let text = if step.side_effect.is_empty() { step.caution } else { &step.side_effect };
    Cell::from(text).shortened_to(step.caution)
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
