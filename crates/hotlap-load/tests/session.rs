//! Loads against polite servers: what was asked for happens, and is counted right.

#[path = "support/rude_server.rs"]
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
mod rude_server;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use hotlap_load::plan::{Body, Endpoint, Expect, Pace, Request, Reuse, Status, Stop};
use hotlap_load::{Error, Failure, Outcome, Plan, Session, run};
use rude_server::{HELLO, Server, told};

fn polite() -> Server {
    Server::start(|mut guest| guest.answer_all(HELLO))
}

#[test]
fn so_many_requests_are_sent_and_counted() {
    let server = polite();
    let outcome = run(&server.plan(4, 1_000)).expect("a load");
    assert_eq!(told(&outcome), (1_000, vec![]));
    assert_eq!(server.requests.load(Ordering::SeqCst), 1_000);
    assert_eq!(outcome.service.len(), 1_000);
    assert_eq!(outcome.statuses.into_iter().collect::<Vec<_>>(), [(200, 1_000)]);
    assert_eq!(outcome.bytes.answered, 1_000 * HELLO.len() as u64);
    assert_eq!(outcome.bytes.received, outcome.bytes.answered);
    assert_eq!(outcome.in_flight, 0);
    assert_eq!(outcome.series.iter().map(|t| t.answers).sum::<u64>(), 1_000);
}

/// A server of Java's, just thawed, had a second's wait before each lap: it accepts late, its queue
/// of 50 was full, and the system tries again after a second.
#[test]
fn a_full_queue_is_knocked_at_again() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let loopback: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    socket.bind(&loopback.into()).unwrap();
    socket.listen(1).unwrap();
    let listener = std::net::TcpListener::from(socket);
    let mut plan = polite().plan(12, 12);
    plan.target.endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        listener.incoming().collect::<Vec<_>>()
    });
    let session = Session::start(&plan).expect("a load");
    assert!(session.window().is_some());
    session.stop();
    let outcome = session.join().expect("an outcome");
    assert_eq!(outcome.connections.established, 12);
    assert_eq!(outcome.failures.total(), 0);
    assert!(outcome.connections.opened > 12, "{}", outcome.connections.opened);
}

/// After a timeout each further attempt failed at once, and the one that succeeded was said to have
/// taken as long as all of them together.
#[test]
fn a_connection_takes_as_long_as_its_own_attempt() {
    const TIMEOUT: Duration = Duration::from_millis(400);
    const FULL: Duration = Duration::from_millis(1_600);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    socket.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    // A queue of one: the first connection is in it, the others find it full.
    socket.listen(0).unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(FULL);
        let listener = std::os::unix::net::UnixListener::from(std::os::fd::OwnedFd::from(socket));
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                use std::io::{Read, Write};
                while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0)
                    && stream.write_all(HELLO).is_ok()
                {}
            });
        }
    });
    let mut plan = polite().plan(3, 1);
    plan.target.endpoint = Endpoint::Unix(path);
    plan.timeout = TIMEOUT;
    plan.ramp = Duration::ZERO;
    plan.reuse = Reuse::Close;
    plan.stop = Stop::After(Duration::from_millis(2_500));
    let outcome = run(&plan).expect("a load");
    assert!(outcome.answers > 0);
    let longest = Duration::from_nanos(outcome.connect.max());
    assert!(longest < FULL - TIMEOUT, "an attempt of at most {TIMEOUT:?} took {longest:?}");
    // Each connection's attempts fail once a timeout while the queue is full.
    let most = 3 * (outcome.window_ns / TIMEOUT.as_nanos() as u64 + 1);
    let timeouts = outcome.failures.of(Failure::Timeout);
    assert!(timeouts <= most, "{timeouts} timeouts, and at most {most} are possible");
}

/// wrk divides connections by threads and drops the remainder (wrk#157).
#[test]
fn a_remainder_of_connections_is_not_lost() {
    let server = polite();
    let mut plan = server.plan(7, 100);
    plan.threads = 3;
    let outcome = run(&plan).expect("a load");
    assert_eq!(outcome.connections.asked, 7);
    assert_eq!(outcome.connections.established, 7);
    assert_eq!(server.accepted.load(Ordering::SeqCst), 7);
    assert_eq!(outcome.answers, 100);
    assert_eq!(outcome.threads.len(), 3);
}

#[test]
fn a_window_opens_after_the_ramp_and_closes_in_time() {
    let server = polite();
    let mut plan = server.plan(2, 1);
    plan.stop = Stop::After(Duration::from_millis(300));
    plan.ramp = Duration::from_millis(50);
    let session = Session::start(&plan).expect("a load");
    let window = session.window().expect("a window");
    assert_eq!(window.closes.expect("a duration") - window.opens, Duration::from_millis(300));
    let outcome = session.join().expect("an outcome");
    assert!(outcome.answers > 0);
    assert_eq!(outcome.failures.total(), 0);
    assert!(outcome.window_ns >= 250_000_000, "{}", outcome.window_ns);
    let asked = server.requests.load(Ordering::SeqCst) as u64;
    assert!(asked > outcome.answers, "the ramp's requests are not counted");
    assert!(outcome.in_flight <= 2);
}

/// Counts that were asked for while a window was still open were never given.
#[test]
fn of_a_held_load_its_windows_count() {
    const TURN: Duration = Duration::from_millis(20);
    let server = polite();
    let mut plan = server.plan(4, 1);
    plan.threads = 2;
    let session = Session::hold(&plan).expect("a load");
    assert!(session.window().is_some());
    let mut sum = 0;
    for turns in [1, 3] {
        for _ in 0..turns {
            let window = session.turn(Duration::from_millis(5), TURN);
            let closes = window.closes.expect("an end");
            assert_eq!(closes - window.opens, TURN);
            std::thread::sleep(closes.saturating_duration_since(std::time::Instant::now()));
        }
        let outcome = session.collect().expect("an outcome");
        assert!(outcome.window_ns > 0);
        assert!(outcome.answers > 0);
        assert_eq!(outcome.answers, outcome.service.len());
        assert_eq!(outcome.failures.total(), 0);
        assert_eq!(outcome.connections.established, 4);
        sum += outcome.answers;
    }
    assert!(session.progress().answers > sum, "what comes between windows does not count");
    let _ = session.turn(Duration::ZERO, Duration::from_secs(60));
    session.stop();
    assert!(session.collect().is_none());
}

/// Its schedule was gone once its counts were asked for, and nothing more was sent.
#[test]
fn a_load_that_is_held_keeps_no_rate() {
    let mut plan = polite().plan(2, 1);
    plan.pace = Pace::Constant { rate: 100.0 };
    let error = Session::hold(&plan).expect_err("an open loop").to_string();
    assert!(error.contains("cannot keep a rate"), "{error}");
}

#[test]
fn between_the_windows_of_a_held_load_time_stands_still() {
    let still = Arc::new(AtomicBool::new(false));
    let server = {
        let still = still.clone();
        Server::start(move |mut guest| {
            while guest.request().is_some() {
                while still.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if !guest.send(HELLO) {
                    break;
                }
            }
        })
    };
    let mut plan = server.plan(3, 1);
    plan.timeout = Duration::from_secs(1);
    let session = Session::hold(&plan).expect("a load");
    assert!(session.window().is_some());
    for pause_ms in [1_500, 0] {
        let window = session.turn(Duration::ZERO, Duration::from_millis(20));
        let closes = window.closes.expect("an end");
        std::thread::sleep(closes.saturating_duration_since(std::time::Instant::now()));
        still.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(pause_ms));
        still.store(false, Ordering::SeqCst);
    }
    let outcome = session.collect().expect("an outcome");
    assert_eq!(outcome.failures.total(), 0);
    assert!(outcome.service.max() < 1_500_000_000, "{}", outcome.service.max());
}

#[test]
fn a_session_that_is_stopped_keeps_what_it_measured() {
    let server = polite();
    let mut plan = server.plan(2, 1);
    plan.stop = Stop::After(Duration::from_secs(3600));
    plan.ramp = Duration::ZERO;
    let session = Session::start(&plan).expect("a load");
    session.window().expect("a window");
    while session.progress().answers < 10 {
        std::thread::yield_now();
    }
    session.stop();
    let outcome = session.join().expect("an outcome");
    assert!(outcome.answers >= 10);
    assert_eq!(outcome.failures.total(), 0);
}

#[test]
fn a_connection_for_each_request_is_opened_and_closed() {
    let server = Server::start(|mut guest| {
        let request = guest.request().unwrap_or_default();
        if String::from_utf8_lossy(&request).contains("Connection: close") {
            guest.send(HELLO);
        }
    });
    let mut plan = server.plan(3, 50);
    plan.reuse = Reuse::Close;
    let outcome = run(&plan).expect("a load");
    assert_eq!(told(&outcome), (50, vec![]));
    // Each of the three opens once more than it must: the last is not needed any more.
    let accepted = server.accepted.load(Ordering::SeqCst);
    assert!((50..=53).contains(&accepted), "{accepted}");
}

#[test]
fn pipelined_answers_are_each_counted_and_timed() {
    let server = polite();
    let mut plan = server.plan(2, 1_000);
    plan.pipeline = 8;
    let outcome = run(&plan).expect("a load");
    assert_eq!(told(&outcome), (1_000, vec![]));
    assert_eq!(outcome.service.len(), 1_000);
    assert_eq!(server.requests.load(Ordering::SeqCst), 1_000);
}

/// wrk times only the last answer of a batch, so that the first of two that are 500 ms apart seems
/// to have taken as long as the second.
#[test]
fn a_pipelined_answer_is_timed_when_it_comes() {
    let server = Server::start(|mut guest| {
        while guest.request().is_some() && guest.request().is_some() {
            guest.send(HELLO);
            std::thread::sleep(Duration::from_millis(500));
            guest.send(HELLO);
        }
    });
    let mut plan = server.plan(1, 2);
    plan.pipeline = 2;
    let outcome = run(&plan).expect("a load");
    assert_eq!(told(&outcome), (2, vec![]));
    assert!(outcome.service.max() >= 500_000_000, "{}", outcome.service.max());
    assert!(outcome.service.min() < outcome.service.max(), "{}", outcome.service.min());
}

#[test]
fn an_open_loop_sends_what_is_due_and_no_more() {
    let server = polite();
    let paces = [Pace::Constant { rate: 2_000.0 }, Pace::Poisson { rate: 2_000.0, seed: 1 }];
    for (pace, awake) in paces.into_iter().flat_map(|pace| [(pace, false), (pace, true)]) {
        let mut plan = server.plan(8, 200);
        plan.pace = pace;
        plan.threads = 2;
        (plan.awake, plan.cpus) = (awake, if awake { vec![0, 0] } else { vec![] });
        assert_eq!(plan.stays_awake(), awake);
        let outcome = run(&plan).expect("a load");
        assert_eq!(told(&outcome), (200, vec![]));
        assert_eq!(outcome.response.len(), 200);
        assert!(outcome.window_ns > 50_000_000, "{pace:?}: {} ns", outcome.window_ns);
    }
}

#[test]
fn connections_that_never_came_up_are_told_with_the_reason() {
    let server = polite();
    let mut plan = server.plan(2, 20);
    // Nothing can be bound to an address that is not this machine's (RFC 5737).
    plan.sources = vec![[127, 0, 0, 1].into(), [192, 0, 2, 1].into()];
    let outcome = run(&plan).expect("a load");
    assert_eq!((outcome.connections.asked, outcome.connections.established), (2, 1));
    let why = outcome.first_failure.expect("a reason");
    assert!(why.starts_with("cannot connect from 192.0.2.1: "), "{why}");
}

#[test]
fn nobody_there_is_an_error_that_says_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut plan = polite().plan(2, 10);
    let address = listener.local_addr().expect("an address");
    drop(listener);
    plan.target.endpoint = hotlap_load::plan::Endpoint::Tcp(address);
    let error = run(&plan).expect_err("nobody listens");
    assert!(matches!(error, Error::Unreachable { .. }));
    assert_eq!(
        error.to_string(),
        format!("no connection to http://{address}: Connection refused (os error 111)")
    );
}

#[test]
fn a_unix_socket_and_ipv6_are_loaded_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                use std::io::{Read, Write};
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|c| c > 0) {
                    stream.write_all(HELLO).expect("a reader");
                }
            });
        }
    });
    let mut plan = polite().plan(4, 200);
    plan.target.endpoint = hotlap_load::plan::Endpoint::Unix(path);
    assert_eq!(told(&run(&plan).expect("a load")), (200, vec![]));
    let six = Server::on("[::1]:0", |mut guest| guest.answer_all(HELLO));
    assert_eq!(told(&run(&six.plan(4, 200)).expect("a load")), (200, vec![]));
}

#[test]
fn connections_come_from_the_sources_in_turn() {
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = peers.clone();
    let server = Server::start(move |mut guest| {
        let peer = guest.stream.peer_addr().expect("a peer").ip();
        seen.lock().expect("sound").push(peer);
        guest.answer_all(HELLO);
    });
    let mut plan = server.plan(6, 60);
    plan.threads = 2;
    // On some systems loopback has one address only; the others are refused then, and told.
    plan.sources = vec![[127, 0, 0, 1].into(), [127, 0, 0, 2].into(), [127, 0, 0, 3].into()];
    if !cfg!(target_os = "linux") {
        plan.sources.truncate(1);
    }
    assert_eq!(told(&run(&plan).expect("a load")), (60, vec![]));
    for source in &plan.sources {
        let count = peers.lock().expect("sound").iter().filter(|p| *p == source).count();
        assert_eq!(count, 6 / plan.sources.len());
    }
}

#[test]
fn requests_are_sent_by_their_weights() {
    let server = Server::start(|mut guest| {
        while let Some(request) = guest.request() {
            let is_a = request.starts_with(b"GET /a ");
            guest.send(if is_a {
                HELLO
            } else {
                b"HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n"
            });
        }
    });
    let mut plan = server.plan(3, 400);
    let one = Request { weight: 3, ..Request::get("/a", "test").expecting(b"Hello, World!") };
    let mut other = Request::build("POST", "/b", "test", &[], b"{}");
    other.expect = Expect { status: Status::Exactly(201), body: Body::Length(0) };
    plan.requests = vec![one, other];
    let outcome = run(&plan).expect("a load");
    assert_eq!(told(&outcome), (400, vec![]));
    assert_eq!(outcome.statuses.into_iter().collect::<Vec<_>>(), [(200, 300), (201, 100)]);
}

#[test]
fn a_head_is_answered_without_a_body() {
    let server = Server::start(|mut guest| guest.answer_all(&HELLO[..HELLO.len() - 13]));
    let mut plan = server.plan(2, 40);
    plan.requests[0] = Request::build("HEAD", "/", "test", &[], b"").expecting(b"Hello, World!");
    assert_eq!(told(&run(&plan).expect("a load")), (40, vec![]));
    // What a GET would bring is told by the length, and checked.
    plan.requests[0] = Request::build("HEAD", "/", "test", &[], b"").expecting(b"Hello");
    assert_eq!(run(&plan).expect("a load").failures.of(Failure::WrongAnswer), 40);
}

/// While a server is frozen, a closed loop waits once for each connection (coordinated omission,
/// wrk#438). In an open loop every request that was due meanwhile waits.
#[test]
fn a_freeze_is_seen_by_every_request_that_was_due() {
    let frozen = AtomicBool::new(false);
    let server = Server::start(move |mut guest| {
        let mut count = 0;
        while guest.request().is_some() {
            count += 1;
            if count == 20 && !frozen.swap(true, Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(400));
            }
            guest.send(HELLO);
        }
    });
    let mut plan = server.plan(1, 300);
    plan.pace = Pace::Constant { rate: 500.0 };
    let outcome = run(&plan).expect("a load");
    assert_eq!(told(&outcome), (300, vec![]));
    // 200 requests were due while one waited: half of them waited for more than 200 ms.
    assert!(outcome.response.quantile(0.5) >= 50_000_000, "{}", outcome.response.quantile(0.5));
    assert!(outcome.response.max() >= 390_000_000);
    assert!(outcome.service.max() >= 390_000_000);
    assert_eq!(outcome.due, 300);
}

#[test]
fn a_load_starts_when_it_is_told() {
    let server = polite();
    let mut plan = server.plan(1, 5);
    let at = SystemTime::now() + Duration::from_millis(300);
    plan.start_at = Some(at);
    run(&plan).expect("a load");
    assert!(SystemTime::now() >= at);
}

#[test]
fn a_plan_and_an_outcome_can_be_written_and_read_back() {
    let server = polite();
    let plan = server.plan(2, 20);
    let outcome = run(&plan).expect("a load");
    let text = serde_json::to_string(&plan).expect("text");
    assert_eq!(serde_json::from_str::<Plan>(&text).expect("a plan"), plan);
    let text = serde_json::to_string(&outcome).expect("text");
    assert_eq!(serde_json::from_str::<Outcome>(&text).expect("an outcome"), outcome);
    let mut sum = outcome.clone();
    sum.merge(&outcome);
    assert_eq!((sum.answers, sum.service.len(), sum.threads.len()), (40, 40, 2));
    assert_eq!(sum.whole.sent, 40);
}

#[test]
fn a_plan_that_makes_no_sense_is_refused_with_the_reason() {
    let good = polite().plan(4, 10);
    let why = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        plan.check().expect_err("no sense").to_string()
    };
    assert_eq!(why(&|p| p.connections = 0), "0 connections send nothing: use at least 1");
    assert_eq!(why(&|p| p.threads = 0), "0 threads send nothing: use at least 1");
    assert!(why(&|p| p.threads = 5).contains("at most 4 threads"));
    assert_eq!(why(&|p| p.requests.clear()), "no request to send");
    let rate = |rate| move |p: &mut Plan| p.pace = Pace::Constant { rate };
    assert!(why(&rate(0.0)).contains("positive"));
    assert!(why(&rate(f64::NAN)).contains("NaN"));
    assert_eq!(why(&rate(1e12)), "1000000000000 requests/s: at most 10000000");
    assert!(why(&|p| p.pipeline = 0).contains("1 to 1024"));
    assert!(why(&|p| p.timeout = Duration::ZERO).contains("timeout"));
    assert!(why(&|p| p.stop = Stop::Requests(0)).contains("at least 1"));
    assert!(why(&|p| p.stop = Stop::After(Duration::ZERO)).contains("duration"));
    assert!(why(&|p| p.requests[0].weight = 0).contains("weights"));
    assert!(why(&|p| p.sources = vec![[0; 16].into()]).contains("cannot be reached"));
    let closing = |p: &mut Plan| (p.reuse, p.pipeline) = (Reuse::Close, 2);
    assert!(why(&closing).contains("cannot pipeline"));
}
