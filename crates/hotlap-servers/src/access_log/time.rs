//! The time of a line, in the forms in which servers write it.

/// A time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time {
    /// Nanoseconds since 1970.
    pub(super) ns: u64,
    /// Whether the log says no more than the second.
    pub(super) is_whole_second: bool,
}

/// The end of the times that fit, in seconds since 1970: the year 2554.
const END_S: u64 = u64::MAX / 1_000_000_000;

/// Numbers from here on are in milliseconds: as seconds, they would be after the year 5000.
const MILLISECONDS: f64 = 1e11;

impl Time {
    /// Parses `24/Nov/2026:08:24:04 +0000`, `2026-11-24T08:24:04.123+00:00`, or a number of
    /// seconds since 1970.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
        match (text.as_bytes().get(2)?, text.as_bytes().get(4)) {
            (b'/', _) => common(text),
            (_, Some(b'-')) => iso(text),
            _ if text.starts_with(|c: char| c.is_ascii_digit()) => {
                Self::of_number(text.parse().ok()?, !text.contains('.'))
            }
            _ => None,
        }
    }

    /// From a number of seconds, or of milliseconds if it is large, since 1970.
    pub(super) fn of_number(number: f64, is_integer: bool) -> Option<Self> {
        let is_ms = number >= MILLISECONDS;
        let seconds = if is_ms { number / 1e3 } else { number };
        let is_known = (0.0..END_S as f64).contains(&seconds);
        let is_whole_second = is_integer && !is_ms;
        is_known.then_some(Self { ns: (seconds * 1e9).round() as u64, is_whole_second })
    }

    /// From a date and a time of day with its offset from UTC, in seconds.
    fn of_day(date: (u64, u64, u64), clock: (u64, u64, u64), offset_s: i64) -> Option<u64> {
        let ((year, month, day), (hour, minute, second)) = (date, clock);
        // A leap second is 60.
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let days = days(year, month, day)?;
        let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
        seconds.checked_add_signed(-offset_s).filter(|seconds| *seconds < END_S)
    }

    fn whole(seconds: u64) -> Self {
        Self { ns: seconds * 1_000_000_000, is_whole_second: true }
    }
}

/// `24/Nov/2026:08:24:04 +0000`
fn common(text: &str) -> Option<Time> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = text.get(3..6)?;
    let month = MONTHS.iter().position(|known| known.eq_ignore_ascii_case(month))? as u64 + 1;
    let separators = [(6, "/"), (11, ":"), (14, ":"), (17, ":"), (20, " ")];
    if separators.iter().any(|(at, byte)| text.get(*at..at + 1) != Some(*byte)) {
        return None;
    }
    let date = (digits(text.get(7..11)?)?, month, digits(text.get(..2)?)?);
    let clock =
        (digits(text.get(12..14)?)?, digits(text.get(15..17)?)?, digits(text.get(18..20)?)?);
    Time::of_day(date, clock, offset(text.get(21..)?)?).map(Time::whole)
}

/// `2026-11-24T08:24:04.123+00:00`, or with a space instead of the T. Without an offset it is UTC.
fn iso(text: &str) -> Option<Time> {
    let is = |at: usize, set: &str| text.get(at..=at).is_some_and(|byte| set.contains(byte));
    if !(is(7, "-") && is(10, "T ") && is(13, ":") && is(16, ":")) {
        return None;
    }
    let date = (digits(text.get(..4)?)?, digits(text.get(5..7)?)?, digits(text.get(8..10)?)?);
    let clock =
        (digits(text.get(11..13)?)?, digits(text.get(14..16)?)?, digits(text.get(17..19)?)?);
    let rest = text.get(19..)?;
    let fraction = rest.strip_prefix(['.', ',']).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.split_at(end)
    });
    let (fraction, rest) = fraction.unwrap_or(("", rest));
    let offset_s = if rest.is_empty() { 0 } else { offset(rest)? };
    let whole = Time::whole(Time::of_day(date, clock, offset_s)?);
    // Nine digits are nanoseconds.
    let ns = format!("{fraction:0<9}").get(..9).and_then(digits)?;
    Some(Time { ns: whole.ns + ns, is_whole_second: fraction.is_empty() })
}

/// `+0100`, `+01:00` or `Z`, in seconds.
fn offset(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let sign = match text.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let minutes = text.get(3..)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let (hours, minutes) = (digits(text.get(1..3)?)?, digits(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60) as i64)
}

/// A number of digits only.
fn digits(text: &str) -> Option<u64> {
    let is_number = text.len() < 10 && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Days from 1970 to a date (Howard Hinnant: chrono-compatible low-level date algorithms,
/// `days_from_civil`).
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..2554).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // The year begins in March, so that the leap day is its last.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> Option<u64> {
        Time::parse(text.as_bytes()).map(|time| time.ns / 1_000_000)
    }

    #[test]
    fn times_are_read_in_all_forms() {
        for (text, expected) in [
            ("01/Jan/1970:00:00:00 +0000", 0),
            ("29/Feb/2024:23:59:60 +0000", 1_709_251_200_000),
            ("24/Nov/2026:08:24:04 -0130", 1_795_514_044_000),
            ("2026-11-24T08:24:04Z", 1_795_508_644_000),
            ("2026-11-24 08:24:04", 1_795_508_644_000),
            ("2026-11-24T08:24:04.25+00:00", 1_795_508_644_250),
            ("2026-11-24T08:24:04,5-0100", 1_795_512_244_500),
            ("1795508644.5", 1_795_508_644_500),
            ("1795508644500", 1_795_508_644_500),
        ] {
            assert_eq!(ms(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_time() {
        for text in [
            "",
            "-",
            "24/Nov/2026",
            "24/Nov/2026:24:00:00 +0000",
            "32/Nov/2026:08:24:04 +0000",
            "24/Foo/2026:08:24:04 +0000",
            "24/Nov/1969:08:24:04 +0000",
            "24/Nov/2026:08:24:04 0000",
            "2026-11-24T08:24",
            "2026-13-24T08:24:04Z",
            "01/Jan/1970:00:00:00 +0100",
            "9e99",
            "1e400",
            "nan",
            "99999999999999999999",
        ] {
            assert_eq!(ms(text), None, "{text}");
        }
    }
}
