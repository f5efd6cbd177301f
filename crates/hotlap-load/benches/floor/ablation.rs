//! The same load over 10, 100 and 1,000 connections: the cost of a request as more responses arrive
//! per wake-up.

use super::generators::{self, Load};
use super::measure::{self, ALL, Counter, of_kind};
use super::server::Server;
use super::table::{self, figure, shown};
use super::{Options, pin};

const CONNECTIONS: [usize; 3] = [10, 100, 1_000];

pub fn run(options: &Options) {
    let server = Server::start(13, None);
    pin(1);
    let seconds = options.seconds.unwrap_or(1);
    let rounds = options.rounds.unwrap_or(5);
    let calls = Counter::of_calls();
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let load = Load { connections, seconds, body: 13 };
        let all = generators::all(load, &server);
        let mut costs = vec![Vec::new(); all.len()];
        let mut batches = vec![Vec::new(); all.len()];
        for round in 0..rounds {
            for offset in 0..all.len() {
                let at = (offset + round) % all.len();
                let ran = measure::run(&[], &all[at], measure::limit_s(seconds), &server);
                if ran.requests > 0.0 {
                    costs[at].push(ran.cpu_us_per_request());
                }
                batches[at].extend(ran.printed("wakeups").map(|count| ran.requests / count));
            }
        }
        for (at, generator) in all.iter().enumerate() {
            let window = (seconds, seconds * 2);
            let counts = calls.and_then(|counter| {
                counter.per_request(generator.name, window, connections, &server)
            });
            let waits = counts.as_ref().map(|c| of_kind(c, WAITS)).filter(|waits| *waits > 0.0);
            // The generator's own figures, undisturbed, are preferred to counts from outside.
            let batch = match batches[at].as_slice() {
                [] => figure(waits.map(|waits| 1.0 / waits), 1),
                printed => shown(printed, 1),
            };
            rows.push(vec![
                format!("{} × {connections}", generator.name),
                shown(&costs[at], 2),
                batch,
                figure(counts.map(|c| of_kind(&c, &[ALL])), 2),
            ]);
        }
    }
    println!(
        "{rounds} rounds of {seconds} s, interleaved: median (lowest–highest). Calls by {}; so \
         are requests per wake-up where only a median is given.\n",
        calls.map_or("nothing: neither perf nor strace counts here", Counter::name)
    );
    let head =
        ["generator × connections", "CPU µs/request", "requests/wake-up", "system calls/request"];
    table::print(&head, &rows);
}

/// The system calls that wait for events.
const WAITS: &[&str] =
    &["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "io_uring_enter"];
