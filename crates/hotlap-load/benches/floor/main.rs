//! Measures what a request costs a load generator. The generators are hotlap, a bare loop, and wrk,
//! h2load, oha and gcannon if they are on the `PATH`. The bare loop only receives, finds the blank
//! line and sends.
//!
//!     cargo bench -p hotlap-load --bench floor      CPU time, requests per wake-up, system calls
//!     … -- counts       instructions and system calls per request, also on a busy machine
//!     … -- fields       user instructions per request with fields that vary
//!     … -- instructions user and kernel instructions per request, in the emulated machine of
//!                       emulated.sh, whose clock counts them
//!     … -- ablation     like the first line, over 10, 100 and 1,000 connections
//!     … -- large        bodies of 64 KiB and 1 MiB: bytes per CPU second
//!     … -- threads      N threads of one process compared with N processes of one thread
//!     … -- scale        memory per connection, and more connections than an address has ports
//!     … -- paced RATE   how late an open loop sends
//!
//! The options `--connections`, `--seconds`, `--rounds` and `--body` each take a number. A mode
//! ignores options that it does not need. The first line, `counts`, `instructions` and `ablation`
//! also take `--streams`. The generators then speak HTTP/2, with this many streams on each
//! connection.
//!
//! All generators load the same small server, which runs in this process and counts the requests.
//! Except in the modes `threads` and `scale`, the server is pinned to the first core, and the
//! generators to the second. The generators run in turn. A figure with a range is the median of the
//! rounds, with the lowest and the highest value. CPU time is the kernel's figure for the whole
//! process. Counts that are not available are shown as a dash.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its table")]

mod generators;
mod measure;
mod modes;
mod server;
mod table;

use rustix::process::{Resource, getrlimit, setrlimit};

/// The options of the command line.
#[derive(Clone, Copy)]
struct Options {
    connections: usize,
    seconds: Option<u64>,
    rounds: Option<usize>,
    body: usize,
    /// The number of streams of each connection. `None` for HTTP/1.1.
    streams: Option<usize>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    allow_files();
    let options = options(&words);
    match words[..] {
        ["as-hotlap", ..] => generators::as_hotlap(&words[1..], None),
        ["as-http2", streams, ..] => generators::as_hotlap(&words[2..], Some(number(streams))),
        ["as-bare", ..] => generators::as_bare(&words[1..]),
        ["as-fixed", ..] => generators::as_fields(&words[1..], true),
        ["as-varying", ..] => generators::as_fields(&words[1..], false),
        ["counts", ..] => modes::counts(&options),
        ["fields", ..] => modes::fields(&options),
        ["instructions", ..] => modes::instructions(&options),
        ["ablation", ..] => modes::cost(&options, &[10, 100, 1_000]),
        ["large", ..] => modes::large(&options),
        ["threads", ..] => modes::threads(&options),
        ["scale", ..] => modes::scale(&options),
        ["paced", rate, ..] => modes::paced(number(rate) as f64),
        _ => modes::cost(&options, &[options.connections]),
    }
}

fn options(words: &[&str]) -> Options {
    let named = |name: &str| {
        let at = words.iter().position(|w| *w == name);
        at.and_then(|at| words.get(at + 1)).map(|value| number(value))
    };
    Options {
        connections: named("--connections").unwrap_or(100),
        seconds: named("--seconds").map(|s| s as u64),
        rounds: named("--rounds"),
        body: named("--body").unwrap_or(13),
        streams: named("--streams"),
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

/// Raises the limit of open files as far as possible, because the server needs a file for each
/// connection. Only root may exceed the hard limit.
fn allow_files() {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map(|hard| hard.max(modes::FILES));
    let raised = rustix::process::Rlimit { current: most, maximum: most };
    if setrlimit(Resource::Nofile, raised).is_err() {
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Pins the calling thread, and the processes that it starts, to a core, if this core exists.
fn pin(cpu: usize) {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > cpu) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
