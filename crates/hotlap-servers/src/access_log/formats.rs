//! Parsers for the formats of log lines, and of the times in them.
//!
//! - The Common and the Combined Log Format of Apache and nginx:
//!   `192.0.2.1 - ann [24/Nov/2026:08:24:04 +0000] "GET /a HTTP/1.1" 200 512 "referer" "agent"`.
//!   Only the time, the request and the status are read, so there may be other fields before the
//!   time and after the status.
//! - One JSON object per line. Caddy writes this format, and nginx can be configured to write it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Cause, Record, split};

/// The length limit of a time in brackets, in bytes, including the closing bracket.
const LONGEST_TIME: usize = 40;

/// Parses a line in Common or Combined Log Format.
pub(super) fn parse_combined(line: &[u8]) -> Result<Record<'_>, Cause> {
    let (time, rest) = time(line).ok_or(Cause::Format)?;
    let start = rest.iter().position(|b| *b == b'"').ok_or(Cause::Format)?;
    let (request, rest) = quoted(&rest[start + 1..]).ok_or(Cause::Format)?;
    let (method, target) = split(unescaped(request))?;
    Record::new(method, target, status(rest)?, Some(time))
}

/// Returns the first time in brackets, and the text after it.
fn time(line: &[u8]) -> Option<(Time, &[u8])> {
    let mut rest = line;
    loop {
        let open = rest.iter().position(|b| *b == b'[')?;
        rest = &rest[open + 1..];
        let close = rest.iter().take(LONGEST_TIME).position(|b| *b == b']');
        if let Some(close) = close
            && let Some(time) = Time::parse(&rest[..close])
        {
            return Some((time, &rest[close + 1..]));
        }
    }
}

/// Splits a text at its closing quote. A quote after a backslash does not close the text.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some((&text[..at], &text[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Removes the escapes from a text. Apache writes `\"`, `\\`, `\n` and the like. Apache and nginx
/// both write `\xHH`.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let Some((&escaped, after)) = rest.split_first().filter(|_| byte == b'\\') else {
            plain.push(byte);
            continue;
        };
        rest = after;
        match escaped {
            b'x' => match rest.split_at_checked(2).and_then(|(hex, after)| {
                let value = u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?;
                Some((value, after))
            }) {
                Some((value, after)) => {
                    plain.push(value);
                    rest = after;
                }
                None => plain.extend_from_slice(b"\\x"),
            },
            b'b' => plain.push(0x08),
            b'n' => plain.push(b'\n'),
            b'r' => plain.push(b'\r'),
            b't' => plain.push(b'\t'),
            b'v' => plain.push(0x0b),
            other => plain.push(other),
        }
    }
    Cow::Owned(plain)
}

/// Parses the status, which follows the request.
fn status(rest: &[u8]) -> Result<u16, Cause> {
    let word = rest.trim_ascii_start().split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let digits = std::str::from_utf8(word).ok().filter(|word| word.len() == 3);
    digits.and_then(|word| word.parse().ok()).ok_or(Cause::NoStatus)
}

/// Parses a line that is a JSON object.
pub(super) fn parse_json(line: &[u8]) -> Result<Record<'_>, Cause> {
    if let Ok(line) = serde_json::from_slice::<Line>(line) {
        return line.record();
    }
    // Without `escape=json`, nginx writes \xHH, which is not valid JSON.
    let fixed = with_json_escapes(line).ok_or(Cause::Format)?;
    let line: Line = serde_json::from_slice(&fixed).map_err(|_| Cause::Format)?;
    line.record().map(Record::into_owned)
}

/// Replaces `\xHH` with `\u00HH` in a line. Returns `None` if there is no such escape.
fn with_json_escapes(line: &[u8]) -> Option<Vec<u8>> {
    let (mut fixed, mut rest, mut has_any) = (Vec::with_capacity(line.len()), line, false);
    while let Some(at) = rest.iter().position(|b| *b == b'\\') {
        fixed.extend_from_slice(&rest[..at]);
        let is_hex = rest.get(at + 1) == Some(&b'x');
        has_any |= is_hex;
        match rest.get(at + 1) {
            Some(b'x') => fixed.extend_from_slice(b"\\u00"),
            Some(other) => fixed.extend_from_slice(&[b'\\', *other]),
            None => fixed.push(b'\\'),
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    fixed.extend_from_slice(rest);
    has_any.then_some(fixed)
}

/// The keys that are read from a JSON line: Caddy's keys, the names of nginx's variables, and
/// common names for times and methods.
#[derive(Deserialize)]
#[serde(default)]
struct Line<'a> {
    /// Caddy writes an object with `method` and `uri`. nginx writes the request line.
    #[serde(borrow)]
    request: Value<'a>,
    #[serde(borrow)]
    request_method: Value<'a>,
    #[serde(borrow)]
    method: Value<'a>,
    #[serde(borrow)]
    request_uri: Value<'a>,
    #[serde(borrow)]
    uri: Value<'a>,
    /// The query, which is missing from nginx's `uri`.
    #[serde(borrow)]
    args: Value<'a>,
    #[serde(borrow)]
    status: Value<'a>,
    #[serde(borrow)]
    ts: Value<'a>,
    #[serde(borrow)]
    msec: Value<'a>,
    #[serde(borrow)]
    time_iso8601: Value<'a>,
    #[serde(borrow)]
    time_local: Value<'a>,
    #[serde(borrow)]
    time: Value<'a>,
    #[serde(borrow)]
    timestamp: Value<'a>,
    #[serde(borrow, rename = "@timestamp")]
    at_timestamp: Value<'a>,
}

impl Default for Line<'_> {
    fn default() -> Self {
        const NONE: Value<'static> = Value::Other;
        Self {
            request: NONE,
            request_method: NONE,
            method: NONE,
            request_uri: NONE,
            uri: NONE,
            args: NONE,
            status: NONE,
            ts: NONE,
            msec: NONE,
            time_iso8601: NONE,
            time_local: NONE,
            time: NONE,
            timestamp: NONE,
            at_timestamp: NONE,
        }
    }
}

impl<'a> Line<'a> {
    fn record(self) -> Result<Record<'a>, Cause> {
        // The first known time counts. `ts` and `msec` come first, because they have fractions of
        // a second.
        let times = [
            self.ts,
            self.msec,
            self.time_iso8601,
            self.time_local,
            self.time,
            self.timestamp,
            self.at_timestamp,
        ];
        let time = times.iter().find_map(Value::time);
        let status = self.status.status().ok_or(Cause::NoStatus)?;
        let (method, target) = match self.request {
            Value::Request(method, uri) => (method, bytes(uri)),
            Value::Text(request) => split(bytes(request))?,
            _ => {
                let method = self.request_method.text().or(self.method.text());
                let target = match (self.request_uri.text(), self.uri.text(), self.args.text()) {
                    (Some(whole), _, _) => whole,
                    (None, Some(path), Some(query)) if !query.is_empty() && query != "-" => {
                        Cow::Owned(format!("{path}?{query}"))
                    }
                    (None, Some(path), _) => path,
                    (None, None, _) => return Err(Cause::NoRequest),
                };
                (method.ok_or(Cause::NoRequest)?, bytes(target))
            }
        };
        Record::new(method, target, status, time)
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// A JSON value of any type. Types that are not needed here become `Other`.
enum Value<'a> {
    Text(Cow<'a, str>),
    Integer(u64),
    Number(f64),
    /// An object with a method and a URI.
    Request(Cow<'a, str>, Cow<'a, str>),
    Other,
}

impl<'a> Value<'a> {
    fn text(self) -> Option<Cow<'a, str>> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn time(&self) -> Option<Time> {
        match self {
            Self::Text(text) => Time::parse(text.as_bytes()),
            Self::Integer(seconds) => Time::of_number(*seconds as f64, true),
            Self::Number(seconds) => Time::of_number(*seconds, false),
            _ => None,
        }
    }

    fn status(&self) -> Option<u16> {
        match self {
            Self::Text(text) => text.parse().ok(),
            Self::Integer(status) => u16::try_from(*status).ok(),
            _ => None,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(|value: Value<'de>| value)
    }
}

struct ValueVisitor;

/// The keys of Caddy's `request`.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Method,
    Uri,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Value::Integer(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut method, mut uri) = (Value::Other, Value::Other);
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Method => method = map.next_value()?,
                Key::Uri => uri = map.next_value()?,
                Key::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(match (method.text(), uri.text()) {
            (Some(method), Some(uri)) => Value::Request(method, uri),
            _ => Value::Other,
        })
    }
}

/// The time of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time {
    /// Nanoseconds since 1970.
    pub(super) ns: u64,
    /// Whether the log gives the time in whole seconds only.
    pub(super) is_whole_second: bool,
}

/// The limit of times that fit into 64 bits, in seconds since 1970: the year 2554.
const END_S: u64 = u64::MAX / 1_000_000_000;

/// Numbers of at least this size are in milliseconds. As seconds, they would be after the year
/// 5000.
const MILLISECONDS: f64 = 1e11;

impl Time {
    /// Parses `24/Nov/2026:08:24:04 +0000`, `2026-11-24T08:24:04.123+00:00`, or a number of
    /// seconds or milliseconds since 1970.
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

    /// Converts a number of seconds since 1970, or of milliseconds if the number is large.
    pub(super) fn of_number(number: f64, is_integer: bool) -> Option<Self> {
        let is_ms = number >= MILLISECONDS;
        let seconds = if is_ms { number / 1e3 } else { number };
        let is_known = (0.0..END_S as f64).contains(&seconds);
        let is_whole_second = is_integer && !is_ms;
        is_known.then_some(Self { ns: (seconds * 1e9).round() as u64, is_whole_second })
    }

    /// Converts a date and a time of day into seconds since 1970. `offset_s` is the offset from UTC
    /// in seconds.
    fn of_day(date: (u64, u64, u64), clock: (u64, u64, u64), offset_s: i64) -> Option<u64> {
        let ((year, month, day), (hour, minute, second)) = (date, clock);
        // The number of a leap second is 60.
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

/// Parses `24/Nov/2026:08:24:04 +0000`.
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

/// Parses `2026-11-24T08:24:04.123+00:00`. A space may replace the T, and a time without an offset
/// is in UTC.
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
    // Nine digits after the decimal point are nanoseconds.
    let ns = format!("{fraction:0<9}").get(..9).and_then(digits)?;
    Some(Time { ns: whole.ns + ns, is_whole_second: fraction.is_empty() })
}

/// Parses `+0100`, `+01:00` or `Z` into an offset in seconds.
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

/// Parses a number that consists of at most nine digits.
fn digits(text: &str) -> Option<u64> {
    let is_number = text.len() < 10 && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Returns the number of days from 1970 to a date (Howard Hinnant: chrono-compatible low-level date
/// algorithms, `days_from_civil`).
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..2554).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Let the year begin in March, so that the leap day is the last day of the year.
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
