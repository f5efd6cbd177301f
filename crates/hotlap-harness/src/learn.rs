//! What a stranger answers: the first answer of a command or a URL is what the next are held
//! against.
//!
//! A few probes show which parts of it vary (a clock, a counter, an id). Those are left out of the
//! comparison under load, and told, so that nobody takes half a check for a whole one.

use std::ops::Range;
use std::time::Duration;

use hotlap_load::http::Answer;
use hotlap_load::plan::{Status, Target};

use crate::contract::{Content, Contract, Exchange, described, quoted};
use crate::verify::LIMIT;
use crate::verify::wire::Wire;

/// How long before each further probe, in milliseconds; the last is over a second after the first,
/// so that a clock in whole seconds is seen to move.
const PAUSES_MS: [u64; 5] = [0, 5, 20, 100, 1_050];

/// A number of so many digits that varies does not grow by one while it is watched: Unix time in
/// seconds has ten until the year 2286. A shorter one is a counter, and may.
const DIGITS_THAT_STAY: usize = 10;

/// A contract, learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// The same exchanges, now with the answers that are right.
    pub contract: Contract,
    /// What should be told.
    pub notes: Vec<String>,
}

/// Asks each of a contract's exchanges a few times and fills in what it leaves open.
///
/// # Errors
/// When there is no answer, or not one that can be taken for right.
pub fn learn(target: &Target, host: &str, contract: &Contract) -> Result<Learned, String> {
    let mut learned = Learned { contract: contract.clone(), notes: Vec::new() };
    for exchange in &mut learned.contract.exchanges {
        let answers = probe(target, host, exchange)?;
        let first = &answers[0];
        if !(200..300).contains(&first.status) && exchange.status == Status::Success {
            return Err(format!(
                "{} is answered {}: name the right path with --path, or this status with \
                 --expect-status {}",
                exchange.name,
                described(first),
                first.status
            ));
        }
        let told = matches!(exchange.status, Status::Exactly(_));
        if !told {
            exchange.status = Status::Exactly(first.status);
        }
        if let Some(other) = answers.iter().find(|a| Status::Exactly(a.status) != exchange.status) {
            return Err(format!(
                "{} is answered {} and then {}",
                exchange.name,
                described(first),
                described(other)
            ));
        }
        if exchange.content == Content::Any {
            let bodies: Vec<&[u8]> = answers.iter().map(|answer| answer.body.as_slice()).collect();
            let (content, note) = content(&bodies);
            exchange.content = content;
            learned.notes.extend(note.map(|note| format!("{}: {note}", exchange.name)));
        }
    }
    Ok(learned)
}

/// Answers to the same question, the first two on one connection where it is kept.
fn probe(target: &Target, host: &str, exchange: &Exchange) -> Result<Vec<Answer>, String> {
    let bytes = exchange.bytes(host);
    let mut answers = Vec::new();
    let mut wire = Wire::open(target, LIMIT)?;
    wire.send(&bytes)?;
    let first =
        wire.answer(exchange.is_head()).map_err(|why| format!("{}: {why}", exchange.name))?;
    let mut kept = first.keep_alive.then_some(wire);
    answers.push(first);
    for pause in PAUSES_MS {
        std::thread::sleep(Duration::from_millis(pause));
        let again = kept.take().and_then(|mut wire| {
            wire.send(&bytes).ok()?;
            wire.answer(exchange.is_head()).ok()
        });
        let answer = match again {
            Some(answer) => answer,
            None => {
                let mut wire = Wire::open(target, LIMIT)?;
                wire.send(&bytes)?;
                wire.answer(exchange.is_head())
                    .map_err(|why| format!("{}: {why}", exchange.name))?
            }
        };
        answers.push(answer);
    }
    Ok(answers)
}

/// What all of these are, and what should be told about it.
fn content(bodies: &[&[u8]]) -> (Content, Option<String>) {
    let lengths = || bodies.iter().map(|body| body.len());
    let (least, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
    if least != most {
        let note = format!(
            "the length of its answer varies ({least} to {most} bytes), so only status and framing \
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
            "a number in its answer varies ({}) and may grow, so only status and framing are \
             checked",
            part(counter)
        );
        return (Content::Any, Some(note));
    }
    let parts: Vec<String> = varies.iter().take(3).map(part).collect();
    let more = if varies.len() > 3 { ", …" } else { "" };
    let note =
        format!("parts of its answer vary ({}{more}) and are not compared", parts.join(", "));
    (Content::Bytes { bytes: first.to_vec(), varies }, Some(note))
}

/// The ranges in which bodies of one length differ, each grown to the whole number, time or word
/// that it is a part of: of a clock only the last digits move while it is watched.
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

/// Says when another server of the run gives a different answer to the first exchange: their
/// figures then compare different work. What varies in either is not compared.
#[must_use]
pub fn difference(own: &Contract, (name, other): (&str, &Contract)) -> Option<String> {
    let body = |contract: &Contract| match contract.exchanges.first().map(|e| e.content.clone()) {
        Some(Content::Bytes { bytes, varies }) => Some((bytes, varies)),
        _ => None,
    };
    let ((own, own_varies), (other, other_varies)) = (body(own)?, body(other)?);
    let fixed = |at: &usize| !own_varies.iter().chain(&other_varies).any(|r| r.contains(at));
    let same =
        own.len() == other.len() && (0..own.len()).filter(fixed).all(|at| own[at] == other[at]);
    (!same).then(|| {
        format!(
            "it answers {}, and {name} answers {}: they do not do the same work",
            quoted(&own),
            quoted(&other)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Ask, Name};

    fn learned(bodies: &[&str]) -> (Content, String) {
        let bodies: Vec<&[u8]> = bodies.iter().map(|body| body.as_bytes()).collect();
        let (content, note) = content(&bodies);
        (content, note.unwrap_or_default())
    }

    fn masked(bodies: &[&str]) -> Vec<String> {
        let Content::Bytes { bytes, varies } = learned(bodies).0 else { return Vec::new() };
        let text = String::from_utf8(bytes).unwrap();
        varies.into_iter().map(|range| text[range].to_owned()).collect()
    }

    #[test]
    fn what_never_varies_is_compared_byte_for_byte() {
        assert_eq!(learned(&["ab", "ab"]), (Content::exactly(b"ab"), String::new()));
    }

    #[test]
    fn a_clock_is_masked_whole_though_only_its_last_digits_move() {
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
    fn an_id_is_masked_whole() {
        assert_eq!(masked(&["id 3f2a-99-x1 ok", "id 7bc0-99-y2 ok"]), ["3f2a-99-x1"]);
    }

    #[test]
    fn a_counter_that_may_grow_leaves_only_status_and_framing() {
        let (content, note) = learned(&["visit 7", "visit 8"]);
        assert_eq!(content, Content::Any);
        assert_eq!(
            note,
            "a number in its answer varies (\"7\") and may grow, so only status and framing are \
             checked"
        );
    }

    #[test]
    fn a_length_that_varies_is_told() {
        let (content, note) = learned(&["a", "abc"]);
        assert_eq!(content, Content::Any);
        assert!(note.starts_with("the length of its answer varies (1 to 3 bytes)"));
    }

    #[test]
    fn servers_that_answer_otherwise_are_told() {
        let hello = Contract::of(Name::Hello, None);
        let stranger = |content: Content| {
            let mut contract = Contract::stranger(&Ask::default());
            contract.exchanges[0].content = content;
            contract
        };
        let told = |content| difference(&stranger(content), ("go/net-http", &hello));
        assert_eq!(
            told(Content::exactly(b"Hi")).unwrap(),
            "it answers \"Hi\", and go/net-http answers \"Hello, World!\": they do not do the same \
             work"
        );
        assert_eq!(told(Content::exactly(b"Hello, World!")), None);
        assert_eq!(told(Content::Any), None);
        let varies = std::iter::once(0..5).collect();
        assert_eq!(told(Content::Bytes { bytes: b"12345, World!".to_vec(), varies }), None);
    }
}
