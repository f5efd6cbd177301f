//! Parses the head of a response. The head says how the body is delimited and whether the
//! connection persists.

use super::ResponseError;

/// The maximum length of a head: 64 KiB. Servers send about 200 bytes. A head beyond the limit
/// probably never ends.
pub(crate) const HEAD_LIMIT: usize = 64 * 1024;

/// The first bytes of every response.
const START: &[u8] = b"HTTP/1.";

/// The maximum number of header lines.
const HEADERS_LIMIT: usize = 256;

/// The contents of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The minor version: 0 or 1, for HTTP/1.0 or HTTP/1.1.
    pub minor: u8,
    /// Whether the connection can carry another request (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// How the body is delimited.
    pub framing: Framing,
    /// The value of `Content-Length`. In a response to a HEAD, the length that the body of a GET
    /// would have.
    pub length: Option<u64>,
    /// The length of the head in bytes, including the blank line.
    pub size: usize,
}

impl Head {
    /// Returns whether this is an interim response, after which another head follows for the same
    /// request (RFC 9110 section 15.2).
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }
}

/// How a body is delimited (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    NoBody,
    /// The body has this length in bytes.
    Length(u64),
    /// The body ends with a chunk of size 0.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// Finds the end of the head at the start of `buf`, including the blank line. Returns `None` if the
/// head is incomplete. The search starts at `from`, because the head is known not to end earlier.
///
/// # Errors
/// `buf` does not start with a status line, a line ends in a bare LF, or the head is too long.
pub(crate) fn head_end(buf: &[u8], from: usize) -> Result<Option<usize>, ResponseError> {
    // Bytes that cannot become a response are rejected as soon as they arrive. The check also
    // guarantees that there is a byte before the first LF.
    let known = buf.len().min(START.len());
    if buf[..known] != START[..known] {
        return Err(ResponseError::Framing("not an HTTP/1.x status line"));
    }
    // The start of the line that contains `from`.
    let mut start = buf[..from].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    let mut at = from;
    while let Some(offset) = buf[at..].iter().position(|&b| b == b'\n') {
        let feed = at + offset;
        if buf[feed - 1] != b'\r' {
            return Err(ResponseError::Framing("a head line ends in a bare LF"));
        }
        if feed + 1 > HEAD_LIMIT {
            break;
        }
        if feed - start == 1 {
            return Ok(Some(feed + 1));
        }
        start = feed + 1;
        at = start;
    }
    if buf.len() > HEAD_LIMIT {
        return Err(ResponseError::Framing("the head is over 64 KiB"));
    }
    Ok(None)
}

/// Parses a complete head.
///
/// # Errors
/// The head is malformed, its framing is ambiguous, or it switches protocols.
pub(crate) fn parse_head(bytes: &[u8], is_head: bool) -> Result<Head, ResponseError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_LIMIT];
    let (status, minor) = parse(bytes, &mut headers)?;
    let mut parsed = Headers::default();
    for header in headers.iter().take_while(|h| !h.name.is_empty()) {
        parsed.parse(header.name, header.value)?;
    }
    if status == 101 {
        return Err(ResponseError::Framing(
            "the server switched protocols (101), which hotlap does not support",
        ));
    }
    let bodiless = is_head || (100..200).contains(&status) || status == 204 || status == 304;
    let framing = match parsed {
        Headers { transfer_encoding: true, length: Some(_), .. } => {
            return Err(ResponseError::Framing("both Content-Length and Transfer-Encoding"));
        }
        Headers { transfer_encoding: true, .. } if minor == 0 => {
            return Err(ResponseError::Framing("Transfer-Encoding in an HTTP/1.0 response"));
        }
        _ if bodiless => Framing::NoBody,
        Headers { transfer_encoding: true, chunked: true, .. } => Framing::Chunked,
        Headers { length: Some(length), .. } => Framing::Length(length),
        _ => Framing::UntilClose,
    };
    let persists = if minor == 1 { !parsed.close } else { parsed.keep_alive && !parsed.close };
    Ok(Head {
        status,
        minor,
        keep_alive: persists && framing != Framing::UntilClose,
        framing,
        length: parsed.length,
        size: bytes.len(),
    })
}

/// Returns all headers of a complete head, in order.
pub(super) fn headers(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, ResponseError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_LIMIT];
    parse(bytes, &mut headers)?;
    let present = headers.iter().take_while(|h| !h.name.is_empty());
    Ok(present.map(|h| (h.name.to_owned(), h.value.to_vec())).collect())
}

fn parse<'b>(
    bytes: &'b [u8],
    headers: &mut [httparse::Header<'b>],
) -> Result<(u16, u8), ResponseError> {
    let mut parsed = httparse::Response::new(headers);
    let done = httparse::ParserConfig::default()
        .allow_obsolete_multiline_headers_in_responses(true)
        .parse_response(&mut parsed, bytes)
        .map_err(|e| {
            ResponseError::Framing(match e {
                httparse::Error::Status => "a malformed status line",
                httparse::Error::Version => "a version other than HTTP/1.0 and HTTP/1.1",
                httparse::Error::HeaderName => "a malformed header name",
                httparse::Error::HeaderValue => "a malformed header value",
                httparse::Error::TooManyHeaders => "more than 256 header lines",
                _ => "a malformed head",
            })
        })?;
    match (done, parsed.code, parsed.version) {
        (httparse::Status::Complete(length), Some(code), Some(version))
            if length == bytes.len() && code >= 100 =>
        {
            Ok((code, version))
        }
        _ => Err(ResponseError::Framing("a malformed head")),
    }
}

/// What the headers say about framing and the connection.
#[derive(Default)]
struct Headers {
    length: Option<u64>,
    transfer_encoding: bool,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Headers {
    fn parse(&mut self, name: &str, value: &[u8]) -> Result<(), ResponseError> {
        if name.eq_ignore_ascii_case("content-length") {
            // Several equal lengths count as one length (RFC 9112 section 6.3, rule 5).
            for item in value.split(|&b| b == b',') {
                let length = decimal(item.trim_ascii())
                    .ok_or(ResponseError::Framing("Content-Length is not a number"))?;
                if self.length.is_some_and(|other| other != length) {
                    return Err(ResponseError::Framing("conflicting Content-Length values"));
                }
                self.length = Some(length);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            self.transfer_encoding = true;
            let last = value.rsplit(|&b| b == b',').next().unwrap_or_default();
            self.chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            for item in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                self.close |= item.eq_ignore_ascii_case(b"close");
                self.keep_alive |= item.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Ok(())
    }
}

/// Parses a number that has only decimal digits and at most 63 bits.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (value <= i64::MAX as u64).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a head with this first line and these header lines.
    fn with(first: &str, lines: &str) -> Vec<u8> {
        format!("{first}\r\n{lines}\r\n").into_bytes()
    }

    /// Parses the head of an HTTP/1.1 200 with these header lines.
    fn parsed(lines: &str) -> Result<Head, ResponseError> {
        parse_head(&with("HTTP/1.1 200 OK", lines), false)
    }

    fn framing(lines: &str) -> Framing {
        parsed(lines).unwrap().framing
    }

    fn why(result: Result<Head, ResponseError>) -> &'static str {
        match result {
            Err(ResponseError::Framing(why)) => why,
            other => panic!("{other:?} instead of an error"),
        }
    }

    #[test]
    fn the_end_is_found_wherever_the_search_resumes() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let mut buf = head.to_vec();
        buf.extend_from_slice(b"Hello\r\n\r\n");
        for from in 0..head.len() {
            assert_eq!(head_end(&buf, from), Ok(Some(head.len())), "from {from}");
            assert_eq!(head_end(&head[..from], from), Ok(None), "the first {from} bytes");
        }
        // The end is also found if there is no header line.
        let bare = b"HTTP/1.1 200 OK\r\n\r\n";
        for from in 0..bare.len() {
            assert_eq!(head_end(bare, from), Ok(Some(bare.len())), "from {from}");
        }
    }

    #[test]
    fn a_head_of_64_kib_is_read_and_one_byte_more_is_not() {
        let of = |size: usize| {
            let rest = size - with("HTTP/1.1 200 OK", "X: \r\n").len();
            with("HTTP/1.1 200 OK", &format!("X: {}\r\n", "a".repeat(rest)))
        };
        assert_eq!(HEAD_LIMIT, 65_536);
        let too_long = Err(ResponseError::Framing("the head is over 64 KiB"));
        assert_eq!(head_end(&of(HEAD_LIMIT), 0), Ok(Some(HEAD_LIMIT)));
        assert_eq!(head_end(&of(HEAD_LIMIT + 1), 0), too_long);
        // An incomplete head is too long as soon as it exceeds the limit.
        let unfinished = of(HEAD_LIMIT + 2);
        assert_eq!(head_end(&unfinished[..HEAD_LIMIT], 0), Ok(None));
        assert_eq!(head_end(&unfinished[..=HEAD_LIMIT], 0), too_long);
    }

    #[test]
    fn a_status_decides_whether_there_is_a_body() {
        let of = |status: u16, is_head| {
            let head = with(&format!("HTTP/1.1 {status} X"), "Content-Length: 7\r\n");
            parse_head(&head, is_head).unwrap()
        };
        for (status, expected) in [
            (100, Framing::NoBody),
            (199, Framing::NoBody),
            (200, Framing::Length(7)),
            (203, Framing::Length(7)),
            (204, Framing::NoBody),
            (205, Framing::Length(7)),
            (303, Framing::Length(7)),
            (304, Framing::NoBody),
            (305, Framing::Length(7)),
            (999, Framing::Length(7)),
        ] {
            assert_eq!(of(status, false).framing, expected, "{status}");
            assert_eq!(of(status, true).framing, Framing::NoBody, "HEAD, {status}");
            assert_eq!(of(status, false).length, Some(7), "{status}");
            assert_eq!(of(status, false).is_interim(), status < 200, "{status}");
        }
        let switching = parse_head(&with("HTTP/1.1 101 X", ""), false);
        assert!(why(switching).contains("switched protocols"));
    }

    #[test]
    fn a_body_ends_by_its_chunks_by_its_length_or_with_the_connection() {
        assert_eq!(framing(""), Framing::UntilClose);
        assert_eq!(framing("Content-Length: 0\r\n"), Framing::Length(0));
        assert_eq!(framing("Transfer-Encoding: chunked\r\n"), Framing::Chunked);
        assert_eq!(framing("transfer-encoding: gzip, Chunked\r\n"), Framing::Chunked);
        // Chunks end a body only if chunked is the last coding (RFC 9112 section 6.3, rule 4).
        assert_eq!(framing("Transfer-Encoding: chunked, gzip\r\n"), Framing::UntilClose);
        assert_eq!(framing("Transfer-Encoding: gzip\r\n"), Framing::UntilClose);
        let chunked = "Transfer-Encoding: chunked\r\n";
        let old = parse_head(&with("HTTP/1.0 200 OK", chunked), false);
        assert_eq!(why(old), "Transfer-Encoding in an HTTP/1.0 response");
        // Both headers together are an error even if there is no body.
        let both = with("HTTP/1.1 204 X", "Transfer-Encoding: gzip\r\nContent-Length: 1\r\n");
        assert_eq!(why(parse_head(&both, false)), "both Content-Length and Transfer-Encoding");
    }

    #[test]
    fn close_wins_over_keep_alive() {
        let persists = |first: &str, lines: &str| {
            let lines = format!("Content-Length: 0\r\n{lines}");
            parse_head(&with(first, &lines), false).unwrap().keep_alive
        };
        let (new, old) = ("HTTP/1.1 200 OK", "HTTP/1.0 200 OK");
        assert!(persists(new, "") && !persists(old, ""));
        assert!(persists(new, "Connection: keep-alive\r\n"));
        assert!(persists(old, "Connection: keep-alive\r\n"));
        assert!(!persists(new, "Connection: x, Close\r\n"));
        assert!(!persists(new, "Connection: close, close\r\n"));
        assert!(!persists(new, "Connection: keep-alive, close\r\n"));
        assert!(!persists(old, "Connection: upgrade\r\n"));
        assert!(persists(old, "Connection: keep-alive, keep-alive\r\n"));
        assert!(!persists(old, "Connection: keep-alive\r\nConnection: close\r\n"));
    }

    #[test]
    fn a_length_has_digits_only_and_63_bits() {
        let of = |value: &str| parsed(&format!("Content-Length: {value}\r\n"));
        let most = 9_223_372_036_854_775_807;
        assert_eq!(of("9223372036854775807").unwrap().framing, Framing::Length(most));
        assert_eq!(of("2, 2\r\nContent-Length: 2").unwrap().framing, Framing::Length(2));
        let longer = "99999999999999999999";
        for wrong in ["9223372036854775808", longer, "", "5,", "+5", "-5", "5x", "0x5"] {
            assert_eq!(why(of(wrong)), "Content-Length is not a number", "{wrong:?}");
        }
        assert_eq!(why(of("5, 6")), "conflicting Content-Length values");
    }

    #[test]
    fn each_error_in_a_head_has_its_message() {
        let of = |bytes: &[u8]| why(parse_head(bytes, false));
        assert_eq!(of(b"HTTP/1.1 2x0 OK\r\n\r\n"), "a malformed status line");
        assert_eq!(of(b"HTTP/1.2 200 OK\r\n\r\n"), "a version other than HTTP/1.0 and HTTP/1.1");
        assert_eq!(of(b"HTTP/1.1 200 OK\r\nA B: c\r\n\r\n"), "a malformed header name");
        assert_eq!(of(b"HTTP/1.1 200 OK\r\nA: \x01\r\n\r\n"), "a malformed header value");
        assert_eq!(of(b"HTTP/1.1 200 OK\r\n\rA\r\n\r\n"), "a malformed head");
        assert_eq!(of(b"HTTP/1.1 099 X\r\n\r\n"), "a malformed head");
        assert_eq!(of(b"HTTP/1.1 200 OK\r\n"), "a malformed head");
        assert_eq!(of(b"HTTP/1.1 200 OK\r\n\r\nbody"), "a malformed head");
        let lines = |count| "A: b\r\n".repeat(count);
        assert!(parsed(&lines(256)).is_ok());
        assert_eq!(why(parsed(&lines(257))), "more than 256 header lines");
    }
}
