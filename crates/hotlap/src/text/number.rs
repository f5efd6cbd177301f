//! Numbers for people: digits and units, times in UTC, and series as sparklines.

use std::time::Duration;

/// Rounds a value for export to six significant digits, more than any measurement provides.
pub fn rounded(value: f64) -> f64 {
    significant(value, 6)
}

/// Formats a number with commas between thousands.
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

/// Formats a count with commas between thousands.
pub fn count(n: u64) -> String {
    grouped(n as f64, 0)
}

/// Formats a count with its noun: `1 lap`, `2,000 laps`.
pub fn plural(n: usize, noun: &str) -> String {
    format!("{} {noun}{}", count(n as u64), if n == 1 { "" } else { "s" })
}

/// Formats a rate with three significant digits, four after a leading 1, or one decimal below 100.
pub fn rate(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let leading = format!("{value:e}").chars().next();
    grouped(significant(value, if leading == Some('1') { 4 } else { 3 }), 0)
}

/// Formats a time in milliseconds with a suitable unit: `34 µs`, `0.91 ms`, `1.5 s`.
pub fn time(ms: f64) -> String {
    match ms {
        ms if ms < 0.0995 => format!("{:.0} µs", ms * 1e3),
        ms if ms < 0.995 => format!("{ms:.2} ms"),
        ms if ms < 999.5 => format!("{ms:.1} ms"),
        ms if ms < 99_950.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} s", ms / 1e3),
    }
}

/// Formats bytes as megabytes (10⁶ bytes): `7.3 MB`, `131 MB`.
pub fn megabytes(bytes: f64) -> String {
    format!("{} MB", tenths_below_ten(bytes / 1e6))
}

/// Formats a percentage: `1.5%`, `47%`.
pub fn percent(percent: f64) -> String {
    format!("{}%", tenths_below_ten(percent))
}

/// Formats the ends of an interval and the value in it as percentages without the sign. All get a
/// decimal if the ends would otherwise look the same.
pub fn percents_apart([low, value, high]: [f64; 3]) -> [String; 3] {
    match tenths_below_ten(low) == tenths_below_ten(high) {
        true => [low, value, high].map(|percent| grouped(percent, 1)),
        false => [low, value, high].map(tenths_below_ten),
    }
}

/// Formats a length of time for use in an option. The time is rounded up to ten seconds, or to a
/// minute from two minutes on.
pub fn duration(length: Duration) -> String {
    match (length.as_secs_f64() / 10.0).ceil() * 10.0 {
        seconds if seconds < 120.0 => format!("{seconds}s"),
        seconds => format!("{}m", (seconds / 60.0).ceil()),
    }
}

/// Formats a ratio without the sign `×`. Smaller ratios have more decimals, up to four.
pub fn ratio(r: f64) -> String {
    match r.abs() {
        r if r >= 99.5 => grouped(r, 0),
        r if r >= 9.95 => format!("{r:.1}"),
        r if r >= 0.0995 => format!("{r:.2}"),
        r if r >= 0.00995 => format!("{r:.3}"),
        r => format!("{r:.4}"),
    }
}

/// Formats the half width of an interval as a share of its value: `± 2.1%`, `± 0.04%`. A half width
/// as large as the value is written `± >100%`, since its exact size is meaningless.
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
    // The conversion through decimal text keeps 57.9 from becoming 57.90000000000001.
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

/// Formats milliseconds since 1970: `2026-11-21T20:15:00Z`.
pub fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Formats milliseconds since 1970: `2026-11-21 20:15`.
pub fn utc_to_minute(ms: u64) -> String {
    utc(ms)[..16].replace('T', " ")
}

/// Returns the date of a day since 1970-01-01, by Howard Hinnant's algorithm ("chrono-compatible
/// low-level date algorithms", civil_from_days). Years begin in March, so that the leap day comes
/// last.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// If values vary by less than this share of their midpoint, at most half of the height is used, so
/// that small differences look small.
const LEAST_RANGE: f64 = 0.025;

/// Draws values as bars of one to eight eighths of a line, from the lowest to the highest. A bar
/// precedes each index in `changes`, and a space stands for a missing value (NaN).
pub fn sparkline(values: &[f64], changes: &[usize]) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let known = || values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
    let middle = f64::midpoint(low, high);
    let half = f64::midpoint(high, -low).max(middle.abs() * LEAST_RANGE).max(f64::MIN_POSITIVE);
    let mut line = String::new();
    for (place, value) in values.iter().enumerate() {
        if changes.contains(&place) {
            line.push('|');
        }
        let step = ((value - middle) / half * 3.5 + 3.5).round();
        line.push(match value.is_finite() {
            true => STEPS[(step.clamp(0.0, 7.0)) as usize],
            false => ' ',
        });
    }
    line
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
        assert_eq!([1.51, 47.3].map(percent), ["1.5%", "47%"]);
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

    #[test]
    fn moments_are_told_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_292_100_000), "2026-11-21T20:15:00Z");
        assert_eq!(utc_to_minute(1_795_292_100_000), "2026-11-21 20:15");
    }

    #[test]
    fn a_sparkline_shows_the_level_and_where_it_changed() {
        let values = [10.0, 10.1, 9.9, 10.0, 15.0, 15.1, f64::NAN, 15.0];
        assert_eq!(sparkline(&values, &[4]), "▁▁▁▁|██ █");
        assert_eq!(sparkline(&[5.0, 5.0, 5.01], &[]), "▄▄▅");
        assert_eq!(sparkline(&[], &[]), "");
    }
}
