//! What one request costs a load generator: hotlap, a bare loop that does nothing but receive, find
//! the blank line and send, and whichever of wrk, h2load, oha and gcannon this machine has.
//!
//!     cargo bench -p hotlap-load --bench floor -- [--connections 100] [--seconds 2] [--rounds 3]
//!                                                 [--body 13]
//!     cargo bench -p hotlap-load --bench floor -- paced RATE
//!
//! All of them load the same tiny server, a thread of this process, which counts the requests. It
//! is pinned to the first core, the generators to the second; they take turns, and the median of the
//! rounds is printed. Instructions are counted by `perf` where it is installed and the processor's
//! counters can be read (a virtual machine often has none); CPU time is the kernel's own account of
//! the whole process, its start included.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its table")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, Pace, Request, Stop, Target};
use hotlap_load::{Plan, run};
use rustix::event::epoll;

/// What is compared.
struct Options {
    connections: usize,
    seconds: u64,
    rounds: usize,
    body: usize,
}

/// What one round of one generator cost.
#[derive(Default, Clone, Copy)]
struct Cost {
    requests: f64,
    cpu_us: f64,
    user: Option<f64>,
    kernel: Option<f64>,
    per_wakeup: Option<f64>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    allow_files();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["as-hotlap", address, connections, seconds, body] => {
            as_hotlap(address, number(connections), number(seconds) as u64, number(body));
        }
        ["as-bare", address, connections, seconds, ..] => {
            as_bare(address, number(connections), number(seconds) as u64);
        }
        ["paced", rate] => paced(number(rate) as f64),
        _ => compare(&options(&words)),
    }
}

/// The server has as many files open as the load has connections, in a process of its own.
fn allow_files() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}

/// How late an open loop is, by its own fault.
fn paced(rate: f64) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = Endpoint::Tcp(listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        pin(0);
        serve(&listener, &AtomicU64::new(0), &body(13));
    });
    let request = Request::get("/", "localhost").expecting(&body(13));
    for pace in [Pace::Constant { rate }, Pace::Poisson { rate, seed: 1 }] {
        let mut plan = Plan::new(Target { endpoint: endpoint.clone(), tls: None }, request.clone());
        plan.cpus = vec![1];
        plan.pace = pace;
        plan.stop = Stop::After(Duration::from_secs(3));
        let outcome = run(&plan).expect("a load");
        let us = |ns: u64| ns as f64 / 1e3;
        println!(
            "{pace:?}: {:.1} requests/s; lag p50 {:.1} µs, p99 {:.1}, max {:.1}; busy {:.0} %",
            outcome.rate(),
            us(outcome.lag.quantile(0.5)),
            us(outcome.lag.quantile(0.99)),
            us(outcome.lag.max()),
            outcome.threads[0].busy() * 100.0,
        );
    }
}

fn options(words: &[&str]) -> Options {
    let named = |name: &str, default: usize| {
        let at = words.iter().position(|w| *w == name);
        at.and_then(|at| words.get(at + 1)).map_or(default, |value| number(value))
    };
    Options {
        connections: named("--connections", 100),
        seconds: named("--seconds", 2) as u64,
        rounds: named("--rounds", 3),
        body: named("--body", 13),
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn body(length: usize) -> Vec<u8> {
    b"Hello, World!".iter().copied().cycle().take(length).collect()
}

fn compare(options: &Options) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let served = Arc::new(AtomicU64::new(0));
    let (count, length) = (served.clone(), options.body);
    std::thread::spawn(move || {
        pin(0);
        serve(&listener, &count, &body(length));
    });
    pin(1);
    let has_counters = counters_can_be_read();
    let generators: Vec<(&str, Vec<String>)> = generators(options, address);
    let mut costs: BTreeMap<&str, Vec<Cost>> = BTreeMap::new();
    for round in 0..options.rounds {
        for turn in 0..generators.len() {
            let (name, command) = &generators[(turn + round) % generators.len()];
            let cost = measure(command, &served, has_counters);
            costs.entry(name).or_default().push(cost);
        }
    }
    println!(
        "{} connections, {} bytes, median of {} rounds of {} s{}\n",
        options.connections,
        options.body,
        options.rounds,
        options.seconds,
        if has_counters { "" } else { "; no instruction counters here" },
    );
    println!(
        "{:<10}{:>12}{:>12}{:>10}{:>10}{:>10}{:>12}{:>8}",
        "", "requests/s", "CPU µs", "user", "kernel", "total", "per wake-up", "÷ wrk"
    );
    let cost_of = |name: &str| costs.get(name).map(|all| median(all));
    let measure_of = |cost: &Cost| cost.total().unwrap_or(cost.cpu_us);
    let wrk = cost_of("wrk").map(|cost| measure_of(&cost));
    for (name, _) in &generators {
        let cost = cost_of(name).unwrap_or_default();
        println!(
            "{name:<10}{:>12.0}{:>12.2}{:>10}{:>10}{:>10}{:>12}{:>8}",
            cost.requests / options.seconds as f64,
            cost.cpu_us,
            shown(cost.user, 0),
            shown(cost.kernel, 0),
            shown(cost.total(), 0),
            shown(cost.per_wakeup, 2),
            shown(wrk.map(|wrk| measure_of(&cost) / wrk), 3),
        );
    }
}

impl Cost {
    fn total(&self) -> Option<f64> {
        Some(self.user? + self.kernel?)
    }
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// The round whose cost is in the middle.
fn median(all: &[Cost]) -> Cost {
    let mut sorted = all.to_vec();
    sorted.sort_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us));
    sorted[sorted.len() / 2]
}

fn generators(options: &Options, address: SocketAddr) -> Vec<(&'static str, Vec<String>)> {
    let own = std::env::current_exe().expect("this program").display().to_string();
    let Options { connections: c, seconds: s, body, .. } = options;
    let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    // Some generators wait for ever for a connection that the server's queue had no room for.
    let limit = s * 5 + 10;
    let url = format!("http://{address}/");
    let mut all = vec![
        ("hotlap", words(format!("{own} as-hotlap {address} {c} {s} {body}"))),
        ("bare", words(format!("{own} as-bare {address} {c} {s}"))),
        ("wrk", words(format!("timeout {limit} wrk -t1 -c{c} -d{s}s {url}"))),
        ("h2load", words(format!("timeout {limit} h2load --h1 -t1 -c{c} -D{s} {url}"))),
        ("oha", words(format!("timeout {limit} oha --no-tui -c {c} -z {s}s {url}"))),
        ("gcannon", words(format!("timeout {limit} gcannon {url} -c {c} -t 1 -d {s}s"))),
    ];
    // The bare loop takes each read for one answer.
    all.retain(|(name, command)| {
        (*name != "bare" || *body < 16_000) && (command[0] == own || is_installed(name))
    });
    all
}

fn is_installed(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(name).is_file())
}

const EVENTS: &str = "instructions:u,instructions:k";

fn counters_can_be_read() -> bool {
    let perf = Command::new("perf").args(["stat", "-x,", "-e", EVENTS, "true"]).output();
    perf.is_ok_and(|o| {
        o.status.success() && counted(&String::from_utf8_lossy(&o.stderr)).len() == 2
    })
}

fn counted(text: &str) -> Vec<f64> {
    text.lines().filter_map(|line| line.split(',').next()?.parse().ok()).collect()
}

fn measure(command: &[String], served: &AtomicU64, has_counters: bool) -> Cost {
    let report = std::env::temp_dir().join(format!("hotlap-floor-{}", std::process::id()));
    let mut program = if has_counters {
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x,", "-e", EVENTS, "-o"]).arg(&report).arg("--").args(command);
        perf
    } else {
        let mut program = Command::new(&command[0]);
        program.args(&command[1..]);
        program
    };
    let (before, cpu_before) = (served.load(Ordering::SeqCst), children_cpu_us());
    let output = program.stderr(Stdio::null()).output().expect("a generator");
    let (after, cpu_after) = (served.load(Ordering::SeqCst), children_cpu_us());
    let requests = (after - before).max(1) as f64;
    let counts = std::fs::read_to_string(&report).map(|text| counted(&text)).unwrap_or_default();
    let _ = std::fs::remove_file(&report);
    let told = String::from_utf8_lossy(&output.stdout);
    let wakeups = told.lines().find_map(|line| line.strip_prefix("wakeups "));
    let wakeups: Option<f64> = wakeups.and_then(|count| count.parse().ok());
    Cost {
        requests,
        cpu_us: (cpu_after - cpu_before) / requests,
        user: counts.first().map(|count| count / requests),
        kernel: counts.get(1).map(|count| count / requests),
        per_wakeup: wakeups.map(|count| requests / count),
    }
}

fn children_cpu_us() -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    #[expect(unsafe_code, reason = "no safe crate in use offers it")]
    // SAFETY: `usage` is writable and of the right type; zeroes are a valid value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let micros = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
    micros(usage.ru_utime) + micros(usage.ru_stime)
}

fn pin(cpu: usize) {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > cpu) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// The tiny server: one thread, edge-triggered, an answer for each blank line.
fn serve(listener: &TcpListener, served: &AtomicU64, body: &[u8]) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let answer = [head.as_bytes(), body].concat();
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let data = |n: usize| epoll::EventData::new_u64(n as u64);
    listener.set_nonblocking(true).expect("a socket option");
    epoll::add(&queue, listener, data(usize::MAX), epoll::EventFlags::IN).expect("epoll");
    let mut guests: Vec<Option<(TcpStream, usize)>> = Vec::new();
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; 65536];
    loop {
        events.clear();
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&queue, spare, None).is_err() {
            continue;
        }
        for event in &events {
            let number = event.data.u64() as usize;
            if number == usize::MAX {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).expect("a socket option");
                    stream.set_nodelay(true).expect("a socket option");
                    let flags =
                        epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
                    epoll::add(&queue, &stream, data(guests.len()), flags).expect("epoll");
                    guests.push(Some((stream, answer.len())));
                }
                continue;
            }
            let Some((stream, sent)) = &mut guests[number] else { continue };
            let mut is_gone = false;
            loop {
                // What did not fit before goes out first.
                while *sent < answer.len() {
                    match stream.write(&answer[*sent..]) {
                        Ok(count) => *sent += count,
                        Err(_) => break,
                    }
                }
                if *sent < answer.len() {
                    break;
                }
                match stream.read(&mut buffer) {
                    Ok(count) if count > 0 => {
                        served.fetch_add(1, Ordering::Relaxed);
                        *sent = 0;
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                    _ => {
                        is_gone = true;
                        break;
                    }
                }
                if answer.len() < 16_000 {
                    *sent = stream.write(&answer).unwrap_or(0);
                    break;
                }
            }
            if is_gone {
                guests[number] = None;
            }
        }
    }
}

fn as_hotlap(address: &str, connections: usize, seconds: u64, length: usize) {
    let endpoint = Endpoint::Tcp(address.parse().expect("an address"));
    let request = Request::get("/", address).expecting(&body(length));
    let mut plan = Plan::new(Target { endpoint, tls: None }, request);
    plan.connections = connections;
    plan.ramp = Duration::ZERO;
    plan.stop = Stop::After(Duration::from_secs(seconds));
    let outcome = run(&plan).expect("a load");
    assert_eq!(outcome.failures.total(), 0, "{:?}", outcome.failures);
    println!("wakeups {}", outcome.threads[0].wakeups);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!(
        "{} of {connections} up; {}",
        outcome.connections.established,
        peak.unwrap_or_default()
    );
}

/// The floor: what no generator can do without.
fn as_bare(address: &str, connections: usize, seconds: u64) {
    let request = hotlap_load::http::request("GET", "/", address, &[], b"");
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let streams: Vec<TcpStream> = (0..connections)
        .map(|_| TcpStream::connect(address).expect("a server"))
        .inspect(|stream| stream.set_nodelay(true).expect("a socket option"))
        .collect();
    for (number, stream) in (0..).zip(&streams) {
        stream.set_nonblocking(true).expect("a socket option");
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&queue, stream, epoll::EventData::new_u64(number), flags).expect("epoll");
        rustix::net::send(stream, &request, rustix::net::SendFlags::NOSIGNAL).expect("a server");
    }
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; 16384];
    let (begun, mut wakeups) = (Instant::now(), 0u64);
    while begun.elapsed() < Duration::from_secs(seconds) {
        events.clear();
        epoll::wait(&queue, rustix::buffer::spare_capacity(&mut events), None).expect("epoll");
        wakeups += 1;
        for event in &events {
            let stream = &streams[event.data.u64() as usize];
            let flags = rustix::net::RecvFlags::empty();
            let Ok((_, count)) = rustix::net::recv(stream, &mut buffer[..], flags) else {
                continue;
            };
            assert!(buffer[..count].windows(4).any(|w| w == b"\r\n\r\n"), "no answer");
            rustix::net::send(stream, &request, rustix::net::SendFlags::NOSIGNAL)
                .expect("a server");
        }
    }
    println!("wakeups {wakeups}");
}
