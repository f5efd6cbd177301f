//! Requests that are not answered when a window closes: none of them is lost, and a server that
//! hangs is seen to hang.

#[path = "support/rude_server.rs"]
#[allow(dead_code, reason = "shared by several tests, each of which needs a part")]
mod rude_server;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hotlap_load::plan::{Pace, Stop};
use hotlap_load::{Failure, Outcome, Plan, Session, run};
use hotlap_stats::Survival;
use rude_server::{HELLO, Server};

const MS: u64 = 1_000_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Answers so many requests, then hangs once for that long, on all connections.
fn hangs(after: usize, length: Duration) -> Server {
    let count = AtomicUsize::new(0);
    let until = Mutex::new(None);
    Server::start(move |mut guest| {
        while guest.request().is_some() {
            if count.fetch_add(1, Ordering::SeqCst) >= after {
                let end = *until.lock().expect("sound").get_or_insert(Instant::now() + length);
                sleep(end.saturating_duration_since(Instant::now()));
            }
            guest.send(HELLO);
        }
    })
}

fn for_so_long(server: &Server, connections: usize, length: Duration) -> Plan {
    let mut plan = server.plan(connections, 1);
    plan.stop = Stop::After(length);
    plan.ramp = Duration::ZERO;
    plan
}

fn service(outcome: &Outcome) -> Survival {
    Survival::new(&outcome.service, &outcome.service_censored)
}

fn response(outcome: &Outcome) -> Survival {
    Survival::new(&outcome.response, &outcome.response_censored)
}

fn sent(outcome: &Outcome) -> u64 {
    outcome.threads.iter().map(|t| t.sent).sum()
}

/// Every request that was sent or carried in is answered, failed or open.
fn none_is_lost(outcome: &Outcome) {
    let (entered, open) = (&outcome.service_censored.entered, &outcome.service_censored.open);
    let (answers, failures) = (outcome.answers, outcome.failures.total());
    assert_eq!(outcome.service.len(), answers);
    assert_eq!(open.len(), failures + outcome.in_flight);
    assert_eq!(sent(outcome) + entered.len(), answers + failures + outcome.in_flight);
}

#[test]
fn a_server_that_hangs_for_1500_of_4000_ms_is_seen_to() {
    let began = Mutex::new(None);
    let server = Server::start(move |mut guest| {
        while guest.request().is_some() {
            let first = *began.lock().expect("sound").get_or_insert_with(Instant::now);
            let phase = first.elapsed().as_millis() as u64 % 4_000;
            if (400..1_900).contains(&phase) {
                sleep(ms(1_900 - phase));
            }
            guest.send(HELLO);
        }
    });
    let outcome = run(&for_so_long(&server, 4, ms(2_800))).expect("a load");
    none_is_lost(&outcome);
    assert_eq!(outcome.failures.total(), 0);
    assert_eq!(outcome.in_flight, 4);
    assert!(service(&outcome).longest().ns >= 1_000 * MS);
}

#[test]
fn a_window_that_closes_in_a_hang_has_lower_bounds() {
    let server = hangs(20, ms(20_000));
    let outcome = run(&for_so_long(&server, 4, ms(1_000))).expect("a load");
    none_is_lost(&outcome);
    assert_eq!((outcome.answers, outcome.in_flight), (20, 4));
    let service = service(&outcome);
    assert_eq!(service.len(), 24);
    let (p50, p99, longest) = (service.quantile(0.5), service.quantile(0.99), service.longest());
    assert!(!p50.is_lower_bound);
    assert!(p99.is_lower_bound && p99.ns >= 100 * MS, "{p99:?}");
    assert!(longest.is_lower_bound && longest.ns >= p99.ns, "{longest:?}");
    assert!(outcome.oldest_ns >= 100 * MS);
}

/// What was due during a hang and not sent was nowhere: neither answered, nor in flight.
#[test]
fn what_is_due_in_a_hang_waits_from_when_it_was_due() {
    let server = hangs(20, ms(20_000));
    let mut plan = for_so_long(&server, 2, ms(800));
    plan.pace = Pace::Constant { rate: 500.0 };
    let outcome = run(&plan).expect("a load");
    none_is_lost(&outcome);
    assert_eq!((outcome.answers, outcome.in_flight), (20, 2));
    assert_eq!(sent(&outcome) + outcome.queued, outcome.due);
    assert_eq!(outcome.response_censored.waiting.len(), outcome.queued);
    assert_eq!(response(&outcome).len(), outcome.due);
    // Of 400 that were due, at least half were due in the hang, which is 20 requests after the
    // start: the median depends on them.
    assert!(response(&outcome).quantile(0.9).is_lower_bound);
}

#[test]
fn a_rate_of_twice_the_capacity_is_not_reached_and_the_queue_is_told() {
    let worker = Mutex::new(());
    let server = Server::start(move |mut guest| {
        while guest.request().is_some() {
            let _one_at_a_time = worker.lock().expect("sound");
            sleep(ms(2));
            guest.send(HELLO);
        }
    });
    let mut plan = for_so_long(&server, 4, ms(1_500));
    plan.pace = Pace::Constant { rate: 1_000.0 };
    let outcome = run(&plan).expect("a load");
    none_is_lost(&outcome);
    let found = outcome.open_loop().expect("an open loop");
    let window_s = outcome.window_ns as f64 / 1e9;
    assert!((found.offered_per_s - 1_000.0).abs() < 2.0, "{found:?}");
    // 500 a second and no more, and four that were on their way at the end.
    assert!(found.reached_per_s <= 500.0 + 4.0 / window_s, "{found:?}");
    assert!(found.is_behind);
    assert_eq!(sent(&outcome) + outcome.queued, outcome.due);
    assert_eq!(found.waiting, outcome.due - outcome.answers);
    assert!((found.growth_per_s - found.waiting as f64 / window_s).abs() < 1e-6);
    // They are due a millisecond apart, the oldest before all that were not sent.
    assert!(found.oldest_ns >= (outcome.queued - 1) * MS, "{found:?}");
    assert_eq!(response(&outcome).len(), outcome.due);
    assert!(response(&outcome).quantile(0.9).is_lower_bound);
}

#[test]
fn a_rate_that_is_reached_has_no_queue() {
    let server = hangs(usize::MAX, Duration::ZERO);
    let mut plan = for_so_long(&server, 8, ms(300));
    plan.pace = Pace::Constant { rate: 100.0 };
    plan.ramp = ms(50);
    let outcome = run(&plan).expect("a load");
    none_is_lost(&outcome);
    let found = outcome.open_loop().expect("an open loop");
    assert!(!found.is_behind && found.waiting <= 8, "{found:?}");
    assert!(!response(&outcome).quantile(0.5).is_lower_bound);
}

/// A hang of a second was cut to the laps' length, and in laps without an answer there was nothing.
#[test]
fn a_hang_that_spans_laps_is_as_long_as_all_of_them() {
    let server = hangs(20, ms(1_000));
    let session = Session::hold(&server.plan(4, 1)).expect("a load");
    assert!(session.window().is_some());
    let mut all: Option<Outcome> = None;
    let mut still = 0;
    for _ in 0..14 {
        let window = session.turn(Duration::ZERO, ms(100));
        sleep(window.closes.expect("an end").saturating_duration_since(Instant::now()));
        let lap = session.collect().expect("an outcome");
        let (entered, open) = (&lap.service_censored.entered, &lap.service_censored.open);
        assert_eq!(sent(&lap) + entered.len(), lap.answers + open.len());
        if lap.answers == 0 {
            still += 1;
            assert_eq!((entered.len(), open.len()), (4, 4));
            assert!(service(&lap).quantile(0.5).is_lower_bound);
        }
        match &mut all {
            None => all = Some(lap),
            Some(all) => all.merge(&lap),
        }
    }
    let all = service(&all.expect("some laps"));
    assert!(still >= 3, "{still} laps without an answer");
    assert!(all.longest().ns >= 500 * MS, "{:?}", all.longest());
}

/// The search for overdue requests began anew with each window and never came to it in short ones:
/// a request could hang for ever.
#[test]
fn a_request_of_a_held_load_fails_when_its_time_is_up() {
    let server = Server::start(|mut guest| guest.drain());
    let mut plan = server.plan(2, 1);
    plan.timeout = ms(500);
    let session = Session::hold(&plan).expect("a load");
    assert!(session.window().is_some());
    for _ in 0..60 {
        let window = session.turn(Duration::ZERO, ms(12));
        sleep(window.closes.expect("an end").saturating_duration_since(Instant::now()));
    }
    let outcome = session.collect().expect("an outcome");
    assert!(outcome.failures.of(Failure::Timeout) >= 2, "{:?}", outcome.failures);
    assert!(service(&outcome).longest().ns >= 500 * MS);
}
