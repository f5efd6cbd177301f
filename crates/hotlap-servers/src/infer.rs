//! Infers a contract for commands and URLs, which have none: later responses are compared with the
//! first ones.
//!
//! A few probes show which parts of a response vary (a clock, a counter, an id). Those parts are
//! left out of the comparison under load, and a note says so. If probes disagree on the status,
//! only the status is checked: a server that fails now and then is measured, and its errors are
//! counted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hotlap_load::http::Response;
use hotlap_load::plan::{ExpectedStatus, Target};

use crate::contract::{Content, Contract, Exchange, Fields, described, quoted};
use crate::verify::client::Wire;

/// Pause before each further round of probes, in milliseconds. The last round begins over a second
/// after the first, so that a clock in whole seconds is seen to change.
const PAUSES_MS: [u64; 5] = [0, 5, 20, 100, 1_050];

/// The number of requests that are sent to probe a server, at most: fields have their first values
/// in these.
pub const PROBES: u64 = PAUSES_MS.len() as u64 + 1;

/// No request is probed again after this time, however many requests there are.
const LIMIT: Duration = Duration::from_secs(3);

/// From this many digits on, a varying number keeps its length while it is observed: Unix time in
/// seconds has ten digits until the year 2286. A shorter number is taken for a counter, which may
/// gain a digit.
const DIGITS_THAT_STAY: usize = 10;

/// An inferred contract.
#[derive(Debug, Clone, PartialEq)]
pub struct Inferred {
    /// The same exchanges, now with the expected responses.
    pub contract: Contract,
    /// A right response to each exchange.
    pub answers: Vec<Response>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Sends each request of a contract a few times and fills in what the contract leaves open. Each
/// round of probes sends all requests, so that many take little longer than one.
///
/// A request with an unsafe method (RFC 9110 section 9.2.1), such as POST, is sent once.
///
/// `limit` is the time limit for one response.
///
/// # Errors
/// No probe of some request got an acceptable response.
pub fn infer(
    target: &Target,
    host: &str,
    limit: Duration,
    contract: &Contract,
) -> Result<Inferred, String> {
    let mut inferred = Inferred { contract: contract.clone(), answers: vec![], notes: vec![] };
    let probes = Prober { target, host, limit, wire: None }.probe(contract);
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for (exchange, probes) in inferred.contract.exchanges.iter_mut().zip(&probes) {
        let (answer, note) = settle(exchange, probes, &contract.fields)?;
        inferred.answers.push(answer);
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

/// The first names, and the number of further ones.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names.len() {
        ..=SHOWN => names.join(", "),
        many => format!("{} and {} more", names[..SHOWN].join(", "), many - SHOWN),
    }
}

/// A response, or why there is none.
type Probe = Result<Answer, String>;

/// A response whose body is shared with others that have the same: bodies may be large, and every
/// request is sent several times.
struct Answer {
    /// Without its body.
    response: Response,
    body: Rc<Vec<u8>>,
}

impl Answer {
    /// Shares the body of an earlier response, if there is one that has the same.
    fn new(mut response: Response, earlier: &[Probe]) -> Self {
        let body = std::mem::take(&mut response.body);
        let same = earlier.iter().flatten().find(|answer| *answer.body == body);
        let body = same.map_or_else(|| Rc::new(body), |answer| Rc::clone(&answer.body));
        Self { response, body }
    }

    fn whole(&self) -> Response {
        Response { body: self.body.to_vec(), ..self.response.clone() }
    }
}

struct Prober<'a> {
    target: &'a Target,
    host: &'a str,
    limit: Duration,
    /// A connection that the server keeps open.
    wire: Option<Wire>,
}

impl Prober<'_> {
    /// Probes all requests. Returns the probes of each. In each round of probes, fields have the
    /// values of another request.
    fn probe(mut self, contract: &Contract) -> Vec<Vec<Probe>> {
        let first = contract.with_values(0).exchanges;
        let mut probes: Vec<Vec<Probe>> = first.iter().map(|e| vec![self.ask(e, &[])]).collect();
        let began = Instant::now();
        let is_safe = first.iter().any(Exchange::is_safe);
        for (round, pause) in (1..).zip(PAUSES_MS).filter(|_| is_safe) {
            std::thread::sleep(Duration::from_millis(pause));
            for (exchange, probes) in contract.with_values(round).exchanges.iter().zip(&mut probes)
            {
                if exchange.is_safe() && began.elapsed() < LIMIT {
                    let probe = self.ask(exchange, probes);
                    probes.push(probe);
                }
            }
            // Send the next round over another connection.
            self.wire = None;
        }
        probes
    }

    /// Sends a request, over the last connection if it is kept open. If that fails, a request that
    /// may be repeated is, since an idle connection may be closed at any time.
    fn ask(&mut self, exchange: &Exchange, earlier: &[Probe]) -> Probe {
        if exchange.is_safe()
            && let Some(wire) = &mut self.wire
            && let Ok(answer) = wire.ask(exchange, self.host)
        {
            if !answer.keep_alive {
                self.wire = None;
            }
            return Ok(Answer::new(answer, earlier));
        }
        let mut wire = Wire::open(self.target, self.limit)?;
        let answer = wire.ask(exchange, self.host)?;
        self.wire = answer.keep_alive.then_some(wire);
        Ok(Answer::new(answer, earlier))
    }
}

/// Derives the expected response from the probes of a request. Returns an acceptable response and
/// what the user should know.
fn settle(
    exchange: &mut Exchange,
    probes: &[Probe],
    fields: &Fields,
) -> Result<(Response, Option<String>), String> {
    let is_right = |answer: &&Answer| match exchange.status {
        ExpectedStatus::Success => (200..300).contains(&answer.response.status),
        ExpectedStatus::Exactly(status) => answer.response.status == status,
        ExpectedStatus::Any => true,
    };
    let right: Vec<&Answer> = probes.iter().flatten().filter(is_right).collect();
    let Some(&first) = right.first() else { return Err(refused(exchange, probes)) };
    let same_status = right.iter().all(|answer| answer.response.status == first.response.status);
    if exchange.status == ExpectedStatus::Success && same_status {
        exchange.status = ExpectedStatus::Exactly(first.response.status);
    }
    let learns_content = exchange.content == Content::Any;
    let note = if right.len() < probes.len() || !same_status {
        Some(format!(
            "its first {} responses differ ({}), so only the status is checked; \
             wrong responses count as errors",
            probes.len(),
            tally(probes)
        ))
    } else if !learns_content {
        disagreement(exchange, &right, fields)
    } else if exchange.is_head() {
        // The response to a HEAD has no body, and states the length of the response to a GET (RFC
        // 9110 section 9.3.2).
        None
    } else if probes.len() == 1 && exchange.is_safe() {
        Some("it was sent once before the load, so only the status is checked".to_owned())
    } else if probes.len() == 1 {
        Some(format!(
            "{} is not safe to repeat, so it was sent once before the load, and only the status is \
             checked (--expect-body checks the body too)",
            exchange.method
        ))
    } else if exchange.varies(fields) && right.iter().any(|answer| answer.body != first.body) {
        Some(
            "its response varies with the request, so only the status is checked (expect_body in \
             the requests file checks the body too)"
                .to_owned(),
        )
    } else {
        let bodies: Vec<&[u8]> = right.iter().map(|answer| answer.body.as_slice()).collect();
        let (content, note) = content(&bodies);
        exchange.content = content;
        note
    };
    Ok((first.whole(), note))
}

/// A note if responses do not have the expected body. The server is measured all the same, and its
/// wrong responses are counted.
fn disagreement(exchange: &Exchange, right: &[&Answer], fields: &Fields) -> Option<String> {
    let is_wrong = |(round, answer): &(u64, &&Answer)| {
        let content = exchange.with_values(fields, *round).content;
        matches!(content, Content::Bytes { bytes, .. } if bytes != *answer.body)
    };
    let (round, answer) = (0..).zip(right).find(is_wrong)?;
    let Content::Bytes { bytes, .. } = exchange.with_values(fields, round).content else {
        return None;
    };
    Some(format!("the expected body is {}, but it is {}", quoted(&bytes), quoted(&answer.body)))
}

/// Why no probe got a response that can be right.
fn refused(exchange: &Exchange, probes: &[Probe]) -> String {
    let name = &exchange.name;
    match (probes.iter().flatten().next().map(Answer::whole), exchange.status) {
        (Some(answer), ExpectedStatus::Exactly(status)) => {
            format!("{name}: expected status {status}, got {}", described(&answer))
        }
        (Some(answer), _) if answer.status == 503 => format!(
            "{name}: got {}, so the server was not ready in time; --start-timeout allows more time",
            described(&answer)
        ),
        (Some(answer), _) => format!(
            "{name}: got {}; set the right path with --path, or accept this status with \
             --expect-status {}",
            described(&answer),
            answer.status
        ),
        (None, _) => {
            let why = probes.iter().find_map(|probe| probe.as_ref().err());
            format!("{name}: {}", why.map_or("no response", String::as_str))
        }
    }
}

/// Counts probes by status, and those without a response.
fn tally(probes: &[Probe]) -> String {
    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    for answer in probes.iter().flatten() {
        *statuses.entry(answer.response.status).or_default() += 1;
    }
    let mut parts: Vec<String> =
        statuses.iter().map(|(status, count)| format!("{count} × {status}")).collect();
    let failed: Vec<&String> = probes.iter().filter_map(|probe| probe.as_ref().err()).collect();
    parts.extend(failed.first().map(|why| format!("{} × {why}", failed.len())));
    parts.join(", ")
}

/// The expected content given these bodies, and what the user should know about it.
fn content(bodies: &[&[u8]]) -> (Content, Option<String>) {
    let lengths = || bodies.iter().map(|body| body.len());
    let (least, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
    if least != most {
        let note = format!(
            "its response varies in length ({least} to {most} bytes), so only status and framing \
             are checked"
        );
        return (Content::Any, Some(note));
    }
    let varies = varying(bodies);
    let first = bodies[0];
    if varies.is_empty() {
        return (Content::exactly(first), None);
    }
    let part = |range: &Range<usize>| quoted(&first[range.clone()]);
    let is_counter = |range: &&Range<usize>| {
        range.len() < DIGITS_THAT_STAY && first[(*range).clone()].iter().all(u8::is_ascii_digit)
    };
    if let Some(counter) = varies.iter().find(is_counter) {
        let note = format!(
            "a number in its response varies ({}) and may grow, so only status and framing are \
             checked",
            part(counter)
        );
        return (Content::Any, Some(note));
    }
    let parts: Vec<String> = varies.iter().take(3).map(part).collect();
    let more = if varies.len() > 3 { ", …" } else { "" };
    let note =
        format!("parts of its response vary ({}{more}) and are not compared", parts.join(", "));
    (Content::Bytes { bytes: first.to_vec(), varies }, Some(note))
}

/// The ranges in which bodies of equal length differ, each extended to the whole number, time or
/// word that it is part of: of a clock, only the last digits change while it is observed.
fn varying(bodies: &[&[u8]]) -> Vec<Range<usize>> {
    let first = bodies[0];
    let differs = |at: &usize| bodies.iter().any(|body| body[*at] != first[*at]);
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for at in (0..first.len()).filter(differs) {
        if ranges.last().is_some_and(|last| last.contains(&at)) {
            continue;
        }
        let numeric = bodies.iter().all(|body| body[at].is_ascii_digit());
        let belongs = |&b: &u8| match numeric {
            true => b.is_ascii_hexdigit() || b"-:.".contains(&b),
            false => b.is_ascii_alphanumeric() || b"-_:.+/=".contains(&b),
        };
        let before = first[..at].iter().rev().take_while(|b| belongs(b)).count();
        let after = first[at + 1..].iter().take_while(|b| belongs(b)).count();
        let range = at - before..at + 1 + after;
        match ranges.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => ranges.push(range),
        }
    }
    ranges
}

/// A note if another server of the run gives a different response to the first exchange, because
/// the figures then compare different work. Parts that vary in either response are ignored.
pub fn difference(own: &Contract, (name, other): (&str, &Contract)) -> Option<String> {
    let body = |contract: &Contract| match contract.exchanges.first().map(|e| e.content.clone()) {
        Some(Content::Bytes { bytes, varies }) => Some((bytes, varies)),
        _ => None,
    };
    let ((own, own_varies), (other, other_varies)) = (body(own)?, body(other)?);
    let fixed = |at: &usize| !own_varies.iter().chain(&other_varies).any(|r| r.contains(at));
    let same =
        own.len() == other.len() && (0..own.len()).filter(fixed).all(|at| own[at] == other[at]);
    let words = |bytes: &[u8]| bytes.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let (own_words, other_words): (Vec<u8>, Vec<u8>) = (words(&own), words(&other));
    match () {
        () if same => None,
        () if own_words == other_words => {
            Some(format!("its response differs from the response of {name} only in white space"))
        }
        () => Some(format!(
            "its response is {}, but {name} responds with {}: the two servers do not do the same \
             work",
            told(&own),
            told(&other)
        )),
    }
}

/// A body in a message: quoted, or its length if it is not text.
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
    use super::*;
    use crate::contract::{Ask, Name};

    fn inferred(bodies: &[&str]) -> (Content, String) {
        let bodies: Vec<&[u8]> = bodies.iter().map(|body| body.as_bytes()).collect();
        let (content, note) = content(&bodies);
        (content, note.unwrap_or_default())
    }

    fn masked(bodies: &[&str]) -> Vec<String> {
        let Content::Bytes { bytes, varies } = inferred(bodies).0 else { return Vec::new() };
        let text = String::from_utf8(bytes).unwrap();
        varies.into_iter().map(|range| text[range].to_owned()).collect()
    }

    /// Regression: a trailing newline was "not the same work", and a compressed body was printed.
    #[test]
    fn a_different_response_is_told_as_far_as_it_matters() {
        let contract = |body: &[u8]| {
            let mut contract = Contract::of(Name::Hello, None);
            contract.exchanges[0].content = Content::exactly(body);
            contract
        };
        let note = |own: &[u8], other: &[u8]| difference(&contract(own), ("b", &contract(other)));
        assert_eq!(note(b"a", b"a"), None);
        let said = "its response differs from the response of b only in white space";
        assert_eq!(note(b"{\"id\": 1}\n", b"{\"id\":1}").as_deref(), Some(said));
        let said = note(b"\x1f\x8b\x08\x00", b"page").unwrap();
        assert!(
            said.starts_with("its response is 4 bytes of gzip, but b responds with "),
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
            "a number in its response varies (\"7\") and may grow, so only status and framing are \
             checked"
        );
    }

    #[test]
    fn a_varying_length_is_reported() {
        let (content, note) = inferred(&["a", "abc"]);
        assert_eq!(content, Content::Any);
        assert!(note.starts_with("its response varies in length (1 to 3 bytes)"));
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
            "its response is \"Hi\", but go/net-http responds with \"Hello, World!\": the two \
             servers do not do the same work"
        );
        assert_eq!(told(Content::exactly(b"Hello, World!")), None);
        assert_eq!(told(Content::Any), None);
        let varies = std::iter::once(0..5).collect();
        assert_eq!(told(Content::Bytes { bytes: b"12345, World!".to_vec(), varies }), None);
    }
}
