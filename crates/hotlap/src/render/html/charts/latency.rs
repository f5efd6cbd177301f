//! Charts of percentiles.

use super::super::chart::{Axis, Chart, Point, Series, Stroke, Vertical, extent, heights};
use super::palette::Palette;
use super::ticks::{millis, percentile};
use crate::report::{Latency, LoadResults, Row};
use crate::text::number::{rate, time};

/// Percentiles on the axis of HdrHistogram's plots: equal distances are equal factors of the
/// remaining share.
pub fn percentiles<'a>(
    title: &str,
    table: &'a LoadResults,
    palette: &Palette,
    of: impl Fn(&'a Row) -> Option<&'a Latency>,
) -> Chart {
    let known: Vec<(usize, &Latency)> = table
        .rows
        .iter()
        .filter_map(|r| Some((palette.number(&r.name)?, of(r)?)))
        .filter(|(_, latency)| !latency.points.is_empty())
        .collect();
    let rates: Vec<String> = known.iter().filter_map(|(_, l)| l.rate.map(rate)).collect();
    let series: Vec<Series> = known
        .into_iter()
        .map(|(server, latency)| Series {
            server,
            stroke: Stroke::Line,
            points: latency
                .points
                .iter()
                .enumerate()
                .map(|(i, &(share, ms))| Point {
                    x: 1.0 / (1.0 - share),
                    y: ms,
                    span: None,
                    // Only every other point shows its value: they are about a finger's width
                    // apart.
                    text: match i % 2 {
                        0 => format!("{}: {}", percentile(share), time(ms)),
                        _ => String::new(),
                    },
                })
                .collect(),
        })
        .collect();
    let tail = extent(&series).fold(10.0, f64::max);
    let y = Axis::over("", millis, heights(&series));
    let at = rates.first().map(|r| format!(" At {r} requests/s, from the moment each was due."));
    let mut note =
        "Share of requests that took no longer. A curve ends where there are too few samples."
            .to_owned();
    note += at.as_deref().unwrap_or_default();
    Chart {
        title: title.to_owned(),
        note,
        x: Axis {
            label: "percentile".to_owned(),
            log: true,
            low: 1.0,
            high: tail,
            write: |v| percentile(1.0 - 1.0 / v),
        },
        y: Vertical::Axis(y),
        series,
        band: None,
        rule: None,
        limit: None,
    }
}
