//! Charts of what layers cost.

use super::super::chart::{Axis, Chart, Point, Series, Stroke, Vertical, extent};
use super::palette::{Palette, short_name};
use super::servers::span;
use super::ticks::{plain, signed};
use crate::report::{Figure, LayerStep, LoadResults, Report, Row};

/// The steps of layers, as a staircase.
pub fn staircase(report: &Report, table: &LoadResults, palette: &Palette) -> Chart {
    let steps = || report.steps(table).next().is_some();
    let rows = table.rows.iter().filter(|r| steps() && r.rank.is_some());
    let known: Vec<(&Row, &Figure)> = rows.filter_map(|r| Some((r, r.cpu_us.as_ref()?))).collect();
    let points: Vec<Point> = known
        .iter()
        .enumerate()
        .map(|(step, (row, cost))| Point {
            x: step as f64 + 1.0,
            y: cost.value,
            span: span(cost),
            text: format!("{}: {} µs", row.name, cost.full()),
        })
        .collect();
    let steps = points.len() as f64;
    let servers: Vec<usize> = known.iter().filter_map(|(r, _)| palette.number(&r.name)).collect();
    let y = Axis::over("µs of CPU per request", plain, points.iter().map(|p| p.y));
    let tip = servers.last().copied().unwrap_or(0);
    Chart {
        title: "The layers".to_owned(),
        note: "CPU time per request, step by step, with 95 % intervals.".to_owned(),
        x: Axis {
            label: "step".to_owned(),
            log: false,
            low: 0.5,
            high: steps.max(1.0) + 0.5,
            write: |v| if v.fract() == 0.0 { format!("{v:.0}") } else { String::new() },
        },
        y: Vertical::Axis(y),
        series: vec![Series { server: tip, points, stroke: Stroke::Steps }],
        band: None,
        rule: None,
        limit: None,
    }
}

/// The cost of each layer.
pub fn steps(report: &Report, table: &LoadResults, palette: &Palette) -> Chart {
    let known: Vec<(&LayerStep, &Figure)> =
        report.steps(table).filter_map(|s| Some((s, s.cpu_us.as_ref()?))).collect();
    let series: Vec<Series> = known
        .iter()
        .enumerate()
        .filter_map(|(line, (step, cost))| {
            let point = Point {
                x: cost.value,
                y: line as f64,
                span: span(cost),
                text: step.sentence.clone(),
            };
            let server = palette.number(&step.to)?;
            Some(Series { server, points: vec![point], stroke: Stroke::Dots })
        })
        .collect();
    let (low, high) = extent(&series).fold((0.0_f64, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
    let room = (high - low).max(0.1) * 0.08;
    Chart {
        title: "What each step costs".to_owned(),
        note: "Compared with the step below. Left of the line, it costs less than that.".to_owned(),
        x: Axis {
            label: "µs of CPU per request".to_owned(),
            log: false,
            low: if low < 0.0 { low - room } else { 0.0 },
            high: high + room,
            write: signed,
        },
        y: Vertical::Names(known.iter().map(|(s, _)| short_name(&s.to)).collect()),
        series,
        band: None,
        rule: Some(0.0),
        limit: None,
    }
}
