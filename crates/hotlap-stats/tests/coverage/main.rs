//! Coverage: whether 95 % intervals contain the true ratio in 95 of 100 runs.
//!
//! Runs are simulated with a true ratio of 1, as on a busy machine. The seeds are fixed, so a test
//! that passes once always passes.

mod candidates;
mod data;
mod family;
mod stopping;

use std::fmt::Write as _;
use std::io::Write as _;

use candidates::{CANDIDATES, Candidate, chosen};
use data::{Machine, WORLDS, World};
use hotlap_stats::{Pair, median};

fn by_restart(pairs: &[Pair], restarts: u32) -> Vec<Vec<f64>> {
    let mut rounds = vec![Vec::new(); restarts as usize];
    for pair in pairs {
        rounds[pair.restart as usize].push(pair.log_ratio);
    }
    rounds
}

/// The share of runs whose interval contains the true ratio, and their median half width, both in
/// per cent.
fn count(candidate: Candidate, world: World, shape: (u32, u32), runs: u32) -> (f64, f64) {
    let mut machine = Machine::new(world, 1);
    let (restarts, rounds) = shape;
    let mut held = 0;
    let mut half_widths = Vec::new();
    for _ in 0..runs {
        let (centre, half_width) = candidate(&by_restart(&machine.run(restarts, rounds), restarts));
        held += u32::from(centre.abs() <= half_width);
        half_widths.push(100.0 * half_width);
    }
    (100.0 * f64::from(held) / f64::from(runs), median(&half_widths).unwrap())
}

#[test]
fn an_interval_of_95_percent_contains_the_true_ratio_in_95_of_100_runs() {
    let mut shares = Vec::new();
    for world in WORLDS {
        for shape in [(2, 5), (3, 3), (4, 2), (5, 3), (10, 2)] {
            let (held, _) = count(chosen, world, shape, 1500);
            // The standard error of a share of 95 % in 1,500 runs is 0.6 %.
            assert!((93.0..=98.5).contains(&held), "{}, {shape:?}: {held} %", world.name);
            shares.push(held);
        }
    }
    let all = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!((94.5..=96.5).contains(&all), "over all: {all} %");
}

#[test]
fn the_rounds_of_one_restart_contain_the_true_ratio_of_that_restart() {
    for world in WORLDS {
        let same_start = World { restart_variance: 0.0, drift: 0.0, ..world };
        for shape in [(1, 2), (1, 6), (1, 10)] {
            let (held, _) = count(chosen, same_start, shape, 400);
            assert!((93.0..=98.5).contains(&held), "{}, {shape:?}: {held} %", world.name);
        }
    }
}

/// The table of METHODOLOGY: `cargo test --release -p hotlap-stats --test coverage -- --ignored
/// --nocapture`.
#[test]
#[ignore = "writes a table, takes a minute"]
fn table_of_candidates() {
    let shapes = [(1, 8), (2, 5), (3, 3), (3, 6), (4, 2), (5, 2), (5, 4), (10, 2), (10, 10)];
    let mut table = String::new();
    for world in WORLDS {
        let _ = write!(table, "\n{}\n| restarts × rounds |", world.name);
        for (restarts, rounds) in shapes {
            let _ = write!(table, " {restarts} × {rounds} |");
        }
        let _ = write!(table, "\n|---|{}", "---:|".repeat(shapes.len()));
        for (name, candidate) in CANDIDATES {
            let _ = write!(table, "\n| {name} |");
            for shape in shapes {
                let (held, half_width) = count(candidate, world, shape, 4000);
                let _ = write!(table, " {held:.1} ± {half_width:.2} |");
            }
        }
        table.push('\n');
    }
    let _ = writeln!(std::io::stdout(), "{table}");
}
