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
