//! The body of a response. Only the part that is needed is kept.
//!
//! Bodies may be large, and a server gets some thirty requests before its load. Therefore, a body
//! is compared with the expected body as it arrives, and only its beginning is kept.

use std::ops::Range;

use hotlap_load::http::KeepBody;
use hotlap_load::plan::{Shared, first_difference};

/// The number of bytes that are kept of a body. This is enough for messages, and small bodies are
/// kept as a whole.
const KEPT: usize = 64 << 10;

/// The maximum number of ranges that may vary. Beyond this number, all ranges so far are joined
/// into one, from the first to the last. The limit is high enough for a list of thousands of
/// records, each with an id. The ranges of a body that differs almost everywhere would take more
/// memory than the body itself.
const MOST_RANGES: usize = 10_000;

/// The response of a server under verification.
pub type Response = hotlap_load::http::Response<Body>;

/// The kept part of a body, and how the whole body differs from the expected one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Body {
    start: Vec<u8>,
    /// Whether all bytes are kept.
    is_whole: bool,
    length: usize,
    compared: Option<Compared>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Compared {
    bytes: Shared<u8>,
    varies: Vec<Range<usize>>,
    /// The offset of the first byte that differs outside of the ranges that vary.
    first: Option<usize>,
    /// The words that differ in the pieces so far.
    words: Vec<Range<usize>>,
}

impl Body {
    /// Returns an empty body that will keep all its bytes.
    pub fn whole() -> Self {
        Self { is_whole: true, ..Self::default() }
    }

    /// Returns an empty body that will be compared with `bytes`. The ranges in `varies` may differ.
    pub fn compared_with(bytes: Shared<u8>, varies: Vec<Range<usize>>) -> Self {
        let compared = Compared { bytes, varies, first: None, words: Vec::new() };
        Self { compared: Some(compared), ..Self::default() }
    }

    /// Returns the length of the body in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the first bytes, or all of them if the body is small.
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// Returns all bytes that are kept, and leaves only the beginning in the body.
    pub fn take(&mut self) -> Vec<u8> {
        self.is_whole = false;
        let start = self.start[..self.start.len().min(KEPT)].to_vec();
        let mut bytes = std::mem::replace(&mut self.start, start);
        bytes.shrink_to_fit();
        bytes
    }

    /// Returns the words in which the body differs from the body that it was compared with.
    pub fn differing_words(&self) -> &[Range<usize>] {
        self.compared.as_ref().map_or(&[], |compared| &compared.words)
    }

    /// Returns whether the body is equal to `bytes`, except for the ranges in `varies`. A body
    /// that is only kept in part must have been compared with the same bytes and ranges.
    pub fn is(&self, bytes: &Shared<u8>, varies: &[Range<usize>]) -> bool {
        if self.length != bytes.len() {
            return false;
        }
        match &self.compared {
            _ if self.start.len() == self.length => {
                first_difference(&self.start, 0, bytes, varies).is_none()
            }
            Some(compared) => {
                compared.bytes == *bytes && compared.varies == varies && compared.first.is_none()
            }
            None => false,
        }
    }

    /// Returns the beginning of the body, quoted for display.
    pub fn quoted(&self) -> String {
        quoted_part(&self.start, self.length)
    }
}

impl KeepBody for Body {
    fn piece(&mut self, piece: &[u8]) {
        if let Some(Compared { bytes, varies, first, words }) = &mut self.compared
            && let Some(differs) = first_difference(piece, self.length, bytes, varies)
        {
            first.get_or_insert(differs);
            add_words(words, bytes, piece, self.length);
        }
        let room = if self.is_whole { usize::MAX } else { KEPT - self.start.len() };
        self.start.extend_from_slice(&piece[..room.min(piece.len())]);
        self.length += piece.len();
    }
}

/// Adds the ranges in which a piece differs. Each range is extended to the whole number, time or
/// word that it is part of. For example, only the last digits of a clock change during the probes.
fn add_words(words: &mut Vec<Range<usize>>, expected: &[u8], piece: &[u8], at: usize) {
    let compared = expected.get(at..).unwrap_or_default().iter().zip(piece);
    for (at, (own, got)) in (at..).zip(compared).filter(|(_, (own, got))| own != got) {
        if words.last().is_some_and(|last| last.contains(&at)) {
            continue;
        }
        let numeric = own.is_ascii_digit() && got.is_ascii_digit();
        let belongs = |&b: &u8| match numeric {
            true => b.is_ascii_hexdigit() || b"-:.".contains(&b),
            false => b.is_ascii_alphanumeric() || b"-_:.+/=".contains(&b),
        };
        let before = expected[..at].iter().rev().take_while(|b| belongs(b)).count();
        let after = expected[at + 1..].iter().take_while(|b| belongs(b)).count();
        push_range(words, at - before..at + 1 + after);
    }
}

/// Adds a range, and joins it with the last ranges if they overlap or touch.
fn push_range(ranges: &mut Vec<Range<usize>>, mut range: Range<usize>) {
    while let Some(last) = ranges.pop_if(|last| range.start <= last.end) {
        range = last.start.min(range.start)..last.end.max(range.end);
    }
    if ranges.len() >= MOST_RANGES {
        range.start = ranges[0].start;
        ranges.clear();
    }
    ranges.push(range);
}

/// Returns all ranges of both lists, in order and without overlap.
pub fn union(some: &[Range<usize>], others: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut all = [some, others].concat();
    all.sort_by_key(|range| range.start);
    let mut union = Vec::new();
    all.into_iter().for_each(|range| push_range(&mut union, range));
    union
}

/// Quotes the first 60 bytes of a text for display.
pub fn quoted(bytes: &[u8]) -> String {
    quoted_part(bytes, bytes.len())
}

/// Quotes a body for display, given its first bytes and its length.
pub fn quoted_part(start: &[u8], length: usize) -> String {
    const SHOWN: usize = 60;
    let shown = String::from_utf8_lossy(&start[..start.len().min(SHOWN)]);
    let rest = match length {
        ..=SHOWN => String::new(),
        len => format!("… ({len} bytes)"),
    };
    format!("{shown:?}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(expected: &[u8], varies: &[Range<usize>], got: &[u8], piece: usize) -> Body {
        let mut body = Body::compared_with(expected.to_vec().into(), varies.to_vec());
        got.chunks(piece).for_each(|piece| body.piece(piece));
        body
    }

    /// Regression: each body that differed from the others was kept as a whole, up to 64 MiB.
    #[test]
    fn the_beginning_and_the_differences_of_a_large_body_are_kept() {
        let length = 40 * KEPT;
        let own = b"some words and 4 numbers\n".repeat(length / 25 + 1)[..length].to_vec();
        let mut other = own.clone();
        other.iter_mut().skip(1).step_by(2).for_each(|byte| *byte ^= 1);
        for (got, ranges) in [(&own, 0), (&other, MOST_RANGES)] {
            let body = compared(&own, &[], got, 999);
            assert_eq!((body.len(), body.start.len()), (length, KEPT));
            assert!(body.differing_words().len() <= ranges, "{}", body.differing_words().len());
        }
        let mut whole = Body::whole();
        whole.piece(&own);
        assert_eq!((whole.take(), whole.start.len()), (own, KEPT));
    }

    #[test]
    fn a_large_body_is_the_expected_one_if_it_differs_only_where_it_may() {
        let own = vec![b' '; 3 * KEPT];
        let varies = std::iter::once(2 * KEPT - 5..2 * KEPT + 5).collect::<Vec<_>>();
        let content: Shared<u8> = own.clone().into();
        for (at, is_right) in [(0, false), (2 * KEPT - 6, false), (2 * KEPT - 5, true)]
            .into_iter()
            .chain([(2 * KEPT + 4, true), (2 * KEPT + 5, false), (3 * KEPT - 1, false)])
        {
            let mut got = own.clone();
            got[at] = b'x';
            for piece in [1 << 12, usize::MAX] {
                let body = compared(&own, &varies, &got, piece);
                assert_eq!(body.is(&content, &varies), is_right, "{at}, {piece}");
                assert!(!body.is(&content, &[]), "it was compared with other ranges");
            }
        }
        assert!(!compared(&own, &varies, &own[1..], 1 << 12).is(&content, &varies));
    }

    #[test]
    fn ranges_are_joined_where_they_touch_and_stay_in_order() {
        let ranges = |pairs: &[(usize, usize)]| -> Vec<Range<usize>> {
            pairs.iter().map(|(start, end)| *start..*end).collect()
        };
        let joined = union(&ranges(&[(1, 3), (9, 12)]), &ranges(&[(3, 4), (6, 7), (10, 11)]));
        assert_eq!(joined, ranges(&[(1, 4), (6, 7), (9, 12)]));
        // The last difference is a letter, so the whole body is one word.
        let words = compared(b"a1b2c3d", &[], b"a2b3c3e", 1);
        assert_eq!(words.differing_words(), ranges(&[(0, 7)]));
        let many: Vec<_> = (0..=MOST_RANGES).map(|n| 2 * n..2 * n + 1).collect();
        assert_eq!(union(&many, &[]), ranges(&[(0, 2 * MOST_RANGES + 1)]));
    }
}
