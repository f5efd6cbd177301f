//! Numbers for people: digits and units.

use std::time::Duration;

/// A value for export: six significant digits, more than any measurement here provides.
pub fn rounded(value: f64) -> f64 {
    significant(value, 6)
}

/// A number with commas between thousands.
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

/// A count with commas between thousands.
pub fn count(n: u64) -> String {
    grouped(n as f64, 0)
}

/// A count with its noun: `1 lap`, `2,000 laps`.
pub fn plural(n: usize, noun: &str) -> String {
    format!("{} {noun}{}", count(n as u64), if n == 1 { "" } else { "s" })
}

/// A rate with three significant digits, four after a leading 1; one decimal below 100.
pub fn rate(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let leading = format!("{value:e}").chars().next();
    grouped(significant(value, if leading == Some('1') { 4 } else { 3 }), 0)
}

/// A duration in milliseconds, with its unit: `34 µs`, `0.91 ms`, `1.5 s`.
pub fn time(ms: f64) -> String {
    match ms {
        ms if ms < 0.0995 => format!("{:.0} µs", ms * 1e3),
        ms if ms < 0.995 => format!("{ms:.2} ms"),
        ms if ms < 999.5 => format!("{ms:.1} ms"),
        ms if ms < 99_950.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} s", ms / 1e3),
    }
}

/// Bytes as megabytes (10⁶): `7.3 MB`, `131 MB`.
pub fn megabytes(bytes: f64) -> String {
    format!("{} MB", tenths_below_ten(bytes / 1e6))
}

/// A percentage: `1.5 %`, `47 %`.
pub fn percent(percent: f64) -> String {
    format!("{} %", tenths_below_ten(percent))
}

/// A length of time to type as an option, rounded up to ten seconds, or to a minute from two
/// minutes on.
pub fn duration(length: Duration) -> String {
    match (length.as_secs_f64() / 10.0).ceil() * 10.0 {
        seconds if seconds < 120.0 => format!("{seconds}s"),
        seconds => format!("{}m", (seconds / 60.0).ceil()),
    }
}

/// A ratio with two or three significant digits, without its sign `×`.
pub fn ratio(r: f64) -> String {
    match r.abs() {
        r if r >= 99.5 => grouped(r, 0),
        r if r >= 9.95 => format!("{r:.1}"),
        r if r >= 0.0995 => format!("{r:.2}"),
        r if r >= 0.00995 => format!("{r:.3}"),
        r => format!("{r:.4}"),
    }
}

/// The half width of an interval as a share of its value: `± 2.1%`, `± 0.04%`. An interval as wide
/// as the value is written `± >100%`, since its exact width is meaningless.
pub fn spread(half_width: f64) -> String {
    match half_width * 100.0 {
        p if p >= 99.95 => "± >100%".to_owned(),
        p if p < 0.095 => format!("± {p:.2}%"),
        p => format!("± {p:.1}%"),
    }
}

fn tenths_below_ten(value: f64) -> String {
    grouped(value, usize::from(value < 9.95))
}

fn significant(value: f64, digits: usize) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    // Converted through decimal text, so that 57.9 does not become 57.90000000000001.
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_the_digits_that_it_deserves() {
        let rates = [57_903.4, 123_149.0, 2_104.0, 99.44, 1_234_567.0, 0.0].map(rate);
        assert_eq!(rates, ["57,900", "123,100", "2,100", "99.4", "1,235,000", "0.0"]);
    }

    #[test]
    fn times_and_memory_change_their_unit_where_it_helps() {
        let times = [0.034, 0.912, 2.13, 41.04, 1500.0, 120_000.0].map(time);
        assert_eq!(times, ["34 µs", "0.91 ms", "2.1 ms", "41.0 ms", "1.5 s", "120 s"]);
        assert_eq!([7_340_032.0, 131e6].map(megabytes), ["7.3 MB", "131 MB"]);
        assert_eq!([1.51, 47.3].map(percent), ["1.5 %", "47 %"]);
    }

    #[test]
    fn exported_values_are_rounded_and_never_gain_digits() {
        assert_eq!(rounded(57.900_000_000_000_006), 57.9);
        assert_eq!(rounded(123_456_789.0), 123_457_000.0);
        assert_eq!(grouped(-1234.5, 1), "-1,234.5");
    }

    #[test]
    fn a_spread_as_wide_as_its_value_has_no_figure() {
        assert_eq!([350.65, 0.998, 0.021].map(spread), ["± >100%", "± 99.8%", "± 2.1%"]);
    }
}
