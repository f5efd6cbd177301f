//! Infers contracts for commands and URLs, whose expected responses are unknown. Later responses
//! are compared with the first ones.
//!
//! A few probes show which parts of a response vary, such as a clock, a counter, or an id. The
//! comparison under load ignores those parts, and a note says so. If probes disagree on the status,
//! only the status is checked. A server that fails now and then is still measured, and its errors
//! are counted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::plan::{ExpectedStatus, Shared, Target, first_difference};

use crate::contract::{
    Body, Content, Contract, Exchange, Fields, Response, described, quoted, union,
};
use crate::interrupt;
use crate::verify::client::{INTERRUPTED, OpenError, Wire};

/// The pause before each further round of probes, in milliseconds. The last round begins over a
/// second after the first, so that a clock in whole seconds is seen to change.
const PAUSES_MS: [u64; 5] = [0, 5, 20, 100, 1_050];

/// The maximum number of probes of each request. In probes, fields have their first values.
pub const PROBES: u64 = PAUSES_MS.len() as u64 + 1;

/// How long to retry a refused connection, because the server may have just started, and the pause
/// between two attempts.
const ACCEPTS: Duration = Duration::from_secs(1);
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// The time after which no request is probed again, however many requests there are.
const LIMIT: Duration = Duration::from_secs(3);

/// The number of digits from which a varying number is assumed to keep its length. Unix time in
/// seconds has ten digits until the year 2286. A shorter number is taken for a counter, which may
/// gain a digit.
const DIGITS_THAT_STAY: usize = 10;

/// An inferred contract.
#[derive(Debug, Clone, PartialEq)]
pub struct Inferred {
    /// The original exchanges, completed with the expected responses.
    pub contract: Contract,
    /// For each exchange, an acceptable response that the server sent.
    pub responses: Vec<Response>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Sends each request of a contract a few times and fills in what the contract leaves open. Each
/// round of probes sends all requests, so many requests take little longer than one.
///
/// A request with an unsafe method (RFC 9110 section 9.2.1), such as POST, is sent once.
///
/// `limit` is the time limit for one response. Once `stop` is set, nothing more is sent or awaited.
///
/// # Errors
/// If a request never got an acceptable response, or `stop` was set.
pub fn infer(
    target: &Target,
    host: &str,
    limit: Duration,
    contract: &Contract,
    stop: &AtomicBool,
) -> Result<Inferred, String> {
    let mut inferred = Inferred { contract: contract.clone(), responses: vec![], notes: vec![] };
    let accepts_until = Instant::now() + ACCEPTS;
    let probes = Prober { target, host, limit, stop, accepts_until, wire: None }.probe(contract);
    if stop.load(Ordering::Relaxed) {
        return Err(INTERRUPTED.to_owned());
    }
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for (exchange, probes) in inferred.contract.exchanges.iter_mut().zip(probes) {
        let (answer, note) = settle(exchange, probes, &contract.fields)?;
        inferred.responses.push(answer);
        let Some(note) = note else { continue };
        match notes.iter_mut().find(|(known, _)| *known == note) {
            Some((_, names)) => names.push(exchange.name.clone()),
            None => notes.push((note, vec![exchange.name.clone()])),
        }
    }
    let told = |(note, names): (String, Vec<String>)| format!("{}: {note}", list(&names));
    inferred.notes = notes.into_iter().map(told).collect();
    Ok(inferred)
}

/// Joins the first names, and adds the number of further names.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names.len() {
        ..=SHOWN => names.join(", "),
        many => format!("{} and {} more", names[..SHOWN].join(", "), many - SHOWN),
    }
}

/// The status of a response and the length of its body, or why there is no response.
type Seen = Result<(u16, usize), String>;

/// The results of all probes of one request. Only the learned body is kept whole, since bodies may
/// be large.
#[derive(Default)]
struct Probes {
    /// The status and length of each response, or why there is none.
    seen: Vec<Seen>,
    /// The first response with an acceptable status. If no response has an acceptable status, the
    /// first response.
    first: Option<Response>,
    /// The body of the first response, if the expected body is learned.
    learned: Option<Shared<u8>>,
    /// The words in which later bodies differ from the learned body.
    varies: Vec<Range<usize>>,
    /// The expected body and the first body that differs from it, both quoted.
    unexpected: Option<(String, String)>,
}

impl Probes {
    /// Adds the result of a probe. `exchange` has the values of the probe's round.
    fn add(&mut self, exchange: &Exchange, probe: Result<Response, String>) {
        let mut response = match probe {
            Ok(response) => response,
            Err(why) => return self.seen.push(Err(why)),
        };
        let is_right = exchange.status.accepts(response.status);
        let had_right =
            self.first.as_ref().is_some_and(|first| exchange.status.accepts(first.status));
        if self.seen.is_empty() && is_right && learns(exchange) {
            self.learned = Some(response.body.take().into());
        }
        self.seen.push(Ok((response.status, response.body.len())));
        if self.learned.is_some() {
            self.varies = union(&self.varies, response.body.differing_words());
        }
        if let (true, Content::Bytes { bytes, varies }) = (is_right, &exchange.content)
            && !response.body.is(bytes, varies)
        {
            let both = || (quoted(bytes), response.body.quoted());
            self.unexpected.get_or_insert_with(both);
        }
        if self.first.is_none() || (is_right && !had_right) {
            self.first = Some(response);
        }
    }

    /// Returns an empty body for the next response. As the response arrives, it is compared with
    /// the expected bytes, if they are known.
    fn next_body(&self, exchange: &Exchange) -> Body {
        match &self.learned {
            Some(bytes) => Body::compared_with(bytes.clone(), Vec::new()),
            None if self.seen.is_empty() && learns(exchange) => Body::whole(),
            None => exchange.content.compared(),
        }
    }
}

/// Returns whether the expected body is learned from the probes.
fn learns(exchange: &Exchange) -> bool {
    exchange.content == Content::Any && exchange.is_safe() && !exchange.is_head()
}

struct Prober<'a> {
    target: &'a Target,
    host: &'a str,
    limit: Duration,
    stop: &'a AtomicBool,
    accepts_until: Instant,
    /// The last connection, if the server keeps it open.
    wire: Option<Wire<'a>>,
}

impl<'a> Prober<'a> {
    /// Probes all requests and returns the results of each. In each round of probes, fields have
    /// different values.
    fn probe(mut self, contract: &Contract) -> Vec<Probes> {
        let first = contract.with_values(0).exchanges;
        let mut probes: Vec<Probes> = first.iter().map(|_| Probes::default()).collect();
        first.iter().zip(&mut probes).for_each(|(exchange, probes)| self.ask(exchange, probes));
        let began = Instant::now();
        let is_safe = first.iter().any(Exchange::is_safe);
        for (round, pause) in (1..).zip(PAUSES_MS).filter(|_| is_safe) {
            interrupt::sleep(Duration::from_millis(pause), self.stop);
            for (exchange, probes) in contract.with_values(round).exchanges.iter().zip(&mut probes)
            {
                if exchange.is_safe() && began.elapsed() < LIMIT {
                    self.ask(exchange, probes);
                }
            }
            // Send the next round over another connection.
            self.wire = None;
        }
        probes
    }

    /// Connects. A refused connection is not a response, so hotlap tries to connect again for a
    /// short time.
    fn open(&self) -> Result<Wire<'a>, OpenError> {
        loop {
            let opened = Wire::open(self.target, self.limit, self.stop);
            let may_retry = Instant::now() < self.accepts_until;
            match opened {
                Err(OpenError::Silent(_))
                    if may_retry && interrupt::sleep(TRY_AGAIN, self.stop) => {}
                opened => return opened,
            }
        }
    }

    fn ask(&mut self, exchange: &Exchange, probes: &mut Probes) {
        let answer = self.answer(exchange, probes);
        probes.add(exchange, answer);
    }

    /// Sends a request. A safe request is sent over the last connection if there is one. If this
    /// attempt fails, the request is sent again over a new connection, since a server may close an
    /// idle connection at any time.
    fn answer(&mut self, exchange: &Exchange, probes: &Probes) -> Result<Response, String> {
        let ask =
            |wire: &mut Wire<'_>| wire.ask_into(probes.next_body(exchange), exchange, self.host);
        if exchange.is_safe()
            && let Some(wire) = &mut self.wire
            && let Ok(answer) = ask(wire)
        {
            if !answer.keep_alive {
                self.wire = None;
            }
            return Ok(answer);
        }
        let mut wire = self.open()?;
        let answer = ask(&mut wire)?;
        self.wire = answer.keep_alive.then_some(wire);
        Ok(answer)
    }
}

/// Derives the expected response from the probes of a request. Returns an acceptable response and a
/// note for the user.
fn settle(
    exchange: &mut Exchange,
    probes: Probes,
    fields: &Fields,
) -> Result<(Response, Option<String>), String> {
    let Probes { seen, first, learned, varies, unexpected } = probes;
    let right: Vec<(u16, usize)> =
        seen.iter().flatten().copied().filter(|seen| exchange.status.accepts(seen.0)).collect();
    let (Some(first), Some(&(status, length))) = (&first, right.first()) else {
        return Err(refused(exchange, first.as_ref(), &seen));
    };
    let same_status = right.iter().all(|seen| seen.0 == status);
    if exchange.status == ExpectedStatus::Success && same_status {
        exchange.status = ExpectedStatus::Exactly(status);
    }
    let learns_content = exchange.content == Content::Any;
    let differs = !varies.is_empty() || right.iter().any(|seen| seen.1 != length);
    let note = if right.len() < seen.len() || !same_status {
        Some(format!(
            "the first {} requests did not get the same response ({}), so only the status is \
             checked. Wrong responses count as errors",
            seen.len(),
            tally(&seen)
        ))
    } else if !learns_content {
        // The server is still measured, and its wrong responses are counted.
        unexpected
            .map(|(own, got)| format!("the expected body is {own}, but the server sent {got}"))
    } else if exchange.is_head() {
        // The response to a HEAD has no body, but states the length of the response to a GET (RFC
        // 9110 section 9.3.2).
        None
    } else if seen.len() == 1 && exchange.is_safe() {
        Some(
            "only the status is checked, because there was no time for a second request before \
              the load"
                .to_owned(),
        )
    } else if seen.len() == 1 {
        Some(format!(
            "{} is not safe to repeat, so hotlap sends the request once before the load. Only the \
             status is checked (--expect-body, or expect_body in a requests file, checks the body \
             too)",
            exchange.method
        ))
    } else if exchange.varies(fields) && differs {
        Some(
            "the response varies with the request, so only the status is checked (expect_body in \
             a requests file checks the body too)"
                .to_owned(),
        )
    } else {
        let lengths: Vec<usize> = right.iter().map(|seen| seen.1).collect();
        let (content, note) =
            content(learned.unwrap_or_else(|| Vec::new().into()), &lengths, varies);
        exchange.content = content;
        note
    };
    Ok((first.clone(), note))
}

/// Explains why no probe got an acceptable response.
fn refused(exchange: &Exchange, first: Option<&Response>, seen: &[Seen]) -> String {
    let name = &exchange.name;
    match (first, exchange.status) {
        (Some(answer), ExpectedStatus::Exactly(status)) => {
            format!("{name}: expected status {status}, got {}", described(answer))
        }
        (Some(answer), _) if answer.status == 503 => format!(
            "{name}: got {}, so the server is possibly not ready. Try again once the server is \
             ready",
            described(answer)
        ),
        (Some(answer), _) => format!(
            "{name}: got {}. Set the right path with --path, or accept this status with \
             --expect-status {}. In a requests file, use path or expect_status",
            described(answer),
            answer.status
        ),
        (None, _) => {
            let why = seen.iter().find_map(|seen| seen.as_ref().err());
            format!("{name}: {}", why.map_or("no response", String::as_str))
        }
    }
}

/// Counts probes by status, and probes without a response.
fn tally(seen: &[Seen]) -> String {
    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    for (status, _) in seen.iter().flatten() {
        *statuses.entry(*status).or_default() += 1;
    }
    let mut parts: Vec<String> =
        statuses.iter().map(|(status, count)| format!("{count} × {status}")).collect();
    let failed: Vec<&String> = seen.iter().filter_map(|seen| seen.as_ref().err()).collect();
    parts.extend(failed.first().map(|why| format!("{} × {why}", failed.len())));
    parts.join(", ")
}

/// Returns the expected content, and a note about it for the user. Both follow from the first body,
/// the lengths of all bodies, and the words in which the bodies differ.
fn content(
    first: Shared<u8>,
    lengths: &[usize],
    varies: Vec<Range<usize>>,
) -> (Content, Option<String>) {
    let (least, most) = (lengths.iter().min().unwrap_or(&0), lengths.iter().max().unwrap_or(&0));
    if least != most {
        let note = format!(
            "the response varies in length ({least} to {most} bytes), so only status and framing \
             are checked"
        );
        return (Content::Any, Some(note));
    }
    if varies.is_empty() {
        return (Content::Bytes { bytes: first, varies }, None);
    }
    let part = |range: &Range<usize>| quoted(&first[range.clone()]);
    let is_counter = |range: &&Range<usize>| {
        range.len() < DIGITS_THAT_STAY && first[(*range).clone()].iter().all(u8::is_ascii_digit)
    };
    if let Some(counter) = varies.iter().find(is_counter) {
        let note = format!(
            "a number in the response varies ({}) and may grow, so only status and framing are \
             checked",
            part(counter)
        );
        return (Content::Any, Some(note));
    }
    let parts: Vec<String> = varies.iter().take(3).map(part).collect();
    let more = if varies.len() > 3 { ", …" } else { "" };
    let note =
        format!("parts of the response vary ({}{more}) and are not compared", parts.join(", "));
    (Content::Bytes { bytes: first, varies }, Some(note))
}

/// Returns a note if another server of the run gives a different response to the first exchange.
/// The figures then compare different work. Parts that vary in either response are ignored.
pub fn difference(own: &Contract, (name, other): (&str, &Contract)) -> Option<String> {
    let (own, other) = (own.exchanges.first()?, other.exchanges.first()?);
    let (
        Content::Bytes { bytes: own, varies: own_varies },
        Content::Bytes { bytes: other, varies: other_varies },
    ) = (&own.content, &other.content)
    else {
        return None;
    };
    let varies = union(own_varies, other_varies);
    let same = own.len() == other.len() && first_difference(own, 0, other, &varies).is_none();
    let is_word = |byte: &&u8| !byte.is_ascii_whitespace();
    match () {
        () if same => None,
        () if own.iter().filter(is_word).eq(other.iter().filter(is_word)) => {
            Some(format!("the response differs from the response of {name} only in white space"))
        }
        () => Some(format!(
            "the response is {}, but {name} responds with {}: the servers do not do the same work",
            told(own),
            told(other)
        )),
    }
}

/// Describes a body for a message: quoted, or by its length if the body is not text.
fn told(body: &[u8]) -> String {
    let is_text = |text: &str| !text.chars().any(|c| c.is_control() && !c.is_ascii_whitespace());
    match std::str::from_utf8(body) {
        Ok(text) if is_text(text) => quoted(body),
        _ if body.starts_with(b"\x1f\x8b") => format!("{} bytes of gzip", body.len()),
        _ => format!("{} bytes that are not text", body.len()),
    }
}

#[cfg(test)]
mod tests {
    use hotlap_load::http::KeepBody;

    use super::*;
    use crate::contract::{Ask, Name};

    fn inferred(bodies: &[&str]) -> (Content, String) {
        let first: Shared<u8> = bodies[0].as_bytes().to_vec().into();
        let mut varies = Vec::new();
        for body in &bodies[1..] {
            let mut got = Body::compared_with(first.clone(), Vec::new());
            got.piece(body.as_bytes());
            varies = union(&varies, got.differing_words());
        }
        let lengths: Vec<usize> = bodies.iter().map(|body| body.len()).collect();
        let (content, note) = content(first, &lengths, varies);
        (content, note.unwrap_or_default())
    }

    fn masked(bodies: &[&str]) -> Vec<String> {
        let Content::Bytes { bytes, varies } = inferred(bodies).0 else { return Vec::new() };
        let text = String::from_utf8(bytes.into()).unwrap();
        varies.into_iter().map(|range| text[range].to_owned()).collect()
    }

    /// Regression: a trailing newline counted as different work, and a compressed body was printed.
    #[test]
    fn a_different_response_is_told_as_far_as_it_matters() {
        let contract = |body: &[u8]| {
            let mut contract = Contract::of(Name::Hello, None);
            contract.exchanges[0].content = Content::exactly(body);
            contract
        };
        let note = |own: &[u8], other: &[u8]| difference(&contract(own), ("b", &contract(other)));
        assert_eq!(note(b"a", b"a"), None);
        let said = "the response differs from the response of b only in white space";
        assert_eq!(note(b"{\"id\": 1}\n", b"{\"id\":1}").as_deref(), Some(said));
        let said = note(b"\x1f\x8b\x08\x00", b"page").unwrap();
        assert!(
            said.starts_with("the response is 4 bytes of gzip, but b responds with "),
            "{said}"
        );
    }

    #[test]
    fn a_fixed_body_is_compared_byte_for_byte() {
        assert_eq!(inferred(&["ab", "ab"]), (Content::exactly(b"ab"), String::new()));
    }

    #[test]
    fn a_clock_is_masked_as_a_whole_though_only_its_last_digits_change() {
        assert_eq!(
            masked(&["Hello World 1700000000123", "Hello World 1700000001456"]),
            ["1700000000123"]
        );
        assert_eq!(
            masked(&["{\"at\":\"2026-11-21T20:38:30Z\"}", "{\"at\":\"2026-11-21T20:38:31Z\"}"]),
            ["20:38:30"]
        );
    }

    #[test]
    fn an_id_is_masked_as_a_whole() {
        assert_eq!(masked(&["id 3f2a-99-x1 ok", "id 7bc0-99-y2 ok"]), ["3f2a-99-x1"]);
    }

    #[test]
    fn a_counter_that_may_grow_leaves_only_status_and_framing() {
        let (content, note) = inferred(&["visit 7", "visit 8"]);
        assert_eq!(content, Content::Any);
        assert_eq!(
            note,
            "a number in the response varies (\"7\") and may grow, so only status and framing are \
             checked"
        );
    }

    #[test]
    fn a_varying_length_is_reported() {
        let (content, note) = inferred(&["a", "abc"]);
        assert_eq!(content, Content::Any);
        assert!(note.starts_with("the response varies in length (1 to 3 bytes)"));
    }

    #[test]
    fn servers_with_different_responses_are_reported() {
        let hello = Contract::of(Name::Hello, None);
        let custom = |content: Content| {
            let mut contract = Contract::custom(&Ask::default());
            contract.exchanges[0].content = content;
            contract
        };
        let told = |content| difference(&custom(content), ("go/net-http", &hello));
        assert_eq!(
            told(Content::exactly(b"Hi")).unwrap(),
            "the response is \"Hi\", but go/net-http responds with \"Hello, World!\": the servers \
             do not do the same work"
        );
        assert_eq!(told(Content::exactly(b"Hello, World!")), None);
        assert_eq!(told(Content::Any), None);
        let varies = std::iter::once(0..5).collect();
        assert_eq!(told(Content::Bytes { bytes: b"12345, World!".to_vec().into(), varies }), None);
    }
}
