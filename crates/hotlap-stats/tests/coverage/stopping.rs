//! Tests whether runs that stop once they are precise give more false alarms, and which differences
//! a run of a given length can find.

use std::fmt::Write as _;
use std::io::Write as _;

use hotlap_stats::{
    Costs, Effect, Reading, confidence, effect, further_restarts, is_precise, pairs,
};

use crate::data::{Machine, WORLDS, World};

/// Simulates a whole run with one server that costs `ratio` times as much as the reference. Returns
/// the effect, and the number of rounds of each restart.
fn run(
    machine: &mut Machine,
    (duration_s, precision): (f64, Option<f64>),
    costs: &Costs,
    ratio: f64,
) -> (Effect, Vec<u32>) {
    let (mut left_s, mut had) = (duration_s, Vec::<u32>::new());
    let (mut server, mut reference) = (Vec::new(), Vec::new());
    loop {
        let further = further_restarts(&had, left_s, costs).max(u32::from(had.is_empty()));
        let compared = pairs(&server, &reference);
        let is_over = precision.is_some_and(|p| is_precise(std::slice::from_ref(&compared), p));
        if further == 0 || is_over {
            return (effect(&compared, confidence(precision)).unwrap(), had);
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
fn count(world: World, goal: (f64, Option<f64>), runs: u32) -> (f64, f64, f64) {
    let mut machine = Machine::new(world, 3);
    let (mut alarms, mut restarts, mut rounds) = (0, 0, 0);
    for _ in 0..runs {
        let (effect, had) = run(&mut machine, goal, &COSTS, 1.0);
        alarms += u32::from(effect.p <= 1.0 - confidence(goal.1));
        restarts += had.len() as u32;
        rounds += had.iter().sum::<u32>();
    }
    let mean = |n: u32| f64::from(n) / f64::from(runs);
    (100.0 * mean(alarms), mean(restarts), mean(rounds))
}

#[test]
fn stopping_when_precise_makes_no_more_false_alarms() {
    // The worlds are a quiet one, one in which restarts differ, and one with drift and disturbed
    // laps.
    for world in [WORLDS[0], WORLDS[2], WORLDS[6]] {
        for goal in [(60.0, None), (120.0, Some(0.02)), (240.0, Some(0.01))] {
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
            let differs = (0..runs)
                .filter(|_| run(&mut machine, (duration_s, None), &costs, scaled).0.p <= 0.05);
            100.0 * differs.count() as f64 / f64::from(runs)
        };
        let powers = [0.0, 0.01, 0.02, 0.03].map(&mut found);
        let (_, had) = run(&mut machine, (duration_s, None), &costs, 1.0);
        let _ = write!(table, "| {duration_s} s | {} × {} |", had.len(), had[0]);
        powers.iter().for_each(|p| _ = write!(table, " {p:.0}% |"));
        table.push('\n');
    }
    let _ = writeln!(std::io::stdout(), "{table}");
}
