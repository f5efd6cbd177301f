//! The trials of the self-test: the true figures of each test server, and what hotlap measures.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::anyhow;
use hotlap_bench::lap::{Kind, Lap};
use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::Role;
use hotlap_bench::runner::Runner;
use hotlap_load::Failure;
use hotlap_servers::launch::ServerFailure;
use hotlap_stats::{Estimate, Histogram, Verdict, samples_suffice};
use hotlap_testbed::Calibrated;

use super::arena::Arena;
use super::bare::{self, Asking};
use super::claim::{Claim, Unit};
use super::queues::{self, KnownQueue, QUEUES};
use crate::analysis::{Analysis, Measure};
use crate::console::Console;
use crate::export::Exports;
use crate::recorder::Recorder;

/// Few enough connections that no request waits for another, and enough for half load at 10 ms
/// each.
const CONNECTIONS: usize = 16;

/// Laps at half load.
const LAPS: u32 = 4;

/// A single lap is enough for some trials.
const LAP: Duration = Duration::from_millis(500);

/// The warm-up of servers that need none.
const WARM: Duration = Duration::from_secs(1);

/// The server works for this long, then pauses for a second.
const PAUSING: (u64, u64) = (3_000, 1_000);

/// The request rate for the pausing server; while it works, it can serve a hundred times as many.
const PAUSING_RATE: f64 = 500.0;

/// CPU time per request of the twins and of the more expensive server, in nanoseconds: exactly 3 %
/// more.
const COST_NS: (u64, u64) = (40_000, 41_200);

/// The tolerance of a capacity, as a share.
const CAPACITY: f64 = 0.06;

/// The tolerance of a ratio of CPU times.
const RATIO: f64 = 0.005;

/// One server on the runner.
struct Alone<'a> {
    arena: &'a Arena,
    live: LocalRunner,
}

impl<'a> Alone<'a> {
    fn start(
        arena: &'a Arena,
        known: Calibrated,
        lap: Duration,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let participants = [arena.participant(&known.to_string(), known, Role::Plain)];
        // It is not frozen, because the minimal client needs it running.
        let setting =
            hotlap_bench::local::Setting { freeze: false, ..arena.setting(Some(lap), WARM) };
        let mut live =
            LocalRunner::new(setting, &participants, &[arena.load(CONNECTIONS)], Arc::clone(stop));
        live.bring_up(0).map_err(|why| told(&known, &why))?;
        live.warm(0, 0, &mut |_| ()).map_err(|why| told(&known, &why))?;
        Ok(Self { arena, live })
    }

    fn lap(&mut self, kind: Kind) -> anyhow::Result<Lap> {
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

fn told(known: &Calibrated, why: &ServerFailure) -> anyhow::Error {
    anyhow!("the test server {known} failed: {why} ({})", why.log_tail.join("; "))
}

/// Laps at half of the rate that a server reaches, with the minimal client's times beside each.
struct HalfLoad {
    laps: Vec<Lap>,
    /// The round trip in microseconds: the minimal client's shortest time, since a neighbour can
    /// only make it longer.
    way_us: f64,
    /// All times of the minimal client.
    bare: Histogram,
}

impl HalfLoad {
    /// For a server that delays each response by `hold_us`.
    fn run(alone: &mut Alone, hold_us: f64) -> anyhow::Result<Self> {
        let rate = alone.lap(Kind::Flat)?.outcome.rate() / 2.0;
        let mut half = Self { laps: Vec::new(), way_us: f64::INFINITY, bare: Histogram::new() };
        for _ in 0..LAPS {
            half.laps.push(alone.lap(Kind::Paced { rate })?);
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

/// A quantile over all laps, from their merged histograms, and that of the least disturbed lap.
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

/// The server with a fixed service time, at half load: p50 and p99 are that time plus the round
/// trip.
pub fn fixed(arena: &Arena, us: u64, stop: &Arc<AtomicBool>) -> anyhow::Result<Vec<Claim>> {
    let mut alone = Alone::start(arena, Calibrated::Fixed { us }, LAP, stop)?;
    let half = HalfLoad::run(&mut alone, us as f64)?;
    alone.stop();
    let claim = |(figure, q)| half.claim(&time(us), (figure, q, us as f64));
    Ok([("p50", 0.5), ("p99", 0.99)].map(claim).to_vec())
}

fn time(us: u64) -> String {
    let time = if us < 1_000 { format!("{us} µs") } else { format!("{} ms", us / 1_000) };
    format!("always {time}, at half load")
}

/// The bimodal server, at half load: 1 % of the responses take 50 ms, the others 1 ms.
pub fn bimodal(arena: &Arena, stop: &Arc<AtomicBool>) -> anyhow::Result<Vec<Claim>> {
    let (us, slow_us, one_in) = (1_000, 50_000, 100);
    let mut alone = Alone::start(arena, Calibrated::Bimodal { us, slow_us, one_in }, LAP, stop)?;
    let half = HalfLoad::run(&mut alone, us as f64)?;
    alone.stop();
    let server = "1 ms; 1 in 100 takes 50 ms";
    let quantiles =
        [("p50", 0.5, us as f64), ("p98", 0.98, us as f64), ("p99.5", 0.995, slow_us as f64)];
    let mut claims = quantiles.map(|quantile| half.claim(server, quantile)).to_vec();
    let laps = half.laps;
    let answers: u64 = laps.iter().map(|lap| lap.outcome.responses).sum();
    let slow: f64 = laps
        .iter()
        .map(|lap| {
            lap.outcome.responses as f64 * (1.0 - lap.outcome.service_time.share_within(25_000_000))
        })
        .sum();
    claims.push(Claim {
        server: server.to_owned(),
        figure: "slow ones".to_owned(),
        unit: Unit::Share,
        claimed: slow / answers as f64,
        real: 0.01,
        // At each of the two edges of a lap, up to one request per connection may count on either
        // side.
        tolerance: 0.000_2 + 2.0 * f64::from(LAPS) / answers as f64,
        least: None,
        bare: None,
    });
    Ok(claims)
}

/// The server that pauses for a second: an open loop shows the pause, a closed loop hides it.
///
/// Requests that arrive evenly during a pause of length P, once per period T, wait for the rest of
/// the pause. A share of (P - x) / T waits longer than x, so the quantile q is P - (1 - q) T, if
/// that is above the normal time. In a closed loop, each connection meets a pause once per period,
/// however many requests it sends in between: the longest time is P, and p99 does not show the
/// pause.
pub fn pausing(arena: &Arena, stop: &Arc<AtomicBool>) -> anyhow::Result<Vec<Claim>> {
    let (every_ms, pause_ms) = PAUSING;
    let (period_us, pause_us) = ((every_ms + pause_ms) as f64 * 1e3, pause_ms as f64 * 1e3);
    let lap = Duration::from_millis(every_ms + pause_ms);
    let mut alone = Alone::start(arena, Calibrated::Pausing { every_ms, pause_ms }, lap, stop)?;
    let flat = alone.lap(Kind::Flat)?;
    let paced = alone.lap(Kind::Paced { rate: PAUSING_RATE })?;
    alone.stop();
    let us = |times: &Histogram, q| known_us(times, q).unwrap_or(f64::NAN);
    // A hundredth of the pause: the time to answer the requests that became due during it.
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

/// The server that sends a wrong response to exactly 1 of 100 requests: each is counted, and such a
/// lap does not count.
pub fn erring(arena: &Arena, stop: &Arc<AtomicBool>) -> anyhow::Result<Vec<Claim>> {
    let one_in = 100;
    let mut alone = Alone::start(arena, Calibrated::Erring { one_in }, LAP, stop)?;
    let laps = [alone.lap(Kind::Flat)?, alone.lap(Kind::Flat)?];
    alone.stop();
    let wrong: u64 = laps.iter().map(|l| l.outcome.failures.of(Failure::WrongBody)).sum();
    let requests: u64 = laps.iter().map(|l| l.outcome.responses + l.outcome.failures.total()).sum();
    let count = |figure: &str, claimed: usize, real: f64, tolerance| Claim {
        server: "errs in 1 of 100".to_owned(),
        figure: figure.to_owned(),
        unit: Unit::Count,
        claimed: claimed as f64,
        real,
        tolerance,
        least: None,
        bare: None,
    };
    let wrong = usize::try_from(wrong).unwrap_or(usize::MAX);
    let ranked = laps.iter().filter(|l| l.counts()).count();
    Ok(vec![
        // At each edge of a lap, one request may count on either side.
        count("wrong answers", wrong, requests as f64 / one_in as f64, 2.0 * laps.len() as f64),
        count("laps that count", ranked, 0.0, 0.0),
    ])
}

/// Three queues of known service time: the rate up to which they keep p99 < 10 ms.
pub fn capacities(
    arena: &Arena,
    budget: Duration,
    seed: u64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<Claim>> {
    let found = queues::search(arena, budget, seed, stop)?;
    let claim = |(queue, found): (&KnownQueue, Option<(Estimate, usize)>)| Claim {
        server: format!("queue, {}", queue.name),
        figure: "p99 < 10 ms up to".to_owned(),
        unit: Unit::Rate,
        claimed: found.map_or(f64::NAN, |(rate, _)| rate.value),
        real: queue.rate,
        // A third of the time of `hotlap capacity`, whose intervals are about this wide.
        tolerance: queue.rate * CAPACITY,
        least: None,
        bare: None,
    };
    Ok(QUEUES.iter().zip(found).map(claim).collect())
}

/// Two identical servers, and one that costs exactly 3 % more CPU time: an experiment as in `run`.
pub fn costlier(
    arena: &Arena,
    budget: Duration,
    seed: u64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Vec<Claim>> {
    let costing = |ns| Calibrated::Costing { ns };
    let participants = vec![
        arena.participant("40 µs", costing(COST_NS.0), Role::Reference),
        arena.participant("40 µs (again)", costing(COST_NS.0), Role::Control),
        arena.participant("its twin", costing(COST_NS.0), Role::Plain),
        arena.participant("3 % more CPU", costing(COST_NS.1), Role::Plain),
    ];
    let lap = Duration::from_millis(300);
    let experiment = arena.experiment(participants, CONNECTIONS, Some(lap), budget, seed);
    let mut runner = LocalRunner::new(
        arena.setting(Some(lap), WARM),
        &experiment.participants,
        &experiment.loads,
        Arc::clone(stop),
    );
    let (mut exports, quiet) = (Exports::default(), Console { quiet: true, ..Console::plain(80) });
    let kept = Recorder::new(arena.record(&experiment), None, &mut exports, &quiet)?
        .keep(&experiment, &mut runner);
    let analysis = Analysis::of(&kept.run, 0);
    let level = analysis.servers[0].level[Measure::Cost].map_or(f64::NAN, |cost| cost.value / 1e3);
    let ratio = |server: usize, figure: &str, real| {
        let cost = analysis.servers[server].against.and_then(|a| a.found[Measure::Cost]);
        Claim {
            server: "CPU time a request".to_owned(),
            figure: figure.to_owned(),
            unit: Unit::Ratio,
            claimed: cost.map_or(f64::NAN, |(effect, _)| effect.ratio.value),
            real,
            tolerance: RATIO,
            least: None,
            bare: None,
        }
    };
    let verdict = analysis.servers[3]
        .against
        .and_then(|a| a.found[Measure::Cost])
        .map(|(_, verdict)| verdict);
    let worse = f64::from(u8::from(verdict == Some(Verdict::Worse)));
    let of_level = Claim::time("CPU time a request", "made to be 40 µs", level, 40.0);
    Ok(vec![
        Claim { tolerance: 40.0 * RATIO, ..of_level },
        ratio(2, "twin ÷ twin", 1.0),
        ratio(3, "3 % more CPU ÷ twin", COST_NS.1 as f64 / COST_NS.0 as f64),
        Claim {
            figure: "verdicts: costs more".to_owned(),
            unit: Unit::Count,
            claimed: worse,
            tolerance: 0.0,
            ..ratio(3, "", 1.0)
        },
    ])
}
