//! Which charts a report has, and what is in each: figures out of [`Report`], none of them new.

mod timeline;

use super::chart::{Axis, Chart, Point, Series, Stroke, Upward};
use crate::report::{Figure, Latency, LayerStep, LoadResults, Report, Row};
use crate::text::layout::shortened;
use crate::text::number::{self, count, rate, time};

/// The longest name beside a chart.
const NAME: usize = 24;

/// The servers of a page, each with its number: who is drawn in which colour.
#[derive(Debug)]
pub struct Palette(Vec<String>);

impl Palette {
    /// All that stand in a table, the first table's order first.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let mut names: Vec<String> = Vec::new();
        for row in report.tables.iter().flat_map(|t| &t.rows) {
            if !names.contains(&row.name) {
                names.push(row.name.clone());
            }
        }
        Self(names)
    }

    /// The names, by number.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// The number of a server.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|n| n == name)
    }
}

/// The charts of one load.
#[must_use]
pub fn of_load(report: &Report, table: &LoadResults, palette: &Palette) -> Vec<Chart> {
    let noise = table.noise.as_ref();
    let mut charts = vec![
        levels(
            ("Requests per second", "requests/s"),
            (table, palette, plain),
            |r| r.requests_per_s.as_ref(),
            noise.and_then(|n| n.requests_per_s.around),
        ),
        levels(
            ("CPU time per request", "µs of CPU per request"),
            (table, palette, plain),
            |r| r.cpu_us.as_ref(),
            noise.and_then(|n| n.cost.around),
        ),
        ratios(
            ("Requests per second, against the reference", "times the reference's"),
            (table, palette),
            |r| r.against.as_ref()?.measures.requests_per_s.ratio.as_ref(),
            noise.and_then(|n| n.requests_per_s.band),
        ),
        ratios(
            ("CPU time per request, against the reference", "times the reference's"),
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
    charts.push(percentiles(
        "Response time at a rate that all of them carry",
        table,
        palette,
        |r| r.response.as_ref(),
    ));
    charts.extend(timeline::over_time(report, table, palette));
    charts.push(timeline::warmups(report, table, palette));
    charts.push(published(table, palette));
    charts.retain(|c| c.series.iter().any(|s| !s.points.is_empty()));
    charts
}

/// A tick: short, so that many stand side by side.
fn plain(value: f64) -> String {
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

fn times(value: f64) -> String {
    format!("{}×", significant(value))
}

/// At most three digits, and no zeros at the end.
fn significant(value: f64) -> String {
    let text = match value {
        v if v >= 100.0 => return number::grouped(v, 0),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A tick on a scale of milliseconds.
fn lapse(ms: f64) -> String {
    match ms {
        0.0 => "0".to_owned(),
        ms if ms < 0.1 => format!("{} µs", significant(ms * 1e3)),
        ms if ms < 1e3 => format!("{} ms", significant(ms)),
        ms => format!("{} s", significant(ms / 1e3)),
    }
}

fn seconds(value: f64) -> String {
    format!("{} s", significant(value))
}

fn megabytes(value: f64) -> String {
    format!("{} MB", significant(value))
}

fn percent(value: f64) -> String {
    format!("{value:.0} %")
}

fn brief(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    shortened(&name, NAME)
}

fn span(figure: &Figure) -> Option<(f64, f64)> {
    figure.low.zip(figure.high)
}

/// What an axis has to hold: the points, and as much of their intervals as leaves the points apart.
/// An interval that is wider than that runs out of the chart; its words tell its ends.
fn ends(series: &[Series]) -> impl Iterator<Item = f64> {
    let points = || series.iter().flat_map(|s| &s.points);
    let (low, high) =
        points().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), p| (l.min(p.x), h.max(p.x)));
    let room = if low > 0.0 { low * 0.5 } else { (high - low).abs() };
    let held = move |x: f64| x.clamp(low - room, high + room.max(high * 0.5));
    points().flat_map(move |p| {
        let (from, to) = p.span.unwrap_or((p.x, p.x));
        [p.x, held(from), held(to)]
    })
}

fn heights(series: &[Series]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|s| &s.points).map(|p| p.y)
}

/// A dot a server, with its interval.
fn dots<'a>(
    table: &'a LoadResults,
    palette: &Palette,
    of: impl Fn(&'a Row) -> Option<&'a Figure>,
) -> (Vec<String>, Vec<Series>) {
    let known: Vec<(&Row, &Figure)> = table.rows.iter().filter_map(|r| Some((r, of(r)?))).collect();
    let series = known.iter().enumerate().filter_map(|(line, (row, figure))| {
        let bound = if row.generator_limited { "at least " } else { "" };
        let point = Point {
            x: figure.value,
            y: line as f64,
            span: span(figure),
            text: format!("{bound}{}", figure.full()),
        };
        let server = palette.number(&row.name)?;
        Some(Series { server, points: vec![point], stroke: Stroke::Dots })
    });
    (known.iter().map(|(row, _)| brief(&row.name)).collect(), series.collect())
}

fn levels<'a>(
    (title, unit): (&str, &str),
    (table, palette, write): (&'a LoadResults, &Palette, fn(f64) -> String),
    of: impl Fn(&'a Row) -> Option<&'a Figure>,
    around: Option<(f64, f64)>,
) -> Chart {
    let (names, series) = dots(table, palette, of);
    let known = series.iter().flat_map(|s| &s.points).any(|p| p.span.is_some());
    let mut note = match known {
        true => "A dot is the estimate, the line its 95 % interval.".to_owned(),
        false => "A dot is the estimate; there are too few laps for an interval.".to_owned(),
    };
    if around.is_some() {
        note += " The band is the noise around the reference.";
    }
    let x = Axis::over(unit, write, ends(&series));
    if x.log {
        note += " Equal distances are equal ratios.";
    }
    Chart {
        title: title.to_owned(),
        note,
        x,
        y: Upward::Names(names),
        series,
        band: around,
        rule: None,
    }
}

fn ratios<'a>(
    (title, unit): (&str, &str),
    (table, palette): (&'a LoadResults, &Palette),
    of: impl Fn(&'a Row) -> Option<&'a Figure>,
    band: Option<f64>,
) -> Chart {
    let (names, series) = dots(table, palette, of);
    let mut x = Axis::over(unit, times, ends(&series).chain([1.0]));
    if !x.log {
        let low = ends(&series).fold(1.0, f64::min);
        let reach = x.high / 1.08 - low;
        x.low = (low - reach * 0.08).max(0.0);
    }
    let reference = table.reference.as_deref().unwrap_or("the reference");
    let mut note = format!("At 1×, as {reference}.");
    if band.is_some() {
        note += " What lies within the band cannot be told from noise.";
    }
    Chart {
        title: title.to_owned(),
        note,
        x,
        y: Upward::Names(names),
        series,
        band: band.map(|b| (1.0 / (1.0 + b), 1.0 + b)),
        rule: Some(1.0),
    }
}

/// The steps of a suite about layers, as a staircase.
fn staircase(report: &Report, table: &LoadResults, palette: &Palette) -> Chart {
    let steps = || layers(report, table).next().is_some();
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
        y: Upward::Axis(y),
        series: vec![Series { server: tip, points, stroke: Stroke::Steps }],
        band: None,
        rule: None,
    }
}

fn layers<'a>(report: &'a Report, table: &LoadResults) -> impl Iterator<Item = &'a LayerStep> {
    let load = table.load;
    report.layers.iter().filter(move |s| s.load == load)
}

/// What each layer costs.
fn steps(report: &Report, table: &LoadResults, palette: &Palette) -> Chart {
    let known: Vec<(&LayerStep, &Figure)> =
        layers(report, table).filter_map(|s| Some((s, s.cpu_us.as_ref()?))).collect();
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
    let (low, high) = ends(&series).fold((0.0_f64, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
    let room = (high - low).max(0.1) * 0.08;
    Chart {
        title: "What each step costs".to_owned(),
        note: "Against the step below. Left of the line: it costs less than nothing.".to_owned(),
        x: Axis {
            label: "µs of CPU per request".to_owned(),
            log: false,
            low: if low < 0.0 { low - room } else { 0.0 },
            high: high + room,
            write: signed,
        },
        y: Upward::Names(known.iter().map(|(s, _)| brief(&s.to)).collect()),
        series,
        band: None,
        rule: Some(0.0),
    }
}

fn signed(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v => format!("{}{}", if v < 0.0 { "−" } else { "+" }, significant(v.abs())),
    }
}

/// Percentiles on the axis of HdrHistogram's plots: equal distances are equal factors of the rest.
fn percentiles<'a>(
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
                    // Every other one can be pointed at: they are a finger's width apart.
                    text: match i % 2 {
                        0 => format!("{}: {}", percentile(share), time(ms)),
                        _ => String::new(),
                    },
                })
                .collect(),
        })
        .collect();
    let tail = ends(&series).fold(10.0, f64::max);
    let y = Axis::over("", lapse, heights(&series));
    let at = rates.first().map(|r| format!(" At {r} requests/s, from the moment each was due."));
    let mut note = "How many requests took no longer. A curve ends where samples end.".to_owned();
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
        y: Upward::Axis(y),
        series,
        band: None,
        rule: None,
    }
}

/// `99.9 %`: as many nines as there are.
fn percentile(share: f64) -> String {
    let nines = -(1.0 - share).log10() - 1e-6;
    let decimals = nines.max(0.0).ceil().min(6.0) as usize;
    let text = format!("{:.*}", decimals.saturating_sub(2), share * 100.0);
    format!("{text} %")
}

/// What was published, beside what was measured here: both against the reference.
fn published(table: &LoadResults, palette: &Palette) -> Chart {
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
        title: "Published beside measured".to_owned(),
        note: "Requests/s against the reference: a diamond then, a dot here.".to_owned(),
        x: Axis::over("times the reference's", times, ends(&series).chain([1.0])),
        y: Upward::Names(known.iter().map(|(r, _)| brief(&r.name)).collect()),
        series,
        band: None,
        rule: Some(1.0),
    }
}

/// How servers scale, against what would be in proportion; none where loads do not form a scale.
#[must_use]
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
        note: "Requests/s under each load; dotted: in proportion to the least load.".to_owned(),
        x,
        y: Upward::Axis(y),
        series,
        band: None,
        rule: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundless_interval_does_not_push_the_points_together() {
        let point =
            |x: f64| Point { x, y: 0.0, span: Some((x / 1e5, x * 1e5)), text: String::new() };
        let series =
            Series { server: 0, points: vec![point(4.0), point(9.0)], stroke: Stroke::Dots };
        let (low, high) =
            ends(&[series]).fold((9.0_f64, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        assert_eq!((low, high), (2.0, 13.5));
    }

    #[test]
    fn percentiles_have_as_many_nines_as_they_need() {
        let texts = [0.0, 0.5, 0.9, 0.99, 0.999, 0.99999].map(percentile);
        assert_eq!(texts, ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.999 %"]);
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
