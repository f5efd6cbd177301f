//! Tests of percentiles of censored times, at the limits of the formulas.

use hotlap_stats::{Ages, Censored, Histogram, Percentile, Survival};

fn of(times: impl IntoIterator<Item = u64>) -> Histogram {
    let mut histogram = Histogram::new();
    times.into_iter().for_each(|ns| histogram.record(ns));
    histogram
}

fn ages(times: impl IntoIterator<Item = u64>) -> Ages {
    times.into_iter().collect()
}

fn exact(ns: u64) -> Percentile {
    Percentile { ns, is_lower_bound: false }
}

fn bound(ns: u64) -> Percentile {
    Percentile { ns, is_lower_bound: true }
}

#[test]
fn the_longest_time_is_a_bound_if_a_request_without_a_response_is_as_old() {
    let longest = |open: &[u64], waiting: &[u64]| {
        let (open, waiting) = (ages(open.iter().copied()), ages(waiting.iter().copied()));
        let others = Censored { open, waiting, ..Censored::default() };
        Survival::new(&of([1_000, 1_500]), &others).longest()
    };
    assert_eq!(longest(&[], &[]), exact(1_500));
    assert_eq!(longest(&[1_499], &[1_400]), exact(1_500));
    assert_eq!(longest(&[1_500], &[]), bound(1_500));
    assert_eq!(longest(&[], &[1_501]), bound(1_501));
    assert_eq!(longest(&[1_600], &[1_700]), bound(1_700));
    // Without any request, the longest time is exactly 0.
    assert_eq!(Survival::new(&Histogram::new(), &Censored::default()).longest(), exact(0));
}

/// There are 98 responses and one waiting request. The quantile is computed as if this request
/// waited forever, and as if it ended now. The two results may differ by 1%.
#[test]
fn waiting_requests_make_a_bound_if_they_matter_by_more_than_one_percent() {
    // The responses take 1,000 to 1,097 ns, and the waiting request has age 1. If this request
    // ended now, the median would be the 50th of 99 times, 1,048 ns. If it never ends, the median
    // is the 50th response, 1,049 ns.
    let answered = of((0..98).map(|i| 1_000 + i));
    let others = Censored { waiting: ages([1]), ..Censored::default() };
    assert_eq!(Survival::new(&answered, &others).quantile(0.5), exact(1_049));
    // With steps of 20 ns between responses, the two medians differ by 20 of 2,000 ns, and then by
    // 20 of 1,999 ns.
    let from = |first: u64| {
        let answered = of((0..98).map(|i| first + 20 * i));
        Survival::new(&answered, &others).quantile(0.5)
    };
    assert_eq!(from(1_020), exact(2_000));
    assert_eq!(from(1_019), bound(1_979));
}

#[test]
fn a_bound_is_the_quantile_of_all_ages_seen() {
    // With 4 responses and 6 open requests, the median of ten is the fifth age.
    let open = ages([500, 600, 700, 800, 900, 1_000]);
    let survival =
        Survival::new(&of([100, 200, 300, 400]), &Censored { open, ..Censored::default() });
    assert_eq!((survival.len(), survival.is_empty()), (10, false));
    assert_eq!(survival.quantile(0.4), exact(400));
    assert_eq!(survival.quantile(0.41), bound(500));
    assert_eq!(survival.quantile(0.5), bound(500));
    assert_eq!(survival.quantile(0.51), bound(600));
    assert_eq!(survival.quantile(1.0), bound(1_000));
    assert_eq!(survival.quantile(0.0), exact(100));
}

/// Delayed entry (Klein and Moeschberger, section 4.6) is computed by hand. Responses come at 100,
/// 200 and 300. The request with the response at 300 was under way, at age 150, when the window
/// opened. At 100, the requests with responses at 100 and 200 are at risk. At 200, the requests
/// with responses at 200 and 300 are at risk.
#[test]
fn a_request_that_entered_late_is_at_risk_from_then_on() {
    let others = Censored { entered: ages([150]), ..Censored::default() };
    let survival = Survival::new(&of([100, 200, 300]), &others);
    // Survival is 1/2 after 100, 1/4 after 200, and 0 after 300.
    assert_eq!(survival.quantile(0.5), exact(100));
    assert_eq!(survival.quantile(0.51), exact(200));
    assert_eq!(survival.quantile(0.75), exact(200));
    assert_eq!(survival.quantile(0.76), exact(300));
    assert_eq!(survival.len(), 3);
}

/// A request that was open in one window and entered the next one is a single request.
#[test]
fn a_request_that_spans_windows_is_seen_once_at_its_last_age() {
    let open = ages([100, 100, 200, 300]);
    let entered = ages([100, 250]);
    let others = Censored { open, entered, ..Censored::default() };
    let survival = Survival::new(&Histogram::new(), &others);
    // One of the two requests open at 100 went on, and the request open at 200 entered at 250.
    assert_eq!(survival.len(), 2);
    assert_eq!(survival.quantile(0.5), bound(100));
    assert_eq!(survival.quantile(0.51), bound(300));
}

/// Requests in flight are censored at random, so the product-limit estimate holds, even if it is
/// far from the quantile of all ages.
#[test]
fn young_requests_in_flight_make_no_bound_however_many_there_are() {
    let others = Censored { open: ages([50, 50, 50]), ..Censored::default() };
    let survival = Survival::new(&of([100, 1_000]), &others);
    assert_eq!(survival.quantile(0.5), exact(100));
    assert_eq!(survival.quantile(0.6), exact(1_000));
}
