//! The protocols that a server speaks, as its manifest names them.

use std::fmt;

use hotlap_load::plan;
use serde::{Deserialize, Serialize};

/// A protocol that a server speaks on its port: with a certificate those over TLS, otherwise the
/// others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// HTTP/1.1 without TLS.
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/2 without TLS, to clients that begin with its preface (RFC 9113 section 3.3).
    #[serde(rename = "h2c")]
    H2c,
    /// HTTP/1.1 over TLS.
    #[serde(rename = "https")]
    Https,
    /// HTTP/2 over TLS, to clients that ask for it in the handshake (RFC 9113 section 3.2).
    #[serde(rename = "h2")]
    H2,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Http1, Self::H2c, Self::Https, Self::H2];

    /// A version of HTTP, with TLS or without.
    pub const fn of(version: plan::Protocol, is_tls: bool) -> Self {
        match (version, is_tls) {
            (plan::Protocol::Http1, false) => Self::Http1,
            (plan::Protocol::Http2, false) => Self::H2c,
            (plan::Protocol::Http1, true) => Self::Https,
            (plan::Protocol::Http2, true) => Self::H2,
        }
    }

    /// Its version of HTTP.
    pub const fn version(self) -> plan::Protocol {
        match self {
            Self::Http1 | Self::Https => plan::Protocol::Http1,
            Self::H2c | Self::H2 => plan::Protocol::Http2,
        }
    }

    /// Whether it runs over TLS.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::H2)
    }

    /// Its name in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::H2c => "h2c",
            Self::Https => "https",
            Self::H2 => "h2",
        }
    }

    /// Its name in sentences.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::H2c => "HTTP/2 without TLS",
            Self::Https => "HTTPS",
            Self::H2 => "HTTP/2 over TLS",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
