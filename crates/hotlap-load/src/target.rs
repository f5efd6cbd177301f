//! From what a user types to a socket's address: `http://`, `https://` and `unix:` URLs, and
//! `host:port` without a scheme, which is taken for `http://`.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use crate::plan::{Endpoint, Target, Tls};

/// How long an address may take to show that it accepts connections, when a name has several.
const PROBE: Duration = Duration::from_millis(300);

/// A URL, taken apart and resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Where to connect, and how.
    pub target: Target,
    /// What the `Host` header says: name and port, the scheme's own port left out.
    pub host: String,
    /// Path and query, at least `/`.
    pub path: String,
}

/// What is wrong with a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// No scheme, or none that is spoken here.
    #[error(
        "{0:?} is not a URL that can be loaded: write http://…, https://…, host:port or \
         unix:/path/to/socket"
    )]
    Scheme(String),
    /// Nothing between the scheme and the path.
    #[error("{0:?} names no host")]
    NoHost(String),
    /// A host that is malformed.
    #[error("{url:?}: {host:?} is no host name or address")]
    Host {
        /// All of it.
        url: String,
        /// The part in question.
        host: String,
    },
    /// A port that is none.
    #[error("{url:?}: {port:?} is no port: use a number from 1 to 65535")]
    Port {
        /// All of it.
        url: String,
        /// The part in question.
        port: String,
    },
    /// Credentials belong into a header.
    #[error("{0:?} carries a user name: send it as a header, -H 'Authorization: Basic …'")]
    UserInfo(String),
    /// A path with a space or a control character in it.
    #[error("{0:?} has a space or a control character in its path: write %20 for a space")]
    Path(String),
    /// Nobody knows the name.
    #[error("{host:?} cannot be resolved: {why}")]
    Unknown {
        /// The name.
        host: String,
        /// The resolver's word.
        why: String,
    },
}

impl Target {
    /// Takes a URL apart and finds its address. Of several addresses, the first that accepts a
    /// connection is taken (`localhost` is `::1` and `127.0.0.1`, and many servers listen on only
    /// one of them); if none does, the first.
    ///
    /// # Errors
    /// When the URL is none, or its host unknown.
    pub fn resolve(url: &str) -> Result<Resolved, BadUrl> {
        Url::parse(url)?.resolve()
    }
}

/// A URL, taken apart; nothing is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether TLS is spoken.
    pub is_tls: bool,
    /// Where the server is.
    pub place: Place,
    /// What the `Host` header says: name and port, the scheme's own port left out.
    pub host: String,
    /// Path and query, at least `/`.
    pub path: String,
}

/// Where a URL's server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A name or an address, without brackets, and a port.
    Tcp(String, u16),
    /// A unix socket.
    Unix(PathBuf),
}

impl Url {
    /// Takes a URL, or `host:port`, apart.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        if is_address(url) {
            return Self::parse(&format!("http://{url}"));
        }
        if let Some(rest) = url.strip_prefix("unix:") {
            return unix(url, rest);
        }
        let (is_tls, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            _ => return Err(BadUrl::Scheme(url.to_owned())),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = host_and_port(url, authority)?;
        let own_port = if is_tls { 443 } else { 80 };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let header = match port {
            Some(port) if port != own_port => format!("{host}:{port}"),
            _ => host.to_owned(),
        };
        Ok(Self {
            is_tls,
            place: Place::Tcp(bare.to_owned(), port.unwrap_or(own_port)),
            host: header,
            path: request_path(url, path)?,
        })
    }

    fn resolve(self) -> Result<Resolved, BadUrl> {
        let Self { is_tls, place, host, path } = self;
        let (endpoint, server_name) = match place {
            Place::Tcp(name, port) => (Endpoint::Tcp(address(&name, port)?), name),
            Place::Unix(socket) => (Endpoint::Unix(socket), String::new()),
        };
        let tls = is_tls.then_some(Tls { server_name, insecure: false });
        Ok(Resolved { target: Target { endpoint, tls }, host, path })
    }
}

/// Whether a text without a scheme names a server by its address: `localhost:8080/path`,
/// `127.0.0.1:80`, `[::1]:8080`, or `localhost` alone. Such a text is taken for an `http://` URL.
#[must_use]
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

/// `unix:/path/to/socket`, or `unix:/path/to/socket:/path/of/request`; `unix://` is taken as well.
fn unix(url: &str, rest: &str) -> Result<Url, BadUrl> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (socket, path) = match rest.find(":/") {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, ""),
    };
    if socket.is_empty() {
        return Err(BadUrl::NoHost(url.to_owned()));
    }
    Ok(Url {
        is_tls: false,
        place: Place::Unix(PathBuf::from(socket)),
        host: "localhost".to_owned(),
        path: request_path(url, path)?,
    })
}

/// The host as written (IPv6 in its brackets), and the port if there is one.
fn host_and_port<'a>(url: &str, authority: &'a str) -> Result<(&'a str, Option<u16>), BadUrl> {
    if authority.contains('@') {
        return Err(BadUrl::UserInfo(url.to_owned()));
    }
    let bad_host = |host: &str| BadUrl::Host { url: url.to_owned(), host: host.to_owned() };
    let (host, port) = if authority.starts_with('[') {
        let end = authority.find(']').ok_or_else(|| bad_host(authority))?;
        let (host, rest) = authority.split_at(end + 1);
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
        return Err(BadUrl::NoHost(url.to_owned()));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !host.starts_with('[') && !host.chars().all(is_name) {
        return Err(bad_host(authority));
    }
    let Some(digits) = port else { return Ok((host, None)) };
    match digits.parse() {
        Ok(port) if port > 0 => Ok((host, Some(port))),
        _ => Err(BadUrl::Port { url: url.to_owned(), port: digits.to_owned() }),
    }
}

/// The path of a request to `url`, at least `/`.
///
/// # Errors
/// When it has a space or a control character in it, which would end the request line.
pub fn request_path(url: &str, path: &str) -> Result<String, BadUrl> {
    if path.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return Err(BadUrl::Path(url.to_owned()));
    }
    Ok(if path.starts_with('/') { path.to_owned() } else { format!("/{path}") })
}

fn address(host: &str, port: u16) -> Result<SocketAddr, BadUrl> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let unknown = |why: String| BadUrl::Unknown { host: host.to_owned(), why };
    let found = (host, port).to_socket_addrs().map_err(|e| unknown(e.to_string()))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let accepts = |a: &&SocketAddr| TcpStream::connect_timeout(a, PROBE).is_ok();
    let chosen = match addresses.as_slice() {
        [only] => Some(only),
        several => several.iter().find(accepts).or(several.first()),
    };
    chosen.copied().ok_or_else(|| unknown("it has no address".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn resolved(url: &str) -> (String, String, String) {
        let r = Target::resolve(url).expect(url);
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
    fn a_url_is_taken_apart() {
        assert_eq!(
            resolved("http://127.0.0.1:8080/a?b=c#d"),
            parts("127.0.0.1:8080", "127.0.0.1:8080", "/a?b=c")
        );
        assert_eq!(resolved("http://127.0.0.1"), parts("127.0.0.1:80", "127.0.0.1", "/"));
        assert_eq!(resolved("http://127.0.0.1?q"), parts("127.0.0.1:80", "127.0.0.1", "/?q"));
        assert_eq!(resolved("HTTP://[::1]:81/"), parts("[::1]:81", "[::1]:81", "/"));
        assert_eq!(resolved("unix:/tmp/s"), parts("/tmp/s", "localhost", "/"));
        assert_eq!(resolved("unix:///tmp/s:/a/b"), parts("/tmp/s", "localhost", "/a/b"));
        let tls = Target::resolve("https://[::1]/").expect("sound");
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
        let why = Target::resolve("localhost:70000").expect_err("no port").to_string();
        assert_eq!(
            why,
            "\"http://localhost:70000\": \"70000\" is no port: use a number from 1 to 65535"
        );
    }

    #[test]
    fn a_name_with_two_addresses_is_the_one_that_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let url = format!("http://localhost:{}/", address.port());
        assert_eq!(resolved(&url).0, address.to_string());
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told() {
        let why = |url: &str| Target::resolve(url).expect_err(url).to_string();
        assert_eq!(
            why("example.org"),
            "\"example.org\" is not a URL that can be loaded: write http://…, https://…, host:port \
             or unix:/path/to/socket"
        );
        assert_eq!(why("http:///x"), "\"http:///x\" names no host");
        assert_eq!(
            why("http://a:x/"),
            "\"http://a:x/\": \"x\" is no port: use a number from 1 to 65535"
        );
        assert!(why("http://a:70000/").contains("\"70000\" is no port"));
        assert!(why("http://a b/").contains("no host name"));
        assert!(why("http://[::x]/").contains("no host name"));
        assert!(why("http://127.0.0.1/a b").contains("%20"));
        assert!(why("http://me:secret@127.0.0.1/").contains("Authorization"));
        assert!(why("http://nowhere.invalid/").contains("cannot be resolved"));
    }
}
