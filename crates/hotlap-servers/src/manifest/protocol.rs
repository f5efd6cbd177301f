//! The protocols that a server speaks, as its manifest names them.

use std::fmt;

use hotlap_load::plan;
use serde::{Deserialize, Serialize};

/// A protocol that a server speaks on its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// HTTP/1.1.
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/2 without TLS, to clients that begin with its preface (RFC 9113 section 3.3).
    #[serde(rename = "h2c")]
    H2c,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 2] = [Self::Http1, Self::H2c];

    /// Its name in manifests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::H2c => "h2c",
        }
    }

    /// Its name in sentences.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::H2c => "HTTP/2",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<Protocol> for plan::Protocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http1 => Self::Http1,
            Protocol::H2c => Self::Http2,
        }
    }
}

impl From<plan::Protocol> for Protocol {
    fn from(protocol: plan::Protocol) -> Self {
        match protocol {
            plan::Protocol::Http1 => Self::Http1,
            plan::Protocol::Http2 => Self::H2c,
        }
    }
}
