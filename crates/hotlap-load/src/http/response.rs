//! A complete response, read from a buffer.

use super::body::{BodyReader, Piece};
use super::error::ResponseError;
use super::head::{self, Framing, Head, head_end, parse_head};
use super::reader::INTERIM_LIMIT;

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
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }
}

/// A response that arrives piece by piece, at the end of one buffer. Each byte of the body is read
/// only once, so that the time for a large response is in proportion to its size.
#[derive(Debug, Default)]
pub struct GrowingResponse {
    /// How much of the buffer has been read.
    at: usize,
    interim: Vec<u16>,
    /// The part from the head on, once the head is complete.
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    head: Head,
    headers: Vec<(String, Vec<u8>)>,
    reader: BodyReader,
    body: Vec<u8>,
}

impl GrowingResponse {
    /// Whether the final head is complete.
    pub fn has_head(&self) -> bool {
        self.begun.is_some()
    }

    /// Continues to read `buf`, which has grown at its end since the last call. Returns `None` if
    /// more bytes are needed. `is_head` means that the request was a HEAD, `at_eof` that no more
    /// bytes will come.
    ///
    /// # Errors
    /// The bytes violate RFC 9112, or end before the response does.
    pub fn read(
        &mut self,
        buf: &[u8],
        is_head: bool,
        at_eof: bool,
    ) -> Result<Option<Response>, ResponseError> {
        let incomplete = || if at_eof { Err(ResponseError::ClosedEarly) } else { Ok(None) };
        let begun = loop {
            if let Some(begun) = &mut self.begun {
                break begun;
            }
            let Some(length) = head_end(&buf[self.at..], 0)? else { return incomplete() };
            let bytes = &buf[self.at..self.at + length];
            let head = parse_head(bytes, is_head)?;
            self.at += length;
            if head.is_interim() {
                self.interim.push(head.status);
                if self.interim.len() > INTERIM_LIMIT {
                    return Err(ResponseError::TOO_MANY_INTERIM);
                }
                continue;
            }
            let (headers, reader) = (head::headers(bytes)?, BodyReader::new(head.framing));
            self.begun = Some(Begun { head, headers, reader, body: Vec::new() });
        };
        loop {
            let mut rest = &buf[self.at..];
            let piece = begun.reader.next(&mut rest)?;
            self.at = buf.len() - rest.len();
            match piece {
                Piece::Data(data) => begun.body.extend_from_slice(data),
                Piece::End => break,
                Piece::NeedMore if at_eof && begun.head.framing == Framing::UntilClose => break,
                Piece::NeedMore => return incomplete(),
            }
        }
        let Some(Begun { head, headers, body, .. }) = self.begun.take() else { return Ok(None) };
        Ok(Some(Response {
            status: head.status,
            minor: head.minor,
            headers,
            body,
            consumed: std::mem::take(&mut self.at),
            keep_alive: head.keep_alive,
            framing: head.framing,
            interim: std::mem::take(&mut self.interim),
        }))
    }
}

/// Reads one response from the start of `buf`, see [`GrowingResponse::read`].
///
/// # Errors
/// The bytes violate RFC 9112, or end before the response does.
pub fn read_response(
    buf: &[u8],
    is_head: bool,
    at_eof: bool,
) -> Result<Option<Response>, ResponseError> {
    GrowingResponse::default().read(buf, is_head, at_eof)
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

    #[test]
    fn a_response_is_the_same_in_pieces_of_any_size() {
        let bytes =
            b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: \
                      chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nHTTP";
        let whole = read_response(bytes, false, false).unwrap().unwrap();
        assert_eq!((&whole.body[..], &whole.interim[..]), (&b"abcde"[..], &[103][..]));
        for size in 1..bytes.len() {
            let (mut response, mut end) = (GrowingResponse::default(), 0);
            let found = loop {
                end = (end + size).min(bytes.len());
                if let Some(found) = response.read(&bytes[..end], false, false).unwrap() {
                    break found;
                }
            };
            assert_eq!(found, whole, "{size}");
        }
    }

    /// Regression: a server that sent interim responses for ever was read for ever.
    #[test]
    fn a_hundred_interim_responses_are_permitted_and_one_more_is_not() {
        let after = |count: usize| {
            let mut bytes = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(count);
            bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            read_response(&bytes, false, false).map(|found| found.map(|found| found.status))
        };
        assert_eq!(after(100), Ok(Some(200)));
        assert_eq!(after(101), Err(ResponseError::TOO_MANY_INTERIM));
    }
}
