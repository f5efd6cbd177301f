//! The server's address and protocol.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The server's address, and how it is spoken to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The socket to connect to.
    pub endpoint: Endpoint,
    /// The TLS settings for `https`; `None` for `http`.
    pub tls: Option<Tls>,
    /// The protocol.
    #[serde(default)]
    pub protocol: Protocol,
}

/// The protocol of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// HTTP/1.1 (RFC 9112).
    #[default]
    Http1,
    /// HTTP/2 (RFC 9113): over TLS if the server agrees to it (ALPN), without TLS at once (prior
    /// knowledge, section 3.3).
    Http2,
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
    /// The certificates to trust instead of the system's, in DER; empty: the system's.
    #[serde(default)]
    pub authorities: Vec<Vec<u8>>,
    /// The client's own certificate.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// Whether a connection resumes the session of an earlier one (RFC 8446 section 2.2). Otherwise
    /// all handshakes are full ones.
    #[serde(default)]
    pub resumes: bool,
    /// The cipher suites to offer, by their names in the IANA's registry; empty: all.
    #[serde(default)]
    pub ciphers: Vec<String>,
}

/// A certificate with which the client identifies itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The certificate, followed by those that lead to an authority, in DER.
    pub chain: Vec<Vec<u8>>,
    /// Its private key, in DER. It is a secret.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Tls {
    /// Full handshakes with a server that has a certificate for this name, from an authority that
    /// the system trusts.
    pub fn with(server_name: String) -> Self {
        Self {
            server_name,
            insecure: false,
            authorities: vec![],
            identity: None,
            resumes: false,
            ciphers: vec![],
        }
    }
}

impl Target {
    /// HTTP/1.1 without TLS.
    pub fn plain(endpoint: Endpoint) -> Self {
        Self { endpoint, tls: None, protocol: Protocol::Http1 }
    }
}

impl Endpoint {
    /// Whether connections stay on this machine.
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
