//! Instructions and system calls per request: counts that a busy machine does not change.

use super::generators::{self, Load};
use super::measure::{ALL, Counter, Counts, KINDS, of_kind};
use super::server::Server;
use super::table::{self, figure};
use super::{Options, pin};

/// The counts of one generator, per request.
struct Counted {
    name: &'static str,
    /// User instructions with many connections, and with one, where each request has its own
    /// wake-up.
    many: Option<f64>,
    one: Option<f64>,
    /// User and kernel instructions, by hardware counters.
    perf: Option<(f64, f64)>,
    calls: Option<Counts>,
}

pub fn run(options: &Options) {
    let server = Server::start(13, options.streams);
    pin(1);
    let short = options.seconds.unwrap_or(2);
    let window = (short, short * 2);
    let connections = options.connections;
    let callgrind = Counter::Callgrind.works().then_some(Counter::Callgrind);
    let perf = Counter::PerfInstructions.works().then_some(Counter::PerfInstructions);
    let calls = Counter::of_calls();
    let load = Load { connections, seconds: short, body: 13 };
    let mut all = Vec::new();
    for generator in generators::all(load, &server) {
        let name = generator.name;
        let count = |counter: Option<Counter>, connections| {
            counter?.per_request(name, window, connections, &server)
        };
        let user = |connections| count(callgrind, connections)?.remove("instructions:u");
        all.push(Counted {
            name,
            many: user(connections),
            one: if generator.is_own || name == "wrk" { user(1) } else { None },
            perf: count(perf, connections).and_then(|c| {
                c.get("instructions:u").copied().zip(c.get("instructions:k").copied())
            }),
            calls: count(calls, connections),
        });
    }
    println!(
        "Per request, {connections} connections: a {short} s run taken from one twice as long.\n"
    );
    instructions(&all, connections);
    println!();
    system_calls(&all);
    println!();
    explain(&all, callgrind, perf, calls);
}

fn instructions(all: &[Counted], connections: usize) {
    let total_of = |name: &str| {
        let known = all.iter().find(|known| known.name == name)?;
        known.perf.map(|(user, kernel)| user + kernel)
    };
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|known| {
            let total = known.perf.map(|(user, kernel)| user + kernel);
            let ratio = |name: &str| figure(total.zip(total_of(name)).map(|(a, b)| a / b), 3);
            vec![
                known.name.to_owned(),
                figure(known.many, 0),
                figure(known.one, 0),
                figure(known.perf.map(|p| p.0), 0),
                figure(known.perf.map(|p| p.1), 0),
                figure(total, 0),
                ratio("wrk"),
                ratio("gcannon"),
                ratio("bare loop"),
            ]
        })
        .collect();
    let many = format!("user, callgrind, {connections}");
    let head = [
        "instructions",
        &many,
        "user, callgrind, 1",
        "user, perf",
        "kernel, perf",
        "total, perf",
        "÷ wrk",
        "÷ gcannon",
        "÷ bare",
    ];
    table::print(&head, &rows);
}

fn system_calls(all: &[Counted]) {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|known| {
            let of = |kind: &[&str]| known.calls.as_ref().map(|calls| of_kind(calls, kind));
            let sum = of(&[ALL]);
            let listed: f64 = KINDS.iter().filter_map(|(_, names)| of(names)).sum();
            let mut row = vec![known.name.to_owned()];
            row.extend(KINDS.iter().map(|(_, names)| figure(of(names), 3)));
            row.extend([figure(sum.map(|sum| (sum - listed).abs()), 3), figure(sum, 3)]);
            row
        })
        .collect();
    let kinds = KINDS.iter().map(|(name, _)| *name);
    let head: Vec<&str> =
        ["system calls"].into_iter().chain(kinds).chain(["other", "all"]).collect();
    table::print(&head, &rows);
}

fn explain(all: &[Counted], user: Option<Counter>, total: Option<Counter>, calls: Option<Counter>) {
    let by =
        |counter: Option<Counter>| counter.map_or("nothing (not available here)", Counter::name);
    println!("User instructions by {}; all by {}; calls by {}.", by(user), by(total), by(calls));
    println!(
        "Callgrind sees neither the kernel nor the vDSO: reading the clock takes about {CLOCK:.0} \
         instructions more, and hotlap reads it once per request and per wake-up. If a generator \
         is slowed down, more responses arrive per wake-up. The column of 1 connection is the \
         other extreme, a wake-up for each request; the truth is between."
    );
    let of = |name: &str| all.iter().find(|known| known.name == name).and_then(|k| k.many);
    if let (None, Some(own), Some(bare)) = (total, of("hotlap"), of("bare loop")) {
        println!(
            "Kernel instructions are not counted here, so there is no total. hotlap makes the \
             system calls of the bare loop, so with as many requests per wake-up both cost the \
             kernel the same, and the total of hotlap, two clock reads included, is at most 1.06 × \
             that of the bare loop if the kernel's share is {:.0} instructions or more. Nothing \
             follows for wrk, gcannon and the others, which make other system calls.",
            ((own + 2.0 * CLOCK - 1.06 * bare) / 0.06).max(0.0)
        );
    }
}

/// About how many instructions it takes to read the clock through the vDSO.
const CLOCK: f64 = 60.0;
