//! Bytes out, response framing in: HTTP/1.1 (RFC 9112) without a socket, so that it can be fuzzed.
//!
//! Two layers over the same rules. [`Reader`] is for the engine: it takes whatever pieces the
//! network hands over and keeps nothing but a head that came in two. [`read_answer`] is for those
//! who verify: a buffer in, a whole answer with its headers and decoded body out.
//!
//! Both are strict where a lenient reader would measure something that is not there: line ends are
//! CRLF, two lengths that differ are an error, and so is a length beside chunks.

mod body;
mod head;

pub use body::{Body, Piece};
pub use head::{Framing, HEAD_LIMIT, Head, head_end, parse_head};

/// Why bytes are no HTTP answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// They break a rule of RFC 9112.
    #[error("{0}")]
    Framing(&'static str),
    /// They end before the answer does.
    #[error("the connection closed before the answer was whole")]
    ClosedEarly,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its version: 0 or 1, for HTTP/1.0 or HTTP/1.1.
    pub minor: u8,
    /// Its headers, in order, names as sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body; chunks are put together.
    pub body: Vec<u8>,
    /// How many bytes of the buffer it took.
    pub consumed: usize,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
    /// How its end was told.
    pub framing: Framing,
    /// Interim answers (100, 103) that came before it.
    pub interim: Vec<u16>,
}

impl Answer {
    /// The first header of this name, whatever its case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }
}

/// Reads one answer from the start of `buf`: `None` when more bytes are needed. `is_head` says that
/// it answers a HEAD, `at_eof` that no more bytes will come.
///
/// # Errors
/// When the bytes break a rule, or end too early.
pub fn read_answer(buf: &[u8], is_head: bool, at_eof: bool) -> Result<Option<Answer>, Broken> {
    let missing = || if at_eof { Err(Broken::ClosedEarly) } else { Ok(None) };
    let mut interim = Vec::new();
    let mut at = 0;
    let (head, headers) = loop {
        let Some(length) = head_end(&buf[at..], 0)? else { return missing() };
        let bytes = &buf[at..at + length];
        let head = parse_head(bytes, is_head)?;
        at += length;
        if head.is_interim() {
            interim.push(head.status);
        } else {
            break (head, head::headers(bytes)?);
        }
    };
    let mut reader = Body::of(head.framing);
    let mut body = Vec::new();
    loop {
        let mut rest = &buf[at..];
        let piece = reader.next(&mut rest)?;
        at = buf.len() - rest.len();
        match piece {
            Piece::Data(data) => body.extend_from_slice(data),
            Piece::End => break,
            Piece::More if at_eof && head.framing == Framing::UntilClose => break,
            Piece::More => return missing(),
        }
    }
    Ok(Some(Answer {
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

/// What a [`Reader`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// All bytes are taken, and the answer is not whole.
    More,
    /// The head of an answer, interim ones left out.
    Head(Head),
    /// A piece of its body, decoded.
    Data(&'a [u8]),
    /// The answer is whole.
    End,
}

/// Reads answers from pieces of any size.
#[derive(Debug, Default)]
pub struct Reader {
    /// What came of a head that is not whole; empty, without memory of its own, at all other times.
    partial: Vec<u8>,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// Before or within a head.
    #[default]
    Head,
    Body(Body),
}

impl Reader {
    /// Whether it stands before the first byte of an answer.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        matches!(self.state, State::Head) && self.partial.is_empty()
    }

    /// Takes bytes from the front of `input` up to the next event.
    ///
    /// # Errors
    /// When the bytes break a rule; the reader is of no use after that.
    pub fn next<'a>(&mut self, input: &mut &'a [u8], is_head: bool) -> Result<Event<'a>, Broken> {
        loop {
            match &mut self.state {
                State::Body(body) => {
                    return Ok(match body.next(input)? {
                        Piece::Data(data) => Event::Data(data),
                        Piece::More => Event::More,
                        Piece::End => {
                            self.state = State::Head;
                            Event::End
                        }
                    });
                }
                State::Head => {
                    let Some(head) = self.head(input, is_head)? else { return Ok(Event::More) };
                    if head.is_interim() {
                        continue;
                    }
                    self.enter(head.framing);
                    return Ok(Event::Head(head));
                }
            }
        }
    }

    /// Goes to the body of an answer whose head somebody else recognised.
    pub fn enter(&mut self, framing: Framing) {
        self.state = State::Body(Body::of(framing));
    }

    /// Whether a body is under way that the end of the connection delimits (RFC 9112 section 6.3,
    /// rule 8).
    #[must_use]
    pub fn is_until_close(&self) -> bool {
        matches!(self.state, State::Body(Body::UntilClose))
    }

    /// How many bytes of the body are certain to come still, where a length tells.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        match &self.state {
            State::Body(Body::Length(rest)) => Some(*rest),
            _ => None,
        }
    }

    /// Takes note that so many bytes of a body of known length were thrown away unread.
    pub fn skip(&mut self, count: u64) {
        if let State::Body(Body::Length(rest)) = &mut self.state {
            *rest = rest.saturating_sub(count);
        }
    }

    /// The connection is at its end: whether that is the end of the answer, too.
    ///
    /// # Errors
    /// When it is not.
    pub fn close(&mut self) -> Result<(), Broken> {
        match self.state {
            State::Body(Body::UntilClose) => {
                self.state = State::Head;
                Ok(())
            }
            _ => Err(Broken::ClosedEarly),
        }
    }

    fn head(&mut self, input: &mut &[u8], is_head: bool) -> Result<Option<Head>, Broken> {
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
        // The end may lie across the border: its first three bytes may be here already.
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

/// The bytes of a request. `Host` is written first, `Content-Length` last and only where there is a
/// body, unless `headers` names them.
#[must_use]
pub fn request(
    method: &str,
    path: &str,
    host: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> Vec<u8> {
    let named = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    let mut bytes = format!("{method} {path} HTTP/1.1\r\n");
    if !named("host") {
        bytes += &format!("Host: {host}\r\n");
    }
    for (name, value) in headers {
        bytes += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() && !named("content-length") && !named("transfer-encoding") {
        bytes += &format!("Content-Length: {}\r\n", body.len());
    }
    bytes += "\r\n";
    let mut bytes = bytes.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello";

    /// A reader that has taken all of `bytes`.
    fn after(bytes: &[u8]) -> Reader {
        let (mut reader, mut rest) = (Reader::default(), bytes);
        while reader.next(&mut rest, false).unwrap() != Event::More {}
        reader
    }

    #[test]
    fn a_reader_is_fresh_between_answers_only() {
        let head = HELLO.len() - 5;
        for taken in 0..=HELLO.len() {
            let is_fresh = taken == 0 || taken == HELLO.len();
            assert_eq!(after(&HELLO[..taken]).is_fresh(), is_fresh, "after {taken} bytes");
            let left = (head..HELLO.len()).contains(&taken).then(|| (HELLO.len() - taken) as u64);
            assert_eq!(after(&HELLO[..taken]).remaining(), left, "after {taken} bytes");
        }
    }

    #[test]
    fn what_is_skipped_is_not_waited_for() {
        let mut reader = after(&HELLO[..HELLO.len() - 3]);
        reader.skip(2);
        assert_eq!(reader.remaining(), Some(1));
        reader.skip(1);
        assert_eq!(reader.next(&mut &b""[..], false), Ok(Event::End));
        // More than there is.
        let mut reader = after(&HELLO[..HELLO.len() - 3]);
        reader.skip(4);
        assert_eq!(reader.remaining(), Some(0));
        // No other body has a known rest.
        let mut reader = after(b"HTTP/1.1 200 OK\r\n\r\nHel");
        reader.skip(2);
        assert_eq!(reader.remaining(), None);
    }

    #[test]
    fn the_end_of_the_connection_ends_only_a_body_without_a_length() {
        let mut until_close = after(b"HTTP/1.1 200 OK\r\n\r\nHel");
        assert_eq!(until_close.close(), Ok(()));
        assert!(until_close.is_fresh());
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHel";
        for bytes in [&b""[..], b"HTTP/1.1", &HELLO[..HELLO.len() - 1], chunked] {
            assert_eq!(after(bytes).close(), Err(Broken::ClosedEarly));
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
            (HEAD_LIMIT + 1, Err(Broken::Framing("the head is over 64 KiB"))),
        ] {
            let bytes = of(size);
            for cut in [1, size - 2, size - 1] {
                let mut reader = Reader::default();
                assert_eq!(reader.next(&mut &bytes[..cut], false), Ok(Event::More));
                let found = match reader.next(&mut &bytes[cut..], false) {
                    Ok(Event::Head(head)) => Ok(head.status),
                    Ok(other) => panic!("{other:?}"),
                    Err(broken) => Err(broken),
                };
                assert_eq!(found, expected, "{size} bytes cut at {cut}");
            }
        }
    }

    #[test]
    fn an_answer_has_the_version_and_the_headers_that_were_sent() {
        let bytes = b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nX-A: 1\r\nx-a: 2\r\n\r\n";
        let answer = read_answer(bytes, false, false).unwrap().unwrap();
        assert_eq!((answer.minor, answer.framing), (0, Framing::Length(0)));
        let names: Vec<&str> = answer.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Content-Length", "X-A", "x-a"]);
        assert_eq!(answer.header("X-a"), Some(&b"1"[..]));
        assert_eq!(answer.header("X-B"), None);
        assert_eq!(read_answer(HELLO, false, false).unwrap().unwrap().minor, 1);
    }

    #[test]
    fn a_request_states_the_length_of_a_body_once() {
        let text = |headers: &[(&str, &str)], body: &[u8]| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let headers: Vec<_> = headers.iter().map(own).collect();
            String::from_utf8(request("POST", "/", "h", &headers, body)).unwrap()
        };
        let start = "POST / HTTP/1.1\r\nHost: h\r\n";
        assert_eq!(text(&[], b""), format!("{start}\r\n"));
        assert_eq!(text(&[], b"{}"), format!("{start}Content-Length: 2\r\n\r\n{{}}"));
        let own = text(&[("content-LENGTH", "2")], b"{}");
        assert_eq!(own, format!("{start}content-LENGTH: 2\r\n\r\n{{}}"));
        let chunked = text(&[("Transfer-Encoding", "chunked")], b"0\r\n\r\n");
        assert_eq!(chunked, format!("{start}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"));
    }
}
