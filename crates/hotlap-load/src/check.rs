//! Holds an answer against what was expected, piece by piece as it comes.

use std::fmt;

use crate::http::Head;
use crate::plan::{Body, Expect, Status};

/// What is wrong with a well-framed answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Status(u16),
    Length {
        got: u64,
        expected: usize,
    },
    /// The first byte that differs.
    Byte(usize),
}

impl fmt::Display for Fault {
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

/// The check of one answer.
#[derive(Debug, Default)]
pub(crate) struct Check {
    /// Bytes of the body so far.
    at: u64,
    fault: Option<Fault>,
    /// Its body is not among those that are looked at.
    skips: bool,
}

impl Check {
    /// The head of an answer has come.
    pub(crate) fn head(head: &Head, expect: &Expect, is_head: bool, skips: bool) -> Self {
        let is_right = match expect.status {
            Status::Success => (200..300).contains(&head.status),
            Status::Exactly(status) => head.status == status,
            Status::Any => true,
        };
        let mut check = Self { at: 0, fault: None, skips };
        if !is_right {
            check.fault = Some(Fault::Status(head.status));
        } else if let (true, Some(expected), Some(got)) =
            (is_head, length(&expect.body), head.length)
        {
            // A HEAD's answer says how long the body would be, and nothing more can be checked.
            check.fault = (got != expected as u64).then_some(Fault::Length { got, expected });
        }
        check
    }

    /// Whether the rest of the body may be thrown away unread.
    pub(crate) fn skips(&self) -> bool {
        self.skips
    }

    /// Bytes of the body were thrown away unread.
    pub(crate) fn skip(&mut self, count: u64) {
        self.at += count;
    }

    /// A piece of the body has come.
    pub(crate) fn data(&mut self, data: &[u8], expect: &Expect) {
        if let (Body::Bytes { bytes, varies }, None, false) = (&expect.body, self.fault, self.skips)
        {
            let at = self.at as usize;
            let known = bytes.get(at..).unwrap_or_default();
            let known = &known[..known.len().min(data.len())];
            if data[..known.len()] != *known {
                let mut unequal = data.iter().zip(known).enumerate().filter(|(_, (a, b))| a != b);
                let varies = |i: usize| varies.iter().any(|r| r.contains(&(at + i)));
                let first = unequal.find(|(i, _)| !varies(*i));
                self.fault = first.map(|(i, _)| Fault::Byte(at + i));
            }
        }
        self.at += data.len() as u64;
    }

    /// The answer is whole.
    pub(crate) fn end(&self, expect: &Expect, is_head: bool) -> Result<(), Fault> {
        match (self.fault, length(&expect.body)) {
            (Some(fault @ Fault::Status(_)), _) => Err(fault),
            (_, Some(expected)) if !is_head && self.at != expected as u64 => {
                Err(Fault::Length { got: self.at, expected })
            }
            (fault, _) => fault.map_or(Ok(()), Err),
        }
    }
}

fn length(body: &Body) -> Option<usize> {
    match body {
        Body::Any => None,
        Body::Length(length) => Some(*length),
        Body::Bytes { bytes, .. } => Some(bytes.len()),
    }
}
