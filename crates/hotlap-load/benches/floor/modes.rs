//! The measurements, with one function for each mode.

use std::time::Duration;

use hotlap_load::Plan;
use hotlap_load::plan::{Endpoint, Pace, Request, Stop, Target};

use super::generators::{self, Generator, Load, own};
use super::measure::{self, ALL, Counter, Counts, KINDS, Run, of_kind};
use super::server::{Server, body};
use super::table::{self, figure, shown, spread};
use super::{Options, pin};

/// Returns a function that builds the generator of this name from a number of seconds.
fn named(
    name: &'static str,
    connections: usize,
    server: &Server,
) -> impl Fn(u64) -> Option<Generator> {
    move |seconds| {
        let all = generators::all(Load { connections, seconds, body: 13 }, server);
        all.into_iter().find(|g| g.name == name)
    }
}

/// Measures CPU time per request, requests per wake-up and system calls, for each of these numbers
/// of connections.
pub fn cost(options: &Options, connections: &[usize]) {
    let server = Server::start(options.body, options.streams);
    pin(1);
    let seconds = options.seconds.unwrap_or(2);
    let rounds = options.rounds.unwrap_or(3);
    let calls = Counter::of_calls();
    let mut rows = Vec::new();
    for &connections in connections {
        let all = generators::all(Load { connections, seconds, body: options.body }, &server);
        let runs = measure::rounds(&all, rounds, seconds, &server);
        let costs = |at: usize| runs[at].iter().map(Run::cpu_us_per_request).collect::<Vec<_>>();
        let middle = |values: &[f64]| spread(values).map(|s| s.middle);
        let wrk = all.iter().position(|g| g.name == "wrk").and_then(|at| middle(&costs(at)));
        for (at, generator) in all.iter().enumerate() {
            let rates: Vec<f64> = runs[at].iter().map(|r| r.requests / seconds as f64).collect();
            let batches: Vec<f64> = runs[at].iter().filter_map(Run::batch).collect();
            let load = named(generator.name, connections, &server);
            let counts = calls.and_then(|c| c.per_request(&load, (seconds, seconds * 2), &server));
            let waits = counts.as_ref().map(|c| of_kind(c, WAITS)).filter(|waits| *waits > 0.0);
            rows.push(vec![
                format!("{} × {connections}", generator.name),
                shown(&rates, 0),
                shown(&costs(at), 2),
                figure(middle(&costs(at)).zip(wrk).map(|(own, wrk)| own / wrk), 3),
                // The generator's own figures are preferred, because a counter disturbs the
                // generator.
                match batches.is_empty() {
                    true => figure(waits.map(|waits| 1.0 / waits), 1),
                    false => shown(&batches, 1),
                },
                figure(counts.map(|c| of_kind(&c, &[ALL])), 2),
            ]);
        }
    }
    println!(
        "{} bytes, {rounds} rounds of {seconds} s, interleaved: median (lowest–highest). Calls by \
         {}; so are requests per wake-up where only a median is given.\n",
        options.body,
        calls.map_or("nothing: neither perf nor strace counts here", Counter::name)
    );
    let head = [
        "generator × connections",
        "requests/s",
        "CPU µs/request",
        "÷ wrk",
        "requests/wake-up",
        "system calls/request",
    ];
    table::print(&head, &rows);
}

/// The system calls that wait for events.
const WAITS: &[&str] =
    &["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "io_uring_enter"];

/// The counts of one generator, per request.
struct Counted {
    name: &'static str,
    /// User instructions with many connections, and with one connection, where each request has its
    /// own wake-up.
    many: Option<f64>,
    one: Option<f64>,
    /// User and kernel instructions, counted by the hardware.
    perf: Option<(f64, f64)>,
    calls: Option<Counts>,
}

/// Counts instructions and system calls per request, which a busy machine does not change.
pub fn counts(options: &Options) {
    let server = Server::start(13, options.streams);
    pin(1);
    let short = options.seconds.unwrap_or(2);
    let connections = options.connections;
    let callgrind = Counter::Callgrind.works().then_some(Counter::Callgrind);
    let perf = Counter::PerfInstructions.works().then_some(Counter::PerfInstructions);
    let calls = Counter::of_calls();
    let count = |generator: &Generator| {
        let name = generator.name;
        let count = |counter: Option<Counter>, connections| {
            let load = named(name, connections, &server);
            counter?.per_request(&load, (short, short * 2), &server)
        };
        let user = |connections| count(callgrind, connections)?.remove("instructions:u");
        Counted {
            name,
            many: user(connections),
            one: if generator.is_own || name == "wrk" { user(1) } else { None },
            perf: count(perf, connections).and_then(|c| {
                c.get("instructions:u").copied().zip(c.get("instructions:k").copied())
            }),
            calls: count(calls, connections),
        }
    };
    let load = Load { connections, seconds: short, body: 13 };
    let all: Vec<Counted> = generators::all(load, &server).iter().map(count).collect();
    println!(
        "Per request, {connections} connections: the difference between runs of {short} s and of \
         twice that.\n"
    );
    instructions_of(&all, connections);
    println!();
    calls_of(&all);
    let by =
        |counter: Option<Counter>| counter.map_or("nothing (not available here)", Counter::name);
    println!(
        "\nUser instructions are counted by {}, all instructions by {}, and calls by {}. Callgrind \
         sees neither the kernel nor the vDSO. In the vDSO, reading the clock takes about 60 \
         instructions. A generator that is slowed down finds more responses each time it wakes up. \
         With 1 connection, a generator wakes up for every request.",
        by(callgrind),
        by(perf),
        by(calls)
    );
}

fn instructions_of(all: &[Counted], connections: usize) {
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

fn calls_of(all: &[Counted]) {
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

/// The cases of [`fields`]: the fields of a request, as printed and as passed to the process.
const CASES: [(&str, &str); 9] = [
    ("1 field: integer, 1 to 10,000", "small"),
    ("1 field: integer, 1 to 999,999", "integer"),
    ("1 field: counter", "counter"),
    ("1 field: choice of 1,000", "choice"),
    ("1 field: text of 16", "text"),
    ("1 field: UUID", "uuid"),
    ("access log: 100,000 lines, 50,000 paths", "log"),
    ("5 fields: integers, choice, text", "small,small,small,choice,text"),
    ("5 fields: integer, counter, choice, text, UUID", "small,counter,choice,text,uuid"),
];

/// Measures what varying fields cost, in user instructions per request, compared with a fixed
/// request of the same size.
pub fn fields(options: &Options) {
    if !Counter::Callgrind.works() {
        println!("This needs valgrind: apt-get install valgrind");
        return;
    }
    let server = Server::start(13, None);
    pin(1);
    let short = options.seconds.unwrap_or(2);
    let connections = options.connections;
    let count = |connections: usize, form: &str, fields: &str| {
        let address = server.address;
        let generator =
            |s| Some(own("", &format!("as-{form} {address} {connections} {s} {fields}")));
        let counts = Counter::Callgrind.per_request(&generator, (short, short * 2), &server);
        counts?.remove("instructions:u")
    };
    let mut rows = Vec::new();
    for (name, fields) in CASES {
        let mut row = vec![name.to_owned()];
        for connections in [connections, 1] {
            let fixed = count(connections, "fixed", fields);
            let varying = count(connections, "varying", fields);
            let ratio = fixed.zip(varying).map(|(fixed, varying)| varying / fixed);
            row.extend([figure(fixed, 0), figure(varying, 0), figure(ratio, 3)]);
        }
        rows.push(row);
    }
    println!(
        "User instructions per request, by callgrind: the difference between runs of {short} s \
         and of twice that.\n"
    );
    let many = format!("{connections} connections: fixed");
    table::print(
        &["", &many, "varying", "ratio", "1 connection: fixed", "varying", "ratio"],
        &rows,
    );
}

/// Counts user and kernel instructions per request. This mode must run in the emulated machine of
/// `emulated.sh`, where 1 ns of CPU time is 1 instruction.
pub fn instructions(options: &Options) {
    let clock = clock_ns();
    assert!((0.99..1.01).contains(&clock), "1 instruction is {clock} ns: see emulated.sh");
    let short = options.seconds.unwrap_or(1);
    let long = short * 3;
    let rounds = options.rounds.unwrap_or(3);
    let (connections, body) = (options.connections, options.body);
    let server = Server::start(body, options.streams);
    pin(1);
    // Each shorter run is paired with the longer run from which it is subtracted.
    let of = |seconds| generators::all(Load { connections, seconds, body }, &server);
    let all: Vec<Generator> =
        of(short).into_iter().zip(of(long)).flat_map(<[_; 2]>::from).collect();
    let runs = measure::rounds(&all, rounds, long, &server);
    let each = |at: usize, of: fn(&Run) -> f64| -> Vec<f64> {
        let pairs = runs[at].iter().zip(&runs[at + 1]).filter(|(a, b)| a.is_ok && b.is_ok);
        pairs.map(|(a, b)| (of(b) - of(a)) / (b.requests - a.requests)).collect()
    };
    let totals = |at: usize| each(at, |ran| 1e3 * ran.cpu_us);
    let middle = |name: &str| {
        let at = all.iter().position(|g| g.name == name)?;
        spread(&totals(at)).map(|s| s.middle)
    };
    // Converts sleeps per request, or reported wake-ups per request, to requests per sleep or
    // wake-up.
    let per = |counts: Vec<f64>| -> Vec<f64> {
        counts.into_iter().filter(|count| *count > 0.0).map(|count| 1.0 / count).collect()
    };
    let row = |at: usize| {
        let own = spread(&totals(at)).map(|s| s.middle);
        let ratio = |to: &str| figure(own.zip(middle(to)).map(|(a, b)| a / b), 3);
        vec![
            all[at].name.to_owned(),
            shown(&totals(at), 0),
            ratio("wrk"),
            ratio("gcannon"),
            ratio("bare loop"),
            shown(&per(each(at, |ran| ran.sleeps)), 1),
            shown(&per(each(at, |ran| ran.printed("wakeups").unwrap_or_default())), 1),
        ]
    };
    println!(
        "User and kernel instructions per request: {connections} connections, {body} bytes, \
         {rounds} rounds, median (lowest–highest); a run of {short}·10⁹ instructions of all \
         programs together subtracted from one of {long}·10⁹. An instruction takes {clock:.4} ns, \
         by a loop of known length.\n"
    );
    let head = [
        "",
        "user and kernel",
        "÷ wrk",
        "÷ gcannon",
        "÷ bare loop",
        "requests/sleep",
        "requests/wake-up",
    ];
    table::print(&head, &(0..all.len()).step_by(2).map(row).collect::<Vec<_>>());
}

/// Returns the CPU time of an instruction in nanoseconds, measured with a loop of two instructions.
/// The result includes the kernel's work during the loop.
fn clock_ns() -> f64 {
    const TURNS: u64 = 100_000_000;
    let cpu_ns = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
    };
    let before = cpu_ns();
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "the number of instructions must be known")]
    // SAFETY: the loop decrements a register and touches nothing else.
    unsafe {
        std::arch::asm!("2: dec {0}", "jnz 2b", inout(reg) TURNS => _, options(nomem, nostack));
    }
    (cpu_ns() - before) / (2 * TURNS) as f64
}

/// Measures bytes per CPU second with large bodies. hotlap compares every byte, or the bytes of one
/// body in a hundred.
pub fn large(options: &Options) {
    let seconds = options.seconds.unwrap_or(1);
    let rounds = options.rounds.unwrap_or(7);
    // With more connections, this mode would measure the sockets' buffers.
    let connections = options.connections.min(32);
    pin(1);
    let mut rows = Vec::new();
    for (label, body) in [("64 KiB", 64 << 10), ("1 MiB", 1 << 20)] {
        let server = Server::start(body, None);
        let address = server.address;
        let mut all = generators::all(Load { connections, seconds, body }, &server);
        let sampling = format!("as-hotlap {address} {connections} {seconds} {body} 1 100");
        all.insert(1, own("hotlap, 1 in 100", &sampling));
        let speed = |ran: &Run| ran.requests * body as f64 / ran.cpu_us.max(1.0) / 1e3;
        let runs = measure::rounds(&all, rounds, seconds, &server);
        let speeds: Vec<Vec<f64>> = runs.iter().map(|r| r.iter().map(speed).collect()).collect();
        let wrk = all.iter().position(|g| g.name == "wrk");
        for (generator, own) in all.iter().zip(&speeds) {
            // Ratios are taken within each round.
            let wrk = wrk.iter().flat_map(|at| &speeds[*at]);
            let ratios: Vec<f64> = own.iter().zip(wrk).map(|(own, wrk)| own / wrk).collect();
            let name = format!("{} × {label}", generator.name);
            rows.push(vec![name, shown(own, 2), shown(&ratios, 3)]);
        }
    }
    println!(
        "{connections} connections, {rounds} rounds of {seconds} s, interleaved: median \
         (lowest–highest). hotlap compares every byte, or those of one body in 100.\n"
    );
    table::print(&["generator × body", "GB per CPU second", "÷ wrk"], &rows);
}

/// Compares N threads of one process with N processes of one thread, over the same number of
/// connections. Writing to shared cache lines would make the threads more expensive.
pub fn threads(options: &Options) {
    let seconds = options.seconds.unwrap_or(1);
    let rounds = options.rounds.unwrap_or(9);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Two threads are always tried, and more threads only with a core for each.
    let counts: Vec<usize> = [2, 4, 8, 16].into_iter().filter(|n| *n == 2 || *n <= cores).collect();
    let mut rows = Vec::new();
    for threads in counts {
        let cpus: Vec<usize> = (0..threads).collect();
        let server = Server::on(&cpus, 13, None);
        let (address, each) = (server.address, 50);
        let all = threads * each;
        let together = own("threads", &format!("as-hotlap {address} {all} {seconds} 13 {threads}"));
        let apart = own("processes", &format!("as-hotlap {address} {each} {seconds} 13 1"));
        // The processes run at the same time, as children of one shell that waits for them.
        let line = apart.command.join(" ");
        let script = format!("{} wait", format!("{line} & ").repeat(threads));
        let apart =
            Generator { command: ["sh", "-c", &script].map(str::to_owned).to_vec(), ..apart };
        let runs = measure::rounds(&[together, apart], rounds, seconds, &server);
        let costs = |at: usize| runs[at].iter().map(Run::cpu_us_per_request);
        let (shared, single): (Vec<f64>, Vec<f64>) = costs(0).zip(costs(1)).unzip();
        let ratios: Vec<f64> = shared.iter().zip(&single).map(|(a, b)| a / b).collect();
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

/// The number of open files that [`scale`] needs in each process, for 40,000 connections.
pub const FILES: u64 = 45_000;

/// Measures many connections in one process: the memory of each without its socket, and more
/// connections than one loopback address has ports.
pub fn scale(options: &Options) {
    let seconds = options.seconds.unwrap_or(2);
    let server = Server::start(13, None);
    let address = server.address;
    let mut rows = Vec::new();
    let mut base: Option<(f64, f64)> = None;
    // For a source address, Linux tries the odd ports only once the 14,116 even ports are taken.
    // From then on, it retries all even ports for each connection. Three addresses have enough even
    // ports for 40,000 connections.
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
        "One thread ran a closed loop for {seconds} s, in which every connection was used. \
         Resident memory is the peak. Bytes per connection are the increase over the peak with 100 \
         connections, for each further connection. Sockets belong to the kernel and are not \
         included.\n"
    );
    let head = ["connections", "up", "correct responses", "resident, KiB", "bytes per connection"];
    table::print(&head, &rows);
}

/// Measures how late the generator itself sends in an open loop.
pub fn paced(rate: f64) {
    let endpoint = Endpoint::Tcp(Server::start(13, None).address);
    let request = Request::get("/", "localhost").expecting(&body(13));
    let paces = [Pace::Constant { rate }, Pace::Poisson { rate, seed: 1 }];
    for (pace, busy_poll) in
        paces.into_iter().flat_map(|pace| [(pace.clone(), true), (pace, false)])
    {
        let mut plan = Plan::new(Target::plain(endpoint.clone()), request.clone());
        plan.cpus = vec![1];
        plan.busy_poll = busy_poll;
        plan.pace = pace.clone();
        plan.stop = Stop::After(Duration::from_secs(3));
        let outcome = hotlap_load::run(&plan).expect("a load");
        let us = |ns: u64| ns as f64 / 1e3;
        println!(
            "{pace:?}, {}: {:.1} requests/s; lag p50 {:.1} µs, p99 {:.1}, max {:.1}; service p50 \
             {:.1}, p99 {:.1}; busy {:.0}%",
            if busy_poll { "busy polling" } else { "sleeping" },
            outcome.rate(),
            us(outcome.lag.quantile(0.5)),
            us(outcome.lag.quantile(0.99)),
            us(outcome.lag.max()),
            us(outcome.service_time.quantile(0.5)),
            us(outcome.service_time.quantile(0.99)),
            outcome.threads[0].busy() * 100.0,
        );
    }
}
