//! Feeds arbitrary bytes to one connection as responses, with or without pipelining. The connection
//! learns templates from these responses.
//!
//! It must make no difference where the bytes are cut. Every response that is counted as correct
//! must also be correct according to the parser.

#![no_main]

use hotlap_load::Plan;
use hotlap_load::http::read_response;
use hotlap_load::plan::{Endpoint, ExpectedBody, Request, Target};
use hotlap_load::testing::replay;
use libfuzzer_sys::fuzz_target;

const BODY: &[u8] = b"Hello";

fuzz_target!(|input: &[u8]| {
    let [shape, size, bytes @ ..] = input else { return };
    let target = Target::plain(Endpoint::Tcp(([127, 0, 0, 1], 1).into()));
    let mut request = Request::get("/", "fuzz").expecting(BODY);
    if shape & 1 == 1 {
        request.method = "HEAD".to_owned();
    }
    if let (ExpectedBody::Bytes { varies, .. }, true) = (&mut request.expect.body, shape & 2 == 2) {
        varies.push(1..3);
    }
    let mut plan = Plan::new(target, request);
    plan.shape.pipeline = 1 + usize::from(shape >> 2 & 3);
    let whole = replay(&plan, &[bytes], true);
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(*size).max(1)).collect();
    assert_eq!(replay(&plan, &pieces, true), whole);
    let mut rest = bytes;
    for (status, _, is_correct) in whole.responses {
        let is_head = plan.requests[0].is_head();
        let response = read_response(rest, is_head, true).expect("valid").expect("complete");
        assert_eq!(response.status, status);
        if is_correct && !is_head {
            assert!((200..300).contains(&status));
            assert!(response.body.len() == BODY.len());
            let is_same = |at: usize| response.body[at] == BODY[at];
            let may_vary = |at: usize| shape & 2 == 2 && (1..3).contains(&at);
            assert!((0..BODY.len()).all(|at| is_same(at) || may_vary(at)));
        }
        rest = &rest[response.consumed..];
    }
});
