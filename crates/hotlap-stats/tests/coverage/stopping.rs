//! Tests whether runs that stop early have more false alarms, and how small a difference a run of a
//! given length can find.

use std::fmt::Write as _;
use std::io::Write as _;

use hotlap_stats::{
    ByRestart, Costs, Effect, Reading, confidence, effect, further_restarts, is_certain,
    is_precise, pairs,
};

use crate::data::{Machine, WORLDS, World};

/// When a run ends.
#[derive(Debug, Clone, Copy)]
enum Stop {
    /// When its time is spent.
    Late,
    /// Once its intervals have this relative half-width.
    Precise(f64),
    /// Once its ratio is certainly above or below this limit.
    Certain(f64),
}

impl Stop {
    fn is_over(self, compared: &[ByRestart]) -> bool {
        match self {
            Self::Late => false,
            Self::Precise(share) => is_precise(compared, share),
            Self::Certain(limit) => is_certain(compared, limit),
        }
    }

    fn confidence(self) -> f64 {
        match self {
            Self::Late => confidence(None, false),
            Self::Precise(share) => confidence(Some(share), false),
            Self::Certain(_) => confidence(None, true),
        }
    }
}

/// Simulates a whole run with one server that costs `ratio` times as much as the reference. Returns
/// the effect, and the number of rounds of each restart.
fn run(
    machine: &mut Machine,
    (duration_s, stop): (f64, Stop),
    costs: &Costs,
    ratio: f64,
) -> (Effect, Vec<u32>) {
    let (mut left_s, mut had) = (duration_s, Vec::<u32>::new());
    let (mut server, mut reference) = (Vec::new(), Vec::new());
    loop {
        let looks = matches!(stop, Stop::Certain(_));
        let further = further_restarts(&had, left_s, costs, looks);
        let further = further.max(u32::from(had.is_empty()));
        let compared = pairs(&server, &reference);
        if further == 0 || stop.is_over(std::slice::from_ref(&compared)) {
            return (effect(&compared, stop.confidence()).unwrap(), had);
        }
        let each_s = left_s / f64::from(further) - costs.restart_s;
        let rounds = ((each_s / costs.round_s + 1e-9).floor() as u32).max(1);
        let restart = had.len() as u32;
        let place = |r: Reading| Reading { restart, ..r };
        reference.extend(machine.server(1, rounds).into_iter().map(place));
        server.extend(machine.server(1, rounds).into_iter().map(place).map(|mut r| {
            r.share.amount *= ratio;
            r
        }));
        had.push(rounds);
        left_s -= costs.restart_s + costs.round_s * f64::from(rounds);
    }
}

const COSTS: Costs = Costs { restart_s: 2.0, round_s: 2.5, lap_s: 0.2 };

/// Returns the false alarms of many runs in per cent, and their mean numbers of restarts and
/// rounds.
fn count(world: World, goal: (f64, Stop), runs: u32) -> (f64, f64, f64) {
    let mut machine = Machine::new(world, 3);
    let (mut alarms, mut restarts, mut rounds) = (0, 0, 0);
    for _ in 0..runs {
        let (effect, had) = run(&mut machine, goal, &COSTS, 1.0);
        alarms += u32::from(effect.p <= 1.0 - goal.1.confidence());
        restarts += had.len() as u32;
        rounds += had.iter().sum::<u32>();
    }
    let mean = |n: u32| f64::from(n) / f64::from(runs);
    (100.0 * mean(alarms), mean(restarts), mean(rounds))
}

#[test]
fn stopping_early_makes_no_more_false_alarms() {
    // The worlds are a quiet one, one in which restarts differ, and one with drift and disturbed
    // laps.
    for world in [WORLDS[0], WORLDS[2], WORLDS[6]] {
        let goals = [
            (60.0, Stop::Late),
            (120.0, Stop::Precise(0.02)),
            (240.0, Stop::Precise(0.01)),
            (60.0, Stop::Certain(1.0)),
            (240.0, Stop::Certain(1.0)),
            (240.0, Stop::Certain(1.03)),
        ];
        for goal in goals {
            let (alarms, ..) = count(world, goal, 400);
            // The standard error of a share of 5% in 400 runs is 1.1%.
            assert!(alarms <= 7.0, "{}, {goal:?}: {alarms}%", world.name);
        }
    }
}

/// Prints the table of docs/evidence.md. Run it like `table_of_coverage`. Costs and noise are taken
/// from two small servers on two virtual cores. Their ratio varies by 1.65% between rounds and by
/// 0.7% between restarts.
#[test]
#[ignore = "writes a table, takes a minute"]
fn table_of_power() {
    let world = World { restart_variance: 0.18, ..WORLDS[0] };
    let costs = Costs { restart_s: 2.0, round_s: 0.55, lap_s: 0.2 };
    let mut table = String::from("| duration | restarts × rounds | 0% | 1% | 2% | 3% |\n");
    for duration_s in [25.0, 60.0, 120.0] {
        let mut machine = Machine::new(world, 5);
        let mut found = |extra: f64| {
            // The simulated noise is 1%, but this machine has 1.65%, so the difference is scaled.
            let scaled = 1.0 + extra / 1.65;
            let runs = 2_000;
            let differs = (0..runs).filter(|_| {
                run(&mut machine, (duration_s, Stop::Late), &costs, scaled).0.p <= 0.05
            });
            100.0 * differs.count() as f64 / f64::from(runs)
        };
        let powers = [0.0, 0.01, 0.02, 0.03].map(&mut found);
        let (_, had) = run(&mut machine, (duration_s, Stop::Late), &costs, 1.0);
        let _ = write!(table, "| {duration_s} s | {} × {} |", had.len(), had[0]);
        powers.iter().for_each(|p| _ = write!(table, " {p:.0}% |"));
        table.push('\n');
    }
    let _ = writeln!(std::io::stdout(), "{table}");
}

/// Prints the table of early ends in docs/evidence.md. Run it like `table_of_coverage`. With a
/// limit of 1.03, a verdict means that the whole interval lies above the limit.
#[test]
#[ignore = "writes a table, takes a minute"]
fn table_of_early_ends() {
    let costs = Costs { restart_s: 2.0, round_s: 0.55, lap_s: 0.2 };
    let mut table = String::from(
        "| world | limit | ratio | verdicts | alarms | contain | early | median |\n|---|---|---|\n",
    );
    for world in [WORLDS[0], WORLDS[2], WORLDS[6]] {
        for (limit, ratio) in [(1.0, 1.0), (1.0, 1.1), (1.03, 1.0), (1.03, 1.03), (1.03, 1.1)] {
            let mut machine = Machine::new(world, 7);
            let (mut verdicts, mut alarms, mut held) = (0, 0, 0);
            let (mut early, mut times_s) = (0, Vec::new());
            let differs = |effect: &Effect| effect.p <= 1.0 - Stop::Certain(limit).confidence();
            const RUNS: u32 = 2_000;
            for _ in 0..RUNS {
                let stop = Stop::Certain(limit);
                let (effect, had) = run(&mut machine, (120.0, stop), &costs, ratio);
                let is_above = effect.ratio.low > limit;
                verdicts += u32::from(if limit > 1.0 { is_above } else { differs(&effect) });
                alarms += u32::from(ratio == 1.0 && differs(&effect));
                held += u32::from(effect.ratio.contains(ratio));
                let restart_s = |rounds: &u32| costs.restart_s + costs.round_s * f64::from(*rounds);
                let time_s: f64 = had.iter().map(restart_s).sum();
                early += u32::from(time_s < 100.0);
                times_s.push(time_s);
            }
            let percent = |n: u32| 100.0 * f64::from(n) / f64::from(RUNS);
            let _ = writeln!(
                table,
                "| {} | {limit} | {ratio} | {:.1}% | {:.1}% | {:.1}% | {:.0}% | {:.0} s |",
                world.name,
                percent(verdicts),
                percent(alarms),
                percent(held),
                percent(early),
                hotlap_stats::median(&times_s).unwrap()
            );
        }
    }
    let _ = writeln!(std::io::stdout(), "{table}");
}
