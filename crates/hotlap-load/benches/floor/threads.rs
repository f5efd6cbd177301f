//! N threads of one process compared with N processes of one thread, with the same connections:
//! writing to shared cache lines would make the threads more expensive.

use super::Options;
use super::generators::{Generator, own};
use super::measure;
use super::server::Server;
use super::table::{self, shown};

pub fn run(options: &Options) {
    let seconds = options.seconds.unwrap_or(1);
    let rounds = options.rounds.unwrap_or(9);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // At least two threads, with a core for each if possible.
    let counts: Vec<usize> = [2, 4, 8, 16].into_iter().filter(|n| *n == 2 || *n <= cores).collect();
    let mut rows = Vec::new();
    for threads in counts {
        let cpus: Vec<usize> = (0..threads).collect();
        let server = Server::on(&cpus, 13, None);
        let (address, each) = (server.address, 50);
        let all = threads * each;
        let together = own("threads", &format!("as-hotlap {address} {all} {seconds} 13 {threads}"));
        let apart = own("processes", &format!("as-hotlap {address} {each} {seconds} 13 1"));
        let (mut shared, mut single, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let mut costs = [0.0; 2];
            for offset in 0..2 {
                let which = (offset + round) % 2;
                costs[which] = match which {
                    0 => measure::run(&[], &together, measure::limit_s(seconds), &server)
                        .cpu_us_per_request(),
                    _ => several(&apart, threads, &server),
                };
            }
            shared.push(costs[0]);
            single.push(costs[1]);
            ratios.push(costs[0] / costs[1]);
        }
        rows.push(vec![
            threads.to_string(),
            shown(&shared, 2),
            shown(&single, 2),
            shown(&ratios, 3),
        ]);
    }
    println!(
        "CPU µs per request, 50 connections per thread, a server of as many threads beside it on \
         {cores} cores; {rounds} rounds of {seconds} s, interleaved: median (lowest–highest).\n"
    );
    table::print(&["N", "N threads", "N processes", "threads ÷ processes"], &rows);
}

/// CPU time per request of `count` processes at once.
fn several(generator: &Generator, count: usize, server: &Server) -> f64 {
    // One shell that waits for all of them.
    let line = generator.command.join(" ");
    let script = format!("{} wait", format!("{line} & ").repeat(count));
    let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let all = Generator { name: generator.name, command, is_own: true };
    measure::run(&[], &all, 60, server).cpu_us_per_request()
}
