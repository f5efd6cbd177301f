//! A request with its expected response, and the comparison of a response with the expected one.

use std::io::Read as _;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::read::GzDecoder;
use hotlap_load::plan::{
    ExpectedBody, ExpectedResponse, ExpectedStatus, Field, OrderEntry, Request, Shared, Text,
    escape, fill, has_fields,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::body::{Body, Response, quoted};
use super::template::formatted_like;
use super::world;

/// A request and its expected response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// The name in tables: `GET /bla`, `POST /bla with broken JSON`.
    pub name: String,
    /// How often the request is sent, relative to the other requests. At least 1.
    pub weight: u32,
    /// The method.
    pub method: String,
    /// The path and query.
    pub path: String,
    /// The headers, without `Host` and `Content-Length`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The expected status.
    pub status: ExpectedStatus,
    /// The expected media type, without parameters. `None` accepts any media type, or none.
    pub media_type: Option<String>,
    /// The expected `Content-Range` of a part. `None` accepts any value, or none.
    pub content_range: Option<String>,
    /// The shortest time that the response may take, in milliseconds.
    pub not_before_ms: u64,
    /// The expected body.
    pub content: Content,
}

/// The parts of requests that vary, and their order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Fields {
    /// The fields.
    pub list: Vec<Field>,
    /// The seed of the fields' random values.
    pub seed: u64,
    /// The server's number in its run, which makes UUIDs differ from server to server.
    #[serde(skip)]
    pub unique: u64,
    /// The order in which requests are sent, and their values. `None` if the order follows from
    /// weights. Only a recording, such as an access log, has an order.
    #[serde(default)]
    pub order: Option<Shared<OrderEntry>>,
}

impl Fields {
    /// Appends the given fields, unless all of them are in the list already. Fields with the same
    /// name must be equal.
    pub(super) fn join(&mut self, others: Vec<Field>) {
        let before = self.list.len();
        let has = |field: &Field| self.list.iter().any(|own| own.name == field.name);
        if others.iter().all(has) {
            return;
        }
        self.list.extend(others.into_iter().map(|field| Field {
            drawn_with: field.drawn_with.map(|index| before + index),
            ..field
        }));
    }
}

/// Which bodies are right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Any body.
    Any,
    /// These bytes, except for the ranges that vary.
    Bytes {
        /// The bytes.
        bytes: Shared<u8>,
        /// The ranges that may differ, in order and without overlap.
        varies: Vec<Range<usize>>,
    },
    /// These bytes, in which `${name}` stands for the value of a field in the request.
    Fields(Vec<u8>),
    /// `Hello World ` and the Unix time in milliseconds, accurate to 1 s.
    Clock,
    /// JSON with this value, in any formatting.
    Json(Value),
    /// This JSON with its keys in this order, in any formatting. `${name}` stands for the value of
    /// a field in the request.
    JsonText(Vec<u8>),
    /// These bytes, compressed by gzip (RFC 9110 section 8.4.1.3).
    Gzip(Shared<u8>),
    /// The page of the contract `fortunes`, with this message among the others. `${name}` stands
    /// for the value of a field in the request.
    Fortunes(Vec<u8>),
}

/// The text before the time in a response of the contract `clock`.
const CLOCK_PREFIX: &[u8] = b"Hello World ";

/// The bytes of the time, MTIME, in the header of a gzip member (RFC 1952 section 2.3.1).
const GZIP_TIME: Range<usize> = 4..8;

const CHECKED: &str = "placeholders are checked where requests are read";

/// How much earlier than requested a response may come. Event loops count whole milliseconds from
/// their last look at the clock.
const EARLY: Duration = Duration::from_millis(2);

/// How far a server's clock may be off, in milliseconds.
const CLOCK_SLACK_MS: i128 = 1_000;

impl Exchange {
    pub(super) fn get(path: &str, media_type: Option<&str>, content: Content) -> Self {
        Self {
            name: format!("GET {path}"),
            weight: 1,
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            status: ExpectedStatus::Exactly(200),
            media_type: media_type.map(str::to_owned),
            content_range: None,
            not_before_ms: 0,
            content,
        }
    }

    pub(super) fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    pub(super) fn answered(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// Returns whether the response has no body, whatever its headers say (RFC 9110 section 9.3.2).
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns whether the method is safe (RFC 9110 section 9.2.1), so that the request may be sent
    /// any number of times.
    pub fn is_safe(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE")
    }

    /// Returns the request that tests whether a server is up. For a safe request, the result is
    /// the request itself. For an unsafe request, the result is a GET of the same path, for which
    /// any response counts.
    pub fn readiness(&self) -> Self {
        if self.is_safe() {
            return self.clone();
        }
        Self {
            headers: self.headers.clone(),
            status: ExpectedStatus::Any,
            ..Self::get(&self.path, None, Content::Any)
        }
    }

    /// Returns the bytes of the request.
    pub fn bytes(&self, host: &str) -> Vec<u8> {
        self.bytes_with(host, &[])
    }

    /// Returns the bytes of the request with additional headers.
    pub fn bytes_with(&self, host: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let mut headers = self.headers.clone();
        headers.extend(more.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
        Request::build(&self.method, &self.path, host, &headers, &self.body).bytes()
    }

    /// Returns whether the exchange's requests differ from each other.
    pub fn varies(&self, fields: &Fields) -> bool {
        let list = &fields.list;
        let headers = self.headers.iter().any(|(_, value)| has_fields(value.as_bytes(), list));
        headers || has_fields(self.path.as_bytes(), list) || has_fields(&self.body, list)
    }

    /// Returns the exchange with the values that fields have in the `number`-th request.
    pub fn with_values(&self, fields: &Fields, number: u64) -> Self {
        let bytes = |text: &[u8]| fill(text, &fields.list, fields.seed, fields.unique, number);
        let text = |text: &str| String::from_utf8_lossy(&bytes(text.as_bytes())).into_owned();
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), text(value)));
        Self {
            path: text(&self.path),
            headers: headers.collect(),
            body: bytes(&self.body),
            content: match &self.content {
                Content::Fields(body) => Content::exactly(&bytes(body)),
                Content::JsonText(text) => Content::JsonText(bytes(text)),
                Content::Fortunes(brought) => Content::Fortunes(bytes(brought)),
                content => content.clone(),
            },
            ..self.clone()
        }
    }

    /// Returns the request to send under load, together with the expected response. Without a
    /// verified response, bodies that only a response can determine are not compared.
    ///
    /// # Panics
    /// If a placeholder names no field. Placeholders are checked where requests are read.
    pub fn request(&self, host: &str, verified: Option<&Response>, fields: &Fields) -> Request {
        let body = match (&self.content, verified) {
            (Content::Any, _) => ExpectedBody::Any,
            (Content::Fields(body), _) => expected_text(body, fields),
            (Content::Bytes { bytes, varies }, _) => {
                ExpectedBody::Bytes { bytes: bytes.clone(), varies: varies.clone() }
            }
            (_, None) => ExpectedBody::Any,
            (Content::JsonText(template), Some(verified)) => {
                let filled = fill(template, &fields.list, fields.seed, fields.unique, 0);
                let own = formatted_like(template, &filled, verified.body.start());
                own.map_or(ExpectedBody::Any, |text| expected_text(&text, fields))
            }
            (Content::Fortunes(brought), Some(verified)) => {
                let filled = fill(brought, &fields.list, fields.seed, fields.unique, 0);
                let own = with_template(verified.body.start(), &filled, brought);
                own.map_or(ExpectedBody::Any, |text| expected_text(&text, fields))
            }
            (Content::Clock, Some(verified)) => {
                let bytes: Shared<u8> = verified.body.start().to_vec().into();
                let digits = CLOCK_PREFIX.len()..bytes.len();
                ExpectedBody::Bytes { bytes, varies: Vec::from_iter([digits]) }
            }
            (Content::Json(_), Some(verified)) => {
                let bytes = verified.body.start().to_vec().into();
                ExpectedBody::Bytes { bytes, varies: Vec::new() }
            }
            (Content::Gzip(_), Some(verified)) => {
                let bytes: Shared<u8> = verified.body.start().to_vec().into();
                // A server that compresses the file for each response may state the time.
                let varies = GZIP_TIME.end <= bytes.len();
                let varies = varies.then_some(GZIP_TIME).into_iter().collect();
                ExpectedBody::Bytes { bytes, varies }
            }
        };
        let Self { method, path, headers, .. } = self;
        let request = match fields.list.is_empty() {
            true => Request::build(method, path, host, headers, &self.body),
            false => Request::with_fields(method, path, host, headers, &self.body, &fields.list)
                .expect(CHECKED),
        };
        let expect = ExpectedResponse { status: self.status, body };
        Request { weight: self.weight, expect, ..request }
    }

    /// Describes the expected response in words.
    pub fn expected(&self) -> String {
        let status = match self.status {
            ExpectedStatus::Success => "2xx".to_owned(),
            ExpectedStatus::Exactly(status) => status.to_string(),
            ExpectedStatus::Any => "any status".to_owned(),
        };
        let media_type = self.media_type.as_ref().map(|t| format!(", {t}")).unwrap_or_default();
        let body = match &self.content {
            Content::Any => String::new(),
            Content::Bytes { bytes, varies } => {
                let but = if varies.is_empty() { "" } else { " (parts of it vary)" };
                format!(", {}{but}", quoted(bytes))
            }
            Content::Fields(bytes) => format!(", {}", quoted(bytes)),
            Content::Clock => ", \"Hello World \" and the Unix time in milliseconds".to_owned(),
            Content::Json(value) => format!(", {value}"),
            Content::JsonText(text) => format!(", {}", quoted(text)),
            Content::Gzip(bytes) => format!(", {} compressed by gzip", quoted(bytes)),
            Content::Fortunes(_) => ", the page of all fortunes in their order".to_owned(),
        };
        let wait = match self.not_before_ms {
            0 => String::new(),
            ms => format!(", after {ms} ms or more"),
        };
        format!("{status}{media_type}{body}{wait}")
    }

    /// Checks that a response did not come too early.
    ///
    /// # Errors
    /// If the response came too early. The error says when the response came.
    pub fn check_time(&self, took: Duration) -> Result<(), String> {
        match took + EARLY < Duration::from_millis(self.not_before_ms) {
            true => Err(format!("a response after {} ms", took.as_millis())),
            false => Ok(()),
        }
    }

    /// Compares a response that arrived at the time `now` with the expected one.
    ///
    /// # Errors
    /// If the response is wrong. The error says how.
    pub fn check(&self, answer: &Response, now: SystemTime) -> Result<(), String> {
        if !self.status.accepts(answer.status) {
            return Err(described(answer));
        }
        let bare = answer.body.is_empty() && matches!(self.content, Content::Any);
        if let (Some(expected), false) = (&self.media_type, bare) {
            match answer.header("content-type").map(String::from_utf8_lossy) {
                Some(got) if essence(&got) == *expected => {}
                Some(got) => return Err(format!("Content-Type {got}")),
                None => return Err("no Content-Type".to_owned()),
            }
        }
        // RFC 9110 sections 14.4 and 15.3.7.1.
        if let Some(expected) = &self.content_range {
            match answer.header("content-range") {
                Some(got) if got.eq_ignore_ascii_case(expected.as_bytes()) => {}
                Some(got) => {
                    let got = String::from_utf8_lossy(got);
                    return Err(format!("Content-Range {got}, not {expected}"));
                }
                None => return Err("no Content-Range".to_owned()),
            }
        }
        if let Content::Gzip(_) = self.content {
            match answer.header("content-encoding") {
                Some(coding) if coding.eq_ignore_ascii_case(b"gzip") => {}
                Some(_) => return Err("a Content-Encoding other than gzip".to_owned()),
                None => return Err("no Content-Encoding".to_owned()),
            }
        }
        self.content.check(&answer.body, now)
    }
}

impl Content {
    /// Returns an empty body that is compared with this content as it arrives. Content that is not
    /// known byte for byte is not compared.
    pub fn compared(&self) -> Body {
        match self {
            Self::Bytes { bytes, varies } => Body::compared_with(bytes.clone(), varies.clone()),
            _ => Body::default(),
        }
    }

    /// Returns a content that consists of exactly these bytes.
    pub fn exactly(bytes: &[u8]) -> Self {
        Self::Bytes { bytes: bytes.to_vec().into(), varies: Vec::new() }
    }

    fn check(&self, body: &Body, now: SystemTime) -> Result<(), String> {
        let right = match self {
            // `Exchange::with_values` turns `Fields` into `Bytes` before a response is checked.
            Self::Any | Self::Fields(_) => true,
            Self::Bytes { bytes, varies } => body.is(bytes, varies),
            Self::Clock => return check_clock(body, now),
            Self::JsonText(text) => formatted_like(text, text, body.start()).is_some(),
            Self::Gzip(bytes) => {
                let mut plain = Vec::new();
                // Reading one byte more than expected shows that the text is too long.
                let most = bytes.len() as u64 + 1;
                let read = GzDecoder::new(body.start()).take(most).read_to_end(&mut plain);
                read.is_ok() && plain[..] == bytes[..]
            }
            Self::Fortunes(brought) => {
                world::check(body.start(), &String::from_utf8_lossy(brought))?;
                // The message must occur exactly once. Otherwise, pages could not be compared under
                // load.
                with_template(body.start(), brought, brought).is_some()
            }
            Self::Json(value) => match serde_json::from_slice::<Value>(body.start()) {
                Ok(got) => got == *value,
                Err(error) => return Err(format!("body {} is not JSON: {error}", body.quoted())),
            },
        };
        if right { Ok(()) } else { Err(format!("body {}", body.quoted())) }
    }
}

/// Returns the text that a body must have. Placeholders in the text stand for the values of the
/// request.
///
/// # Panics
/// If a placeholder names no field.
fn expected_text(text: &[u8], fields: &Fields) -> ExpectedBody {
    let text = Text::parse(text, &fields.list).expect(CHECKED);
    match text.varies() {
        true => ExpectedBody::Fields(text),
        false => ExpectedBody::Bytes { bytes: text.constant().into(), varies: Vec::new() },
    }
}

/// Replaces a filled text in a body with its template. Returns `None` unless the text occurs
/// exactly once.
fn with_template(body: &[u8], filled: &[u8], template: &[u8]) -> Option<Vec<u8>> {
    let mut places =
        (0..body.len()).filter(|at| !filled.is_empty() && body[*at..].starts_with(filled));
    let at = places.next()?;
    if places.next().is_some() {
        return None;
    }
    Some([&escape(&body[..at]), template, &escape(&body[at + filled.len()..])].concat())
}

fn check_clock(body: &Body, now: SystemTime) -> Result<(), String> {
    let digits = body.start().strip_prefix(CLOCK_PREFIX).unwrap_or_default();
    let told: Option<i128> = std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
    let Some(told) = told.filter(|_| digits.iter().all(u8::is_ascii_digit)) else {
        return Err(format!("body {}", body.quoted()));
    };
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i128);
    match told - now {
        off if off.abs() <= CLOCK_SLACK_MS => Ok(()),
        off => Err(format!("body {}: the time is {off} ms off", body.quoted())),
    }
}

/// Returns the media type without its parameters, in lower case (RFC 9110 section 8.3.1).
pub(super) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Describes a response briefly.
pub fn described(answer: &Response) -> String {
    match answer.body.len() {
        0 => format!("{} without a body", answer.status),
        _ => format!("{} {}", answer.status, answer.body.quoted()),
    }
}
