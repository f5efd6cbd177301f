//! The server's address.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The server's address, and whether it uses TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The socket to connect to.
    pub endpoint: Endpoint,
    /// The TLS settings for `https`; `None` for `http`.
    pub tls: Option<Tls>,
}

/// The address of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix domain socket.
    Unix(PathBuf),
}

/// TLS settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// The name that the certificate must be valid for.
    pub server_name: String,
    /// Accept any certificate (`--insecure`).
    pub insecure: bool,
}

impl Endpoint {
    /// Whether connections stay on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Whether a socket bound to `source` can connect to the endpoint.
    pub(super) fn accepts_source(&self, source: &IpAddr) -> bool {
        match self {
            Self::Tcp(address) => address.is_ipv4() == source.is_ipv4(),
            Self::Unix(_) => false,
        }
    }
}

/// The target as it appears in messages: `http://127.0.0.1:8080`, `unix:/path`.
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match &self.endpoint {
            Endpoint::Tcp(address) => write!(f, "{scheme}://{address}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
