//! A chart as data: what is drawn, on which axes.

/// A chart.
#[derive(Debug)]
pub struct Chart {
    /// Its title.
    pub title: String,
    /// How to read it, in one sentence.
    pub note: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Vertical,
    /// The series, in the order in which they are drawn.
    pub series: Vec<Series>,
    /// The range within which differences are noise, on the horizontal axis.
    pub band: Option<(f64, f64)>,
    /// The value that means "no difference", on the horizontal axis.
    pub rule: Option<f64>,
    /// A limit, on the vertical axis.
    pub limit: Option<f64>,
}

/// The vertical axis.
#[derive(Debug)]
pub enum Vertical {
    /// A quantity.
    Axis(Axis),
    /// Names, from top to bottom.
    Names(Vec<String>),
}

/// A scale.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Its label with the unit; empty if the ticks and the chart's title are enough.
    pub label: String,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The format of its ticks.
    pub write: fn(f64) -> String,
}

/// Points of one server.
#[derive(Debug)]
pub struct Series {
    /// The number of the server on the page.
    pub server: usize,
    /// The points.
    pub points: Vec<Point>,
    /// The style of the points.
    pub stroke: Stroke,
}

/// How points are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// Dots with intervals.
    Dots,
    /// Open dots: published figures.
    Hollow,
    /// A line through them.
    Line,
    /// A dotted, faint line: proportional growth.
    Ideal,
    /// Steps from each point to the next, with intervals.
    Steps,
    /// A line through them, and a band between the ends of their intervals.
    Band,
}

/// One point.
#[derive(Debug, Clone)]
pub struct Point {
    /// Its position on the horizontal axis.
    pub x: f64,
    /// Its position on the vertical axis; on an axis of names, the index of the name. NaN where a
    /// line is interrupted until the next point.
    pub y: f64,
    /// The interval, horizontal (dots) or vertical (steps, band).
    pub span: Option<(f64, f64)>,
    /// The text that the page shows when the pointer is over the point; empty for none.
    pub text: String,
}

/// The range of a horizontal axis: all points, and as much of their intervals as possible while the
/// points stay apart. A wider interval is cut off; the text of its point states the ends.
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

/// The range of a vertical axis.
pub fn heights(series: &[Series]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|s| &s.points).map(|p| p.y)
}

impl Axis {
    /// A scale for all of the values: from zero, or logarithmic if the highest is over 20 times the
    /// lowest.
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
    /// The points of each line, split where it is interrupted.
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
