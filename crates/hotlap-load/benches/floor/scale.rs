//! Many connections in one process: the memory of each besides its socket, and more connections
//! than one loopback address has ports.

use super::Options;
use super::generators::own;
use super::measure;
use super::server::Server;
use super::table;

/// Open files that this mode needs, for both ends of 40,000 connections.
pub const FILES: u64 = 45_000;

pub fn run(options: &Options) {
    let seconds = options.seconds.unwrap_or(2);
    let server = Server::start(13, None);
    let address = server.address;
    let mut rows = Vec::new();
    let mut base: Option<(f64, f64)> = None;
    // For a source address, Linux tries the odd ports only once the 14,116 even ones are taken, and
    // then it retries all of these for each connection. Three addresses have 40,000 even ports.
    let many = (40_000, " 127.0.0.2 127.0.0.3 127.0.0.4");
    for (connections, sources) in [(100, ""), (10_000, ""), many] {
        let line = format!("as-hotlap {address} {connections} {seconds} 13 1 1{sources}");
        let ran = measure::run(&[], &own("hotlap", &line), 90, &server);
        let up = ran.printed("established");
        let (Some(up), Some(kib)) = (up, ran.printed("resident")) else {
            let why = ran.stderr.lines().find(|line| line.starts_with("open "));
            println!(
                "cannot open {connections} connections: {}\n",
                why.unwrap_or("no reason given")
            );
            continue;
        };
        let (few, least) = *base.get_or_insert((up, kib));
        let each = (up > few).then(|| (kib - least) * 1024.0 / (up - few));
        rows.push(vec![
            connections.to_string(),
            table::figure(Some(up), 0),
            table::figure(ran.printed("responses"), 0),
            table::figure(Some(kib), 0),
            table::figure(each, 0),
        ]);
    }
    println!(
        "One process, one thread, {seconds} s of closed loop, so that every connection was used. \
         Memory is the resident peak; a connection's share is the increase over that with 100 \
         connections. Sockets belong to the kernel and are not included.\n"
    );
    let head = ["connections", "up", "correct responses", "resident, KiB", "bytes per connection"];
    table::print(&head, &rows);
}
