//! Bad servers: what they do is counted by kind and phase, exactly where they are deterministic;
//! never a crash, a hang or a wrong figure.

#[path = "support/rude_server.rs"]
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
mod rude_server;

use std::sync::atomic::Ordering;
use std::time::Duration;

use hotlap_load::plan::{Body, Reuse, Stop};
use hotlap_load::{Failure, Phase, Plan, run};
use rude_server::{Guest, HELLO, Server, told};

/// Ten requests over one connection against servers that answer each with these bytes.
fn answered_with(bytes: &'static [u8]) -> (u64, Vec<(Failure, Phase, u64)>) {
    let server = Server::start(move |mut guest| guest.answer_all(bytes));
    told(&run(&server.plan(1, 10)).expect("a load"))
}

/// The same, but the connection ends after each answer.
fn answered_once_with(bytes: &'static [u8]) -> (u64, Vec<(Failure, Phase, u64)>) {
    let server = Server::start(move |mut guest| {
        guest.request();
        guest.send(bytes);
    });
    told(&run(&server.plan(1, 10)).expect("a load"))
}

fn ten(failure: Failure, phase: Phase) -> (u64, Vec<(Failure, Phase, u64)>) {
    (0, vec![(failure, phase, 10)])
}

#[test]
fn an_answer_split_at_every_byte_is_right() {
    let server = Server::start(|mut guest: Guest| {
        while guest.request().is_some() {
            for byte in HELLO {
                guest.send(&[*byte]);
                std::thread::yield_now();
            }
        }
    });
    let outcome = run(&server.plan(2, 20)).expect("a load");
    assert_eq!(told(&outcome), (20, vec![]));
}

#[test]
fn broken_framing_is_counted_as_such() {
    for bytes in [
        &b"HTTP/1.1 200 OK\nContent-Length: 13\n\nHello, World!"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nContent-Length: 14\r\n\r\nHello, World!",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nHello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello, World!\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n",
        // Longer than its length says: what follows is no answer to anything.
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello, World!",
    ] {
        assert_eq!(
            answered_with(bytes),
            ten(Failure::BadFraming, Phase::Body),
            "{}",
            bytes.escape_ascii()
        );
    }
}

#[test]
fn a_mebibyte_of_headers_is_given_up() {
    let server = Server::start(|mut guest| {
        guest.request();
        guest.send(b"HTTP/1.1 200 OK\r\n");
        let line = format!("X-Padding: {}\r\n", "x".repeat(1_000));
        for _ in 0..1_024 {
            guest.send(line.as_bytes());
        }
        guest.drain();
    });
    let outcome = run(&server.plan(1, 5)).expect("a load");
    assert_eq!(told(&outcome), (0, vec![(Failure::BadFraming, Phase::Body, 5)]));
    let wrong = outcome.first_wrong.expect("evidence");
    assert!(wrong.head.starts_with(b"HTTP/1.1 200 OK\r\nX-Padding: xxx"));
    assert_eq!(wrong.head.len(), 512);
}

#[test]
fn right_answers_in_unusual_forms_are_right() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nHello\r\n8;x=\"y\"\r\n, \
           World!\r\n0;last\r\nX-Trailer: a\r\n\r\n"[..],
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 \
          OK\r\nContent-Length: 13\r\n\r\nHello, World!",
        b"HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nContent-Length: 13\r\n\r\nHello, World!",
    ] {
        assert_eq!(answered_with(bytes), (10, vec![]), "{}", bytes.escape_ascii());
    }
    // Told by the end of the connection (gcannon takes it for a length of 0), or announced.
    let until_close = b"HTTP/1.1 200 OK\r\n\r\nHello, World!";
    assert_eq!(answered_once_with(until_close), (10, vec![]));
    let announced =
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\nHello, World!";
    assert_eq!(answered_once_with(announced), (10, vec![]));
}

#[test]
fn wrong_answers_are_told_from_wrong_statuses() {
    let body = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, Wurld!";
    assert_eq!(answered_with(body), ten(Failure::WrongAnswer, Phase::Body));
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello, World";
    assert_eq!(answered_with(short), ten(Failure::WrongAnswer, Phase::Body));
    let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(answered_with(empty), ten(Failure::WrongAnswer, Phase::Body));
    let status = b"HTTP/1.1 500 Oh\r\nContent-Length: 13\r\n\r\nHello, World!";
    assert_eq!(answered_with(status), ten(Failure::WrongStatus, Phase::Body));
}

/// gcannon counts neither: the server's end within an answer is nothing to it.
#[test]
fn an_end_within_an_answer_is_told_by_its_phase() {
    let body = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello";
    assert_eq!(answered_once_with(body), ten(Failure::ClosedEarly, Phase::Body));
    assert_eq!(answered_once_with(b"HTTP/1.1 2"), ten(Failure::ClosedEarly, Phase::Body));
    assert_eq!(answered_once_with(b""), ten(Failure::ClosedEarly, Phase::FirstByte));
}

#[test]
fn resets_are_told_by_their_phase() {
    let server = Server::start(|mut guest| {
        guest.request();
        guest.reset();
    });
    let outcome = run(&server.plan(1, 10)).expect("a load");
    assert_eq!(told(&outcome), ten(Failure::Reset, Phase::FirstByte));
    assert!(outcome.connections.reopened >= 9);
}

/// Those of the ramp counted too, so that by Little's law a server that ends its connections had
/// more to do than there was.
#[test]
fn connections_that_are_opened_again_count_within_the_window() {
    let server = Server::start(|mut guest| {
        guest.request();
        guest.send(HELLO);
    });
    let mut plan = server.plan(2, 1);
    plan.ramp = Duration::from_millis(200);
    plan.stop = Stop::After(Duration::from_millis(50));
    let outcome = run(&plan).expect("a load");
    let (answers, again) = (outcome.answers, outcome.connections.reopened);
    assert!(answers > 0 && again <= answers + 2, "{again} times for {answers} answers");
}

#[test]
fn half_an_answer_then_a_reset_is_no_answer() {
    let server = Server::start(|mut guest| {
        guest.request();
        guest.send(&HELLO[..20]);
        // The other side reads that before it is reset; otherwise the phase is another one.
        std::thread::sleep(Duration::from_millis(50));
        guest.reset();
    });
    let (answers, failures) = told(&run(&server.plan(1, 5)).expect("a load"));
    assert_eq!(answers, 0);
    assert!(failures.iter().all(|(failure, ..)| *failure == Failure::Reset), "{failures:?}");
    assert_eq!(failures.iter().map(|f| f.2).sum::<u64>(), 5);
}

#[test]
fn bytes_that_nobody_asked_for_are_bad_framing() {
    // The answer comes before the request, and once more behind it.
    let server = Server::start(|mut guest| {
        guest.send(HELLO);
        guest.drain();
    });
    let mut plan = server.plan(1, 5);
    plan.timeout = Duration::from_millis(300);
    let (answers, failures) = told(&run(&plan).expect("a load"));
    // Before anything is asked, or, if the request was quicker, as its answer: then the connection
    // goes silent, and the next request on it times out.
    let all: u64 = failures.iter().map(|f| f.2).sum();
    assert_eq!(answers + all, 5, "{failures:?}");
    let known = |f: &Failure| matches!(f, Failure::BadFraming | Failure::Timeout);
    assert!(failures.iter().all(|(failure, ..)| known(failure)), "{failures:?}");
}

#[test]
fn a_flood_of_answers_is_bad_framing() {
    let server = Server::start(|mut guest| {
        guest.request();
        let flood = HELLO.repeat(1_000);
        while guest.send(&flood) {}
    });
    let (answers, failures) = told(&run(&server.plan(1, 10)).expect("a load"));
    // How much of the flood a read brings is the kernel's choice; that no flood passes is not.
    let all: u64 = failures.iter().map(|f| f.2).sum();
    assert_eq!(answers + all, 10);
    assert!(failures.iter().all(|(failure, ..)| *failure == Failure::BadFraming), "{failures:?}");
    assert!(all > 0);
}

/// wrk counts a timeout only when a late answer arrives: a server that never answers has none.
#[test]
fn a_request_that_is_never_answered_is_a_timeout() {
    let server = Server::start(|mut guest| guest.drain());
    let mut plan = server.plan(3, 3);
    plan.timeout = Duration::from_millis(100);
    assert_eq!(
        told(&run(&plan).expect("a load")),
        (0, vec![(Failure::Timeout, Phase::FirstByte, 3)])
    );
}

#[test]
fn one_byte_a_second_is_a_timeout_of_its_body() {
    let server = Server::start(|mut guest| {
        guest.request();
        for byte in HELLO {
            if !guest.send(&[*byte]) {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let mut plan = server.plan(2, 2);
    plan.timeout = Duration::from_millis(700);
    let (answers, failures) = told(&run(&plan).expect("a load"));
    assert_eq!((answers, failures), (0, vec![(Failure::Timeout, Phase::Body, 2)]));
}

#[test]
fn a_stall_in_a_pipeline_fails_all_that_wait_behind_it() {
    let server = Server::start(|mut guest| {
        guest.request();
        guest.send(HELLO);
        guest.drain();
    });
    let mut plan = server.plan(1, 4);
    plan.pipeline = 4;
    plan.timeout = Duration::from_millis(100);
    assert_eq!(
        told(&run(&plan).expect("a load")),
        (1, vec![(Failure::Timeout, Phase::FirstByte, 3)])
    );
}

#[test]
fn a_half_closed_connection_that_answers_still_is_an_answer() {
    let server = Server::start(|mut guest| {
        guest.request();
        guest.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\n");
        guest.send(b"Hello, World!");
        guest.stream.shutdown(std::net::Shutdown::Write).expect("a socket");
        guest.drain();
    });
    assert_eq!(told(&run(&server.plan(2, 20)).expect("a load")), (20, vec![]));
}

/// wrk loses a connection for good when connecting fails once (wrk#509).
#[test]
fn every_tenth_connection_is_refused_and_opened_again() {
    let server = Server::start(|mut guest| {
        if guest.number % 10 == 9 {
            return guest.reset();
        }
        guest.request();
        guest.send(HELLO);
    });
    let mut plan = server.plan(1, 100);
    plan.reuse = Reuse::Close;
    let outcome = run(&plan).expect("a load");
    let (answers, failures) = told(&outcome);
    let failed: u64 = failures.iter().map(|f| f.2).sum();
    assert_eq!((answers, failed), (90, 10), "{failures:?}");
    assert!(failures.iter().all(|(failure, ..)| *failure == Failure::Reset), "{failures:?}");
}

#[test]
fn a_server_that_dies_is_refused_and_not_hammered() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a guest");
        drop(listener);
        std::io::Read::read(&mut stream, &mut [0; 4096]).expect("a request");
    });
    let server = Server::start(|_| {});
    let mut plan = server.plan(1, 5);
    plan.target.endpoint = hotlap_load::plan::Endpoint::Tcp(address);
    let begun = std::time::Instant::now();
    let (answers, failures) = told(&run(&plan).expect("a load"));
    // Four refusals with pauses of 1, 2 and 4 ms between them.
    assert!(begun.elapsed() >= Duration::from_millis(7));
    assert_eq!(answers, 0);
    let refused = (Failure::Refused, Phase::Connect, 4);
    assert!(failures.contains(&refused), "{failures:?}");
    assert_eq!(failures.iter().map(|f| f.2).sum::<u64>(), 5);
}

/// h2load drops requests in flight at the end without a word (nghttp2#1523).
#[test]
fn requests_in_flight_at_the_end_are_told() {
    let server = Server::start(|mut guest| guest.drain());
    let mut plan: Plan = server.plan(5, 1);
    plan.stop = Stop::After(Duration::from_millis(200));
    plan.ramp = Duration::ZERO;
    plan.timeout = Duration::from_millis(300);
    let outcome = run(&plan).expect("a load");
    assert_eq!(outcome.answers + outcome.failures.total(), 0);
    assert_eq!((outcome.in_flight, outcome.unanswered), (5, 5));
}

#[test]
fn a_large_body_is_checked_to_its_last_byte() {
    let body: Vec<u8> = (0..1_000_003u32).map(|i| (i % 251) as u8).collect();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut right = [head.as_bytes(), &body].concat();
    let server = {
        let right = right.clone();
        Server::start(move |mut guest| guest.answer_all(&right))
    };
    for one_in in [1, 4] {
        let mut plan = server.plan(2, 20);
        plan.check_one_in = one_in;
        plan.requests[0].expect.body = Body::Bytes { bytes: body.clone(), varies: vec![] };
        let outcome = run(&plan).expect("a load");
        assert_eq!(told(&outcome), (20, vec![]));
        assert_eq!(outcome.bytes.received, 20 * right.len() as u64);
        assert_eq!(outcome.bytes.answered, outcome.bytes.received);
    }
    *right.last_mut().expect("bytes") ^= 1;
    let server = Server::start(move |mut guest| guest.answer_all(&right));
    let mut plan = server.plan(2, 8);
    plan.requests[0].expect.body = Body::Bytes { bytes: body, varies: vec![] };
    let outcome = run(&plan).expect("a load");
    assert_eq!(told(&outcome), (0, vec![(Failure::WrongAnswer, Phase::Body, 8)]));
    let wrong = outcome.first_wrong.expect("evidence");
    assert_eq!(wrong.why, "the body differs from byte 1000002 on");
    assert!(wrong.head.starts_with(b"HTTP/1.1 200 OK"));
}

#[test]
fn a_large_request_that_does_not_fit_into_the_socket_is_sent_whole() {
    let server = Server::start(|mut guest| {
        while let Some(request) = guest.request() {
            let is_whole = request.ends_with(b"the end");
            guest.send(if is_whole { HELLO } else { b"HTTP/1.1 400 No\r\n\r\n" });
        }
    });
    let mut plan = server.plan(2, 6);
    let mut body = vec![b'x'; 3_000_000];
    body.extend_from_slice(b"the end");
    plan.requests[0] = hotlap_load::plan::Request::build("POST", "/", "test", &[], &body)
        .expecting(b"Hello, World!");
    let outcome = run(&plan).expect("a load");
    assert_eq!(told(&outcome), (6, vec![]));
    assert_eq!(outcome.bytes.sent, 6 * plan.requests[0].bytes.len() as u64);
    assert_eq!(server.requests.load(Ordering::SeqCst), 6);
}
