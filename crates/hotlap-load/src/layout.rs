//! The fast path: what a right answer looked like last time.
//!
//! Servers answer the same request with the same bytes, but for a date, an id or a clock. Once an
//! answer was parsed and checked in full, the next one is right if it is the same: one comparison
//! takes the place of parsing, and nothing is left unchecked. Any difference outside of the places
//! known to vary sends the answer to the parser, whose word counts.

use std::ops::Range;

use crate::http::{Framing, Head};
use crate::plan::Body;

/// The longest answer that is recognised as a whole. Beyond it the kernel's copying costs so much
/// (10 µs for 64 KiB) that parsing a head (0.3 µs) is lost in it.
const LIMIT: usize = 16 * 1024;

/// How many right answers must differ from the known layout before another is learned: learning
/// costs about as much as three parses, so that a server without any layout pays a fifth more at
/// most. They need not follow one another: of a header with two values in turn, every other answer
/// is recognised, and the layout in which that header varies must still be learned.
const PATIENCE: u32 = 16;

/// Header values that decide about framing and the connection never vary without a parse.
const STRUCTURAL: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"connection"];

/// The layout of one request's answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    /// The last answer that was right; empty: none is known.
    last: Vec<u8>,
    head: Option<Head>,
    /// Header values that may differ, by bytes that a value may hold.
    values: Vec<Range<usize>>,
    /// Parts of the body that may differ, by any bytes.
    body: Vec<Range<usize>>,
    /// Right answers that were not recognised, since a layout was last learned.
    unlike: u32,
}

impl Layout {
    /// Whether `input` starts with an answer of this layout: its head and its length.
    #[inline]
    pub(crate) fn recognise(&mut self, input: &[u8]) -> Option<(Head, usize)> {
        let length = self.last.len();
        let head = self.head?;
        let answer = input.get(..length)?;
        (answer == self.last || self.differs_where_it_may(answer)).then_some((head, length))
    }

    /// Whether all that differs from the last answer are parts that vary; takes it as the last.
    #[inline(never)]
    fn differs_where_it_may(&mut self, answer: &[u8]) -> bool {
        let mut at = 0;
        for part in self.values.iter().chain(&self.body) {
            if answer[at..part.start] != self.last[at..part.start] {
                return false;
            }
            at = part.end;
        }
        let is_sound = answer[at..] == self.last[at..]
            && self.values.iter().all(|part| answer[part.clone()].iter().all(is_value_byte));
        if is_sound {
            for part in self.values.iter().chain(&self.body) {
                self.last[part.clone()].copy_from_slice(&answer[part.clone()]);
            }
        }
        is_sound
    }

    /// Learns from an answer that was parsed and found right.
    pub(crate) fn learn(&mut self, answer: &[u8], head: &Head, expected: &Body) {
        if self.head.is_some() && self.unlike < PATIENCE {
            self.unlike += 1;
            return;
        }
        self.unlike = 0;
        let Some(body) = loose_body(answer, head, expected) else { return };
        let lines = values(&answer[..head.size]);
        let same_shape = self.head.is_some_and(|h| h == *head)
            && self.last.len() == answer.len()
            && lines == values(&self.last[..head.size]);
        let mut known = Vec::new();
        for (name, value) in lines {
            let name = &answer[name];
            let varied = same_shape
                && (self.values.contains(&value)
                    || self.last[value.clone()] != answer[value.clone()]);
            let structural = STRUCTURAL.iter().any(|s| name.eq_ignore_ascii_case(s));
            if !structural && (varied || name.eq_ignore_ascii_case(b"date")) {
                known.push(value);
            }
        }
        self.values = known;
        self.body = body;
        self.last.clear();
        self.last.extend_from_slice(answer);
        self.head = Some(*head);
    }
}

/// The parts of an answer's body that may differ; `None` when it cannot be recognised at all.
fn loose_body(answer: &[u8], head: &Head, expected: &Body) -> Option<Vec<Range<usize>>> {
    if answer.len() > LIMIT {
        return None;
    }
    let plain = match head.framing {
        Framing::NoBody | Framing::Length(_) => true,
        Framing::Chunked => false,
        Framing::UntilClose => return None,
    };
    match expected {
        Body::Bytes { varies, .. } if varies.is_empty() => Some(Vec::new()),
        Body::Bytes { varies, .. } if plain && head.framing != Framing::NoBody => {
            Some(varies.iter().map(|r| r.start + head.size..r.end + head.size).collect())
        }
        Body::Bytes { .. } => None,
        Body::Any | Body::Length(_) if plain && answer.len() > head.size => {
            Some(std::iter::once(head.size..answer.len()).collect())
        }
        Body::Any | Body::Length(_) => Some(Vec::new()),
    }
}

/// Names and values of a sound head's lines. Folded lines have none: they never vary.
fn values(head: &[u8]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut found = Vec::new();
    let mut start = 0;
    while let Some(length) = head[start..].windows(2).position(|w| w == b"\r\n") {
        let line = &head[start..start + length];
        let colon = line.iter().position(|&b| b == b':');
        if let (Some(colon), true, false) = (colon, start > 0, line.starts_with(b" ")) {
            let from = line[colon + 1..].iter().take_while(|b| **b == b' ').count() + colon + 1;
            found.push((start..start + colon, start + from..start + length));
        }
        start += length + 2;
    }
    found
}

/// RFC 9110 section 5.5: visible characters, space, tab and obs-text. No line end, so that nothing
/// can hide in a value.
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

    fn learned(answers: &[Vec<u8>], expected: &Body) -> Layout {
        let mut layout = Layout::default();
        for answer in answers {
            let end = head_end(answer, 0).expect("sound").expect("whole");
            let head = parse_head(&answer[..end], false).expect("sound");
            layout.unlike = PATIENCE;
            layout.learn(answer, &head, expected);
        }
        layout
    }

    fn exact(body: &str) -> Body {
        Body::Bytes { bytes: body.as_bytes().to_vec(), varies: Vec::new() }
    }

    #[test]
    fn the_same_answer_is_recognised_and_another_is_not() {
        let first = sample("now", "1", "Hello");
        let mut layout = learned(std::slice::from_ref(&first), &exact("Hello"));
        assert!(layout.recognise(&first).is_some());
        assert!(layout.recognise(&first[..first.len() - 1]).is_none());
        assert!(layout.recognise(&sample("now", "1", "Jello")).is_none());
        assert!(layout.recognise(&sample("now", "2", "Hello")).is_none());
        let twice = [first.as_slice(), &first].concat();
        assert_eq!(layout.recognise(&twice).map(|(_, length)| length), Some(first.len()));
    }

    #[test]
    fn a_date_may_move_but_nothing_may_hide_in_it() {
        let mut layout = learned(&[sample("aaaaaaaaaaaa", "1", "Hello")], &exact("Hello"));
        assert!(layout.recognise(&sample("bbbbbbbbbbbb", "1", "Hello")).is_some());
        assert!(layout.recognise(&sample("b\r\nEvil: abc", "1", "Hello")).is_none());
        assert!(layout.recognise(&sample("b\0bbbbbbbbbb", "1", "Hello")).is_none());
    }

    #[test]
    fn a_header_that_varies_is_learned_from_two_answers() {
        let answers = [sample("d", "1", "Hello"), sample("d", "2", "Hello")];
        let mut layout = learned(&answers, &exact("Hello"));
        assert!(layout.recognise(&sample("d", "3", "Hello")).is_some());
        assert!(layout.recognise(&sample("d", "33", "Hello")).is_none());
    }

    /// A count that starts anew at each recognised answer would never reach the patience here, and
    /// every other answer would be parsed for ever.
    #[test]
    fn a_header_with_two_values_in_turn_is_learned() {
        let (one, other) = (sample("d", "1", "Hello"), sample("d", "2", "Hello"));
        let (mut layout, mut parsed) = (Layout::default(), 0);
        for answer in [&one, &other].into_iter().cycle().take(100) {
            if layout.recognise(answer).is_none() {
                let end = head_end(answer, 0).expect("sound").expect("whole");
                let head = parse_head(&answer[..end], false).expect("sound");
                layout.learn(answer, &head, &exact("Hello"));
                parsed += 1;
            }
        }
        // The first, as many as the patience, and the one that teaches.
        assert_eq!(parsed, PATIENCE + 2);
    }

    #[test]
    fn a_length_never_varies_without_a_parse() {
        let answers = [sample("d", "1", "Hell"), sample("d", "1", "Hello")];
        let mut layout = learned(&answers, &Body::Any);
        let lie = String::from_utf8(sample("d", "1", "Hello")).expect("text").replace(": 5", ": 9");
        assert!(layout.recognise(lie.as_bytes()).is_none());
    }

    #[test]
    fn parts_of_a_body_that_may_vary_do_and_others_do_not() {
        let varies = std::iter::once(2..4).collect();
        let expected = Body::Bytes { bytes: b"Hello".to_vec(), varies };
        let mut layout = learned(&[sample("d", "1", "Hello")], &expected);
        assert!(layout.recognise(&sample("d", "1", "HeXXo")).is_some());
        assert!(layout.recognise(&sample("d", "1", "HXllo")).is_none());
        let mut layout = learned(&[sample("d", "1", "Hello")], &Body::Length(5));
        assert!(layout.recognise(&sample("d", "1", "World")).is_some());
    }
}
