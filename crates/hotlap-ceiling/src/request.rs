//! Requests out of bytes, without a socket (RFC 9112 sections 3, 6 and 7).

/// Larger requests than this are refused: head and body together, in bytes.
const LIMIT: usize = 1 << 20;

/// Larger heads than this are refused, in bytes: 64 KiB, which is what the harness tries, and as
/// much again.
pub const HEAD_LIMIT: usize = 128 << 10;

/// More header lines than this are refused.
const HEADERS: usize = 100;

/// What a server has to know of a request to answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub ask: Ask,
    /// Whether the connection ends after the answer.
    pub close: bool,
    /// How many bytes the request has, body included.
    pub len: usize,
}

/// Method and path, as far as they matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// `GET /`.
    Get,
    /// `HEAD /`.
    Head,
    /// Another path.
    Elsewhere,
    /// `HEAD` of another path.
    HeadElsewhere,
    /// Another method.
    Other,
}

/// What the bytes so far are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// A whole request.
    Whole(Request),
    /// The beginning of one.
    Part(Missing),
    /// No request: the status to refuse it with.
    Bad(u16),
}

/// What a request lacks: it need not be read again before that has come, so that one which comes a
/// byte at a time costs no more than the one that comes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The end of its head, which is a line end.
    Head,
    /// Some of its body.
    Body {
        /// Whether it asks for `100 (Continue)`.
        expects: bool,
        /// How many bytes the request will have in all; `None` where only its chunks tell.
        len: Option<usize>,
    },
}

impl Missing {
    /// Whether `new` bytes at the end of a request that then has `len` can be what it lacks.
    #[must_use]
    pub fn may_be_in(self, new: &[u8], len: usize) -> bool {
        match self {
            Self::Head => new.contains(&b'\n') || len > HEAD_LIMIT,
            Self::Body { len: whole, .. } => whole.is_none_or(|whole| len >= whole),
        }
    }
}

/// Reads the first request in `bytes`.
#[must_use]
pub fn read(bytes: &[u8]) -> Read {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let head_len = match head.parse(bytes) {
        Ok(httparse::Status::Complete(n)) => n,
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD_LIMIT => {
            return Read::Part(Missing::Head);
        }
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Read::Bad(431);
        }
        Err(httparse::Error::Version) => return Read::Bad(505),
        Err(_) => return Read::Bad(400),
    };
    let fields = match Fields::of(&head) {
        Ok(fields) => fields,
        Err(status) => return Read::Bad(status),
    };
    let body_len = match body_len(&bytes[head_len..], &fields) {
        Ok(Some(n)) => n,
        Ok(None) if bytes.len() < LIMIT => {
            let len = (!fields.chunked).then(|| head_len + fields.length.unwrap_or(0));
            return Read::Part(Missing::Body { expects: fields.expects_continue, len });
        }
        Ok(None) => return Read::Bad(413),
        Err(status) => return Read::Bad(status),
    };
    let root = head.path.is_some_and(|p| p == "/" || p.starts_with("/?"));
    let ask = match (head.method, root) {
        (Some("GET"), true) => Ask::Get,
        (Some("HEAD"), true) => Ask::Head,
        (Some("GET"), false) => Ask::Elsewhere,
        (Some("HEAD"), false) => Ask::HeadElsewhere,
        _ => Ask::Other,
    };
    let close = if head.version == Some(0) { !fields.keep_alive } else { fields.close };
    Read::Whole(Request { ask, close, len: head_len + body_len })
}

/// The header fields that matter.
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
            // The names that matter have 4, 6, 10, 14 or 17 letters; most others are told by
            // length.
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
        // RFC 9112 section 3.2: one Host in HTTP/1.1; section 6.3: both framings is an attack.
        let lacks_host = head.version == Some(1) && hosts != 1;
        if lacks_host || (fields.chunked && fields.length.is_some()) {
            Err(400)
        } else {
            Ok(fields)
        }
    }
}

/// The body's length on the wire; `None` when it is not whole yet.
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

/// Trailer lines up to and with the blank line.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &str) -> Request {
        match read(bytes.as_bytes()) {
            Read::Whole(request) => request,
            other => panic!("{other:?} for {bytes:?}"),
        }
    }

    #[test]
    fn a_request_is_whole_at_its_last_byte_and_not_before() {
        let bytes = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                     5;x=y\r\nhello\r\n0\r\nT: x\r\n\r\n";
        for end in 0..bytes.len() {
            assert!(matches!(read(&bytes.as_bytes()[..end]), Read::Part(_)), "at {end}");
        }
        assert_eq!(whole(bytes).len, bytes.len());
        assert_eq!(whole(&format!("{bytes}GET / HTTP/1.1\r\n")).len, bytes.len());
    }

    #[test]
    fn a_request_is_read_again_only_when_what_it_lacks_may_have_come() {
        let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        let (mut missing, mut reads) = (None::<Missing>, 0);
        for end in 1..=request.len() {
            if missing.is_none_or(|m| m.may_be_in(&request[end - 1..end], end)) {
                reads += 1;
                match read(&request[..end]) {
                    Read::Part(m) => missing = Some(m),
                    whole => assert!(end == request.len(), "{whole:?}"),
                }
            }
        }
        // The first byte, four line ends, the last byte.
        assert_eq!(reads, 6);
        let len = request.len();
        let body = Missing::Body { expects: false, len: Some(len) };
        assert_eq!(read(&request[..len - 1]), Read::Part(body));
    }

    /// Heads of a mebibyte were read anew with each piece of them, and held everybody up.
    #[test]
    fn a_head_that_is_too_large_is_refused_before_its_end() {
        let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
        bytes.resize(HEAD_LIMIT, b'x');
        assert_eq!(read(&bytes), Read::Part(Missing::Head));
        assert!(!Missing::Head.may_be_in(b"x", bytes.len()));
        bytes.push(b'x');
        assert!(Missing::Head.may_be_in(b"x", bytes.len()));
        assert_eq!(read(&bytes), Read::Bad(431));
    }

    #[test]
    fn connections_close_when_asked_and_after_http_1_0() {
        assert!(!whole("GET / HTTP/1.1\r\nHost: a\r\n\r\n").close);
        assert!(whole("GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n").close);
        assert!(whole("GET / HTTP/1.0\r\n\r\n").close);
        assert!(!whole("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").close);
    }

    #[test]
    fn what_is_no_request_is_refused_with_the_status_that_says_why() {
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
            assert_eq!(read(bytes.as_bytes()), Read::Bad(status), "{bytes:?}");
        }
    }

    #[test]
    fn only_get_and_head_of_the_root_are_answered_with_the_greeting() {
        assert_eq!(whole("GET /?a HTTP/1.1\r\nHost: a\r\n\r\n").ask, Ask::Get);
        assert_eq!(whole("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").ask, Ask::Head);
        assert_eq!(whole("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").ask, Ask::Elsewhere);
        assert_eq!(whole("PUT / HTTP/1.1\r\nHost: a\r\n\r\n").ask, Ask::Other);
    }
}
