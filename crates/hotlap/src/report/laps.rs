//! Every start and every lap of a run, rounded for export.

use hotlap_bench::lap::Contribution;
use hotlap_stats::{Concurrency, Percentile, Survival};
use serde::Serialize;
use serde_json::{Value, json};

use super::warnings;
use crate::analysis::latency::{Times, known};
use crate::model::{self, Run};
use crate::text::number::{count, rounded};

/// One start of a server.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartView {
    /// The name of the server.
    pub server: String,
    /// The number of the restart, from 1.
    pub restart: u32,
    /// Time to the first correct response, in milliseconds. `null` for a server that was already
    /// running.
    pub ready_ms: Option<f64>,
    /// Memory before any load, in MB. `null` if unknown.
    pub rss_mb: Option<f64>,
    /// The warm-ups that followed the start.
    pub warmups: Vec<WarmupView>,
}

/// One warm-up of a server.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WarmupView {
    /// The index of the load.
    pub load: usize,
    /// The class of the warm-up, in words.
    pub class: String,
    /// Time until the server was steady, in milliseconds.
    pub steady_ms: f64,
    /// The length of one window of the curve, in milliseconds.
    pub window_ms: f64,
    /// The number of responses per second in each window.
    pub curve: Vec<f64>,
}

/// One lap of a server.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LapView {
    /// The name of the server.
    pub server: String,
    /// The index of the load.
    pub load: usize,
    /// The number of the restart, from 1.
    pub restart: u32,
    /// The number of the round, from 1.
    pub round: u32,
    /// The position of the lap in its round, from 1.
    pub place: u32,
    /// The rate of an open loop, in requests/s. `null` for a closed loop.
    pub rate: Option<f64>,
    /// The time at which the lap began, in seconds since the run began.
    pub at_s: f64,
    /// The length of the lap's window, in seconds.
    pub window_s: f64,
    /// The number of correct responses.
    pub responses: u64,
    /// The number of failures.
    pub errors: u64,
    /// The number of correct responses per second.
    pub requests_per_s: f64,
    /// CPU time per request, in microseconds, not adjusted for the speed of the cores.
    pub cpu_us: Option<f64>,
    /// The mean time of a short system call on the server's cores during the lap, in nanoseconds.
    /// A slower core takes longer. `null` without a gauge, for example if the server is not
    /// pinned.
    pub gauge_ns: Option<f64>,
    /// Median latency in milliseconds, which is response time in an open loop. `null` if there were
    /// no requests.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of latency, in milliseconds. `null` if there are too few samples.
    pub p99_ms: Option<f64>,
    /// The longest latency, in milliseconds. `null` if there were no requests.
    pub max_ms: Option<f64>,
    /// Which of `p50`, `p99` and `max` are lower bounds, because they depend on requests without a
    /// response.
    pub lower_bounds: Vec<String>,
    /// Resident memory of the process tree, in MB.
    pub rss_mb: Option<f64>,
    /// Proportional memory of the process tree, in MB.
    pub pss_mb: Option<f64>,
    /// CPU use of the process tree, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// How busy the busiest generator thread was, in per cent.
    pub generator_percent: f64,
    /// The contribution of each of several generators, in the order of `host.generators`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub generators: Vec<ContributionView>,
    /// The number of correct responses in each tenth of a second.
    pub series_responses: Vec<u64>,
    /// The mean latency in each tenth of a second, in milliseconds. `null` without responses.
    pub series_mean_ms: Vec<Option<f64>>,
    /// The longest latency in each tenth of a second, in milliseconds. `null` without responses.
    pub series_max_ms: Vec<Option<f64>>,
    /// The failed validity checks, in words. Empty if the lap passed all checks.
    pub doubts: Vec<String>,
    /// Whether the lap counts in estimates.
    pub counts: bool,
}

/// A column of the page's table of laps: its heading, and its value for a lap.
pub type LapColumn = (&'static str, fn(&LapView) -> Value);

/// The heading of the column that shows the contributions of several generators.
const BY_GENERATOR: &str = "by generator";

/// The columns that follow the column of servers.
const COLUMNS: &[LapColumn] = &[
    ("load", |l| json!(l.load + 1)),
    ("restart", |l| json!(l.restart)),
    ("round", |l| json!(l.round)),
    ("place", |l| json!(l.place)),
    ("at s", |l| json!(l.at_s)),
    ("rate due", |l| json!(l.rate)),
    ("requests/s", |l| json!(l.requests_per_s)),
    ("CPU µs/request", |l| json!(l.cpu_us)),
    ("p50 ms", |l| json!(l.p50_ms)),
    ("p99 ms", |l| json!(l.p99_ms)),
    ("max ms", |l| json!(l.max_ms)),
    ("memory MB", |l| json!(l.rss_mb)),
    ("CPU %", |l| json!(l.cpu_percent)),
    ("generator %", |l| json!(l.generator_percent)),
    (BY_GENERATOR, |l| json!(by_generator(l))),
    ("errors", |l| json!(l.errors)),
    ("doubts", |l| json!(l.doubts.join("; "))),
];

/// Lists how many correct responses each generator received. Empty if there was only one
/// generator.
fn by_generator(lap: &LapView) -> String {
    lap.generators.iter().map(|own| count(own.responses)).collect::<Vec<_>>().join(" + ")
}

/// The contribution of one of several generators to a lap.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContributionView {
    /// The number of correct responses.
    pub responses: u64,
    /// The number of failures.
    pub errors: u64,
    /// The number of requests since the connections were opened, inside and outside the windows.
    pub sent: u64,
    /// The longest delay between the agreed time and the generator's start, in milliseconds.
    pub late_ms: f64,
    /// The longest time for which the generator stalled, in milliseconds. Stalls of less than 50 ms
    /// are not noticed.
    pub paused_ms: f64,
    /// How busy the generator's busiest thread was, in per cent.
    pub busy_percent: f64,
}

impl ContributionView {
    fn of(own: &Contribution) -> Self {
        Self {
            responses: own.responses,
            errors: own.failures,
            sent: own.sent,
            late_ms: rounded(own.late_ns as f64 / 1e6),
            paused_ms: rounded(own.paused_ns as f64 / 1e6),
            busy_percent: rounded(own.busy * 100.0),
        }
    }
}

impl StartView {
    /// Converts a start of a run, and rounds its figures.
    pub(super) fn of(run: &Run, start: &model::Start) -> Self {
        Self {
            server: run.servers[start.server].name.clone(),
            restart: start.restart + 1,
            ready_ms: start.ready.ready_ms.map(rounded),
            rss_mb: start.ready.rss_bytes.map(|bytes| rounded(bytes as f64 / 1e6)),
            warmups: start
                .warmups
                .iter()
                .map(|w| WarmupView {
                    load: w.load,
                    class: warnings::class(w.class).to_owned(),
                    steady_ms: rounded(w.steady_ms),
                    window_ms: rounded(w.window_ms),
                    curve: w.curve.iter().map(|r| rounded(*r)).collect(),
                })
                .collect(),
        }
    }
}

impl LapView {
    /// Returns the columns that a table of these laps needs, after the column of servers.
    pub fn columns(laps: &[Self]) -> Vec<LapColumn> {
        let has_generators = laps.iter().any(|lap| !lap.generators.is_empty());
        let is_needed = |column: &LapColumn| has_generators || column.0 != BY_GENERATOR;
        COLUMNS.iter().copied().filter(is_needed).collect()
    }

    /// Converts a lap of a run, and rounds its figures.
    pub(super) fn of(run: &Run, lap: &model::Lap) -> Self {
        let (answered, censored) = Times::of(lap, lap.rate().is_some());
        let times = Survival::new(answered, censored);
        let (p50, p99, longest) =
            (times.quantile(0.5), known(&times, 0.99, Concurrency::ONE), times.longest());
        let bound = |name: &str, of: Option<Percentile>| {
            of.filter(|found| found.is_lower_bound).map(|_| name.to_owned())
        };
        let bounds = [bound("p50", Some(p50)), bound("p99", p99), bound("max", Some(longest))];
        let some = |found: Percentile| (!times.is_empty()).then(|| rounded(found.ns as f64 / 1e6));
        let usage = lap.usage.as_ref();
        let megabytes = |bytes: u64| (bytes > 0).then(|| rounded(bytes as f64 / 1e6));
        let ms = |ns: f64| rounded(ns / 1e6);
        Self {
            server: run.servers[lap.server].name.clone(),
            load: lap.load,
            restart: lap.restart + 1,
            round: lap.round + 1,
            place: lap.place + 1,
            rate: lap.rate().map(rounded),
            at_s: lap.at_ms as f64 / 1e3,
            window_s: rounded(lap.outcome.window_ns as f64 / 1e9),
            responses: lap.outcome.responses,
            errors: lap.outcome.failures.total(),
            requests_per_s: rounded(lap.requests_per_s()),
            cpu_us: lap.cost_ns().map(|ns| rounded(ns / 1e3)),
            gauge_ns: usage.and_then(|usage| usage.gauged?.mean_ns()).map(rounded),
            p50_ms: some(p50),
            p99_ms: p99.map(|found| ms(found.ns as f64)),
            max_ms: some(longest),
            lower_bounds: bounds.into_iter().flatten().collect(),
            rss_mb: usage.and_then(|u| megabytes(u.memory.rss_bytes)),
            pss_mb: usage.and_then(|u| megabytes(u.memory.pss_bytes?)),
            cpu_percent: usage
                .filter(|u| u.wall_ns > 0)
                .and_then(|u| Some(rounded(u.cpu_ns? as f64 / u.wall_ns as f64 * 100.0))),
            generator_percent: rounded(lap.outcome.busiest() * 100.0),
            generators: lap.generators.iter().map(ContributionView::of).collect(),
            series_responses: lap.outcome.series.iter().map(|t| t.responses).collect(),
            series_mean_ms: lap
                .outcome
                .series
                .iter()
                .map(|t| (t.responses > 0).then(|| ms(t.sum_ns as f64 / t.responses as f64)))
                .collect(),
            series_max_ms: lap
                .outcome
                .series
                .iter()
                .map(|t| (t.responses > 0).then(|| ms(t.max_ns as f64)))
                .collect(),
            doubts: lap.failed.iter().map(warnings::violation).collect(),
            counts: lap.counts(),
        }
    }
}
