//! A chart as data, and its drawing as SVG.

use std::sync::Arc;

use kuva::backend::svg::SvgBackend;
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{LinePlot, ScatterPlot};
use kuva::render::annotations::{ReferenceLine, ShadedRegion};
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{AxisMeta, Primitive, Scene, render_multiple};
use kuva::render::theme::Theme;

use crate::render::html::tag::{Html, el};

/// The width of a chart, in units of the chart. Two charts fit side by side on a desktop. On a
/// phone, a chart is shrunk to five sixths, which makes its 13-unit letters 11 pixels high.
pub const WIDTH: f64 = 430.0;

/// The room at the right for the half of the last tick's label that extends beyond the axis:
/// `99.999%`.
const OVERHANG: f64 = 14.0;

/// The height of a chart with two numeric axes.
const HEIGHT: f64 = 285.0;

/// The height of a line in a chart with one line per server.
pub const LINE: f64 = 24.0;

/// The number of colours in the style sheet. Further servers also differ in stroke and mark.
pub const COLOURS: usize = 8;

/// A drawn chart.
#[derive(Debug)]
pub struct Drawing {
    /// The picture.
    pub svg: Html,
    /// The points with a text: the position in the picture, the server, and the text.
    pub spots: Vec<(f64, f64, usize, String)>,
}

impl Chart {
    /// Draws the chart. The `id` makes the names of the chart's parts unique on the page.
    pub fn draw(&self, id: &str) -> Drawing {
        let mut scene = render_multiple(self.plots(), self.layout());
        let place = scene.axis_meta.take();
        // The library's script and controls are omitted, because the page has its own script and
        // controls.
        scene.interactive = false;
        scene.has_tooltips = false;
        scene.background_color = None;
        own(&mut scene, id);
        Drawing {
            svg: open(&SvgBackend::new().render_scene(&scene), &scene, &self.title, &self.note),
            spots: place.map_or_else(Vec::new, |place| self.spots(&place)),
        }
    }

    fn rows(&self) -> Option<usize> {
        match &self.y {
            Vertical::Names(names) => Some(names.len()),
            Vertical::Axis(_) => None,
        }
    }

    /// Converts a vertical position. The library counts names from 1 at the bottom, and points
    /// count from 0 at the top.
    fn upward(&self, y: f64) -> f64 {
        self.rows().map_or(y, |n| n as f64 - y)
    }

    fn layout(&self) -> Layout {
        let (low, high, height) = match &self.y {
            Vertical::Axis(axis) => (axis.low, axis.high, HEIGHT),
            Vertical::Names(names) => {
                (0.5, names.len() as f64 + 0.5, 70.0 + LINE * names.len() as f64)
            }
        };
        let ticks = |write: fn(f64) -> String| TickFormat::Custom(Arc::new(write));
        let mut layout = Layout::new((self.x.low, self.x.high), (low, high))
            .with_width(WIDTH)
            .with_height(height)
            .with_interactive()
            .with_clamp_axis()
            .with_clamp_y_axis()
            .with_theme(theme())
            .with_label_size(13)
            .with_tick_size(13)
            .with_x_label(&self.x.label)
            .with_x_tick_format(ticks(self.x.write))
            .with_x_axis_min(self.x.low)
            .with_x_axis_max(self.x.high)
            .with_y_axis_min(low)
            .with_y_axis_max(high);
        if self.x.log {
            layout = layout.with_log_x();
        }
        match &self.y {
            Vertical::Names(names) => {
                layout = layout.with_y_categories(names.iter().rev().cloned().collect());
            }
            Vertical::Axis(axis) => {
                layout = layout.with_y_tick_format(ticks(axis.write));
                if !axis.label.is_empty() {
                    layout = layout.with_y_label(&axis.label);
                }
                if axis.log {
                    layout = layout.with_log_y();
                }
            }
        }
        if let Some((from, to)) = self.band {
            let band = ShadedRegion::vertical(from.max(self.x.low), to.min(self.x.high));
            layout = layout.with_shaded_region(band.with_color("var(--band)").with_opacity(1.0));
        }
        if let Some(at) = self.limit {
            let limit =
                ReferenceLine::horizontal(at).with_color("var(--rule)").with_dasharray("3 3");
            layout = layout.with_reference_line(limit);
        }
        if let Some(at) = self.rule {
            let rule = ReferenceLine::vertical(at).with_color("var(--rule)").with_dasharray("3 3");
            layout = layout.with_reference_line(rule);
        }
        layout
    }

    fn plots(&self) -> Vec<Plot> {
        let pieces = |s| Series::points_apart(s).map(move |points| (s, points));
        self.series.iter().flat_map(pieces).map(|(s, points)| self.plot(s, points)).collect()
    }

    fn plot(&self, series: &Series, points: &[Point]) -> Plot {
        let (colour, name) = (colour(series.server), series.server.to_string());
        let at = |p: &Point| (p.x, self.upward(p.y));
        let reach = |of: fn(&Point) -> f64| {
            move |p: &Point| p.span.map_or((0.0, 0.0), |(l, h)| (of(p) - l, h - of(p)))
        };
        if matches!(series.stroke, Stroke::Dots | Stroke::Hollow) {
            let mark = match series.stroke {
                Stroke::Hollow => MarkerShape::Diamond,
                _ => mark(series.server),
            };
            let dots = ScatterPlot::new()
                .with_data(points.iter().map(at))
                .with_color(colour)
                .with_legend(name)
                .with_marker(mark)
                .with_size(if series.stroke == Stroke::Hollow { 4.0 } else { 5.0 });
            return Plot::Scatter(match points.iter().any(|p| p.span.is_some()) {
                true => dots.with_x_err_asymmetric(points.iter().map(reach(|p| p.x))),
                false => dots,
            });
        }
        let line = LinePlot::new()
            .with_data(points.iter().map(at))
            .with_color(colour)
            .with_legend(name)
            .with_stroke_width(if series.stroke == Stroke::Ideal { 1.0 } else { 1.8 });
        Plot::Line(match series.stroke {
            Stroke::Ideal => line.with_dotted(),
            Stroke::Band => line.with_band(
                points.iter().map(|p| p.span.map_or(p.y, |(low, _)| low)),
                points.iter().map(|p| p.span.map_or(p.y, |(_, high)| high)),
            ),
            Stroke::Steps => {
                line.with_step().with_y_err_asymmetric(points.iter().map(reach(|p| p.y)))
            }
            _ => match series.server / COLOURS % 4 {
                0 => line,
                1 => line.with_dashed(),
                2 => line.with_dashdot(),
                _ => line.with_dotted(),
            },
        })
    }

    fn spots(&self, place: &AxisMeta) -> Vec<(f64, f64, usize, String)> {
        let mut spots = Vec::new();
        for series in self.series.iter().filter(|s| s.stroke != Stroke::Ideal) {
            for point in series.points.iter().filter(|p| !p.text.is_empty()) {
                let x = along(point.x, (place.x_min, place.x_max), place.log_x);
                let y = along(self.upward(point.y), (place.y_min, place.y_max), place.log_y);
                if (-0.01..=1.01).contains(&x) && (-0.01..=1.01).contains(&y) {
                    spots.push((
                        place.plot_left + x * (place.plot_right - place.plot_left),
                        place.plot_bottom - y * (place.plot_bottom - place.plot_top),
                        series.server,
                        point.text.clone(),
                    ));
                }
            }
        }
        spots
    }
}

/// Returns the position of a value on an axis, as a share of the axis.
fn along(value: f64, (low, high): (f64, f64), log: bool) -> f64 {
    match log {
        true => (value.max(1e-10) / low).ln() / (high / low).ln(),
        false => (value - low) / (high - low),
    }
}

/// Returns the name of a server's colour in the style sheet.
pub fn colour(server: usize) -> String {
    format!("var(--s{})", server % COLOURS)
}

fn mark(server: usize) -> MarkerShape {
    match server / COLOURS % 4 {
        0 => MarkerShape::Circle,
        1 => MarkerShape::Square,
        2 => MarkerShape::Triangle,
        _ => MarkerShape::Diamond,
    }
}

fn theme() -> Theme {
    Theme {
        background: "none".to_owned(),
        axis_color: "var(--axis)".to_owned(),
        grid_color: "var(--grid)".to_owned(),
        tick_color: "var(--axis)".to_owned(),
        text_color: "var(--ink)".to_owned(),
        font_family: None,
        ..Theme::light()
    }
}

/// Prepares a picture for the page: makes the names of its parts unique, and removes titles. A
/// browser would show titles as tooltips in addition to the page's own.
fn own(scene: &mut Scene, id: &str) {
    join(&mut scene.elements);
    for def in &mut scene.defs {
        *def = def.replace("id=\"", &format!("id=\"{id}-"));
    }
    for part in &mut scene.elements {
        match part {
            Primitive::ClipStart { id: clip, .. } => *clip = format!("{id}-{clip}"),
            Primitive::GroupStart { title, .. } => *title = None,
            _ => {}
        }
    }
}

/// Merges adjacent groups with the same attributes. Without merging, a line with many pieces would
/// be many groups.
fn join(parts: &mut Vec<Primitive>) {
    let mut joined: Vec<Primitive> = Vec::with_capacity(parts.len());
    let mut last = None;
    for part in parts.drain(..) {
        if let Primitive::GroupStart { extra_attrs, .. } = &part {
            if matches!(joined.last(), Some(Primitive::GroupEnd)) && last == *extra_attrs {
                joined.pop();
                continue;
            }
            last.clone_from(extra_attrs);
        }
        joined.push(part);
    }
    *parts = joined;
}

/// Rounds numbers within tags, such as `194.20000000000002`. Text between tags is unchanged.
fn brief(svg: &str) -> String {
    let mut out = String::with_capacity(svg.len());
    let mut in_tag = false;
    let mut rest = svg;
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_ascii_digit() || c == '.';
        let word = rest.find(|c| !is_part(c)).unwrap_or(rest.len()).max(first.len_utf8());
        let (word, after) = rest.split_at(word);
        rest = after;
        match (first, word.split_once('.')) {
            ('<', _) => in_tag = true,
            ('>', _) => in_tag = false,
            (_, Some((_, decimals))) if in_tag && decimals.len() > 2 => {
                let short = word.parse::<f64>().map(|v| format!("{v:.2}")).unwrap_or_default();
                if !short.is_empty() {
                    out += short.trim_end_matches('0').trim_end_matches('.');
                    continue;
                }
            }
            _ => {}
        }
        out += word;
    }
    out
}

/// Gives the picture an opening tag for a page. The picture fills the available width, and has a
/// description for screen readers.
fn open(svg: &str, scene: &Scene, title: &str, note: &str) -> Html {
    let inner = brief(svg.split_once("-->").map_or(svg, |(_, inner)| inner));
    let size = format!("0 0 {} {}", scene.width + OVERHANG, scene.height);
    let label = format!("{title}. {note}");
    let attributes =
        [("viewBox", &*size), ("role", "img"), ("aria-label", &label), ("fill", "var(--ink)")];
    el("svg", &attributes, Html::own(inner.trim_end_matches("</svg>")))
}

/// The contents of a chart.
#[derive(Debug)]
pub struct Chart {
    /// The title of the chart.
    pub title: String,
    /// How to read the chart.
    pub note: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Vertical,
    /// The series, in the order in which they are drawn.
    pub series: Vec<Series>,
    /// The range on the horizontal axis within which differences are noise.
    pub band: Option<(f64, f64)>,
    /// The value on the horizontal axis that means "no difference".
    pub rule: Option<f64>,
    /// A limit on the vertical axis.
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

/// The scale of an axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The label with the unit. Empty if the ticks and the chart's title are enough.
    pub label: String,
    /// Whether the axis is logarithmic.
    pub log: bool,
    /// The lower end of the axis.
    pub low: f64,
    /// The upper end of the axis.
    pub high: f64,
    /// The format of the ticks.
    pub write: fn(f64) -> String,
}

/// The points of one server.
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
    /// Diamonds, for published figures.
    Hollow,
    /// A line through the points.
    Line,
    /// A thin, dotted line, for proportional growth.
    Ideal,
    /// Steps from each point to the next, with intervals.
    Steps,
    /// A line through the points, and a band between the ends of their intervals.
    Band,
}

/// One point of a series.
#[derive(Debug, Clone)]
pub struct Point {
    /// The position on the horizontal axis.
    pub x: f64,
    /// The position on the vertical axis. On an axis of names, the index of the name. NaN
    /// interrupts a line until the next point.
    pub y: f64,
    /// The interval, which is horizontal for dots, and vertical for steps and bands.
    pub span: Option<(f64, f64)>,
    /// The text that the page shows when the pointer is near the point. Empty for no text.
    pub text: String,
}

/// Returns the values that span a horizontal axis: all points, and as much of their intervals as
/// possible while the points stay apart. The ends of a wider interval are only in the point's text.
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

/// Returns the values that span a vertical axis.
pub fn heights(series: &[Series]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|s| &s.points).map(|p| p.y)
}

impl Axis {
    /// Creates a linear scale between two values.
    pub fn between(label: &str, (low, high): (f64, f64), write: fn(f64) -> String) -> Self {
        Self { label: label.to_owned(), log: false, low, high, write }
    }

    /// Creates a scale for all of the values. The scale begins at zero, or is logarithmic if the
    /// highest value is over 20 times the lowest.
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

/// Returns the nearest marks (1, 2 or 5 in a decade) at or below, and at or above, a value.
fn decade(value: f64) -> (f64, f64) {
    let base = 10_f64.powf(value.log10().floor());
    let marks = [1.0, 2.0, 5.0, 10.0].map(|m| m * base);
    let below = marks.iter().rev().find(|m| **m <= value * 1.0001).copied().unwrap_or(base);
    let above = marks.iter().find(|m| **m >= value * 0.9999).copied().unwrap_or(base * 10.0);
    (below, above)
}

impl Series {
    /// Returns the pieces of a line, which is split where it is interrupted.
    pub fn points_apart(&self) -> impl Iterator<Item = &[Point]> {
        self.points.split(|p| p.y.is_nan()).filter(|piece| !piece.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_lose_the_digits_that_say_nothing() {
        let svg = "<path d=\"M 1.25 194.20000000000002 L 90 0.001\" r=\"1.8\"/>0.12345 µs<b>";
        let short = "<path d=\"M 1.25 194.2 L 90 0\" r=\"1.8\"/>0.12345 µs<b>";
        assert_eq!(brief(svg), short);
    }

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
