//! Figures as people read them: how many digits, which unit, what spread.

use hotlap_stats::Estimate;

use super::Figure;

/// The factor beyond which the end of a ratio's interval is no figure any more: with two restarts
/// an interval reaches over thousands of it.
const BEYOND: f64 = 10.0;

/// Requests per second: three digits that mean something, four after a leading 1.
#[must_use]
pub fn per_second(estimate: &Estimate) -> Figure {
    Figure::of(estimate, rate)
}

/// Microseconds.
#[must_use]
pub fn micros(estimate: &Estimate) -> Figure {
    Figure::of(estimate, |us| if us.abs() < 1.0 { format!("{us:.2}") } else { grouped(us, 1) })
}

/// A ratio: `1.51×`, its interval `[1.46, 1.55]`. An end that is further from the ratio than
/// a factor of ten says nothing but that it is far: it is written as `0` or `∞`, which claims less.
#[must_use]
pub fn ratio(estimate: &Estimate) -> Figure {
    let mut figure = Figure::of(estimate, |r| format!("{}×", plain_ratio(r)));
    if let (Some(low), Some(high)) = (figure.low, figure.high) {
        let far = |end: f64| end <= 0.0 || (end / figure.value).ln().abs() > BEYOND.ln();
        let low = if far(low) { "0".to_owned() } else { plain_ratio(low) };
        let high = if far(high) { "∞".to_owned() } else { plain_ratio(high) };
        figure.spread = format!("[{low}, {high}]");
    }
    figure
}

/// Per cent of something, from a ratio.
#[must_use]
pub fn percent(estimate: &Estimate) -> Figure {
    let scaled = Estimate {
        value: estimate.value * 100.0,
        low: estimate.low * 100.0,
        high: estimate.high * 100.0,
    };
    Figure::of(&scaled, |p| format!("{} %", if p < 9.95 { grouped(p, 1) } else { grouped(p, 0) }))
}

/// A figure without an interval.
#[must_use]
pub fn bare(value: f64, text: String) -> Figure {
    let spread = String::new();
    Figure { value: rounded(value), low: None, high: None, text, spread, is_lower_bound: false }
}

/// A length of time in milliseconds, without an interval.
#[must_use]
pub fn millis(ms: f64) -> Figure {
    bare(ms, time(ms))
}

/// Bytes as megabytes (10⁶), without an interval.
#[must_use]
pub fn megabytes(bytes: f64) -> Figure {
    let mb = bytes / 1e6;
    bare(mb, format!("{} MB", if mb < 9.95 { grouped(mb, 1) } else { grouped(mb, 0) }))
}

impl Figure {
    fn of(estimate: &Estimate, text: impl Fn(f64) -> String) -> Self {
        let bounded = estimate.is_bounded();
        Self {
            value: rounded(estimate.value),
            low: bounded.then(|| rounded(estimate.low)),
            high: bounded.then(|| rounded(estimate.high)),
            text: text(estimate.value),
            spread: match bounded && estimate.value != 0.0 {
                true => spread(estimate.relative_half_width()),
                false => String::new(),
            },
            is_lower_bound: false,
        }
    }

    /// The figure as a lower bound: `≥ 293,000`.
    #[must_use]
    pub fn at_least(&self) -> Self {
        Self { text: format!("≥ {}", self.text), is_lower_bound: true, ..self.clone() }
    }

    /// The figure and its spread.
    #[must_use]
    pub fn full(&self) -> String {
        match self.spread.is_empty() {
            true => self.text.clone(),
            false => format!("{} {}", self.text, self.spread),
        }
    }
}

/// How far an interval reaches, as a share of the value: `± 2.1%`, `± 0.04%`. One that is as wide
/// as the value itself says nothing more by its figure, which is `± >100%` then.
#[must_use]
pub fn spread(half_width: f64) -> String {
    format!("± {}", share(half_width))
}

fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if p >= 99.95 => ">100%".to_owned(),
        p if p < 0.095 => format!("{p:.2}%"),
        p => format!("{p:.1}%"),
    }
}

/// A rate with as many digits as it deserves.
#[must_use]
pub fn rate(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = if leading(value) == 1 { 4 } else { 3 };
    grouped(significant(value, digits), 0)
}

/// A length of time, given in milliseconds.
#[must_use]
pub fn time(ms: f64) -> String {
    match ms {
        ms if ms < 0.0995 => format!("{:.0} µs", ms * 1e3),
        ms if ms < 0.995 => format!("{ms:.2} ms"),
        ms if ms < 999.5 => format!("{ms:.1} ms"),
        ms if ms < 99_950.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} s", ms / 1e3),
    }
}

/// A number with its thousands apart.
#[must_use]
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |d| ("-", d));
    let mut out = String::from(sign);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// A count with its thousands apart.
#[must_use]
pub fn count(n: u64) -> String {
    grouped(n as f64, 0)
}

/// So many of something: `1 lap`, `2,000 laps`.
#[must_use]
pub fn plural(n: usize, noun: &str) -> String {
    format!("{} {noun}{}", count(n as u64), if n == 1 { "" } else { "s" })
}

/// A value as it is exported: six digits, which is more than any measurement here knows.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    significant(value, 6)
}

fn plain_ratio(r: f64) -> String {
    match r.abs() {
        r if r >= 99.5 => grouped(r, 0),
        r if r >= 9.95 => format!("{r:.1}"),
        r if r >= 0.0995 => format!("{r:.2}"),
        r => format!("{r:.4}"),
    }
}

fn significant(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    // Through decimal text, so that 57.9 stays 57.9 and not 57.90000000000001.
    format!("{value:.*e}", (digits - 1) as usize).parse().unwrap_or(value)
}

fn leading(value: f64) -> u32 {
    format!("{value:e}").chars().next().and_then(|c| c.to_digit(10)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate { value, low, high }
    }

    #[test]
    fn a_rate_has_the_digits_that_it_deserves() {
        let rates = [57_903.4, 123_149.0, 2_104.0, 99.44, 1_234_567.0, 0.0];
        let texts: Vec<String> = rates.iter().map(|r| rate(*r)).collect();
        assert_eq!(texts, ["57,900", "123,100", "2,100", "99.4", "1,235,000", "0.0"]);
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
        assert_eq!(spread(350.65), "± >100%");
        assert_eq!(spread(0.998), "± 99.8%");
        assert_eq!(ratio(&estimate(1.51, 0.004, 520.0)).full(), "1.51× [0, ∞]");
        assert_eq!(ratio(&estimate(27.0, 5.0, 1e6)).full(), "27.0× [5.00, ∞]");
    }

    #[test]
    fn ratios_show_their_interval() {
        assert_eq!(ratio(&estimate(1.512, 1.458, 1.549)).full(), "1.51× [1.46, 1.55]");
        assert_eq!(ratio(&estimate(27.61, 27.0, 28.2)).full(), "27.6× [27.0, 28.2]");
    }

    #[test]
    fn times_and_memory_change_their_unit_where_it_helps() {
        let times = [0.034, 0.912, 2.13, 41.04, 1500.0, 120_000.0].map(time);
        assert_eq!(times, ["34 µs", "0.91 ms", "2.1 ms", "41.0 ms", "1.5 s", "120 s"]);
        assert_eq!(megabytes(7_340_032.0).text, "7.3 MB");
        assert_eq!(megabytes(131e6).text, "131 MB");
    }

    #[test]
    fn exported_values_are_rounded_and_never_gain_digits() {
        assert_eq!(rounded(57.900_000_000_000_006), 57.9);
        assert_eq!(rounded(123_456_789.0), 123_457_000.0);
        assert_eq!(grouped(-1234.5, 1), "-1,234.5");
    }
}
