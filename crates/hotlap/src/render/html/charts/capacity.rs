//! The chart of a search: latency over the offered rate.

use super::super::chart::{Axis, Chart, Point, Series, Stroke, Vertical, extent, heights};
use super::palette::Palette;
use super::ticks::{millis, plain};
use crate::report::{CapacityResults, CapacityRow};
use crate::text::number::{rate, time};

/// Latency over the rate, with a band from the best to the worst window, and the capacity with its
/// interval where the curve crosses the limit. Nothing for goals without latency.
pub fn capacity(found: &CapacityResults, palette: &Palette) -> Vec<Chart> {
    let Some(limit_ms) = found.limit_ms else { return Vec::new() };
    let of_row = |row: &CapacityRow| {
        let server = palette.number(&row.name)?;
        Some([curve(row, server, &found.latency_name()), crossing(row, server, limit_ms)])
    };
    let series: Vec<Series> = found.rows.iter().filter_map(of_row).flatten().collect();
    if series.iter().all(|s| s.points.is_empty()) {
        return Vec::new();
    }
    let spans = series.iter().filter(|s| s.stroke == Stroke::Band).flat_map(|s| &s.points);
    let spans: Vec<f64> = spans.filter_map(|p| p.span).flat_map(|(l, h)| [l, h]).collect();
    let y = heights(&series).chain(spans).chain([limit_ms]);
    vec![Chart {
        title: format!("{} over the offered rate", found.latency_name()),
        note: "Open loop, from the moment each request was due. The line is the median of the \
               windows at about one rate, the band their range. A dot marks the capacity with its \
               interval; the dashed line is the goal."
            .to_owned(),
        x: Axis::over("requests/s offered", plain, extent(&series)),
        y: Vertical::Axis(Axis::over("", millis, y)),
        series,
        band: None,
        rule: None,
        limit: Some(limit_ms),
    }]
}

fn curve(row: &CapacityRow, server: usize, percentile: &str) -> Series {
    let points = row.curve.iter().map(|at| Point {
        x: at.rate,
        y: at.latency_ms,
        span: Some((at.low_ms, at.high_ms)),
        text: format!("{} requests/s: {percentile} {}", rate(at.rate), time(at.latency_ms)),
    });
    Series { server, points: points.collect(), stroke: Stroke::Band }
}

fn crossing(row: &CapacityRow, server: usize, limit_ms: f64) -> Series {
    let known = row.capacity.iter().filter(|capacity| !capacity.is_lower_bound);
    let points = known.map(|capacity| Point {
        x: capacity.value,
        y: limit_ms,
        span: capacity.low.zip(capacity.high),
        text: format!("{}: {} requests/s", row.name, capacity.full()),
    });
    Series { server, points: points.collect(), stroke: Stroke::Dots }
}
