//! Conformance checks: HTTP behaviour that is reported but not required. Each check names its rule.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotlap_load::plan::ExpectedStatus;

use super::checks::{Bench, check, receive, with_body, with_version};
use super::client::Wire;
use super::{Check, Requirements, Verifier};
use crate::contract::{Content, Exchange, Response, described};
use crate::interrupt;

/// How far a `Date` may be off, in seconds. A `Date` has whole seconds, and servers update it once
/// a second.
const DATE_SLACK_S: i64 = 2;

/// The time limit for one response. Slow servers are detected by other checks.
const LIMIT: Duration = Duration::from_secs(1);

type Outcome = Result<(), String>;

struct Conformance<'a> {
    verifier: &'a Verifier<'a>,
    bench: &'a Bench<'a>,
    host: &'a str,
    path: &'a str,
}

/// Runs up to thirteen checks. The rude check is left out if the server is not the user's own. The
/// unknown method is left out for a user's command or URL, because the method could change
/// something there (RFC 9110 section 9.2.1).
pub(super) fn run(verifier: &Verifier<'_>, bench: &Bench<'_>) -> Vec<Check> {
    let main = &verifier.contract.exchanges[0];
    let b = Conformance { verifier, bench, host: verifier.host, path: &main.path };
    let mut conformance = vec![
        check("HEAD", "same as GET, without the body (RFC 9110 section 9.3.2)", b.head()),
        check("unknown path", "404 (RFC 9110 section 15.5.5)", bench.unknown_path()),
        check("chunked body", "read to its end (RFC 9112 section 7.1)", b.chunked_body()),
        check("100-continue", "100 or a final response (RFC 9110 section 10.1.1)", b.continues()),
        check("folded header", "4xx or unfolded (RFC 9112 section 5.2)", b.folded_header()),
        check("bad version", "505 or 4xx (RFC 9110 section 15.6.6)", b.bad_version()),
        check("no Host", "400 (RFC 9112 section 3.2)", b.no_host()),
        check("space before colon", "4xx (RFC 9112 section 5.1)", b.space_before_colon()),
        check("two lengths", "400, then closed (RFC 9112 section 6.3)", b.two_lengths()),
        check("absolute target", "accepted (RFC 9112 section 3.2.2)", b.absolute_target()),
    ];
    if verifier.requirements != Requirements::Custom {
        let expected = "4xx or 501 (RFC 9110 section 9.1)";
        conformance.insert(1, check("unknown method", expected, b.unknown_method()));
    }
    if verifier.rude {
        let outcome = b.large_header();
        conformance.push(check("64 KiB header", "accepted, or 4xx (RFC 6585 section 5)", outcome));
    }
    // This check comes last, because most of the second in which the date must change has passed by
    // now.
    conformance.push(check("Date", "right, and advancing (RFC 9110 section 6.6.1)", b.date()));
    conformance
}

impl<'a> Conformance<'a> {
    fn main(&self) -> &Exchange {
        &self.verifier.contract.exchanges[0]
    }

    fn open(&self) -> Result<Wire<'a>, String> {
        let Verifier { target, limit, stop, .. } = *self.verifier;
        Ok(Wire::open(target, limit.min(LIMIT), stop)?)
    }

    fn ask(&self, bytes: &[u8], is_head: bool) -> Result<Response, String> {
        let mut wire = self.open()?;
        let sent = wire.send(bytes);
        // A server that rejects a request before all of it was sent may still have responded.
        wire.answer(is_head, &self.main().content).map_err(|why| sent.err().unwrap_or(why))
    }

    /// Returns the main request with additional header lines.
    fn with_lines(&self, lines: &str) -> Vec<u8> {
        with_lines(&self.main().bytes(self.host), lines)
    }

    fn refused(&self, bytes: &[u8], is_head: bool, also: u16) -> Outcome {
        let answer = self.ask(bytes, is_head)?;
        match answer.status {
            400..=499 => Ok(()),
            status if status == also => Ok(()),
            _ => Err(described(&answer)),
        }
    }

    /// Checks that the next request on this connection gets its usual response, unless the server
    /// has closed the connection.
    fn goes_on(&self, wire: &mut Wire<'_>, kept: bool) -> Outcome {
        wire.quiet(self.verifier.pause).map_err(|why| format!("after its response, {why}"))?;
        if !kept || wire.over {
            return Ok(());
        }
        wire.send(&self.main().bytes(self.host))
            .and_then(|()| receive(wire, self.main()))
            .and_then(|answer| self.bench.same(&answer))
            .map_err(|why| format!("response to the next request: {why}"))
    }

    fn head(&self) -> Outcome {
        let (first, ..) = self.bench.first.as_ref().ok_or("no first response")?;
        let exchange = Exchange { method: "HEAD".to_owned(), ..self.main().clone() };
        let mut wire = self.open()?;
        wire.send(&exchange.bytes(self.host))?;
        let answer = wire.answer(true, &Content::Any)?;
        if answer.status != first.status {
            return Err(described(&answer));
        }
        wire.quiet(self.verifier.pause).map_err(|why| format!("has a body: {why}"))?;
        if let (Some(got), Some(own)) =
            (answer.header("content-length"), first.header("content-length"))
            && got != own
        {
            return Err(format!("Content-Length {}", String::from_utf8_lossy(got)));
        }
        self.goes_on(&mut wire, answer.keep_alive)
    }

    fn unknown_method(&self) -> Outcome {
        let exchange = Exchange { method: "HOTLAP".to_owned(), ..self.main().clone() };
        self.refused(&exchange.bytes(self.host), false, 501)
    }

    /// Checks that the body is read to its end. If the contract has a request with a body, the
    /// response also shows whether the chunks were decoded.
    fn chunked_body(&self) -> Outcome {
        let exchange = with_body(self.verifier);
        let bodiless = Exchange { body: Vec::new(), ..exchange.clone() };
        let head = bodiless.bytes_with(self.host, &[("Transfer-Encoding", "chunked")]);
        let size = format!("{:x}\r\n", exchange.body.len());
        let mut wire = self.open()?;
        wire.send(&[&head, size.as_bytes(), &exchange.body, b"\r\n0\r\n\r\n"].concat())?;
        let answer = receive(&mut wire, &exchange)?;
        self.took_body(&exchange, &answer)?;
        self.goes_on(&mut wire, answer.keep_alive)
    }

    /// Checks the response to a request from [`with_body`].
    fn took_body(&self, exchange: &Exchange, answer: &Response) -> Outcome {
        // A server may require a length (RFC 9110 section 15.5.12).
        if answer.status == 411 {
            return Ok(());
        }
        if exchange == self.main() {
            return self.bench.same(answer);
        }
        match exchange.status {
            // No contract says what the response must be.
            ExpectedStatus::Any if answer.status >= 500 => Err(described(answer)),
            _ => exchange.check(answer, SystemTime::now()),
        }
    }

    fn continues(&self) -> Outcome {
        let exchange = with_body(self.verifier);
        let bytes = exchange.bytes_with(self.host, &[("Expect", "100-continue")]);
        let (head, body) = bytes.split_at(bytes.len() - exchange.body.len());
        let mut wire = self.open()?;
        wire.send(head)?;
        let waits = wire.first_bytes(LIMIT).ok_or("no response while the body is withheld")?;
        if waits.starts_with(b"HTTP/1.1 100") {
            wire.send(body)?;
        }
        receive(&mut wire, &exchange).map(drop)
    }

    fn folded_header(&self) -> Outcome {
        let answer = self.ask(&self.with_lines("X-Folded: a\r\n b\r\n"), self.main().is_head())?;
        match answer.status {
            400..=499 => Ok(()),
            _ => self.bench.same(&answer),
        }
    }

    fn bad_version(&self) -> Outcome {
        let request = with_version(self.main().bytes(self.host), "HTTP/9.9");
        self.refused(&request, self.main().is_head(), 505)
    }

    fn no_host(&self) -> Outcome {
        let request = without_host(&self.main().bytes(self.host));
        let answer = self.ask(&request, self.main().is_head())?;
        if answer.status == 400 { Ok(()) } else { Err(described(&answer)) }
    }

    fn space_before_colon(&self) -> Outcome {
        self.refused(&self.with_lines("X-Space : a\r\n"), self.main().is_head(), 400)
    }

    fn two_lengths(&self) -> Outcome {
        let exchange = Exchange { body: Vec::new(), ..self.main().readiness() };
        let lines = "Content-Length: 2\r\nContent-Length: 3\r\n";
        let request = with_lines(&exchange.bytes(self.host), lines);
        let mut wire = self.open()?;
        let sent = wire.send(&[&request[..], b"{} "].concat());
        let answer = receive(&mut wire, &exchange).map_err(|why| sent.err().unwrap_or(why))?;
        if answer.status != 400 {
            return Err(described(&answer));
        }
        wire.closed().map_err(|why| format!("after a 400, {why}"))
    }

    fn absolute_target(&self) -> Outcome {
        let scheme = if self.verifier.target.tls.is_some() { "https" } else { "http" };
        let path = format!("{scheme}://{}{}", self.host, self.path);
        let exchange = Exchange { path, ..self.main().clone() };
        let answer = self.ask(&exchange.bytes(self.host), exchange.is_head())?;
        self.bench.same(&answer)
    }

    fn large_header(&self) -> Outcome {
        let line = format!("X-Large: {}\r\n", "a".repeat(64 << 10));
        let answer = self.ask(&self.with_lines(&line), self.main().is_head())?;
        match answer.status {
            400..=499 => Ok(()),
            _ => self.bench.same(&answer),
        }
    }

    fn date(&self) -> Outcome {
        let (first, at, _) = self.bench.first.as_ref().ok_or("no first response")?;
        let early = right_date(first, *at)?;
        let moved = *at + Duration::from_millis(1_100);
        if let Ok(left) = moved.duration_since(SystemTime::now()) {
            interrupt::sleep(left, self.verifier.stop);
        }
        let next = self.ask(&self.main().bytes(self.host), self.main().is_head())?;
        let late = right_date(&next, SystemTime::now())?;
        if late > early { Ok(()) } else { Err("the same after 1.1 s".to_owned()) }
    }
}

/// Returns a request with additional header lines, which are copied verbatim.
fn with_lines(request: &[u8], lines: &str) -> Vec<u8> {
    let at = request.iter().position(|&b| b == b'\n').map_or(0, |at| at + 1);
    [&request[..at], lines.as_bytes(), &request[at..]].concat()
}

fn without_host(request: &[u8]) -> Vec<u8> {
    let is_host = |line: &[u8]| line.get(..5).is_some_and(|n| n.eq_ignore_ascii_case(b"host:"));
    // Every request has such a line in its head, so a similar line in the body is not the first.
    let mut found = false;
    let stays = |line: &&[u8]| {
        let is_first = !found && is_host(line);
        found |= is_first;
        !is_first
    };
    request.split_inclusive(|&b| b == b'\n').filter(stays).collect::<Vec<_>>().concat()
}

/// Parses a response's `Date` and compares it with the current time.
fn right_date(answer: &Response, now: SystemTime) -> Result<SystemTime, String> {
    let value = answer.header("date").ok_or("none")?;
    let text = String::from_utf8_lossy(value);
    let date = imf_fixdate(&text).ok_or_else(|| format!("{text:?}"))?;
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    match seconds(date).cast_signed() - seconds(now).cast_signed() {
        off if off.abs() <= DATE_SLACK_S => Ok(date),
        off => Err(format!("{text:?}: {off} s off")),
    }
}

/// Parses the only date format that a server may send: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110
/// section 5.6.7). The two obsolete formats may only be accepted, never sent.
fn imf_fixdate(text: &str) -> Option<SystemTime> {
    let date = httpdate::parse_http_date(text).ok()?;
    (httpdate::fmt_http_date(date) == text).then_some(date)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the check "no Host" sent GET to a server whose contract has only POST.
    #[test]
    fn a_request_without_host_keeps_its_method_and_body() {
        let request = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n\r\nHost: y";
        let without = b"POST /a HTTP/1.1\r\nContent-Length: 9\r\n\r\n\r\nHost: y";
        assert_eq!(without_host(request), without);
    }

    #[test]
    fn only_the_standard_format_is_a_date() {
        let seconds = |text: &str| {
            imf_fixdate(text).map(|date| date.duration_since(UNIX_EPOCH).unwrap().as_secs())
        };
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        for wrong in [
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
