//! Little's law: whether rate, times and connections of a lap agree.

use hotlap_load::Outcome;
use hotlap_load::plan::Reuse;

use crate::lap::{Kind, Lap, Violation};
use crate::participant::Load;

/// Allowed deviation from Little's law, as a share. A convention (METHODOLOGY, *Validity checks*).
pub const LITTLE: f64 = 0.03;

/// Whether the server closes connections itself, so that most requests came on a new one.
pub fn is_reopened(outcome: &Outcome) -> bool {
    outcome.connections.reopened > outcome.responses / 2
}

/// Little's law (Little 1961): in a closed loop, requests in flight × window length = total time in
/// the system within the window. A request in flight at an edge counts for its time within the
/// window only, so a server that stalls at an edge does not violate the law.
pub fn littles_law(lap: &Lap, load: &Load) -> Option<Violation> {
    let o = &lap.outcome;
    if lap.kind != Kind::Flat || o.failures.total() > 0 {
        return None;
    }
    let asked_ns = (load.connections * load.pipeline) as f64 * o.window_ns.max(1) as f64;
    let served_ns = o.service_time.mean() * o.service_time.len() as f64;
    let by_law_ns = served_ns + o.edge_ages.at_close_ns as f64 - o.edge_ages.at_open_ns as f64;
    let off = (asked_ns - by_law_ns).abs() / asked_ns;
    // With a new connection for each request, closing the old one is not timed.
    let is_new = load.reuse == Reuse::Close || is_reopened(o);
    let between = if is_new { 0.10 } else { 0.0 };
    (off > LITTLE + between).then_some(Violation::LittlesLaw { off: off * 100.0 })
}

#[cfg(test)]
mod tests {
    use hotlap_load::{Failure, Phase};

    use super::*;
    use crate::scripted::Script;
    use crate::validity::judge;
    use crate::validity::tests::{ALL_NS, in_system, judged, lap_of, load};

    #[test]
    fn a_mean_that_rate_and_connections_contradict_fails_littles_law() {
        let violations = judged(|lap| {
            // As if a twentieth of the time in the system had been missed.
            let mut seen = hotlap_stats::Histogram::new();
            (0..10_000).for_each(|_| seen.record(3_040_000));
            lap.outcome.service_time = seen;
        });
        let [Violation::LittlesLaw { off }] = violations[..] else { panic!("{violations:?}") };
        assert!((4.5..5.5).contains(&off), "{off} %");
    }

    /// Regression: half a lap of stalling at its end violated Little's law and the lap was left
    /// out, so a long garbage collection went uncounted.
    #[test]
    fn a_server_that_stalls_at_an_edge_is_not_left_out() {
        let violations = judged(|lap| {
            let mut seen = hotlap_stats::Histogram::new();
            (0..5_000).for_each(|_| seen.record(3_200_000));
            lap.outcome.service_time = seen;
            lap.outcome.responses = 5_000;
            lap.outcome.bytes.received = 500_000;
            lap.outcome.bytes.responses = 500_000;
            lap.outcome.edge_ages.at_close_ns = 64 * 250_000_000;
        });
        assert_eq!(violations, []);
        let violations = judged(|lap| {
            lap.outcome.service_time = hotlap_stats::Histogram::new();
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

    /// Regression: requests in flight when the window opened counted in full.
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
            let mut lap = lap_of(Script::new(20_000.0, 40_000.0), Kind::Flat);
            in_system(&mut lap, by_law_ns);
            let violations = judge(&lap, &Load { reuse: Reuse::Close, ..load() });
            let failed = matches!(violations[..], [Violation::LittlesLaw { .. }]);
            assert_eq!(failed, fails, "closed by the client: {by_law_ns}: {violations:?}");
            // Or because the server closes each connection.
            lap.outcome.connections.reopened = 10_000;
            assert_eq!(judge(&lap, &load()), violations, "closed by the server: {by_law_ns}");
        }
    }

    #[test]
    fn each_request_of_a_pipeline_counts_in_littles_law() {
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), Kind::Flat);
        in_system(&mut lap, 4 * ALL_NS);
        assert_eq!(judge(&lap, &Load { pipeline: 4, ..load() }), []);
        assert!(matches!(judge(&lap, &load())[..], [Violation::LittlesLaw { .. }]));
    }

    #[test]
    fn littles_law_is_not_checked_at_a_rate_or_with_failures() {
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), Kind::Paced { rate: 4_000.0 });
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
        let mut lap = lap_of(Script::new(20_000.0, 40_000.0), Kind::Flat);
        assert_eq!(lap.outcome.responses, 10_000);
        for (reopened, expected) in [(0, false), (5_000, false), (5_001, true), (10_000, true)] {
            lap.outcome.connections.reopened = reopened;
            assert_eq!(is_reopened(&lap.outcome), expected, "{reopened}");
        }
    }
}
