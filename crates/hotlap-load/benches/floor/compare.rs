//! CPU time per request, and instructions if they can be counted.

use super::generators::{self, Load};
use super::measure::{self, Counter};
use super::server::Server;
use super::table::{self, figure, shown, spread};
use super::{Options, pin};

pub fn run(options: &Options) {
    let load = Load {
        connections: options.connections,
        seconds: options.seconds.unwrap_or(2),
        body: options.body,
    };
    let rounds = options.rounds.unwrap_or(3);
    let server = Server::start(load.body, options.streams);
    pin(1);
    let all = generators::all(load, &server);
    let counter = Counter::PerfInstructions;
    let has_counters = counter.works();
    let mut rates = vec![Vec::new(); all.len()];
    let mut costs = vec![Vec::new(); all.len()];
    let mut batches = vec![Vec::new(); all.len()];
    for round in 0..rounds {
        for offset in 0..all.len() {
            let at = (offset + round) % all.len();
            let ran = measure::run(&[], &all[at], measure::limit_s(load.seconds), &server);
            rates[at].push(ran.requests / load.seconds as f64);
            costs[at].push(ran.cpu_us_per_request());
            batches[at].extend(ran.printed("wakeups").map(|count| ran.requests / count));
        }
    }
    println!(
        "{} connections, {} bytes, {rounds} rounds of {} s: median (lowest–highest){}\n",
        load.connections,
        load.body,
        load.seconds,
        if has_counters { "" } else { "; no instruction counters here" },
    );
    let middle = |values: &[f64]| spread(values).map(|s| s.middle);
    let wrk = all.iter().position(|g| g.name == "wrk").and_then(|at| middle(&costs[at]));
    let mut rows = Vec::new();
    for (at, generator) in all.iter().enumerate() {
        let window = (load.seconds, load.seconds * 2);
        let counts = has_counters
            .then(|| counter.per_request(generator.name, window, load.connections, &server));
        let counts = counts.flatten().unwrap_or_default();
        let (user, kernel) = (counts.get("instructions:u"), counts.get("instructions:k"));
        let total = user.zip(kernel).map(|(user, kernel)| user + kernel);
        rows.push(vec![
            generator.name.to_owned(),
            shown(&rates[at], 0),
            shown(&costs[at], 2),
            figure(middle(&costs[at]).zip(wrk).map(|(own, wrk)| own / wrk), 3),
            shown(&batches[at], 1),
            figure(user.copied(), 0),
            figure(kernel.copied(), 0),
            figure(total, 0),
        ]);
    }
    let head = [
        "",
        "requests/s",
        "CPU µs/request",
        "÷ wrk",
        "requests/wake-up",
        "user instructions",
        "kernel",
        "total",
    ];
    table::print(&head, &rows);
}
