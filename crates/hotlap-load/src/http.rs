//! HTTP/1.1 framing (RFC 9112) without sockets, so that it can be tested and fuzzed on its own.
//!
//! Two readers share the same rules. [`ResponseReader`] is for the engine. It takes bytes in any
//! pieces that the network delivers, and buffers only a head that arrives in parts.
//! [`GrowingResponse`] is for verification. It reads a growing buffer and returns a complete
//! [`Response`] with headers and decoded body.
//!
//! Both readers are strict where a lenient reader would hide a fault of the server. Lines must end
//! in CRLF. A response with conflicting lengths, or with both a length and chunks, is an error.

mod body;
mod head;

use body::{BodyReader, Piece};
use head::HEAD_LIMIT;
pub use head::{Framing, Head};
pub(crate) use head::{head_end, parse_head};

/// Returns whether a text is a token, as the name of a header must be (RFC 9110 section 5.6.2).
pub fn is_token(text: &str) -> bool {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.chars().all(is_token)
}

/// The reason why bytes cannot be read as an HTTP/1.x response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The bytes violate RFC 9112. The text says how.
    #[error("{0}")]
    Framing(&'static str),
    /// The connection closed before the response was complete.
    #[error("the connection closed before the response was complete")]
    ClosedEarly,
}

impl ResponseError {
    /// The server sent too many interim responses before a final response.
    const TOO_MANY_INTERIM: Self = Self::Framing("over 100 interim responses");
}

/// An event of a [`ResponseReader`].
#[derive(Debug, PartialEq, Eq)]
pub enum ResponseEvent<'a> {
    /// All bytes are consumed, but the response is not complete.
    NeedMore,
    /// The head of a final response. Interim responses are skipped.
    Head(Head),
    /// Decoded bytes of the body.
    Data(&'a [u8]),
    /// The response is complete.
    End,
}

/// Reads responses that arrive in pieces of any size.
#[derive(Debug, Default)]
pub struct ResponseReader {
    /// The part of an incomplete head that has arrived. Empty and without an allocation at other
    /// times.
    partial: Vec<u8>,
    state: State,
    /// The number of interim responses since the last final response.
    interim: usize,
}

/// The maximum number of interim responses (RFC 9110 section 15.2) before a final response. The
/// RFC sets no limit, but a server that never stops sending interim responses never sends a final
/// response.
const INTERIM_LIMIT: usize = 100;

#[derive(Debug, Default)]
enum State {
    /// The reader is before or within a head.
    #[default]
    Head,
    Body(BodyReader),
}

impl ResponseReader {
    /// Returns whether the reader is before the first byte of a response.
    pub fn is_between_responses(&self) -> bool {
        matches!(self.state, State::Head) && self.partial.is_empty()
    }

    /// Consumes bytes from the front of `input` up to the next event.
    ///
    /// # Errors
    /// The bytes violate RFC 9112. After an error, the reader cannot be used any more.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        is_head: bool,
    ) -> Result<ResponseEvent<'a>, ResponseError> {
        loop {
            match &mut self.state {
                State::Body(body) => {
                    return Ok(match body.next(input)? {
                        Piece::Data(data) => ResponseEvent::Data(data),
                        Piece::NeedMore => ResponseEvent::NeedMore,
                        Piece::End => {
                            self.state = State::Head;
                            ResponseEvent::End
                        }
                    });
                }
                State::Head => {
                    let Some(head) = self.head(input, is_head)? else {
                        return Ok(ResponseEvent::NeedMore);
                    };
                    if head.is_interim() {
                        self.interim += 1;
                        if self.interim > INTERIM_LIMIT {
                            return Err(ResponseError::TOO_MANY_INTERIM);
                        }
                        continue;
                    }
                    self.interim = 0;
                    self.state = State::Body(BodyReader::new(head.framing));
                    return Ok(ResponseEvent::Head(head));
                }
            }
        }
    }

    /// Returns whether the reader is within a body that is delimited by the end of the connection
    /// (RFC 9112 section 6.3, rule 8).
    pub fn is_until_close(&self) -> bool {
        matches!(self.state, State::Body(BodyReader::UntilClose))
    }

    /// Returns the number of bytes of the body that are still to come, if its length is known.
    pub fn remaining(&self) -> Option<u64> {
        match &self.state {
            State::Body(BodyReader::Length(rest)) => Some(*rest),
            _ => None,
        }
    }

    /// Accounts for bytes of a body of known length that were discarded unread.
    pub fn skip(&mut self, count: u64) {
        if let State::Body(BodyReader::Length(rest)) = &mut self.state {
            *rest = rest.saturating_sub(count);
        }
    }

    /// Tells the reader that the connection has closed.
    ///
    /// # Errors
    /// No response is complete with the end of the connection.
    pub fn close(&mut self) -> Result<(), ResponseError> {
        match self.state {
            State::Body(BodyReader::UntilClose) => {
                self.state = State::Head;
                Ok(())
            }
            _ => Err(ResponseError::ClosedEarly),
        }
    }

    fn head(&mut self, input: &mut &[u8], is_head: bool) -> Result<Option<Head>, ResponseError> {
        if self.partial.is_empty() {
            let Some(length) = head_end(input, 0)? else {
                self.partial.extend_from_slice(input);
                *input = &[];
                return Ok(None);
            };
            let head = parse_head(&input[..length], is_head)?;
            *input = &input[length..];
            return Ok(Some(head));
        }
        // Up to three of the four bytes that end the head may have arrived before.
        let before = self.partial.len();
        let room = (HEAD_LIMIT + 1).saturating_sub(before).min(input.len());
        self.partial.extend_from_slice(&input[..room]);
        let Some(length) = head_end(&self.partial, before.saturating_sub(3))? else {
            *input = &input[room..];
            return Ok(None);
        };
        let head = parse_head(&self.partial[..length], is_head)?;
        *input = &input[length - before..];
        self.partial = Vec::new();
        Ok(Some(head))
    }
}

/// A complete response. `B` is the type that keeps the body, as a whole or in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<B = Vec<u8>> {
    /// The status code.
    pub status: u16,
    /// The minor version: 0 or 1, for HTTP/1.0 or HTTP/1.1.
    pub minor: u8,
    /// The headers in order, with their names as sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The decoded body.
    pub body: B,
    /// The number of bytes of the buffer that the response takes.
    pub consumed: usize,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
    /// How the body was delimited.
    pub framing: Framing,
    /// The status codes of the interim responses, such as 103, that came before the final
    /// response.
    pub interim: Vec<u16>,
}

impl<B> Response<B> {
    /// Returns the value of the first header with this name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }
}

/// A response that arrives piece by piece at the end of one buffer. Each byte of the body is read
/// only once, so the time to read a response is in proportion to its size.
#[derive(Debug, Default)]
pub struct GrowingResponse<B = Vec<u8>> {
    /// The number of bytes of the buffer that have been read.
    at: usize,
    interim: Vec<u16>,
    /// The response from its head on, once the head is complete.
    begun: Option<Begun>,
    body: B,
}

/// A type that keeps a body that arrives piece by piece, or the part of the body that is needed.
pub trait KeepBody {
    /// Takes the next piece of the body.
    fn piece(&mut self, piece: &[u8]);
}

impl KeepBody for Vec<u8> {
    fn piece(&mut self, piece: &[u8]) {
        self.extend_from_slice(piece);
    }
}

#[derive(Debug)]
struct Begun {
    head: Head,
    headers: Vec<(String, Vec<u8>)>,
    reader: BodyReader,
    /// The position in the buffer at which the body begins.
    start: usize,
}

/// The maximum number of bytes of a body that stay in the buffer after they have been read.
const STAYS: usize = 64 << 10;

impl<B: KeepBody + Default> GrowingResponse<B> {
    /// Creates a response whose body is given to `body`.
    pub fn into(body: B) -> Self {
        Self { at: 0, interim: Vec::new(), begun: None, body }
    }

    /// Removes from `buf` the bytes of a large body that have been read. Returns their number.
    pub fn drop_read(&mut self, buf: &mut Vec<u8>) -> usize {
        let Some(begun) = self.begun.as_ref().filter(|begun| self.at - begun.start > STAYS) else {
            return 0;
        };
        let read = begun.start..std::mem::replace(&mut self.at, begun.start);
        buf.drain(read.clone());
        read.len()
    }

    /// Returns whether the head of the final response is complete.
    pub fn has_head(&self) -> bool {
        self.begun.is_some()
    }

    /// Continues to read `buf`, which has grown at its end since the last call. Returns `None` if
    /// more bytes are needed. `is_head` means that the request was a HEAD. `at_eof` means that no
    /// more bytes will come.
    ///
    /// # Errors
    /// The bytes violate RFC 9112, or end before the response does.
    pub fn read(
        &mut self,
        buf: &[u8],
        is_head: bool,
        at_eof: bool,
    ) -> Result<Option<Response<B>>, ResponseError> {
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
            self.begun = Some(Begun { head, headers, reader, start: self.at });
        };
        loop {
            let mut rest = &buf[self.at..];
            let piece = begun.reader.next(&mut rest)?;
            self.at = buf.len() - rest.len();
            match piece {
                Piece::Data(data) => self.body.piece(data),
                Piece::End => break,
                Piece::NeedMore if at_eof && begun.head.framing == Framing::UntilClose => break,
                Piece::NeedMore => return incomplete(),
            }
        }
        let Some(Begun { head, headers, .. }) = self.begun.take() else { return Ok(None) };
        Ok(Some(Response {
            status: head.status,
            minor: head.minor,
            headers,
            body: std::mem::take(&mut self.body),
            consumed: std::mem::take(&mut self.at),
            keep_alive: head.keep_alive,
            framing: head.framing,
            interim: std::mem::take(&mut self.interim),
        }))
    }
}

/// Reads one response from the start of `buf`. See [`GrowingResponse::read`].
///
/// # Errors
/// The bytes violate RFC 9112, or end before the response does.
pub fn read_response(
    buf: &[u8],
    is_head: bool,
    at_eof: bool,
) -> Result<Option<Response>, ResponseError> {
    GrowingResponse::into(Vec::new()).read(buf, is_head, at_eof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_letters_digits_and_some_signs() {
        for token in ["X-Id", "a", "9", "!#$%&'*+-.^_`|~"] {
            assert!(is_token(token), "{token}");
        }
        for text in ["", "X Id", "X:", "(a)", "ä", "a\n"] {
            assert!(!is_token(text), "{text}");
        }
    }

    const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello";

    /// Returns a reader that has consumed all of `bytes`.
    fn after(bytes: &[u8]) -> ResponseReader {
        let (mut reader, mut rest) = (ResponseReader::default(), bytes);
        while reader.next(&mut rest, false).unwrap() != ResponseEvent::NeedMore {}
        reader
    }

    #[test]
    fn a_reader_knows_when_it_is_between_responses() {
        let head = HELLO.len() - 5;
        for taken in 0..=HELLO.len() {
            let between = taken == 0 || taken == HELLO.len();
            let reader = after(&HELLO[..taken]);
            assert_eq!(reader.is_between_responses(), between, "after {taken} bytes");
            let left = (head..HELLO.len()).contains(&taken).then(|| (HELLO.len() - taken) as u64);
            assert_eq!(reader.remaining(), left, "after {taken} bytes");
        }
    }

    #[test]
    fn only_a_body_without_length_and_chunks_ends_with_the_connection() {
        assert!(after(b"HTTP/1.1 200 OK\r\n\r\nHello").is_until_close());
        assert!(!after(&HELLO[..HELLO.len() - 3]).is_until_close());
        assert!(!after(b"").is_until_close());
    }

    #[test]
    fn skipped_bytes_are_not_waited_for() {
        let mut reader = after(&HELLO[..HELLO.len() - 3]);
        reader.skip(2);
        assert_eq!(reader.remaining(), Some(1));
        reader.skip(1);
        assert_eq!(reader.next(&mut &b""[..], false), Ok(ResponseEvent::End));
        // More bytes may be skipped than there are.
        let mut reader = after(&HELLO[..HELLO.len() - 3]);
        reader.skip(4);
        assert_eq!(reader.remaining(), Some(0));
        // The length of a body without `Content-Length` is not known.
        let mut reader = after(b"HTTP/1.1 200 OK\r\n\r\nHel");
        reader.skip(2);
        assert_eq!(reader.remaining(), None);
    }

    #[test]
    fn the_end_of_the_connection_completes_only_a_body_without_a_length() {
        let mut until_close = after(b"HTTP/1.1 200 OK\r\n\r\nHel");
        assert_eq!(until_close.close(), Ok(()));
        assert!(until_close.is_between_responses());
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHel";
        for bytes in [&b""[..], b"HTTP/1.1", &HELLO[..HELLO.len() - 1], chunked] {
            assert_eq!(after(bytes).close(), Err(ResponseError::ClosedEarly));
        }
    }

    #[test]
    fn a_head_of_64_kib_in_pieces_is_read_and_one_byte_more_is_not() {
        let of = |size: usize| {
            let frame = b"HTTP/1.1 204 X\r\nX: \r\n\r\n".len();
            format!("HTTP/1.1 204 X\r\nX: {}\r\n\r\n", "a".repeat(size - frame)).into_bytes()
        };
        for (size, expected) in [
            (HEAD_LIMIT, Ok(204)),
            (HEAD_LIMIT + 1, Err(ResponseError::Framing("the head is over 64 KiB"))),
        ] {
            let bytes = of(size);
            for cut in [1, size - 2, size - 1] {
                let mut reader = ResponseReader::default();
                assert_eq!(reader.next(&mut &bytes[..cut], false), Ok(ResponseEvent::NeedMore));
                let found = match reader.next(&mut &bytes[cut..], false) {
                    Ok(ResponseEvent::Head(head)) => Ok(head.status),
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => Err(error),
                };
                assert_eq!(found, expected, "{size} bytes cut at {cut}");
            }
        }
    }

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
            let (mut response, mut end) = (GrowingResponse::into(Vec::new()), 0);
            let found = loop {
                end = (end + size).min(bytes.len());
                if let Some(found) = response.read(&bytes[..end], false, false).unwrap() {
                    break found;
                }
            };
            assert_eq!(found, whole, "{size}");
        }
    }

    /// Regression: a large response was stored twice, in the buffer and as its body.
    #[test]
    fn bytes_of_a_large_body_leave_the_buffer_once_they_are_read() {
        let body = vec![b'a'; 5 * STAYS];
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let (mut response, mut buf) = (GrowingResponse::into(Vec::new()), head.into_bytes());
        let (head, mut found) = (buf.len(), None);
        for piece in body.chunks(1_000) {
            buf.extend_from_slice(piece);
            found = response.read(&buf, false, false).unwrap();
            response.drop_read(&mut buf);
            assert!(buf.len() <= head + STAYS + 1_000);
        }
        let found = found.unwrap();
        assert_eq!((found.consumed, found.body), (buf.len(), body));
    }

    /// Regression: a server that never stopped sending interim responses was read forever.
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
