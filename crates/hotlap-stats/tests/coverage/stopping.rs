//! Does stopping when it is precise enough make more differences out of nothing?

use std::fmt::Write as _;
use std::io::Write as _;

use hotlap_stats::stop::{Costs, Goal, Next, Progress, Rule, Why};
use hotlap_stats::{Effect, Pair, compare};

use crate::data::{Machine, WORLDS, World};

const COSTS: Costs = Costs { heat_s: 2.0, block_s: 2.5 };

/// One whole run as the rule leads it, of one server that equals the reference.
fn run(machine: &mut Machine, goal: Goal) -> (Effect, Why, u32) {
    let mut rule = Rule::new(goal);
    let mut contestants = vec![Vec::<Pair>::new()];
    let (mut spent_s, mut heats, mut blocks) = (0.0, 0, 0);
    let mut start = Vec::new();
    loop {
        let progress = Progress { spent_s, costs: COSTS, heats, blocks, contestants: &contestants };
        match rule.next(&progress) {
            Next::Heat => {
                start = machine.heat(heats, 30, 0.0);
                (heats, blocks) = (heats + 1, 0);
                spent_s += COSTS.heat_s;
            }
            Next::Block => {
                contestants[0].push(start[blocks as usize]);
                blocks += 1;
                spent_s += COSTS.block_s;
            }
            Next::Stop(why) => {
                return (compare::effect(&contestants[0], 0.95).unwrap(), why, heats);
            }
        }
    }
}

/// (share of false alarms, share of precise ones, mean heats, mean blocks)
fn count(world: World, goal: Goal, runs: u32) -> [f64; 4] {
    let mut machine = Machine::new(world, 3);
    let mut sums = [0.0; 4];
    for _ in 0..runs {
        let (effect, why, heats) = run(&mut machine, goal);
        let alarm = f64::from(u8::from(effect.p <= 0.05));
        let precise = f64::from(u8::from(why == Why::Precise));
        let of_run = [alarm, precise, f64::from(heats), f64::from(effect.blocks)];
        sums.iter_mut().zip(of_run).for_each(|(sum, x)| *sum += x / f64::from(runs));
    }
    sums
}

#[test]
#[ignore = "writes a table, takes a minute"]
fn table_of_stopping() {
    let mut table = String::from("| world | goal | false alarms | precise | heats | blocks |\n");
    for world in WORLDS {
        for (budget_s, precision) in [
            (30.0, None),
            (60.0, None),
            (60.0, Some(0.02)),
            (120.0, Some(0.01)),
            (240.0, Some(0.01)),
            (240.0, Some(0.005)),
        ] {
            let goal = Goal { budget_s, precision, confidence: 0.95 };
            let [alarms, precise, heats, blocks] = count(world, goal, 1000);
            let _ = writeln!(
                table,
                "| {} | {budget_s} s, {precision:?} | {:.1} | {:.0} | {heats:.1} | {blocks:.1} |",
                world.name,
                100.0 * alarms,
                100.0 * precise
            );
        }
    }
    let _ = writeln!(std::io::stdout(), "{table}");
}
