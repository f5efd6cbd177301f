//! Tests of loads on correct servers. A load must follow its plan and count correctly.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

use crate::plan::{PlanFor, counted, counts, until};
use hotlap_load::plan::{
    Endpoint, ExpectedBody, ExpectedResponse, ExpectedStatus, LoadPart, Pace, Request, Reuse, Stop,
};
use hotlap_load::{Error, Failure, Outcome, Plan, Session, run};
use hotlap_testbed::{HELLO, TestServer, unused_address};

fn correct() -> TestServer {
    TestServer::responding(HELLO)
}

#[test]
fn a_number_of_requests_is_sent_and_counted() {
    let server = correct();
    let outcome = run(&server.plan(4, 1_000)).expect("a load");
    assert_eq!(counts(&outcome), (1_000, vec![]));
    assert_eq!(server.requests(), 1_000);
    assert_eq!(outcome.service_time.len(), 1_000);
    assert_eq!(outcome.statuses.into_iter().collect::<Vec<_>>(), [(200, 1_000)]);
    assert_eq!(outcome.bytes.responses, 1_000 * HELLO.len() as u64);
    assert_eq!(outcome.bytes.received, outcome.bytes.responses);
    assert_eq!(outcome.in_flight, 0);
    assert_eq!(outcome.series.iter().map(|t| t.responses).sum::<u64>(), 1_000);
}

/// Regression: each lap of a thawed Java server began a second late. The server accepted
/// connections late, so its accept queue of 50 was full. The system retries only after a second.
#[test]
fn a_connection_that_finds_the_accept_queue_full_is_retried() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let loopback: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    socket.bind(&loopback.into()).unwrap();
    socket.listen(1).unwrap();
    let listener = TcpListener::from(socket);
    let mut plan = correct().plan(12, 12);
    plan.target.endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
    std::thread::spawn(move || {
        // The sleep is long enough for sixty retries.
        std::thread::sleep(Duration::from_millis(1_500));
        listener.incoming().collect::<Vec<_>>()
    });
    let session = Session::start(&plan).expect("a load");
    assert!(session.wait_for_window().is_some());
    session.stop();
    let outcome = session.join().expect("an outcome");
    assert_eq!(outcome.connections.established, 12);
    assert_eq!(outcome.failures.total(), 0);
    assert!(outcome.connections.opened > 12, "{}", outcome.connections.opened);
}

/// Regression: after a timeout, further attempts to connect failed immediately. The connect time of
/// the successful attempt included all earlier attempts.
#[test]
fn connect_time_is_that_of_the_last_attempt() {
    const TIMEOUT: Duration = Duration::from_millis(300);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    socket.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    // The queue holds one connection, so the second connection finds it full.
    socket.listen(0).unwrap();
    let (accept, accepts) = mpsc::channel();
    std::thread::spawn(move || {
        accepts.recv().expect("a test");
        TestServer::on(socket, |mut client| client.respond(HELLO))
    });
    let mut plan = correct().plan(2, 1);
    plan.target.endpoint = Endpoint::Unix(path);
    plan.timeout = TIMEOUT;
    plan.warmup = Duration::ZERO;
    plan.shape.reuse = Reuse::Close;
    plan.stop = Stop::After(Duration::from_secs(3_600));
    let began = Instant::now();
    let session = Session::start(&plan).expect("a load");
    until("both have failed several times", || session.progress().failures >= 8);
    let failed = session.progress().failures;
    // Each attempt lasts at least as long as the timeout, which limits the number of failures.
    let most = began.elapsed().as_nanos() / TIMEOUT.as_nanos();
    accept.send(()).expect("a server");
    until("one is answered", || session.progress().responses > 0);
    session.stop();
    let outcome = session.join().expect("an outcome");
    let before = TIMEOUT * u32::try_from(u128::from(failed).saturating_sub(most)).unwrap();
    let longest = Duration::from_nanos(outcome.connect_time.max());
    let limit = began.elapsed() - before;
    assert!(longest <= limit, "it took {longest:?} after failing for {before:?}: over {limit:?}");
    let most = 2 * (outcome.window_ns / TIMEOUT.as_nanos() as u64 + 1);
    let timeouts = outcome.failures.of(Failure::Timeout);
    assert!(timeouts <= most, "{timeouts} timeouts, more than {most}");
}

/// wrk divides connections by threads and drops the remainder (wrk#157).
#[test]
fn the_remainder_of_connections_is_not_lost() {
    let server = correct();
    let mut plan = server.plan(7, 100);
    plan.shape.threads = 3;
    let outcome = run(&plan).expect("a load");
    assert_eq!(outcome.connections.requested, 7);
    assert_eq!(outcome.connections.established, 7);
    assert_eq!(server.accepted(), 7);
    assert_eq!(outcome.responses, 100);
    assert_eq!(outcome.threads.len(), 3);
}

#[test]
fn a_window_opens_after_the_warmup_and_closes_in_time() {
    let server = correct();
    let mut plan = server.plan(2, 1);
    plan.stop = Stop::After(Duration::from_secs(1));
    plan.warmup = Duration::from_millis(50);
    let began = Instant::now();
    let session = Session::start(&plan).expect("a load");
    let window = session.wait_for_window().expect("a window");
    let closes = window.closes.expect("a duration");
    assert!(window.opens >= began + plan.warmup);
    assert_eq!(closes - window.opens, Duration::from_secs(1));
    let outcome = session.join().expect("an outcome");
    let joined = Instant::now();
    assert!(joined >= closes);
    assert!(u128::from(outcome.window_ns) <= (joined - window.opens).as_nanos());
    assert!(outcome.responses > 0);
    assert_eq!(outcome.failures.total(), 0);
    let sent: u64 = outcome.threads.iter().map(|thread| thread.sent).sum();
    assert!(outcome.totals.sent > sent, "requests of the warm-up are not counted");
    assert!(server.requests() as u64 >= outcome.totals.responses);
    assert!(outcome.in_flight <= 2);
}

#[test]
fn a_session_that_is_stopped_keeps_what_it_measured() {
    let server = correct();
    let mut plan = server.plan(2, 1);
    plan.stop = Stop::After(Duration::from_secs(3600));
    plan.warmup = Duration::ZERO;
    let session = Session::start(&plan).expect("a load");
    session.wait_for_window().expect("a window");
    while session.progress().responses < 10 {
        std::thread::yield_now();
    }
    session.stop();
    let outcome = session.join().expect("an outcome");
    assert!(outcome.responses >= 10);
    assert_eq!(outcome.failures.total(), 0);
}

#[test]
fn a_connection_for_each_request_is_opened_and_closed() {
    let server = TestServer::start(|mut client| {
        let request = client.request().unwrap_or_default();
        if String::from_utf8_lossy(&request).contains("Connection: close") {
            client.send(HELLO);
        }
    });
    let mut plan = server.plan(3, 50);
    plan.shape.reuse = Reuse::Close;
    assert_eq!(counted(&plan), (50, vec![]));
    // Each of the three slots may open one connection more than it needs.
    let accepted = server.accepted();
    assert!((50..=53).contains(&accepted), "{accepted}");
}

#[test]
fn pipelined_responses_are_each_counted_and_timed() {
    let server = correct();
    let mut plan = server.plan(2, 1_000);
    plan.shape.pipeline = 8;
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (1_000, vec![]));
    assert_eq!(outcome.service_time.len(), 1_000);
    assert_eq!(server.requests(), 1_000);
}

/// wrk times only the last response of a batch, so the first of two responses seems to have taken
/// as long as the second.
#[test]
fn a_pipelined_response_is_timed_when_it_arrives() {
    let (go_on, goes_on) = mpsc::channel();
    let goes_on = Mutex::new(goes_on);
    let server = TestServer::start(move |mut client| {
        while client.request().is_some() && client.request().is_some() {
            client.send(HELLO);
            let _ = goes_on.lock().expect("sound").recv();
            client.send(HELLO);
        }
    });
    let mut plan = server.plan(1, 2);
    plan.shape.pipeline = 2;
    let session = Session::start(&plan).expect("a load");
    until("the first one is timed", || session.progress().responses == 1);
    std::thread::sleep(Duration::from_millis(100));
    go_on.send(()).expect("a server");
    let outcome = session.join().expect("an outcome");
    assert_eq!(counts(&outcome), (2, vec![]));
    // The histogram keeps only three significant digits.
    let (first, second) = (outcome.service_time.min(), outcome.service_time.max());
    assert!(second as f64 >= first as f64 + 0.9e8, "{first} and {second} ns");
}

#[test]
fn an_open_loop_sends_the_requests_that_are_due_and_no_more() {
    let server = correct();
    let paces = [Pace::Constant { rate: 2_000.0 }, Pace::Poisson { rate: 2_000.0, seed: 1 }];
    for (pace, awake) in paces.into_iter().flat_map(|pace| [(pace.clone(), false), (pace, true)]) {
        let mut plan = server.plan(8, 200);
        plan.pace = pace.clone();
        plan.shape.threads = 2;
        (plan.busy_poll, plan.cpus) = (awake, if awake { vec![0, 0] } else { vec![] });
        assert_eq!(plan.may_busy_poll(), awake);
        let began = Instant::now();
        let outcome = run(&plan).expect("a load");
        let took = began.elapsed();
        assert_eq!(counts(&outcome), (200, vec![]));
        assert_eq!(outcome.response_time.len(), 200);
        // The last request is due after a tenth of a second.
        assert!(took > Duration::from_millis(50), "{pace:?}: {took:?}");
    }
}

#[test]
fn failed_connections_are_reported_with_the_reason() {
    let server = correct();
    let mut plan = server.plan(2, 20);
    // The second address is reserved for documentation, so this machine does not have it (RFC
    // 5737).
    plan.sources = vec![[127, 0, 0, 1].into(), [192, 0, 2, 1].into()];
    let outcome = run(&plan).expect("a load");
    assert_eq!((outcome.connections.requested, outcome.connections.established), (2, 1));
    let why = outcome.first_connect_error.expect("a reason");
    assert!(why.starts_with("cannot use the address 192.0.2.1 ("), "{why}");
}

#[test]
fn a_server_that_refuses_all_connections_is_an_error() {
    let mut plan = correct().plan(2, 10);
    let address = unused_address();
    plan.target.endpoint = hotlap_load::plan::Endpoint::Tcp(address);
    let error = run(&plan).expect_err("a refusal");
    assert!(matches!(error, Error::Unreachable { .. }));
    assert_eq!(
        error.to_string(),
        format!("cannot connect to http://{address}: Connection refused (os error 111)")
    );
}

#[test]
fn a_unix_socket_and_ipv6_work_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let _unix = TestServer::on(listener, |mut client| client.respond(HELLO));
    let mut plan = correct().plan(4, 200);
    plan.target.endpoint = hotlap_load::plan::Endpoint::Unix(path);
    assert_eq!(counted(&plan), (200, vec![]));
    let six = TestServer::on(TcpListener::bind("[::1]:0").expect("a port"), |mut client| {
        client.respond(HELLO)
    });
    assert_eq!(counted(&six.plan(4, 200)), (200, vec![]));
}

#[test]
fn connections_are_spread_over_the_source_addresses() {
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = peers.clone();
    let server = TestServer::start(move |mut client| {
        let peer = client.stream.peer_addr().expect("a peer").as_socket().expect("TCP").ip();
        seen.lock().expect("not poisoned").push(peer);
        client.respond(HELLO);
    });
    let mut plan = server.plan(6, 60);
    plan.shape.threads = 2;
    // On some systems, loopback has only one address.
    plan.sources = vec![[127, 0, 0, 1].into(), [127, 0, 0, 2].into(), [127, 0, 0, 3].into()];
    if !cfg!(target_os = "linux") {
        plan.sources.truncate(1);
    }
    assert_eq!(counted(&plan), (60, vec![]));
    for source in &plan.sources {
        let count = peers.lock().expect("not poisoned").iter().filter(|p| *p == source).count();
        assert_eq!(count, 6 / plan.sources.len());
    }
}

#[test]
fn requests_are_sent_in_proportion_to_their_weights() {
    let server = TestServer::start(|mut client| {
        while let Some(request) = client.request() {
            let is_a = request.starts_with(b"GET /a ");
            client.send(if is_a {
                HELLO
            } else {
                b"HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n"
            });
        }
    });
    let mut plan = server.plan(3, 400);
    let one = Request { weight: 3, ..Request::get("/a", "test").expecting(b"Hello, World!") };
    let mut other = Request::build("POST", "/b", "test", &[], b"{}");
    other.expect =
        ExpectedResponse { status: ExpectedStatus::Exactly(201), body: ExpectedBody::Length(0) };
    plan.requests = vec![one, other];
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (400, vec![]));
    assert_eq!(outcome.statuses.into_iter().collect::<Vec<_>>(), [(200, 300), (201, 100)]);
}

#[test]
fn the_response_to_a_head_has_no_body() {
    let server = TestServer::start(|mut client| client.respond(&HELLO[..HELLO.len() - 13]));
    let mut plan = server.plan(2, 40);
    plan.requests[0] = Request::build("HEAD", "/", "test", &[], b"").expecting(b"Hello, World!");
    assert_eq!(counted(&plan), (40, vec![]));
    // The header states the length that the body of a GET would have, and this length is checked.
    plan.requests[0] = Request::build("HEAD", "/", "test", &[], b"").expecting(b"Hello");
    assert_eq!(run(&plan).expect("a load").failures.of(Failure::WrongBody), 40);
}

/// While a server hangs, a closed loop waits once per connection (coordinated omission, wrk#438).
/// In an open loop, every request that becomes due during the hang waits.
#[test]
fn a_hang_delays_every_request_that_is_due() {
    let has_hung = AtomicBool::new(false);
    let server = TestServer::start(move |mut client| {
        let mut count = 0;
        while client.request().is_some() {
            count += 1;
            if count == 20 && !has_hung.swap(true, Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(400));
            }
            client.send(HELLO);
        }
    });
    let mut plan = server.plan(1, 300);
    plan.pace = Pace::Constant { rate: 500.0 };
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (300, vec![]));
    // 200 requests became due while one request waited. Half of the 200 waited for more than 200
    // ms.
    assert!(
        outcome.response_time.quantile(0.5) >= 50_000_000,
        "{}",
        outcome.response_time.quantile(0.5)
    );
    assert!(outcome.response_time.max() >= 390_000_000);
    assert!(outcome.service_time.max() >= 390_000_000);
    assert_eq!(outcome.due, 300);
}

#[test]
fn a_load_starts_at_the_given_time() {
    let server = correct();
    let mut plan = server.plan(1, 5);
    let at = SystemTime::now() + Duration::from_millis(300);
    plan.start_at = Some(at);
    run(&plan).expect("a load");
    assert!(SystemTime::now() >= at);
}

#[test]
fn a_load_that_waits_sends_nothing_until_it_begins() {
    let server = correct();
    let mut plan = server.plan(2, 20);
    plan.start_at = Some(SystemTime::now() + Duration::from_secs(3_600));
    let session = Session::start_waiting(&plan).expect("a load");
    while !session.is_ready() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(session.progress().connected, 2);
    assert_eq!(server.requests(), 0);
    let begun = session.begin(Instant::now() + Duration::from_millis(50)).expect("a window");
    assert!(begun.closes.is_none());
    assert_eq!(session.join().expect("an outcome").responses, 20);
    assert_eq!(server.requests(), 20);
}

#[test]
fn a_load_that_begins_too_late_has_a_shorter_window() {
    let server = correct();
    let mut plan = server.plan(1, 1);
    (plan.warmup, plan.stop) = (Duration::ZERO, Stop::After(Duration::from_secs(1)));
    let session = Session::start_waiting(&plan).expect("a load");
    while !session.is_ready() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let agreed = Instant::now() - Duration::from_millis(700);
    let window = session.begin(agreed).expect("a window");
    let closes = window.closes.expect("an end");
    assert!(closes.duration_since(window.opens) <= Duration::from_millis(300));
    session.join().expect("an outcome");
}

/// The parts of a load, run one after another, send as many requests as the whole load.
#[test]
fn parts_of_a_load_add_up_to_the_whole() {
    let server = correct();
    let mut plan = server.plan(2, 101);
    plan.shape.threads = 2;
    let mut responses = Vec::new();
    for index in 0..3 {
        plan.part = LoadPart { index, of: 3 };
        responses.push(run(&plan).expect("a load").responses);
    }
    // Of six workers, the first five send one request more than the last: 17, 17, 17, 17, 17, 16.
    assert_eq!(responses, [34, 34, 33]);
    assert_eq!(server.requests(), 101);
}

#[test]
fn a_plan_and_an_outcome_can_be_stored_and_read_back() {
    let server = correct();
    let plan = server.plan(2, 20);
    let outcome = run(&plan).expect("a load");
    let text = serde_json::to_string(&plan).expect("text");
    assert_eq!(serde_json::from_str::<Plan>(&text).expect("a plan"), plan);
    let text = serde_json::to_string(&outcome).expect("text");
    assert_eq!(serde_json::from_str::<Outcome>(&text).expect("an outcome"), outcome);
    let mut sum = outcome.clone();
    sum.merge(&outcome);
    assert_eq!((sum.responses, sum.service_time.len(), sum.threads.len()), (40, 40, 2));
    assert_eq!(sum.totals.sent, 40);
}
