//! Tests of servers that misbehave. Failures are counted by kind and phase. The counts are exact if
//! the server is deterministic. No server causes a crash, a hang or a wrong figure.

use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::plan::{PlanFor, counted, counts, until};
use hotlap_load::plan::{ExpectedBody, Reuse, Stop};
use hotlap_load::{Failure, Phase, Plan, Session, run};
use hotlap_testbed::{HELLO, TestServer};

/// Returns the counts of ten requests over one connection to a server that sends these bytes for
/// each request.
fn ten_times(bytes: &'static [u8]) -> (u64, Vec<(Failure, Phase, u64)>) {
    let server = TestServer::responding(bytes);
    counted(&server.plan(1, 10))
}

/// Returns the counts of ten requests to a server that sends these bytes for a request and then
/// closes the connection.
fn ten_times_and_close(bytes: &'static [u8]) -> (u64, Vec<(Failure, Phase, u64)>) {
    let server = TestServer::closing(bytes);
    counted(&server.plan(1, 10))
}

fn ten_failures(failure: Failure, phase: Phase) -> (u64, Vec<(Failure, Phase, u64)>) {
    (0, vec![(failure, phase, 10)])
}

#[test]
fn malformed_responses_are_bad_framing() {
    for bytes in [
        &b"HTTP/1.1 200 OK\nContent-Length: 13\n\nHello, World!"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nContent-Length: 14\r\n\r\nHello, World!",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nHello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello, World!\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n",
        // This body is longer than its Content-Length.
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello, World!",
    ] {
        assert_eq!(
            ten_times(bytes),
            ten_failures(Failure::BadFraming, Phase::Body),
            "{}",
            bytes.escape_ascii()
        );
    }
}

#[test]
fn a_mebibyte_of_headers_is_bad_framing() {
    let server = TestServer::start(|mut client| {
        client.request();
        client.send(b"HTTP/1.1 200 OK\r\n");
        let line = format!("X-Padding: {}\r\n", "x".repeat(1_000));
        for _ in 0..1_024 {
            client.send(line.as_bytes());
        }
        client.drain();
    });
    let outcome = run(&server.plan(1, 5)).expect("a load");
    assert_eq!(counts(&outcome), (0, vec![(Failure::BadFraming, Phase::Body, 5)]));
    let wrong = outcome.first_wrong.expect("evidence");
    assert!(wrong.first_bytes.starts_with(b"HTTP/1.1 200 OK\r\nX-Padding: xxx"));
    assert_eq!(wrong.first_bytes.len(), 512);
}

#[test]
fn correct_responses_in_unusual_forms_are_correct() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nHello\r\n8;x=\"y\"\r\n, \
           World!\r\n0;last\r\nX-Trailer: a\r\n\r\n"[..],
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 \
          OK\r\nContent-Length: 13\r\n\r\nHello, World!",
        b"HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nContent-Length: 13\r\n\r\nHello, World!",
    ] {
        assert_eq!(ten_times(bytes), (10, vec![]), "{}", bytes.escape_ascii());
    }
    // The end of the connection delimits the first response (gcannon takes its length to be 0). The
    // second response announces that the connection ends.
    let until_close = b"HTTP/1.1 200 OK\r\n\r\nHello, World!";
    assert_eq!(ten_times_and_close(until_close), (10, vec![]));
    let announced =
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\nHello, World!";
    assert_eq!(ten_times_and_close(announced), (10, vec![]));
}

#[test]
fn wrong_bodies_and_wrong_statuses_are_counted_separately() {
    let body = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, Wurld!";
    assert_eq!(ten_times(body), ten_failures(Failure::WrongBody, Phase::Body));
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello, World";
    assert_eq!(ten_times(short), ten_failures(Failure::WrongBody, Phase::Body));
    let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(ten_times(empty), ten_failures(Failure::WrongBody, Phase::Body));
    let status = b"HTTP/1.1 500 Oh\r\nContent-Length: 13\r\n\r\nHello, World!";
    assert_eq!(ten_times(status), ten_failures(Failure::WrongStatus, Phase::Body));
}

/// gcannon does not count a connection that the server closes within a response.
#[test]
fn a_connection_closed_within_a_response_is_counted_by_phase() {
    let body = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello";
    assert_eq!(ten_times_and_close(body), ten_failures(Failure::ClosedEarly, Phase::Body));
    assert_eq!(ten_times_and_close(b"HTTP/1.1 2"), ten_failures(Failure::ClosedEarly, Phase::Body));
    assert_eq!(ten_times_and_close(b""), ten_failures(Failure::ClosedEarly, Phase::FirstByte));
}

#[test]
fn resets_are_counted_by_phase() {
    let server = TestServer::start(|mut client| {
        client.request();
        client.reset();
    });
    let outcome = run(&server.plan(1, 10)).expect("a load");
    assert_eq!(counts(&outcome), ten_failures(Failure::Reset, Phase::FirstByte));
    assert!(outcome.connections.reopened >= 9);
}

/// Regression: connections reopened during the warm-up counted too. By Little's law, a server that
/// closes its connections then had more requests in the system than there were.
#[test]
fn reopened_connections_count_within_the_window() {
    let server = TestServer::closing(HELLO);
    let mut plan = server.plan(2, 1);
    plan.warmup = Duration::from_millis(200);
    plan.stop = Stop::After(Duration::from_secs(3_600));
    let session = Session::start(&plan).expect("a load");
    let opens = session.wait_for_window().expect("a window").opens;
    until("the window is open", || Instant::now() >= opens);
    let before = session.progress().responses;
    until("there are responses in it", || session.progress().responses >= before + 20);
    session.stop();
    let outcome = session.join().expect("an outcome");
    let (responses, reopened) = (outcome.responses, outcome.connections.reopened);
    assert!(responses > 0 && reopened <= responses + 2, "{reopened} for {responses} responses");
}

/// Regression: no latency included the time to connect, although a user waits for the connection.
#[test]
fn a_request_to_a_server_that_closes_each_connection_includes_connecting() {
    let server = TestServer::closing(
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\nHello, World!",
    );
    let outcome = run(&server.plan(1, 200)).expect("a load");
    assert_eq!((outcome.responses, outcome.failures.total()), (200, 0));
    // With one connection, a request is always under way.
    let waited_ns = outcome.service_time.mean() * outcome.service_time.len() as f64;
    assert!(waited_ns > 0.8 * outcome.window_ns as f64, "{waited_ns} of {}", outcome.window_ns);
}

/// Regression: if a server sent faster than its bytes were parsed, the load never stopped reading.
/// The load did not end, and its other connections were not served.
#[test]
fn an_endless_response_neither_holds_the_load_nor_other_connections() {
    let tiny_chunks = b"1\r\nx\r\n".repeat(10_000);
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000);
    for (head, endless) in [
        (&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..], tiny_chunks),
        (b"", interim),
    ] {
        let number = AtomicUsize::new(0);
        let server = TestServer::start(move |mut client| {
            if number.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                while client.request().is_some() && client.send(HELLO) {}
            } else if client.request().is_some() && client.send(head) {
                while client.send(&endless) {}
            }
        });
        let mut plan = server.plan(2, 1);
        plan.stop = Stop::After(Duration::from_millis(400));
        plan.requests[0].expect.body = ExpectedBody::Any;
        let began = Instant::now();
        run(&plan).expect("a load");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        plan.stop = Stop::After(Duration::from_secs(3_600));
        let session = Session::start(&plan).expect("a load");
        until("the other connection has responses", || session.progress().responses > 2);
    }
}

/// Regression: the requests after the response neither got a response nor failed, and the load did
/// not end.
#[test]
fn requests_after_a_response_that_ends_with_the_connection_fail() {
    let server = TestServer::start(|mut client| {
        client.request();
        client.send(b"HTTP/1.1 200 OK\r\n\r\nHello, World!");
        let _ = client.stream.shutdown(Shutdown::Write);
        client.drain();
    });
    let mut plan = server.plan(1, 8);
    plan.shape.pipeline = 4;
    assert_eq!(counted(&plan), (2, vec![(Failure::ClosedEarly, Phase::FirstByte, 6)]));
}

#[test]
fn half_a_response_and_a_reset_is_a_failure() {
    let server = TestServer::start(|mut client| {
        client.request();
        client.send(&HELLO[..20]);
        // The client reads these bytes before the reset.
        std::thread::sleep(Duration::from_millis(50));
        client.reset();
    });
    let (responses, failures) = counted(&server.plan(1, 5));
    assert_eq!(responses, 0);
    assert!(failures.iter().all(|(failure, ..)| *failure == Failure::Reset), "{failures:?}");
    assert_eq!(failures.iter().map(|f| f.2).sum::<u64>(), 5);
}

#[test]
fn bytes_without_a_request_are_bad_framing() {
    // The server sends its response before it reads the request.
    let server = TestServer::start(|mut client| {
        client.send(HELLO);
        client.drain();
    });
    let mut plan = server.plan(1, 5);
    plan.timeout = Duration::from_millis(300);
    let (responses, failures) = counted(&plan);
    // The early bytes belong to no request, unless the request was quicker. After them the
    // connection is silent, so the next request on it times out.
    let all: u64 = failures.iter().map(|f| f.2).sum();
    assert_eq!(responses + all, 5, "{failures:?}");
    let known = |f: &Failure| matches!(f, Failure::BadFraming | Failure::Timeout);
    assert!(failures.iter().all(|(failure, ..)| known(failure)), "{failures:?}");
}

#[test]
fn a_flood_of_responses_is_bad_framing() {
    let server = TestServer::start(|mut client| {
        client.request();
        let flood = HELLO.repeat(1_000);
        while client.send(&flood) {}
    });
    let (responses, failures) = counted(&server.plan(1, 10));
    // How many bytes a read returns is up to the kernel, but some read must reveal the flood.
    let all: u64 = failures.iter().map(|f| f.2).sum();
    assert_eq!(responses + all, 10);
    assert!(failures.iter().all(|(failure, ..)| *failure == Failure::BadFraming), "{failures:?}");
    assert!(all > 0);
}

/// wrk counts a timeout only when a late response arrives, so a server that never responds has no
/// timeouts.
#[test]
fn a_request_that_is_never_answered_times_out() {
    let server = TestServer::silent();
    let mut plan = server.plan(3, 3);
    plan.timeout = Duration::from_secs(1);
    assert_eq!(counted(&plan), (0, vec![(Failure::Timeout, Phase::FirstByte, 3)]));
}

#[test]
fn one_byte_a_second_times_out_in_the_body() {
    let server = TestServer::start(|mut client| {
        client.request();
        for byte in HELLO {
            if !client.send(&[*byte]) {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let mut plan = server.plan(2, 2);
    plan.timeout = Duration::from_secs(3);
    let (responses, failures) = counted(&plan);
    assert_eq!((responses, failures), (0, vec![(Failure::Timeout, Phase::Body, 2)]));
}

#[test]
fn a_stall_in_a_pipeline_fails_all_requests_behind_it() {
    let server = TestServer::start(|mut client| {
        client.request();
        client.send(HELLO);
        client.drain();
    });
    let mut plan = server.plan(1, 4);
    plan.shape.pipeline = 4;
    plan.timeout = Duration::from_secs(2);
    assert_eq!(counted(&plan), (1, vec![(Failure::Timeout, Phase::FirstByte, 3)]));
}

#[test]
fn a_response_on_a_half_closed_connection_is_correct() {
    let server = TestServer::start(|mut client| {
        client.request();
        client.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\n");
        client.send(b"Hello, World!");
        client.stream.shutdown(std::net::Shutdown::Write).expect("a socket");
        client.drain();
    });
    assert_eq!(counted(&server.plan(2, 20)), (20, vec![]));
}

/// wrk loses a connection permanently when connecting fails once (wrk#509).
#[test]
fn every_tenth_connection_is_refused_and_reopened() {
    let server = TestServer::start(|mut client| {
        if client.number % 10 == 9 {
            return client.reset();
        }
        client.request();
        client.send(HELLO);
    });
    let mut plan = server.plan(1, 100);
    plan.shape.reuse = Reuse::Close;
    let outcome = run(&plan).expect("a load");
    let (responses, failures) = counts(&outcome);
    let failed: u64 = failures.iter().map(|f| f.2).sum();
    assert_eq!((responses, failed), (90, 10), "{failures:?}");
    assert!(failures.iter().all(|(failure, ..)| *failure == Failure::Reset), "{failures:?}");
}

#[test]
fn a_server_that_has_died_is_retried_with_pauses() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        drop(listener);
        std::io::Read::read(&mut stream, &mut [0; 4096]).expect("a request");
    });
    let server = TestServer::start(|_| {});
    let mut plan = server.plan(1, 5);
    plan.target.endpoint = hotlap_load::plan::Endpoint::Tcp(address);
    let begun = std::time::Instant::now();
    let (responses, failures) = counted(&plan);
    // There are four refusals, with pauses of 1, 2 and 4 ms between them.
    assert!(begun.elapsed() >= Duration::from_millis(7));
    assert_eq!(responses, 0);
    let refused = (Failure::Refused, Phase::Connect, 4);
    assert!(failures.contains(&refused), "{failures:?}");
    assert_eq!(failures.iter().map(|f| f.2).sum::<u64>(), 5);
}

/// h2load silently drops requests in flight at the end (nghttp2#1523).
#[test]
fn requests_in_flight_at_the_end_are_reported() {
    let ended_in_time = || {
        let server = TestServer::start(|mut client| {
            client.request();
            client.drain();
        });
        let mut plan: Plan = server.plan(5, 1);
        plan.stop = Stop::After(Duration::from_secs(3_600));
        plan.warmup = Duration::ZERO;
        plan.timeout = Duration::from_secs(3);
        let began = Instant::now();
        let session = Session::start(&plan).expect("a load");
        until("all are sent", || server.requests() == 5);
        std::thread::sleep(plan.timeout * 2 / 3);
        session.stop();
        let outcome = session.join().expect("an outcome");
        if began.elapsed() >= plan.timeout {
            return false;
        }
        assert_eq!(outcome.responses + outcome.failures.total(), 0);
        assert_eq!((outcome.in_flight, outcome.stalled), (5, 5));
        true
    };
    // An attempt proves nothing if the machine stalled for a second, so there are up to ten
    // attempts.
    assert!((0..10).any(|_| ended_in_time()));
}

#[test]
fn a_large_body_is_checked_to_its_last_byte() {
    let body: Vec<u8> = (0..1_000_003u32).map(|i| (i % 251) as u8).collect();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut response = [head.as_bytes(), &body].concat();
    let server = {
        let response = response.clone();
        TestServer::responding(response)
    };
    for one_in in [1, 4] {
        let mut plan = server.plan(2, 20);
        plan.check_one_in = one_in;
        plan.requests[0].expect.body =
            ExpectedBody::Bytes { bytes: body.clone().into(), varies: vec![] };
        let outcome = run(&plan).expect("a load");
        assert_eq!(counts(&outcome), (20, vec![]));
        assert_eq!(outcome.bytes.received, 20 * response.len() as u64);
        assert_eq!(outcome.bytes.responses, outcome.bytes.received);
    }
    *response.last_mut().expect("bytes") ^= 1;
    let server = TestServer::responding(response);
    let mut plan = server.plan(2, 8);
    plan.requests[0].expect.body = ExpectedBody::Bytes { bytes: body.into(), varies: vec![] };
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (0, vec![(Failure::WrongBody, Phase::Body, 8)]));
    let wrong = outcome.first_wrong.expect("evidence");
    assert_eq!(wrong.why, "the body first differs at byte 1000002");
    assert!(wrong.first_bytes.starts_with(b"HTTP/1.1 200 OK"));
}

#[test]
fn a_large_request_that_does_not_fit_into_the_socket_is_sent_whole() {
    let server = TestServer::start(|mut client| {
        while let Some(request) = client.request() {
            let is_whole = request.ends_with(b"the end");
            client.send(if is_whole { HELLO } else { b"HTTP/1.1 400 No\r\n\r\n" });
        }
    });
    let mut plan = server.plan(2, 6);
    let mut body = vec![b'x'; 3_000_000];
    body.extend_from_slice(b"the end");
    plan.requests[0] = hotlap_load::plan::Request::build("POST", "/", "test", &[], &body)
        .expecting(b"Hello, World!");
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (6, vec![]));
    assert_eq!(outcome.bytes.sent, 6 * plan.requests[0].bytes().len() as u64);
    assert_eq!(server.requests(), 6);
}
