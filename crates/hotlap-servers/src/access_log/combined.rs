//! The Common and the Combined Log Format of Apache and nginx:
//! `192.0.2.1 - ann [24/Nov/2026:08:24:04 +0000] "GET /a HTTP/1.1" 200 512 "referer" "agent"`.
//!
//! Only the time, the request and the status are read, so other fields may stand before the time
//! and after the status.

use std::borrow::Cow;

use super::record::{Cause, Record, split};
use super::time::Time;

/// The longest time in brackets.
const LONGEST_TIME: usize = 40;

/// Parses a line.
pub(super) fn parse(line: &[u8]) -> Result<Record<'_>, Cause> {
    let (time, rest) = time(line).ok_or(Cause::Format)?;
    let start = rest.iter().position(|b| *b == b'"').ok_or(Cause::Format)?;
    let (request, rest) = quoted(&rest[start + 1..]).ok_or(Cause::Format)?;
    let (method, target) = split(unescaped(request))?;
    Record::new(method, target, status(rest)?, Some(time))
}

/// The first time in brackets, and what follows it.
fn time(line: &[u8]) -> Option<(Time, &[u8])> {
    let mut rest = line;
    loop {
        let open = rest.iter().position(|b| *b == b'[')?;
        rest = &rest[open + 1..];
        let close = rest.iter().take(LONGEST_TIME).position(|b| *b == b']');
        if let Some(close) = close
            && let Some(time) = Time::parse(&rest[..close])
        {
            return Some((time, &rest[close + 1..]));
        }
    }
}

/// A text up to its closing quote, and what follows that. A quote after a backslash closes nothing.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some((&text[..at], &text[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// A text without escapes: Apache writes `\"`, `\\`, `\n` and the like, both servers write `\xHH`.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let Some((&escaped, after)) = rest.split_first().filter(|_| byte == b'\\') else {
            plain.push(byte);
            continue;
        };
        rest = after;
        match escaped {
            b'x' => match rest.split_at_checked(2).and_then(|(hex, after)| {
                let value = u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?;
                Some((value, after))
            }) {
                Some((value, after)) => {
                    plain.push(value);
                    rest = after;
                }
                None => plain.extend_from_slice(b"\\x"),
            },
            b'b' => plain.push(0x08),
            b'n' => plain.push(b'\n'),
            b'r' => plain.push(b'\r'),
            b't' => plain.push(b'\t'),
            b'v' => plain.push(0x0b),
            other => plain.push(other),
        }
    }
    Cow::Owned(plain)
}

/// The status after the request.
fn status(rest: &[u8]) -> Result<u16, Cause> {
    let word = rest.trim_ascii_start().split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let digits = std::str::from_utf8(word).ok().filter(|word| word.len() == 3);
    digits.and_then(|word| word.parse().ok()).ok_or(Cause::NoStatus)
}
