//! Logs with one JSON object a line: as Caddy writes them, and as people configure nginx to.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::record::{Cause, Record, split};
use super::time::Time;

/// Parses a line.
pub(super) fn parse(line: &[u8]) -> Result<Record<'_>, Cause> {
    if let Ok(line) = serde_json::from_slice::<Line>(line) {
        return line.record();
    }
    // nginx writes \xHH, which JSON does not know, unless it is told `escape=json`.
    let fixed = with_json_escapes(line).ok_or(Cause::Format)?;
    let line: Line = serde_json::from_slice(&fixed).map_err(|_| Cause::Format)?;
    line.record().map(Record::into_owned)
}

/// The same with `\u00HH` for `\xHH`; `None` if there is no such escape.
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

/// The keys of a line that are read: those of Caddy, and nginx's variables by their names.
#[derive(Deserialize)]
#[serde(default)]
struct Line<'a> {
    /// Caddy: an object with `method` and `uri`. nginx: the request line.
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
    /// The query, which nginx's `uri` does not have.
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
        // The most accurate time comes first.
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

/// A value of any type, as far as it matters here.
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
