//! The charts of a report, and the contents of each: figures of [`Report`], without computing new
//! ones.

mod capacity;
mod latency;
mod layers;
mod palette;
mod scaling;
mod servers;
mod ticks;
mod timeline;

use super::chart::Chart;
use crate::report::{LoadResults, Report, Row};
use latency::percentiles;
use layers::{staircase, steps};
use servers::{levels, published, ratios};

pub use capacity::capacity;
pub use palette::Palette;
pub use scaling::scaling;

/// The charts of one load.
pub fn of_load(report: &Report, table: &LoadResults, palette: &Palette) -> Vec<Chart> {
    let noise = table.noise.as_ref();
    let mut charts = vec![
        levels(
            ("Requests per second", "requests/s"),
            (table, palette),
            |r| r.requests_per_s.as_ref(),
            noise.and_then(|n| n.requests_per_s.around),
        ),
        levels(
            ("CPU time per request", "µs of CPU per request"),
            (table, palette),
            |r| r.cpu_us.as_ref(),
            noise.and_then(|n| n.cost.around),
        ),
        ratios(
            ("Requests per second, against the reference", "ratio to the reference"),
            (table, palette),
            |r| r.against.as_ref()?.measures.requests_per_s.ratio.as_ref(),
            noise.and_then(|n| n.requests_per_s.band),
        ),
        ratios(
            ("CPU time per request, against the reference", "ratio to the reference"),
            (table, palette),
            |r| r.against.as_ref()?.measures.cost.ratio.as_ref(),
            noise.and_then(|n| n.cost.band),
        ),
    ];
    charts.push(staircase(report, table, palette));
    charts.push(steps(report, table, palette));
    let service = match table.rate {
        None => "Service time at saturation",
        Some(_) => "Response time at the rate offered",
    };
    charts.push(percentiles(service, table, palette, |r| Some(&r.service)));
    charts.push(percentiles("Response time at the common rate", table, palette, Row::at_rate));
    charts.push(published(table, palette));
    charts.extend(timeline::over_time(report, table, palette));
    charts.push(timeline::warmups(report, table, palette));
    charts.retain(|c| c.series.iter().any(|s| !s.points.is_empty()));
    charts
}
