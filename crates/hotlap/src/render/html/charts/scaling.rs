//! The chart of how servers scale.

use super::super::chart::{Axis, Chart, Point, Series, Stroke, Vertical};
use super::palette::Palette;
use super::servers::span;
use super::ticks::plain;
use crate::report::Report;
use crate::text::number::count;

/// How servers scale, compared with proportional growth; none if loads do not form a series.
pub fn scaling(report: &Report, palette: &Palette) -> Option<Chart> {
    let parameter = report.scaling.first()?.parameter.clone();
    let mut series = Vec::new();
    for scaling in &report.scaling {
        let Some(server) = palette.number(&scaling.server) else { continue };
        let point = |at: u64, y: f64, text: String| Point { x: at as f64, y, span: None, text };
        let here = scaling.points.iter().filter_map(|p| {
            let figure = p.requests_per_s.as_ref()?;
            let text = format!("{} {parameter}: {}", count(p.at), figure.full());
            Some(Point { span: span(figure), ..point(p.at, figure.value, text) })
        });
        series.push(Series { server, points: here.collect(), stroke: Stroke::Line });
        let ideal =
            scaling.points.iter().filter_map(|p| Some(point(p.at, p.ideal?, String::new())));
        series.push(Series { server, points: ideal.collect(), stroke: Stroke::Ideal });
    }
    let measured = || series.iter().filter(|s| s.stroke == Stroke::Line).flat_map(|s| &s.points);
    let y = Axis::over("requests/s", plain, measured().map(|p| p.y));
    let x = Axis::over(&parameter, plain, measured().map(|p| p.x));
    Some(Chart {
        title: "Scaling".to_owned(),
        note: "Requests/s under each load. Dotted: proportional to the smallest load.".to_owned(),
        x,
        y: Vertical::Axis(y),
        series,
        band: None,
        rule: None,
        limit: None,
    })
}
