//! Charts with a dot for each server.

use super::super::chart::{Axis, Chart, Point, Series, Stroke, Vertical, extent};
use super::palette::{Palette, short_name};
use super::ticks::{plain, times};
use crate::report::{Figure, LoadResults, Row};

/// The interval of a figure.
pub fn span(figure: &Figure) -> Option<(f64, f64)> {
    figure.low.zip(figure.high)
}

/// One dot per server, with its interval.
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
        true => "A dot is the estimate, the line its 95 % interval.".to_owned(),
        false => "A dot is the estimate; there are too few laps for an interval.".to_owned(),
    };
    if around.is_some() {
        note += " The band is the noise around the reference.";
    }
    let x = Axis::over(unit, plain, extent(&series));
    if x.log {
        note += " Equal distances are equal ratios.";
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
        note += " Within the band, a difference may be noise.";
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

/// Published figures beside measured ones, both relative to the reference.
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
        note: "Requests/s relative to the reference: a diamond as published, a dot as measured \
             here."
            .to_owned(),
        x: Axis::over("ratio to the reference", times, extent(&series).chain([1.0])),
        y: Vertical::Names(known.iter().map(|(r, _)| short_name(&r.name)).collect()),
        series,
        band: None,
        rule: Some(1.0),
        limit: None,
    }
}
