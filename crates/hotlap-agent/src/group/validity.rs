//! Whether several generators measured one load together.

use std::time::Duration;

use hotlap_load::plan::{Plan, Stop};

use super::outcome::{GeneratorOutcome, Invalid};

/// A generator may begin this much later than agreed, as a share of the window.
const LATE: f64 = 0.01;

/// The same for a load that ends after a number of requests.
const LATE_BY: Duration = Duration::from_millis(10);

/// The least share of the time of all windows together in which all of them are open.
const OVERLAP: f64 = 0.9;

/// The least part of its share of the requests that each generator must complete.
const SHARE: f64 = 0.9;

/// Requests that are missing by chance: this many standard deviations of a Poisson distribution.
const DEVIATIONS: f64 = 3.0;

/// A generator may stand still for this long. A thread that wants to run waits less on a host that
/// is merely busy.
const PAUSED: Duration = Duration::from_millis(200);

/// Everything that makes a measurement invalid.
pub(super) fn judge(plan: &Plan, generators: &[GeneratorOutcome]) -> Vec<Invalid> {
    let mut found = Vec::new();
    let allowed = match plan.stop {
        Stop::After(length) => length.mul_f64(LATE),
        Stop::Requests(_) => LATE_BY,
    };
    for generator in generators {
        let (command, by) = (generator.command.clone(), Duration::from_nanos(generator.late_ns));
        if by > allowed {
            found.push(Invalid::Late { command, by });
        }
    }
    // Of a number of requests, one generator may be done before another.
    if matches!(plan.stop, Stop::After(_)) {
        let share = overlap(generators);
        if share < OVERLAP {
            let error_ns = generators.iter().map(GeneratorOutcome::error_ns).max().unwrap_or(0);
            found.push(Invalid::Overlap { share, error: Duration::from_nanos(error_ns) });
        }
    }
    let loading = || generators.iter().filter(|generator| generator.share > 0.0);
    let total: u64 = loading().map(GeneratorOutcome::completed).sum();
    for generator in loading() {
        let expected = total as f64 * generator.share;
        let completed = generator.completed() as f64;
        if completed < expected * SHARE - DEVIATIONS * expected.sqrt() {
            let (command, of) = (generator.command.clone(), completed / expected);
            found.push(Invalid::Share { command, of });
        }
    }
    for generator in generators {
        let (command, time) =
            (generator.command.clone(), Duration::from_nanos(generator.paused_ns));
        if time > PAUSED {
            found.push(Invalid::Paused { command, time });
        }
    }
    found
}

/// The share of the time of all windows together in which all of them were open whatever the errors
/// of the clocks, 0 to 1.
pub(super) fn overlap(generators: &[GeneratorOutcome]) -> f64 {
    let opened = generators.iter().map(|g| g.opened_ns + g.before.error_ns).max().unwrap_or(0);
    let closed = generators.iter().map(|g| g.closed_ns.saturating_sub(g.after.error_ns)).min();
    let first = generators.iter().map(|g| g.opened_ns).min().unwrap_or(0);
    let last = generators.iter().map(|g| g.closed_ns).max().unwrap_or(0);
    let shared = closed.unwrap_or(0).saturating_sub(opened);
    shared as f64 / last.saturating_sub(first).max(1) as f64
}

#[cfg(test)]
mod tests {
    use hotlap_load::plan::{Endpoint, Request, Target};

    use super::*;
    use crate::clock::Offset;

    const MS: u64 = 1_000_000;

    fn plan() -> Plan {
        let target = Target::plain(Endpoint::Tcp(([127, 0, 0, 1], 80).into()));
        Plan {
            stop: Stop::After(Duration::from_secs(1)),
            ..Plan::new(target, Request::get("/", "t"))
        }
    }

    /// Two generators that measured one second together.
    fn two() -> Vec<GeneratorOutcome> {
        let one = |command: &str| GeneratorOutcome {
            command: command.to_owned(),
            share: 0.5,
            responses: 10_000,
            opened_ns: 5_000 * MS,
            closed_ns: 6_000 * MS,
            ..GeneratorOutcome::default()
        };
        vec![one("ssh a"), one("ssh b")]
    }

    fn reasons(change: impl Fn(&mut GeneratorOutcome)) -> Vec<String> {
        let mut generators = two();
        change(&mut generators[1]);
        judge(&plan(), &generators).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn generators_that_measured_together_are_valid() {
        assert!(reasons(|_| {}).is_empty());
        assert!(reasons(|g| g.late_ns = 9 * MS).is_empty());
        assert!(reasons(|g| g.responses = 8_800).is_empty());
        assert!(reasons(|g| g.opened_ns += 90 * MS).is_empty());
        assert!(reasons(|g| g.paused_ns = 199 * MS).is_empty());
    }

    #[test]
    fn a_late_start_is_invalid() {
        let found = reasons(|g| g.late_ns = 11 * MS);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("ssh b began 11 ms late. "), "{found:?}");
    }

    #[test]
    fn too_little_overlap_is_invalid_and_so_is_an_uncertain_one() {
        let found = reasons(|g| g.opened_ns += 150 * MS);
        let expected = "all generators measured together for 85 % of the time only";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
        // The windows seem to agree, but no clock is known well enough.
        let found = reasons(|g| {
            g.before = Offset { ns: 0, error_ns: 60 * MS };
            g.after = g.before;
        });
        assert!(found.len() == 1 && found[0].contains("88 %"), "{found:?}");
        assert!(found[0].contains("within 60.0 ms"), "{found:?}");
        // Windows of different hours.
        let found = reasons(|g| {
            g.opened_ns += 3_600_000 * MS;
            g.closed_ns += 3_600_000 * MS;
        });
        assert!(found.len() == 1 && found[0].contains("for 0 %"), "{found:?}");
    }

    #[test]
    fn a_number_of_requests_needs_no_overlap() {
        let mut generators = two();
        generators[1].closed_ns += 800 * MS;
        let plan = Plan { stop: Stop::Requests(20_000), ..plan() };
        assert_eq!(judge(&plan, &generators), []);
    }

    #[test]
    fn too_small_a_share_is_invalid_unless_it_may_be_chance() {
        let found = reasons(|g| g.responses = 7_000);
        assert!(found.len() == 1 && found[0].starts_with("ssh b completed 82 % "), "{found:?}");
        // Failures are completed too.
        assert!(reasons(|g| (g.responses, g.failures) = (0, 10_000)).is_empty());
        let mut few = two();
        (few[0].responses, few[1].responses) = (20, 12);
        assert_eq!(judge(&plan(), &few), []);
    }

    #[test]
    fn a_sampler_has_no_share_but_must_sample_what_the_others_load() {
        let mut generators = two();
        let sampler = GeneratorOutcome { share: 0.0, responses: 100, ..generators[0].clone() };
        generators.push(sampler);
        assert_eq!(judge(&plan(), &generators), []);
        generators[2].closed_ns -= 200 * MS;
        assert!(matches!(judge(&plan(), &generators)[..], [Invalid::Overlap { .. }]));
    }

    #[test]
    fn a_generator_that_stood_still_is_invalid() {
        let found = reasons(|g| g.paused_ns = 300 * MS);
        assert!(
            found.len() == 1 && found[0].starts_with("ssh b stood still for 300 ms"),
            "{found:?}"
        );
    }
}
