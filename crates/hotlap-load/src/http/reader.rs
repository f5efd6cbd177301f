//! Reads a stream of responses as the network delivers it.

use super::body::{BodyReader, Piece};
use super::error::ResponseError;
use super::head::{HEAD_LIMIT, Head, head_end, parse_head};

/// An event of a [`ResponseReader`].
#[derive(Debug, PartialEq, Eq)]
pub enum ResponseEvent<'a> {
    /// All bytes are consumed, and the response is not complete.
    NeedMore,
    /// The head of a response; interim responses are skipped.
    Head(Head),
    /// Decoded bytes of its body.
    Data(&'a [u8]),
    /// The response is complete.
    End,
}

/// Reads responses from pieces of any size.
#[derive(Debug, Default)]
pub struct ResponseReader {
    /// The part of a head that has arrived, if the head is incomplete. Otherwise empty and without
    /// an allocation.
    partial: Vec<u8>,
    state: State,
    /// Interim responses since the last final one.
    interim: usize,
}

/// The most interim responses (RFC 9110 section 15.2) that may precede a final one. The RFC sets no
/// limit, but a server that never stops sending interim responses never answers.
pub(super) const INTERIM_LIMIT: usize = 100;

#[derive(Debug, Default)]
enum State {
    /// Before or within a head.
    #[default]
    Head,
    Body(BodyReader),
}

impl ResponseReader {
    /// Whether the reader is before the first byte of a response.
    pub fn is_between_responses(&self) -> bool {
        matches!(self.state, State::Head) && self.partial.is_empty()
    }

    /// Consumes bytes from the front of `input` up to the next event.
    ///
    /// # Errors
    /// The bytes violate RFC 9112; the reader cannot be used any more then.
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

    /// Whether the reader is within a body that is delimited by the end of the connection (RFC 9112
    /// section 6.3, rule 8).
    pub fn is_until_close(&self) -> bool {
        matches!(self.state, State::Body(BodyReader::UntilClose))
    }

    /// How many bytes of the body are still to come, if its length is known.
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
    /// This does not complete the response.
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
        // Up to three bytes of the blank line may have arrived before.
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

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello";

    /// A reader that has consumed all of `bytes`.
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
        // More than there are.
        let mut reader = after(&HELLO[..HELLO.len() - 3]);
        reader.skip(4);
        assert_eq!(reader.remaining(), Some(0));
        // The length of other bodies is not known.
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
}
