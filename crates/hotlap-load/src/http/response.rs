//! A complete response, read from a buffer.

use super::body::{BodyReader, Piece};
use super::error::ResponseError;
use super::head::{self, Framing, head_end, parse_head};

/// A complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The minor version: 0 or 1, for HTTP/1.0 or HTTP/1.1.
    pub minor: u8,
    /// The headers in order, with names as sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The decoded body.
    pub body: Vec<u8>,
    /// How many bytes of the buffer the response takes.
    pub consumed: usize,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
    /// How the body was delimited.
    pub framing: Framing,
    /// The status codes of the interim responses (100, 103) before it.
    pub interim: Vec<u16>,
}

impl Response {
    /// The value of the first header with this name, ignoring case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }
}

/// Reads one response from the start of `buf`; `None` if more bytes are needed. `is_head` means
/// that the request was a HEAD, `at_eof` that no more bytes will come.
///
/// # Errors
/// The bytes violate RFC 9112, or end before the response does.
pub fn read_response(
    buf: &[u8],
    is_head: bool,
    at_eof: bool,
) -> Result<Option<Response>, ResponseError> {
    let incomplete = || if at_eof { Err(ResponseError::ClosedEarly) } else { Ok(None) };
    let mut interim = Vec::new();
    let mut at = 0;
    let (head, headers) = loop {
        let Some(length) = head_end(&buf[at..], 0)? else { return incomplete() };
        let bytes = &buf[at..at + length];
        let head = parse_head(bytes, is_head)?;
        at += length;
        if head.is_interim() {
            interim.push(head.status);
        } else {
            break (head, head::headers(bytes)?);
        }
    };
    let mut reader = BodyReader::new(head.framing);
    let mut body = Vec::new();
    loop {
        let mut rest = &buf[at..];
        let piece = reader.next(&mut rest)?;
        at = buf.len() - rest.len();
        match piece {
            Piece::Data(data) => body.extend_from_slice(data),
            Piece::End => break,
            Piece::NeedMore if at_eof && head.framing == Framing::UntilClose => break,
            Piece::NeedMore => return incomplete(),
        }
    }
    Ok(Some(Response {
        status: head.status,
        minor: head.minor,
        headers,
        body,
        consumed: at,
        keep_alive: head.keep_alive,
        framing: head.framing,
        interim,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_the_version_and_the_headers_that_were_sent() {
        let bytes = b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nX-A: 1\r\nx-a: 2\r\n\r\n";
        let response = read_response(bytes, false, false).unwrap().unwrap();
        assert_eq!((response.minor, response.framing), (0, Framing::Length(0)));
        let names: Vec<&str> = response.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Content-Length", "X-A", "x-a"]);
        assert_eq!(response.header("X-a"), Some(&b"1"[..]));
        assert_eq!(response.header("X-B"), None);
        let newer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello";
        assert_eq!(read_response(newer, false, false).unwrap().unwrap().minor, 1);
    }
}
