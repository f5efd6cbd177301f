//! The outcomes of several generators, and why their sum may not be the outcome of one load.

use std::fmt;
use std::time::Duration;

use hotlap_load::Outcome;
use hotlap_load::outcome::Tick;
use hotlap_load::plan::{Plan, Stop};
use serde::Serialize;

use crate::clock::Offset;

/// How much later than agreed a generator may begin, as a share of the window.
const LATE: f64 = 0.01;

/// How much later than agreed a generator may begin if the load ends after a number of requests.
const LATE_BY: Duration = Duration::from_millis(10);

/// The smallest share of the windows' total time in which all generators' windows must be open.
const OVERLAP: f64 = 0.9;

/// The smallest part of its share that a generator must complete.
const SHARE: f64 = 0.9;

/// How many requests may be missing by chance, in standard deviations of a Poisson distribution.
const DEVIATIONS: f64 = 3.0;

/// How long a generator may stall. On a host that is merely busy, a runnable thread rarely waits
/// that long.
const PAUSED: Duration = Duration::from_millis(200);

/// A generator counts as silent after this many tenths of a second without a response.
const SILENT_TICKS: usize = 3;

/// The smallest number of expected responses for which a silence counts. With this many expected,
/// a silence happens by chance in fewer than one in 10⁸ cases (Poisson).
const EXPECTED: f64 = 20.0;

/// The contributions of several generators, and whether the generators measured one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Contributions {
    /// The generators that loaded the server.
    pub generators: Vec<GeneratorOutcome>,
    /// The generator that sampled latency during the load. It is not part of the sum.
    pub sampled: Option<Sampled>,
    /// The share of the windows' total time, 0 to 1, in which all generators' windows were
    /// certainly open.
    pub overlap: f64,
    /// Why the sum is not the outcome of one load. Empty if the sum is valid.
    pub invalid: Vec<Invalid>,
}

/// The measurements of a generator that sampled latency while others loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The generator.
    pub generator: GeneratorOutcome,
    /// What happened to the generator's requests.
    pub outcome: Outcome,
}

/// The contribution of one generator.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct GeneratorOutcome {
    /// The command that started the generator, as typed.
    pub command: String,
    /// The name of the generator's host.
    pub host: String,
    /// The number of the generator's connections.
    pub connections: usize,
    /// The number of the generator's threads.
    pub threads: usize,
    /// The share of the requests that the generator should complete, 0 to 1. 0 if it samples
    /// latency.
    pub share: f64,
    /// Correct responses within the window.
    pub responses: u64,
    /// Failures within the window.
    pub failures: u64,
    /// Requests sent, inside and outside of the window, except requests that the server refused to
    /// process.
    pub sent: u64,
    /// The offset of the generator's clock before the load.
    pub before: Offset,
    /// The offset of the generator's clock after the load.
    pub after: Offset,
    /// How much later than agreed the generator began, in nanoseconds.
    pub late_ns: u64,
    /// When the generator's window opened, in nanoseconds of the controller's monotonic clock.
    pub opened_ns: u64,
    /// When the generator's window closed, in nanoseconds of the controller's monotonic clock.
    pub closed_ns: u64,
    /// The longest time for which the generator stalled within the window, in nanoseconds.
    pub paused_ns: u64,
    /// The longest time for which only this generator got no response, in nanoseconds.
    pub silent_ns: u64,
    /// The share of the window in which the busiest thread had something to do, 0 to 1.
    pub busy: f64,
}

impl GeneratorOutcome {
    /// The number of requests that got a response or failed.
    pub fn completed(&self) -> u64 {
        self.responses + self.failures
    }

    /// The largest error of the clock's offset, in nanoseconds.
    pub fn error_ns(&self) -> u64 {
        self.before.error_ns.max(self.after.error_ns)
    }
}

/// Why the sum over several generators is not the outcome of one load.
#[derive(Debug, Clone, PartialEq)]
pub enum Invalid {
    /// A generator began too late.
    Late {
        /// The generator's command.
        command: String,
        /// How late the generator began.
        by: Duration,
    },
    /// The windows overlapped for too short a time.
    Overlap {
        /// The share of the time in which all windows were certainly open.
        share: f64,
        /// The largest error of a clock's offset.
        error: Duration,
    },
    /// A generator completed too few requests.
    Share {
        /// The generator's command.
        command: String,
        /// The completed requests, as a part of the generator's share.
        of: f64,
    },
    /// A generator got no response for a while, but the others did.
    Silent {
        /// The generator's command.
        command: String,
        /// How long the generator got no response.
        time: Duration,
    },
    /// A generator stalled.
    Paused {
        /// The generator's command.
        command: String,
        /// How long the generator stalled.
        time: Duration,
    },
}

impl Invalid {
    /// Describes what happened, as a clause.
    pub fn cause(&self) -> String {
        match self {
            Self::Late { command, by } => {
                format!("{command} began {:.0} ms late", by.as_secs_f64() * 1e3)
            }
            Self::Overlap { share, error } => format!(
                "the generators' measurements overlap for only {:.0}% of the time (clocks are \
                 known to within {:.1} ms)",
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
                format!("{command} stalled for {:.0} ms", time.as_secs_f64() * 1e3)
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
                "Check the generator's host and its connection to the server, or leave the \
                 generator out"
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

/// The longest time for which one of several generators got no response while the others did. 0 if
/// the silence may be chance. If no generator gets a response, the server is silent, which is a
/// valid result.
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
            // A tenth of a second without a response to any generator neither ends nor extends a
            // silence.
            0 => run + usize::from(others(at) > 0),
            _ => 0,
        };
        longest = longest.max(run);
    }
    let is_silent = longest >= SILENT_TICKS && longest as f64 * mean >= EXPECTED;
    if is_silent { longest as u64 * TICK_NS } else { 0 }
}

/// The limits that a valid measurement must not exceed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    /// How late a generator may begin.
    late: Duration,
    /// Whether all windows must have been open at the same time.
    overlaps: bool,
}

impl Limits {
    /// Returns the limits of a load with one window.
    pub(crate) fn of(plan: &Plan) -> Self {
        match plan.stop {
            Stop::After(length) => Self { late: length.mul_f64(LATE), overlaps: true },
            // One generator may reach its number of requests before another.
            Stop::Requests(_) => Self { late: LATE_BY, overlaps: false },
        }
    }

    /// Returns the limits of a held load. `windows` has the times at which the windows of one
    /// generator opened and closed.
    pub(crate) fn of_windows(windows: &[(u64, u64)]) -> Self {
        let shortest = windows.iter().map(|(opened, closed)| closed.saturating_sub(*opened)).min();
        let late = Duration::from_nanos(shortest.unwrap_or(0)).mul_f64(LATE);
        Self { late, overlaps: true }
    }
}

/// Returns everything that makes a measurement invalid. `overlap` is the share of the time in
/// which all windows were open.
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

/// Returns the share of the windows' total time, 0 to 1, in which all windows were open, whatever
/// the errors of the clocks. `windows` has the times at which the windows of each generator opened
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

    /// Returns two generators that measured during the same second.
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

    /// Judges generators that have one window each.
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
        let expected = "the generators' measurements overlap for only 85% of the time";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
        // The windows seem to agree, but the offset of one clock is not known well enough.
        let found = reasons(|g| {
            g.before = Offset { ns: 0, error_ns: 60 * MS };
            g.after = g.before;
        });
        assert!(found.len() == 1 && found[0].contains("88%"), "{found:?}");
        assert!(found[0].contains("within 60.0 ms"), "{found:?}");
        // The two windows are an hour apart.
        let found = reasons(|g| {
            g.opened_ns += 3_600_000 * MS;
            g.closed_ns += 3_600_000 * MS;
        });
        assert!(found.len() == 1 && found[0].contains("for only 0%"), "{found:?}");
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
        // Failures count as completed requests too.
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
        // The server itself is silent.
        assert_eq!(silent(&[90, 0, 0, 0, 90], &[90, 0, 0, 0, 90]), 0);
        // With few responses, gaps happen by chance.
        assert_eq!(silent(&[1, 0, 0, 0, 1], &[1, 1, 0, 1, 1]), 0);
        let found = reasons(|g| g.silent_ns = 2_000 * MS);
        let expected = "ssh b got no response for 2.0 s while the others did. ";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    }

    #[test]
    fn a_generator_that_stood_still_is_invalid() {
        let found = reasons(|g| g.paused_ns = 300 * MS);
        assert!(found.len() == 1 && found[0].starts_with("ssh b stalled for 300 ms"), "{found:?}");
    }

    #[test]
    fn every_window_of_a_load_that_is_held_must_overlap() {
        let generators = two();
        let windows = |last: (u64, u64)| vec![vec![(0, 300), (900, 1_200)], vec![(0, 300), last]];
        assert!((overlap(&generators, &windows((900, 1_200))) - 1.0).abs() < 1e-9);
        // The windows share 300 of 300, and 150 of 450.
        assert!((overlap(&generators, &windows((1_050, 1_350))) - 0.6).abs() < 1e-9);
        let limits = Limits::of_windows(&[(0, 300 * MS), (900 * MS, 1_200 * MS)]);
        assert_eq!(limits, Limits { late: Duration::from_millis(3), overlaps: true });
        assert!(matches!(judge(&limits, 0.6, &generators)[..], [Invalid::Overlap { .. }]));
    }
}
