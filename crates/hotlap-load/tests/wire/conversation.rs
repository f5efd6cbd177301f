//! Tests of the protocol on one connection, without a network.

use std::net::SocketAddr;

use hotlap_load::plan::{Endpoint, ExpectedBody, Request, Target};
use hotlap_load::testing::{Replayed, replay};
use hotlap_load::{Failure, Phase, Plan};
use proptest::prelude::*;

fn plan(expect: ExpectedBody) -> Plan {
    let address: SocketAddr = ([127, 0, 0, 1], 1).into();
    let target = Target::plain(Endpoint::Tcp(address));
    let mut request = Request::get("/", "test");
    request.expect.body = expect;
    Plan::new(target, request)
}

fn hello() -> ExpectedBody {
    ExpectedBody::Bytes { bytes: b"Hello, World!".to_vec().into(), varies: Vec::new() }
}

fn response(date: u32, id: &str, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nDate: {date:08}\r\nX-Id: {id}\r\n");
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn chunked(body: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes()
}

/// The fast path must agree with the parser, whatever it learned from earlier responses.
#[test]
fn a_wrong_response_after_a_hundred_correct_ones_is_found() {
    for wrong in [
        response(1, "a", "Jello, World!"),
        response(1, "a", "Hello, World"),
        b"HTTP/1.1 500 Oh\r\nDate: 00000001\r\nX-Id: a\r\nContent-Length: 13\r\n\r\nHello, World!"
            .to_vec(),
        chunked("Hello, Wurld!"),
    ] {
        let mut pieces: Vec<Vec<u8>> =
            (0..100).map(|n| response(n, "a", "Hello, World!")).collect();
        pieces.push(wrong);
        pieces.push(response(101, "a", "Hello, World!"));
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let found = replay(&plan(hello()), &pieces, true);
        let wrong: Vec<usize> =
            found.responses.iter().enumerate().filter(|(_, a)| !a.2).map(|(i, _)| i).collect();
        assert_eq!((found.responses.len(), wrong), (102, vec![100]));
    }
}

#[test]
fn a_truncated_response_is_distinguished_from_requests_in_flight() {
    let mut plan = plan(hello());
    plan.shape.pipeline = 3;
    let bytes = [response(1, "a", "Hello, World!"), chunked("Hello, World!")].concat();
    let found = replay(&plan, &[&bytes, &bytes[..40]], true);
    assert_eq!(found.responses.len(), 2);
    assert_eq!(found.broken, Some((Failure::ClosedEarly, Phase::Body)));
    assert_eq!(found.in_flight, 3);
}

#[test]
fn the_length_of_a_skipped_body_is_still_checked() {
    let mut plan = plan(ExpectedBody::Length(100_000));
    plan.check_one_in = 1_000_000;
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
    let body = vec![b'x'; 100_000];
    let found = replay(&plan, &[head, &body[..60_000], &body[60_000..], head], false);
    assert_eq!(found.responses, [(200, 100_043, true)]);
    plan.requests[0].expect.body = ExpectedBody::Length(99_999);
    let found = replay(&plan, &[head, &body], false);
    assert_eq!(found.responses, [(200, 100_043, false)]);
}

fn outcome(bytes: &[u8], cuts: &[usize], plan: &Plan) -> Replayed {
    let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
    replay(plan, &pieces, true)
}

proptest! {
    #[test]
    fn the_way_responses_are_split_makes_no_difference(
        parts in prop::collection::vec((0u32..3, "[a-c]", 0u8..5), 1..8),
        flip in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        pipeline in 1usize..4,
        one_in in 1u32..3,
    ) {
        let mut bytes: Vec<u8> = parts
            .iter()
            .flat_map(|(date, id, kind)| match kind {
                0 => chunked("Hello, World!"),
                1 => response(*date, id, "Hello, Wurld!"),
                2 => b"HTTP/1.1 204 None\r\n\r\n".to_vec(),
                _ => response(*date, id, "Hello, World!"),
            })
            .collect();
        if let Some((at, byte)) = flip {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut plan = plan(hello());
        plan.shape.pipeline = pipeline;
        plan.check_one_in = one_in;
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let whole = outcome(&bytes, &[0, bytes.len()], &plan);
        let mut pieces = outcome(&bytes, &cuts, &plan);
        if one_in > 1 {
            // Only the choice of the bodies that are checked depends on how the bytes are split.
            pieces.responses.iter_mut().zip(&whole.responses).for_each(|(p, w)| p.2 = w.2);
        }
        prop_assert_eq!(pieces, whole);
    }
}
