//! `hotlap selftest --power`: trials that show how small a difference a run on this machine can
//! find. The method bench uses the same parts to measure next to a neighbour.
//!
//! A trial is a run of a reference, its A/A control, a twin that costs the same, and a server for
//! each planted difference. Each server gets as much time as in a run of two servers. Each pair is
//! judged as if it were the only pair of its run.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use hotlap_bench::experiment::Experiment;
use hotlap_bench::lap::LapKind;
use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::{Load, Role};
use hotlap_bench::runner::Runner;
use hotlap_servers::machine::Machine;
use hotlap_stats::{Criterion, Reading, Share, Verdict, effect, median, pairs, verdicts};

use super::arena::Arena;
use super::trials::told;
use crate::analysis::{Analysis, Measure};
use crate::certificate::{PLANTED_PERCENT, PowerTrial, Trials, time_shares};
use crate::cli::SelftestArgs;
use crate::console::Console;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::live::Live;
use crate::text::number::plural;

/// The number of connections.
const CONNECTIONS: usize = 64;

/// The time limit of a warm-up, which is short because the test servers need no warm-up.
const WARM: Duration = Duration::from_secs(1);

/// The `--duration` of the runs that the certificate describes, unless the user gives another.
const PAIR: Duration = Duration::from_secs(60);

/// The indices of the reference and of its twin. The A/A control lies between them, and the planted
/// servers follow.
const REFERENCE: usize = 0;
const TWIN: usize = 2;

/// Runs the trials, and stores the certificate.
pub fn run(
    args: &SelftestArgs,
    arena: &Arena,
    interrupt: &Interrupt,
    console: &Console,
) -> anyhow::Result<Exit> {
    let pair = args.duration.unwrap_or(PAIR);
    let mut trials = Trials {
        hotlap: env!("CARGO_PKG_VERSION").to_owned(),
        machine: Machine::describe().fingerprint,
        pair_s: pair.as_secs_f64(),
        rounds: [0; 3],
        made_ms: 0,
        trials: Vec::new(),
    };
    match Trials::unfinished(&trials)? {
        Some(earlier) => trials = earlier,
        None => trials.rounds = Work::ARITHMETIC.rounds(arena, CONNECTIONS, PLANTED_PERCENT)?,
    }
    let left = args.trials.saturating_sub(trials.trials.len() as u32);
    if left > 0 {
        console.note(&format!(
            "Running {} with {} servers, for about {:.0} min. If you interrupt hotlap, the same \
             command continues the trials.",
            plural(left as usize, "trial"),
            PLANTED_PERCENT.len() + TWIN + 1,
            (budget(pair).as_secs_f64() * f64::from(left) / 60.0).ceil()
        ));
    }
    let live = Live::start(console);
    for number in trials.trials.len() as u32..args.trials {
        live.phase(format!("trial {} of {}", number + 1, args.trials));
        let trial = measure(arena, &trials.rounds, pair, u64::from(number), &interrupt.shared());
        if interrupt.asked() {
            return Ok(Exit::Interrupted);
        }
        trials.trials.push(trial?);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        trials.made_ms = now.as_millis() as u64;
        trials.keep()?;
    }
    drop(live);
    trials.finish()?;
    let certificate = trials.certificate();
    match args.json {
        true => console.json(&certificate)?,
        false => console.print(&format!("{}\n", certificate.lines().join("\n  ")))?,
    }
    Ok(Exit::Ok)
}

fn budget(pair: Duration) -> Duration {
    // The 2 counts the reference and its twin.
    pair.mul_f64(time_shares(2 + PLANTED_PERCENT.len()) / time_shares(2))
}

fn measure(
    arena: &Arena,
    rounds: &[u64; 3],
    pair: Duration,
    seed: u64,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<PowerTrial> {
    let plain = Work::ARITHMETIC.server(0);
    let mut participants = vec![
        arena.participant("reference", &plain, Role::Reference),
        arena.participant("reference (again)", &plain, Role::Control),
        arena.participant("twin", &plain, Role::Plain),
    ];
    participants.extend(PLANTED_PERCENT.iter().zip(rounds).map(|(percent, rounds)| {
        let server = Work::ARITHMETIC.server(*rounds);
        arena.participant(&format!("{percent}% more"), &server, Role::Plain)
    }));
    let experiment = Experiment {
        paced: true,
        ..arena.experiment(participants, CONNECTIONS, None, budget(pair), seed)
    };
    let run = arena.measure(&experiment, WARM, stop)?;
    let failed = run.servers.iter().find_map(|server| server.failure.as_ref());
    ensure!(failed.is_none(), "a test server failed: {}", failed.map_or("", |why| &why.cause));
    Ok(trial(&Analysis::of(&run, 0)))
}

fn trial(analysis: &Analysis) -> PowerTrial {
    let found = |server| analysis.compared(&[(server, REFERENCE)])[0].found[Measure::Cost];
    let planted = [1, 2, 3].map(|at| found(TWIN + at));
    let costs = |server: usize| &analysis.servers[server].readings[Measure::Cost][..];
    let restarts = found(TWIN).map_or(0, |(effect, _)| effect.restarts);
    let withheld = analysis.withheld(&[TWIN, REFERENCE], Measure::Cost, restarts);
    // Each pair also has a verdict on requests/s, so alpha is corrected for two verdicts. The
    // stricter of the two corrected limits applies.
    let alpha = (1.0 - analysis.confidence) / 2.0;
    let criterion = Criterion { alpha, ..Measure::Cost.criterion(analysis.confidence, withheld) };
    PowerTrial {
        is_false_alarm: found(TWIN).is_some_and(|(_, verdict)| verdict.differs()),
        is_found: planted.map(|f| f.is_some_and(|(_, verdict)| verdict == Verdict::Worse)),
        ratios: planted.map(|f| f.map(|(effect, _)| effect.ratio.value)),
        smallest: smallest(costs(TWIN), costs(REFERENCE), &criterion),
        noise: analysis.noise_band(Measure::Cost),
    }
}

/// Returns the smallest difference that would have got a verdict, as a share. The readings of a
/// server that costs as much as the reference are raised in steps of 0.1% until hotlap gives a
/// verdict. `None` if even 50% more is not enough.
pub fn smallest(twin: &[Reading], reference: &[Reading], criterion: &Criterion) -> Option<f64> {
    let called = |by: f64| {
        let raised = |r: &Reading| {
            let share = Share { amount: r.share.amount * (1.0 + by), ..r.share };
            Reading { share, ..*r }
        };
        let raised: Vec<Reading> = twin.iter().map(raised).collect();
        let found = effect(&pairs(&raised, reference), 1.0 - criterion.alpha);
        found.is_some_and(|effect| verdicts(&[(*criterion, effect)])[0] == Verdict::Worse)
    };
    (1..=500).map(|step| f64::from(step) / 1e3).find(|by| called(*by))
}

/// A kind of work. Each request to a test server does a given amount of this work.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// The kind of test server.
    known: &'static str,
    /// The iterations of work per request to the reference.
    base: u64,
}

impl Work {
    /// Arithmetic, on a server that otherwise spends nearly all of its time in the kernel.
    pub const ARITHMETIC: Self = Self { known: "working", base: 0 };

    /// Reads from 10 MB of memory, which take most of a server's time.
    pub const DATA: Self = Self { known: "walking", base: 1_000 };

    /// Returns the name of a test server that does this many more iterations than the reference.
    pub fn server(&self, rounds: u64) -> String {
        format!("{}:{}", self.known, self.base + rounds)
    }

    /// Returns how many more iterations make a request cost each of these percentages more. The
    /// result follows from the cost of a request to the reference, and from the cost of an
    /// iteration that is timed alone.
    pub fn rounds<const N: usize>(
        &self,
        arena: &Arena,
        connections: usize,
        percent: [impl Into<f64>; N],
    ) -> anyhow::Result<[u64; N]> {
        const MANY: u64 = 2_000;
        let round_ns = arena.alone_ns(&format!("{}:{MANY}", self.known), 10_000)? / MANY as f64;
        let request_ns = self.request_ns(arena, connections)?;
        let rounds = |percent: f64| (request_ns * percent / 100.0 / round_ns).round() as u64;
        Ok(percent.map(|percent| rounds(percent.into())))
    }

    /// Returns the cost of a request to the reference, in nanoseconds.
    fn request_ns(&self, arena: &Arena, connections: usize) -> anyhow::Result<f64> {
        let participants = [arena.participant("reference", &self.server(0), Role::Plain)];
        let loads = [Load::new(connections)];
        let setting = arena.setting(&[Duration::from_millis(12)], WARM);
        let stop = Arc::new(AtomicBool::new(false));
        let mut live = LocalRunner::new(setting, &participants, &loads, stop);
        live.bring_up(0).map_err(|why| told(self.known, &why))?;
        live.warm(0, 0, &mut |_| ()).map_err(|why| told(self.known, &why))?;
        let laps = (0..40).map_while(|_| live.whole_lap(0, 0, LapKind::Flat).ok());
        let costs: Vec<f64> = laps.filter_map(|lap| lap.cost_ns()).collect();
        live.stop(&[0]);
        median(&costs).context("all laps of a test server were excluded")
    }
}
