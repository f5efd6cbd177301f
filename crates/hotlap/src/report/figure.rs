//! Figures, each with a value for machines and a text for people.

use hotlap_stats::{Estimate, Percentile};
use serde::Serialize;

use crate::analysis::Measure;
use crate::text::number::{self, grouped, rounded};
use crate::text::table::{Cell, UNKNOWN};

/// A figure with its interval, as a number and as text.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figure {
    /// The value, rounded.
    pub value: f64,
    /// The lower end of the interval. `null` without an interval.
    pub low: Option<f64>,
    /// The upper end of the interval. `null` without an interval.
    pub high: Option<f64>,
    /// The value as text: `57,900`, `0.9 ms`.
    pub text: String,
    /// The interval as text: `± 2.1%` or `[1.46, 1.55]`. Empty without an interval.
    pub spread: String,
    /// Whether the true value may be larger. If so, the text begins with `≥`.
    pub is_lower_bound: bool,
}

/// An interval end that differs from its ratio by more than this factor is written as `0` or `∞`.
/// With two restarts, an interval can span a factor of thousands, which only says "unknown".
const BEYOND: f64 = 10.0;

/// Returns a level in the unit in which its measure is shown.
pub fn of_measure(measure: Measure, estimate: &Estimate) -> Figure {
    match measure {
        Measure::Rate => per_second(estimate),
        Measure::Cost | Measure::Database | Measure::Total => micros(&estimate.scaled(1e-3)),
        Measure::P50 | Measure::P99 => millis(estimate.value / 1e6),
        Measure::Memory => megabytes(estimate.value),
    }
}

/// Returns a figure in requests per second.
pub fn per_second(estimate: &Estimate) -> Figure {
    Figure::of(estimate, number::rate)
}

/// Returns a figure in microseconds.
pub fn micros(estimate: &Estimate) -> Figure {
    Figure::of(estimate, |us| if us.abs() < 1.0 { format!("{us:.2}") } else { grouped(us, 1) })
}

/// Returns a ratio such as `1.51×`, with an interval such as `[1.46, 1.55]`.
pub fn ratio(estimate: &Estimate) -> Figure {
    let mut figure = Figure::of(estimate, |r| format!("{}×", number::ratio(r)));
    if let (Some(low), Some(high)) = (figure.low, figure.high) {
        let far = |end: f64| end <= 0.0 || (end / figure.value).ln().abs() > BEYOND.ln();
        let low = if far(low) { "0".to_owned() } else { number::ratio(low) };
        let high = if far(high) { "∞".to_owned() } else { number::ratio(high) };
        figure.spread = format!("[{low}, {high}]");
    }
    figure
}

/// Returns a ratio in per cent.
pub fn percent(ratio: &Estimate) -> Figure {
    Figure::of(&ratio.scaled(100.0), number::percent)
}

/// Returns a signed difference in microseconds: `+1.74 µs`, with the interval `[+1.60, +1.90]`.
pub fn difference(estimate: &Estimate) -> Figure {
    let text = |us: f64| {
        let sign = if us < 0.0 { "−" } else { "+" };
        format!("{sign}{}", grouped(us.abs(), if us.abs() < 10.0 { 2 } else { 1 }))
    };
    let mut figure = Figure::of(estimate, |us| format!("{} µs", text(us)));
    figure.spread = match estimate.is_bounded() {
        true => format!("[{}, {}]", text(estimate.low), text(estimate.high)),
        false => String::new(),
    };
    figure
}

/// Returns a figure without an interval.
pub fn bare(value: f64, text: String) -> Figure {
    let spread = String::new();
    Figure { value: rounded(value), low: None, high: None, text, spread, is_lower_bound: false }
}

/// Returns a time in milliseconds, without an interval.
pub fn millis(ms: f64) -> Figure {
    bare(ms, number::time(ms))
}

/// Returns a percentile in milliseconds, with `≥` if it is a lower bound.
pub fn percentile(percentile: Percentile) -> Figure {
    let figure = millis(percentile.ns as f64 / 1e6);
    if percentile.is_lower_bound { figure.at_least() } else { figure }
}

/// Returns bytes as megabytes (10⁶ bytes), without an interval.
pub fn megabytes(bytes: f64) -> Figure {
    bare(bytes / 1e6, number::megabytes(bytes))
}

/// Returns a known value as an estimate without an interval.
pub fn exactly(value: f64) -> Estimate {
    Estimate { value, low: f64::NAN, high: f64::NAN }
}

/// Returns the figure as a cell, with its interval.
pub fn cell(figure: Option<&Figure>) -> Cell {
    let spread = figure.map_or_else(String::new, |f| f.spread.clone());
    Cell { spread, ..text_cell(figure) }
}

/// Returns the figure as a cell, without its interval.
pub fn text_cell(figure: Option<&Figure>) -> Cell {
    match figure {
        Some(figure) => Cell::from(&figure.text).sorted_by(figure.value),
        None => Cell::from(UNKNOWN),
    }
}

impl Figure {
    fn of(estimate: &Estimate, text: impl Fn(f64) -> String) -> Self {
        let spread = match estimate.is_bounded() && estimate.value != 0.0 {
            true => number::spread(estimate.relative_half_width()),
            false => String::new(),
        };
        Self::new(estimate, text(estimate.value), spread)
    }

    /// Returns a figure with the given text and spread.
    pub(super) fn new(estimate: &Estimate, text: String, spread: String) -> Self {
        let bounded = estimate.is_bounded();
        Self {
            value: rounded(estimate.value),
            low: bounded.then(|| rounded(estimate.low)),
            high: bounded.then(|| rounded(estimate.high)),
            text,
            spread,
            is_lower_bound: false,
        }
    }

    /// Returns the figure as a lower bound: `≥ 293,000`.
    pub fn at_least(&self) -> Self {
        Self { text: format!("≥ {}", self.text), is_lower_bound: true, ..self.clone() }
    }

    /// Returns the text of the figure with its interval.
    pub fn full(&self) -> String {
        match self.spread.is_empty() {
            true => self.text.clone(),
            false => format!("{} {}", self.text, self.spread),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate { value, low, high }
    }

    #[test]
    fn a_figure_says_its_spread_only_where_there_is_one() {
        let known = per_second(&estimate(57_903.4, 56_700.0, 59_100.0));
        assert_eq!(known.full(), "57,900 ± 2.1%");
        let unknown = per_second(&estimate(57_903.4, f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!((unknown.full().as_str(), unknown.low), ("57,900", None));
    }

    #[test]
    fn an_interval_that_says_nothing_is_not_written_out() {
        let wide = per_second(&estimate(57_903.4, 2.0, 20_360_000.0));
        assert_eq!(wide.full(), "57,900 ± >100%");
        assert_eq!(ratio(&estimate(1.51, 0.004, 520.0)).full(), "1.51× [0, ∞]");
        assert_eq!(ratio(&estimate(27.0, 5.0, 1e6)).full(), "27.0× [5.00, ∞]");
    }

    #[test]
    fn ratios_show_their_interval() {
        assert_eq!(ratio(&estimate(1.512, 1.458, 1.549)).full(), "1.51× [1.46, 1.55]");
        assert_eq!(ratio(&estimate(27.61, 27.0, 28.2)).full(), "27.6× [27.0, 28.2]");
    }

    #[test]
    fn a_difference_shows_its_sign() {
        assert_eq!(difference(&estimate(1.74, 1.6, 1.9)).full(), "+1.74 µs [+1.60, +1.90]");
        assert_eq!(difference(&estimate(-0.2, -1.1, 0.7)).full(), "−0.20 µs [−1.10, +0.70]");
        assert_eq!(difference(&exactly(12.34)).full(), "+12.3 µs");
    }
}
