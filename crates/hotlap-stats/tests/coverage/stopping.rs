//! Whether a run that stops once it is precise gives more false alarms.

use std::fmt::Write as _;
use std::io::Write as _;

use hotlap_stats::{
    Costs, Decision, Effect, Goal, Pair, RunProgress, StopReason, StoppingRule, effect,
};

use crate::data::{Machine, WORLDS, World};

const COSTS: Costs = Costs { restart_s: 2.0, round_s: 2.5 };

/// One whole run under the rule, with one server that is identical to the reference.
fn run(machine: &mut Machine, goal: Goal) -> (Effect, StopReason, u32) {
    let mut rule = StoppingRule::new(goal);
    let mut comparisons = vec![Vec::<Pair>::new()];
    let (mut spent_s, mut restarts, mut rounds) = (0.0, 0, 0);
    let mut start = Vec::new();
    loop {
        let progress =
            RunProgress { spent_s, costs: COSTS, restarts, rounds, comparisons: &comparisons };
        match rule.next(&progress) {
            Decision::Restart => {
                start = machine.restart(restarts, 50, 0.0);
                (restarts, rounds) = (restarts + 1, 0);
                spent_s += COSTS.restart_s;
            }
            Decision::Round => {
                comparisons[0].push(start[rounds as usize]);
                rounds += 1;
                spent_s += COSTS.round_s;
            }
            Decision::Stop(why) => {
                return (effect(&comparisons[0], 0.95).unwrap(), why, restarts);
            }
        }
    }
}

/// Results of many runs: shares in per cent, and means.
#[derive(Debug, Default)]
struct Tally {
    alarms: f64,
    precise: f64,
    restarts: f64,
    rounds: f64,
}

fn count(world: World, goal: Goal, runs: u32) -> Tally {
    let mut machine = Machine::new(world, 3);
    let mut tally = Tally::default();
    let share = 1.0 / f64::from(runs);
    let alpha = 1.0 - goal.confidence_of_run();
    for _ in 0..runs {
        let (effect, why, restarts) = run(&mut machine, goal);
        tally.alarms += if effect.p <= alpha { 100.0 * share } else { 0.0 };
        tally.precise += if why == StopReason::Precise { 100.0 * share } else { 0.0 };
        tally.restarts += f64::from(restarts) * share;
        tally.rounds += f64::from(effect.rounds) * share;
    }
    tally
}

#[test]
fn stopping_when_precise_makes_no_more_false_alarms() {
    // A quiet world, one in which restarts differ, and one with drift and disturbed laps.
    for world in [WORLDS[0], WORLDS[2], WORLDS[6]] {
        for (budget_s, precision) in [(60.0, None), (120.0, Some(0.02)), (240.0, Some(0.01))] {
            let goal = Goal { budget_s, precision, confidence: 0.95 };
            let tally = count(world, goal, 400);
            // The standard error of a share of 5 % in 400 runs is 1.1 %.
            assert!(tally.alarms <= 7.0, "{}, {goal:?}: {tally:?}", world.name);
        }
    }
}

/// The table in METHODOLOGY, like that of the candidates.
#[test]
#[ignore = "writes a table, takes a minute"]
fn table_of_stopping() {
    let mut table = String::from(
        "| world | budget | precision | false alarms | stopped precise | restarts | rounds |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for world in WORLDS {
        let budget = [(30.0, None), (60.0, None)];
        let precise = [(60.0, Some(0.02)), (120.0, Some(0.01)), (240.0, Some(0.01))];
        for (budget_s, precision) in budget.into_iter().chain(precise) {
            let goal = Goal { budget_s, precision, confidence: 0.95 };
            let Tally { alarms, precise, restarts, rounds } = count(world, goal, 1000);
            let wanted = precision.map_or("–".into(), |p| format!("{:.0} %", 100.0 * p));
            let _ = writeln!(
                table,
                "| {} | {budget_s} s | {wanted} | {alarms:.1} % | {precise:.0} % | {restarts:.1} | \
                 {rounds:.1} |",
                world.name,
            );
        }
    }
    let _ = writeln!(std::io::stdout(), "{table}");
}
