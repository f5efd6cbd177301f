//! The trials of the selftest. Each trial compares what hotlap measures with the true figures of a
//! test server. The benchmarks of the method also use the queues and the known costs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::anyhow;
use hotlap_bench::experiment::Experiment;
use hotlap_bench::lap::{Lap, LapKind};
use hotlap_bench::local::{LocalRunner, Setting};
use hotlap_bench::participant::{Load, Role};
use hotlap_bench::runner::Runner;
use hotlap_bench::slo::Objective;
use hotlap_load::Failure;
use hotlap_servers::launch::ServerFailure;
use hotlap_stats::{Estimate, Histogram, Verdict, samples_suffice};

use super::arena::Arena;
use super::bare::{self, Asking};
use super::claim::{Claim, Unit};
use crate::analysis::capacity::Highest;
use crate::analysis::{Analysis, CapacityAnalysis, Measure};

/// The number of connections, which is large enough that no request waits for another at half
/// load, even if each response takes 10 ms.
const CONNECTIONS: usize = 16;

/// The number of laps at half load.
const LAPS: u32 = 4;

/// The length of a lap. A single lap is enough for some trials.
const LAP: Duration = Duration::from_millis(500);

/// The time limit of a warm-up. The test servers need no warm-up.
const WARM: Duration = Duration::from_secs(1);

/// How long the pausing server works, and how long it pauses, in milliseconds.
const PAUSING: (u64, u64) = (3_000, 1_000);

/// The request rate for the pausing server, which can otherwise handle a hundred times as much.
const PAUSING_RATE: f64 = 500.0;

/// The CPU time per request, in nanoseconds, of the twins and of the server that costs exactly 3%
/// more.
const COST_NS: (u64, u64) = (40_000, 41_200);

/// The tolerance of a capacity, as a share. The search takes less than a quarter of the time that
/// `hotlap capacity` takes by default, so the result is less precise.
const CAPACITY: f64 = 0.06;

/// The tolerance of a ratio of CPU times.
const RATIO: f64 = 0.005;

/// A runner with a single server.
struct Alone<'a> {
    arena: &'a Arena,
    live: LocalRunner,
}

impl<'a> Alone<'a> {
    fn start(
        arena: &'a Arena,
        known: &str,
        lap: Duration,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let participants = [arena.participant(known, known, Role::Plain)];
        // The server is not frozen, because the minimal client needs it running.
        let setting = Setting { freeze: false, ..arena.setting(&[lap], WARM) };
        let loads = [Load::new(CONNECTIONS)];
        let mut live = LocalRunner::new(setting, &participants, &loads, Arc::clone(stop));
        live.bring_up(0).map_err(|why| told(known, &why))?;
        live.warm(0, 0, &mut |_| ()).map_err(|why| told(known, &why))?;
        Ok(Self { arena, live })
    }

    fn lap(&mut self, kind: LapKind) -> anyhow::Result<Lap> {
        self.live.whole_lap(0, 0, kind).map_err(|why| anyhow!("a test server failed: {why}"))
    }

    /// The times that the minimal client measures at `rate`, in microseconds.
    fn bare_us(&self, rate: f64) -> anyhow::Result<Vec<f64>> {
        let target = self.live.target(0).ok_or_else(|| anyhow!("a test server has ended"))?;
        let cpus = &self.arena.cores.generator;
        bare::times_us(target, &Asking { connections: CONNECTIONS, rate, cpus })
    }

    fn stop(mut self) {
        self.live.stop(&[0]);
    }
}

pub(super) fn told(known: &str, why: &ServerFailure) -> anyhow::Error {
    anyhow!("the test server {known} failed: {why} ({})", why.log_tail.join("; "))
}

/// Laps at half the rate that a server reaches, each followed by a run of the minimal client.
struct HalfLoad {
    laps: Vec<Lap>,
    /// The round trip in microseconds: the minimal client's lowest median, without the server's
    /// delay. A noisy neighbour can only make this time longer.
    way_us: f64,
    /// All times of the minimal client.
    bare: Histogram,
}

impl HalfLoad {
    /// Runs the laps against a server that delays each response by `hold_us`.
    fn run(alone: &mut Alone, hold_us: f64) -> anyhow::Result<Self> {
        let rate = alone.lap(LapKind::Flat)?.outcome.rate() / 2.0;
        let mut half = Self { laps: Vec::new(), way_us: f64::INFINITY, bare: Histogram::new() };
        for _ in 0..LAPS {
            half.laps.push(alone.lap(LapKind::Paced { rate })?);
            let times = alone.bare_us(rate)?;
            let usual = bare::usual_us(&times).ok_or_else(|| anyhow!("nothing was asked"))?;
            half.way_us = half.way_us.min((usual - hold_us).max(0.0));
            times.iter().for_each(|us| half.bare.record((us * 1e3) as u64));
        }
        Ok(half)
    }

    /// The claim that the quantile `q` is `made_us` plus the round trip.
    fn claim(&self, server: &str, (figure, q, made_us): (&str, f64, f64)) -> Claim {
        let (claimed, least) = quantile_us(&self.laps, q);
        let bare = known_us(&self.bare, q);
        Claim { least, bare, ..Claim::time(server, figure, claimed, made_us + self.way_us) }
    }
}

/// The quantile over all laps (from their merged histograms), and the lowest quantile of one lap.
fn quantile_us(laps: &[Lap], q: f64) -> (f64, Option<f64>) {
    let mut all = Histogram::new();
    laps.iter().for_each(|lap| all.merge(&lap.outcome.service_time));
    let own = laps.iter().filter_map(|lap| known_us(&lap.outcome.service_time, q));
    (known_us(&all, q).unwrap_or(f64::NAN), own.min_by(f64::total_cmp))
}

/// A quantile in microseconds, if there are enough samples.
fn known_us(times: &Histogram, q: f64) -> Option<f64> {
    samples_suffice(times.len(), q, 1).then(|| times.quantile(q) as f64 / 1e3)
}

/// Tests the server with a fixed service time at half load. Its p50 and p99 are the service time
/// plus the round trip.
pub fn fixed(arena: &Arena, us: u64, stop: &Arc<AtomicBool>) -> anyhow::Result<Vec<Claim>> {
    let mut alone = Alone::start(arena, &format!("fixed:{us}"), LAP, stop)?;
    let half = HalfLoad::run(&mut alone, us as f64)?;
    alone.stop();
    let claim = |(figure, q)| half.claim(&time(us), (figure, q, us as f64));
    Ok([("p50", 0.5), ("p99", 0.99)].map(claim).to_vec())
}

fn time(us: u64) -> String {
    let time = if us < 1_000 { format!("{us} µs") } else { format!("{} ms", us / 1_000) };
    format!("always {time}, at half load")
}

/// Tests the bimodal server at half load. 1% of its responses take 50 ms, the others 1 ms.
pub fn bimodal(arena: &Arena, stop: &Arc<AtomicBool>) -> anyhow::Result<Vec<Claim>> {
    let (us, slow_us) = (1_000.0, 50_000.0);
    let mut alone = Alone::start(arena, "bimodal:1000:50000:100", LAP, stop)?;
    let half = HalfLoad::run(&mut alone, us)?;
    alone.stop();
    let server = "1 ms; 1 in 100 takes 50 ms";
    let quantiles = [("p50", 0.5, us), ("p98", 0.98, us), ("p99.5", 0.995, slow_us)];
    let mut claims = quantiles.map(|quantile| half.claim(server, quantile)).to_vec();
    let laps = half.laps;
    let responses: u64 = laps.iter().map(|lap| lap.outcome.responses).sum();
    let slow: f64 = laps
        .iter()
        .map(|lap| {
            lap.outcome.responses as f64 * (1.0 - lap.outcome.service_time.share_within(25_000_000))
        })
        .sum();
    // At each of the two edges of a lap, one slow request may count on either side.
    let tolerance = 0.000_2 + 2.0 * f64::from(LAPS) / responses as f64;
    let share = slow / responses as f64;
    claims.push(Claim::new((server, "slow ones"), Unit::Share, share, 0.01, tolerance));
    Ok(claims)
}

/// Tests the server that pauses for a second. An open loop shows the pause, but a closed loop hides
/// it.
///
/// The server pauses for a time P once per period T. With evenly spaced arrivals, a request that
/// arrives during a pause waits for the rest of the pause. A share of (P - x) / T waits longer than
/// x. So the quantile q is P - (1 - q) T, if this is above the normal time. In a closed loop, each
/// connection meets a pause once per period, however many requests it sends in between. So the
/// longest time is P, and p99 does not show the pause.
pub fn pausing(arena: &Arena, stop: &Arc<AtomicBool>) -> anyhow::Result<Vec<Claim>> {
    let (every_ms, pause_ms) = PAUSING;
    let (period_us, pause_us) = ((every_ms + pause_ms) as f64 * 1e3, pause_ms as f64 * 1e3);
    let lap = Duration::from_millis(every_ms + pause_ms);
    let mut alone = Alone::start(arena, &format!("pausing:{every_ms}:{pause_ms}"), lap, stop)?;
    let flat = alone.lap(LapKind::Flat)?;
    let paced = alone.lap(LapKind::Paced { rate: PAUSING_RATE })?;
    alone.stop();
    let us = |times: &Histogram, q| known_us(times, q).unwrap_or(f64::NAN);
    // The tolerance is a fiftieth of the pause. The server needs about a hundredth of the pause for
    // the requests that became due during the pause.
    let late = pause_us * 0.02;
    let rate = |(figure, q): (&str, f64)| {
        let claimed = us(&paced.outcome.response_time, q);
        let claim = Claim::time(
            "pauses for 1 s, at a rate",
            figure,
            claimed,
            pause_us - (1.0 - q) * period_us,
        );
        Claim { tolerance: claim.tolerance.max(late), ..claim }
    };
    let mut claims = [("p90", 0.90), ("p99", 0.99)].map(rate).to_vec();
    let closed = "the same, in a closed loop";
    let longest = flat.outcome.service_time.max() as f64 / 1e3;
    let longest = Claim::time(closed, "longest", longest, pause_us);
    claims.push(Claim { tolerance: late, ..longest });
    // The closed loop hides the pause: its p99 is far below what clients at a given rate would see.
    let hidden = Claim::time(closed, "p99, hides it", us(&flat.outcome.service_time, 0.99), 0.0);
    claims.push(Claim { tolerance: pause_us / 10.0, ..hidden });
    Ok(claims)
}

/// Tests the server that sends a wrong response to exactly 1 of 100 requests. Each wrong response
/// is counted, and a lap with wrong responses is excluded.
pub fn erring(arena: &Arena, stop: &Arc<AtomicBool>) -> anyhow::Result<Vec<Claim>> {
    let mut alone = Alone::start(arena, "erring:100", LAP, stop)?;
    let laps = [alone.lap(LapKind::Flat)?, alone.lap(LapKind::Flat)?];
    alone.stop();
    let wrong: u64 = laps.iter().map(|l| l.outcome.failures.of(Failure::WrongBody)).sum();
    let requests: u64 = laps.iter().map(|l| l.outcome.responses + l.outcome.failures.total()).sum();
    let ranked = laps.iter().filter(|l| l.counts()).count();
    let count = |figure, claimed: f64, real: f64, tolerance| {
        Claim::new(("errs in 1 of 100", figure), Unit::Count, claimed, real, tolerance)
    };
    Ok(vec![
        // At each edge of a lap, one wrong response may count on either side.
        count("wrong responses", wrong as f64, requests as f64 / 100.0, 2.0 * laps.len() as f64),
        count("laps that count", ranked as f64, 0.0, 0.0),
    ])
}

/// The goal of all capacity searches.
const GOAL: Objective = Objective::Latency { quantile: 0.99, limit_ns: 10_000_000 };

/// The number of connections of a search, which is large enough for requests to queue in the
/// server.
const WAITING_CONNECTIONS: usize = 64;

/// A test server that is a queue, and the highest rate that meets the goal in the long run.
#[derive(Debug, Clone, Copy)]
pub struct KnownQueue {
    /// The description of the queue, in words.
    pub name: &'static str,
    /// The test server, as text.
    server: &'static str,
    /// The capacity, in requests/s, from 40 simulated minutes at each rate. `tests/capacity.rs` of
    /// `hotlap-stats` computes the capacity, and checks its simulated queue against the formula for
    /// M/D/1 (Erlang, 1909).
    pub rate: f64,
}

/// Queues with one worker, with two workers, and with 1 of 100 requests that takes 20 times as
/// long.
pub const QUEUES: [KnownQueue; 3] = [
    KnownQueue { name: "one worker, 0.5 ms", server: "queue:1:500", rate: 1_767.3 },
    KnownQueue { name: "two workers, 1 ms", server: "queue:2:1000", rate: 1_758.0 },
    KnownQueue {
        name: "0.25 ms; 1 in 100 takes 5 ms",
        server: "queue:1:250:5000:100",
        rate: 3_082.4,
    },
];

/// Searches for the capacities of all queues, as `hotlap capacity` does. Returns each capacity with
/// the number of restarts, in the order of [`QUEUES`], or `None` if no capacity was found.
pub fn search(
    arena: &Arena,
    budget: Duration,
    seed: u64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<Option<(Estimate, usize)>>> {
    let role = |place| if place == 0 { Role::Reference } else { Role::Plain };
    let participant = |(place, queue): (usize, &KnownQueue)| {
        arena.participant(queue.name, queue.server, role(place))
    };
    let participants = QUEUES.iter().enumerate().map(participant).collect();
    let experiment = Experiment {
        objectives: vec![GOAL],
        precision: Some(0.05),
        ..arena.experiment(participants, WAITING_CONNECTIONS, None, budget, seed)
    };
    let run = arena.measure(&experiment, WARM, stop)?;
    let found =
        CapacityAnalysis::of(&run, 0).servers.into_iter().map(|server| match server.found {
            Highest::Rate(rate) => Some((rate, server.restarts())),
            Highest::AtLeast(_) | Highest::Below(_) | Highest::Unknown => None,
        });
    Ok(found.collect())
}

/// Tests three queues of known service time. The figure is the highest rate with p99 < 10 ms.
pub fn capacities(
    arena: &Arena,
    budget: Duration,
    seed: u64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<Claim>> {
    let found = search(arena, budget, seed, stop)?;
    let claim = |(queue, found): (&KnownQueue, Option<(Estimate, usize)>)| {
        let (server, rate) = (format!("queue, {}", queue.name), found.map(|(rate, _)| rate.value));
        let name = (server.as_str(), "p99 < 10 ms up to");
        let tolerance = queue.rate * CAPACITY;
        Claim::new(name, Unit::Rate, rate.unwrap_or(f64::NAN), queue.rate, tolerance)
    };
    Ok(QUEUES.iter().zip(found).map(claim).collect())
}

/// Tests two identical servers, and one that needs exactly 3% more CPU time, as `run` does.
pub fn costlier(
    arena: &Arena,
    budget: Duration,
    seed: u64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<Claim>> {
    let (usual, more) = (format!("costing:{}", COST_NS.0), format!("costing:{}", COST_NS.1));
    let participants = vec![
        arena.participant("40 µs", &usual, Role::Reference),
        arena.participant("40 µs (again)", &usual, Role::Control),
        arena.participant("its twin", &usual, Role::Plain),
        arena.participant("3% more CPU", &more, Role::Plain),
    ];
    let lap = Duration::from_millis(300);
    let experiment = arena.experiment(participants, CONNECTIONS, Some(lap), budget, seed);
    let run = arena.measure(&experiment, WARM, stop)?;
    let analysis = Analysis::of(&run, 0);
    let level = analysis.servers[0].level[Measure::Cost].map_or(f64::NAN, |cost| cost.value / 1e3);
    let cost =
        |server: usize| analysis.servers[server].against.and_then(|a| a.found[Measure::Cost]);
    let of_pair = |figure, unit, claimed, real, tolerance| {
        Claim::new(("CPU time per request", figure), unit, claimed, real, tolerance)
    };
    let ratio = |server: usize, figure, real| {
        let claimed = cost(server).map_or(f64::NAN, |(effect, _)| effect.ratio.value);
        of_pair(figure, Unit::Ratio, claimed, real, RATIO)
    };
    let is_worse = cost(3).is_some_and(|(_, verdict)| verdict == Verdict::Worse);
    let worse = f64::from(u8::from(is_worse));
    let of_level = Claim::time("CPU time per request", "made to be 40 µs", level, 40.0);
    Ok(vec![
        Claim { tolerance: 40.0 * RATIO, ..of_level },
        ratio(2, "twin ÷ twin", 1.0),
        ratio(3, "3% more CPU ÷ twin", COST_NS.1 as f64 / COST_NS.0 as f64),
        of_pair("verdicts: costs more", Unit::Count, worse, 1.0, 0.0),
    ])
}

/// The work that both servers of a pair do, which is about half of the cost of a request.
const COST_BASE: &str = "working:2000";

/// The duration of the experiment with one known cost.
const COST_BUDGET: Duration = Duration::from_secs(10);
/// The time limit of a warm-up in the experiment with one known cost.
const COST_WARM: Duration = Duration::from_millis(300);

/// The length of the slices in the experiment with one known cost.
const COST_SLICE: Duration = Duration::from_millis(12);

/// The tolerance of a difference, as a share of the cost of the work alone.
const COST_TOLERANCE: f64 = 0.06;

/// Work of known cost, which is timed alone, without hotlap. hotlap must find the same cost as the
/// difference between a server with this work and a server without it.
#[derive(Debug, Clone, Copy)]
pub struct KnownCost {
    /// The description of the work, in words.
    pub name: &'static str,
    /// The work, written as for a calibrated server.
    work: &'static str,
    connections: usize,
    /// The number of requests in a stretch in which the work is timed alone.
    stretch: u64,
}

/// A loop on many and on few connections, system calls, and bursts of work.
pub const COSTS: [KnownCost; 4] = [
    KnownCost { name: "a loop", work: "working:1500", connections: 64, stretch: 1_000 },
    KnownCost {
        name: "a loop, 4 connections",
        work: "working:1500",
        connections: 4,
        stretch: 1_000,
    },
    KnownCost { name: "20 system calls", work: "calling:20", connections: 64, stretch: 1_000 },
    KnownCost {
        name: "40 ms every 20,000 requests",
        work: "bursting:20000:40000",
        connections: 64,
        stretch: 20_000,
    },
];

/// Measures a pair of servers, and claims that the difference is the cost of the work alone.
pub fn known_cost(
    arena: &Arena,
    known: &KnownCost,
    seed: u64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Claim> {
    let participants = vec![
        arena.participant("without", COST_BASE, Role::Reference),
        arena.participant("with", &format!("{COST_BASE}+{}", known.work), Role::Plain),
    ];
    let experiment =
        arena.experiment(participants, known.connections, Some(COST_SLICE), COST_BUDGET, seed);
    let before_ns = arena.alone_ns(known.work, known.stretch)?;
    let run = arena.measure(&experiment, COST_WARM, stop)?;
    let after_ns = arena.alone_ns(known.work, known.stretch)?;
    let analysis = Analysis::of(&run, 0);
    let base_us = analysis.servers[0].level[Measure::Cost].map(|cost| cost.value / 1e3);
    let ratio = analysis.servers[1].against.and_then(|against| against.found[Measure::Cost]);
    let found_us = base_us.zip(ratio).map(|(us, (effect, _))| difference(us, &effect.ratio));
    Ok(cost_claim(known.name, found_us, f64::midpoint(before_ns, after_ns) / 1e3))
}

/// Computes a server's cost minus the reference's, from the reference's cost and the cost ratio.
pub fn difference(reference: f64, ratio: &Estimate) -> Estimate {
    let more = |ratio: f64| reference * (ratio - 1.0);
    Estimate { value: more(ratio.value), low: more(ratio.low), high: more(ratio.high) }
}

/// The tolerance of a difference: a share of the true value, or the interval's reach if larger.
pub fn tolerance(found: &Estimate, real: f64) -> f64 {
    let reach = if real > found.value { found.high - found.value } else { found.value - found.low };
    reach.max(real * COST_TOLERANCE)
}

fn cost_claim(name: &str, found_us: Option<Estimate>, alone_us: f64) -> Claim {
    let claimed = found_us.map_or(f64::NAN, |found| found.value);
    let tolerance = found_us.map_or(0.0, |found| tolerance(&found, alone_us));
    Claim::new(("more CPU time per request", name), Unit::Us, claimed, alone_us, tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::selftest::claim::Word;

    #[test]
    fn a_cost_is_found_within_six_per_cent_or_within_its_interval() {
        let word = |low, high, alone_us| {
            let ratio = Estimate { value: 1.5, low, high };
            cost_claim("", Some(difference(4.0, &ratio)), alone_us).judge()
        };
        assert_eq!(word(1.49, 1.51, 1.9), Word::Right);
        assert_eq!(word(1.49, 1.51, 1.8), Word::Off);
        assert_eq!(word(1.44, 1.51, 1.8), Word::Right);
        assert_eq!(word(1.49, 1.51, 2.2), Word::Off);
        assert_eq!(word(1.49, 1.56, 2.2), Word::Right);
        assert_eq!(cost_claim("", None, 2.0).judge(), Word::Off);
    }
}
