//! One line of a log: the request, the status that it got, and when.

use std::borrow::Cow;

use hotlap_load::http::is_token;
use hotlap_load::plan::ExpectedStatus;

use super::time::Time;

/// The longest line in bytes. Servers limit a request line to 8 to 64 KiB; Caddy logs all headers,
/// too.
pub(super) const LONGEST: usize = 256 * 1024;

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
        // A switch of protocols needs headers; nginx closed the connection or got no valid request.
        100..=199 | 444 | 494..=498 => return Err(Cause::NoResponse(status)),
        200..=999 => ExpectedStatus::Exactly(status),
        _ => return Err(Cause::NoStatus),
    })
}
