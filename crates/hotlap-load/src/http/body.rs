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
                if self.size > (i64::MAX as u64) >> 4 {
                    return Err(Broken::Framing("a chunk size that overflows"));
                }
                self.size = self.size << 4 | digit;
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
