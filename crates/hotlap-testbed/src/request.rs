//! The request parser (RFC 9112 sections 3, 6 and 7), and the responses that the contract `hello`
//! requires.

/// The maximum size of a body, and of a request with chunks, in bytes. The limit bounds the memory
/// of a connection.
const LIMIT: usize = 1 << 20;

/// The maximum size of a head, in bytes. The limit is twice the 64 KiB that the conformance checks
/// and the stress scenarios send.
const HEAD_LIMIT: usize = 128 << 10;

/// The maximum number of header lines, which bounds the use of the stack. A request with more
/// lines is rejected.
const HEADERS: usize = 100;

/// A complete request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// The response to the request.
    pub reply: Reply,
    /// Whether the connection closes after the response.
    pub close: bool,
    /// The length of the request in bytes, including the body.
    pub len: usize,
}

/// The result of parsing bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A complete request.
    Complete(Request),
    /// The beginning of a request.
    Incomplete(Missing),
    /// An invalid request, with the status that rejects it.
    Invalid(u16),
}

/// What is missing from a request. A request is parsed again only when the missing part may have
/// arrived. A request without chunks that arrives byte by byte therefore costs little more than
/// one that arrives at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The end of the head, which is a line end.
    Head,
    /// A part of the body.
    Body {
        /// Whether the request expects `100 (Continue)`.
        expects: bool,
        /// The length of the complete request, in bytes. `None` if the body has chunks.
        len: Option<usize>,
    },
}

impl Missing {
    /// Returns whether `new`, the last bytes of a request of length `len`, may contain the missing
    /// part.
    pub fn may_be_in(self, new: &[u8], len: usize) -> bool {
        match self {
            Self::Head => new.contains(&b'\n') || len > HEAD_LIMIT,
            Self::Body { len: whole, .. } => whole.is_none_or(|whole| len >= whole),
        }
    }
}

/// Parses the first request in `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let head_len = match head.parse(bytes) {
        Ok(httparse::Status::Complete(n)) => n,
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD_LIMIT => {
            return Parsed::Incomplete(Missing::Head);
        }
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Invalid(431);
        }
        Err(httparse::Error::Version) => return Parsed::Invalid(505),
        Err(_) => return Parsed::Invalid(400),
    };
    let fields = match Fields::of(&head) {
        Ok(fields) => fields,
        Err(status) => return Parsed::Invalid(status),
    };
    let body_len = match body_len(&bytes[head_len..], &fields) {
        Ok(Some(n)) => n,
        Ok(None) if bytes.len() < LIMIT => {
            let len = (!fields.chunked).then(|| head_len + fields.length.unwrap_or(0));
            return Parsed::Incomplete(Missing::Body { expects: fields.expects_continue, len });
        }
        Ok(None) => return Parsed::Invalid(413),
        Err(status) => return Parsed::Invalid(status),
    };
    let root = head.path.is_some_and(|p| p == "/" || p.starts_with("/?"));
    let reply = match (head.method, root) {
        (Some("GET"), true) => Reply::Greeting,
        (Some("HEAD"), true) => Reply::GreetingHead,
        (Some("GET" | "HEAD"), false) => Reply::NotFound,
        _ => Reply::MethodNotAllowed,
    };
    let close = if head.version == Some(0) { !fields.keep_alive } else { fields.close };
    Parsed::Complete(Request { reply, close, len: head_len + body_len })
}

/// The header fields that matter for parsing.
#[derive(Default)]
struct Fields {
    length: Option<usize>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
}

impl Fields {
    fn of(head: &httparse::Request) -> Result<Self, u16> {
        let mut fields = Self::default();
        let mut hosts = 0;
        for h in head.headers.iter() {
            let has = |token: &str| {
                h.value
                    .split(|b| *b == b',')
                    .any(|t| t.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
            };
            // The relevant names have 4, 6, 10, 14 or 17 letters, so the length rules out most
            // others.
            match h.name.len() {
                4 if h.name.eq_ignore_ascii_case("host") => hosts += 1,
                6 if h.name.eq_ignore_ascii_case("expect") => {
                    fields.expects_continue |= has("100-continue");
                }
                10 if h.name.eq_ignore_ascii_case("connection") => {
                    fields.close |= has("close");
                    fields.keep_alive |= has("keep-alive");
                }
                14 if h.name.eq_ignore_ascii_case("content-length") => {
                    let text = std::str::from_utf8(h.value).map_err(|_| 400u16)?;
                    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                    let length = text.parse().ok().filter(|_| plain).ok_or(400u16)?;
                    if fields.length.is_some_and(|l| l != length) {
                        return Err(400);
                    }
                    fields.length = Some(length);
                }
                17 if h.name.eq_ignore_ascii_case("transfer-encoding") => {
                    if !h.value.eq_ignore_ascii_case(b"chunked") {
                        return Err(501);
                    }
                    fields.chunked = true;
                }
                _ => {}
            }
        }
        // An HTTP/1.1 request has exactly one Host (RFC 9112 section 3.2). A request with both
        // framings of a body may be an attack (section 6.3).
        let lacks_host = head.version == Some(1) && hosts != 1;
        if lacks_host || (fields.chunked && fields.length.is_some()) {
            Err(400)
        } else {
            Ok(fields)
        }
    }
}

/// Returns the length of the body on the wire, or `None` if the body is incomplete.
fn body_len(bytes: &[u8], fields: &Fields) -> Result<Option<usize>, u16> {
    if !fields.chunked {
        let length = fields.length.unwrap_or(0);
        if length > LIMIT {
            return Err(413);
        }
        return Ok((bytes.len() >= length).then_some(length));
    }
    let mut at = 0;
    loop {
        match httparse::parse_chunk_size(&bytes[at..]) {
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(400),
            Ok(httparse::Status::Complete((start, 0))) => {
                return trailer_len(&bytes[at + start..]).map(|n| n.map(|n| at + start + n));
            }
            Ok(httparse::Status::Complete((start, size))) => {
                let end = usize::try_from(size).ok().filter(|s| *s <= LIMIT).ok_or(413u16)?;
                at += start + end;
                if bytes.len() < at + 2 {
                    return Ok(None);
                }
                if &bytes[at..at + 2] != b"\r\n" {
                    return Err(400);
                }
                at += 2;
            }
        }
    }
}

/// Returns the length of the trailer lines, including the blank line. Returns `None` if the lines
/// are incomplete.
fn trailer_len(bytes: &[u8]) -> Result<Option<usize>, u16> {
    let mut at = 0;
    while let Some(n) = bytes[at..].windows(2).position(|w| w == b"\r\n") {
        at += n + 2;
        if n == 0 {
            return Ok(Some(at));
        }
    }
    if bytes.len() > LIMIT { Err(431) } else { Ok(None) }
}

/// A response of the contract `hello`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The response to `GET /`.
    Greeting,
    /// The response to `HEAD /`.
    GreetingHead,
    /// The response to a request for another path.
    NotFound,
    /// The response to a request with another method.
    MethodNotAllowed,
}

impl Reply {
    /// Appends the response. With `close`, the response announces the end of the connection (RFC
    /// 9112 section 9.6).
    #[inline]
    pub fn write(self, close: bool, out: &mut Vec<u8>) {
        let head: &[u8] = match self {
            // Nearly all responses are this one, so it is copied in one piece.
            Self::Greeting if !close => {
                return out.extend_from_slice(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\n\
                      Hello, World!",
                );
            }
            Self::Greeting | Self::GreetingHead => {
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n"
            }
            Self::NotFound => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n",
            Self::MethodNotAllowed => {
                b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\n"
            }
        };
        out.extend_from_slice(head);
        if close {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        if self == Self::Greeting {
            out.extend_from_slice(b"Hello, World!");
        }
    }
}

/// Appends the response to an invalid request.
pub(crate) fn refuse(status: u16, out: &mut Vec<u8>) {
    let reason = match status {
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Bad Request",
    };
    out.extend_from_slice(
        format!("HTTP/1.1 {status} {reason}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .as_bytes(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(bytes: &str) -> Request {
        match parse(bytes.as_bytes()) {
            Parsed::Complete(request) => request,
            other => panic!("{other:?} for {bytes:?}"),
        }
    }

    #[test]
    fn a_request_is_complete_at_its_last_byte_and_not_before() {
        let bytes = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                     5;x=y\r\nhello\r\n0\r\nT: x\r\n\r\n";
        for end in 0..bytes.len() {
            assert!(matches!(parse(&bytes.as_bytes()[..end]), Parsed::Incomplete(_)), "at {end}");
        }
        assert_eq!(complete(bytes).len, bytes.len());
        assert_eq!(complete(&format!("{bytes}GET / HTTP/1.1\r\n")).len, bytes.len());
    }

    /// Regression: a connection closed after a 404 or 405 that did not say so.
    #[test]
    fn every_response_may_announce_the_end_of_its_connection() {
        for reply in
            [Reply::Greeting, Reply::GreetingHead, Reply::NotFound, Reply::MethodNotAllowed]
        {
            let written = |close| {
                let mut out = Vec::new();
                reply.write(close, &mut out);
                String::from_utf8(out).unwrap()
            };
            let announced = written(true).replace("Connection: close\r\n", "");
            assert!(announced == written(false) && written(true) != announced, "{reply:?}");
        }
    }

    #[test]
    fn a_request_is_parsed_again_only_when_the_missing_part_may_have_come() {
        let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        let (mut missing, mut parses) = (None::<Missing>, 0);
        for end in 1..=request.len() {
            if missing.is_none_or(|m| m.may_be_in(&request[end - 1..end], end)) {
                parses += 1;
                match parse(&request[..end]) {
                    Parsed::Incomplete(m) => missing = Some(m),
                    complete => assert!(end == request.len(), "{complete:?}"),
                }
            }
        }
        // The request is parsed at the first byte, at four line ends, and at the last byte.
        assert_eq!(parses, 6);
        let len = request.len();
        let body = Missing::Body { expects: false, len: Some(len) };
        assert_eq!(parse(&request[..len - 1]), Parsed::Incomplete(body));
    }

    /// Regression: a head of 1 MiB was parsed again with each piece, and all other clients had to
    /// wait.
    #[test]
    fn a_head_that_is_too_large_is_refused_before_its_end() {
        let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
        bytes.resize(HEAD_LIMIT, b'x');
        assert_eq!(parse(&bytes), Parsed::Incomplete(Missing::Head));
        assert!(!Missing::Head.may_be_in(b"x", bytes.len()));
        bytes.push(b'x');
        assert!(Missing::Head.may_be_in(b"x", bytes.len()));
        assert_eq!(parse(&bytes), Parsed::Invalid(431));
    }

    #[test]
    fn connections_close_when_asked_and_after_http_1_0() {
        assert!(!complete("GET / HTTP/1.1\r\nHost: a\r\n\r\n").close);
        assert!(complete("GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n").close);
        assert!(complete("GET / HTTP/1.0\r\n\r\n").close);
        assert!(!complete("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").close);
    }

    #[test]
    fn invalid_requests_are_rejected_with_the_right_status() {
        for (bytes, status) in [
            ("\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", 413),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        ] {
            assert_eq!(parse(bytes.as_bytes()), Parsed::Invalid(status), "{bytes:?}");
        }
    }

    #[test]
    fn only_get_and_head_of_the_root_receive_the_greeting() {
        assert_eq!(complete("GET /?a HTTP/1.1\r\nHost: a\r\n\r\n").reply, Reply::Greeting);
        assert_eq!(complete("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").reply, Reply::GreetingHead);
        assert_eq!(complete("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").reply, Reply::NotFound);
        assert_eq!(complete("PUT / HTTP/1.1\r\nHost: a\r\n\r\n").reply, Reply::MethodNotAllowed);
    }
}
