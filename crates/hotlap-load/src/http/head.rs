//! The head of an answer: where it ends, what it says about the body and the connection.

use super::Broken;

/// The longest head that is read: 64 KiB. Servers send some 200 bytes; a head that goes on for
/// longer is taken for one that never ends.
pub const HEAD_LIMIT: usize = 64 * 1024;

/// How every head starts.
const START: &[u8] = b"HTTP/1.";

/// The most header lines that are read.
const HEADERS_LIMIT: usize = 256;

/// What counts of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// 0 or 1, for HTTP/1.0 or HTTP/1.1.
    pub minor: u8,
    /// Whether the connection can carry another request (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// How the end of the body is told.
    pub framing: Framing,
    /// What Content-Length says; of a HEAD's answer, how long the body would be.
    pub length: Option<u64>,
    /// Bytes of the head, its blank line included.
    pub size: usize,
}

impl Head {
    /// Whether another head follows for the same request (RFC 9110 section 15.2).
    #[must_use]
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }
}

/// How the end of a body is told (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    NoBody,
    /// By its length.
    Length(u64),
    /// By a last chunk of size 0.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// Where the head at the start of `buf` ends, its blank line included; `None` when it does not yet.
/// Up to `from`, it is known not to.
///
/// # Errors
/// When it does not start as one, a line ends in a bare LF, or it is over the limit.
pub fn head_end(buf: &[u8], from: usize) -> Result<Option<usize>, Broken> {
    // Told from the first bytes on, so that what will never be an answer is not waited for.
    let known = buf.len().min(START.len());
    if buf[..known] != START[..known] {
        return Err(Broken::Framing("no HTTP/1.x status line"));
    }
    // Where the line starts that `from` is in; a line is at least its CRLF.
    let mut start = buf[..from].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    let mut at = from;
    while let Some(offset) = buf[at..].iter().position(|&b| b == b'\n') {
        let feed = at + offset;
        if feed == 0 || buf[feed - 1] != b'\r' {
            return Err(Broken::Framing("a head line ends in a bare LF"));
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
        return Err(Broken::Framing("the head is over 64 KiB"));
    }
    Ok(None)
}

/// Parses a whole head.
///
/// # Errors
/// When it is malformed, says two things about its length, or asks to switch protocols.
pub fn parse_head(bytes: &[u8], is_head: bool) -> Result<Head, Broken> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_LIMIT];
    let (status, minor) = parse(bytes, &mut headers)?;
    let mut said = Said::default();
    for header in headers.iter().take_while(|h| !h.name.is_empty()) {
        said.hear(header.name, header.value)?;
    }
    if status == 101 {
        return Err(Broken::Framing("the server switches protocols (101), which nobody asked for"));
    }
    let bodiless = is_head || (100..200).contains(&status) || status == 204 || status == 304;
    let framing = match said {
        Said { transfer: true, length: Some(_), .. } => {
            return Err(Broken::Framing("both Content-Length and Transfer-Encoding"));
        }
        Said { transfer: true, .. } if minor == 0 => {
            return Err(Broken::Framing("Transfer-Encoding in an HTTP/1.0 answer"));
        }
        _ if bodiless => Framing::NoBody,
        Said { transfer: true, chunked: true, .. } => Framing::Chunked,
        Said { length: Some(length), .. } => Framing::Length(length),
        _ => Framing::UntilClose,
    };
    let stays = if minor == 1 { !said.close } else { said.keep_alive && !said.close };
    Ok(Head {
        status,
        minor,
        keep_alive: stays && framing != Framing::UntilClose,
        framing,
        length: said.length,
        size: bytes.len(),
    })
}

/// All headers of a whole head, in order.
pub(super) fn headers(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Broken> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_LIMIT];
    parse(bytes, &mut headers)?;
    let named = headers.iter().take_while(|h| !h.name.is_empty());
    Ok(named.map(|h| (h.name.to_owned(), h.value.to_vec())).collect())
}

fn parse<'b>(bytes: &'b [u8], headers: &mut [httparse::Header<'b>]) -> Result<(u16, u8), Broken> {
    let mut parsed = httparse::Response::new(headers);
    let done = httparse::ParserConfig::default()
        .allow_obsolete_multiline_headers_in_responses(true)
        .parse_response(&mut parsed, bytes)
        .map_err(|e| {
            Broken::Framing(match e {
                httparse::Error::Status => "no status line",
                httparse::Error::Version => "no HTTP/1.x version",
                httparse::Error::HeaderName => "a malformed header name",
                httparse::Error::HeaderValue => "a malformed header value",
                httparse::Error::TooManyHeaders => "more than 256 header lines",
                _ => "a malformed head",
            })
        })?;
    match (done, parsed.code, parsed.version) {
        (httparse::Status::Complete(length), Some(code), Some(version))
            if length == bytes.len() && (100..1000).contains(&code) =>
        {
            Ok((code, version))
        }
        _ => Err(Broken::Framing("a malformed head")),
    }
}

/// What headers say about framing and the connection.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    transfer: bool,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Said {
    fn hear(&mut self, name: &str, value: &[u8]) -> Result<(), Broken> {
        if name.eq_ignore_ascii_case("content-length") {
            // A list of equal lengths is one length (RFC 9112 section 6.3, rule 5).
            for item in value.split(|&b| b == b',') {
                let length = decimal(item.trim_ascii())
                    .ok_or(Broken::Framing("a Content-Length that is no number"))?;
                if self.length.is_some_and(|other| other != length) {
                    return Err(Broken::Framing("two lengths that differ"));
                }
                self.length = Some(length);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            self.transfer = true;
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

/// Digits only, and within 63 bits.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (value <= i64::MAX as u64).then_some(value)
}
