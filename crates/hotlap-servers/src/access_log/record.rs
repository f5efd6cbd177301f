//! One line of a log: the request, the status that it got, and when.

use std::borrow::Cow;

use hotlap_load::http::is_token;
use hotlap_load::plan::ExpectedStatus;

use super::time::Time;
use super::{LONGEST, common, json};

/// Why a line cannot be sent; each continues "line 12 …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Cause {
    #[error("is neither in Common or Combined Log Format nor a JSON object")]
    Format,
    #[error("is longer than {} KiB", LONGEST / 1024)]
    TooLong,
    #[error("has no request")]
    NoRequest,
    #[error("has a request that is not HTTP")]
    NotHttp,
    #[error("opens a tunnel (CONNECT)")]
    Tunnel,
    #[error("has a request without a path")]
    NoPath,
    #[error("has a space or a control character in its path")]
    Control,
    #[error("has no status")]
    NoStatus,
    #[error("has the status {0}, for which no response was sent")]
    NoResponse(u16),
    #[error("has no time")]
    NoTime,
    #[error("has a combination of method and status beyond the first 100")]
    ManyKinds,
}

/// The request of a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record<'a> {
    pub(super) method: Cow<'a, str>,
    /// Path and query: ASCII without spaces and control characters, and starts with `/`.
    pub(super) path: Cow<'a, str>,
    pub(super) status: ExpectedStatus,
    pub(super) time: Option<Time>,
}

impl<'a> Record<'a> {
    /// Recognises the format of a line, and parses it.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, Cause> {
        // Some tools write a byte order mark.
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        if line.starts_with(b"{") { json::parse(line) } else { common::parse(line) }
    }

    /// From the parts that every format has.
    pub(super) fn new(
        method: Cow<'a, str>,
        target: Cow<'a, [u8]>,
        status: u16,
        time: Option<Time>,
    ) -> Result<Self, Cause> {
        if method == "CONNECT" {
            return Err(Cause::Tunnel);
        }
        if !is_token(&method) {
            return Err(Cause::NotHttp);
        }
        Ok(Self { method, path: path(target)?, status: expected(status)?, time })
    }

    pub(super) fn into_owned(self) -> Record<'static> {
        Record {
            method: Cow::Owned(self.method.into_owned()),
            path: Cow::Owned(self.path.into_owned()),
            status: self.status,
            time: self.time,
        }
    }
}

/// Splits a request line into method and target. The version may be missing (HTTP/0.9).
pub(super) fn split(request: Cow<'_, [u8]>) -> Result<(Cow<'_, str>, Cow<'_, [u8]>), Cause> {
    fn parts(request: &[u8]) -> Result<(&str, &[u8]), Cause> {
        if request.is_empty() || request == b"-" {
            return Err(Cause::NoRequest);
        }
        let space = request.iter().position(|b| *b == b' ').ok_or(Cause::NotHttp)?;
        let (method, rest) = (&request[..space], &request[space + 1..]);
        let method = std::str::from_utf8(method).map_err(|_| Cause::NotHttp)?;
        let version = rest.iter().rposition(|b| *b == b' ');
        let end = version.filter(|at| rest[at + 1..].starts_with(b"HTTP/")).unwrap_or(rest.len());
        Ok((method, &rest[..end]))
    }
    Ok(match request {
        Cow::Borrowed(request) => {
            let (method, target) = parts(request)?;
            (Cow::Borrowed(method), Cow::Borrowed(target))
        }
        Cow::Owned(request) => {
            let (method, target) = parts(&request)?;
            (Cow::Owned(method.to_owned()), Cow::Owned(target.to_owned()))
        }
    })
}

/// The path and query of a target. That of a proxy is a whole URL (RFC 9112 section 3.2.2). Bytes
/// beyond ASCII are percent-encoded, as browsers send them.
fn path(target: Cow<'_, [u8]>) -> Result<Cow<'_, str>, Cause> {
    if target.iter().any(|b| *b <= b' ' || *b == 0x7f) {
        return Err(Cause::Control);
    }
    let is_path = target.starts_with(b"/");
    if is_path && target.is_ascii() {
        return match target {
            Cow::Borrowed(path) => {
                std::str::from_utf8(path).map(Cow::Borrowed).map_err(|_| Cause::NoPath)
            }
            Cow::Owned(path) => String::from_utf8(path).map(Cow::Owned).map_err(|_| Cause::NoPath),
        };
    }
    let mut path = String::with_capacity(target.len());
    let rest = if is_path { target.as_ref() } else { after_authority(&target)? };
    if !rest.starts_with(b"/") {
        path.push('/');
    }
    for byte in rest {
        match byte.is_ascii() {
            true => path.push(char::from(*byte)),
            false => path += &format!("%{byte:02X}"),
        }
    }
    Ok(Cow::Owned(path))
}

/// What follows the host and port of an `http` or `https` URL.
fn after_authority(url: &[u8]) -> Result<&[u8], Cause> {
    let has = |scheme: &[u8]| {
        url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let scheme = if has(b"http://") {
        7
    } else if has(b"https://") {
        8
    } else {
        return Err(Cause::NoPath);
    };
    let authority = &url[scheme..];
    let end = authority.iter().position(|b| b"/?#".contains(b)).unwrap_or(authority.len());
    Ok(&authority[end..])
}

/// The status to expect if the log has this one.
fn expected(status: u16) -> Result<ExpectedStatus, Cause> {
    Ok(match status {
        // They answer conditions and ranges in headers, which the log does not have.
        206 | 304 | 412 | 416 => ExpectedStatus::Success,
        // They depend on the state of the server or, in nginx, on a client that left.
        429 | 499 | 500..=599 => ExpectedStatus::Any,
        // A switch of protocols needs headers. nginx closes the connection, or got no valid request.
        100..=199 | 444 | 494..=498 => return Err(Cause::NoResponse(status)),
        200..=999 => ExpectedStatus::Exactly(status),
        _ => return Err(Cause::NoStatus),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The same request in each format.
    pub(crate) const LINES: [&str; 8] = [
        r#"192.0.2.1 - ann [24/Nov/2026:08:24:04 +0000] "GET /a?b=1 HTTP/1.1" 200 512"#,
        r#"::1 - - [24/Nov/2026:09:24:04 +0100] "GET /a?b=1 HTTP/2.0" 200 - "-" "a \"b\"" 0.01"#,
        r#"example.org:443 ::1 - [x] [24/Nov/2026:08:24:04 +0000] "GET /a?b=1" 200 0"#,
        r#"{"level":"info","ts":1795508644,"request":{"remote_ip":"::1","method":"GET","host":"h","uri":"/a?b=1","headers":{"Accept":["*/*"]}},"status":200}"#,
        r#"{"time_iso8601":"2026-11-24T08:24:04+00:00","request":"GET /a?b=1 HTTP/1.1","status":"200","http_user_agent":"\x22"}"#,
        r#"{"msec":"1795508644","request_method":"GET","request_uri":"/a?b=1","status":200}"#,
        r#"{"time_local":"24/Nov/2026:08:24:04 +0000","method":"GET","uri":"/a","args":"b=1","status":200}"#,
        r#"{"@timestamp":"2026-11-24T03:24:04-05:00","request":"GET http://h/a?b=1 HTTP/1.1","status":200}"#,
    ];

    #[test]
    fn every_format_is_recognised() {
        for line in LINES {
            let record = Record::parse(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}"));
            let Record { method, path, status, time } = record;
            assert_eq!((method.as_ref(), path.as_ref()), ("GET", "/a?b=1"), "{line}");
            assert_eq!(status, ExpectedStatus::Exactly(200), "{line}");
            let expected = Time { ns: 1_795_508_644_000_000_000, is_whole_second: true };
            assert_eq!(time, Some(expected), "{line}");
        }
    }

    /// The path of a request in a line of Common Log Format.
    fn path_of(request: &[u8]) -> Result<String, Cause> {
        let mut line = b"::1 - - [24/Nov/2026:08:24:04 +0000] \"".to_vec();
        line.extend(request);
        line.extend(b"\" 200 1");
        Record::parse(&line).map(|record| record.path.into_owned())
    }

    #[test]
    fn targets_become_paths() {
        for (request, expected) in [
            (&b"GET /a\\x22b\\\\c HTTP/1.1"[..], Ok("/a\"b\\c")),
            (br#"GET /say\"hi\" HTTP/1.0"#, Ok("/say\"hi\"")),
            (b"GET /caf\\xc3\\xa9 HTTP/1.1", Ok("/caf%C3%A9")),
            ("GET /café HTTP/1.1".as_bytes(), Ok("/caf%C3%A9")),
            (b"GET /\xff HTTP/1.1", Ok("/%FF")),
            (b"GET /x\\xzz HTTP/1.1", Ok("/x\\xzz")),
            (b"GET http://example.org HTTP/1.1", Ok("/")),
            (b"GET HTTPS://example.org:8443?q HTTP/1.1", Ok("/?q")),
            (b"GET http://[::1]:80/a%20b?c=/d HTTP/1.1", Ok("/a%20b?c=/d")),
            (b"GET ftp://example.org/a HTTP/1.1", Err(Cause::NoPath)),
            (b"OPTIONS * HTTP/1.1", Err(Cause::NoPath)),
            (b"CONNECT example.org:443 HTTP/1.1", Err(Cause::Tunnel)),
            (b"GET /a b HTTP/1.1", Err(Cause::Control)),
            (b"GET /a\\nb HTTP/1.1", Err(Cause::Control)),
            (b"GET /a\\x0d\\x0aX:1 HTTP/1.1", Err(Cause::Control)),
            (b"GET /a\x7fb HTTP/1.1", Err(Cause::Control)),
            (b"\\x16\\x03\\x01\\x02", Err(Cause::NotHttp)),
            (b"G\\x22T / HTTP/1.1", Err(Cause::NotHttp)),
            (b"GET", Err(Cause::NotHttp)),
            (b"GET ", Err(Cause::NoPath)),
            (b"-", Err(Cause::NoRequest)),
            (b"", Err(Cause::NoRequest)),
        ] {
            let name = String::from_utf8_lossy(request);
            assert_eq!(path_of(request), expected.map(str::to_owned), "{name}");
        }
    }

    #[test]
    fn a_status_that_depends_on_more_than_the_request_is_not_exact() {
        let status = |status: &str| {
            let line = format!("::1 - - [24/Nov/2026:08:24:04 +0000] \"GET /\" {status} 1");
            Record::parse(line.as_bytes()).map(|record| record.status)
        };
        for exact in [200, 204, 301, 400, 401, 404] {
            assert_eq!(status(&exact.to_string()), Ok(ExpectedStatus::Exactly(exact)));
        }
        for range in ["206", "304", "412", "416"] {
            assert_eq!(status(range), Ok(ExpectedStatus::Success));
        }
        for passing in ["429", "499", "500", "503"] {
            assert_eq!(status(passing), Ok(ExpectedStatus::Any));
        }
        assert_eq!(status("101"), Err(Cause::NoResponse(101)));
        assert_eq!(status("444"), Err(Cause::NoResponse(444)));
        for none in ["-", "000", "99", "2000", "+20", ""] {
            assert_eq!(status(none), Err(Cause::NoStatus), "{none:?}");
        }
    }

    #[test]
    fn hostile_json_is_left_out() {
        let deep = "{\"a\":".repeat(10_000);
        let nested = "{\"request\":{\"method\":".repeat(10_000);
        let lines = ["{", "{}", "{\"status\":200}", "{\"status\":{\"a\":[]},\"uri\":\"/\"}", &deep];
        for line in lines.into_iter().chain([nested.as_str()]) {
            assert!(Record::parse(line.as_bytes()).is_err());
        }
        let line = br#"{"request":{"method":"GET","uri":"/a\u0000b"},"status":200}"#;
        assert_eq!(Record::parse(line), Err(Cause::Control));
        let line = b"{\"request\":{\"method\":\"GET\",\"uri\":\"/\xff\"},\"status\":200}";
        assert_eq!(Record::parse(line), Err(Cause::Format));
        let line = br#"{"request":"GET / HTTP/1.1","status":200,"ts":-1}"#;
        assert_eq!(Record::parse(line).unwrap().time, None);
    }
}
