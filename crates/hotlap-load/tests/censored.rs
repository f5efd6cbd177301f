//! Requests that are unanswered when a window closes: none of them is lost, and the hang of a
//! server shows in the latency.

#[path = "support/plan.rs"]
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
mod plan;

use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hotlap_load::plan::{Pace, Stop};
use hotlap_load::{Failure, Outcome, Plan, Session, run};
use hotlap_stats::Survival;
use hotlap_testbed::{HELLO, TestServer};
use plan::PlanFor;

const MS: u64 = 1_000_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn hangs(after: usize, length: Duration) -> TestServer {
    TestServer::hanging(after, length, HELLO)
}

fn lasting(server: &TestServer, connections: usize, length: Duration) -> Plan {
    let mut plan = server.plan(connections, 1);
    plan.stop = Stop::After(length);
    plan.warmup = Duration::ZERO;
    plan
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

/// Every request that was sent or in flight at the start was answered, failed, or is in flight.
fn assert_none_is_lost(outcome: &Outcome) {
    let (entered, open) =
        (&outcome.service_time_censored.entered, &outcome.service_time_censored.open);
    let (responses, failures) = (outcome.responses, outcome.failures.total());
    assert_eq!(outcome.service_time.len(), responses);
    assert_eq!(open.len(), failures + outcome.in_flight);
    assert_eq!(sent(outcome) + entered.len(), responses + failures + outcome.in_flight);
}

#[test]
fn a_hang_of_1500_of_4000_ms_shows_in_the_latency() {
    let began = Mutex::new(None);
    let server = TestServer::start(move |mut client| {
        while client.request().is_some() {
            let first = *began.lock().expect("not poisoned").get_or_insert_with(Instant::now);
            let phase = first.elapsed().as_millis() as u64 % 4_000;
            if (400..1_900).contains(&phase) {
                sleep(ms(1_900 - phase));
            }
            client.send(HELLO);
        }
    });
    let outcome = run(&lasting(&server, 4, ms(2_800))).expect("a load");
    assert_none_is_lost(&outcome);
    assert_eq!(outcome.failures.total(), 0);
    assert_eq!(outcome.in_flight, 4);
    assert!(service(&outcome).longest().ns >= 1_000 * MS);
}

#[test]
fn a_window_that_closes_during_a_hang_gives_lower_bounds() {
    let server = hangs(20, ms(20_000));
    let outcome = run(&lasting(&server, 4, ms(1_000))).expect("a load");
    assert_none_is_lost(&outcome);
    assert_eq!((outcome.responses, outcome.in_flight), (20, 4));
    let service = service(&outcome);
    assert_eq!(service.len(), 24);
    let (p50, p99, longest) = (service.quantile(0.5), service.quantile(0.99), service.longest());
    assert!(!p50.is_lower_bound);
    assert!(p99.is_lower_bound && p99.ns >= 100 * MS, "{p99:?}");
    assert!(longest.is_lower_bound && longest.ns >= p99.ns, "{longest:?}");
    assert!(outcome.oldest_ns >= 100 * MS);
}

/// Requests that were due during a hang and not sent were once missing: neither answered nor in
/// flight.
#[test]
fn requests_due_during_a_hang_wait_from_when_they_were_due() {
    let server = hangs(20, ms(20_000));
    let mut plan = lasting(&server, 2, ms(800));
    plan.pace = Pace::Constant { rate: 500.0 };
    let outcome = run(&plan).expect("a load");
    assert_none_is_lost(&outcome);
    assert_eq!((outcome.responses, outcome.in_flight), (20, 2));
    assert_eq!(sent(&outcome) + outcome.queued, outcome.due);
    assert_eq!(outcome.response_time_censored.waiting.len(), outcome.queued);
    assert_eq!(response(&outcome).len(), outcome.due);
    // At least half of the 400 requests were due during the hang, which began after 20 of them:
    // high percentiles depend on those.
    assert!(response(&outcome).quantile(0.9).is_lower_bound);
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
    assert!((found.offered_per_s - 1_000.0).abs() < 2.0, "{found:?}");
    // At most 500 a second, and four that were in flight at the end.
    assert!(found.reached_per_s <= 500.0 + 4.0 / window_s, "{found:?}");
    assert!(found.is_behind);
    assert_eq!(sent(&outcome) + outcome.queued, outcome.due);
    assert_eq!(found.waiting, outcome.due - outcome.responses);
    assert!((found.growth_per_s - found.waiting as f64 / window_s).abs() < 1e-6);
    // They are due a millisecond apart, and the oldest was due before all that were not sent.
    assert!(found.oldest_ns >= (outcome.queued - 1) * MS, "{found:?}");
    assert_eq!(response(&outcome).len(), outcome.due);
    assert!(response(&outcome).quantile(0.9).is_lower_bound);
}

#[test]
fn a_rate_that_is_reached_has_no_queue() {
    let server = hangs(usize::MAX, Duration::ZERO);
    let mut plan = lasting(&server, 8, ms(300));
    plan.pace = Pace::Constant { rate: 100.0 };
    plan.warmup = ms(50);
    let outcome = run(&plan).expect("a load");
    assert_none_is_lost(&outcome);
    let found = outcome.open_loop().expect("an open loop");
    assert!(!found.is_behind && found.waiting <= 8, "{found:?}");
    assert!(!response(&outcome).quantile(0.5).is_lower_bound);
}

/// A hang of a second was once cut to the length of a window, and windows without a response had no
/// latency at all.
#[test]
fn a_hang_across_windows_is_as_long_as_all_of_them() {
    let server = hangs(20, ms(1_000));
    let session = Session::start_held(&server.plan(4, 1)).expect("a load");
    assert!(session.wait_for_window().is_some());
    let mut all: Option<Outcome> = None;
    let mut still = 0;
    for _ in 0..14 {
        let window = session.open_window(Duration::ZERO, ms(100));
        sleep(window.closes.expect("an end").saturating_duration_since(Instant::now()));
        let window = session.collect().expect("an outcome");
        let (entered, open) =
            (&window.service_time_censored.entered, &window.service_time_censored.open);
        assert_eq!(sent(&window) + entered.len(), window.responses + open.len());
        if window.responses == 0 {
            still += 1;
            assert_eq!((entered.len(), open.len()), (4, 4));
            assert!(service(&window).quantile(0.5).is_lower_bound);
        }
        match &mut all {
            None => all = Some(window),
            Some(all) => all.merge(&window),
        }
    }
    let all = service(&all.expect("some windows"));
    assert!(still >= 3, "{still} windows without a response");
    assert!(all.longest().ns >= 500 * MS, "{:?}", all.longest());
}

/// The search for timeouts once started over with each window, and never ran in short ones: a
/// request could hang for ever.
#[test]
fn a_request_of_a_held_load_times_out() {
    let server = TestServer::silent();
    let mut plan = server.plan(2, 1);
    plan.timeout = ms(500);
    let session = Session::start_held(&plan).expect("a load");
    assert!(session.wait_for_window().is_some());
    for _ in 0..60 {
        let window = session.open_window(Duration::ZERO, ms(12));
        sleep(window.closes.expect("an end").saturating_duration_since(Instant::now()));
    }
    let outcome = session.collect().expect("an outcome");
    assert!(outcome.failures.of(Failure::Timeout) >= 2, "{:?}", outcome.failures);
    assert!(service(&outcome).longest().ns >= 500 * MS);
}
