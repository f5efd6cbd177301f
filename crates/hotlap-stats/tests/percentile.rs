//! Percentiles at their limits: ages, censored times and the rule for samples.

use hotlap_stats::percentile::Together;
use hotlap_stats::{Ages, Censored, Histogram, Percentile, Survival};

const MS: u64 = 1_000_000;

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
fn ages_are_counted_merged_and_listed_in_order() {
    let mut all = ages([300, 100, 300]);
    assert_eq!((all.len(), all.max(), all.is_empty()), (3, 300, false));
    all.merge(&ages([200, 100]));
    assert_eq!(all.counts().collect::<Vec<_>>(), [(100, 2), (200, 1), (300, 2)]);
    assert_eq!((all.len(), all.max()), (5, 300));
    let none = Ages::default();
    assert_eq!((none.len(), none.max(), none.is_empty()), (0, 0, true));
}

#[test]
fn censored_times_of_two_workers_are_those_of_both() {
    let of = |open, entered, waiting| Censored {
        open: ages([open]),
        entered: ages([entered]),
        waiting: ages([waiting]),
    };
    let mut both = of(100, 200, 300);
    both.merge(&of(101, 201, 301));
    let counted = |ages: &Ages| ages.counts().map(|(ns, _)| ns).collect::<Vec<_>>();
    assert_eq!(counted(&both.open), [100, 101]);
    assert_eq!(counted(&both.entered), [200, 201]);
    assert_eq!(counted(&both.waiting), [300, 301]);
}

#[test]
fn a_request_that_was_under_way_when_a_window_opened_is_not_censored_by_it() {
    assert!(Censored::default().is_empty());
    assert!(Censored { entered: ages([1]), ..Censored::default() }.is_empty());
    assert!(!Censored { open: ages([1]), ..Censored::default() }.is_empty());
    assert!(!Censored { waiting: ages([1]), ..Censored::default() }.is_empty());
}

#[test]
fn at_least_one_request_is_delayed_and_at_most_all_in_flight() {
    let at = |in_flight, rate| Together { in_flight, rate }.at(10 * MS);
    assert_eq!((at(0, None), at(1, None), at(64, None)), (1, 1, 64));
    assert_eq!((at(64, Some(0.0)), at(64, Some(100.0)), at(64, Some(101.0))), (1, 1, 2));
    assert_eq!((at(64, Some(6_400.0)), at(64, Some(6_401.0))), (64, 64));
    assert_eq!(Together::ONE.at(u64::MAX), 1);
}

#[test]
fn the_longest_is_a_bound_if_an_unanswered_request_is_as_old() {
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
    // An answered request of 0 ns and none that is open.
    assert_eq!(Survival::new(&Histogram::new(), &Censored::default()).longest(), exact(0));
}

/// 98 answers, and some that wait: the quantiles with them unanswered for ever and with them ended
/// now may differ by 1 %.
#[test]
fn requests_that_wait_make_a_bound_where_they_matter_by_more_than_one_percent() {
    // Answers of 1,000 to 1,097 ns. One waits at age 1: as if it had ended, the median is the 50th
    // of 99 times, 1,048 ns, and if it never ends the 50th answer, 1,049 ns.
    let answered = of((0..98).map(|i| 1_000 + i));
    let others = Censored { waiting: ages([1]), ..Censored::default() };
    assert_eq!(Survival::new(&answered, &others).quantile(0.5), exact(1_049));
    // With steps of 20 ns between answers, they are 20 ns of 2,000 apart, and then 20 of 1,999.
    let from = |first: u64| {
        let answered = of((0..98).map(|i| first + 20 * i));
        Survival::new(&answered, &others).quantile(0.5)
    };
    assert_eq!(from(1_020), exact(2_000));
    assert_eq!(from(1_019), bound(1_979));
}

#[test]
fn a_bound_is_the_quantile_of_all_ages_seen() {
    // 4 answers and 6 that are open: the median of ten is the fifth age.
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

/// Delayed entry (Klein and Moeschberger, section 4.6), by hand: answers at 100, 200 and 300; one
/// that was under way at age 150 when the window opened (and was answered at 300). At 100 there are
/// two at risk, the answers at 100 and 200; at 200 there are two, those at 200 and 300.
#[test]
fn a_request_that_entered_late_is_at_risk_from_then_on() {
    let others = Censored { entered: ages([150]), ..Censored::default() };
    let survival = Survival::new(&of([100, 200, 300]), &others);
    // Survival: 1/2 after 100, 1/4 after 200, 0 after 300.
    assert_eq!(survival.quantile(0.5), exact(100));
    assert_eq!(survival.quantile(0.51), exact(200));
    assert_eq!(survival.quantile(0.75), exact(200));
    assert_eq!(survival.quantile(0.76), exact(300));
    assert_eq!(survival.len(), 3);
}

/// An age at which a request was open and one at which it entered the next window are one request.
#[test]
fn a_request_that_spans_windows_is_seen_once_at_its_last_age() {
    let open = ages([100, 100, 200, 300]);
    let entered = ages([100, 250]);
    let others = Censored { open, entered, ..Censored::default() };
    let survival = Survival::new(&Histogram::new(), &others);
    // Of the two open at 100 one went on, and the one at 200 entered at 250.
    assert_eq!(survival.len(), 2);
    assert_eq!(survival.quantile(0.5), bound(100));
    assert_eq!(survival.quantile(0.51), bound(300));
}

/// Without requests that were never sent there is nothing to compare: requests in flight are
/// censored at random, and the product-limit estimate holds, however far it is from all ages.
#[test]
fn young_requests_in_flight_make_no_bound_however_many_there_are() {
    let others = Censored { open: ages([50, 50, 50]), ..Censored::default() };
    let survival = Survival::new(&of([100, 1_000]), &others);
    assert_eq!(survival.quantile(0.5), exact(100));
    assert_eq!(survival.quantile(0.6), exact(1_000));
}
