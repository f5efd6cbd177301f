//! Runs the protocol of one connection without a network, for tests and fuzzing. The engine's own
//! state machine receives the bytes, as from a worker.

use crate::connection::{Connection, Http2, InFlight, Step, limits};
use crate::outcome::{Failure, Phase};
use crate::plan::{Plan, Reuse};
use crate::requests::RequestMix;

/// The result of [`replay`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replayed {
    /// The responses in order: the status, the number of bytes, and whether the response was
    /// correct.
    pub responses: Vec<(u16, u64, bool)>,
    /// In HTTP/2, the failures of requests whose connection continued.
    pub failed: Vec<(Failure, Phase)>,
    /// Why the connection broke. `None` if it did not.
    pub broken: Option<(Failure, Phase)>,
    /// The number of requests in flight at the end.
    pub in_flight: usize,
}

/// Sends the plan's requests, as many at a time as the plan pipelines, and passes `pieces` to the
/// engine as the server's bytes. If `closes` is set, the server then closes the connection.
pub fn replay(plan: &Plan, pieces: &[&[u8]], closes: bool) -> Replayed {
    let mut mix = RequestMix::new(plan, 0);
    let mut conn = Connection::new(limits(plan, &mix));
    let mut found = Replayed::default();
    let closes_each = plan.shape.reuse == Reuse::Close;
    let fill = |conn: &mut Connection, mix: &mut RequestMix| {
        while conn.in_flight() < plan.shape.pipeline {
            conn.send(InFlight { turn: mix.next(), due_ns: 0, sent_ns: 0 });
        }
        conn.open_streams(mix);
    };
    fill(&mut conn, &mut mix);
    'pieces: for piece in pieces {
        let mut rest = *piece;
        if mix.skips_bodies() {
            // A worker would discard these bytes unread.
            let count = conn.skippable().min(rest.len() as u64);
            conn.skip(count);
            rest = &rest[count as usize..];
        }
        loop {
            match conn.take(&mut rest, &mut mix) {
                Step::NeedMore => break,
                Step::Completed(response) => {
                    let is_correct = response.wrong.is_none();
                    found.responses.push((response.status, response.bytes, is_correct));
                    if !response.keep_alive || closes_each {
                        break 'pieces;
                    }
                    // A worker sends the next requests once it has processed all that it read.
                    // Here, the requests are sent at once, so that the result does not depend on
                    // how the bytes are split.
                    fill(&mut conn, &mut mix);
                }
                Step::Failed(failed) => {
                    found.failed.push((failed.failure, failed.phase));
                    if closes_each {
                        break 'pieces;
                    }
                    fill(&mut conn, &mut mix);
                }
                Step::Refused => {}
                Step::Broken(broken) => {
                    found.broken = Some((broken.failure, broken.phase));
                    break 'pieces;
                }
            }
        }
        if conn.http2().is_some_and(Http2::is_drained) {
            // The server accepts no more requests.
            found.broken = Some((Failure::ClosedEarly, conn.phase()));
            break;
        }
    }
    if closes && found.broken.is_none() {
        match conn.close(&mut mix) {
            Ok(None) => {}
            Ok(Some(response)) => {
                let is_correct = response.wrong.is_none();
                found.responses.push((response.status, response.bytes, is_correct));
            }
            Err(broken) => found.broken = Some(broken),
        }
    }
    found.in_flight = conn.in_flight();
    found
}
