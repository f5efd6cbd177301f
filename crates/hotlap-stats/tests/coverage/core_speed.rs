//! Tests of intervals on a machine whose cores change speed from lap to lap.

use std::fmt::Write as _;
use std::io::Write as _;

use hotlap_stats::{CoreSpeed, GaugedLap, Reading, Share, effect, pairs};

use super::Coverage;
use super::data::{Machine, WORLDS};

/// The change of each server's cost in per cent, if a system call takes 1% longer. Rust's hyper and
/// Node were about as far apart on a busy host (docs/lab-notebook.md, *A gauge on the core*).
const SLOPES: [f64; 2] = [1.4, 2.6];

/// The standard deviation of the speed over laps, in log units.
const SPEED: f64 = 0.08;

/// The standard deviation of the gauge's error in a lap, in log units.
const READ: f64 = 0.015;

/// The standard deviation of a lap's own noise, in log units.
const LAP: f64 = 0.08;

/// The standard deviation of a server's level over starts, in log units.
const START: f64 = 0.01;

/// The speed has two equal parts. For each part, this is the correlation between one lap and the
/// next. The first part changes within tenths of a second, and the second part within seconds.
const LASTS: [f64; 2] = [0.6, 0.97];

/// Adds a run's interval of the ratio of two servers, without and with the adjustment. If the gauge
/// is not related to the speed, it varies as slowly by itself.
fn add_run(
    machine: &mut Machine,
    (restarts, rounds): (u32, u32),
    is_related: bool,
    found: &mut [Coverage; 2],
) {
    let half = SPEED * 0.5_f64.sqrt();
    let mut parts = [LASTS, LASTS].map(|parts| parts.map(|_| half * machine.normal()));
    let mut laps = Vec::new();
    let mut speeds = 0.0;
    for restart in 0..restarts {
        let starts = SLOPES.map(|_| START * machine.normal());
        for round in 0..rounds {
            for server in [0, 1, 1, 0] {
                for parts in &mut parts {
                    for (part, lasts) in parts.iter_mut().zip(LASTS) {
                        let change = half * (1.0 - lasts * lasts).sqrt() * machine.normal();
                        *part = lasts * *part + change;
                    }
                }
                let [speed, other] = parts.map(|parts| parts.iter().sum::<f64>());
                speeds += speed;
                let figure = starts[server] + SLOPES[server] * speed + LAP * machine.normal();
                let gauge = if is_related { speed } else { other } + READ * machine.normal();
                let start = (server, restart);
                laps.push((round, GaugedLap { program: server, start, figure, gauge }));
            }
        }
    }
    let count = laps.len() as f64;
    let usual = laps.iter().map(|(_, lap)| lap.gauge).sum::<f64>() / count;
    laps.iter_mut().for_each(|(_, lap)| lap.gauge -= usual);
    let model = CoreSpeed::of(&laps.iter().map(|(_, lap)| *lap).collect::<Vec<_>>());
    let truth = ((SLOPES[1] - SLOPES[0]) * speeds / count).exp();
    for (found, is_adjusted) in found.iter_mut().zip([false, true]) {
        let readings = |server: usize| -> Vec<Reading> {
            let own = laps.iter().filter(|(_, lap)| lap.program == server);
            let reading = |(round, lap): &(u32, GaugedLap)| {
                let model = model.as_ref().filter(|_| is_adjusted);
                let factor = model.map_or(1.0, |model| model.factor(server, lap.gauge));
                let share = Share::whole(lap.figure.exp() * factor);
                Reading { restart: lap.start.1, round: *round, share }
            };
            own.map(reading).collect()
        };
        found.add(effect(&pairs(&readings(1), &readings(0)), 0.95).unwrap().ratio, truth);
    }
}

fn coverage(shape: (u32, u32), is_related: bool, runs: u32) -> [Coverage; 2] {
    let mut machine = Machine::new(WORLDS[0], 5);
    let mut found = [Coverage::default(), Coverage::default()];
    (0..runs).for_each(|_| add_run(&mut machine, shape, is_related, &mut found));
    found
}

#[test]
fn adjusted_intervals_are_narrower_and_contain_the_truth() {
    for (shape, narrower) in [((3, 6), 1.5), ((3, 20), 1.8), ((8, 12), 1.8)] {
        let [raw, adjusted] = coverage(shape, true, 2_000);
        let widths = (raw.half_width(), adjusted.half_width());
        // The standard error of a share of 95% in 2,000 runs is 0.5%.
        let held = adjusted.held();
        assert!((93.5..=98.5).contains(&held), "{shape:?}: {held}%, {widths:?}");
        assert!(widths.0 > narrower * widths.1, "{shape:?}: {widths:?}");
    }
}

#[test]
fn a_gauge_that_explains_nothing_does_no_harm() {
    for shape in [(3, 6), (3, 20)] {
        let [raw, adjusted] = coverage(shape, false, 2_000);
        let widths = (raw.half_width(), adjusted.half_width());
        let held = adjusted.held();
        assert!(held > 93.5 && widths.1 < 1.03 * widths.0, "{shape:?}: {held}%, {widths:?}");
    }
}

/// Prints the table of docs/evidence.md: `cargo test --release -p hotlap-stats --test coverage
/// table_of_core_speed -- --ignored --nocapture`.
#[test]
#[ignore = "writes a table"]
fn table_of_core_speed() {
    let mut table = String::from("| restarts × rounds | as measured | adjusted |");
    for shape in [(3, 3), (3, 6), (3, 20), (8, 12)] {
        let _ = write!(table, "\n| {} × {} |", shape.0, shape.1);
        for found in coverage(shape, true, 10_000) {
            let _ = write!(table, " {:.1}% ± {:.1} |", found.held(), found.half_width());
        }
    }
    let _ = writeln!(std::io::stdout(), "{table}");
}
