//! The body of an answer: pieces in, decoded pieces out, and its end.

use super::{Broken, Framing, HEAD_LIMIT};

/// A body under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// So many bytes are left.
    Length(u64),
    /// Chunks (RFC 9112 section 7.1).
    Chunked(Chunks),
    /// All there is.
    UntilClose,
}

/// What a body's next bytes are.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Decoded bytes.
    Data(&'a [u8]),
    /// All bytes are taken.
    More,
    /// The body is whole.
    End,
}

/// Where in the chunks a reader stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    at: Place,
    /// The size of the chunk so far as its digits have come, then what is left of it.
    size: u64,
    /// Bytes of sizes, extensions and trailers since the last data, so that they end some time.
    overhead: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first digit of a size.
    Size,
    /// After a digit.
    Digits,
    /// Behind the size, up to CR.
    Extension,
    /// CR of a size line seen.
    SizeFeed,
    Data,
    DataReturn,
    DataFeed,
    /// At the start of a trailer line, or of the blank line.
    Trailer,
    TrailerLine,
    TrailerFeed,
    LastFeed,
}

impl Body {
    /// A body with this framing, at its start.
    #[must_use]
    pub fn of(framing: Framing) -> Self {
        match framing {
            Framing::NoBody => Self::Length(0),
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunks { at: Place::Size, size: 0, overhead: 0 }),
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// Takes bytes from the front of `input` up to the next piece.
    ///
    /// # Errors
    /// When chunks are malformed.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, Broken> {
        match self {
            Self::Length(0) => Ok(Piece::End),
            Self::Length(rest) => Ok(take(input, rest)),
            Self::Chunked(chunks) => chunks.next(input),
            Self::UntilClose => Ok(take(input, &mut u64::MAX.clone())),
        }
    }
}

/// At most `rest` bytes of `input`.
fn take<'a>(input: &mut &'a [u8], rest: &mut u64) -> Piece<'a> {
    if input.is_empty() {
        return Piece::More;
    }
    let count = usize::try_from(*rest).unwrap_or(usize::MAX).min(input.len());
    let (data, behind) = input.split_at(count);
    *input = behind;
    *rest -= count as u64;
    Piece::Data(data)
}

impl Chunks {
    fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, Broken> {
        loop {
            if self.at == Place::Data {
                if self.size > 0 {
                    self.overhead = 0;
                    return Ok(take(input, &mut self.size));
                }
                self.at = Place::DataReturn;
            }
            let Some((&byte, rest)) = input.split_first() else { return Ok(Piece::More) };
            *input = rest;
            self.overhead += 1;
            if self.overhead > HEAD_LIMIT {
                return Err(Broken::Framing("64 KiB of chunk extensions or trailers"));
            }
            if self.step(byte)? {
                return Ok(Piece::End);
            }
        }
    }

    /// One byte outside of the data; true when it is the last of the body.
    fn step(&mut self, byte: u8) -> Result<bool, Broken> {
        self.at = match (self.at, byte) {
            (Place::Size | Place::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = u64::from((byte as char).to_digit(16).unwrap_or_default());
                if self.size > i64::MAX as u64 / 16 {
                    return Err(Broken::Framing("a chunk size that overflows"));
                }
                self.size = self.size * 16 + digit;
                Place::Digits
            }
            (Place::Digits, b';' | b' ' | b'\t') => Place::Extension,
            (Place::Digits | Place::Extension, b'\r') => Place::SizeFeed,
            (Place::Extension, b'\n') => {
                return Err(Broken::Framing("a chunk size line ends in a bare LF"));
            }
            (Place::Extension, _) => Place::Extension,
            (Place::SizeFeed, b'\n') if self.size == 0 => Place::Trailer,
            (Place::SizeFeed, b'\n') => Place::Data,
            (Place::DataReturn, b'\r') => Place::DataFeed,
            (Place::DataFeed, b'\n') => Place::Size,
            (Place::Trailer, b'\r') => Place::LastFeed,
            (Place::Trailer | Place::TrailerLine, b'\n') => {
                return Err(Broken::Framing("a trailer line ends in a bare LF"));
            }
            (Place::TrailerLine, b'\r') => Place::TrailerFeed,
            (Place::Trailer | Place::TrailerLine, _) => Place::TrailerLine,
            (Place::TrailerFeed, b'\n') => Place::Trailer,
            (Place::LastFeed, b'\n') => return Ok(true),
            (Place::Size | Place::Digits | Place::SizeFeed, _) => {
                return Err(Broken::Framing("a chunk size that is no number"));
            }
            (Place::DataReturn | Place::DataFeed, _) => {
                return Err(Broken::Framing("a chunk is longer than its size"));
            }
            (Place::TrailerFeed | Place::LastFeed | Place::Data, _) => {
                return Err(Broken::Framing("malformed trailers"));
            }
        };
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decoded body, and how many bytes are left behind its end; `None` while it has none.
    type Decoded = (Vec<u8>, Option<usize>);

    fn decoded(framing: Framing, mut input: &[u8]) -> Result<Decoded, &'static str> {
        let (mut body, mut all) = (Body::of(framing), Vec::new());
        loop {
            match body.next(&mut input) {
                Ok(Piece::Data(data)) => all.extend_from_slice(data),
                Ok(Piece::More) => return Ok((all, None)),
                Ok(Piece::End) => return Ok((all, Some(input.len()))),
                Err(Broken::Framing(why)) => return Err(why),
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    fn chunks(input: &str) -> Result<Decoded, &'static str> {
        decoded(Framing::Chunked, input.as_bytes())
    }

    #[test]
    fn a_body_takes_what_its_framing_gives_it() {
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
        // 0x1a = 26: both digits count.
        let letters = "abcdefghijklmnopqrstuvwxyz";
        let found = chunks(&format!("1a\r\n{letters}\r\n0\r\n\r\nx"));
        assert_eq!(found, Ok((letters.as_bytes().to_vec(), Some(1))));
        assert_eq!(chunks("7fffffffffffffff\r\nHello"), Ok((b"Hello".to_vec(), None)));
        assert_eq!(chunks("8000000000000000\r\n"), Err("a chunk size that overflows"));
    }

    #[test]
    fn each_fault_of_chunks_has_its_name() {
        let (number, longer) =
            ("a chunk size that is no number", "a chunk is longer than its size");
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
    fn what_lies_between_data_is_limited_and_the_sum_of_it_is_not() {
        // "1;", the extension and CR LF.
        let line = |size: usize| format!("1;{}\r\n", "x".repeat(size - 4));
        let found = chunks(&format!("{}a", line(HEAD_LIMIT)));
        assert_eq!(found, Ok((b"a".to_vec(), None)));
        let too_long = Err("64 KiB of chunk extensions or trailers");
        assert_eq!(chunks(&line(HEAD_LIMIT + 1)), too_long);
        let many = format!("{}a\r\n", line(1_000)).repeat(100);
        assert_eq!(chunks(&many), Ok((vec![b'a'; 100], None)));
        let trailers = format!("0\r\n{}", "A: b\r\n".repeat(HEAD_LIMIT / 6));
        assert_eq!(chunks(&trailers), Ok((Vec::new(), None)));
        assert_eq!(chunks(&format!("{trailers}A: b\r\n")), too_long);
    }
}
