//! Decodes the body of a response piece by piece.

use super::ResponseError;
use super::head::{Framing, HEAD_LIMIT};

/// The decoder of one body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BodyReader {
    /// The body has a known length. This many bytes are still to come.
    Length(u64),
    /// Chunked transfer coding (RFC 9112 section 7.1).
    Chunked(Chunks),
    /// The body is everything up to the end of the connection.
    UntilClose,
}

/// The result of decoding the next bytes of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Decoded bytes of the body.
    Data(&'a [u8]),
    /// All bytes are consumed, but the body is not complete.
    NeedMore,
    /// The body is complete.
    End,
}

/// The state of a chunked body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunks {
    position: Position,
    /// The size so far while the size line is read. Then the number of bytes left in the chunk.
    size: u64,
    /// The number of bytes of sizes, extensions and trailers since the last data. The number is
    /// limited, so that these parts cannot go on forever.
    overhead: usize,
}

/// What the next byte of a chunked body must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// The first digit of a size.
    Size,
    /// Another digit, or the byte after the size.
    Digits,
    /// A byte within an extension.
    Extension,
    /// The LF of a size line.
    SizeLf,
    Data,
    /// The CR after the data.
    DataCr,
    /// The LF after the data.
    DataLf,
    /// The first byte of a trailer line, or the CR of the blank line.
    Trailer,
    /// A byte within a trailer line.
    TrailerLine,
    /// The LF of a trailer line.
    TrailerLf,
    /// The LF of the blank line.
    LastLf,
}

impl BodyReader {
    /// Creates the decoder of a body with this framing.
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::NoBody => Self::Length(0),
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => {
                Self::Chunked(Chunks { position: Position::Size, size: 0, overhead: 0 })
            }
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// Consumes bytes from the front of `input` up to the next piece.
    pub(super) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, ResponseError> {
        match self {
            Self::Length(0) => Ok(Piece::End),
            Self::Length(rest) => Ok(take(input, rest)),
            Self::Chunked(chunks) => chunks.next(input),
            Self::UntilClose => Ok(take(input, &mut u64::MAX.clone())),
        }
    }
}

/// Takes at most `rest` bytes from the front of `input`.
fn take<'a>(input: &mut &'a [u8], rest: &mut u64) -> Piece<'a> {
    if input.is_empty() {
        return Piece::NeedMore;
    }
    let count = usize::try_from(*rest).unwrap_or(usize::MAX).min(input.len());
    let (data, remainder) = input.split_at(count);
    *input = remainder;
    *rest -= count as u64;
    Piece::Data(data)
}

impl Chunks {
    fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, ResponseError> {
        loop {
            if self.position == Position::Data {
                if self.size > 0 {
                    self.overhead = 0;
                    return Ok(take(input, &mut self.size));
                }
                self.position = Position::DataCr;
            }
            let Some((&byte, rest)) = input.split_first() else { return Ok(Piece::NeedMore) };
            *input = rest;
            self.overhead += 1;
            if self.overhead > HEAD_LIMIT {
                return Err(ResponseError::Framing("over 64 KiB of chunk extensions or trailers"));
            }
            if self.step(byte)? {
                return Ok(Piece::End);
            }
        }
    }

    /// Consumes one byte outside of the data. Returns whether it was the last byte of the body.
    fn step(&mut self, byte: u8) -> Result<bool, ResponseError> {
        let error = |why| Err(ResponseError::Framing(why));
        self.position = match (self.position, byte) {
            (Position::Size | Position::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = u64::from((byte as char).to_digit(16).unwrap_or_default());
                if self.size > i64::MAX as u64 / 16 {
                    return error("a chunk size overflows");
                }
                self.size = self.size * 16 + digit;
                Position::Digits
            }
            (Position::Digits, b';' | b' ' | b'\t') => Position::Extension,
            (Position::Digits | Position::Extension, b'\r') => Position::SizeLf,
            (Position::Extension, b'\n') => return error("a chunk size line ends in a bare LF"),
            (Position::Extension, _) => Position::Extension,
            (Position::SizeLf, b'\n') if self.size == 0 => Position::Trailer,
            (Position::SizeLf, b'\n') => Position::Data,
            (Position::DataCr, b'\r') => Position::DataLf,
            (Position::DataLf, b'\n') => Position::Size,
            (Position::Trailer, b'\r') => Position::LastLf,
            (Position::Trailer | Position::TrailerLine, b'\n') => {
                return error("a trailer line ends in a bare LF");
            }
            (Position::TrailerLine, b'\r') => Position::TrailerLf,
            (Position::Trailer | Position::TrailerLine, _) => Position::TrailerLine,
            (Position::TrailerLf, b'\n') => Position::Trailer,
            (Position::LastLf, b'\n') => return Ok(true),
            (Position::Size | Position::Digits | Position::SizeLf, _) => {
                return error("a chunk size is not a number");
            }
            (Position::DataCr | Position::DataLf, _) => {
                return error("a chunk is longer than its size");
            }
            (Position::TrailerLf | Position::LastLf | Position::Data, _) => {
                return error("malformed trailers");
            }
        };
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decoded body, and the number of bytes after the body. The number is `None` if the body
    /// is incomplete.
    type Decoded = (Vec<u8>, Option<usize>);

    fn decoded(framing: Framing, mut input: &[u8]) -> Result<Decoded, &'static str> {
        let (mut body, mut all) = (BodyReader::new(framing), Vec::new());
        loop {
            match body.next(&mut input) {
                Ok(Piece::Data(data)) => all.extend_from_slice(data),
                Ok(Piece::NeedMore) => return Ok((all, None)),
                Ok(Piece::End) => return Ok((all, Some(input.len()))),
                Err(ResponseError::Framing(why)) => return Err(why),
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    fn chunks(input: &str) -> Result<Decoded, &'static str> {
        decoded(Framing::Chunked, input.as_bytes())
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        let of = |framing| decoded(framing, b"Hello").unwrap();
        assert_eq!(of(Framing::NoBody), (Vec::new(), Some(5)));
        assert_eq!(of(Framing::Length(3)), (b"Hel".to_vec(), Some(2)));
        assert_eq!(of(Framing::Length(5)), (b"Hello".to_vec(), Some(0)));
        assert_eq!(of(Framing::Length(6)), (b"Hello".to_vec(), None));
        assert_eq!(of(Framing::UntilClose), (b"Hello".to_vec(), None));
    }

    #[test]
    fn sizes_are_hexadecimal_of_either_case_up_to_63_bits() {
        let hello = (b"Hello, world".to_vec(), Some(0));
        for size in ["c", "C", "00c", "c;a=b", "c ;a", "c\t"] {
            let found = chunks(&format!("{size}\r\nHello, world\r\n0\r\n\r\n"));
            assert_eq!(found, Ok(hello.clone()), "{size:?}");
        }
        // The size 0x1a is 26, so both digits count.
        let letters = "abcdefghijklmnopqrstuvwxyz";
        let found = chunks(&format!("1a\r\n{letters}\r\n0\r\n\r\nx"));
        assert_eq!(found, Ok((letters.as_bytes().to_vec(), Some(1))));
        assert_eq!(chunks("7fffffffffffffff\r\nHello"), Ok((b"Hello".to_vec(), None)));
        assert_eq!(chunks("8000000000000000\r\n"), Err("a chunk size overflows"));
    }

    #[test]
    fn each_error_in_chunks_has_its_message() {
        let (number, longer) = ("a chunk size is not a number", "a chunk is longer than its size");
        let trailers = "malformed trailers";
        let bare = "a trailer line ends in a bare LF";
        for (input, why) in [
            ("\r\n", number),
            (";a\r\n", number),
            ("g\r\n", number),
            ("5\n", number),
            ("5\rx", number),
            ("5;a\n", "a chunk size line ends in a bare LF"),
            ("1\r\nab", longer),
            ("1\r\na\n", longer),
            ("1\r\na\rb", longer),
            ("0\r\n\n", bare),
            ("0\r\nA: b\n", bare),
            ("0\r\nA: b\rc", trailers),
            ("0\r\n\rx", trailers),
        ] {
            assert_eq!(chunks(input), Err(why), "{input:?}");
        }
        let trailed = chunks("0\r\nA: b\r\nC: d\r\n\r\nnext");
        assert_eq!(trailed, Ok((Vec::new(), Some(4))));
    }

    #[test]
    fn overhead_between_data_is_limited_and_its_total_is_not() {
        // A size line consists of "1;", the extension, CR and LF.
        let line = |size: usize| format!("1;{}\r\n", "x".repeat(size - 4));
        let found = chunks(&format!("{}a", line(HEAD_LIMIT)));
        assert_eq!(found, Ok((b"a".to_vec(), None)));
        let too_long = Err("over 64 KiB of chunk extensions or trailers");
        assert_eq!(chunks(&line(HEAD_LIMIT + 1)), too_long);
        let many = format!("{}a\r\n", line(1_000)).repeat(100);
        assert_eq!(chunks(&many), Ok((vec![b'a'; 100], None)));
        let trailers = format!("0\r\n{}", "A: b\r\n".repeat(HEAD_LIMIT / 6));
        assert_eq!(chunks(&trailers), Ok((Vec::new(), None)));
        assert_eq!(chunks(&format!("{trailers}A: b\r\n")), too_long);
    }
}
