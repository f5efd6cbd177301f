//! The parts of a report that a suite adds: published figures, the cost of layers, and scaling. The
//! module also describes servers that failed.

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
use crate::text::number::{count, plural, rounded};
use crate::text::table::{Cell, Column, Table};

/// A published figure next to the measured figure.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PublishedView {
    /// The name of the server in the source.
    pub called: String,
    /// The published requests per second.
    pub requests_per_s: Figure,
    /// The published average, standard deviation and maximum of latency, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// The published memory, in MB.
    pub memory_mb: Option<f64>,
    /// The published CPU use, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// The year of publication.
    pub year: u32,
    /// The source of the published figure.
    pub source: String,
    /// The machine that the source measured on.
    pub machine: String,
    /// The method or the command that the source measured with.
    pub command: String,
    /// The server that the ratios are relative to. Empty if there is no such server.
    pub relative_to: String,
    /// The published ratio to that server.
    pub ratio_then: Option<Figure>,
    /// The measured ratio to that server.
    pub ratio_here: Option<Figure>,
    /// Both ratios in one line: `2016: 2.30× of puma · here: 4.10× [4.00, 4.20]`.
    pub sentence: String,
    /// A caveat about this figure. Empty if there is none.
    pub doubt: String,
    /// A caveat about all figures of the source. Empty if there is none.
    pub source_doubt: String,
    /// The published socket errors under overload, in the order connect, read, write, timeout.
    pub socket_errors: Option<[u64; 4]>,
}

impl PublishedView {
    /// Returns all figures that are published for a server under this load.
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
                "not known, because the load generator limited both servers".to_owned()
            }
            _ => "not known".to_owned(),
        };
        let sentence = match (&ratio_then, base) {
            (Some(r), _) => {
                format!("{}: {} of {relative_to} · here: {here}", citation.year, r.text)
            }
            (None, Some(_)) => {
                format!("{}: 1× (the other servers are relative to it)", citation.year)
            }
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

    /// Returns the sentence, followed by the caveat if there is one.
    pub fn sentence_with_doubt(&self) -> String {
        match self.doubt.is_empty() {
            true => self.sentence.clone(),
            false => format!("{} · caveat: {}", self.sentence, self.doubt),
        }
    }
}

/// The figures of one source for the servers of a table.
#[derive(Debug)]
pub struct PublishedSource<'a> {
    /// One of the rows, for the facts that all rows share.
    pub any: &'a PublishedView,
    /// The servers of this run, with their published figures.
    pub rows: Vec<(&'a str, &'a PublishedView)>,
}

impl PublishedSource<'_> {
    /// Returns a heading with the year and the source.
    pub fn heading(&self) -> String {
        format!("Published in {}: {}", self.any.year, self.any.source)
    }

    /// Returns a table of published and measured figures, for outputs that have room for it.
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
            Column::left("caveat", cells(|p| Cell::from(&p.doubt))),
        ])
    }

    /// Returns the machine, the method and the caveat of a source, in parts.
    pub fn circumstances(&self) -> Vec<String> {
        let doubt = match self.any.source_doubt.as_str() {
            "" => String::new(),
            doubt => format!("caveat: {doubt}"),
        };
        let parts = [self.any.machine.clone(), self.any.command.clone(), doubt];
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }
}

/// One step between layers: a layer and the layer below it.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayerStep {
    /// The index of the load.
    pub load: usize,
    /// The lower layer.
    pub from: String,
    /// The upper layer.
    pub to: String,
    /// The names of both layers, the upper layer first. The server's name is left out if both are
    /// variants of one server.
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
    /// Why the step was not measured: wrong responses or side effects. Empty if it was measured.
    pub side_effect: String,
    /// Why the cost of the step is uncertain, in a few words. Empty if the cost is certain.
    #[serde(skip)]
    pub caution: &'static str,
    /// A sentence that states the cost of the step.
    pub sentence: String,
}

impl LayerStep {
    /// Returns the steps as a table, for every output.
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

    /// Returns the steps of a run under one load.
    pub(super) fn all_of(run: &Run, analysis: &Analysis) -> Vec<Self> {
        steps(run, analysis).iter().map(|step| Self::of(run, analysis.load, step)).collect()
    }

    fn of(run: &Run, load: usize, step: &Step) -> Self {
        let (to, from) = (&run.servers[step.to].name, &run.servers[step.from].name);
        let side_effect = match (step.wrong, step.side_effect) {
            (0, None) => String::new(),
            (0, Some(found)) => format!("{}, so its step is not measured", side_effect(found)),
            (n, _) => {
                format!(
                    "the server sent {}, so its step is not measured",
                    plural(n as usize, "wrong response")
                )
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
                (true, None) if step.wall_us.is_some() => "CPU time not known",
                (true, None) => "not measured",
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

/// Describes a side effect that happened too rarely or too often.
pub(super) fn side_effect(SideEffect { required, counted }: SideEffect) -> String {
    let less = if counted < required { "work was dropped" } else { "work was repeated" };
    format!(
        "the side effect happened {} instead of {} ({less})",
        plural(counted as usize, "time"),
        count(required)
    )
}

/// States the cost of one step in a sentence.
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
        true => format!(
            "{to}: its step is not measured, because too few laps count or responses were wrong."
        ),
        false => format!("{to}, on {}: {} a request.", short(on, to), clauses.join(", ")),
    }
}

/// Returns why a difference is uncertain. Empty if the difference is certain.
fn caution(difference: &Estimate, verdict: Verdict) -> &'static str {
    match verdict {
        _ if !difference.is_bounded() => "not measured well enough",
        Verdict::Inconclusive(_) => "inconclusive",
        Verdict::NoDifference => "not decided",
        _ => "",
    }
}

/// Returns the name of a variant without its server, if `beside` is a variant of the same server.
fn short<'a>(name: &'a str, beside: &str) -> &'a str {
    match (name.split_once(':'), beside.split_once(':')) {
        (Some((base, variant)), Some((other, _))) if base == other => variant,
        _ => name,
    }
}

/// How the throughput of one server scales with one property.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Scaling {
    /// The name of the server.
    pub server: String,
    /// The property that differs between the points: `threads`, `connections`, …
    pub parameter: String,
    /// The points, in ascending order of the property.
    pub points: Vec<ScalePoint>,
    /// A sentence that states how the server scales.
    pub sentence: String,
}

/// The throughput of one server at one value of the property.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScalePoint {
    /// The index of the load.
    pub load: usize,
    /// The value of the property.
    pub at: u64,
    /// The correct responses per second.
    pub requests_per_s: Option<Figure>,
    /// The requests/s that growth in proportion from the first point would give.
    pub ideal: Option<f64>,
    /// The growth since the previous point, as a share of proportional growth.
    pub efficiency: Option<f64>,
    /// A note if the server has more threads than cores. Empty otherwise.
    pub note: String,
}

impl Scaling {
    /// Returns the curves. Empty if neither threads nor loads form a series.
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
        1 => "more threads than cores: the servers have only one".to_owned(),
        cores => format!("more threads than cores: the servers have only {cores}"),
    }
}

/// Lists the points in one line: `1: 5,000 · 2: 9,500 (95% of proportion) · 4: …`.
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
    /// The server's name in tables.
    pub name: String,
    /// The command that should have started the server.
    pub command: String,
    /// The phase and cause of the failure, the last lines of the server's output, and the remedy.
    #[serde(flatten)]
    pub why: ServerFailure,
    /// Figures that are published for the server elsewhere.
    pub published: Vec<PublishedView>,
}

impl Failed {
    /// Returns the entry for a server. `None` if the server did not fail, or is the A/A control.
    pub(super) fn of(run: &Run, analyses: &[Analysis], index: usize) -> Option<Self> {
        let server = &run.servers[index];
        let why = server.failure.clone()?;
        // The A/A control is the same program as the reference. If only the control fails, a
        // warning says so.
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

/// States in one sentence that a published server is not part of the run, and why.
pub fn absence(absent: &Absent) -> String {
    let figure = absent.requests_per_s.map_or_else(String::new, |r| {
        format!(" ({} requests/s then)", number::grouped(r.round(), 0))
    });
    format!("{}{figure} is not included: {}", absent.name, absent.why)
}

/// Returns the cell that says why a step is uncertain or was not measured.
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
