//! How requests and connections fail: kind, phase, and how often.

use serde::{Deserialize, Serialize};

/// How a request or a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The server refused the connection.
    Refused,
    /// The server reset the connection.
    Reset,
    /// The server closed the connection before the response was complete.
    ClosedEarly,
    /// No complete response within the timeout.
    Timeout,
    /// Not an HTTP response, or more bytes than requested.
    BadFraming,
    /// A well-formed response with the expected status, and an unexpected body or length.
    WrongBody,
    /// A well-formed response with an unexpected status.
    WrongStatus,
    /// The TLS handshake or a TLS record failed.
    Tls,
    /// A TLS connection ended without `close_notify` within a response that the end of the
    /// connection delimits, so it may be incomplete (RFC 8446 section 6.1, RFC 9112 section 9.8).
    Truncated,
    /// The server reset the stream of the request (HTTP/2); the connection goes on.
    StreamReset,
    /// No local port is free for another connection: each closed connection occupies its port for a
    /// minute (TIME_WAIT).
    NoPort,
    /// Any other error of the system (too many open files, no route).
    Other,
}

impl Failure {
    /// All kinds, in order: `ALL[kind as usize]` is `kind`.
    pub(crate) const ALL: [Self; 12] = [
        Self::Refused,
        Self::Reset,
        Self::ClosedEarly,
        Self::Timeout,
        Self::BadFraming,
        Self::WrongBody,
        Self::WrongStatus,
        Self::Tls,
        Self::Truncated,
        Self::StreamReset,
        Self::NoPort,
        Self::Other,
    ];
}

/// The phase of a request in which it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// While connecting, including the TLS handshake.
    Connect,
    /// While sending the request.
    Send,
    /// While waiting for the first byte of the response.
    FirstByte,
    /// While reading the rest of the response.
    Body,
    /// Between requests.
    Idle,
}

impl Phase {
    /// All phases, in order: `ALL[phase as usize]` is `phase`.
    pub(crate) const ALL: [Self; 5] =
        [Self::Connect, Self::Send, Self::FirstByte, Self::Body, Self::Idle];
}

/// Failures, counted by kind and phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Failures(pub Vec<FailureCount>);

/// The failures of one kind in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// The kind.
    pub failure: Failure,
    /// The phase.
    pub phase: Phase,
    /// Their number.
    pub count: u64,
}

impl Failures {
    /// Counts `count` more failures.
    pub fn add(&mut self, failure: Failure, phase: Phase, count: u64) {
        match self.0.iter_mut().find(|c| c.failure == failure && c.phase == phase) {
            Some(c) => c.count += count,
            None => self.0.push(FailureCount { failure, phase, count }),
        }
    }

    /// The number of all failures.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|c| c.count).sum()
    }

    /// The number of failures of one kind, in any phase.
    pub fn of(&self, failure: Failure) -> u64 {
        self.0.iter().filter(|c| c.failure == failure).map(|c| c.count).sum()
    }

    /// The most frequent kind.
    pub fn most(&self) -> Option<Failure> {
        Failure::ALL.into_iter().rev().max_by_key(|kind| self.of(*kind)).filter(|k| self.of(*k) > 0)
    }

    /// Adds all failures of `other`.
    pub fn merge(&mut self, other: &Self) {
        for c in &other.0 {
            self.add(c.failure, c.phase, c.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_phases_are_numbered_in_the_order_of_their_lists() {
        for (number, failure) in Failure::ALL.iter().enumerate() {
            assert_eq!(*failure as usize, number);
        }
        for (number, phase) in Phase::ALL.iter().enumerate() {
            assert_eq!(*phase as usize, number);
        }
    }
}
