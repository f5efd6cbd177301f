//! A request with its expected response, and the comparison of a response with it.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use hotlap_load::plan::{
    ExpectedBody, ExpectedResponse, ExpectedStatus, Field, OrderEntry, Request, Shared, Text, fill,
    has_fields,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::body::{Body, Response, quoted};

/// A request and its expected response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Its name in tables: `GET /bla`, `POST /bla with broken JSON`.
    pub name: String,
    /// How often it is sent, relative to the other requests. At least 1.
    pub weight: u32,
    /// Its method.
    pub method: String,
    /// Its path and query.
    pub path: String,
    /// Its headers, without `Host` and `Content-Length`.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
    /// The expected status.
    pub status: ExpectedStatus,
    /// The expected media type, without parameters. `None`: any, or none.
    pub media_type: Option<String>,
    /// The expected body.
    pub content: Content,
}

/// The parts of requests that vary, and their order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Fields {
    /// The fields.
    pub list: Vec<Field>,
    /// The seed of their random values.
    pub seed: u64,
    /// The server's number in its run, since UUIDs differ from server to server.
    #[serde(skip)]
    pub unique: u64,
    /// The order in which requests are sent, and with which values. `None`: by weights. Only a
    /// recording has one, such as an access log.
    #[serde(default)]
    pub order: Option<Shared<OrderEntry>>,
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
        /// Ranges that may differ: in order, without overlap.
        varies: Vec<Range<usize>>,
    },
    /// These bytes, in which `${name}` stands for the value of a field in the request.
    Fields(Vec<u8>),
    /// `Hello World ` and the Unix time in milliseconds, accurate to 1 s.
    Clock,
    /// JSON of this value, in any formatting.
    Json(Value),
}

/// The text before the time.
const CLOCK_PREFIX: &[u8] = b"Hello World ";

/// How far a clock may be off, in milliseconds.
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
            content,
        }
    }

    pub(super) fn answered(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// Whether its response has no body, whatever its headers say (RFC 9110 section 9.3.2).
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Whether the method is safe (RFC 9110 section 9.2.1), so that it may be sent any number of
    /// times.
    pub fn is_safe(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE")
    }

    /// The request that tests whether a server is up: this one, or, if this one is unsafe, a GET of
    /// its path, for which any response counts.
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

    /// The bytes of the request.
    pub fn bytes(&self, host: &str) -> Vec<u8> {
        self.bytes_with(host, &[])
    }

    /// The bytes of the request with additional headers.
    pub fn bytes_with(&self, host: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let mut headers = self.headers.clone();
        headers.extend(more.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
        Request::build(&self.method, &self.path, host, &headers, &self.body).bytes()
    }

    /// Whether it differs from request to request.
    pub fn varies(&self, fields: &Fields) -> bool {
        let list = &fields.list;
        let headers = self.headers.iter().any(|(_, value)| has_fields(value.as_bytes(), list));
        headers || has_fields(self.path.as_bytes(), list) || has_fields(&self.body, list)
    }

    /// The exchange with the values that fields have in the `number`-th request.
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
                content => content.clone(),
            },
            ..self.clone()
        }
    }

    /// The request to send under load, compared with a verified response. Without one, bodies that
    /// only a response can determine are not compared.
    ///
    /// # Panics
    /// If a placeholder names no field, which is checked where requests are read.
    pub fn request(&self, host: &str, verified: Option<&Response>, fields: &Fields) -> Request {
        const CHECKED: &str = "placeholders are checked where requests are read";
        let body = match (&self.content, verified) {
            (Content::Any, _) | (Content::Clock | Content::Json(_), None) => ExpectedBody::Any,
            (Content::Fields(body), _) => {
                let text = Text::parse(body, &fields.list).expect(CHECKED);
                match text.varies() {
                    true => ExpectedBody::Fields(text),
                    false => {
                        ExpectedBody::Bytes { bytes: text.constant().into(), varies: Vec::new() }
                    }
                }
            }
            (Content::Bytes { bytes, varies }, _) => {
                ExpectedBody::Bytes { bytes: bytes.clone(), varies: varies.clone() }
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

    /// The expected response, in words.
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
        };
        format!("{status}{media_type}{body}")
    }

    /// Compares a response with the expected one, at this time.
    ///
    /// # Errors
    /// What is wrong with it, in words.
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
        self.content.check(&answer.body, now)
    }
}

impl Content {
    /// A body that is compared with this content as it arrives. Content that is not known byte
    /// for byte is not compared.
    pub fn compared(&self) -> Body {
        match self {
            Self::Bytes { bytes, varies } => Body::compared_with(bytes.clone(), varies.clone()),
            _ => Body::default(),
        }
    }

    /// Exactly these bytes.
    pub fn exactly(bytes: &[u8]) -> Self {
        Self::Bytes { bytes: bytes.to_vec().into(), varies: Vec::new() }
    }

    fn check(&self, body: &Body, now: SystemTime) -> Result<(), String> {
        let right = match self {
            // Values are inserted before a response is checked, see `Exchange::with_values`.
            Self::Any | Self::Fields(_) => true,
            Self::Bytes { bytes, varies } => body.is(bytes, varies),
            Self::Clock => return check_clock(body, now),
            Self::Json(value) => match serde_json::from_slice::<Value>(body.start()) {
                Ok(got) => got == *value,
                Err(error) => return Err(format!("body {} is not JSON: {error}", body.quoted())),
            },
        };
        if right { Ok(()) } else { Err(format!("body {}", body.quoted())) }
    }
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
        off => Err(format!("body {}: its clock is {off} ms off", body.quoted())),
    }
}

/// The media type without its parameters, in lower case (RFC 9110 section 8.3.1).
pub(super) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A short description of a response.
pub fn described(answer: &Response) -> String {
    match answer.body.len() {
        0 => format!("{} without a body", answer.status),
        _ => format!("{} {}", answer.status, answer.body.quoted()),
    }
}
