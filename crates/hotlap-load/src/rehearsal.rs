//! A conversation without a network: bytes handed to a connection as a worker would hand them, so
//! that tests and the fuzzer reach the state machine that is otherwise the engine's own.

use crate::Plan;
use crate::book::Book;
use crate::connection::{Connection, Flight, Step};
use crate::outcome::{Failure, Phase};

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rehearsed {
    /// Answers in order: status, bytes, and whether they were right.
    pub answers: Vec<(u16, u64, bool)>,
    /// How the conversation broke, if it did.
    pub broken: Option<(Failure, Phase)>,
    /// Requests in flight at its end.
    pub in_flight: usize,
}

/// Sends the plan's requests, as many at a time as it pipelines, and answers with these pieces,
/// then with the end of the connection if `closes`. A connection that was to be kept is kept.
#[must_use]
pub fn rehearse(plan: &Plan, pieces: &[&[u8]], closes: bool) -> Rehearsed {
    let mut book = Book::new(plan, 0);
    let mut talk = Connection::default();
    let mut heard = Rehearsed::default();
    let fill = |talk: &mut Connection, book: &mut Book| {
        while talk.in_flight() < plan.pipeline {
            talk.send(Flight { request: book.pick(), due_ns: 0, sent_ns: 0 });
        }
    };
    fill(&mut talk, &mut book);
    'pieces: for piece in pieces {
        let mut rest = *piece;
        if book.samples() {
            // What a worker would throw away unread.
            let count = talk.skippable().min(rest.len() as u64);
            talk.skip(count);
            rest = &rest[count as usize..];
        }
        loop {
            match talk.take(&mut rest, &mut book) {
                Step::More => break,
                Step::Answer(answer) => {
                    let is_right = answer.wrong.is_none();
                    heard.answers.push((answer.status, answer.bytes, is_right));
                    if !answer.keep_alive {
                        break 'pieces;
                    }
                    // Requests go out when all that came is read, as in a worker; but here, pieces
                    // are no moments, so that how bytes are cut makes no difference.
                    fill(&mut talk, &mut book);
                }
                Step::Broken(failure, phase, ..) => {
                    heard.broken = Some((failure, phase));
                    break 'pieces;
                }
            }
        }
    }
    if closes && heard.broken.is_none() {
        match talk.close(&mut book) {
            Ok(None) => {}
            Ok(Some(answer)) => {
                heard.answers.push((answer.status, answer.bytes, answer.wrong.is_none()));
            }
            Err(broken) => heard.broken = Some(broken),
        }
    }
    heard.in_flight = talk.in_flight();
    heard
}
