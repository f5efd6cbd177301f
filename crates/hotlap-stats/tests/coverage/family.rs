//! How often a table with copies of one program has a false verdict.

use std::fmt::Write as _;
use std::io::Write as _;

use hotlap_stats::{Better, Criterion, NoiseFloor, Reading, effect, pairs, pooled, verdicts};

use super::data::{Machine, WORLDS, World};

/// The measures of a table's sentences: CPU time per request and requests/s. They are simulated
/// independently of each other, which is the worst case.
const MEASURES: u32 = 2;

/// Rounds in each restart.
const ROUNDS: u32 = 3;

/// One server's readings in one measure.
fn server(machine: &mut Machine, restarts: u32) -> Vec<Reading> {
    let mut readings = Vec::new();
    for restart in 0..restarts {
        // Half of the variance of `World`, which is that of a ratio of two servers.
        let start = 0.01 * (machine.world.restart_variance / 2.0).sqrt() * machine.normal();
        for round in 0..ROUNDS {
            let value = (start + machine.lap().midpoint(machine.lap())).exp();
            readings.push(Reading { restart, round, value });
        }
    }
    readings
}

/// Whether a table of this many servers, the reference and its control has a false verdict: with
/// the noise floor, and by the p-values alone.
fn is_false(machine: &mut Machine, servers: u32, restarts: u32) -> (bool, bool) {
    let (mut with, mut without) = (false, false);
    for _ in 0..MEASURES {
        let [reference, control] = [(); 2].map(|()| server(machine, restarts));
        let floor = NoiseFloor::of(effect(&pairs(&control, &reference), 0.95).as_ref());
        // As in a report, the servers are compared with reference and control together.
        let floor = floor.against_pooled();
        let both = pooled(&reference, &control);
        let effects: Vec<_> = (0..servers)
            .filter_map(|_| effect(&pairs(&server(machine, restarts), &both), 0.95))
            .collect();
        let any = |floor| {
            let criterion = Criterion { alpha: 0.05, floor, bias: 0.0, better: Better::Lower };
            let compared: Vec<_> = effects.iter().map(|&effect| (criterion, effect)).collect();
            verdicts(&compared).iter().any(|verdict| verdict.differs())
        };
        with |= any(floor);
        without |= any(NoiseFloor::NoControl);
    }
    (with, without)
}

/// The shares of tables with a false verdict, in per cent.
fn count(world: World, servers: u32, restarts: u32, tables: u32) -> (f64, f64) {
    let mut machine = Machine::new(world, 3);
    let (mut with, mut without) = (0, 0);
    for _ in 0..tables {
        let (a, b) = is_false(&mut machine, servers, restarts);
        (with, without) = (with + u32::from(a), without + u32::from(b));
    }
    let share = |n: u32| 100.0 * f64::from(n) / f64::from(tables);
    (share(with), share(without))
}

#[test]
fn at_most_5_percent_of_tables_have_a_false_sentence() {
    for world in [WORLDS[0], WORLDS[2], WORLDS[4]] {
        for (servers, restarts) in [(1, 3), (1, 10), (8, 5), (8, 10)] {
            let (with, without) = count(world, servers, restarts, 600);
            let at = format!("{}, {servers} servers, {restarts} restarts", world.name);
            assert!(with <= 5.0, "{at}: {with} %");
            // Otherwise the noise floor would not be what limits it.
            assert!(without > 5.0, "{at}: {without} % by p-values alone");
        }
    }
}

/// The table of METHODOLOGY: `cargo test --release -p hotlap-stats --test coverage false_verdicts
/// -- --ignored --nocapture`.
#[test]
#[ignore = "writes a table, takes a minute"]
fn table_of_false_verdicts() {
    let mut table =
        String::from("| servers | restarts | with the noise floor | p-values alone |\n");
    for servers in [1, 2, 8, 20] {
        for restarts in [3, 5, 10, 20] {
            let (with, without) = count(WORLDS[2], servers, restarts, 4000);
            let _ = writeln!(table, "| {servers} | {restarts} | {with:.1} % | {without:.1} % |");
        }
    }
    let _ = writeln!(std::io::stdout(), "{table}");
}
