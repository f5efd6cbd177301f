//! One request, and the expected response.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::error::PlanError;
use crate::http;

/// A request, built once, and the expected response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The bytes on the wire: request line, headers, blank line, body.
    pub bytes: Vec<u8>,
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
}

impl Request {
    /// A request with weight 1 that expects a status of 200 to 299 and any body.
    #[must_use]
    pub fn build(
        method: &str,
        path: &str,
        host: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Self {
        Self {
            bytes: http::request(method, path, host, headers, body),
            is_head: method.eq_ignore_ascii_case("HEAD"),
            weight: 1,
            expect: ExpectedResponse { status: ExpectedStatus::Success, body: ExpectedBody::Any },
        }
    }

    /// A GET request without further headers, as [`Request::build`] makes it.
    #[must_use]
    pub fn get(path: &str, host: &str) -> Self {
        Self::build("GET", path, host, &[], b"")
    }

    /// The same request, expecting exactly this body.
    #[must_use]
    pub fn expecting(mut self, body: &[u8]) -> Self {
        self.expect.body = ExpectedBody::Bytes { bytes: body.to_vec(), varies: Vec::new() };
        self
    }

    /// Whether the request can be sent, and its expectation makes sense.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        if self.bytes.is_empty() {
            return Err(PlanError::OutOfRange("a request is empty".to_owned()));
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

impl ExpectedBody {
    /// The expected length in bytes; `None` if any length is accepted.
    pub(crate) fn length(&self) -> Option<usize> {
        match self {
            Self::Any => None,
            Self::Length(length) => Some(*length),
            Self::Bytes { bytes, .. } => Some(bytes.len()),
        }
    }
}
