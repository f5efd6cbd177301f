//! Tests whether the intervals of `hotlap capacity` are right. The bench searches for the capacity
//! of queues of known service time, whose true capacity is known. With `--neighbour`, a neighbour
//! meanwhile takes a random share of every core in bursts.
//!
//!     cargo bench -p hotlap --bench capacity -- [--runs 7] [--seconds 120] [--neighbour]
//!         [--high-priority]
//!
//! Each run searches all three queues and counts as three searches. Run N has the seed N.

#![allow(clippy::print_stdout, reason = "a bench prints its table")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotlap::cmd::selftest::arena::Arena;
use hotlap::cmd::selftest::trials::{QUEUES, search};
use hotlap_servers::machine::Priority;
use neighbour::Neighbour;

mod neighbour;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    neighbour::become_one(&args);
    let whole = |name: &str, usual: u64| {
        let at = args.iter().position(|a| a == name);
        at.map_or(usual, |at| args[at + 1].parse().expect("a number"))
    };
    let (runs, seconds) = (whole("--runs", 7), whole("--seconds", 120));
    let has = |name: &str| args.iter().any(|a| a == name);
    let arena = Arena::new(Path::new(env!("CARGO_BIN_EXE_hotlap"))).expect("an arena");
    let stop = Arc::new(AtomicBool::new(false));
    let (mut searches, mut held) = (0, 0);
    let mut half_widths = Vec::new();
    for run in 1..=runs {
        let _neighbour = has("--neighbour").then(|| Neighbour::start(run));
        // The priority is raised after the neighbour has started, because the neighbour would
        // inherit it.
        let _priority = has("--high-priority").then(|| Priority::raise().expect("CAP_SYS_NICE"));
        let began = Instant::now();
        let found = search(&arena, Duration::from_secs(seconds), run, &stop).expect("a search");
        for (queue, found) in QUEUES.iter().zip(found) {
            searches += 1;
            let Some((rate, restarts)) = found else {
                println!("run {run}: {:<22} not found", queue.name);
                continue;
            };
            let is_held = (rate.low..=rate.high).contains(&queue.rate);
            held += u32::from(is_held);
            half_widths.push(rate.relative_half_width());
            println!(
                "run {run}: {:<22} {:6.1} [{:6.1}, {:6.1}], true {:6.1} ({:+.1}%), {restarts} restarts, \
                 {:3.0} s{}",
                queue.name,
                rate.value,
                rate.low,
                rate.high,
                queue.rate,
                100.0 * (rate.value / queue.rate - 1.0),
                began.elapsed().as_secs_f64(),
                if is_held { "" } else { "  MISSED" }
            );
        }
    }
    let median = hotlap_stats::median(&half_widths).unwrap_or(f64::NAN);
    println!(
        "{held} of {searches} intervals hold the truth; median half width {:.1}%",
        100.0 * median
    );
}
