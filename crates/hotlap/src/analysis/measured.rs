//! Computes the readings, levels and usage of one server under one load from its laps.

use std::collections::BTreeMap;

use hotlap_bench::lap::{Usage, is_silent, rates, readings};
use hotlap_bench::speed::Speed;
use hotlap_bench::validity::is_failing;
use hotlap_load::outcome::RequestOutcome;
use hotlap_load::{Failures, OpenLoop};
use hotlap_observe::HardwareCounts;
use hotlap_stats::{
    Concurrency, Estimate, Percentile, Rank, Reading, Share, Survival, median, totals,
};

use super::bias::{self, Unsteady};
use super::compare::ServerComparison;
use super::latency::{HIGH, Times, known, stall_shares};
use super::{Level, Measure, PerMeasure};
use crate::model::{Lap, Probed, Run, Violation, Warmup};

/// A server keeps up with an open loop if it responds to at least this share of the requests that
/// become due.
const KEEPS_UP: f64 = 0.98;

/// The figures of one server under one load.
#[derive(Debug)]
pub struct MeasuredServer {
    /// The ranks that the server may have.
    pub rank: Option<Rank>,
    /// The number of main laps that count, and the number of all main laps.
    pub laps: (u32, u32),
    /// Whether the generator was the limit in most laps of the server that count.
    pub generator_limited: bool,
    /// Whether the server serves the full rate of an open loop. Always false in a closed loop.
    pub keeps_up: bool,
    /// The number of wrong responses in all laps of the server. A server with wrong responses is
    /// neither compared nor ranked. Such a server has no figures if more requests failed than the
    /// validity checks allow in a lap.
    pub wrong: u64,
    /// The readings of each measure: CPU time and service time in nanoseconds, memory in bytes.
    /// Memory has one reading per restart, and percentiles one per restart with enough responses.
    /// The other measures have one reading per round.
    pub readings: PerMeasure<Vec<Reading>>,
    /// Whether any reading, and so the level, is a lower bound. Requests/s are a lower bound if the
    /// generator limits the server. The p50 and p99 are lower bounds if they depend on requests
    /// without a response. A latency that is a lower bound in any restart is not compared.
    pub is_lower_bound: PerMeasure<bool>,
    /// The level of each measure with its interval, in the unit of the readings.
    pub level: PerMeasure<Option<Estimate>>,
    /// CPU time per request in laps ÷ CPU time per request when the server ran alone, at the end of
    /// its warm-ups.
    pub of_alone: Option<Estimate>,
    /// The result of probes: the figures in slices ÷ the figures when the server is left running.
    pub probed: Option<Probed>,
    /// Why the server gets no rank, and no verdict except on memory. `None` if the server was
    /// steady.
    pub unsteady: Option<Unsteady>,
    /// The number of rounds in which the server sent no response.
    pub silent_rounds: u32,
    /// The comparison with the reference.
    pub against: Option<ServerComparison>,
    /// Service times at saturation, or response times in an open loop, over main laps that count.
    pub service: Times,
    /// Response times at the common rate over all laps that count, and the common rate.
    pub response: Option<(Times, f64)>,
    /// The high percentiles of response times at the common rate, in each lap that counts.
    pub response_laps: [Vec<Percentile>; HIGH.len()],
    /// How the common rate compares with the rate of responses, over laps at the common rate.
    pub open_loop: Option<OpenLoop>,
    /// The figures of each request, in the order of the load. Empty if the load has one request.
    pub requests: Vec<MeasuredRequest>,
    /// The usage of the server under the load.
    pub used: Used,
    /// The failures in all laps of the server.
    pub failures: Failures,
    /// The time to the first correct response, in milliseconds: the median of all starts.
    pub ready_ms: Option<f64>,
    /// The time to the steady state, in milliseconds: the median of all starts.
    pub steady_ms: Option<f64>,
}

/// The usage of a server under a load. Each figure is `None` if unknown.
#[derive(Debug, Default)]
pub struct Used {
    /// The maximum resident memory of the server's process tree, in bytes.
    pub rss_bytes: Option<u64>,
    /// The maximum proportional memory of the process tree, in bytes.
    pub pss_bytes: Option<u64>,
    /// CPU time of the server ÷ wall time: 1 is one core.
    pub cpu_share: Option<f64>,
    /// CPU time of the run's database ÷ wall time: 1 is one core.
    pub database_share: Option<f64>,
    /// Context switches per request.
    pub switches: Option<f64>,
    /// Instructions per request in user mode.
    pub instructions_user: Option<f64>,
    /// Instructions per request in the kernel.
    pub instructions_kernel: Option<f64>,
}

impl MeasuredServer {
    /// Computes the figures of a server under a load, which are neither compared nor ranked yet.
    /// `confidence` is the confidence of all intervals.
    pub(super) fn of(
        run: &Run,
        (load, server): (usize, usize),
        speed: &Speed,
        confidence: f64,
    ) -> Self {
        let offered = run.loads.get(load).and_then(|load| load.rate);
        let requests = run.loads.get(load).map_or(0, |load| load.requests.len());
        let is_own = |lap: &&Lap| lap.server == server && lap.load == load;
        let laps: Vec<&Lap> = run.laps.iter().filter(is_own).collect();
        let (main, paced): (Vec<&Lap>, Vec<&Lap>) =
            laps.iter().copied().partition(|lap| run.is_main(lap));
        let wrong = laps.iter().map(|lap| wrong(lap)).sum();
        // Laps with a wrong response are excluded. A level from the other laps would hide how often
        // the server fails.
        let is_faulty = wrong > 0 && is_failing(laps.iter().map(|lap| &lap.outcome));
        let counts = |lap: &&Lap| lap.counts() && !is_faulty;
        let good: Vec<&Lap> = main.iter().copied().filter(counts).collect();
        let paced: Vec<&Lap> =
            paced.into_iter().filter(counts).filter(|lap| has_responses(lap)).collect();
        let by_lap: Vec<Survival> = paced
            .iter()
            .map(|lap| Times::of(lap, true))
            .map(|(answered, censored)| Survival::new(answered, censored))
            .collect();
        let limited = good.iter().filter(|l| l.is_generator_limited()).count();
        let generator_limited = limited * 2 > good.len();
        let (mut readings, rests_on_unanswered) =
            readings_of(&good, offered, (speed, generator_limited));
        let mut failures = Failures::default();
        laps.iter().for_each(|lap| failures.merge(&lap.outcome.failures));
        let starts = || run.starts.iter().filter(move |start| start.server == server);
        let warmups = || starts().flat_map(|s| &s.warmups).filter(|w| w.load == load);
        let used = Used::of(&main, &good, &warmups().collect::<Vec<_>>());
        // The little CPU time of an idle database would differ by large factors.
        if run.loads.get(load).is_some_and(|load| load.leaves_database_idle) {
            readings.database.clear();
        }
        let middle = |values: Vec<f64>| median(&values);
        let level = |logs| Some(Level::of(run).mean(logs)?.exp(confidence));
        let is_own = |probed: &&Probed| probed.participant == server && probed.load == load;
        Self {
            rank: None,
            laps: (good.len() as u32, main.len() as u32),
            generator_limited,
            keeps_up: offered.is_some() && keeps_up(&good),
            wrong,
            level: PerMeasure::of(|measure| level(totals(&readings[measure]))),
            is_lower_bound: PerMeasure { requests_per_s: generator_limited, ..rests_on_unanswered },
            of_alone: level(bias::of_alone(run, (server, load), &readings.cost)),
            silent_rounds: readings.requests_per_s.iter().filter(|rate| is_silent(rate)).count()
                as u32,
            readings,
            probed: run.schedule.probed.iter().find(is_own).copied(),
            unsteady: None,
            against: None,
            service: Times::merged(good.iter().map(|lap| Times::of(lap, offered.is_some()))),
            response: paced
                .last()
                .and_then(|lap| lap.rate())
                .map(|rate| (Times::merged(paced.iter().map(|lap| Times::of(lap, true))), rate)),
            response_laps: HIGH.map(|q| by_lap.iter().map(|lap| lap.quantile(q)).collect()),
            open_loop: OpenLoop::over(paced.iter().map(|lap| &lap.outcome)),
            requests: MeasuredRequest::all_of(requests, &laps, &good, &paced),
            used,
            failures,
            ready_ms: middle(starts().filter_map(|start| start.ready.ready_ms).collect()),
            steady_ms: middle(warmups().map(|warmup| warmup.steady_ms).collect()),
        }
    }

    /// Whether verdicts in a measure are withheld because the server was not steady. Verdicts on
    /// memory are always given.
    pub(super) fn is_unsteady_in(&self, measure: Measure) -> bool {
        self.unsteady.is_some() && measure != Measure::Memory
    }

    /// Whether any lap of the server counts.
    pub fn is_measured(&self) -> bool {
        self.level[Measure::Rate].is_some()
    }
}

impl Used {
    /// Computes usage from all main laps, the main laps that count, and the warm-ups of all starts.
    fn of(main: &[&Lap], good: &[&Lap], warmups: &[&Warmup]) -> Self {
        let most = |bytes: fn(&Usage) -> Option<u64>| {
            let usages = main.iter().filter_map(|lap| lap.usage.as_ref());
            usages.filter_map(bytes).filter(|bytes| *bytes > 0).max()
        };
        let usages = || good.iter().filter_map(|lap| lap.usage.as_ref());
        let cpu = usages().filter_map(|usage| Some((usage.cpu_ns?, usage.wall_ns)));
        let database = usages().filter_map(|usage| Some((usage.database_ns?, usage.wall_ns)));
        let switches = usages()
            .filter_map(|usage| Some((usage.switches? + usage.preemptions?, usage.requests)));
        let instructions = |mode: fn(&HardwareCounts) -> Option<u64>| {
            let counts = warmups.iter().filter_map(|w| w.count).filter(|c| c.requests > 0);
            let each = counts.filter_map(|c| Some(mode(&c.counted)? as f64 / c.requests as f64));
            median(&each.collect::<Vec<_>>())
        };
        Self {
            rss_bytes: most(|usage| Some(usage.memory.rss_bytes)),
            pss_bytes: most(|usage| usage.memory.pss_bytes),
            cpu_share: quotient(cpu),
            database_share: quotient(database),
            switches: quotient(switches),
            instructions_user: instructions(|counted| Some(counted.instructions_user)),
            instructions_kernel: instructions(|counted| counted.instructions_kernel),
        }
    }
}

/// Returns the sum of all amounts divided by the sum of their denominators.
fn quotient(parts: impl Iterator<Item = (u64, u64)>) -> Option<f64> {
    let (sum, of) = parts.fold((0, 0), |(sum, of), (amount, by)| (sum + amount, of + by));
    (of > 0).then(|| sum as f64 / of as f64)
}

/// Returns the readings of all measures, from the laps that count. Also returns which measures have
/// a reading that is a lower bound, because it depends on requests without a response.
fn readings_of(
    laps: &[&Lap],
    offered: Option<f64>,
    (speed, generator_limited): (&Speed, bool),
) -> (PerMeasure<Vec<Reading>>, PerMeasure<bool>) {
    let mut restarts = BTreeMap::<u32, Vec<&Lap>>::new();
    for lap in laps {
        restarts.entry(lap.restart).or_default().push(lap);
    }
    let of_restart = |restart, value| Reading { restart, round: 0, share: Share::whole(value) };
    let quantiles = |q: f64| -> (Vec<Reading>, bool) {
        let reading = |(&restart, laps): (&u32, &Vec<&Lap>)| {
            let times = Times::merged(laps.iter().map(|lap| Times::of(lap, offered.is_some())));
            // The interval is computed over restarts, so samples within a restart may depend on one
            // another. A restart only needs samples beyond the percentile.
            let found = known(&times.survival(), q, Concurrency::ONE)?;
            Some((of_restart(restart, found.ns as f64), found.is_lower_bound))
        };
        let (readings, bounds): (_, Vec<bool>) = restarts.iter().filter_map(reading).unzip();
        (readings, bounds.contains(&true))
    };
    let memory = |(&restart, laps): (&u32, &Vec<&Lap>)| {
        let most = laps.iter().filter_map(|l| Some(l.usage.as_ref()?.memory.rss_bytes)).max();
        Some(of_restart(restart, most.filter(|bytes| *bytes > 0)? as f64))
    };
    let spent = |of: &dyn Fn(&Lap) -> Option<Share>| {
        let share = |lap: &&Lap| Some((lap.restart, lap.round, of(lap)?));
        readings(laps.iter().filter_map(share))
    };
    let responses =
        laps.iter().map(|lap| (lap.restart, lap.round, speed.rate_share(*lap, generator_limited)));
    let ((p50, is_p50_a_bound), (p99, is_p99_a_bound)) = (quantiles(0.5), quantiles(0.99));
    let readings = PerMeasure {
        requests_per_s: rates(responses),
        cost: spent(&|lap| speed.cost_share(lap)),
        database: spent(&|lap| lap.usage.as_ref()?.database_share()),
        total: spent(&|lap| speed.total_share(lap)),
        p50,
        p99,
        memory: restarts.iter().filter_map(memory).collect(),
    };
    let bounds = PerMeasure { p50: is_p50_a_bound, p99: is_p99_a_bound, ..PerMeasure::default() };
    (readings, bounds)
}

/// Whether a server responded to nearly all requests in laps at a rate. The edges of a lap may cut
/// off one response.
fn keeps_up(laps: &[&Lap]) -> bool {
    let due: u64 = laps.iter().map(|lap| lap.outcome.due).sum();
    let responses: u64 = laps.iter().map(|lap| lap.outcome.responses + 1).sum();
    !laps.is_empty() && responses as f64 >= KEEPS_UP * due as f64
}

/// Returns the number of wrong responses in a lap.
fn wrong(lap: &Lap) -> u64 {
    let of = |violation: &Violation| match violation {
        Violation::WrongAnswers { wrong, .. } => *wrong,
        _ => 0,
    };
    lap.failed.iter().map(of).sum()
}

/// Whether the lap has any response times, observed completely or not.
fn has_responses(lap: &Lap) -> bool {
    !lap.outcome.response_time.is_empty() || !lap.outcome.response_time_censored.is_empty()
}

/// The figures of one request of a load, on one server.
#[derive(Debug)]
pub struct MeasuredRequest {
    /// The place of the request among the requests of the load.
    pub place: usize,
    /// The number of correct responses in all laps.
    pub responses: u64,
    /// The number of failures in all laps, including wrong responses.
    pub failures: u64,
    /// Service times at saturation, or response times in an open loop, over main laps that count.
    pub service: RequestTimes,
    /// Response times at the common rate, over all laps that count. Empty without such laps.
    pub response: RequestTimes,
}

/// The times of one request on one server.
#[derive(Debug)]
pub struct RequestTimes {
    /// The distribution of the times.
    pub survival: Survival,
    /// The request's share of the requests that one stall delays, see [`stall_shares`].
    pub stall_share: f64,
}

impl MeasuredRequest {
    /// Returns the figures of the first `count` requests of a load. `laps` are all laps of a
    /// server, `good` its main laps that count, and `paced` its laps at the common rate that count.
    /// The list is empty if the laps do not tell requests apart.
    fn all_of(count: usize, laps: &[&Lap], good: &[&Lap], paced: &[&Lap]) -> Vec<Self> {
        if laps.iter().all(|lap| lap.outcome.by_request.is_empty()) {
            return Vec::new();
        }
        let sum = |place: usize, of: fn(&RequestOutcome) -> u64| -> u64 {
            laps.iter().filter_map(|lap| lap.outcome.by_request.get(place)).map(of).sum()
        };
        let times = times_of(count, good).into_iter().zip(times_of(count, paced));
        let requests = times.enumerate().map(|(place, (service, response))| Self {
            place,
            responses: sum(place, |own| own.responses),
            failures: sum(place, |own| own.failures),
            service,
            response,
        });
        requests.collect()
    }

    /// Returns the number of requests with a response or a failure, in all laps.
    pub fn requests(&self) -> u64 {
        self.responses + self.failures
    }
}

/// Returns the times of each request over all of the given laps.
fn times_of(count: usize, laps: &[&Lap]) -> Vec<RequestTimes> {
    let merged = |place: usize| {
        let mut times = Times::default();
        for own in laps.iter().filter_map(|lap| lap.outcome.by_request.get(place)) {
            own.latency.add_to(&mut times.answered);
            times.censored.merge(&own.censored);
        }
        times
    };
    let times: Vec<Times> = (0..count).map(merged).collect();
    let shares = stall_shares(&times.iter().map(|times| &times.answered).collect::<Vec<_>>());
    let both = times.iter().zip(shares);
    both.map(|(times, stall_share)| RequestTimes { survival: times.survival(), stall_share })
        .collect()
}
