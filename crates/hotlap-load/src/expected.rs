//! Decides whether a response is the expected one. A response is compared piece by piece as it
//! arrives, or recognised at once because it matches an earlier response.

use std::fmt;
use std::ops::Range;

use crate::http::{Framing, Head};
use crate::plan::{ExpectedBody, ExpectedResponse, first_difference};

/// The difference between a well-formed response and the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mismatch {
    Status(u16),
    Length {
        got: u64,
        expected: usize,
    },
    /// The index of the first byte of the body that differs.
    Byte(usize),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Length { got, expected } => {
                let bytes = if *got == 1 { "byte" } else { "bytes" };
                write!(f, "a body of {got} {bytes} instead of {expected}")
            }
            Self::Byte(at) => write!(f, "the body first differs at byte {at}"),
        }
    }
}

/// The check of one response.
#[derive(Debug, Default)]
pub(crate) struct Check {
    /// The number of bytes of the body so far.
    length: u64,
    mismatch: Option<Mismatch>,
    /// Whether the contents of the body are left unchecked.
    skips_body: bool,
}

impl Check {
    /// Starts the check of a response with its status, and with the length of the body if stated.
    pub(crate) fn new(
        status: u16,
        length: Option<u64>,
        expect: &ExpectedResponse,
        is_head: bool,
        skips_body: bool,
    ) -> Self {
        let mut mismatch = None;
        if !expect.status.accepts(status) {
            mismatch = Some(Mismatch::Status(status));
        } else if let (true, Some(expected), Some(got)) = (is_head, expect.body.length(), length) {
            // The response to a HEAD request says how long the body would be. There is nothing else
            // to check.
            mismatch = (got != expected as u64).then_some(Mismatch::Length { got, expected });
        }
        Self { length: 0, mismatch, skips_body }
    }

    /// Returns whether the response is known to be wrong.
    pub(crate) fn is_wrong(&self) -> bool {
        self.mismatch.is_some()
    }

    /// Returns whether the rest of the body may be discarded unread.
    pub(crate) fn skips_body(&self) -> bool {
        self.skips_body
    }

    /// Accounts for bytes of the body that were discarded unread.
    pub(crate) fn skip(&mut self, count: u64) {
        self.length += count;
    }

    /// Checks a piece of the body.
    pub(crate) fn data(&mut self, data: &[u8], expect: &ExpectedResponse) {
        if let (ExpectedBody::Bytes { bytes, varies }, None, false) =
            (&expect.body, self.mismatch, self.skips_body)
        {
            let first = first_difference(data, self.length as usize, bytes, varies);
            self.mismatch = first.map(Mismatch::Byte);
        }
        self.length += data.len() as u64;
    }

    /// Returns the result of the check for the complete response.
    pub(crate) fn finish(&self, expect: &ExpectedResponse, is_head: bool) -> Result<(), Mismatch> {
        match (self.mismatch, expect.body.length()) {
            (Some(mismatch @ Mismatch::Status(_)), _) => Err(mismatch),
            (_, Some(expected)) if !is_head && self.length != expected as u64 => {
                Err(Mismatch::Length { got: self.length, expected })
            }
            (mismatch, _) => mismatch.map_or(Ok(()), Err),
        }
    }
}

/// The maximum length of a response that is compared as a whole. For longer responses, copying in
/// the kernel costs so much (10 µs for 64 KiB) that parsing a head (0.3 µs) does not matter.
const MAX_LENGTH: usize = 16 * 1024;

/// The number of correct responses without a match after which a new template is learned. Learning
/// costs about three parses, so a server whose responses never match costs at most a fifth more.
/// The responses need not be consecutive. If a header alternates between two values, every other
/// response matches, and the template must still learn that the header varies.
const RELEARN_AFTER: u32 = 16;

/// Headers that determine the framing and the state of the connection. Their values may not vary.
const FIXED_HEADERS: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"connection"];

/// A correct response to a request, with which later responses are compared.
///
/// Servers usually respond to the same request with the same bytes, except for a date, an id or a
/// clock. Once a response has been parsed and fully checked, an identical response is correct too.
/// One comparison then replaces the parser, and nothing is left unchecked. If a response differs
/// outside of the parts that are known to vary, the parser decides.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseTemplate {
    /// The last response that was learned or matched. Empty before the first response.
    last: Vec<u8>,
    /// The head of `last`. `None` while no response can match.
    head: Option<Head>,
    /// The head of `last`, whether or not a response can match.
    known: Option<Head>,
    /// The ranges of header values that may vary. Only bytes that are valid in a value may occur
    /// there.
    values: Vec<Range<usize>>,
    /// The ranges of the body that may vary.
    body: Vec<Range<usize>>,
    /// The number of correct responses without a match since the template was learned.
    misses: u32,
}

impl ResponseTemplate {
    /// Returns the head and the length of the response that `input` starts with, if it matches.
    #[inline]
    pub(crate) fn recognise(&mut self, input: &[u8]) -> Option<(Head, usize)> {
        let length = self.last.len();
        let head = self.head?;
        let response = input.get(..length)?;
        (response == self.last || self.differs_only_where_it_may(response))
            .then_some((head, length))
    }

    /// Returns whether a response differs from `last` only in parts that may vary. If so, the
    /// response becomes `last`.
    #[inline(never)]
    fn differs_only_where_it_may(&mut self, response: &[u8]) -> bool {
        let mut at = 0;
        for range in self.values.iter().chain(&self.body) {
            if response[at..range.start] != self.last[at..range.start] {
                return false;
            }
            at = range.end;
        }
        let matches = response[at..] == self.last[at..]
            && self.values.iter().all(|range| response[range.clone()].iter().all(is_value_byte));
        if matches {
            for range in self.values.iter().chain(&self.body) {
                self.last[range.clone()].copy_from_slice(&response[range.clone()]);
            }
        }
        matches
    }

    /// Prevents any response from matching until [`Self::expect_body`] or [`Self::learn`] sets
    /// what can match.
    pub(crate) fn expect_none(&mut self) {
        self.head = None;
    }

    /// Learns the template from a response that was parsed and found correct. A template that is
    /// known is replaced only after [`RELEARN_AFTER`] misses.
    pub(crate) fn learn(&mut self, response: &[u8], head: &Head, expected: &ExpectedBody) {
        if self.known.is_some() && self.misses < RELEARN_AFTER {
            self.misses += 1;
            return;
        }
        self.misses = 0;
        let Some(body) = varying_body(response, head, expected) else { return };
        let lines = header_lines(&response[..head.size]);
        let same_shape = self.known.is_some_and(|h| h == *head)
            && self.last.len() == response.len()
            && lines == header_lines(&self.last[..head.size]);
        let mut values = Vec::new();
        for (name, value) in lines {
            let name = &response[name];
            let has_varied = same_shape
                && (self.values.contains(&value)
                    || self.last[value.clone()] != response[value.clone()]);
            let is_fixed = FIXED_HEADERS.iter().any(|fixed| name.eq_ignore_ascii_case(fixed));
            if !is_fixed && (has_varied || name.eq_ignore_ascii_case(b"date")) {
                values.push(value);
            }
        }
        self.values = values;
        self.body = body;
        self.last.clear();
        self.last.extend_from_slice(response);
        (self.head, self.known) = (Some(*head), Some(*head));
    }

    /// Accepts only responses with this body from now on. If the body in `last` has another
    /// length, no response can match, because a header differs too.
    pub(crate) fn expect_body(&mut self, body: &[u8]) {
        let fits = |head: &Head| {
            matches!(head.framing, Framing::Length(_)) && self.last.len() == head.size + body.len()
        };
        self.head = self.known.filter(fits);
        if let Some(head) = self.head {
            self.last[head.size..].copy_from_slice(body);
        }
    }
}

/// Returns the ranges of a response in which its body may vary. Returns `None` if the response
/// cannot be compared as a whole.
fn varying_body(
    response: &[u8],
    head: &Head,
    expected: &ExpectedBody,
) -> Option<Vec<Range<usize>>> {
    if response.len() > MAX_LENGTH {
        return None;
    }
    let is_plain = match head.framing {
        Framing::NoBody | Framing::Length(_) => true,
        Framing::Chunked => false,
        Framing::UntilClose => return None,
    };
    match expected {
        ExpectedBody::Bytes { varies, .. } if varies.is_empty() => Some(Vec::new()),
        // This does not occur, because a body with inserted values is an `ExpectedBody::Bytes`.
        ExpectedBody::Fields(_) => None,
        ExpectedBody::Bytes { varies, .. } if is_plain && head.framing != Framing::NoBody => {
            Some(varies.iter().map(|r| r.start + head.size..r.end + head.size).collect())
        }
        ExpectedBody::Bytes { .. } => None,
        ExpectedBody::Any | ExpectedBody::Length(_) if is_plain && response.len() > head.size => {
            Some(std::iter::once(head.size..response.len()).collect())
        }
        ExpectedBody::Any | ExpectedBody::Length(_) => Some(Vec::new()),
    }
}

/// Returns the ranges of the names and values of the lines in a valid head. Folded
/// lines are left out, because they may not vary.
fn header_lines(head: &[u8]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut found = Vec::new();
    let mut start = 0;
    while let Some(length) = head[start..].windows(2).position(|w| w == b"\r\n") {
        let line = &head[start..start + length];
        let colon = line.iter().position(|&b| b == b':');
        let is_folded = matches!(line.first(), Some(b' ' | b'\t'));
        if let (Some(colon), true, false) = (colon, start > 0, is_folded) {
            let from = line[colon + 1..].iter().take_while(|b| **b == b' ').count() + colon + 1;
            found.push((start..start + colon, start + from..start + length));
        }
        start += length + 2;
    }
    found
}

/// Returns whether a byte may occur in a header value (RFC 9110 section 5.5): a visible character,
/// a space, a tab or obs-text. Without line ends, a value cannot contain another header.
fn is_value_byte(byte: &u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{head_end, parse_head};

    fn sample(date: &str, id: &str, body: &str) -> Vec<u8> {
        let length = body.len();
        let start = format!("HTTP/1.1 200 OK\r\nDate: {date}\r\nX-Id: {id}\r\n");
        format!("{start}Content-Length: {length}\r\n\r\n{body}").into_bytes()
    }

    fn learned(responses: &[Vec<u8>], expected: &ExpectedBody) -> ResponseTemplate {
        let mut template = ResponseTemplate::default();
        for response in responses {
            let end = head_end(response, 0).expect("valid").expect("complete");
            let head = parse_head(&response[..end], false).expect("valid");
            template.misses = RELEARN_AFTER;
            template.learn(response, &head, expected);
        }
        template
    }

    fn exact(body: &str) -> ExpectedBody {
        ExpectedBody::Bytes { bytes: body.as_bytes().to_vec().into(), varies: Vec::new() }
    }

    #[test]
    fn only_the_same_response_matches() {
        let first = sample("now", "1", "Hello");
        let mut template = learned(std::slice::from_ref(&first), &exact("Hello"));
        assert!(template.recognise(&first).is_some());
        assert!(template.recognise(&first[..first.len() - 1]).is_none());
        assert!(template.recognise(&sample("now", "1", "Jello")).is_none());
        assert!(template.recognise(&sample("now", "2", "Hello")).is_none());
        let twice = [first.as_slice(), &first].concat();
        assert_eq!(template.recognise(&twice).map(|(_, length)| length), Some(first.len()));
    }

    #[test]
    fn a_date_may_vary_but_may_not_hide_another_header() {
        let mut template = learned(&[sample("aaaaaaaaaaaa", "1", "Hello")], &exact("Hello"));
        assert!(template.recognise(&sample("bbbbbbbbbbbb", "1", "Hello")).is_some());
        assert!(template.recognise(&sample("b\r\nEvil: abc", "1", "Hello")).is_none());
        assert!(template.recognise(&sample("b\0bbbbbbbbbb", "1", "Hello")).is_none());
    }

    #[test]
    fn a_header_that_varies_is_learned_from_two_responses() {
        let responses = [sample("d", "1", "Hello"), sample("d", "2", "Hello")];
        let mut template = learned(&responses, &exact("Hello"));
        assert!(template.recognise(&sample("d", "3", "Hello")).is_some());
        assert!(template.recognise(&sample("d", "33", "Hello")).is_none());
    }

    /// If a match reset the count of misses, the template would never be learned again here. Every
    /// other response would then be parsed forever.
    #[test]
    fn a_header_that_alternates_is_learned() {
        let (one, other) = (sample("d", "1", "Hello"), sample("d", "2", "Hello"));
        let (mut template, mut parsed) = (ResponseTemplate::default(), 0);
        for response in [&one, &other].into_iter().cycle().take(100) {
            if template.recognise(response).is_none() {
                let end = head_end(response, 0).expect("valid").expect("complete");
                let head = parse_head(&response[..end], false).expect("valid");
                template.learn(response, &head, &exact("Hello"));
                parsed += 1;
            }
        }
        // These are the first response, the counted misses, and the response that the template is
        // learned from.
        assert_eq!(parsed, RELEARN_AFTER + 2);
    }

    #[test]
    fn only_the_expected_body_matches_if_it_changes() {
        let [one, two, three] = ["<1>", "<2>", "<10>"].map(|body| sample("d", "1", body));
        let mut template = learned(std::slice::from_ref(&one), &exact("<1>"));
        template.expect_body(b"<2>");
        assert!(template.recognise(&one).is_none());
        assert!(template.recognise(&two).is_some());
        // The stale body of the template must not match either.
        template.expect_body(b"<10>");
        assert!([&one, &two, &three].into_iter().all(|r| template.recognise(r).is_none()));
        template.expect_body(b"<1>");
        assert!(template.recognise(&one).is_some());
    }

    #[test]
    fn a_length_may_not_vary() {
        let responses = [sample("d", "1", "Hell"), sample("d", "1", "Hello")];
        let mut template = learned(&responses, &ExpectedBody::Any);
        let lie = String::from_utf8(sample("d", "1", "Hello")).expect("text").replace(": 5", ": 9");
        assert!(template.recognise(lie.as_bytes()).is_none());
    }

    #[test]
    fn only_the_given_ranges_of_a_body_may_vary() {
        let varies = std::iter::once(2..4).collect();
        let expected = ExpectedBody::Bytes { bytes: b"Hello".to_vec().into(), varies };
        let mut template = learned(&[sample("d", "1", "Hello")], &expected);
        assert!(template.recognise(&sample("d", "1", "HeXXo")).is_some());
        assert!(template.recognise(&sample("d", "1", "HXllo")).is_none());
        let mut template = learned(&[sample("d", "1", "Hello")], &ExpectedBody::Length(5));
        assert!(template.recognise(&sample("d", "1", "World")).is_some());
    }
}
