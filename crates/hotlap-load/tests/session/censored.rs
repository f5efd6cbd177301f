//! Tests of requests without a response when a window closes. None of these requests is lost, and a
//! stall of the server shows in the latency.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::plan::{PlanFor, until};
use hotlap_load::plan::{Pace, Request, Stop};
use hotlap_load::{Failure, Outcome, Plan, Session, run};
use hotlap_stats::{Censored, Survival};
use hotlap_testbed::{HELLO, TestServer};

const MS: u64 = 1_000_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A time that is longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

fn hangs(after: usize, length: Duration) -> TestServer {
    TestServer::hanging(after, length, HELLO)
}

fn lasting(server: &TestServer, connections: usize, length: Duration) -> Plan {
    let mut plan = server.plan(connections, 1);
    plan.stop = Stop::After(length);
    plan.warmup = Duration::ZERO;
    plan
}

/// Runs a load until all of its connections wait for a server that hangs after `after` requests.
/// The load ends once the connections have waited for `wait`, and longer than any response took.
fn ended_in_a_hang(server: &TestServer, plan: &Plan, after: usize, wait: Duration) -> Outcome {
    let began = Instant::now();
    let session = Session::start(plan).expect("a load");
    let asked = after + plan.shape.connections;
    until("all connections wait", || server.requests() == asked);
    sleep(began.elapsed() + wait);
    session.stop();
    session.join().expect("an outcome")
}

fn service(outcome: &Outcome) -> Survival {
    Survival::new(&outcome.service_time, &outcome.service_time_censored)
}

fn response(outcome: &Outcome) -> Survival {
    Survival::new(&outcome.response_time, &outcome.response_time_censored)
}

fn sent(outcome: &Outcome) -> u64 {
    outcome.threads.iter().map(|t| t.sent).sum()
}

/// Checks that no request is lost. Each request that was sent, or in flight at the start, has a
/// response, has failed, or is still in flight.
fn assert_none_is_lost(outcome: &Outcome) {
    let (entered, open) =
        (&outcome.service_time_censored.entered, &outcome.service_time_censored.open);
    let (responses, failures) = (outcome.responses, outcome.failures.total());
    assert_eq!(outcome.service_time.len(), responses);
    assert_eq!(open.len(), failures + outcome.in_flight);
    assert_eq!(sent(outcome) + entered.len(), responses + failures + outcome.in_flight);
}

#[test]
fn a_hang_of_1500_ms_shows_in_the_latency() {
    let server = hangs(200, ms(1_500));
    let outcome = run(&server.plan(4, 1_000)).expect("a load");
    assert_none_is_lost(&outcome);
    assert_eq!((outcome.responses, outcome.failures.total()), (1_000, 0));
    // The histogram keeps only three significant digits.
    assert!(service(&outcome).longest().ns >= 1_490 * MS);
}

#[test]
fn a_window_that_closes_during_a_hang_gives_lower_bounds() {
    let server = hangs(20, HOUR);
    let outcome = ended_in_a_hang(&server, &lasting(&server, 4, HOUR), 20, ms(300));
    assert_none_is_lost(&outcome);
    assert_eq!((outcome.responses, outcome.in_flight), (20, 4));
    let service = service(&outcome);
    assert_eq!(service.len(), 24);
    let (p50, p99, longest) = (service.quantile(0.5), service.quantile(0.99), service.longest());
    assert!(!p50.is_lower_bound);
    assert!(p99.is_lower_bound && p99.ns >= 290 * MS, "{p99:?}");
    assert!(longest.is_lower_bound && longest.ns >= p99.ns, "{longest:?}");
    assert!(outcome.oldest_ns >= 300 * MS);
}

/// Regression: requests that became due during a hang were lost. Such requests counted neither as
/// completed nor as in flight.
#[test]
fn requests_due_during_a_hang_wait_from_when_they_were_due() {
    let server = hangs(20, HOUR);
    let mut plan = lasting(&server, 2, HOUR);
    plan.pace = Pace::Constant { rate: 500.0 };
    let outcome = ended_in_a_hang(&server, &plan, 20, ms(400));
    assert_none_is_lost(&outcome);
    assert_eq!((outcome.responses, outcome.in_flight), (20, 2));
    assert!(outcome.due >= 200, "{}", outcome.due);
    assert_eq!(sent(&outcome) + outcome.queued, outcome.due);
    assert_eq!(outcome.response_time_censored.waiting.len(), outcome.queued);
    assert_eq!(response(&outcome).len(), outcome.due);
    // At most a tenth of the requests that became due have a response.
    assert!(response(&outcome).quantile(0.5).is_lower_bound);
}

#[test]
fn a_rate_of_twice_the_capacity_is_not_reached_and_the_queue_is_reported() {
    let server = TestServer::one_at_a_time(ms(2), HELLO);
    let mut plan = lasting(&server, 4, ms(1_500));
    plan.pace = Pace::Constant { rate: 1_000.0 };
    let outcome = run(&plan).expect("a load");
    assert_none_is_lost(&outcome);
    let found = outcome.open_loop().expect("an open loop");
    let window_s = outcome.window_ns as f64 / 1e9;
    // Requests that become due in the window count even if a worker wakes up late.
    assert!(found.due >= 1_500, "{found:?}");
    assert!((found.offered_per_s * window_s - found.due as f64).abs() < 1e-6, "{found:?}");
    // The server responds to at most 500 requests/s. The tolerance is one request per connection.
    assert!(found.reached_per_s <= 500.0 + 4.0 / window_s, "{found:?}");
    assert!(found.is_behind);
    assert_eq!(sent(&outcome) + outcome.queued, outcome.due);
    assert_eq!(found.waiting, outcome.due - outcome.responses);
    assert!((found.growth_per_s - found.waiting as f64 / window_s).abs() < 1e-6);
    // Requests are due a millisecond apart. The oldest one was due before all requests that were
    // not sent.
    assert!(found.oldest_ns >= (outcome.queued - 1) * MS, "{found:?}");
    assert_eq!(response(&outcome).len(), outcome.due);
    assert!(response(&outcome).quantile(0.9).is_lower_bound);
}

/// Regression: waiting requests were missing from the figures of each kind of request. These
/// figures showed less latency than the load as a whole.
#[test]
fn requests_that_wait_count_for_the_request_that_they_are() {
    let server = TestServer::one_at_a_time(ms(2), HELLO);
    let mut plan = lasting(&server, 4, ms(600));
    plan.pace = Pace::Constant { rate: 1_000.0 };
    plan.warmup = ms(100);
    let often = Request { weight: 3, ..plan.requests[0].clone() };
    plan.requests = vec![often, Request::get("/rare", "test")];
    let outcome = run(&plan).expect("a load");
    let mut all = Censored::default();
    outcome.by_request.iter().for_each(|own| all.merge(&own.censored));
    assert_eq!(all, outcome.response_time_censored);
    let waiting: Vec<u64> =
        outcome.by_request.iter().map(|own| own.censored.waiting.len()).collect();
    assert_eq!(waiting.iter().sum::<u64>(), outcome.queued);
    // Three in four requests are of the first kind, rounded to whole cycles of four.
    assert!(waiting[1] > 0 && waiting[0].abs_diff(waiting[1] * 3) <= 3, "{waiting:?}");
}

/// With more connections than due requests, each request finds a free connection, however late
/// anything is.
#[test]
fn a_rate_that_is_reached_has_no_queue() {
    let server = hangs(usize::MAX, Duration::ZERO);
    let mut plan = lasting(&server, 100, ms(300));
    plan.pace = Pace::Constant { rate: 100.0 };
    plan.warmup = ms(50);
    let outcome = run(&plan).expect("a load");
    assert_none_is_lost(&outcome);
    let found = outcome.open_loop().expect("an open loop");
    assert!(found.due >= 30 && !found.is_behind, "{found:?}");
    plan.stop = Stop::Requests(30);
    let outcome = run(&plan).expect("a load");
    assert_none_is_lost(&outcome);
    let found = outcome.open_loop().expect("an open loop");
    assert_eq!((outcome.responses, found.waiting, found.is_behind), (30, 0, false));
    assert!(!response(&outcome).quantile(0.5).is_lower_bound);
}

/// Opens another window of a held load, and returns its outcome.
fn next_window(session: &Session, length: Duration) -> Outcome {
    let window = session.open_window(Duration::ZERO, length);
    sleep(window.closes.expect("an end").saturating_duration_since(Instant::now()));
    session.collect().expect("an outcome")
}

/// Regression: a hang of a second was cut to the length of a window, and windows without a response
/// had no latency at all.
#[test]
fn a_hang_across_windows_is_as_long_as_all_of_them() {
    let (hangs, waiting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let server = {
        let (hangs, waiting) = (hangs.clone(), waiting.clone());
        TestServer::start(move |mut client| {
            while client.request().is_some() {
                waiting.fetch_add(1, Ordering::SeqCst);
                while hangs.load(Ordering::SeqCst) {
                    sleep(ms(1));
                }
                waiting.fetch_sub(1, Ordering::SeqCst);
                client.send(HELLO);
            }
        })
    };
    let session = Session::start_held(&server.plan(4, 1)).expect("a load");
    assert!(session.wait_for_window().is_some());
    let mut all = next_window(&session, ms(100));
    hangs.store(true, Ordering::SeqCst);
    until("all connections wait", || waiting.load(Ordering::SeqCst) == 4);
    let mut still_ns = 0;
    for _ in 0..3 {
        let window = next_window(&session, ms(100));
        let (entered, open) =
            (&window.service_time_censored.entered, &window.service_time_censored.open);
        assert_eq!((window.responses, sent(&window), entered.len(), open.len()), (0, 0, 4, 4));
        assert!(service(&window).quantile(0.5).is_lower_bound);
        still_ns += window.window_ns;
        all.merge(&window);
    }
    hangs.store(false, Ordering::SeqCst);
    until("there is a response", || {
        let window = next_window(&session, ms(100));
        let (entered, open) =
            (&window.service_time_censored.entered, &window.service_time_censored.open);
        assert_eq!(sent(&window) + entered.len(), window.responses + open.len());
        all.merge(&window);
        window.responses > 0
    });
    // The histogram keeps only three significant digits.
    let longest_ns = service(&all).longest().ns;
    assert!(longest_ns as f64 >= still_ns as f64 * 0.99, "{longest_ns} of {still_ns} ns");
}

/// Regression: the search for timeouts started over with each window. In short windows, the search
/// never ran, so a request could hang forever.
#[test]
fn a_request_of_a_held_load_times_out() {
    let server = TestServer::silent();
    let mut plan = server.plan(2, 1);
    plan.timeout = ms(500);
    let session = Session::start_held(&plan).expect("a load");
    assert!(session.wait_for_window().is_some());
    let mut all = next_window(&session, ms(12));
    let (mut before_ns, mut last_ns) = (0, all.window_ns);
    until("both requests have failed", || {
        let window = next_window(&session, ms(12));
        before_ns += std::mem::replace(&mut last_ns, window.window_ns);
        all.merge(&window);
        all.failures.of(Failure::Timeout) >= 2
    });
    // Both requests were sent before the first window. The requests fail when the first window
    // after their timeout closes.
    assert!(Duration::from_nanos(before_ns) < plan.timeout, "{before_ns} ns, and then {last_ns}");
    assert!(service(&all).longest().ns >= 490 * MS);
}
