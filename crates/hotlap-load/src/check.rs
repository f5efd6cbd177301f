//! Compares a response with the expected one, piece by piece as it arrives.

use std::fmt;

use crate::plan::{ExpectedBody, ExpectedResponse, ExpectedStatus};

/// The difference between a well-formed response and the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mismatch {
    Status(u16),
    Length {
        got: u64,
        expected: usize,
    },
    /// The first byte of the body that differs.
    Byte(usize),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Length { got, expected } => {
                write!(f, "a body of {got} bytes instead of {expected}")
            }
            Self::Byte(at) => write!(f, "the body differs from byte {at} on"),
        }
    }
}

/// The check of one response.
#[derive(Debug, Default)]
pub(crate) struct Check {
    /// Bytes of the body so far.
    length: u64,
    mismatch: Option<Mismatch>,
    /// Whether the contents of the body are not checked.
    skips_body: bool,
}

impl Check {
    /// Starts with the head of a response: its status, and the length of its body if it says so.
    pub(crate) fn new(
        status: u16,
        length: Option<u64>,
        expect: &ExpectedResponse,
        is_head: bool,
        skips_body: bool,
    ) -> Self {
        let is_expected = match expect.status {
            ExpectedStatus::Success => (200..300).contains(&status),
            ExpectedStatus::Exactly(expected) => status == expected,
            ExpectedStatus::Any => true,
        };
        let mut mismatch = None;
        if !is_expected {
            mismatch = Some(Mismatch::Status(status));
        } else if let (true, Some(expected), Some(got)) = (is_head, expect.body.length(), length) {
            // The response to a HEAD says how long the body would be; there is nothing else to
            // check.
            mismatch = (got != expected as u64).then_some(Mismatch::Length { got, expected });
        }
        Self { length: 0, mismatch, skips_body }
    }

    /// Whether the response is known to be wrong.
    pub(crate) fn is_wrong(&self) -> bool {
        self.mismatch.is_some()
    }

    /// Whether the rest of the body may be discarded unread.
    pub(crate) fn skips_body(&self) -> bool {
        self.skips_body
    }

    /// Accounts for bytes of the body that were discarded unread.
    pub(crate) fn skip(&mut self, count: u64) {
        self.length += count;
    }

    /// Checks a piece of the body.
    pub(crate) fn data(&mut self, data: &[u8], expect: &ExpectedResponse) {
        if let (ExpectedBody::Bytes { bytes, varies }, None, false) =
            (&expect.body, self.mismatch, self.skips_body)
        {
            let at = self.length as usize;
            let expected = bytes.get(at..).unwrap_or_default();
            let expected = &expected[..expected.len().min(data.len())];
            if data[..expected.len()] != *expected {
                let mut unequal =
                    data.iter().zip(expected).enumerate().filter(|(_, (a, b))| a != b);
                let may_vary = |i: usize| varies.iter().any(|r| r.contains(&(at + i)));
                let first = unequal.find(|(i, _)| !may_vary(*i));
                self.mismatch = first.map(|(i, _)| Mismatch::Byte(at + i));
            }
        }
        self.length += data.len() as u64;
    }

    /// The result for the complete response.
    pub(crate) fn finish(&self, expect: &ExpectedResponse, is_head: bool) -> Result<(), Mismatch> {
        match (self.mismatch, expect.body.length()) {
            (Some(mismatch @ Mismatch::Status(_)), _) => Err(mismatch),
            (_, Some(expected)) if !is_head && self.length != expected as u64 => {
                Err(Mismatch::Length { got: self.length, expected })
            }
            (mismatch, _) => mismatch.map_or(Ok(()), Err),
        }
    }
}
