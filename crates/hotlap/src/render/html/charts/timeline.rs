//! Charts whose horizontal axis is time: during the run, and from a server's start to its steady
//! state.

use super::super::chart::{Axis, Chart, Point, Series, Stroke, Vertical, extent, heights};
use super::palette::Palette;
use super::ticks::{megabytes, millis, percent, plain, seconds};
use crate::report::{LapView, LoadResults, Report};
use crate::text::number::{rate, time};

/// The maximum number of points in a chart over time. If there are more, only every second, third,
/// … lap is drawn. This is enough for three restarts of twenty rounds of nine servers, in two
/// thirds of a megabyte.
const POINTS: usize = 6_000;

/// The same for runs with several loads, over all their charts of one kind: every other chart
/// exists once per load too, and five loads should fit into a megabyte.
const POINTS_OF_MANY: usize = 2_500;

/// Figures during the run: latency for each tenth of a second, all others one point per lap.
pub fn over_time(report: &Report, table: &LoadResults, palette: &Palette) -> Vec<Chart> {
    type Words = fn(f64) -> String;
    let counting = report.laps.iter().filter(|l| l.load == table.load && l.counts);
    // Laps at a common rate follow those in a closed loop, and are of another kind.
    let laps: Vec<&LapView> =
        counting.filter(|l| l.rate.is_some() == table.rate.is_some()).collect();
    let room = match report.tables.len() {
        0 | 1 => POINTS,
        many => POINTS_OF_MANY / many,
    };
    let chart = |title: &str, (write, tick): (Words, Words), of: fn(&LapView) -> Option<f64>| {
        let every = laps.len().div_ceil(room).max(1);
        let line = |own: &[&LapView]| {
            let mut points = Vec::new();
            let mut restart = None;
            for lap in own.iter().step_by(every) {
                let Some(y) = of(lap) else { continue };
                // A new start is another process, so the line is interrupted.
                if restart.is_some_and(|restart| restart != lap.restart) {
                    points.push(gap(lap.at_s));
                }
                restart = Some(lap.restart);
                let text = format!("{} in, {}", seconds(lap.at_s), write(y));
                points.push(Point { x: lap.at_s, y, span: None, text });
            }
            points
        };
        let mut note = "A point per lap, a line per restart.".to_owned();
        if every > 1 {
            note += &format!(" One lap in {every} is drawn.");
        }
        along((title, note), tick, lines(&laps, palette, line))
    };
    let mut charts = vec![
        within((&laps, room), palette, "Latency over time: the mean", |l| &l.series_mean_ms),
        within((&laps, room), palette, "Latency over time: the longest", |l| &l.series_max_ms),
    ];
    if laps.iter().any(|l| l.p99_ms.is_some()) {
        charts.push(chart("Latency over time: 99th percentile", (time, millis), |l| l.p99_ms));
    }
    charts.push(chart("Memory over time", (megabytes, megabytes), |l| l.rss_mb));
    charts.push(chart("CPU over time, % of one core", (percent, percent), |l| l.cpu_percent));
    charts
}

/// One point for each tenth of a second, one line for each lap.
fn within(
    (laps, room): (&[&LapView], usize),
    palette: &Palette,
    title: &str,
    of: fn(&LapView) -> &[Option<f64>],
) -> Chart {
    let ticks: usize = laps.iter().map(|l| of(l).len()).sum();
    let every = ticks.div_ceil(room).max(1);
    let line = |own: &[&LapView]| {
        let mut points = Vec::new();
        for lap in own.iter().step_by(every) {
            let worst = of(lap).iter().copied().flatten().fold(0.0, f64::max);
            let told = format!("{} in, up to {} in this lap", seconds(lap.at_s), time(worst));
            for (tick, y) in of(lap).iter().enumerate() {
                // There were no responses, so the line is interrupted.
                let y = y.unwrap_or(f64::NAN);
                let text = if tick == 0 { told.clone() } else { String::new() };
                points.push(Point { x: lap.at_s + tick as f64 / 10.0, y, span: None, text });
            }
            points.push(gap(lap.at_s));
        }
        points
    };
    let mut note = "A point per tenth of a second, a line per lap.".to_owned();
    if every > 1 {
        note += &format!(" One lap in {every} is drawn.");
    }
    along((title, note), millis, lines(laps, palette, line))
}

/// A point that interrupts a line.
fn gap(x: f64) -> Point {
    Point { x, y: f64::NAN, span: None, text: String::new() }
}

/// Each server's line over its laps.
fn lines(
    laps: &[&LapView],
    palette: &Palette,
    line: impl Fn(&[&LapView]) -> Vec<Point>,
) -> Vec<Series> {
    let of = |(server, name): (usize, &String)| {
        let own: Vec<&LapView> = laps.iter().copied().filter(|l| &l.server == name).collect();
        Series { server, stroke: Stroke::Line, points: line(&own) }
    };
    palette.names().iter().enumerate().map(of).filter(|s| s.points.len() > 1).collect()
}

/// A chart over time; ticks and title describe the vertical axis.
fn along((title, note): (&str, String), tick: fn(f64) -> String, series: Vec<Series>) -> Chart {
    let from = extent(&series).fold(f64::INFINITY, f64::min);
    let until = extent(&series).fold(0.0, f64::max);
    Chart {
        title: title.to_owned(),
        note,
        x: Axis {
            label: "time since the run began".to_owned(),
            log: false,
            low: if from.is_finite() { from } else { 0.0 },
            high: until.max(0.1),
            write: seconds,
        },
        y: Vertical::Axis(Axis::over("", tick, heights(&series))),
        series,
        band: None,
        rule: None,
        limit: None,
    }
}

/// Warm-up curves: every start of every server.
pub fn warmups(report: &Report, table: &LoadResults, palette: &Palette) -> Chart {
    let mut series = Vec::new();
    for start in &report.starts {
        let Some(server) = palette.number(&start.server) else { continue };
        for warmup in start.warmups.iter().filter(|w| w.load == table.load) {
            let points = warmup.curve.iter().enumerate().map(|(i, value)| {
                let at_s = warmup.window_ms * (i as f64 + 1.0) / 1e3;
                Point {
                    x: at_s,
                    y: *value,
                    span: None,
                    text: format!(
                        "restart {}: {} requests/s after {}",
                        start.restart,
                        rate(*value),
                        seconds(at_s)
                    ),
                }
            });
            series.push(Series { server, stroke: Stroke::Line, points: points.collect() });
        }
    }
    let until = extent(&series).fold(0.1, f64::max);
    let y = Axis::over("requests/s", plain, heights(&series));
    Chart {
        title: "Warm-up".to_owned(),
        note: "Requests/s from the first request. A line per restart.".to_owned(),
        x: Axis {
            label: "time since the first request".to_owned(),
            log: false,
            low: 0.0,
            high: until,
            write: seconds,
        },
        y: Vertical::Axis(y),
        series,
        band: None,
        rule: None,
        limit: None,
    }
}
