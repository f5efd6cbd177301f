//! The charts of a report. They show figures of the [`Report`] and compute no new figures.

use crate::render::html::chart::{Axis, Chart, Point, Series, Stroke, Vertical, extent, heights};
use crate::report::LapView;
use crate::report::LayerStep;
use crate::report::Report;
use crate::report::figure::Figure;
use crate::report::latency::Latency;
use crate::report::timeline::{TimelineView, VersionRatio};
use crate::report::{CapacityResults, CapacityRow};
use crate::report::{LoadResults, Row};
use crate::text::layout::shortened;
use crate::text::number;
use crate::text::number::{count, rate, time};

/// Returns the charts of one load. Charts without points are left out.
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
        Some(_) => "Response time at the offered rate",
    };
    charts.push(percentiles(service, table, palette, |r| Some(&r.service)));
    charts.push(percentiles("Response time at the common rate", table, palette, Row::at_rate));
    charts.push(published(table, palette));
    charts.extend(over_time(report, table, palette));
    charts.push(warmups(report, table, palette));
    charts.retain(|c| c.series.iter().any(|s| !s.points.is_empty()));
    charts
}

/// The maximum length of a name next to a chart, in characters.
const LONGEST_NAME: usize = 24;

/// The servers of a page. The number of a server determines its colour and mark.
#[derive(Debug)]
pub struct Palette(Vec<String>);

impl Palette {
    /// Numbers all servers of the tables and searches, in the order in which they first appear.
    pub fn of(report: &Report) -> Self {
        let mut names: Vec<String> = Vec::new();
        let rows = report.tables.iter().flat_map(|t| t.rows.iter().map(|row| &row.name));
        let searched = report.capacity.iter().flat_map(|c| c.rows.iter().map(|row| &row.name));
        for name in rows.chain(searched) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Self(names)
    }

    /// Returns the names, ordered by number.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Returns the number of a server.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|n| n == name)
    }
}

/// Shortens a name to the room next to a chart.
pub fn short_name(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    shortened(&name, LONGEST_NAME)
}

/// Returns the interval of a figure.
pub fn span(figure: &Figure) -> Option<(f64, f64)> {
    figure.low.zip(figure.high)
}

/// Returns the names of the servers, and one dot per server with its interval.
fn dots<'a>(
    table: &'a LoadResults,
    palette: &Palette,
    of: impl Fn(&'a Row) -> Option<&'a Figure>,
) -> (Vec<String>, Vec<Series>) {
    let known: Vec<(&Row, &Figure)> = table.rows.iter().filter_map(|r| Some((r, of(r)?))).collect();
    let series = known.iter().enumerate().filter_map(|(line, (row, figure))| {
        let point =
            Point { x: figure.value, y: line as f64, span: span(figure), text: figure.full() };
        let server = palette.number(&row.name)?;
        Some(Series { server, points: vec![point], stroke: Stroke::Dots })
    });
    (known.iter().map(|(row, _)| short_name(&row.name)).collect(), series.collect())
}

pub fn levels<'a>(
    (title, unit): (&str, &str),
    (table, palette): (&'a LoadResults, &Palette),
    of: impl Fn(&'a Row) -> Option<&'a Figure>,
    around: Option<(f64, f64)>,
) -> Chart {
    let (names, series) = dots(table, palette, of);
    let known = series.iter().flat_map(|s| &s.points).any(|p| p.span.is_some());
    let mut note = match known {
        true => "A dot is the estimate. The line is its 95% interval.".to_owned(),
        false => "A dot is the estimate. Too few restarts count for an interval.".to_owned(),
    };
    if around.is_some() {
        note += " The band is the noise around the reference.";
    }
    let x = Axis::over(unit, plain, extent(&series));
    if x.log {
        note += " The axis is logarithmic: equal distances mean equal ratios.";
    }
    Chart {
        title: title.to_owned(),
        note,
        x,
        y: Vertical::Names(names),
        series,
        band: around,
        rule: None,
        limit: None,
    }
}

pub fn ratios<'a>(
    (title, unit): (&str, &str),
    (table, palette): (&'a LoadResults, &Palette),
    of: impl Fn(&'a Row) -> Option<&'a Figure>,
    band: Option<f64>,
) -> Chart {
    let (names, series) = dots(table, palette, of);
    let mut x = Axis::over(unit, times, extent(&series).chain([1.0]));
    if !x.log {
        let low = extent(&series).fold(1.0, f64::min);
        let reach = x.high / 1.08 - low;
        x.low = (low - reach * 0.08).max(0.0);
    }
    let reference = table.reference.as_deref().unwrap_or("the reference");
    let mut note = format!("1× is {reference}.");
    if band.is_some() {
        note += " The band shows how far a second copy of the reference may be from 1×.";
    }
    Chart {
        title: title.to_owned(),
        note,
        x,
        y: Vertical::Names(names),
        series,
        band: band.map(|b| (1.0 / (1.0 + b), 1.0 + b)),
        rule: Some(1.0),
        limit: None,
    }
}

/// Returns the chart of all versions of a timeline, the oldest one at the top.
pub fn versions(found: &TimelineView) -> Chart {
    let points = found.versions.iter().enumerate().map(|(line, VersionRatio { ratio, .. })| {
        let [value, low, high] = ratio.ends;
        Point { x: value, y: line as f64, span: Some((low, high)), text: ratio.to_string() }
    });
    let series = vec![Series { server: 0, points: points.collect(), stroke: Stroke::Dots }];
    Chart {
        title: found.measure.clone(),
        note: format!("A dot is the ratio to {}. The line is its 95% interval.", found.reference),
        x: Axis::between("ratio to the oldest version", ends(&series), times),
        y: Vertical::Names(found.versions.iter().map(|v| short_name(&v.name)).collect()),
        series,
        band: None,
        rule: Some(1.0),
        limit: None,
    }
}

/// Returns the ends of an axis that shows all values and 1, with a margin.
fn ends(series: &[Series]) -> (f64, f64) {
    let all = || extent(series).chain([1.0]);
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let margin = ((high - low) * 0.08).max(0.005);
    (low - margin, high + margin)
}

/// Returns the chart of published and measured figures, both relative to the source's reference.
pub fn published(table: &LoadResults, palette: &Palette) -> Chart {
    let known: Vec<_> = table
        .rows
        .iter()
        .flat_map(|r| r.published.iter().map(move |p| (r, p)))
        .filter(|(_, p)| p.ratio_then.is_some() && p.ratio_here.is_some())
        .collect();
    let mut series = Vec::new();
    for (line, (row, published)) in known.iter().enumerate() {
        let Some(server) = palette.number(&row.name) else { continue };
        let ratios =
            [(&published.ratio_then, Stroke::Hollow), (&published.ratio_here, Stroke::Dots)];
        for (ratio, stroke) in ratios {
            let Some(ratio) = ratio else { continue };
            let text = match stroke {
                Stroke::Hollow => format!("published in {}: {}", published.year, ratio.text),
                _ => format!("here: {}", ratio.full()),
            };
            let point = Point { x: ratio.value, y: line as f64, span: span(ratio), text };
            series.push(Series { server, points: vec![point], stroke });
        }
    }
    Chart {
        title: "Published and measured".to_owned(),
        note: "Requests/s relative to the source's reference: a diamond is published, and a dot \
             is measured here."
            .to_owned(),
        x: Axis::over("ratio to the source's reference", times, extent(&series).chain([1.0])),
        y: Vertical::Names(known.iter().map(|(r, _)| short_name(&r.name)).collect()),
        series,
        band: None,
        rule: Some(1.0),
        limit: None,
    }
}

/// Returns the chart of the layers, with their CPU time per request as a staircase.
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
        note: "CPU time per request, step by step, with 95% intervals.".to_owned(),
        x: Axis::between("step", (0.5, steps.max(1.0) + 0.5), |v| {
            if v.fract() == 0.0 { format!("{v:.0}") } else { String::new() }
        }),
        y: Vertical::Axis(y),
        series: vec![Series { server: tip, points, stroke: Stroke::Steps }],
        band: None,
        rule: None,
        limit: None,
    }
}

/// Returns the chart of the cost of each step between layers.
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
        note: "Each step is compared with the step below it. Left of the dashed line, a step \
             costs less."
            .to_owned(),
        x: Axis::between(
            "µs of CPU per request",
            (if low < 0.0 { low - room } else { 0.0 }, high + room),
            signed,
        ),
        y: Vertical::Names(known.iter().map(|(s, _)| short_name(&s.to)).collect()),
        series,
        band: None,
        rule: Some(0.0),
        limit: None,
    }
}

/// Returns a chart of percentiles on the axis of HdrHistogram's plots. Equal distances on this axis
/// are equal factors of the remaining share.
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
                    // Only every other point has a text, so that texts are about a finger's width
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
    let at = rates
        .first()
        .map(|r| format!(" At {r} requests/s, times count from when each request was due."));
    let mut note =
        "Share of requests that took at most this time. A curve ends where there are too few \
         samples."
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

/// Returns the chart of latency at each rate, with a band from the best to the worst window. The
/// capacity and its interval are drawn at the limit. Empty without a latency goal.
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
        title: format!("{} at each offered rate", found.latency_name()),
        note: "The load is an open loop, and times count from when each request was due. The line \
               is the median of the windows at about the same rate, and the band is their range. \
               The dot is the capacity with its interval, and the dashed line is the goal."
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

/// Returns a chart of scaling next to proportional growth. `None` if neither threads nor loads form
/// a series.
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
        note: format!(
            "Requests/s for each number of {parameter}. Each dotted line shows proportional \
             growth from a server's first point."
        ),
        x,
        y: Vertical::Axis(y),
        series,
        band: None,
        rule: None,
        limit: None,
    })
}

/// The maximum number of points in a chart over time. With more points, only every second, third,
/// … lap is drawn. The maximum limits the size of the page.
const POINTS: usize = 6_000;

/// The maximum number of points in all charts of one kind, for runs with several loads. Every other
/// chart also exists once per load, and five loads should fit into a megabyte.
const POINTS_OF_MANY: usize = 2_500;

/// Returns the charts over time. Mean and longest latency have a point for each tenth of a second.
/// All other figures have one point per lap.
pub fn over_time(report: &Report, table: &LoadResults, palette: &Palette) -> Vec<Chart> {
    type Words = fn(f64) -> String;
    let counting = report.laps.iter().filter(|l| l.load == table.load && l.counts);
    // Laps at a common rate follow the laps in a closed loop, and are of another kind.
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
        let mut note = "Each point is a lap, and each line is a restart.".to_owned();
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

/// Returns a chart with one point for each tenth of a second and one line for each lap.
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
                // The line is interrupted where there were no responses.
                let y = y.unwrap_or(f64::NAN);
                let text = if tick == 0 { told.clone() } else { String::new() };
                points.push(Point { x: lap.at_s + tick as f64 / 10.0, y, span: None, text });
            }
            points.push(gap(lap.at_s));
        }
        points
    };
    let mut note = "Each point is a tenth of a second, and each line is a lap.".to_owned();
    if every > 1 {
        note += &format!(" One lap in {every} is drawn.");
    }
    along((title, note), millis, lines(laps, palette, line))
}

/// Returns a point that interrupts a line.
fn gap(x: f64) -> Point {
    Point { x, y: f64::NAN, span: None, text: String::new() }
}

/// Returns each server's line over its laps.
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

/// Returns a chart over time. `tick` and `title` describe the vertical axis.
fn along((title, note): (&str, String), tick: fn(f64) -> String, series: Vec<Series>) -> Chart {
    let from = extent(&series).fold(f64::INFINITY, f64::min);
    let until = extent(&series).fold(0.0, f64::max);
    Chart {
        title: title.to_owned(),
        note,
        x: Axis::between(
            "time since the run began",
            (if from.is_finite() { from } else { 0.0 }, until.max(0.1)),
            seconds,
        ),
        y: Vertical::Axis(Axis::over("", tick, heights(&series))),
        series,
        band: None,
        rule: None,
        limit: None,
    }
}

/// Returns the chart of the warm-up curves, with one line for every start of every server.
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
        note: "Requests/s from the first request. Each line is a start of a server.".to_owned(),
        x: Axis::between("time since the first request", (0.0, until), seconds),
        y: Vertical::Axis(y),
        series,
        band: None,
        rule: None,
        limit: None,
    }
}

/// Formats a number briefly, so that many fit side by side.
pub fn plain(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v >= 1e6 => format!("{}M", significant(v / 1e6)),
        v if v >= 1e4 => format!("{}k", significant(v / 1e3)),
        v if v >= 100.0 => number::grouped(v, 0),
        v if v >= 10.0 || v.fract() == 0.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Formats a ratio.
pub fn times(value: f64) -> String {
    format!("{}×", significant(value))
}

/// Formats a number with at most three decimals. Larger numbers have fewer decimals.
fn significant(value: f64) -> String {
    let text = match value {
        v if v >= 100.0 => return number::grouped(v, 0),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a time in milliseconds.
pub fn millis(ms: f64) -> String {
    match ms {
        0.0 => "0".to_owned(),
        ms if ms < 0.1 => format!("{} µs", significant(ms * 1e3)),
        ms if ms < 1e3 => format!("{} ms", significant(ms)),
        ms => format!("{} s", significant(ms / 1e3)),
    }
}

/// Formats a time in seconds.
pub fn seconds(value: f64) -> String {
    format!("{} s", significant(value))
}

/// Formats memory in megabytes.
pub fn megabytes(value: f64) -> String {
    format!("{} MB", significant(value))
}

/// Formats a share in per cent.
pub fn percent(value: f64) -> String {
    format!("{value:.0}%")
}

/// Formats a difference with its sign.
pub fn signed(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v => format!("{}{}", if v < 0.0 { "−" } else { "+" }, significant(v.abs())),
    }
}

/// Formats a percentile with as many nines as necessary: `99.9%`.
pub fn percentile(share: f64) -> String {
    let nines = -(1.0 - share).log10() - 1e-6;
    let decimals = nines.max(0.0).ceil().min(6.0) as usize;
    let text = format!("{:.*}", decimals.saturating_sub(2), share * 100.0);
    format!("{text}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_as_many_nines_as_they_need() {
        let texts = [0.0, 0.5, 0.9, 0.99, 0.999, 0.99999].map(percentile);
        assert_eq!(texts, ["0%", "50%", "90%", "99%", "99.9%", "99.999%"]);
    }

    #[test]
    fn ticks_have_no_zeros_at_their_end() {
        assert_eq!(
            [0.5, 1.0, 1.25, 20.0, 1500.0].map(times),
            ["0.5×", "1×", "1.25×", "20×", "1,500×"]
        );
        assert_eq!([-1.5, 0.0, 2.0].map(signed), ["−1.5", "0", "+2"]);
    }
}
