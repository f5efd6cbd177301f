//! What several generators measured, and why that may not be the outcome of one load.

use std::fmt;
use std::time::Duration;

use hotlap_load::Outcome;
use hotlap_load::outcome::Tick;
use hotlap_load::plan::{Plan, Stop};
use serde::Serialize;

use crate::clock::Offset;

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

/// A generator may stall for this long. A thread that wants to run waits less on a host that
/// is merely busy.
const PAUSED: Duration = Duration::from_millis(200);

/// A generator may get no response for less than this many tenths of a second while others do.
const SILENT_TICKS: usize = 3;

/// That happens by chance if it gets few: with this many expected, in one of 10⁸ cases (Poisson).
const EXPECTED: f64 = 20.0;

/// What each of several generators contributed, and whether they measured one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Contributions {
    /// The generators.
    pub generators: Vec<GeneratorOutcome>,
    /// The one that sampled latency meanwhile. It is not part of the sum.
    pub sampled: Option<Sampled>,
    /// The share of the time of all windows together in which all of them were open for certain, 0
    /// to 1.
    pub overlap: f64,
    /// Why the sum is not the outcome of one load. Empty if it is.
    pub invalid: Vec<Invalid>,
}

/// What a generator saw that sampled latency while others loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The generator.
    pub generator: GeneratorOutcome,
    /// What happened to its requests.
    pub outcome: Outcome,
}

/// What one generator contributed.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct GeneratorOutcome {
    /// The command that started it, as typed.
    pub command: String,
    /// The name of its host.
    pub host: String,
    /// Its connections.
    pub connections: usize,
    /// Its threads.
    pub threads: usize,
    /// The share of the requests that it should complete, 0 to 1. 0 if it samples latency.
    pub share: f64,
    /// Correct responses within the window.
    pub responses: u64,
    /// Failures within the window.
    pub failures: u64,
    /// Requests sent, inside and outside of the window.
    pub sent: u64,
    /// The offset of its clock before the load.
    pub before: Offset,
    /// The offset of its clock after the load.
    pub after: Offset,
    /// How much later than agreed it began, in nanoseconds.
    pub late_ns: u64,
    /// When its window opened, in nanoseconds of the controller's monotonic clock.
    pub opened_ns: u64,
    /// When its window closed.
    pub closed_ns: u64,
    /// The longest time for which it stalled within the window, in nanoseconds.
    pub paused_ns: u64,
    /// The longest time for which it got no response while the others did, in nanoseconds.
    pub silent_ns: u64,
    /// The share of the window that its busiest thread was on a core, 0 to 1.
    pub busy: f64,
}

impl GeneratorOutcome {
    /// Requests that were answered or failed.
    pub fn completed(&self) -> u64 {
        self.responses + self.failures
    }

    /// How well its clock is known, in nanoseconds.
    pub fn error_ns(&self) -> u64 {
        self.before.error_ns.max(self.after.error_ns)
    }
}

/// Why the sum over several generators is not the outcome of one load.
#[derive(Debug, Clone, PartialEq)]
pub enum Invalid {
    /// A generator began too late.
    Late {
        /// Its command.
        command: String,
        /// By how much.
        by: Duration,
    },
    /// The windows were not open at the same time.
    Overlap {
        /// The share of the time in which all of them were open, for certain.
        share: f64,
        /// How well the clocks are known.
        error: Duration,
    },
    /// A generator completed too few requests.
    Share {
        /// Its command.
        command: String,
        /// What it completed, as a part of its share.
        of: f64,
    },
    /// A generator got no response for a while, but the others did.
    Silent {
        /// Its command.
        command: String,
        /// For how long.
        time: Duration,
    },
    /// A generator stalled.
    Paused {
        /// Its command.
        command: String,
        /// For how long.
        time: Duration,
    },
}

impl Invalid {
    /// What happened, as a clause.
    pub fn cause(&self) -> String {
        match self {
            Self::Late { command, by } => {
                format!("{command} began {:.0} ms late", by.as_secs_f64() * 1e3)
            }
            Self::Overlap { share, error } => format!(
                "all generators measured together for {:.0}% of the time only (clocks are known \
                 to within {:.1} ms)",
                share * 100.0,
                error.as_secs_f64() * 1e3
            ),
            Self::Share { command, of } => {
                format!("{command} completed {:.0}% of its share of the requests", of * 100.0)
            }
            Self::Silent { command, time } => format!(
                "{command} got no response for {:.1} s while the others did",
                time.as_secs_f64()
            ),
            Self::Paused { command, time } => {
                format!("{command} stood still for {:.0} ms", time.as_secs_f64() * 1e3)
            }
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Late { .. } => "Check that its host is not overloaded, and measure for longer",
            Self::Overlap { .. } => {
                "Measure for longer, or use a faster connection to the generators"
            }
            Self::Share { .. } => {
                "Check its host and its connection to the server, or leave it out"
            }
            Self::Silent { .. } => "Check its connection to the server",
            Self::Paused { .. } => "Check that its host is not overloaded or suspended",
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.cause(), self.remedy())
    }
}

/// The longest time for which one of several generators got no response, of so many that it cannot
/// be chance, while the others did. 0 if there was none. If none gets a response, the server is
/// silent, which is a result.
pub(crate) fn silent_ns(series: &[&[Tick]], index: usize) -> u64 {
    const TICK_NS: u64 = 100_000_000;
    let own = series[index];
    let mean = own.iter().map(|t| t.responses).sum::<u64>() as f64 / own.len().max(1) as f64;
    let others = |at: usize| {
        let ticks = series.iter().enumerate().filter(|(other, _)| *other != index);
        ticks.filter_map(|(_, ticks)| ticks.get(at)).map(|tick| tick.responses).sum::<u64>()
    };
    let (mut run, mut longest) = (0, 0);
    for (at, tick) in own.iter().enumerate() {
        run = match tick.responses {
            // A tenth in which no generator got a response neither ends a silence nor adds to it.
            0 => run + usize::from(others(at) > 0),
            _ => 0,
        };
        longest = longest.max(run);
    }
    let is_silent = longest >= SILENT_TICKS && longest as f64 * mean >= EXPECTED;
    if is_silent { longest as u64 * TICK_NS } else { 0 }
}

/// What a measurement must keep to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    /// How late a generator may begin.
    late: Duration,
    /// Whether all windows must have been open at the same time.
    overlaps: bool,
}

impl Limits {
    /// The limits of a load with one window.
    pub(crate) fn of(plan: &Plan) -> Self {
        match plan.stop {
            Stop::After(length) => Self { late: length.mul_f64(LATE), overlaps: true },
            // One generator may be done before another.
            Stop::Requests(_) => Self { late: LATE_BY, overlaps: false },
        }
    }

    /// The limits of a load with these windows of one generator, given by the times at which they
    /// opened and closed.
    pub(crate) fn of_windows(windows: &[(u64, u64)]) -> Self {
        let shortest = windows.iter().map(|(opened, closed)| closed.saturating_sub(*opened)).min();
        let late = Duration::from_nanos(shortest.unwrap_or(0)).mul_f64(LATE);
        Self { late, overlaps: true }
    }
}

/// Everything that makes a measurement invalid, in whose windows all generators were open together
/// for this share of the time.
pub(crate) fn judge(
    limits: &Limits,
    overlap: f64,
    generators: &[GeneratorOutcome],
) -> Vec<Invalid> {
    let mut found = Vec::new();
    for generator in generators {
        let (command, by) = (generator.command.clone(), Duration::from_nanos(generator.late_ns));
        if by > limits.late {
            found.push(Invalid::Late { command, by });
        }
    }
    if limits.overlaps && overlap < OVERLAP {
        let error_ns = generators.iter().map(GeneratorOutcome::error_ns).max().unwrap_or(0);
        found.push(Invalid::Overlap { share: overlap, error: Duration::from_nanos(error_ns) });
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
        if generator.silent_ns > 0 {
            let time = Duration::from_nanos(generator.silent_ns);
            found.push(Invalid::Silent { command: command.clone(), time });
        }
        if time > PAUSED {
            found.push(Invalid::Paused { command, time });
        }
    }
    found
}

/// The share of the time of all windows together in which all of them were open whatever the errors
/// of the clocks, 0 to 1. `windows` has those of each generator, by the times at which they opened
/// and closed.
pub(crate) fn overlap(generators: &[GeneratorOutcome], windows: &[Vec<(u64, u64)>]) -> f64 {
    let count = windows.iter().map(Vec::len).min().unwrap_or(0);
    let (mut shared, mut whole) = (0, 0);
    for number in 0..count {
        let each = || generators.iter().zip(windows.iter().map(|own| own[number]));
        let opened = each().map(|(g, (opened, _))| opened + g.before.error_ns).max().unwrap_or(0);
        let closed = each().map(|(g, (_, closed))| closed.saturating_sub(g.after.error_ns)).min();
        let first = each().map(|(_, (opened, _))| opened).min().unwrap_or(0);
        let last = each().map(|(_, (_, closed))| closed).max().unwrap_or(0);
        shared += closed.unwrap_or(0).saturating_sub(opened);
        whole += last.saturating_sub(first);
    }
    shared as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use hotlap_load::plan::{Endpoint, Request, Target};

    use super::*;

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

    /// Judges generators with one window each.
    fn judged(plan: &Plan, generators: &[GeneratorOutcome]) -> Vec<Invalid> {
        let windows: Vec<_> =
            generators.iter().map(|own| vec![(own.opened_ns, own.closed_ns)]).collect();
        judge(&Limits::of(plan), overlap(generators, &windows), generators)
    }

    fn reasons(change: impl Fn(&mut GeneratorOutcome)) -> Vec<String> {
        let mut generators = two();
        change(&mut generators[1]);
        judged(&plan(), &generators).iter().map(ToString::to_string).collect()
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
        let expected = "all generators measured together for 85% of the time only";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
        // The windows seem to agree, but no clock is known well enough.
        let found = reasons(|g| {
            g.before = Offset { ns: 0, error_ns: 60 * MS };
            g.after = g.before;
        });
        assert!(found.len() == 1 && found[0].contains("88%"), "{found:?}");
        assert!(found[0].contains("within 60.0 ms"), "{found:?}");
        // Windows of different hours.
        let found = reasons(|g| {
            g.opened_ns += 3_600_000 * MS;
            g.closed_ns += 3_600_000 * MS;
        });
        assert!(found.len() == 1 && found[0].contains("for 0%"), "{found:?}");
    }

    #[test]
    fn a_number_of_requests_needs_no_overlap() {
        let mut generators = two();
        generators[1].closed_ns += 800 * MS;
        let plan = Plan { stop: Stop::Requests(20_000), ..plan() };
        assert_eq!(judged(&plan, &generators), []);
    }

    #[test]
    fn too_small_a_share_is_invalid_unless_it_may_be_chance() {
        let found = reasons(|g| g.responses = 7_000);
        assert!(found.len() == 1 && found[0].starts_with("ssh b completed 82% "), "{found:?}");
        // Failures are completed too.
        assert!(reasons(|g| (g.responses, g.failures) = (0, 10_000)).is_empty());
        let mut few = two();
        (few[0].responses, few[1].responses) = (20, 12);
        assert_eq!(judged(&plan(), &few), []);
    }

    #[test]
    fn a_sampler_has_no_share_but_must_sample_what_the_others_load() {
        let mut generators = two();
        let sampler = GeneratorOutcome { share: 0.0, responses: 100, ..generators[0].clone() };
        generators.push(sampler);
        assert_eq!(judged(&plan(), &generators), []);
        generators[2].closed_ns -= 200 * MS;
        assert!(matches!(judged(&plan(), &generators)[..], [Invalid::Overlap { .. }]));
    }

    #[test]
    fn a_generator_that_alone_gets_no_response_is_invalid() {
        let ticks = |counts: &[u64]| -> Vec<Tick> {
            counts.iter().map(|n| Tick { responses: *n, ..Tick::default() }).collect()
        };
        let silent = |own: &[u64], other: &[u64]| silent_ns(&[&ticks(other), &ticks(own)], 1) / MS;
        assert_eq!(silent(&[90, 0, 0, 0, 90], &[90, 90, 90, 90, 90]), 300);
        assert_eq!(silent(&[90, 0, 0, 90, 90], &[90, 90, 90, 90, 90]), 0);
        assert_eq!(silent(&[90, 0, 0, 0, 0, 90], &[90, 90, 0, 90, 90, 90]), 300);
        // The server is silent.
        assert_eq!(silent(&[90, 0, 0, 0, 90], &[90, 0, 0, 0, 90]), 0);
        // Few responses, with gaps by chance.
        assert_eq!(silent(&[1, 0, 0, 0, 1], &[1, 1, 0, 1, 1]), 0);
        let found = reasons(|g| g.silent_ns = 2_000 * MS);
        let expected = "ssh b got no response for 2.0 s while the others did. ";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    }

    #[test]
    fn a_generator_that_stood_still_is_invalid() {
        let found = reasons(|g| g.paused_ns = 300 * MS);
        assert!(
            found.len() == 1 && found[0].starts_with("ssh b stood still for 300 ms"),
            "{found:?}"
        );
    }

    #[test]
    fn every_window_of_a_load_that_is_held_must_overlap() {
        let generators = two();
        let windows = |last: (u64, u64)| vec![vec![(0, 300), (900, 1_200)], vec![(0, 300), last]];
        assert!((overlap(&generators, &windows((900, 1_200))) - 1.0).abs() < 1e-9);
        // The windows share 300 of 300 and 150 of 450.
        assert!((overlap(&generators, &windows((1_050, 1_350))) - 0.6).abs() < 1e-9);
        let limits = Limits::of_windows(&[(0, 300 * MS), (900 * MS, 1_200 * MS)]);
        assert_eq!(limits, Limits { late: Duration::from_millis(3), overlaps: true });
        assert!(matches!(judge(&limits, 0.6, &generators)[..], [Invalid::Overlap { .. }]));
    }
}
