//! Validity checks: the figures of a lap must agree with each other. A lap that fails a check is
//! excluded, unless [`Violation::invalidates`] makes an exception.
//!
//! The checks are pure functions from a lap and its load to the failed checks. Facts that a lap
//! does not contain are passed to [`silence`] and [`side_effect`]. `hotlap_agent::outcome` checks
//! whether several generators measured one load. `local::instance::laps` combines all of these
//! checks.

use std::time::Duration;

use hotlap_load::plan::{Protocol, Reuse};
use hotlap_load::{Failure, Outcome};
use hotlap_stats::Histogram;

use crate::lap::{Lap, LapKind, Violation};
use crate::participant::Load;

/// How busy a generator thread may be, as a share of the window. This limit and the limits below
/// are conventions (METHODOLOGY, *Validity checks*).
pub const BUSY: f64 = 0.90;

/// The share of requests that may fail.
const FAILING: f64 = 0.01;

/// Allowed deviation from Little's law, as a share.
pub const LITTLE: f64 = 0.03;

/// How late requests may be sent at the 99th percentile, at a rate. The limit is a share of the
/// mean gap between two requests of one connection, or a time in nanoseconds if that is longer.
pub const LATE: (f64, u64) = (0.5, 200_000);

/// How long a server's host may be silent. A lost packet is sent again only after 0.2 s or more.
pub const SILENCE: Duration = Duration::from_millis(500);

/// Returns the validity checks that a lap fails. The limits are part of the method, so no option
/// changes them.
pub fn judge(lap: &Lap, load: &Load) -> Vec<Violation> {
    [
        wrong_answers(lap, load),
        failures(lap),
        connections(lap),
        streams(lap, load),
        bytes(lap, load),
        littles_law(lap, load),
        generator(lap),
        late(lap, load),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the validity checks of this module that a lap of a search fails. A search looks for
/// failures, wrong responses and endless queues, so only lateness excludes a lap here.
pub fn judge_trial(lap: &Lap, load: &Load) -> Vec<Violation> {
    late(lap, load).into_iter().collect()
}

/// Checks the number of lines that a server wrote. There must be enough lines for all responses,
/// and no more than for all requests sent. Some of these requests are in flight when a lap ends.
/// This check is separate from [`judge`] because the lines are counted outside of the lap.
pub fn side_effect(counted: u64, (least, most): (u64, u64)) -> Option<Violation> {
    let right = (least..=most).contains(&counted);
    (!right).then_some(Violation::SideEffect { expected: least, counted })
}

/// Checks the connection to the server's host. While the connection is down, the server looks slow.
/// This check is separate from [`judge`] because a lap does not record the silence.
pub fn silence(longest: Duration) -> Option<Violation> {
    (longest >= SILENCE).then_some(Violation::Silence { ms: longest.as_secs_f64() * 1e3 })
}

fn wrong_answers(lap: &Lap, load: &Load) -> Option<Violation> {
    let failures = &lap.outcome.failures;
    let wrong = failures.of(Failure::WrongBody)
        + failures.of(Failure::WrongStatus)
        + failures.of(Failure::BadFraming);
    let example = lap.outcome.first_wrong.as_ref().map_or_else(String::new, |w| {
        let response = String::from_utf8_lossy(&w.first_bytes);
        // If the load sends only one request, the example need not name the request.
        let request = w.method_and_path().filter(|_| load.request.is_none());
        let request = request.map_or_else(String::new, |request| format!("{request}: "));
        format!("{request}{}: {}", w.why, response.escape_debug())
    });
    (wrong > 0).then_some(Violation::WrongAnswers { wrong, example })
}

fn failures(lap: &Lap) -> Option<Violation> {
    let (failures, requests) = (lap.outcome.failures.total(), lap.outcome.requests());
    let most = lap.outcome.failures.most();
    is_failing([&lap.outcome]).then_some(Violation::Failures { failures, requests, most })
}

/// Whether more requests failed in these windows than `FAILING` allows. A server without responses
/// and without failures has stalled, and does not count as failing.
pub fn is_failing<'a>(windows: impl IntoIterator<Item = &'a Outcome>) -> bool {
    let (mut failures, mut requests) = (0, 0);
    for window in windows {
        failures += window.failures.total();
        requests += window.requests();
    }
    failures as f64 > requests as f64 * FAILING
}

fn connections(lap: &Lap) -> Option<Violation> {
    let c = lap.outcome.connections;
    // If a server closes each connection after its response, the number of open connections at one
    // moment means nothing.
    if is_reopened(&lap.outcome) {
        return None;
    }
    let most = lap.outcome.failures.most();
    (c.established < c.requested).then_some(Violation::Connections {
        asked: c.requested,
        up: c.established,
        most,
    })
}

fn streams(lap: &Lap, load: &Load) -> Option<Violation> {
    let (asked, open) = (load.shape.pipeline as u64, lap.outcome.connections.streams);
    let is_less = load.protocol == Protocol::Http2 && (1..asked).contains(&open);
    (lap.kind == LapKind::Flat && is_less).then_some(Violation::Streams { asked, open })
}

/// Checks that all bytes belong to correct responses, except for bytes in flight at the two edges
/// of each slice. At an edge, one response may be in flight on each connection in HTTP/1.1, and on
/// each stream in HTTP/2. Each response in flight may be as large as the largest response.
fn bytes(lap: &Lap, load: &Load) -> Option<Violation> {
    let o = &lap.outcome;
    if o.responses == 0 || o.failures.total() > 0 {
        return None;
    }
    let (expected, received) = (o.bytes.responses, o.bytes.received);
    let one = o.bytes.largest.max(expected.div_ceil(o.responses));
    let streams = if load.protocol == Protocol::Http2 { load.shape.pipeline as u64 } else { 1 };
    let slices = lap.usage.and_then(|usage| usage.slices).unwrap_or(1).max(1);
    let edges = one * o.connections.requested.max(1) * streams * u64::from(slices) * 2;
    (expected.abs_diff(received) > edges).then_some(Violation::Bytes { expected, received })
}

/// Whether the server closes connections itself, so that most requests came on a new connection.
fn is_reopened(outcome: &Outcome) -> bool {
    outcome.connections.reopened > outcome.responses / 2
}

/// Checks Little's law (Little 1961). In a closed loop, requests in flight × window length = total
/// time in the system within the window. A request in flight at an edge counts only for its time
/// within the window. A server that stalls at an edge therefore does not violate the law.
fn littles_law(lap: &Lap, load: &Load) -> Option<Violation> {
    let o = &lap.outcome;
    if lap.kind != LapKind::Flat || o.failures.total() > 0 {
        return None;
    }
    let asked_ns = load.shape.in_flight() as f64 * o.window_ns.max(1) as f64;
    let served_ns = o.service_time.mean() * o.service_time.len() as f64;
    let by_law_ns = served_ns + o.edge_ages.at_close_ns as f64 - o.edge_ages.at_open_ns as f64;
    let off = (asked_ns - by_law_ns).abs() / asked_ns;
    // If each request has a new connection, the time for closing the old one is not measured.
    let is_new = load.shape.reuse == Reuse::Close || is_reopened(o);
    let between = if is_new { 0.10 } else { 0.0 };
    (off > LITTLE + between).then_some(Violation::LittlesLaw { off: off * 100.0 })
}

fn generator(lap: &Lap) -> Option<Violation> {
    let busy = lap.outcome.busiest();
    // At a rate, lateness shows more directly whether the generator keeps up.
    (lap.kind == LapKind::Flat && busy > BUSY)
        .then_some(Violation::Generator { busy: busy * 100.0 })
}

fn late(lap: &Lap, load: &Load) -> Option<Violation> {
    let (LapKind::Paced { rate } | LapKind::Held { rate }) = lap.kind else { return None };
    let lag = &lap.outcome.lag;
    is_late(lag, load.shape.connections, rate)
        .then(|| Violation::Late { lag_us: lag.quantile(0.99) as f64 / 1e3 })
}

/// Whether a generator sent requests so late that its times are not the server's ([`LATE`]), with
/// this many connections at this rate.
pub fn is_late(lag: &Histogram, connections: usize, rate: f64) -> bool {
    let gap_ns = connections as f64 * 1e9 / rate;
    let limit_ns = (gap_ns * LATE.0).max(LATE.1 as f64);
    lag.quantile(0.99) as f64 > limit_ns
}

#[cfg(test)]
mod tests {
    use hotlap_load::Phase;
    use hotlap_load::outcome::WrongResponse;
    use hotlap_load::plan::Shape;

    use super::*;
    use crate::runner::Runner;
    use crate::scripted::{Script, Scripted};

    fn load() -> Load {
        Load::new(64)
    }

    fn lap_of(script: Script, kind: LapKind) -> Lap {
        let mut runner = Scripted::new(vec![script], vec![load()], Duration::from_millis(500));
        runner.whole_lap(0, 0, kind).unwrap()
    }

    /// Judges a valid lap after `spoil` has changed it.
    fn judged(spoil: impl FnOnce(&mut Lap)) -> Vec<Violation> {
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), LapKind::Flat);
        assert_eq!(judge(&lap, &load()), []);
        spoil(&mut lap);
        judge(&lap, &load())
    }

    /// Judges a lap at 4,000 requests/s in which every request was sent this late.
    fn paced(lag_ns: u64) -> Vec<Violation> {
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), LapKind::Paced { rate: 4_000.0 });
        (0..2_000).for_each(|_| lap.outcome.lag.record(lag_ns));
        judge(&lap, &load())
    }

    #[test]
    fn a_host_that_does_not_answer_for_half_a_second_fails_the_lap() {
        assert_eq!(silence(Duration::from_millis(499)), None);
        let failed = silence(Duration::from_millis(500)).unwrap();
        assert_eq!(failed, Violation::Silence { ms: 500.0 });
        assert!(failed.invalidates());
    }

    #[test]
    fn a_connection_that_never_came_up_fails_the_lap() {
        let violations = judged(|lap| {
            lap.outcome.connections.established = 63;
            lap.outcome.failures.add(Failure::ClosedEarly, Phase::FirstByte, 1);
        });
        let most = Some(Failure::ClosedEarly);
        assert_eq!(violations, [Violation::Connections { asked: 64, up: 63, most }]);
    }

    /// Regression: a server that allows one stream was shown as measured with eight streams, and
    /// its laps failed Little's law.
    #[test]
    fn fewer_streams_than_requested_fail_the_lap() {
        let shape = Shape { pipeline: 8, ..load().shape };
        let load = Load { protocol: Protocol::Http2, shape, ..load() };
        let with = |open: u64| {
            let mut lap = lap_of(fast(), LapKind::Flat);
            lap.outcome.connections.streams = open;
            judge(&lap, &load).into_iter().find(|v| matches!(v, Violation::Streams { .. }))
        };
        assert_eq!(with(1), Some(Violation::Streams { asked: 8, open: 1 }));
        assert_eq!((with(8), with(0)), (None, None));
    }

    /// Regression: all laps were excluded for a server that sends `Connection: close` each time.
    #[test]
    fn a_server_that_closes_its_connections_is_valid() {
        let violations = judged(|lap| {
            lap.outcome.connections.established = 50;
            lap.outcome.connections.reopened = 9_990;
        });
        assert_eq!(violations, []);
    }

    #[test]
    fn bytes_beyond_those_of_responses_fail_the_lap() {
        // Two responses per connection may be in flight at the edges: 2 × 64 × 100 bytes.
        assert_eq!(judged(|lap| lap.outcome.bytes.received += 12_800), []);
        let violations = judged(|lap| lap.outcome.bytes.received += 12_801);
        assert_eq!(violations, [Violation::Bytes { expected: 1_000_000, received: 1_012_801 }]);
    }

    /// Regression: the limit assumed responses of mean size, so correct laps with small and large
    /// responses were excluded.
    #[test]
    fn each_response_at_an_edge_may_be_the_largest() {
        let excess = |received| {
            judged(|lap| {
                lap.outcome.bytes.largest = 1_000;
                lap.usage.as_mut().unwrap().slices = Some(3);
                lap.outcome.bytes.received += received;
            })
        };
        assert_eq!(excess(3 * 128_000), []);
        assert_eq!(excess(3 * 128_000 + 1).len(), 1);
    }

    /// Regression: with 10 streams per connection, laps with correct responses were excluded.
    #[test]
    fn each_stream_may_have_a_response_at_the_edges() {
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), LapKind::Flat);
        let shape = Shape { pipeline: 10, ..load().shape };
        let load = Load { protocol: Protocol::Http2, shape, ..load() };
        lap.outcome.bytes.received += 128_000;
        assert_eq!(bytes(&lap, &load), None);
        lap.outcome.bytes.received += 1;
        assert!(matches!(bytes(&lap, &load), Some(Violation::Bytes { .. })));
    }

    #[test]
    fn a_busy_generator_makes_a_lap_a_lower_bound_without_dropping_it() {
        assert_eq!(judge(&lap_of(Script { busy: 0.90, ..fast() }, LapKind::Flat), &load()), []);
        let lap = lap_of(Script { busy: 0.96, ..fast() }, LapKind::Flat);
        assert_eq!(lap.failed, [Violation::Generator { busy: 96.0 }]);
        assert!(lap.counts());
    }

    fn fast() -> Script {
        Script::new(100_000.0, 8_000.0)
    }

    #[test]
    fn more_failures_than_one_in_a_hundred_fail_the_lap() {
        let failing = |count| {
            judged(|lap| lap.outcome.failures.add(Failure::Timeout, Phase::FirstByte, count))
        };
        assert_eq!(failing(101), []);
        assert_eq!(
            failing(102),
            [Violation::Failures { failures: 102, requests: 10_102, most: Some(Failure::Timeout) }]
        );
    }

    #[test]
    fn one_wrong_answer_fails_the_lap() {
        let violations = judged(|lap| {
            lap.outcome.failures.add(Failure::WrongBody, Phase::Body, 1);
            lap.outcome.first_wrong = Some(WrongResponse {
                why: "another body".to_owned(),
                first_bytes: b"HTTP/1.1 200\r\n".to_vec(),
                request: Vec::new(),
            });
        });
        let example = "another body: HTTP/1.1 200\\r\\n".to_owned();
        assert_eq!(violations, [Violation::WrongAnswers { wrong: 1, example }]);
        assert!(violations[0].invalidates());
    }

    #[test]
    fn a_wrong_answer_to_one_of_several_requests_names_it_by_method_and_path() {
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), LapKind::Flat);
        lap.outcome.failures.add(Failure::WrongStatus, Phase::Body, 1);
        lap.outcome.first_wrong = Some(WrongResponse {
            why: "status 500".to_owned(),
            first_bytes: b"HTTP/1.1 500\r\n".to_vec(),
            request: b"POST /orders HTTP/1.1\r\nAuthorization: Bearer a\r\n\r\nbody".to_vec(),
        });
        let example = |request| {
            let violations = judge(&lap, &Load { request, ..load() });
            let [Violation::WrongAnswers { example, .. }] = &violations[..] else {
                panic!("{violations:?}")
            };
            example.clone()
        };
        assert_eq!(example(None), "POST /orders: status 500: HTTP/1.1 500\\r\\n");
        assert_eq!(example(Some(0)), "status 500: HTTP/1.1 500\\r\\n");
    }

    #[test]
    fn a_log_that_lacks_a_line_or_has_one_too_many_fails_the_lap() {
        assert_eq!(side_effect(1_000, (1_000, 1_064)), None);
        assert_eq!(side_effect(1_064, (1_000, 1_064)), None);
        let failed = |counted| Some(Violation::SideEffect { expected: 1_000, counted });
        assert_eq!(side_effect(999, (1_000, 1_064)), failed(999));
        assert_eq!(side_effect(1_065, (1_000, 1_064)), failed(1_065));
    }

    #[test]
    fn a_generator_that_sends_late_fails_a_paced_lap() {
        // With 64 connections at 4,000/s, two requests of a connection are 16 ms apart. Half of
        // that is allowed.
        assert_eq!(paced(7_900_000), []);
        let violations = paced(8_100_000);
        let [Violation::Late { lag_us }] = violations[..] else { panic!("{violations:?}") };
        assert!((8_090.0..8_110.0).contains(&lag_us), "{lag_us} µs");
    }

    #[test]
    fn a_trial_is_only_invalid_if_the_generator_was_late() {
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), LapKind::Paced { rate: 4_000.0 });
        lap.outcome.failures.add(Failure::WrongStatus, Phase::Body, 2_000);
        lap.outcome.connections.established = 1;
        assert!(judge(&lap, &load()).len() > 1);
        assert_eq!(judge_trial(&lap, &load()), []);
        (0..2_000).for_each(|_| lap.outcome.lag.record(8_100_000));
        for kind in [LapKind::Paced { rate: 4_000.0 }, LapKind::Held { rate: 4_000.0 }] {
            let lap = Lap { kind, ..lap.clone() };
            assert!(matches!(judge_trial(&lap, &load())[..], [Violation::Late { .. }]));
        }
    }

    /// Sets the time in the system within the lap, in nanoseconds.
    fn in_system(lap: &mut Lap, by_law_ns: u64) {
        lap.outcome.service_time = Histogram::new();
        lap.outcome.edge_ages.at_close_ns = by_law_ns;
    }

    /// The total time in the system for 64 connections in 0.5 s.
    const ALL_NS: u64 = 64 * 500_000_000;

    #[test]
    fn bytes_are_compared_in_both_directions_and_by_the_largest_answer() {
        let of = |answered, received, asked| {
            judged(|lap| {
                lap.outcome.bytes.responses = answered;
                lap.outcome.bytes.received = received;
                (lap.outcome.connections.requested, lap.outcome.connections.established) =
                    (asked, asked);
            })
        };
        let failed = |expected, received| vec![Violation::Bytes { expected, received }];
        assert_eq!(of(1_000_000, 987_200, 64), []);
        assert_eq!(of(1_000_000, 987_199, 64), failed(1_000_000, 987_199));
        // 100.0001 bytes per response are rounded up, so the edges allow 2 × 64 × 101 bytes.
        assert_eq!(of(1_000_001, 1_000_001 + 12_928, 64), []);
        assert_eq!(of(1_000_001, 1_000_001 + 12_929, 64), failed(1_000_001, 1_012_930));
        // A load without connections still has two edges.
        assert_eq!(of(1_000_000, 1_000_200, 0), []);
        assert_eq!(of(1_000_000, 1_000_201, 0), failed(1_000_000, 1_000_201));
    }

    #[test]
    fn bytes_of_failed_requests_or_of_no_answer_are_not_compared() {
        let violations = judged(|lap| {
            lap.outcome.bytes.received *= 2;
            lap.outcome.failures.add(Failure::Timeout, Phase::FirstByte, 1);
        });
        assert_eq!(violations, []);
        let violations = judged(|lap| {
            in_system(lap, ALL_NS);
            lap.outcome.responses = 0;
        });
        assert_eq!(violations, []);
    }

    #[test]
    fn exactly_one_failure_in_a_hundred_requests_passes() {
        let failing = |failures| {
            judged(|lap| {
                lap.outcome.responses = 9_900;
                lap.outcome.failures.add(Failure::Timeout, Phase::FirstByte, failures);
            })
        };
        assert_eq!(failing(100), []);
        assert_eq!(
            failing(101),
            [Violation::Failures { failures: 101, requests: 10_001, most: Some(Failure::Timeout) }]
        );
        // The server sends no response, with and without failures.
        let silent = |failures| {
            judged(|lap| {
                in_system(lap, ALL_NS);
                lap.outcome.responses = 0;
                lap.outcome.failures.add(Failure::Timeout, Phase::FirstByte, failures);
            })
        };
        assert_eq!(silent(0), []);
        assert_eq!(
            silent(1),
            [Violation::Failures { failures: 1, requests: 1, most: Some(Failure::Timeout) }]
        );
    }

    #[test]
    fn wrong_answers_are_those_of_body_status_and_framing() {
        let wrong = |failures: &[(Failure, u64)]| {
            let violations = judged(|lap| {
                for (failure, count) in failures {
                    lap.outcome.failures.add(*failure, Phase::Body, *count);
                }
            });
            let [Violation::WrongAnswers { wrong, .. }] = violations[..] else { return 0 };
            wrong
        };
        let kinds = [(Failure::WrongBody, 1), (Failure::WrongStatus, 2), (Failure::BadFraming, 4)];
        for kind in kinds {
            assert_eq!(wrong(&[kind]), kind.1);
        }
        assert_eq!(wrong(&kinds), 7);
        assert_eq!(wrong(&[(Failure::Timeout, 8)]), 0);
    }

    #[test]
    fn the_busiest_thread_of_a_generator_counts_and_only_in_a_closed_loop() {
        let script = || Script { busy: 0.96, ..fast() };
        assert_eq!(lap_of(script(), LapKind::Paced { rate: 1_000.0 }).failed, []);
        let mut lap = lap_of(Script { busy: 0.5, ..fast() }, LapKind::Flat);
        assert_eq!(judge(&lap, &load()), []);
        let busy = lap_of(script(), LapKind::Flat).outcome.threads[0];
        lap.outcome.threads.insert(0, busy);
        assert_eq!(judge(&lap, &load()), [Violation::Generator { busy: 96.0 }]);
    }

    #[test]
    fn a_lag_at_the_limit_is_not_late() {
        let is_late_at = |lag_ns: u64, connections, rate| {
            let mut lag = Histogram::new();
            lag.record(lag_ns);
            is_late(&lag, connections, rate)
        };
        // The limit is half of the mean gap between two requests of a connection. 200,063 ns is the
        // upper end of a bucket. With 400,126 connections at 10⁹/s, the gap is twice as long.
        assert!(!is_late_at(200_063, 400_126, 1e9));
        assert!(is_late_at(200_063, 400_124, 1e9));
        // A lag of 200 µs is always allowed. With 64 connections at 10⁶/s, the gap is only 64 µs.
        assert!(!is_late_at(199_900, 64, 1e6));
        assert!(is_late_at(201_000, 64, 1e6));
        assert!(!is_late(&Histogram::new(), 64, 1e6));
    }

    #[test]
    fn a_mean_that_rate_and_connections_contradict_fails_littles_law() {
        let violations = judged(|lap| {
            // The times are as if a twentieth of the time in the system had been missed.
            let mut seen = Histogram::new();
            (0..10_000).for_each(|_| seen.record(3_040_000));
            lap.outcome.service_time = seen;
        });
        let [Violation::LittlesLaw { off }] = violations[..] else { panic!("{violations:?}") };
        assert!((4.5..5.5).contains(&off), "{off}%");
    }

    /// Regression: a stall over the second half of a lap violated Little's law. The lap was left
    /// out, so a long garbage collection went uncounted.
    #[test]
    fn a_server_that_stalls_at_an_edge_is_not_left_out() {
        let violations = judged(|lap| {
            let mut seen = Histogram::new();
            (0..5_000).for_each(|_| seen.record(3_200_000));
            lap.outcome.service_time = seen;
            lap.outcome.responses = 5_000;
            lap.outcome.bytes.received = 500_000;
            lap.outcome.bytes.responses = 500_000;
            lap.outcome.edge_ages.at_close_ns = 64 * 250_000_000;
        });
        assert_eq!(violations, []);
        let violations = judged(|lap| {
            lap.outcome.service_time = Histogram::new();
            lap.outcome.responses = 0;
            lap.outcome.edge_ages.at_close_ns = 64 * 500_000_000;
        });
        assert_eq!(violations, []);
    }

    #[test]
    fn three_percent_off_littles_law_pass_in_both_directions_and_more_fails() {
        for (by_law_ns, fails) in [
            (ALL_NS, false),
            (ALL_NS / 100 * 97, false),
            (ALL_NS / 100 * 97 - 1_000_000, true),
            (ALL_NS / 1_000 * 1_029, false),
            (ALL_NS / 1_000 * 1_031, true),
        ] {
            let violations = judged(|lap| in_system(lap, by_law_ns));
            let failed = matches!(violations[..], [Violation::LittlesLaw { .. }]);
            assert_eq!(failed, fails, "{by_law_ns} of {ALL_NS}: {violations:?}");
        }
    }

    /// Regression: requests in flight when the window opened were counted in full.
    #[test]
    fn time_before_the_window_is_not_in_littles_law() {
        let opened = |opens_ns| {
            judged(|lap| {
                in_system(lap, ALL_NS + 9_000_000_000);
                lap.outcome.edge_ages.at_open_ns = opens_ns;
            })
        };
        assert_eq!(opened(9_000_000_000), []);
        assert!(matches!(opened(0)[..], [Violation::LittlesLaw { .. }]));
    }

    #[test]
    fn with_a_connection_per_request_littles_law_allows_ten_percent_more() {
        for (by_law_ns, fails) in [
            (ALL_NS / 1_000 * 871, false),
            (ALL_NS / 1_000 * 869, true),
            (ALL_NS / 1_000 * 1_129, false),
            (ALL_NS / 1_000 * 1_131, true),
        ] {
            let mut lap = lap_of(Script::new(20_000.0, 40_000.0), LapKind::Flat);
            in_system(&mut lap, by_law_ns);
            let shape = Shape { reuse: Reuse::Close, ..load().shape };
            let violations = judge(&lap, &Load { shape, ..load() });
            let failed = matches!(violations[..], [Violation::LittlesLaw { .. }]);
            assert_eq!(failed, fails, "closed by the client: {by_law_ns}: {violations:?}");
            // The limit is the same if the server closes each connection.
            lap.outcome.connections.reopened = 10_000;
            assert_eq!(judge(&lap, &load()), violations, "closed by the server: {by_law_ns}");
        }
    }

    #[test]
    fn each_request_of_a_pipeline_counts_in_littles_law() {
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), LapKind::Flat);
        in_system(&mut lap, 4 * ALL_NS);
        let shape = Shape { pipeline: 4, ..load().shape };
        assert_eq!(judge(&lap, &Load { shape, ..load() }), []);
        assert!(matches!(judge(&lap, &load())[..], [Violation::LittlesLaw { .. }]));
    }

    #[test]
    fn littles_law_is_not_checked_at_a_rate_or_with_failures() {
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), LapKind::Paced { rate: 4_000.0 });
        in_system(&mut lap, 0);
        assert_eq!(judge(&lap, &load()), []);
        let violations = judged(|lap| {
            in_system(lap, 0);
            lap.outcome.failures.add(Failure::Timeout, Phase::FirstByte, 1);
        });
        assert_eq!(violations, []);
    }

    #[test]
    fn with_half_of_the_responses_on_new_connections_a_server_does_not_count_as_closing_them() {
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), LapKind::Flat);
        assert_eq!(lap.outcome.responses, 10_000);
        for (reopened, expected) in [(0, false), (5_000, false), (5_001, true), (10_000, true)] {
            lap.outcome.connections.reopened = reopened;
            assert_eq!(is_reopened(&lap.outcome), expected, "{reopened}");
        }
    }
}
