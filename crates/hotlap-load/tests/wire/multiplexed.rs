//! Tests of loads over HTTP/2. Responses and failures must be counted correctly.

use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::plan::{PlanFor, counted, counts, until};
use hotlap_load::plan::{Field, Pace, Protocol, Request, Reuse, Stop, ValueSource};
use hotlap_load::{Failure, Outcome, Phase, Plan, Session, run};
use hotlap_testbed::TestServer;
use hotlap_testbed::http2::{END_HEADERS, END_STREAM, Http2Peer, frame, kind, response};

const BODY: &[u8] = b"Hello, World!";

/// Starts a server that calls `answer` for each request. The arguments are the number of the
/// request on its connection, its stream, and the connection. If `answer` returns false, the server
/// closes the connection.
fn server(answer: impl Fn(u32, u32, &mut Http2Peer) -> bool + Send + Sync + 'static) -> TestServer {
    TestServer::start(move |client| {
        let Some(mut client) = Http2Peer::begin(client, &[]) else { return };
        let mut number = 0;
        while let Some(stream) = client.request() {
            if !answer(number, stream, &mut client) {
                // Closing a connection with unread bytes would reset it.
                let _ = client.client().stream.shutdown(Shutdown::Write);
                return client.client().drain();
            }
            number += 1;
        }
    })
}

fn correct() -> TestServer {
    server(|_, stream, client| client.send(&response(stream, BODY)))
}

/// Returns a plan of `requests` requests over `connections` connections with `streams` streams
/// each.
fn plan(server: &TestServer, connections: usize, streams: usize, requests: u64) -> Plan {
    let mut plan = server.plan(connections, requests);
    plan.target.protocol = Protocol::Http2;
    plan.shape.pipeline = streams;
    plan
}

fn load(server: &TestServer, connections: usize, streams: usize, requests: u64) -> Outcome {
    run(&plan(server, connections, streams, requests)).expect("a load")
}

#[test]
fn requests_are_counted_with_any_number_of_streams() {
    for streams in [1, 10, 100] {
        let server = correct();
        let outcome = load(&server, 3, streams, 2_000);
        assert_eq!(counts(&outcome), (2_000, vec![]));
        assert_eq!((server.requests(), server.accepted()), (2_000, 3));
        assert_eq!((outcome.in_flight, outcome.totals.sent), (0, 2_000));
        assert_eq!(outcome.service_time.len(), 2_000);
    }
}

#[test]
fn responses_may_come_in_any_order() {
    let server = server(|number, stream, client| {
        // The first of two requests gets its response after the second one.
        number % 2 == 0
            || client.send(&[response(stream, BODY), response(stream - 2, BODY)].concat())
    });
    assert_eq!(counts(&load(&server, 1, 2, 1_000)), (1_000, vec![]));
}

#[test]
fn no_more_streams_are_opened_than_the_server_allows() {
    let server = TestServer::start(|client| {
        // The SETTINGS set MAX_CONCURRENT_STREAMS to 3.
        let Some(mut client) = Http2Peer::begin(client, &[0, 3, 0, 0, 0, 3]) else { return };
        let mut waiting = Vec::new();
        while let Some(stream) = client.request() {
            waiting.push(stream);
            if waiting.len() > 40 {
                return;
            }
            // The first request may have been sent before the SETTINGS arrived.
            if waiting.len() >= 3 {
                let all: Vec<u8> = waiting.drain(..).flat_map(|s| response(s, BODY)).collect();
                client.send(&all);
            }
        }
    });
    let mut plan = plan(&server, 1, 100, 900);
    plan.timeout = Duration::from_secs(5);
    assert_eq!(counted(&plan), (900, vec![]));
}

#[test]
fn wrong_responses_are_counted_and_kept() {
    let server = server(|number, stream, client| {
        let body: &[u8] = if number % 2 == 0 { BODY } else { b"Hello, Mars!!" };
        client.send(&response(stream, body))
    });
    let outcome = load(&server, 1, 10, 100);
    assert_eq!(counts(&outcome), (50, vec![(Failure::WrongBody, Phase::Body, 50)]));
    let wrong = outcome.first_wrong.expect("a wrong response");
    assert_eq!(wrong.why, "the body first differs at byte 7");
    assert_eq!(wrong.first_bytes, b"Hello, Mars!!");
    assert_eq!(wrong.method_and_path().as_deref(), Some("GET /"));
}

#[test]
fn streams_that_the_server_resets_are_counted_by_code() {
    let server = server(|number, stream, client| {
        let code = match number % 4 {
            0 => 8_u32,
            1 => 11,
            _ => return client.send(&response(stream, BODY)),
        };
        client.send(&frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes()))
    });
    let outcome = load(&server, 1, 4, 400);
    assert_eq!(counts(&outcome), (200, vec![(Failure::StreamReset, Phase::FirstByte, 200)]));
    assert_eq!(outcome.stream_resets.into_iter().collect::<Vec<_>>(), [(8, 100), (11, 100)]);
    assert_eq!(outcome.connections.reopened, 0);
    let why = outcome.first_wrong.expect("evidence").why;
    assert_eq!(why, "the server reset the stream: CANCEL");
}

/// Regression: refused streams counted as failures, though RFC 9113 section 8.7 allows sending
/// their requests again.
#[test]
fn refused_streams_are_sent_again() {
    let server = server(|number, stream, client| match number % 4 {
        3 => client.send(&frame(kind::RST_STREAM, 0, stream, &7_u32.to_be_bytes())),
        _ => client.send(&response(stream, BODY)),
    });
    let outcome = load(&server, 1, 4, 400);
    assert_eq!(counts(&outcome), (400, vec![]));
    // If the server refuses every request, all requests fail.
    let server = server_that_refuses();
    let outcome = load(&server, 1, 4, 40);
    assert_eq!(counts(&outcome), (0, vec![(Failure::StreamReset, Phase::FirstByte, 40)]));
}

/// Starts a server that refuses every request.
fn server_that_refuses() -> TestServer {
    server(|_, stream, client| {
        client.send(&frame(kind::RST_STREAM, 0, stream, &7_u32.to_be_bytes()))
    })
}

/// Regression: the code and the text of a GOAWAY were lost, and the failure was "closed early".
#[test]
fn the_reason_of_a_goaway_is_kept() {
    let server = server(|number, stream, client| {
        if number % 10 != 9 {
            return client.send(&response(stream, BODY));
        }
        let mut payload = stream.to_be_bytes().to_vec();
        payload.extend(11_u32.to_be_bytes());
        payload.extend(b"too many\0requests");
        client.send(&frame(kind::GOAWAY, 0, 0, &payload));
        false
    });
    let outcome = load(&server, 1, 1, 20);
    let reason = "ENHANCE_YOUR_CALM, \"too manyrequests\"".to_owned();
    assert_eq!(outcome.goaways.into_iter().collect::<Vec<_>>(), [(reason, 2)]);
    assert_eq!(
        outcome.first_wrong.expect("evidence").why,
        "the server ended the connection (GOAWAY ENHANCE_YOUR_CALM, \"too manyrequests\")"
    );
}

/// nginx ends a connection in this way after 1,000 requests.
#[test]
fn requests_that_were_not_processed_are_sent_again_on_another_connection() {
    let server = server(|number, stream, client| match number {
        ..50 => client.send(&response(stream, BODY)),
        50 => {
            // The GOAWAY names the last stream that was processed.
            let mut payload = (stream - 2).to_be_bytes().to_vec();
            payload.extend(0_u32.to_be_bytes());
            client.send(&frame(kind::GOAWAY, 0, 0, &payload))
        }
        _ => true,
    });
    let outcome = load(&server, 2, 10, 1_000);
    assert_eq!(counts(&outcome), (1_000, vec![]));
    assert!(outcome.connections.reopened >= 18, "{:?}", outcome.connections);
    assert_eq!(outcome.totals.sent, 1_000);
}

/// Regression: the load panicked if more requests had to be sent again than a new connection may
/// open. A new connection has only one stream until the server has stated its limit.
#[test]
fn more_requests_are_sent_again_than_a_new_connection_may_open_at_once() {
    let server = TestServer::start(|client| {
        // The SETTINGS set MAX_CONCURRENT_STREAMS to 300.
        let is_first = client.number == 0;
        let Some(mut client) = Http2Peer::begin(client, &[0, 3, 0, 0, 1, 44]) else { return };
        let mut number = 0;
        while let Some(stream) = client.request() {
            let goes_away = is_first && number == 350;
            let answers = !is_first || number < 100;
            number += 1;
            if answers {
                client.send(&response(stream, BODY));
            } else if goes_away {
                // The GOAWAY says that the hundredth stream was the last one processed.
                client.send(&frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 199, 0, 0, 0, 0]));
            }
        }
    });
    let outcome = load(&server, 1, 300, 1_000);
    assert_eq!(counts(&outcome), (1_000, vec![]));
    assert_eq!(outcome.totals.sent, 1_000);
}

/// Regression: requests that had no stream were subtracted from the number of requests sent.
#[test]
fn requests_without_a_stream_do_not_count_as_sent() {
    let server = TestServer::start(|client| {
        let number = client.number;
        // The SETTINGS of the second connection set MAX_CONCURRENT_STREAMS to 2.
        let settings: &[u8] = if number == 1 { &[0, 3, 0, 0, 0, 2] } else { &[] };
        let Some(mut client) = Http2Peer::begin(client, settings) else { return };
        let mut requests = 0;
        while let Some(stream) = client.request() {
            requests += 1;
            match (number, requests) {
                // Ten requests have to be sent again. The GOAWAY names the tenth stream.
                (0, 20) => client.send(&frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 19, 0, 0, 0, 0])),
                (0, 11..) | (1, 1) => true,
                // Of the nine other requests, eight have no stream.
                (1, _) => {
                    let goaway = frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
                    client.send(&[response(1, BODY), goaway].concat())
                }
                _ => client.send(&response(stream, BODY)),
            };
        }
    });
    let outcome = load(&server, 1, 10, 40);
    assert_eq!(counts(&outcome), (40, vec![]));
    assert_eq!(outcome.totals.sent, 40);
}

#[test]
fn a_server_that_processes_nothing_fails_each_request() {
    let server = server(|_, _, client| client.send(&frame(kind::GOAWAY, 0, 0, &[0; 8])));
    let outcome = load(&server, 1, 5, 20);
    assert_eq!(counts(&outcome), (0, vec![(Failure::ClosedEarly, Phase::FirstByte, 20)]));
}

#[test]
fn requests_that_are_unanswered_when_the_connection_closes_fail() {
    let server = server(|number, stream, client| match number {
        0 => client.send(&frame(kind::HEADERS, END_HEADERS, stream, &[0x88])),
        4 => false,
        _ => true,
    });
    let (responses, failures) = counts(&load(&server, 1, 5, 10));
    // On each of two connections, one response had begun and four had not.
    let expected =
        [(Failure::ClosedEarly, Phase::FirstByte, 8), (Failure::ClosedEarly, Phase::Body, 2)];
    assert_eq!((responses, failures), (0, expected.into()));
}

#[test]
fn a_violation_of_the_protocol_fails_the_connection() {
    // The server sends DATA on a stream that was never opened (RFC 9113 section 5.1).
    let server = server(|_, _, client| client.send(&frame(kind::DATA, END_STREAM, 99, b"x")));
    let outcome = load(&server, 1, 2, 4);
    assert_eq!(counts(&outcome), (0, vec![(Failure::BadFraming, Phase::FirstByte, 4)]));
}

#[test]
fn a_malformed_response_fails_its_request_alone() {
    let server = server(|number, stream, client| match number % 2 {
        // This response has no status (RFC 9113 section 8.3.2). Index 24 is `cache-control` without
        // a value.
        0 => client.send(&frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &[0x98])),
        _ => client.send(&response(stream, BODY)),
    });
    let outcome = load(&server, 1, 2, 100);
    assert_eq!(counts(&outcome), (50, vec![(Failure::BadFraming, Phase::FirstByte, 50)]));
    assert_eq!(server.accepted(), 1);
}

#[test]
fn a_request_that_times_out_is_given_up_alone() {
    let server =
        server(|number, stream, client| number == 0 || client.send(&response(stream, BODY)));
    let mut plan = plan(&server, 1, 2, 2_000_000);
    plan.timeout = Duration::from_millis(200);
    plan.stop = Stop::After(Duration::from_millis(600));
    plan.warmup = Duration::ZERO;
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome).1, [(Failure::Timeout, Phase::FirstByte, 1)]);
    assert!(outcome.responses > 100 && server.accepted() == 1);
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let server = server(|_, _, _| true);
    // The SETTINGS frame is the only sign of life from this server.
    let mut plan = plan(&server, 1, 3, 9);
    plan.timeout = Duration::from_millis(100);
    assert_eq!(counted(&plan), (0, vec![(Failure::Timeout, Phase::FirstByte, 9)]));
    assert!(server.accepted() >= 2);
}

/// Regression: the connection was kept, but no further stream could be opened on it.
#[test]
fn a_timeout_after_a_goaway_ends_the_connection() {
    let server = server(|number, stream, client| match number {
        0 => client.send(&response(stream, BODY)),
        _ => {
            let payload = [&stream.to_be_bytes()[..], &[0; 4]].concat();
            client.send(&frame(kind::GOAWAY, 0, 0, &payload))
        }
    });
    let mut plan = plan(&server, 1, 1, 3);
    plan.timeout = Duration::from_millis(300);
    assert_eq!(counted(&plan), (2, vec![(Failure::Timeout, Phase::FirstByte, 1)]));
    assert_eq!(server.accepted(), 2);
}

/// SETTINGS that set MAX_CONCURRENT_STREAMS to 0.
const NO_STREAMS: [u8; 6] = [0, 3, 0, 0, 0, 0];

/// Regression: the connection was kept, but no stream could be opened on it.
#[test]
fn a_server_that_allows_no_more_streams_is_given_up() {
    let server = server(|_, stream, client| {
        let settings = frame(kind::SETTINGS, 0, 0, &NO_STREAMS);
        client.send(&[settings, response(stream, BODY)].concat())
    });
    let mut plan = plan(&server, 1, 1, 3);
    plan.timeout = Duration::from_millis(300);
    assert_eq!(counted(&plan), (2, vec![(Failure::Timeout, Phase::Send, 1)]));
    assert_eq!(server.accepted(), 2);
}

/// Regression: only requests with a stream timed out, so this request waited forever.
#[test]
fn a_request_that_waits_for_a_stream_times_out() {
    let server = server(|number, stream, client| {
        if number == 0 {
            return client.send(&response(stream, BODY));
        }
        // The refused request has to wait for a new stream. The frames show that the server is
        // alive.
        let settings = frame(kind::SETTINGS, 0, 0, &NO_STREAMS);
        let refusal = frame(kind::RST_STREAM, 0, stream, &7_u32.to_be_bytes());
        client.send(&[settings, refusal].concat())
    });
    let mut plan = plan(&server, 1, 1, 2);
    plan.timeout = Duration::from_millis(300);
    assert_eq!(counted(&plan), (1, vec![(Failure::Timeout, Phase::Send, 1)]));
    assert_eq!(server.accepted(), 1);
}

#[test]
fn a_server_of_http_1_fails_without_a_hang() {
    let server = TestServer::responding(hotlap_testbed::HELLO);
    let outcome = load(&server, 1, 2, 4);
    assert_eq!(counts(&outcome), (0, vec![(Failure::BadFraming, Phase::FirstByte, 4)]));
}

#[test]
fn each_request_may_have_a_connection_of_its_own() {
    let server = correct();
    let mut plan = plan(&server, 4, 1, 100);
    plan.shape.reuse = Reuse::Close;
    assert_eq!(counted(&plan), (100, vec![]));
    assert_eq!(server.accepted(), 100);
}

/// Regression: if a request failed but its connection stayed open, the next request reused the
/// connection.
#[test]
fn each_request_has_a_connection_of_its_own_after_failures_too() {
    let count = AtomicUsize::new(0);
    let server = server(move |_, stream, client| match count.fetch_add(1, Ordering::SeqCst) % 3 {
        0 => client.send(&frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 2])),
        // The frames show that the server is alive, so only the request times out.
        1 => client.send(&frame(kind::PING, 0, 0, b"12345678")),
        _ => client.send(&response(stream, BODY)),
    });
    let mut plan = plan(&server, 1, 1, 9);
    (plan.shape.reuse, plan.timeout) = (Reuse::Close, Duration::from_millis(300));
    let failures =
        vec![(Failure::Timeout, Phase::FirstByte, 3), (Failure::StreamReset, Phase::FirstByte, 3)];
    assert_eq!(counted(&plan), (3, failures));
    assert_eq!(server.accepted(), 9);
}

/// Regression: the client connected again without a pause, thousands of times per second.
#[test]
fn the_client_connects_with_pauses_to_a_server_that_ends_idle_connections() {
    let goaway = frame(kind::GOAWAY, 0, 0, &[0; 8]);
    let unrequested = frame(kind::DATA, END_STREAM, 99, b"x");
    for last_frame in [Vec::new(), goaway, unrequested] {
        let server = TestServer::start(move |client| {
            let Some(mut client) = Http2Peer::begin(client, &[]) else { return };
            client.send(&last_frame);
            let _ = client.client().stream.shutdown(Shutdown::Write);
            client.client().drain();
        });
        // The first request is due after half a minute.
        let mut plan = plan(&server, 1, 1, 1);
        (plan.pace, plan.warmup) = (Pace::Constant { rate: 1.0 / 60.0 }, Duration::ZERO);
        plan.stop = Stop::After(Duration::from_millis(500));
        run(&plan).expect("a load");
        // The pauses double from 1 ms to 128 ms.
        assert!(server.accepted() <= 20, "{}", server.accepted());
    }
}

#[test]
fn an_open_loop_uses_the_streams() {
    // The server responds to ten requests once all ten have arrived. With one stream, there would
    // be no response.
    let server = server(|number, stream, client| {
        let all = (0..10).rev().map(|n| stream - 2 * n);
        number % 10 != 9 || client.send(&all.flat_map(|s| response(s, BODY)).collect::<Vec<_>>())
    });
    let mut plan = plan(&server, 1, 20, 500);
    plan.pace = Pace::Constant { rate: 5_000.0 };
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (500, vec![]));
    assert_eq!(outcome.response_time.len(), 500);
}

#[test]
fn bodies_are_sent_as_flow_control_allows() {
    let body = vec![b'x'; 200_000];
    let server = TestServer::start(|client| {
        let Some(mut client) = Http2Peer::begin(client, &[]) else { return };
        let Some(stream) = client.request() else { return };
        let mut received = 0;
        // Until the body is complete, both windows are refilled after each DATA frame.
        while received < 200_000 {
            let Some((kind, _, payload)) = client.other() else { return };
            if kind == kind::DATA {
                received += payload.len();
                let more = (payload.len() as u32).to_be_bytes();
                client.send(&frame(kind::WINDOW_UPDATE, 0, 0, &more));
                client.send(&frame(kind::WINDOW_UPDATE, 0, stream, &more));
            }
        }
        client.send(&response(stream, BODY));
    });
    let mut plan = plan(&server, 1, 1, 1);
    plan.requests = vec![Request::build("POST", "/", "h", &[], &body).expecting(BODY)];
    assert_eq!(counted(&plan), (1, vec![]));
}

#[test]
fn fields_vary_from_request_to_request() {
    let server = correct();
    let mut plan = plan(&server, 1, 4, 100);
    plan.fields = vec![Field::new("id", ValueSource::Counter { from: 0 })];
    let request = Request::with_fields("GET", "/${id}", "h", &[], b"", &plan.fields).unwrap();
    plan.requests = vec![request.expecting(BODY)];
    assert_eq!(counted(&plan), (100, vec![]));
}

#[test]
fn a_held_load_is_paused_with_all_streams_idle() {
    let server = correct();
    let mut plan = plan(&server, 2, 10, 1);
    plan.stop = Stop::After(Duration::from_secs(1));
    let session = Session::start_held(&plan).expect("a load");
    assert!(session.wait_for_window().is_some());
    for _ in 0..3 {
        let window = session.open_window(Duration::ZERO, Duration::from_millis(20));
        until("the window closes", || window.closes <= Some(std::time::Instant::now()));
        assert!(session.pause(Duration::from_secs(60)));
    }
    let outcome = session.collect().expect("an outcome");
    assert!(outcome.responses > 0 && outcome.failures.total() == 0);
    assert_eq!(outcome.in_flight, 0);
}
