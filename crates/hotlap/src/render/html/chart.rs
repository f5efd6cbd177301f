//! A chart as data: what is drawn, on which axes.

/// A chart to be drawn.
#[derive(Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// How to read it, in a sentence.
    pub note: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Vertical,
    /// The series, in the order in which they are drawn.
    pub series: Vec<Series>,
    /// The range in which differences are noise, on the horizontal axis.
    pub band: Option<(f64, f64)>,
    /// Where there is no difference at all, on the horizontal axis.
    pub rule: Option<f64>,
}

/// The vertical axis.
#[derive(Debug)]
pub enum Vertical {
    /// A quantity.
    Axis(Axis),
    /// Names, the first at the top.
    Names(Vec<String>),
}

/// A scale.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What it measures, and in which unit; empty where its ticks and the chart's title say it.
    pub label: String,
    /// Equal distances are equal ratios.
    pub log: bool,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How its ticks are written.
    pub write: fn(f64) -> String,
}

/// Points of one server.
#[derive(Debug)]
pub struct Series {
    /// Which server, by its place in the page.
    pub server: usize,
    /// The points.
    pub points: Vec<Point>,
    /// How they are drawn.
    pub stroke: Stroke,
}

/// How points are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// A dot each, with its interval.
    Dots,
    /// Open dots: what others published.
    Hollow,
    /// A line through them.
    Line,
    /// A dotted, faint line: in proportion.
    Ideal,
    /// Steps from one to the next, with their intervals.
    Steps,
}

/// One point.
#[derive(Debug, Clone)]
pub struct Point {
    /// Its place on the horizontal axis.
    pub x: f64,
    /// Its height; beside names, the place of the name, from 0. NaN where a line breaks off and
    /// begins anew at the next point.
    pub y: f64,
    /// The interval, horizontal (dots) or vertical (steps).
    pub span: Option<(f64, f64)>,
    /// What the page shows when the point is pointed at; empty: it cannot be.
    pub text: String,
}

/// What a horizontal axis has to hold: the points, and as much of their intervals as leaves the
/// points apart. A wider interval runs out of the chart; the words of its point tell its ends.
pub fn extent(series: &[Series]) -> impl Iterator<Item = f64> {
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

/// What a vertical axis has to hold.
pub fn heights(series: &[Series]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|s| &s.points).map(|p| p.y)
}

impl Axis {
    /// A scale that holds all of the values: from zero, or logarithmic where the highest is over 20
    /// times the lowest.
    #[must_use]
    pub fn over(label: &str, write: fn(f64) -> String, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|v| v.is_finite() && *v > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        let log = high > low * 20.0;
        let label = label.to_owned();
        match log {
            true => Self { label, log, low: decade(low).0, high: decade(high).1, write },
            false if high > 0.0 => Self { label, log, low: 0.0, high: high * 1.08, write },
            false => Self { label, log, low: 0.0, high: 1.0, write },
        }
    }
}

/// The marks 1, 2 and 5 of a decade below and above a value.
fn decade(value: f64) -> (f64, f64) {
    let base = 10_f64.powf(value.log10().floor());
    let marks = [1.0, 2.0, 5.0, 10.0].map(|m| m * base);
    let below = marks.iter().rev().find(|m| **m <= value * 1.0001).copied().unwrap_or(base);
    let above = marks.iter().find(|m| **m >= value * 0.9999).copied().unwrap_or(base * 10.0);
    (below, above)
}

impl Series {
    /// The points of each line, where it breaks off.
    pub fn points_apart(&self) -> impl Iterator<Item = &[Point]> {
        self.points.split(|p| p.y.is_nan()).filter(|piece| !piece.is_empty())
    }
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
            extent(&[series]).fold((9.0_f64, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        assert_eq!((low, high), (2.0, 13.5));
    }
}
