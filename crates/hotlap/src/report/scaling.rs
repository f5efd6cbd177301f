//! How servers scale, in words.

use serde::Serialize;

use super::figure::{Figure, per_second};
use super::loads::load_title;
use crate::analysis::Analysis;
use crate::analysis::scaling::{Curve, CurvePoint, Parameter, curves};
use crate::model::{Load, Run};
use crate::text::number::rounded;

/// How one server scales.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
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
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
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
    /// One curve per server; none if neither threads nor loads form a series.
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
        let name = if server.part.base.is_empty() { &server.name } else { &server.part.base };
        Self {
            server: server.name.clone(),
            parameter: parameter.to_owned(),
            sentence: format!("{name}{under} over {parameter}: {}.", words(&points)),
            points,
        }
    }
}

impl ScalePoint {
    fn of(point: &CurvePoint) -> Self {
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

/// `1: 5,000 · 2: 9,500 (95 % of proportion) · 4: …`.
fn words(points: &[ScalePoint]) -> String {
    let one = |point: &ScalePoint| {
        let rate = point.requests_per_s.as_ref().map_or("not measured", |f| f.text.as_str());
        let mut more: Vec<String> = Vec::new();
        more.extend(point.efficiency.map(|e| format!("{:.0} % of proportion", e * 100.0)));
        more.extend((!point.note.is_empty()).then(|| "more threads than cores".to_owned()));
        match more.is_empty() {
            true => format!("{}: {rate}", point.at),
            false => format!("{}: {rate} ({})", point.at, more.join(", ")),
        }
    };
    points.iter().map(one).collect::<Vec<_>>().join(" · ")
}
