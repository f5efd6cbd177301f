//! Parses URLs as users type them: `http://`, `https://` and `unix:` URLs. `host:port` without a
//! scheme means `http://`.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use crate::plan::{Endpoint, Protocol, Target, Tls};

/// How long to wait for a connection to each address, if a name has several addresses.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// A URL, parsed and resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedUrl {
    /// The server to connect to, and how to connect.
    pub target: Target,
    /// The value of the `Host` header: name and port, without the default port of the scheme.
    pub host: String,
    /// The path and the query, at least `/`.
    pub path: String,
}

/// The reason why a URL cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The URL has no scheme, or an unsupported scheme.
    #[error(
        "{0:?} is not a URL: write http://…, https://…, host:port or \
         unix:/path/to/socket"
    )]
    Scheme(String),
    /// There is no host between the scheme and the path.
    #[error("{0:?} has no host")]
    NoHost(String),
    /// There is no path of a Unix socket.
    #[error("{0:?} has no socket: write unix:/path/to/socket")]
    NoSocket(String),
    /// The address has a zone (RFC 6874), so it is link-local.
    #[error(
        "{0:?} has a zone, and link-local addresses are not supported: use another address of that \
         host"
    )]
    Zone(String),
    /// The host is malformed.
    #[error("{url:?}: {host:?} is not a host name or address")]
    Host {
        /// The whole URL.
        url: String,
        /// The malformed host.
        host: String,
    },
    /// The port is not a number from 1 to 65535.
    #[error("{url:?}: {port:?} is not a port: use a number from 1 to 65535")]
    Port {
        /// The whole URL.
        url: String,
        /// The invalid port.
        port: String,
    },
    /// The URL contains credentials, which belong in a header.
    #[error("{0:?} contains credentials: send them as a header, -H 'Authorization: Basic …'")]
    UserInfo(String),
    /// The path contains a space or a control character.
    #[error("{0:?} has a space or a control character in its path: write %20 for a space")]
    Path(String),
    /// The host name cannot be resolved.
    #[error("cannot resolve {host:?}: {why}")]
    Unresolved {
        /// The host name.
        host: String,
        /// The error of the resolver.
        why: String,
    },
}

/// Parses a URL, or `host:port`, and looks up its address.
///
/// # Errors
/// The errors of [`Url::parse`] and [`Url::resolve`].
pub fn resolve(url: &str) -> Result<ResolvedUrl, UrlError> {
    Url::parse(url)?.resolve()
}

/// A parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether the scheme is `https`.
    pub is_tls: bool,
    /// The server, before its name is looked up.
    pub authority: Authority,
    /// The value of the `Host` header: name and port, without the default port of the scheme.
    pub host: String,
    /// The path and the query, at least `/`.
    pub path: String,
}

/// The server that a URL names, before the name is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// A name or an address, without brackets, and a port.
    Tcp(String, u16),
    /// The path of a Unix domain socket.
    Unix(PathBuf),
}

impl Url {
    /// Parses a URL, or `host:port`.
    ///
    /// # Errors
    /// The text is not a URL that hotlap supports.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        if is_address(url) {
            return Self::parse(&format!("http://{url}"));
        }
        if let Some(rest) = url.strip_prefix("unix:") {
            return unix(url, rest);
        }
        let (is_tls, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            _ => return Err(UrlError::Scheme(url.to_owned())),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = host_and_port(url, authority)?;
        let default_port = if is_tls { 443 } else { 80 };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let header = match port {
            Some(port) if port != default_port => format!("{host}:{port}"),
            _ => host.to_owned(),
        };
        Ok(Self {
            is_tls,
            authority: Authority::Tcp(bare.to_owned(), port.unwrap_or(default_port)),
            host: header,
            path: request_path(url, path)?,
        })
    }

    /// Looks up the address. If the name has several addresses, chooses the first that accepts a
    /// connection, or else the first. For example, `localhost` may be both `::1` and `127.0.0.1`,
    /// and many servers listen on only one of them.
    ///
    /// # Errors
    /// The name cannot be resolved.
    pub fn resolve(self) -> Result<ResolvedUrl, UrlError> {
        let Self { is_tls, authority, host, path } = self;
        let (endpoint, server_name) = match authority {
            Authority::Tcp(name, port) => (Endpoint::Tcp(address(&name, port)?), name),
            Authority::Unix(socket) => (Endpoint::Unix(socket), String::new()),
        };
        let tls = is_tls.then(|| Tls::with(server_name));
        Ok(ResolvedUrl { target: Target { endpoint, tls, protocol: Protocol::Http1 }, host, path })
    }
}

/// Returns whether a text without a scheme is a server's address, which is read as an `http://`
/// URL. Examples are `localhost:8080/path`, `127.0.0.1:80`, `[::1]:8080`, or `localhost` alone.
pub fn is_address(text: &str) -> bool {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    let is_bare = authority == "localhost" || authority.parse::<std::net::Ipv4Addr>().is_ok();
    is_bare
        || authority.rsplit_once(':').is_some_and(|(host, port)| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
            let is_bracketed = host.starts_with('[') && host.ends_with(']');
            host.chars().all(is_name)
                && !host.is_empty()
                && (is_bracketed || !host.contains(['[', ']', ':']))
                && !port.is_empty()
                && port.bytes().all(|b| b.is_ascii_digit())
        })
}

/// Parses `unix:/path/to/socket` and `unix:/path/to/socket:/path/of/request`, also with `unix://`.
fn unix(url: &str, rest: &str) -> Result<Url, UrlError> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (socket, path) = match rest.find(":/") {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, ""),
    };
    if socket.is_empty() {
        return Err(UrlError::NoSocket(url.to_owned()));
    }
    Ok(Url {
        is_tls: false,
        authority: Authority::Unix(PathBuf::from(socket)),
        host: "localhost".to_owned(),
        path: request_path(url, path)?,
    })
}

/// Splits an authority into the host as written (IPv6 in brackets) and the port, if there is one.
fn host_and_port<'a>(url: &str, authority: &'a str) -> Result<(&'a str, Option<u16>), UrlError> {
    if authority.contains('@') {
        return Err(UrlError::UserInfo(url.to_owned()));
    }
    let bad_host = |host: &str| UrlError::Host { url: url.to_owned(), host: host.to_owned() };
    let (host, port) = if authority.starts_with('[') {
        let end = authority.find(']').ok_or_else(|| bad_host(authority))?;
        let (host, rest) = authority.split_at(end + 1);
        if host.contains('%') {
            return Err(UrlError::Zone(url.to_owned()));
        }
        if host[1..end].parse::<std::net::Ipv6Addr>().is_err() {
            return Err(bad_host(host));
        }
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(bad_host(authority)),
        }
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return Err(UrlError::NoHost(url.to_owned()));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !host.starts_with('[') && !host.chars().all(is_name) {
        return Err(bad_host(authority));
    }
    let Some(digits) = port else { return Ok((host, None)) };
    match digits.parse() {
        Ok(port) if port > 0 => Ok((host, Some(port))),
        _ => Err(UrlError::Port { url: url.to_owned(), port: digits.to_owned() }),
    }
}

/// Returns the path of a request to `url`, at least `/`.
///
/// # Errors
/// The path contains a space or a control character, which would break the request line.
pub fn request_path(url: &str, path: &str) -> Result<String, UrlError> {
    if path.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return Err(UrlError::Path(url.to_owned()));
    }
    Ok(if path.starts_with('/') { path.to_owned() } else { format!("/{path}") })
}

/// Returns the address of a host, preferring an address that accepts connections.
fn address(host: &str, port: u16) -> Result<SocketAddr, UrlError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let unresolved = |why: String| UrlError::Unresolved { host: host.to_owned(), why };
    let found = (host, port).to_socket_addrs().map_err(|e| unresolved(e.to_string()))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let accepts = |a: &&SocketAddr| TcpStream::connect_timeout(a, PROBE_TIMEOUT).is_ok();
    let chosen = match addresses.as_slice() {
        [only] => Some(only),
        several => several.iter().find(accepts).or(several.first()),
    };
    chosen.copied().ok_or_else(|| unresolved("it has no address".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn resolved(url: &str) -> (String, String, String) {
        let r = resolve(url).expect(url);
        let endpoint = match r.target.endpoint {
            Endpoint::Tcp(a) => a.to_string(),
            Endpoint::Unix(p) => p.display().to_string(),
        };
        (endpoint, r.host, r.path)
    }

    fn parts(endpoint: &str, host: &str, path: &str) -> (String, String, String) {
        (endpoint.to_owned(), host.to_owned(), path.to_owned())
    }

    #[test]
    fn a_url_is_parsed() {
        assert_eq!(
            resolved("http://127.0.0.1:8080/a?b=c#d"),
            parts("127.0.0.1:8080", "127.0.0.1:8080", "/a?b=c")
        );
        assert_eq!(resolved("http://127.0.0.1"), parts("127.0.0.1:80", "127.0.0.1", "/"));
        assert_eq!(resolved("http://127.0.0.1?q"), parts("127.0.0.1:80", "127.0.0.1", "/?q"));
        assert_eq!(resolved("HTTP://[::1]:81/"), parts("[::1]:81", "[::1]:81", "/"));
        assert_eq!(resolved("unix:/tmp/s"), parts("/tmp/s", "localhost", "/"));
        assert_eq!(resolved("unix:///tmp/s:/a/b"), parts("/tmp/s", "localhost", "/a/b"));
        let tls = resolve("https://[::1]/").expect("valid");
        assert_eq!(tls.target.tls.map(|t| t.server_name).as_deref(), Some("::1"));
        assert_eq!(tls.host, "[::1]");
    }

    #[test]
    fn host_and_port_without_a_scheme_are_http() {
        assert_eq!(resolved("127.0.0.1:8080"), parts("127.0.0.1:8080", "127.0.0.1:8080", "/"));
        assert_eq!(resolved("[::1]:81/a?b"), parts("[::1]:81", "[::1]:81", "/a?b"));
        assert_eq!(resolved("127.0.0.1/a"), parts("127.0.0.1:80", "127.0.0.1", "/a"));
        assert!(resolved("localhost:8080/a").0.ends_with(":8080"));
        for no in ["go/net-http", "clojure/ring-jetty:handler", "unix:/tmp/s", "node app.js", "a:"]
        {
            assert!(!is_address(no), "{no}");
        }
        let why = resolve("localhost:70000").expect_err("a bad port").to_string();
        assert_eq!(
            why,
            "\"http://localhost:70000\": \"70000\" is not a port: use a number from 1 to 65535"
        );
    }

    #[test]
    fn of_two_addresses_the_one_that_listens_is_used() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let url = format!("http://localhost:{}/", address.port());
        assert_eq!(resolved(&url).0, address.to_string());
    }

    #[test]
    fn errors_say_what_is_wrong_with_a_url() {
        let why = |url: &str| resolve(url).expect_err(url).to_string();
        assert_eq!(
            why("example.org"),
            "\"example.org\" is not a URL: write http://…, https://…, host:port \
             or unix:/path/to/socket"
        );
        assert_eq!(why("http:///x"), "\"http:///x\" has no host");
        assert_eq!(why("unix:"), "\"unix:\" has no socket: write unix:/path/to/socket");
        assert_eq!(
            why("http://a:x/"),
            "\"http://a:x/\": \"x\" is not a port: use a number from 1 to 65535"
        );
        assert!(why("http://a:70000/").contains("\"70000\" is not a port"));
        assert!(why("http://a b/").contains("not a host name"));
        assert!(why("http://[::x]/").contains("not a host name"));
        assert!(why("http://127.0.0.1/a b").contains("%20"));
        assert!(why("http://me:secret@127.0.0.1/").contains("Authorization"));
        assert!(why("http://nowhere.invalid/").contains("cannot resolve"));
    }
}
