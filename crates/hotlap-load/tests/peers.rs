//! Known defects of other load generators. Each entry names the test that shows that hotlap does
//! not have the defect. Tests in other files are named with their module.
//!
//! - wrk: a read that returns EAGAIN counts as an error:
//!   `wrk_counts_a_read_that_finds_nothing_as_an_error`
//! - wrk: a request that is never answered does not time out:
//!   `misbehaving::a_request_that_is_never_answered_times_out`
//! - wrk: a connection that fails once is lost (#509):
//!   `misbehaving::every_tenth_connection_is_refused_and_reopened`
//! - wrk: if threads do not divide the connections evenly, the rest is dropped (#157):
//!   `session::the_remainder_of_connections_is_not_lost`
//! - wrk: with `Connection: close`, the latency does not include connecting:
//!   `wrk_leaves_connecting_out_of_the_latency`
//! - wrk: times are read from the wall clock:
//!   `clock::wrk_reads_the_wall_clock`
//! - wrk: the end is noticed at a tick of 100 ms:
//!   `wrk_divides_by_a_time_that_it_did_not_measure`
//! - wrk: the measured time includes connecting:
//!   `wrk_measures_while_it_connects`
//! - wrk: only the last of a pipelined batch is timed:
//!   `session::a_pipelined_response_is_timed_when_it_arrives`
//! - wrk: threads share counters that are written per request:
//!   `shared::no_two_workers_share_a_cache_line_or_a_pair_of_lines`
//! - wrk2: sleeps last whole milliseconds (#78):
//!   `io::wrk2_sleeps_whole_milliseconds`
//! - wrk2: the end of the load is set before the threads start (#138):
//!   `wrk2_sets_its_end_before_its_threads_start`
//! - wrk2: a load over many connections sends in bursts (#89):
//!   `schedule::wrk2_sends_in_bursts_over_many_connections`
//! - gcannon: running out of buffers counts as a disconnect:
//!   `gcannon_reconnects_when_its_buffers_are_full`
//! - gcannon: a connection closed within a response does not count as an error:
//!   `misbehaving::a_connection_closed_within_a_response_is_counted_by_phase`
//! - gcannon: failed sends count as failed reads:
//!   `gcannon_counts_failed_sends_as_failed_reads`
//! - gcannon: requests have no timeout:
//!   `misbehaving::a_request_that_is_never_answered_times_out`
//! - gcannon: a missing Content-Length is taken to mean 0:
//!   `misbehaving::correct_responses_in_unusual_forms_are_correct`
//! - gcannon: responses to HEAD, and with status 204 or 304, are expected to have a body:
//!   `framing::a_response_to_a_head_a_204_and_a_304_have_no_body`
//! - gcannon: a partial send continues with the wrong bytes:
//!   `gcannon_goes_on_after_a_partial_send_with_other_bytes`
//! - gcannon: waiting takes two system calls instead of one:
//!   `gcannon_waits_twice_in_each_round`
//! - h2load: latency is measured from the time of sending, even if the request is late:
//!   `session::a_hang_delays_every_request_that_is_due`
//! - h2load: a timer of 10 ms or more sets the pace:
//!   `schedule::h2load_sends_in_clumps_of_ten_milliseconds`
//! - h2load: requests in flight at the end vanish (#1523):
//!   `misbehaving::requests_in_flight_at_the_end_are_reported`
//! - hey: the figures are wrong after a million responses (#112, #227):
//!   `tally::hey_keeps_the_first_million_responses`
//! - vegeta: high percentiles are approximate:
//!   `vegeta_approximates_the_tail`
//! - vegeta: saturation hides requests that were due:
//!   `censored::a_rate_of_twice_the_capacity_is_not_reached_and_the_queue_is_reported`
//! - autocannon: the expected interval has the wrong unit:
//!   `session::a_hang_delays_every_request_that_is_due`
//! - autocannon: the requests of a second are sent at once:
//!   `schedule::autocannon_sends_a_seconds_requests_at_once`
//! - oha: memory grows with the number of requests (#806):
//!   `tally::oha_keeps_every_response`
//! - zrk: the achieved rate covers the last interval only:
//!   `zrk_reports_the_rate_of_its_last_interval`
//! - HttpArena: the p99 column contains the mean:
//!   `output::tests::httparena_prints_the_mean_as_p99` (hotlap)
//! - the-benchmarker: "p99.999" is p99.99:
//!   `output::tests::the_benchmarker_prints_p9999_as_p99999` (hotlap)
//! - the-benchmarker: percentiles are averaged over routes:
//!   `the_benchmarker_averages_percentiles_over_routes`

#[path = "support/certificate.rs"]
mod certificate;
#[path = "support/plan.rs"]
mod plan;
#[path = "support/tls.rs"]
mod tls;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use certificate::valid;
use hotlap_load::plan::{Pace, Request, Reuse, Stop};
use hotlap_load::{Failure, Phase, Session, run};
use hotlap_stats::Histogram;
use hotlap_testbed::{HELLO, Peer, TestServer};
use plan::{PlanFor, counted, counts};
use tls::{over_tls, secure};

const MS: u64 = 1_000_000;

#[test]
fn wrk_counts_a_read_that_finds_nothing_as_an_error() {
    let server = TestServer::start(|mut client: Peer| {
        while client.request().is_some() {
            for piece in HELLO.chunks(HELLO.len() / 3) {
                client.send(piece);
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
    let outcome = run(&server.plan(2, 20)).expect("a load");
    assert_eq!(counts(&outcome), (20, vec![]));
    assert_eq!((outcome.connections.opened, outcome.connections.reopened), (2, 0));
    assert_eq!(server.accepted(), 2);
}

#[test]
fn wrk_leaves_connecting_out_of_the_latency() {
    let server = secure(valid(), HELLO, |_| std::thread::sleep(Duration::from_millis(100)), || {});
    let mut plan = over_tls(&server, 1, 5);
    plan.shape.reuse = Reuse::Close;
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (5, vec![]));
    // The first connection is open before the load begins.
    let longer = outcome.service_time.counts().filter(|(ns, _)| *ns >= 99 * MS);
    assert!(longer.map(|(_, count)| count).sum::<u64>() >= 4);
}

#[test]
fn wrk_measures_while_it_connects() {
    let (handshakes, early) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let server = {
        let (done, handshakes, early) = (handshakes.clone(), handshakes.clone(), early.clone());
        secure(
            valid(),
            HELLO,
            move |number| {
                std::thread::sleep(Duration::from_millis(100 * number as u64));
                done.fetch_add(1, Ordering::SeqCst);
            },
            move || {
                let is_early = handshakes.load(Ordering::SeqCst) < 3;
                early.fetch_add(usize::from(is_early), Ordering::SeqCst);
            },
        )
    };
    let outcome = run(&over_tls(&server, 3, 30)).expect("a load");
    assert_eq!(counts(&outcome), (30, vec![]));
    assert_eq!((outcome.connections.requested, outcome.connections.established), (3, 3));
    assert_eq!((handshakes.load(Ordering::SeqCst), early.load(Ordering::SeqCst)), (3, 0));
}

#[test]
fn wrk_divides_by_a_time_that_it_did_not_measure() {
    let server = TestServer::responding(HELLO);
    let mut plan = server.plan(2, 1);
    (plan.warmup, plan.stop) = (Duration::ZERO, Stop::After(Duration::from_millis(130)));
    let session = Session::start(&plan).expect("a load");
    let window = session.wait_for_window().expect("a window");
    assert_eq!(window.closes.expect("an end") - window.opens, Duration::from_millis(130));
    let outcome = session.join().expect("an outcome");
    let wall: Vec<u64> = outcome.threads.iter().map(|t| t.wall_ns).collect();
    assert_eq!(wall, [outcome.window_ns]);
    assert!(
        (outcome.rate() * outcome.window_ns as f64 / 1e9 - outcome.responses as f64).abs() < 1e-6
    );
}

#[test]
fn wrk2_sets_its_end_before_its_threads_start() {
    const LATE: Duration = Duration::from_millis(300);
    const WINDOW: Duration = Duration::from_millis(200);
    // The last of 32 connections is established late.
    let server = secure(
        valid(),
        HELLO,
        |number| {
            if number == 31 {
                std::thread::sleep(LATE);
            }
        },
        || {},
    );
    let mut plan = over_tls(&server, 32, 1);
    (plan.warmup, plan.stop) = (Duration::ZERO, Stop::After(WINDOW));
    plan.shape.threads = 32;
    let began = Instant::now();
    let session = Session::start(&plan).expect("a load");
    let window = session.wait_for_window().expect("a window");
    let closes = window.closes.expect("an end");
    assert!(window.opens >= began + LATE, "it opens when the last one is ready");
    assert_eq!(closes - window.opens, WINDOW);
    let outcome = session.join().expect("an outcome");
    assert!(Instant::now() >= closes);
    assert_eq!(outcome.threads.len(), 32);
    let responses: u64 = outcome.series.iter().map(|tick| tick.responses).sum();
    assert_eq!(responses, outcome.responses);
}

#[test]
fn gcannon_reconnects_when_its_buffers_are_full() {
    let body = vec![b'x'; 2_000_000];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let response = [head.as_bytes(), &body].concat();
    let server = TestServer::responding(response);
    let mut plan = server.plan(8, 32);
    plan.requests[0] = Request::get("/", "test").expecting(&body);
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (32, vec![]));
    // `opened` is not checked, because a slow connection is retried on a busy machine.
    assert_eq!((outcome.connections.established, outcome.connections.reopened), (8, 0));
}

#[test]
fn gcannon_counts_failed_sends_as_failed_reads() {
    let server = TestServer::start(|mut client: Peer| {
        let _ = client.stream.read(&mut [0; 1024]);
        client.reset();
    });
    let mut plan = server.plan(1, 4);
    plan.requests[0] = Request::build("POST", "/", "test", &[], &vec![b'x'; 32_000_000]);
    assert_eq!(counted(&plan), (0, vec![(Failure::Reset, Phase::Send, 4)]));
}

#[test]
fn gcannon_goes_on_after_a_partial_send_with_other_bytes() {
    let bodies: Vec<Vec<u8>> = (b'a'..b'd').map(|byte| vec![byte; 3_000_000]).collect();
    let server = TestServer::start(|mut client: Peer| {
        while let Some(request) = client.request() {
            let name = request[6];
            let body = request.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
            let is_whole = request[body..].iter().all(|byte| *byte == name);
            client.send(if is_whole { HELLO } else { b"HTTP/1.1 400 No\r\n\r\n" });
        }
    });
    let mut plan = server.plan(2, 12);
    plan.requests = bodies
        .iter()
        .map(|body| {
            let path = format!("/{}", body[0] as char);
            Request::build("POST", &path, "test", &[], body).expecting(b"Hello, World!")
        })
        .collect();
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (12, vec![]));
    let each = plan.requests[0].bytes().len() as u64;
    assert_eq!(outcome.bytes.sent, 12 * each);
}

#[test]
fn gcannon_waits_twice_in_each_round() {
    let server = TestServer::responding(HELLO);
    let outcome = run(&server.plan(1, 1_000)).expect("a load");
    assert_eq!(counts(&outcome), (1_000, vec![]));
    // There is one wait per response. Timers cause about ten more waits per second.
    let waits = outcome.threads[0].wakeups;
    let timers = outcome.window_ns / (20 * MS);
    assert!(waits <= 1_000 + 20 + timers, "{waits} waits");
}

#[test]
fn vegeta_approximates_the_tail() {
    // One latency in a thousand is far longer than the others, and no two are equal.
    let ns = |i: u64| if i.is_multiple_of(1_000) { 100 * MS + 7_919 * i } else { MS + 13 * i };
    let mut all: Vec<u64> = (1..=200_000).map(ns).collect();
    let mut histogram = Histogram::new();
    all.iter().for_each(|ns| histogram.record(*ns));
    all.sort_unstable();
    for q in [0.5, 0.9, 0.99, 0.999, 0.9995, 0.9999, 0.99999] {
        let exact = all[(q * all.len() as f64).ceil() as usize - 1] as f64;
        let found = histogram.quantile(q) as f64;
        assert!((found / exact - 1.0).abs() <= 0.001, "{q}: {found} instead of {exact}");
    }
}

#[test]
fn zrk_reports_the_rate_of_its_last_interval() {
    let count = Arc::new(AtomicUsize::new(0));
    let asked = count.clone();
    let server = TestServer::start(move |mut client| {
        while client.request().is_some() {
            if asked.fetch_add(1, Ordering::SeqCst) >= 100 {
                std::thread::sleep(Duration::from_millis(100));
            }
            client.send(HELLO);
        }
    });
    let mut plan = server.plan(4, 1);
    (plan.warmup, plan.stop) = (Duration::ZERO, Stop::After(Duration::from_millis(900)));
    plan.pace = Pace::Constant { rate: 1_000.0 };
    let outcome = run(&plan).expect("a load");
    let found = outcome.open_loop().expect("an open loop");
    let window_s = outcome.window_ns as f64 / 1e9;
    // The server responds to a hundred requests immediately, then to at most forty per second.
    let asked = count.load(Ordering::SeqCst) as u64;
    let range = outcome.responses..=outcome.responses + outcome.in_flight;
    assert!(range.contains(&asked), "{asked} requests, {range:?}");
    assert!((found.reached_per_s * window_s - outcome.responses as f64).abs() < 1e-6);
    assert!(found.is_behind, "{found:?}");
}

/// Both routes get the same number of requests, and one route is much slower. The 60th percentile
/// of all requests belongs to the slow route. The mean of the two 60th percentiles is lower.
#[test]
fn the_benchmarker_averages_percentiles_over_routes() {
    let server = TestServer::start(|mut client: Peer| {
        while let Some(request) = client.request() {
            if request.starts_with(b"GET /slow") {
                std::thread::sleep(Duration::from_millis(20));
            }
            client.send(HELLO);
        }
    });
    let mut plan = server.plan(2, 60);
    plan.requests = ["/fast", "/slow"].map(|path| Request::get(path, "test")).to_vec();
    let outcome = run(&plan).expect("a load");
    assert_eq!(counts(&outcome), (60, vec![]));
    assert_eq!(outcome.service_time.len(), 60);
    assert!(
        outcome.service_time.quantile(0.6) >= 20 * MS,
        "{}",
        outcome.service_time.quantile(0.6)
    );
}
