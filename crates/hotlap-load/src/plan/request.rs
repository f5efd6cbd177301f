//! One request, and the expected response.
//!
//! A request is a structure until a load starts. Then `requests` renders it for the protocol.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::PlanError;
use super::field::{Buffer, Field, Shared};

/// A request, and the expected response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The method of the request.
    pub method: String,
    /// The path and query.
    pub path: Text,
    /// All headers in order, including `Host` and any `Content-Length`.
    pub headers: Vec<(String, Text)>,
    /// The body of the request.
    pub body: Text,
    /// How often the request is sent, relative to the other requests. At least 1.
    pub weight: u32,
    /// The expected response.
    pub expect: ExpectedResponse,
}

/// A text in which some parts may vary from request to request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(Vec<Piece>);

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Piece {
    /// Bytes that are the same in each request.
    Bytes(#[serde(with = "readable")] Vec<u8>),
    /// The value of the plan's field with this index.
    Field(usize),
    /// The length of the request's body, for its `Content-Length`.
    BodyLength,
}

/// What makes a response correct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedResponse {
    /// The expected status code.
    pub status: ExpectedStatus,
    /// The expected body.
    pub body: ExpectedBody,
}

/// The status codes that are correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedStatus {
    /// Any status from 200 to 299.
    Success,
    /// Only this status.
    Exactly(u16),
    /// Any status.
    Any,
}

/// The bodies that are correct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedBody {
    /// Any body.
    Any,
    /// Any body of this length in bytes.
    Length(usize),
    /// These bytes, except for ranges that vary from response to response (such as a date or an
    /// id).
    Bytes {
        /// The complete body.
        bytes: Shared<u8>,
        /// The ranges that may differ, in order and without overlap.
        varies: Vec<Range<usize>>,
    },
    /// A text that varies. Its fields have the same values as in the request.
    Fields(Text),
}

/// Writes and reads bytes in JSON: as a string if they are UTF-8, and as numbers otherwise.
mod readable {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Readable {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => text.serialize(serializer),
            Err(_) => bytes.serialize(serializer),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        Ok(match Readable::deserialize(deserializer)? {
            Readable::Text(text) => text.into_bytes(),
            Readable::Bytes(bytes) => bytes,
        })
    }
}

impl Request {
    /// Creates a request with weight 1 that expects a status of 200 to 299 and any body. The
    /// headers begin with `Host`. They end with `Content-Length` if there is a body or the method
    /// expects a body. `headers` may contain either header instead, or `Transfer-Encoding` instead
    /// of the length.
    pub fn build(
        method: &str,
        path: &str,
        host: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Self {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        Self::of(method, path.into(), host, headers.collect(), body.into())
    }

    /// Creates a request like [`Request::build`], with placeholders (`${id}`) for fields in the
    /// path, the headers and the body. If the body has placeholders, its length is computed for
    /// each request.
    ///
    /// # Errors
    /// A placeholder does not name a field.
    pub fn with_fields(
        method: &str,
        path: &str,
        host: &str,
        headers: &[(String, String)],
        body: &[u8],
        fields: &[Field],
    ) -> Result<Self, UnknownField> {
        let text = |text: &[u8]| Text::parse(text, fields);
        let header = |(name, value): &(String, String)| Ok((name.clone(), text(value.as_bytes())?));
        let headers = headers.iter().map(header).collect::<Result<_, _>>()?;
        Ok(Self::of(method, text(path.as_bytes())?, host, headers, text(body)?))
    }

    fn of(
        method: &str,
        path: Text,
        host: &str,
        mut headers: Vec<(String, Text)>,
        body: Text,
    ) -> Self {
        let has = |headers: &[(String, Text)], name: &str| {
            headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
        };
        if !has(&headers, "host") {
            headers.insert(0, ("Host".to_owned(), host.into()));
        }
        // RFC 9110 section 8.6: if the method expects a body, a request without a body should say
        // so.
        let states_length = !body.0.is_empty() || matches!(method, "POST" | "PUT" | "PATCH");
        let is_framed = has(&headers, "content-length") || has(&headers, "transfer-encoding");
        if states_length && !is_framed {
            let length = match body.varies() {
                true => Text(vec![Piece::BodyLength]),
                false => body.constant().len().to_string().as_str().into(),
            };
            headers.push(("Content-Length".to_owned(), length));
        }
        let expect = ExpectedResponse { status: ExpectedStatus::Success, body: ExpectedBody::Any };
        Self { method: method.to_owned(), path, headers, body, weight: 1, expect }
    }

    /// Creates a GET request without further headers, as [`Request::build`] does.
    pub fn get(path: &str, host: &str) -> Self {
        Self::build("GET", path, host, &[], b"")
    }

    /// Returns the same request, expecting exactly this body.
    pub fn expecting(mut self, body: &[u8]) -> Self {
        let bytes = body.to_vec().into();
        self.expect.body = ExpectedBody::Bytes { bytes, varies: Vec::new() };
        self
    }

    /// Returns whether this is a HEAD request. Its response has no body, whatever the headers say
    /// (RFC 9110 section 9.3.2).
    pub fn is_head(&self) -> bool {
        self.method.eq_ignore_ascii_case("HEAD")
    }

    /// Returns the bytes that HTTP/1.1 sends, without the values of fields.
    pub fn bytes(&self) -> Vec<u8> {
        self.http1(false).constant()
    }

    /// Returns the text for HTTP/1.1. With `closes`, `Connection: close` is added unless the
    /// request has its own `Connection` header.
    pub(crate) fn http1(&self, closes: bool) -> Text {
        let mut text = Text::default();
        text.push(format!("{} ", self.method).as_bytes());
        text.append(&self.path);
        text.push(b" HTTP/1.1\r\n");
        if closes && !self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("connection")) {
            text.push(b"Connection: close\r\n");
        }
        for (name, value) in &self.headers {
            text.push(format!("{name}: ").as_bytes());
            text.append(value);
            text.push(b"\r\n");
        }
        text.push(b"\r\n");
        text.append(&self.body);
        text
    }

    /// Returns all texts that may vary, including the text of the expected body.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Text> {
        let expected = match &self.expect.body {
            ExpectedBody::Fields(text) => Some(text),
            _ => None,
        };
        let headers = self.headers.iter().map(|(_, value)| value);
        [&self.path, &self.body].into_iter().chain(headers).chain(expected)
    }

    /// Checks that the request can be sent with this number of fields, and that the expected body
    /// is valid.
    pub(super) fn check(&self, fields: usize) -> Result<(), PlanError> {
        let out_of_range = |why: &str| Err(PlanError::OutOfRange(why.to_owned()));
        let is_unknown = |piece: &Piece| matches!(piece, Piece::Field(index) if *index >= fields);
        if self.method.is_empty() {
            return out_of_range("a request has no method");
        }
        if self.texts().any(|text| text.pieces().iter().any(is_unknown)) {
            return out_of_range("a request refers to a field that does not exist");
        }
        let ExpectedBody::Bytes { bytes, varies } = &self.expect.body else { return Ok(()) };
        let mut end = 0;
        for range in varies {
            if range.start < end || range.end < range.start || range.end > bytes.len() {
                return out_of_range(
                    "the varying ranges of a body must be in order, must not overlap, and must \
                     lie within the body",
                );
            }
            end = range.end;
        }
        Ok(())
    }
}

impl ExpectedStatus {
    /// Returns whether this status is correct.
    pub fn accepts(self, status: u16) -> bool {
        match self {
            Self::Success => (200..300).contains(&status),
            Self::Exactly(expected) => status == expected,
            Self::Any => true,
        }
    }
}

impl ExpectedBody {
    /// Returns the expected length in bytes. Returns `None` if any length is accepted.
    pub(crate) fn length(&self) -> Option<usize> {
        match self {
            // Values are inserted before a body is compared. Until then, its length is unknown.
            Self::Any | Self::Fields(_) => None,
            Self::Length(length) => Some(*length),
            Self::Bytes { bytes, .. } => Some(bytes.len()),
        }
    }
}

/// Returns the position in the body at which a piece first differs from the expected body. Ranges
/// that vary are ignored. The piece starts at byte `at` of the body. Bytes beyond the end of the
/// expected body are not compared, because the lengths differ then.
pub fn first_difference(
    piece: &[u8],
    at: usize,
    expected: &[u8],
    varies: &[Range<usize>],
) -> Option<usize> {
    let expected = expected.get(at..).unwrap_or_default();
    let end = at + expected.len().min(piece.len());
    let (piece, expected) = (&piece[..end - at], &expected[..end - at]);
    if piece == expected {
        return None;
    }
    let mut from = at;
    let reached = varies.partition_point(|range| range.end <= at);
    for range in varies[reached..].iter().chain([&(end..end)]) {
        let fixed = from - at..range.start.clamp(from, end) - at;
        if piece[fixed.clone()] != expected[fixed.clone()] {
            let mut bytes = piece[fixed.clone()].iter().zip(&expected[fixed]);
            return bytes.position(|(a, b)| a != b).map(|first| from + first);
        }
        from = range.end.clamp(from, end);
        if range.start >= end {
            break;
        }
    }
    None
}

impl Text {
    /// Parses a text with placeholders (`${id}`) for fields. `$${` becomes a literal `${`.
    ///
    /// # Errors
    /// A placeholder does not name a field.
    pub fn parse(text: &[u8], fields: &[Field]) -> Result<Self, UnknownField> {
        let mut parsed = Self::default();
        let mut rest = text;
        while let Some(found) = rest.windows(2).position(|pair| pair == b"${") {
            if found > 0 && rest[found - 1] == b'$' {
                parsed.push(&rest[..found]);
                parsed.push(b"{");
                rest = &rest[found + 2..];
                continue;
            }
            let Some(length) = rest[found + 2..].iter().position(|b| *b == b'}') else { break };
            parsed.push(&rest[..found]);
            let name = &rest[found + 2..found + 2 + length];
            let Some(index) = fields.iter().position(|f| f.name.as_bytes() == name) else {
                return Err(UnknownField {
                    name: String::from_utf8_lossy(name).into_owned(),
                    known: fields.iter().map(|field| field.name.clone()).collect(),
                });
            };
            parsed.0.push(Piece::Field(index));
            rest = &rest[found + 3 + length..];
        }
        parsed.push(rest);
        Ok(parsed)
    }

    /// Returns the pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Returns whether any piece varies.
    pub fn varies(&self) -> bool {
        self.0.iter().any(|piece| !matches!(piece, Piece::Bytes(_)))
    }

    /// Returns the bytes that do not vary.
    pub fn constant(&self) -> Vec<u8> {
        let bytes = self.0.iter().filter_map(|piece| match piece {
            Piece::Bytes(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        bytes.collect::<Vec<_>>().concat()
    }

    /// Changes the bytes of each piece that does not vary.
    pub fn replace(&mut self, change: impl Fn(&[u8]) -> Vec<u8>) {
        for piece in &mut self.0 {
            if let Piece::Bytes(bytes) = piece {
                *bytes = change(bytes);
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            _ if bytes.is_empty() => {}
            Some(Piece::Bytes(last)) => last.extend_from_slice(bytes),
            _ => self.0.push(Piece::Bytes(bytes.to_vec())),
        }
    }

    fn append(&mut self, other: &Self) {
        for piece in &other.0 {
            match piece {
                Piece::Bytes(bytes) => self.push(bytes),
                varying => self.0.push(varying.clone()),
            }
        }
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        let mut text = Self::default();
        text.push(bytes);
        text
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

/// The error for a placeholder that does not name a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownField {
    /// The name in the placeholder.
    pub name: String,
    /// The names of all fields.
    pub known: Vec<String>,
}

impl UnknownField {
    fn text(&self) -> String {
        let Self { name, known } = self;
        let name = if name.is_empty() { "without a name" } else { name };
        match known.is_empty() {
            true => format!(
                "unknown field {name}: no fields are defined (for a literal ${{, write $${{)"
            ),
            false => format!("unknown field {name}: the fields are {}", known.join(", ")),
        }
    }
}

/// Returns whether a text has placeholders, and each of them names a field.
pub fn has_fields(text: &[u8], fields: &[Field]) -> bool {
    Text::parse(text, fields).is_ok_and(|text| text.varies())
}

/// Returns the text with the `number`-th values of all fields instead of the placeholders, for the
/// server with the number `unique`. If a placeholder does not name a field, the text stays
/// unchanged.
pub fn fill(text: &[u8], fields: &[Field], seed: u64, unique: u64, number: u64) -> Vec<u8> {
    let Ok(parsed) = Text::parse(text, fields) else { return text.to_vec() };
    let (mut filled, mut buffer) = (Vec::new(), Buffer::default());
    for piece in parsed.pieces() {
        match piece {
            Piece::Bytes(bytes) => filled.extend_from_slice(bytes),
            Piece::Field(index) => {
                let field = &fields[*index];
                let key = field.key(field.source.seed(seed, unique), *index);
                filled.extend_from_slice(field.source.value(key, number, &mut buffer));
            }
            Piece::BodyLength => {}
        }
    }
    filled
}

/// Escapes `${` in a text, so that [`Text::parse`] finds no placeholders and returns the original
/// bytes.
pub fn escape(text: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    for (at, byte) in text.iter().enumerate() {
        if *byte == b'$' && text.get(at + 1) == Some(&b'{') {
            escaped.push(b'$');
        }
        escaped.push(*byte);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ValueSource;

    fn fields() -> Vec<Field> {
        ["id", "name"].map(|n| Field::new(n, ValueSource::Uuid)).to_vec()
    }

    fn text(text: &str) -> Text {
        Text::parse(text.as_bytes(), &fields()).unwrap()
    }

    #[test]
    fn placeholders_become_pieces() {
        let bytes = |bytes: &str| Piece::Bytes(bytes.as_bytes().to_vec());
        let (id, name) = (Piece::Field(0), Piece::Field(1));
        let expected = [bytes("/a/"), id.clone(), bytes("/"), name, id, bytes("?x")];
        assert_eq!(text("/a/${id}/${name}${id}?x").pieces(), expected);
    }

    #[test]
    fn a_text_is_filled_with_values() {
        let counter = |name: &str, from| Field::new(name, ValueSource::Counter { from });
        let fields = [counter("a", 0), counter("b", 10)];
        assert_eq!(fill(b"${b}/${a}/$${a}", &fields, 0, 0, 3), b"13/3/${a}");
        assert!(has_fields(b"${a}", &fields) && !has_fields(b"$${a}", &fields));
    }

    #[test]
    fn a_doubled_dollar_sign_is_a_literal_one() {
        for (text, expected) in
            [("$${id}", "${id}"), ("a$$${id}", "a$${id}"), ("${id", "${id"), ("$id", "$id")]
        {
            assert_eq!(Text::parse(text.as_bytes(), &fields()), Ok(expected.into()));
        }
    }

    #[test]
    fn an_unknown_field_is_named_with_the_known_ones() {
        let error = Text::parse(b"${user}", &fields()).unwrap_err().to_string();
        assert_eq!(error, "unknown field user: the fields are id, name");
        let error = Text::parse(b"${user}", &[]).unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown field user: no fields are defined (for a literal ${, write $${)"
        );
    }

    #[test]
    fn a_request_states_the_length_of_its_body_once() {
        let text = |headers: &[(&str, &str)], body: &[u8]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let headers: Vec<_> = headers.iter().map(owned).collect();
            String::from_utf8(Request::build("POST", "/", "h", &headers, body).bytes()).unwrap()
        };
        let start = "POST / HTTP/1.1\r\nHost: h\r\n";
        assert_eq!(text(&[], b""), format!("{start}Content-Length: 0\r\n\r\n"));
        assert_eq!(Request::get("/", "h").bytes(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(text(&[], b"{}"), format!("{start}Content-Length: 2\r\n\r\n{{}}"));
        assert_eq!(
            text(&[("host", "other"), ("X-A", "b")], b"{}"),
            "POST / HTTP/1.1\r\nhost: other\r\nX-A: b\r\nContent-Length: 2\r\n\r\n{}"
        );
        let explicit = text(&[("content-LENGTH", "2")], b"{}");
        assert_eq!(explicit, format!("{start}content-LENGTH: 2\r\n\r\n{{}}"));
        let chunked = text(&[("Transfer-Encoding", "chunked")], b"0\r\n\r\n");
        assert_eq!(chunked, format!("{start}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"));
    }

    #[test]
    fn a_request_survives_json() {
        let mut request = Request::build("POST", "/ä", "h", &[], b"{}");
        request.body = Text::parse(b"\xff${id}", &fields()).unwrap();
        let json = serde_json::to_string(&request).unwrap();
        assert!(json.contains(r#""path":[{"bytes":"/ä"}]"#), "{json}");
        assert!(json.contains(r#""body":[{"bytes":[255]},{"field":0}]"#), "{json}");
        assert_eq!(serde_json::from_str::<Request>(&json).unwrap(), request);
    }

    #[test]
    fn the_only_request_of_a_connection_says_so_once() {
        let closes = b"GET / HTTP/1.1\r\nConnection: close\r\nHost: h\r\n\r\n";
        assert_eq!(Request::get("/", "h").http1(true).constant(), closes);
        let headers = [("connection".to_owned(), "close".to_owned())];
        let own = Request::build("GET", "/", "h", &headers, b"");
        let expected = b"GET / HTTP/1.1\r\nHost: h\r\nconnection: close\r\n\r\n";
        assert_eq!(own.http1(true).constant(), expected);
    }
}
