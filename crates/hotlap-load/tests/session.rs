//! Loads against polite servers: what was asked for happens, and is counted right.

#[path = "support/rude_server.rs"]
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
mod rude_server;

use std::sync::atomic::Ordering;
use std::time::Duration;

use hotlap_load::plan::{Pace, Reuse, Stop};
use hotlap_load::{Error, Session, run};
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

#[test]
fn an_open_loop_sends_what_is_due_and_no_more() {
    let server = polite();
    for pace in [Pace::Constant { rate: 2_000.0 }, Pace::Poisson { rate: 2_000.0, seed: 1 }] {
        let mut plan = server.plan(8, 200);
        plan.pace = pace;
        plan.threads = 2;
        let outcome = run(&plan).expect("a load");
        assert_eq!(told(&outcome), (200, vec![]));
        assert_eq!(outcome.response.len(), 200);
        assert!(outcome.window_ns > 50_000_000, "{pace:?}: {} ns", outcome.window_ns);
    }
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
