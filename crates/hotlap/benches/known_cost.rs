//! Tests whether hotlap finds a known cost. One server of each pair does extra arithmetic for each
//! request. The cost of the arithmetic is timed alone, by the same program without a server. The
//! cost is also timed inside the server, for one request in many, while hotlap loads the server.
//! The built `hotlap` measures the servers as users do, with commands and a JSON export.
//!
//!     cargo bench -p hotlap --bench known_cost -- [--seconds 25] [--connections 4,64,1000]
//!         [--extra-us 0.2,0.5,1,2,4] [--bases 0,0.5,1,2,4,7] [--keep FILE]
//!         [--lang rust|c|go|python|node]
//!     cargo bench -p hotlap --bench known_cost -- --bursts [--runs 20] [--seconds 60]
//!         [--keep FILE]
//!     cargo bench -p hotlap --bench known_cost -- --warm [--runs 20] [--seconds 60]
//!     cargo bench -p hotlap --bench known_cost -- --calls [--lang node] [--extra-percent 5]
//!         [--runs 20] [--seconds 60] [--keep FILE]
//!
//! A base is work that both servers of a pair do, in microseconds. The bases determine how busy the
//! generator is. Each case is a separate run, which is written to the file of `--keep` when it
//! ends. The same command continues where an earlier one stopped.
//!
//! `--warm` measures servers that become cheaper: during the first 20 s of their CPU time, or once
//! the load has paused often enough. Each of them must be called "still warming up" or be measured
//! correctly. A server of constant cost must not be called "still warming up".
//!
//! `--calls` counts verdicts. A server is compared with itself and with a server that costs a known
//! share more.
//!
//! `--bursts` measures bursts and timers in a server in C. The true cost is what `wrk` finds in
//! turns of 8 s on the same cores, all turns taken together.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its table")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hotlap::cmd::selftest::arena::pinned;
use hotlap::cmd::selftest::trials::{difference, tolerance};
use hotlap_servers::machine::{self, Machine};
use hotlap_stats::{Estimate, median};
use hotlap_testbed::unused_address;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// What a server does in addition to its requests: bursts of a given CPU time, or a timer.
const BURSTS: [(&str, &[&str]); 3] = [
    ("150 ms every 200,000 requests", &["--every", "200000", "--burn-ms", "150"]),
    ("50 ms every 50,000 requests", &["--every", "50000", "--burn-ms", "50"]),
    ("2 ms every 20 ms", &["--timer-ms", "20", "--tick-ms", "2"]),
];

/// How a server becomes cheaper. At first, each response takes arithmetic that costs about as much
/// as two requests. The arithmetic either shrinks to nothing gradually or ends all at once.
const WARM: [(&str, &[&str]); 2] = [
    ("for 20 s of its CPU time", &["--warm", "6000", "--warm-cpu-ms", "20000"]),
    ("once the load has paused 40 times", &["--warm", "6000", "--warm-pauses", "40"]),
];

/// The relative error up to which a cost counts as right.
const RIGHT: f64 = 0.05;

/// A ratio or a difference, with the ends of its interval.
type Interval = (f64, f64, f64);

/// One pair of servers and its results.
#[derive(Serialize, Deserialize)]
struct Case {
    lang: String,
    seconds: u64,
    connections: u64,
    base_us: f64,
    extra_us: f64,
    /// The cost of the extra work alone: the mean of two timings, before and after the run.
    known_us: f64,
    /// The cost of the extra work as timed inside the server: the median over the server's
    /// processes.
    #[serde(default)]
    inside_us: Option<f64>,
    /// The difference that hotlap found.
    found_us: Option<Interval>,
    /// How busy the generator was with the server without extra work, in per cent.
    busy_percent: f64,
}

/// One run of a server against itself, or against one that costs more.
#[derive(Serialize, Deserialize)]
struct Call {
    lang: String,
    seconds: u64,
    run: u64,
    /// How much more the second server costs: the requested share, and the ratio from the work
    /// timed alone.
    extra_percent: f64,
    known: f64,
    ratio: Option<Interval>,
    is_called: bool,
}

/// One run of a server with bursts, and what `wrk` found just before the run.
#[derive(Serialize, Deserialize)]
struct Burst {
    what: String,
    seconds: u64,
    run: u64,
    /// The CPU time and the number of requests under `wrk`, without and with bursts.
    wrk: [(u64, u64); 2],
    /// The ratio that hotlap found.
    ratio: Option<Interval>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let options = Options { args };
    let host = Machine::describe();
    println!("{} × {}, {}, {}\n", host.allowed, host.cpu, host.os, host.kernel);
    let has = |name: &str| options.args.iter().any(|a| a == name);
    match () {
        () if has("--bursts") => bursts(&options),
        () if has("--warm") => warm(&options),
        () if has("--calls") => calls(&options),
        () => costs(&options),
    }
}

struct Options {
    args: Vec<String>,
}

impl Options {
    fn text<'a>(&'a self, name: &str, usual: &'a str) -> &'a str {
        let at = self.args.iter().position(|a| a == name);
        at.map_or(usual, |at| {
            self.args.get(at + 1).unwrap_or_else(|| panic!("{name} wants a value"))
        })
    }

    fn numbers(&self, name: &str, usual: &str) -> Vec<f64> {
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text} is no number"));
        self.text(name, usual).split(',').map(number).collect()
    }

    fn whole(&self, name: &str, usual: &str) -> u64 {
        self.numbers(name, usual)[0] as u64
    }

    /// Returns the path of the file that keeps the results.
    fn keep(&self, usual: &str) -> PathBuf {
        let usual = Path::new(env!("CARGO_TARGET_TMPDIR")).join(usual);
        PathBuf::from(self.text("--keep", &usual.to_string_lossy()))
    }
}

/// Reads the results that are already in the file.
fn kept<T: DeserializeOwned>(file: &Path) -> Vec<T> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn keep(file: &Path, found: &impl Serialize) {
    let file = OpenOptions::new().create(true).append(true).open(file);
    let line = serde_json::to_string(found).expect("a line");
    writeln!(file.expect("a file to keep the cases in"), "{line}").expect("a line kept");
}

/// A program whose server does work of known cost.
struct Program {
    lang: String,
    argv: Vec<String>,
}

impl Program {
    fn build(lang: &str) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/known_cost");
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("known-cost-{lang}"));
        let of = |name| source.join(name);
        let [built, c, go, python, node] =
            [built, of("server.c"), of("server.go"), of("server.py"), of("server.mjs")]
                .map(|path| path.to_string_lossy().into_owned());
        let argv = match lang {
            "rust" => vec![HOTLAP.to_owned(), "__known".to_owned()],
            "c" => {
                output(Command::new("gcc").args(["-O2", "-o", &built, &c]));
                vec![built]
            }
            "go" => {
                output(Command::new("go").args(["build", "-o", &built, &go]));
                vec![built]
            }
            "python" => vec!["python3".to_owned(), python],
            "node" => vec!["node".to_owned(), node],
            other => panic!("{other} is none of rust, c, go, python and node"),
        };
        Self { lang: lang.to_owned(), argv }
    }

    fn with(&self, args: &[&str]) -> Vec<String> {
        self.argv.iter().cloned().chain(args.iter().map(|&arg| arg.to_owned())).collect()
    }

    /// Returns a server that does `base` and then `extra` rounds of arithmetic per request.
    fn server(&self, base: u64, extra: u64) -> Vec<String> {
        match self.lang.as_str() {
            "rust" if extra == 0 => self.with(&[&format!("working:{base}")]),
            "rust" => self.with(&[&format!("working:{base}+working:{extra}")]),
            _ => self.with(&["--base", &base.to_string(), "--extra", &extra.to_string()]),
        }
    }

    /// Returns the cost of this many rounds alone, in microseconds. The result is the lowest median
    /// of several groups of stretches.
    fn alone_us(&self, rounds: u64) -> f64 {
        const STRETCH: &str = "1000";
        let argv = match self.lang.as_str() {
            "rust" => self.with(&["--alone", STRETCH, &format!("working:{rounds}")]),
            _ => self.with(&["--extra", &rounds.to_string(), "--alone", STRETCH]),
        };
        let cores = machine::split_here(None).server;
        let printed = pinned(&cores, || output(Command::new(&argv[0]).args(&argv[1..])));
        let stretches: Vec<f64> = printed.lines().map(|ns| ns.parse().expect("a time")).collect();
        let groups = stretches.chunks(9).filter_map(median);
        groups.min_by(f64::total_cmp).expect("a group") / 1e3
    }
}

/// Runs a command and returns what it prints.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What `hotlap run` exports about two commands.
struct Measured {
    /// Whether each server was still warming up: first the one without extra work, then the one
    /// with it.
    unsteady: [bool; 2],
    /// The CPU time per request of both servers, in microseconds.
    costs_us: [f64; 2],
    /// The CPU time per request of the second server, divided by the first server's. `None` if one
    /// restart gives no interval.
    ratio: Option<Estimate>,
    /// Whether the two servers got a verdict.
    is_called: bool,
    busy_percent: f64,
}

fn hotlap(seconds: u64, connections: u64, commands: [&[String]; 2]) -> Measured {
    let export = Path::new(env!("CARGO_TARGET_TMPDIR")).join("known-cost.json");
    let (duration, connections) = (format!("{seconds}s"), connections.to_string());
    let mut run = Command::new(HOTLAP);
    run.args(["run", "--quiet", "--no-store", "--no-config", "-d", &duration, "-c", &connections]);
    run.args(["--name", "without", "--name", "with", "--export-json"]).arg(&export);
    output(run.args(commands.map(shell_words::join)));
    let text = fs::read_to_string(&export).expect("an export");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).expect("a row");
    let cost = &row("with")["against"]["cost"];
    let is_called = matches!(cost["verdict"].as_str(), Some("better" | "worse"));
    let ratio = |part: &str| cost["ratio"][part].as_f64();
    let laps = report["laps"].as_array().expect("laps").iter();
    let busy: Vec<f64> = laps
        .filter(|lap| lap["server"] == "without" && lap["rate"].is_null())
        .filter_map(|lap| lap["generator_percent"].as_f64())
        .collect();
    let notes = report["warnings"].as_array().expect("notes").iter().filter_map(Value::as_str);
    let notes: Vec<&str> = notes.collect();
    let is_unsteady = |name: &str| {
        let begins = [format!("{name} was still warming up"), format!("{name} was not steady")];
        notes.iter().any(|note| begins.iter().any(|begin| note.starts_with(begin)))
    };
    Measured {
        unsteady: ["without", "with"].map(is_unsteady),
        costs_us: ["without", "with"]
            .map(|name| row(name)["cpu_us"]["value"].as_f64().unwrap_or(f64::NAN)),
        ratio: ratio("value")
            .zip(ratio("low"))
            .zip(ratio("high"))
            .map(|((value, low), high)| Estimate { value, low, high }),
        is_called,
        busy_percent: median(&busy).unwrap_or(f64::NAN),
    }
}

fn interval(of: Estimate) -> Interval {
    (of.value, of.low, of.high)
}

/// Measures all cases that are not kept yet, and prints all cases.
fn costs(options: &Options) {
    let program = Program::build(options.text("--lang", "c"));
    let (seconds, file) = (options.whole("--seconds", "25"), options.keep("known-cost.jsonl"));
    let earlier: Vec<Case> = kept(&file);
    // With this many rounds, the cost of the call does not matter.
    const MANY: u64 = 2_000;
    let round_us = program.alone_us(MANY) / MANY as f64;
    println!(
        "| connections | base µs | generator busy | alone µs | within | inside µs | within | found \
         µs |"
    );
    println!("|---:|---:|---:|---:|---|---:|---|---:|");
    let (mut cases, mut right) = (0, [0; 2]);
    for connections in options.numbers("--connections", "4,64,1000") {
        for base_us in options.numbers("--bases", "0,0.5,1,2,4,7") {
            for extra_us in options.numbers("--extra-us", "0.2,0.5,1,2,4") {
                let connections = connections as u64;
                let is_this = |case: &&Case| {
                    (case.lang.as_str(), case.seconds, case.connections)
                        == (&program.lang, seconds, connections)
                        && (case.base_us, case.extra_us) == (base_us, extra_us)
                };
                let new;
                let case = match earlier.iter().find(is_this) {
                    Some(case) => case,
                    None => {
                        let rounds = [base_us, extra_us].map(|us| (us / round_us).round() as u64);
                        new = Case {
                            base_us,
                            extra_us,
                            ..measure(&program, seconds, connections, rounds)
                        };
                        keep(&file, &new);
                        &new
                    }
                };
                cases += 1;
                for (right, is_right) in right.iter_mut().zip(tell(case)) {
                    *right += u32::from(is_right);
                }
            }
        }
    }
    println!("\nOf {cases}, within 6% or the interval: {right:?} of the costs alone and inside");
}

fn measure(program: &Program, seconds: u64, connections: u64, [base, extra]: [u64; 2]) -> Case {
    let extra = extra.max(1);
    let before_us = program.alone_us(extra);
    let mut servers = [program.server(base, 0), program.server(base, extra)];
    let timed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("known-cost-timed");
    let _ = fs::remove_file(&timed);
    if matches!(program.lang.as_str(), "c" | "go" | "python") {
        servers[1].extend(["--timed".to_owned(), timed.to_string_lossy().into_owned()]);
    }
    let measured = hotlap(seconds, connections, [&servers[0], &servers[1]]);
    let found_us = measured.ratio.map(|ratio| difference(measured.costs_us[0], &ratio));
    Case {
        lang: program.lang.clone(),
        seconds,
        connections,
        base_us: 0.0,
        extra_us: 0.0,
        known_us: f64::midpoint(before_us, program.alone_us(extra)),
        found_us: found_us.map(interval),
        inside_us: median(&inside_ns(&timed)).map(|ns| ns / 1e3),
        busy_percent: measured.busy_percent,
    }
}

/// Reads the mean cost of the extra work that each process of a server timed, in nanoseconds.
fn inside_ns(file: &Path) -> Vec<f64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Prints the row of a case. Returns whether hotlap found the cost as timed alone, and the cost as
/// timed inside the server.
fn tell(case: &Case) -> [bool; 2] {
    let Case { connections, base_us, busy_percent, known_us, inside_us, .. } = case;
    let (value, low, high) = case.found_us.unwrap_or((f64::NAN, f64::NAN, f64::NAN));
    let found = Estimate { value, low, high };
    let inside_us = inside_us.unwrap_or(f64::NAN);
    let right = [*known_us, inside_us].map(|us| (value - us).abs() <= tolerance(&found, us));
    let [alone, inside] = right.map(|is_right| if is_right { "yes" } else { "no" });
    println!(
        "| {connections} | {base_us} | {busy_percent:.0}% | {known_us:.3} | {alone} | \
         {inside_us:.3} | {inside} | {value:.3} [{low:.3}, {high:.3}] |"
    );
    right
}

/// Measures servers that become cheaper, and prints how hotlap judged them.
fn warm(options: &Options) {
    let program = Program::build("c");
    let (runs, seconds) = (options.whole("--runs", "20"), options.whole("--seconds", "60"));
    println!("| a server that becomes cheaper | called | right | wrong | flat, but called |");
    println!("|---|---:|---:|---:|---:|");
    for (what, args) in WARM {
        let (mut called, mut right, mut alarms) = (0, 0, 0);
        for run in 1..=runs {
            let servers = [program.with(&[]), program.with(args)];
            let found = hotlap(seconds, 64, [&servers[0], &servers[1]]);
            let [without_us, with_us] = found.costs_us;
            let ratio = with_us / without_us;
            let is_right = (ratio - 1.0).abs() <= RIGHT;
            eprintln!("run {run}: {what}: {ratio:.3}, still warming up: {:?}", found.unsteady);
            called += u64::from(found.unsteady[1]);
            right += u64::from(!found.unsteady[1] && is_right);
            alarms += u64::from(found.unsteady[0]);
        }
        println!("| {what} | {called} | {right} | {} | {alarms} |", runs - called - right);
    }
}

/// Measures all pairs that are not kept yet, and counts the verdicts.
fn calls(options: &Options) {
    let program = Program::build(options.text("--lang", "node"));
    let (runs, seconds) = (options.whole("--runs", "20"), options.whole("--seconds", "60"));
    let extra_percent = options.numbers("--extra-percent", "5")[0];
    let file = options.keep("known-calls.jsonl");
    let mut found: Vec<Call> = kept(&file);
    found.retain(|call| (&call.lang, call.seconds) == (&program.lang, seconds) && call.run <= runs);
    let plain = program.server(0, 0);
    let mut cost = None;
    for run in 1..=runs {
        for percent in [0.0, extra_percent] {
            if found.iter().any(|call| call.run == run && call.extra_percent == percent) {
                continue;
            }
            const MANY: u64 = 20_000;
            let round_us = program.alone_us(MANY) / MANY as f64;
            let cost_us =
                *cost.get_or_insert_with(|| hotlap(seconds, 64, [&plain, &plain]).costs_us[0]);
            let rounds = (cost_us * percent / 100.0 / round_us).round() as u64;
            let measured = hotlap(seconds, 64, [&plain, &program.server(0, rounds)]);
            let call = Call {
                lang: program.lang.clone(),
                seconds,
                run,
                extra_percent: percent,
                known: 1.0 + rounds as f64 * round_us / measured.costs_us[0],
                ratio: measured.ratio.map(interval),
                is_called: measured.is_called,
            };
            eprintln!(
                "run {run}: {:.3}, found {:.3?}, called: {}, still warming up: {:?}",
                call.known, call.ratio, call.is_called, measured.unsteady
            );
            keep(&file, &call);
            found.push(call);
        }
    }
    println!("| the second server costs | known | found, median | called |");
    println!("|---|---:|---:|---:|");
    for percent in [0.0, extra_percent] {
        let of_kind = || found.iter().filter(|call| call.extra_percent == percent);
        let middle = |values: Vec<f64>| median(&values).unwrap_or(f64::NAN);
        println!(
            "| {percent}% more | {:.3}× | {:.3}× | {} of {} |",
            middle(of_kind().map(|call| call.known).collect()),
            middle(of_kind().filter_map(|call| call.ratio).map(|ratio| ratio.0).collect()),
            of_kind().filter(|call| call.is_called).count(),
            of_kind().count()
        );
    }
}

/// Measures all runs with bursts that are not kept yet, and prints all runs.
fn bursts(options: &Options) {
    let program = Program::build("c");
    let (runs, seconds) = (options.whole("--runs", "20"), options.whole("--seconds", "60"));
    let file = options.keep("known-bursts.jsonl");
    let mut found: Vec<Burst> = kept(&file);
    found.retain(|burst| burst.seconds == seconds && burst.run <= runs);
    for run in 1..=runs {
        for (what, args) in BURSTS {
            if found.iter().any(|burst| burst.run == run && burst.what == what) {
                continue;
            }
            let servers = [program.with(&[]), program.with(args)];
            let mut wrk = [(0, 0); 2];
            for server in [0, 1, 1, 0] {
                let (cpu_ns, requests) = wrk_turn(&servers[server]);
                wrk[server] = (wrk[server].0 + cpu_ns, wrk[server].1 + requests);
            }
            let ratio = hotlap(seconds, 64, [&servers[0], &servers[1]]).ratio.map(interval);
            let burst = Burst { what: what.to_owned(), seconds, run, wrk, ratio };
            eprintln!("run {run}: {what}: wrk {:.3}, hotlap {ratio:.3?}", wrk_ratio([&burst]));
            keep(&file, &burst);
            found.push(burst);
        }
    }
    println!("| server | wrk | hotlap, median | intervals that hold what wrk found |");
    println!("|---|---:|---:|---:|");
    for (what, _) in BURSTS {
        let of_kind = || found.iter().filter(|burst| burst.what == what);
        let truth = wrk_ratio(of_kind());
        let ratios: Vec<Interval> = of_kind().filter_map(|burst| burst.ratio).collect();
        let held = ratios.iter().filter(|(_, low, high)| (*low..=*high).contains(&truth)).count();
        let values: Vec<f64> = ratios.iter().map(|ratio| ratio.0).collect();
        println!(
            "| {what} | {truth:.3}× | {:.3}× | {held} of {} |",
            median(&values).unwrap_or(f64::NAN),
            of_kind().count()
        );
    }
}

/// Returns the ratio of the cost of a request with bursts to the cost without bursts, as found by
/// `wrk`.
fn wrk_ratio<'a>(bursts: impl IntoIterator<Item = &'a Burst>) -> f64 {
    let mut sums = [(0, 0); 2];
    for burst in bursts {
        for (sum, turn) in sums.iter_mut().zip(burst.wrk) {
            *sum = (sum.0 + turn.0, sum.1 + turn.1);
        }
    }
    let [without, with] =
        sums.map(|(cpu_ns, requests): (u64, u64)| cpu_ns as f64 / requests as f64);
    with / without
}

/// A process that is killed when this value is dropped.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the CPU time of a newly started server under `wrk`, in nanoseconds, and the number of
/// its requests.
fn wrk_turn(argv: &[String]) -> (u64, u64) {
    let (cores, address) = (machine::split_here(None), unused_address());
    let mut server = Command::new(&argv[0]);
    server.args(&argv[1..]).env("PORT", address.port().to_string()).stdout(Stdio::null());
    let server = Ends(pinned(&cores.server, || server.spawn()).expect("a server"));
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(began.elapsed() < Duration::from_secs(5), "the server does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    let cpu_ns = || {
        let schedstat = fs::read_to_string(format!("/proc/{}/schedstat", server.0.id()));
        let text = schedstat.expect("the scheduler's statistics");
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).expect("a time")
    };
    let before_ns = cpu_ns();
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "-c64", "-d8s", &format!("http://{address}/")]);
    let printed = pinned(&cores.generator, || output(&mut wrk));
    let took_ns = cpu_ns() - before_ns;
    let line = printed.lines().find(|line| line.contains("requests in")).expect("wrk's requests");
    let requests = line.split_whitespace().next().and_then(|count| count.parse().ok());
    (took_ns, requests.expect("a number of requests"))
}
