//! Large bodies: bytes per CPU second, every byte compared, and one body in a hundred.

use super::generators::{self, Load, own};
use super::measure;
use super::server::Server;
use super::table::{self, shown};
use super::{Options, pin};

const BODIES: [(&str, usize); 2] = [("64 KiB", 64 << 10), ("1 MiB", 1 << 20)];

pub fn run(options: &Options) {
    let seconds = options.seconds.unwrap_or(1);
    let rounds = options.rounds.unwrap_or(7);
    // With more connections, this would measure the sockets' buffers.
    let connections = options.connections.min(32);
    pin(1);
    let mut rows = Vec::new();
    for (label, body) in BODIES {
        let server = Server::start(body, None);
        let address = server.address;
        let load = Load { connections, seconds, body };
        let mut all = generators::all(load, &server);
        let sampling = format!("as-hotlap {address} {connections} {seconds} {body} 1 100");
        all.insert(1, own("hotlap, 1 in 100", &sampling));
        let mut speeds = vec![Vec::new(); all.len()];
        for round in 0..rounds {
            for offset in 0..all.len() {
                let at = (offset + round) % all.len();
                let ran = measure::run(&[], &all[at], measure::limit_s(seconds), &server);
                speeds[at].push(ran.requests * body as f64 / ran.cpu_us.max(1.0) / 1e3);
            }
        }
        let wrk = all.iter().position(|g| g.name == "wrk").map(|at| speeds[at].clone());
        for (generator, speeds) in all.iter().zip(&speeds) {
            // Ratios are taken within each round, so that a slow machine slows down both sides.
            let ratios: Vec<f64> = match &wrk {
                Some(wrk) => speeds.iter().zip(wrk).map(|(own, wrk)| own / wrk).collect(),
                None => Vec::new(),
            };
            let name = format!("{} × {label}", generator.name);
            rows.push(vec![name, shown(speeds, 2), shown(&ratios, 3)]);
        }
    }
    println!(
        "{connections} connections, {rounds} rounds of {seconds} s, interleaved: median \
         (lowest–highest). hotlap compares every byte, or those of one body in 100.\n"
    );
    table::print(&["generator × body", "GB per CPU second", "÷ wrk"], &rows);
}
