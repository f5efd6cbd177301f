//! The checks that a server must pass before it is measured.

use std::time::{Duration, Instant, SystemTime};

use hotlap_load::http::Framing;
use hotlap_load::plan::{ExpectedStatus, Protocol};

use super::client::Wire;
use super::{Check, Findings, Requirements, Verifier};
use crate::catalogue::ServerKind;
use crate::contract::{Content, Exchange, Name, Response, described, files};

/// How long to wait for unsolicited bytes before the first request, as a number of pauses.
const SILENCE: u32 = 8;

/// A path that no server knows.
pub(super) const UNKNOWN_PATH: &str = "/hotlap-no-such-path";

/// The state of the checks.
pub(super) struct Bench<'a> {
    verifier: &'a Verifier<'a>,
    pub(super) report: Findings,
    /// The first response, the time when it came, and whether it was right.
    pub(super) first: Option<(Response, SystemTime, bool)>,
    /// The first response to the second exchange, and whether it was right.
    second: Option<(Response, bool)>,
    /// The response to a path that no server knows.
    pub(super) unknown: Option<Response>,
}

type Outcome = Result<(), String>;

type Trial<'a> = fn(&Bench<'a>) -> Outcome;

/// How a server treats an HTTP/1.0 client.
enum Http10 {
    Served,
    Refused,
}

impl<'a> Bench<'a> {
    pub(super) fn new(verifier: &'a Verifier<'a>) -> Self {
        Self { verifier, report: Findings::default(), first: None, second: None, unknown: None }
    }

    pub(super) fn run(&mut self) {
        if self.is_http2() {
            // The other checks are about HTTP/1.1.
            self.contract();
            if self.first.is_none() {
                self.report.ended =
                    Some("nothing else can be checked without a first response".to_owned());
            }
            return;
        }
        let silent = self.silence();
        let silent_enough = silent.is_ok();
        self.require("silence", "nothing sent before a request", silent);
        if !silent_enough {
            self.report.ended =
                Some("bytes sent before a request could pass for a response".to_owned());
            return;
        }
        self.contract();
        if self.first.is_none() {
            self.report.ended =
                Some("nothing else can be checked without a first response".to_owned());
            return;
        }
        if self.verifier.contract.names.contains(&Name::Static) {
            let outcome = self.revalidation();
            let expected = "304 without a body (RFC 9110 section 13.1.2)";
            self.require("If-None-Match", expected, outcome);
        }
        self.connection_handling();
        if self.verifier.rude {
            self.survival();
        }
    }

    /// Records a check that is required of every server, including custom ones.
    fn require(&mut self, name: &str, expected: &str, outcome: Outcome) {
        self.report.required.push(check(name, expected, outcome));
    }

    /// Records a check that is required of servers in the catalogue. For custom servers, the check
    /// is a conformance check.
    fn expect(&mut self, name: &str, expected: &str, outcome: Outcome) {
        let list = match self.verifier.requirements {
            Requirements::Catalogue { .. } => &mut self.report.required,
            Requirements::Custom => &mut self.report.conformance,
        };
        list.push(check(name, expected, outcome));
    }

    pub(super) fn is_http2(&self) -> bool {
        self.verifier.target.protocol == Protocol::Http2
    }

    fn open(&self) -> Result<Wire<'a>, String> {
        let Verifier { target, limit, stop, .. } = *self.verifier;
        Ok(Wire::open(target, limit, stop)?)
    }

    fn main(&self) -> &'a Exchange {
        &self.verifier.contract.exchanges[0]
    }

    fn bytes(&self, exchange: &Exchange) -> Vec<u8> {
        exchange.bytes(self.verifier.host)
    }

    /// Sends a request over a new connection and returns the response.
    fn ask(&self, exchange: &Exchange) -> Result<Response, String> {
        self.open()?.ask(exchange, self.verifier.host)
    }

    /// Checks another response to the main request against the contract.
    pub(super) fn same(&self, answer: &Response) -> Outcome {
        let first = self.first.as_ref().map(|(first, _, right)| (first, *right));
        same(self.main(), first, answer)
    }

    fn silence(&self) -> Outcome {
        self.open()?.quiet(self.verifier.pause * SILENCE)
    }

    /// Checks every exchange of the contract. The main exchange also shows line ends and framing.
    fn contract(&mut self) {
        let contract = self.verifier.contract;
        for exchange in contract.exchanges.iter().chain(&contract.extras) {
            let is_main = std::ptr::eq(exchange, self.main());
            let mut bare_lf = false;
            let mut ask = || {
                let began = Instant::now();
                let answer = self.open().and_then(|mut wire| {
                    let answer = wire.ask(exchange, self.verifier.host);
                    bare_lf = wire.bare_lf;
                    answer
                });
                let now = SystemTime::now();
                let outcome = match &answer {
                    Ok(answer) => exchange
                        .check(answer, now)
                        .and_then(|()| exchange.check_time(began.elapsed())),
                    Err(why) => Err(why.clone()),
                };
                (answer, now, outcome)
            };
            let mut asked = ask();
            for _ in 1..self.verifier.requirements.tries() {
                if asked.2.is_err() {
                    asked = ask();
                }
            }
            let (answer, now, mut outcome) = asked;
            if exchange.content == Content::Clock && outcome.is_ok() {
                outcome = self.advances(exchange);
            }
            let right = outcome.is_ok();
            self.require(&exchange.name, &exchange.expected(), outcome);
            let Ok(answer) = answer else {
                if is_main {
                    return;
                }
                continue;
            };
            if is_main && !self.is_http2() {
                self.line_ends(bare_lf);
                self.framing(&answer);
            }
            if is_main {
                self.first = Some((answer.clone(), now, right));
            }
            if contract.exchanges.get(1).is_some_and(|second| std::ptr::eq(exchange, second)) {
                self.second = Some((answer.clone(), right));
            }
            if self.report.responses.len() < contract.exchanges.len() {
                self.report.responses.push(answer);
            }
        }
    }

    /// Checks that a clock advances within a second and a half.
    fn advances(&self, exchange: &Exchange) -> Outcome {
        let first = self.ask(exchange)?.body;
        let until = Instant::now() + Duration::from_millis(1_500);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
            let next = self.ask(exchange)?;
            if next.body != first {
                return exchange.check(&next, SystemTime::now());
            }
        }
        Err("the same time for 1.5 s".to_owned())
    }

    fn line_ends(&mut self, bare_lf: bool) {
        let outcome = if bare_lf { Err("a bare LF".to_owned()) } else { Ok(()) };
        self.expect("line ends", "CRLF after each line (RFC 9112 section 2.2)", outcome);
    }

    fn framing(&mut self, answer: &Response) {
        let outcome = match answer.framing {
            Framing::UntilClose => Err("a body that ends with the connection".to_owned()),
            _ => Ok(()),
        };
        let expected = "Content-Length or chunked (RFC 9112 section 6.3)";
        self.expect("framing", expected, outcome);
    }

    /// Requests a file again, as a client that already has it.
    fn revalidation(&self) -> Outcome {
        let file = files::first();
        let first = self.ask(&file)?;
        let tag = first.header("etag").ok_or("no ETag")?;
        let again = files::again(file, &String::from_utf8_lossy(tag));
        let mut wire = self.open()?;
        again.check(&wire.ask(&again, self.verifier.host)?, SystemTime::now())?;
        wire.quiet(self.verifier.pause).map_err(|why| format!("after the response, {why}"))
    }

    fn connection_handling(&mut self) {
        let keeps = !matches!(
            self.verifier.requirements,
            Requirements::Catalogue { keep_alive: false, .. }
        );
        let outcome = self.keep_alive();
        if keeps {
            self.expect("keep-alive", "the connection stays open (RFC 9112 section 9.3)", outcome);
        } else {
            let says = self.first.as_ref().is_some_and(|(first, ..)| !first.keep_alive);
            let says = if says { Ok(()) } else { Err("no Connection: close".to_owned()) };
            self.expect("says close", "a Connection: close header (RFC 9112 section 9.6)", says);
            let kept = "the connection stays open (RFC 9112 section 9.3)";
            self.report.conformance.push(check("keep-alive", kept, outcome));
        }
        let outcome = self.split();
        self.expect("split request", "one response to one request in two pieces", outcome);
        self.unknown = self.ask(&unknown_path(self.main())).ok();
        let outcome = self.pipelined();
        let expected = "two responses, in order, to two requests (RFC 9112 section 9.3.2)";
        if keeps {
            self.expect("pipelining", expected, outcome);
        } else {
            self.report.conformance.push(check("pipelining", expected, outcome));
        }
        let outcome = self.close();
        self.expect("close", "Connection: close obeyed (RFC 9112 section 9.6)", outcome);
        let expected = "an unchunked response and a close (RFC 9112 section 9.3)";
        match self.http_1_0() {
            // A proper 505 cannot be mistaken for the expected response (RFC 9110 section 15.6.6).
            Ok(Http10::Refused) => {
                let refused = Err("505 and a close".to_owned());
                self.report.conformance.push(check("HTTP/1.0", expected, refused));
            }
            outcome => self.expect("HTTP/1.0", expected, outcome.map(drop)),
        }
        let kind_demands = matches!(
            self.verifier.requirements,
            Requirements::Catalogue { kind: ServerKind::Framework, .. }
        );
        if kind_demands || self.verifier.contract.knows_paths {
            let outcome = self.unknown_path();
            self.expect("unknown path", "404 (RFC 9110 section 15.5.5)", outcome);
        }
    }

    fn keep_alive(&self) -> Outcome {
        let mut wire = self.open()?;
        for number in 1..=3 {
            wire.send(&self.bytes(self.main()))
                .and_then(|()| receive(&mut wire, self.main()))
                .and_then(|answer| {
                    self.same(&answer)?;
                    if answer.keep_alive {
                        Ok(())
                    } else {
                        Err("the server announces Connection: close".to_owned())
                    }
                })
                .map_err(|why| format!("request {number} on the connection: {why}"))?;
        }
        wire.quiet(self.verifier.pause)?;
        if wire.over { Err("closed after 3 requests".to_owned()) } else { Ok(()) }
    }

    /// Sends each request in two pieces, to find servers that take one read for one request. The
    /// cuts are after a byte, between CR and LF, within a header, and before and within the blank
    /// line and the body.
    fn split(&self) -> Outcome {
        for exchange in &self.verifier.contract.exchanges {
            let bytes = self.bytes(exchange);
            let line = bytes.iter().position(|&b| b == b'\r').map_or(1, |at| at + 1);
            let head = bytes.len() - exchange.body.len();
            let mut cuts = vec![1, line, line + 5, head - 2, head - 1];
            if !exchange.body.is_empty() {
                cuts.extend([head, head + exchange.body.len() / 2]);
            }
            for cut in cuts {
                self.split_at(exchange, &bytes, cut)
                    .map_err(|why| format!("cut after byte {cut} of {}: {why}", exchange.name))?;
            }
        }
        Ok(())
    }

    fn split_at(&self, exchange: &Exchange, bytes: &[u8], cut: usize) -> Outcome {
        let mut wire = self.open()?;
        wire.send(&bytes[..cut])?;
        wire.quiet(self.verifier.pause)
            .map_err(|why| format!("a response to the first piece alone: {why}"))?;
        wire.send(&bytes[cut..])?;
        let answer = receive(&mut wire, exchange)?;
        if std::ptr::eq(exchange, self.main()) {
            self.same(&answer)?;
        } else if !answered(&answer) {
            return Err(described(&answer));
        }
        wire.quiet(self.verifier.pause).map_err(|why| format!("after the response, {why}"))
    }

    /// Sends two requests in one piece. The second request differs if that reveals their order.
    fn pipelined(&self) -> Outcome {
        let main = self.main();
        let (first, _, _) = self.first.as_ref().ok_or("there was no first response")?;
        let unknown = self.unknown.as_ref().filter(|unknown| unknown.status != first.status);
        let second = match (self.verifier.contract.exchanges.get(1), unknown) {
            (Some(exchange), _) => exchange.clone(),
            (None, Some(_)) => unknown_path(main),
            (None, None) => main.clone(),
        };
        let mut wire = self.open()?;
        wire.send(&[self.bytes(main), self.bytes(&second)].concat())?;
        let answer = receive(&mut wire, main)?;
        self.same(&answer).map_err(|why| format!("first response: {why}"))?;
        let answer =
            receive(&mut wire, &second).map_err(|why| format!("second response: {why}"))?;
        let known = self.second.as_ref().map(|(known, right)| (known, *right));
        let outcome = match (self.verifier.contract.exchanges.get(1), unknown) {
            (Some(exchange), _) => same(exchange, known, &answer),
            (None, Some(unknown)) if unknown.status == answer.status => Ok(()),
            (None, Some(_)) => Err(described(&answer)),
            (None, None) => self.same(&answer),
        };
        outcome.map_err(|why| format!("second response: {why}"))?;
        wire.quiet(self.verifier.pause).map_err(|why| format!("after both responses, {why}"))
    }

    fn close(&self) -> Outcome {
        let mut wire = self.open()?;
        wire.send(&self.main().bytes_with(self.verifier.host, &[("Connection", "close")]))?;
        let answer = receive(&mut wire, self.main())?;
        self.same(&answer)?;
        wire.closed()
    }

    fn http_1_0(&self) -> Result<Http10, String> {
        let mut wire = self.open()?;
        wire.send(&with_version(self.bytes(self.main()), "HTTP/1.0"))?;
        let answer = receive(&mut wire, self.main())?;
        if answer.framing == Framing::Chunked {
            return Err("chunked, which HTTP/1.0 does not have".to_owned());
        }
        let old = if answer.status == 505 {
            Http10::Refused
        } else {
            self.same(&answer)?;
            Http10::Served
        };
        wire.closed()?;
        Ok(old)
    }

    pub(super) fn unknown_path(&self) -> Outcome {
        match &self.unknown {
            Some(answer) if answer.status == 404 => Ok(()),
            Some(answer) => Err(described(answer)),
            None => Err("no response".to_owned()),
        }
    }

    /// Checks that the server survives clients that misbehave. If the server does not survive,
    /// nothing further can be checked.
    fn survival(&mut self) {
        let trials: [(&str, &str, Trial<'a>); 3] = [
            ("garbage", "still responds after a client sends garbage", Bench::after_garbage),
            ("reset", "still responds after a client resets the connection", Bench::after_reset),
            ("gone halfway", "still responds after a client leaves mid-request", Bench::after_half),
        ];
        for (name, expected, trial) in trials {
            let outcome = trial(self);
            let survived = outcome.is_ok();
            self.expect(name, expected, outcome);
            if !survived {
                self.report.ended =
                    Some(format!("the server no longer responds after the check {name:?}"));
                return;
            }
        }
    }

    /// Sends the main request after a pause in which a failing server would crash.
    fn responds(&self) -> Outcome {
        std::thread::sleep(self.verifier.pause);
        self.ask(self.main()).and_then(|answer| self.same(&answer))
    }

    fn after_garbage(&self) -> Outcome {
        // A TLS handshake sent to a plain port, bytes that are not text, and a line that never
        // ends.
        let line = [b'A'; 4096];
        for garbage in
            [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"\x00\xff\r\n\r\n", &line]
        {
            let mut wire = self.open()?;
            let _ = wire.send(garbage);
            let _ = wire.first_bytes(self.verifier.pause);
            drop(wire);
            self.responds()?;
        }
        Ok(())
    }

    fn after_reset(&self) -> Outcome {
        let bytes = self.bytes(self.main());
        for part in [&bytes[..bytes.len() / 2], &bytes] {
            let mut wire = self.open()?;
            wire.send(part)?;
            wire.reset();
            self.responds()?;
        }
        Ok(())
    }

    fn after_half(&self) -> Outcome {
        let bytes = self.bytes(self.main());
        let with_body = with_body(self.verifier);
        let body = self.bytes(&with_body);
        let half_body = &body[..body.len() - with_body.body.len() / 2];
        for part in [&bytes[..bytes.len() / 2], half_body, &bytes] {
            let mut wire = self.open()?;
            wire.send(part)?;
            drop(wire);
            self.responds()?;
        }
        Ok(())
    }
}

/// Returns a check's entry in the findings.
pub(super) fn check(name: &str, expected: &str, outcome: Outcome) -> Check {
    let pass = outcome.is_ok();
    let got = outcome.err().unwrap_or_default();
    Check { name: name.to_owned(), expected: expected.to_owned(), got, pass }
}

/// Receives one response to the request of `exchange`.
pub(super) fn receive(wire: &mut Wire<'_>, exchange: &Exchange) -> Result<Response, String> {
    wire.answer(exchange.is_head(), &exchange.content)
}

/// Checks a response against its exchange. If the first response to the exchange was wrong, only
/// the status and length of both are compared, since the error is already reported.
fn same(exchange: &Exchange, first: Option<(&Response, bool)>, answer: &Response) -> Outcome {
    match first {
        Some((first, false)) => {
            let same = first.status == answer.status && first.body.len() == answer.body.len();
            if same { Ok(()) } else { Err(described(answer)) }
        }
        _ => exchange.check(answer, SystemTime::now()),
    }
}

fn answered(answer: &Response) -> bool {
    (200..300).contains(&answer.status)
}

/// Returns a request with a body. If the contract has no such request, the body looks like another
/// request. A server that does not read the body would then send a second response.
///
/// A user's command or URL gets only safe methods, apart from the user's own request. A POST could
/// change something there (RFC 9110 section 9.2.1).
pub(super) fn with_body(verifier: &Verifier<'_>) -> Exchange {
    let exchanges = &verifier.contract.exchanges;
    if let Some(own) = exchanges.iter().find(|exchange| !exchange.body.is_empty()) {
        return own.clone();
    }
    let method = match verifier.requirements {
        Requirements::Catalogue { .. } => "POST",
        Requirements::Custom => "GET",
    };
    Exchange {
        method: method.to_owned(),
        body: b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        status: ExpectedStatus::Any,
        media_type: None,
        content: Content::Any,
        ..exchanges[0].clone()
    }
}

/// Returns a GET of a path that no server knows, with the headers of the main request.
fn unknown_path(main: &Exchange) -> Exchange {
    Exchange {
        name: format!("GET {UNKNOWN_PATH}"),
        method: "GET".to_owned(),
        path: UNKNOWN_PATH.to_owned(),
        headers: main.headers.clone(),
        body: Vec::new(),
        ..main.clone()
    }
}

/// Returns the request as a client of another HTTP version would send it.
pub(super) fn with_version(bytes: Vec<u8>, version: &str) -> Vec<u8> {
    let line = bytes.iter().position(|&b| b == b'\r').unwrap_or(bytes.len());
    let start = line.saturating_sub("HTTP/1.1".len());
    [&bytes[..start], version.as_bytes(), &bytes[line..]].concat()
}
