//! One request, and the expected response.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::error::PlanError;
use super::field::Field;
use super::insert::{BODY_LENGTH, Insert, Inserted, UnknownField, split};
use crate::http;

/// A request, built once, and the expected response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The bytes on the wire: request line, headers, blank line, body.
    pub bytes: Vec<u8>,
    /// Where values are inserted into the bytes, in order.
    #[serde(default)]
    pub inserts: Vec<Insert>,
    /// Whether it is a HEAD: the response has no body, whatever its headers say (RFC 9110 section
    /// 9.3.2).
    pub is_head: bool,
    /// How often it is sent, relative to the other requests; at least 1.
    pub weight: u32,
    /// The expected response.
    pub expect: ExpectedResponse,
}

/// What makes a response correct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedResponse {
    /// The status code.
    pub status: ExpectedStatus,
    /// The body.
    pub body: ExpectedBody,
}

/// Which status codes are correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedStatus {
    /// 200 to 299.
    Success,
    /// Only this one.
    Exactly(u16),
    /// Any.
    Any,
}

/// Which bodies are correct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedBody {
    /// Any.
    Any,
    /// Any body of this length in bytes.
    Length(usize),
    /// These bytes, except for ranges that vary from response to response (a date, an id).
    Bytes {
        /// The complete body.
        bytes: Vec<u8>,
        /// The ranges that may differ, in order and without overlap.
        varies: Vec<Range<usize>>,
    },
    /// These bytes, with values of fields inserted. The values are those of the request.
    Fields {
        /// The body without the values.
        bytes: Vec<u8>,
        /// Where values are inserted, in order.
        inserts: Vec<Insert>,
    },
}

impl Request {
    /// A request with weight 1 that expects a status of 200 to 299 and any body.
    pub fn build(
        method: &str,
        path: &str,
        host: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Self {
        Self {
            bytes: http::request(method, path, host, headers, body),
            inserts: Vec::new(),
            is_head: method.eq_ignore_ascii_case("HEAD"),
            weight: 1,
            expect: ExpectedResponse { status: ExpectedStatus::Success, body: ExpectedBody::Any },
        }
    }

    /// The same, with placeholders (`${id}`) for fields in path, headers and body. If the body has
    /// any, its length is computed for each request.
    ///
    /// # Errors
    /// A placeholder names no field.
    pub fn with_fields(
        method: &str,
        path: &str,
        host: &str,
        headers: &[(String, String)],
        body: &[u8],
        fields: &[Field],
    ) -> Result<Self, UnknownField> {
        let has = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut headers = headers.to_vec();
        if !split(body, fields)?.1.is_empty() && !has("content-length") && !has("transfer-encoding")
        {
            headers.push(("Content-Length".to_owned(), BODY_LENGTH.to_owned()));
        }
        let request = Self::build(method, path, host, &headers, body);
        let (bytes, inserts) = split(&request.bytes, fields)?;
        Ok(Self { bytes, inserts, ..request })
    }

    /// A GET request without further headers, as [`Request::build`] makes it.
    pub fn get(path: &str, host: &str) -> Self {
        Self::build("GET", path, host, &[], b"")
    }

    /// The same request, expecting exactly this body.
    pub fn expecting(mut self, body: &[u8]) -> Self {
        self.expect.body = ExpectedBody::Bytes { bytes: body.to_vec(), varies: Vec::new() };
        self
    }

    /// All inserts, into the request and into its expected body.
    pub(crate) fn all_inserts(&self) -> impl Iterator<Item = &Insert> {
        let expected = match &self.expect.body {
            ExpectedBody::Fields { inserts, .. } => inserts.as_slice(),
            _ => &[],
        };
        self.inserts.iter().chain(expected)
    }

    /// Whether the request can be sent with this many fields, and its expectation makes sense.
    pub(super) fn check(&self, fields: usize) -> Result<(), PlanError> {
        if self.bytes.is_empty() {
            return Err(PlanError::OutOfRange("a request is empty".to_owned()));
        }
        check_inserts(&self.inserts, self.bytes.len(), fields)?;
        if let ExpectedBody::Fields { bytes, inserts } = &self.expect.body {
            check_inserts(inserts, bytes.len(), fields)?;
        }
        let ExpectedBody::Bytes { bytes, varies } = &self.expect.body else { return Ok(()) };
        let mut end = 0;
        for range in varies {
            if range.start < end || range.end < range.start || range.end > bytes.len() {
                let why = "the varying ranges of a body must be in order, must not overlap, and \
                           must lie within the body";
                return Err(PlanError::OutOfRange(why.to_owned()));
            }
            end = range.end;
        }
        Ok(())
    }
}

fn check_inserts(inserts: &[Insert], length: usize, fields: usize) -> Result<(), PlanError> {
    let mut from = 0;
    for insert in inserts {
        if insert.at < from || insert.at > length {
            let why = "inserts must be in order and lie within their text";
            return Err(PlanError::OutOfRange(why.to_owned()));
        }
        if matches!(insert.what, Inserted::Field(index) if index >= fields) {
            return Err(PlanError::OutOfRange("an insert refers to no such field".to_owned()));
        }
        from = insert.at;
    }
    Ok(())
}

impl ExpectedBody {
    /// The expected length in bytes; `None` if any length is accepted.
    pub(crate) fn length(&self) -> Option<usize> {
        match self {
            // Values are inserted before a body is compared; until then its length is unknown.
            Self::Any | Self::Fields { .. } => None,
            Self::Length(length) => Some(*length),
            Self::Bytes { bytes, .. } => Some(bytes.len()),
        }
    }
}
