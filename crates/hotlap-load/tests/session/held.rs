//! Tests of held loads: only the windows count, and the time between windows does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::plan::{PlanFor, until};
use hotlap_load::plan::{Pace, Reuse};
use hotlap_load::{Session, Window};
use hotlap_testbed::{HELLO, TestServer};

fn correct() -> TestServer {
    TestServer::responding(HELLO)
}

fn wait_for_the_end_of(window: Window) {
    let closes = window.closes.expect("an end");
    std::thread::sleep(closes.saturating_duration_since(Instant::now()));
}

/// Regression: an outcome requested while a window was still open was never returned.
#[test]
fn only_the_windows_of_a_held_load_count() {
    const LENGTH: Duration = Duration::from_millis(20);
    let server = correct();
    let mut plan = server.plan(4, 1);
    plan.shape.threads = 2;
    let session = Session::start_held(&plan).expect("a load");
    assert!(session.wait_for_window().is_some());
    let mut sum = 0;
    for windows in [1, 3] {
        // On a busy machine, a window may pass without a response.
        until("there are responses in windows", || {
            for _ in 0..windows {
                let window = session.open_window(Duration::from_millis(5), LENGTH);
                assert_eq!(window.closes.expect("an end") - window.opens, LENGTH);
                wait_for_the_end_of(window);
            }
            let outcome = session.collect().expect("an outcome");
            assert!(outcome.window_ns > 0);
            assert_eq!(outcome.responses, outcome.service_time.len());
            assert_eq!(outcome.failures.total(), 0);
            assert_eq!(outcome.connections.established, 4);
            sum += outcome.responses;
            outcome.responses > 0
        });
    }
    until("there are responses between windows", || session.progress().responses > sum);
    let _ = session.open_window(Duration::ZERO, Duration::from_secs(60));
    session.stop();
    assert!(session.collect().is_none());
}

/// Regression: the schedule of a held open loop was dropped with the first outcome, so no more
/// requests were sent.
#[test]
fn a_held_load_cannot_keep_a_rate() {
    let mut plan = correct().plan(2, 1);
    plan.pace = Pace::Constant { rate: 100.0 };
    let error = Session::start_held(&plan).expect_err("an open loop").to_string();
    assert!(error.contains("cannot keep a rate"), "{error}");
}

#[test]
fn no_time_passes_between_the_windows_of_a_held_load() {
    const PAUSE: Duration = Duration::from_millis(1_500);
    let is_stopped = Arc::new(AtomicBool::new(false));
    let server = {
        let is_stopped = is_stopped.clone();
        TestServer::start(move |mut client| {
            while client.request().is_some() {
                while is_stopped.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if !client.send(HELLO) {
                    break;
                }
            }
        })
    };
    let mut plan = server.plan(3, 1);
    plan.timeout = Duration::from_secs(1);
    let began = Instant::now();
    let session = Session::start_held(&plan).expect("a load");
    assert!(session.wait_for_window().is_some());
    let next_window = || {
        wait_for_the_end_of(session.open_window(Duration::ZERO, Duration::from_millis(20)));
        session.collect().expect("an outcome")
    };
    let mut outcome = next_window();
    // The outcome is returned once the window is closed. The time until the next window does not
    // count.
    is_stopped.store(true, Ordering::SeqCst);
    std::thread::sleep(PAUSE);
    is_stopped.store(false, Ordering::SeqCst);
    outcome.merge(&next_window());
    let passed = began.elapsed() - PAUSE;
    let longest = Duration::from_nanos(outcome.service_time.max());
    assert!(longest <= passed, "{longest:?} of {passed:?}");
    // Requests may have timed out if the machine stalled for a second.
    assert!(outcome.failures.total() == 0 || passed >= plan.timeout, "{:?}", outcome.failures);
}

/// Regression: the count of established connections was reset with the first outcome, so later
/// windows seemed to have lost all connections.
#[test]
fn a_connection_for_each_request_keeps_the_count_of_those_established() {
    let mut plan = correct().plan(4, 1);
    plan.shape.reuse = Reuse::Close;
    let session = Session::start_held(&plan).expect("a load");
    assert!(session.wait_for_window().is_some());
    for _ in 0..2 {
        wait_for_the_end_of(session.open_window(Duration::ZERO, Duration::from_millis(20)));
        let outcome = session.collect().expect("an outcome");
        assert_eq!(outcome.connections.established, 4);
    }
}
