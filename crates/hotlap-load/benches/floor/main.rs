//! What one request costs a load generator: hotlap, a bare loop that does nothing but receive, find
//! the blank line and send, and whichever of wrk, h2load, oha and gcannon is on the `PATH`.
//!
//!     cargo bench -p hotlap-load --bench floor             CPU time per request, 100 connections
//!     … -- counts       instructions and system calls per request, for busy machines too
//!     … -- instructions user and kernel instructions per request, within the machine that
//!                       emulated.sh, beside this file, emulates: its clock counts them
//!     … -- ablation     10, 100, 1,000 connections: CPU time, requests per wake-up, system calls
//!     … -- large        bodies of 64 KiB and 1 MiB: bytes per CPU second
//!     … -- threads      N threads of one process beside N processes of one thread
//!     … -- scale        memory per idle connection; more of them than an address has ports
//!     … -- paced RATE   how late an open loop is, by its own fault
//!
//! `--connections`, `--seconds`, `--rounds` and `--body` follow any of them, each with a number.
//!
//! All generators load the same tiny server, threads of this process, which counts the requests. It
//! is pinned to the first core, the generators to the second; they take turns, and medians of the
//! rounds are printed with the lowest and the highest. CPU time is the kernel's own account of the
//! whole process, its start included. What a machine cannot count is a dash, with the reason.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its table")]

mod ablation;
mod compare;
mod counts;
mod generators;
mod instructions;
mod large;
mod measure;
mod paced;
mod scale;
mod server;
mod table;
mod threads;

use rustix::process::{Resource, getrlimit, setrlimit};

/// What can be set.
#[derive(Clone, Copy)]
struct Options {
    connections: usize,
    seconds: Option<u64>,
    rounds: Option<usize>,
    body: usize,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    allow_files();
    let options = options(&words);
    match words[..] {
        ["as-hotlap", ..] => generators::as_hotlap(&words[1..]),
        ["as-bare", ..] => generators::as_bare(&words[1..]),
        ["counts", ..] => counts::run(&options),
        ["instructions", ..] => instructions::run(&options),
        ["ablation", ..] => ablation::run(&options),
        ["large", ..] => large::run(&options),
        ["threads", ..] => threads::run(&options),
        ["scale", ..] => scale::run(&options),
        ["paced", rate, ..] => paced::run(number(rate) as f64),
        _ => compare::run(&options),
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
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

/// The server has as many files open as the load has connections, in a process of its own. Beyond
/// the hard limit it takes an administrator.
fn allow_files() {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map(|hard| hard.max(scale::FILES));
    let raised = rustix::process::Rlimit { current: most, maximum: most };
    if setrlimit(Resource::Nofile, raised).is_err() {
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Keeps the calling thread, and what it starts, on a core, if there is such a core.
fn pin(cpu: usize) {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > cpu) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
