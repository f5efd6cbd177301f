//! Is the method right? Many short races of a server against itself, and against one that was made
//! dearer, while a neighbour takes a random share of every core in bursts.
//!
//!     cargo bench -p hotlap --bench method -- [--runs 100] [--seconds 20] [--slice-ms 12]
//!                 [--connections 64] [--dearer 3] [--best-runs 20] [--best-seconds 3]
//!                 [--no-neighbour] [--data] [--keep FILE]
//!
//! The servers are hotlap's ceiling, which spends nearly all of its time in the kernel; with
//! `--data`, ones that spend most of it in user space on 10 MB of data. Each run is a whole race as
//! `hotlap run` holds it (fresh starts, warm-ups, mirrored blocks, the reference's double, the same
//! verdicts) of four processes: the reference, its double, its twin, and one that does some
//! arithmetic more on each request. The first `--best-runs` of them also measure reference and twin
//! as best of three, one after the other, to compare the errors. Every run is written to the kept
//! file when it ends; the same command goes on where it was left, and one with a smaller `--runs`
//! only tells what is there. Run N has the seed N.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its table")]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotlap::cmd::prove::arena::Arena;
use hotlap::console::Console;
use hotlap::export::Exports;
use hotlap::report::standing::{Measure, Measured, Standing};
use hotlap::timekeeper::Timekeeper;
use hotlap_harness::cores;
use hotlap_harness::entrant::Role;
use hotlap_harness::host::Host;
use hotlap_harness::lap::{Kind, Lap};
use hotlap_harness::live::Live;
use hotlap_harness::track::Track;
use hotlap_stats::{Better, Criterion, Reading, Verdict, effect, median, pairs, verdicts};
use hotlap_testbed::Calibrated;
use serde::{Deserialize, Serialize};

/// What is asked.
struct Options {
    runs: u64,
    seconds: u64,
    slice_ms: Option<u64>,
    connections: usize,
    dearer: f64,
    best_runs: u64,
    best_seconds: u64,
    neighbour: bool,
    /// Whether servers work on 10 MB of data.
    data: bool,
    keep: PathBuf,
}

/// What one run found.
#[derive(Serialize, Deserialize)]
struct Found {
    run: u64,
    /// Runs of one setting belong together.
    setting: String,
    /// Rounds of arithmetic that make a server dearer.
    rounds: u64,
    /// ln(twin / reference), cost and requests/s.
    twin_cost: f64,
    twin_rate: f64,
    /// Whether the twin got a verdict.
    alarm_cost: bool,
    alarm_rate: bool,
    /// ln(dearer / reference), and whether it was called dearer.
    dearer_cost: f64,
    called_dearer: bool,
    /// The least difference in cost that this run would have called; none where it would call none.
    smallest: Option<f64>,
    /// Standard deviation of ln(twin / reference), cost, between heats and between blocks.
    sd_heat: f64,
    sd_block: f64,
    /// ln(twin / reference), requests/s, best of three.
    best_rate: Option<f64>,
    /// The share of the run that was measured.
    measured: f64,
    heats: u32,
    blocks: u32,
    /// What all rests on: heat, block and value of each block, of each server; so that another
    /// estimator can be tried on the same runs.
    cost_readings: Vec<Vec<(u32, u32, f64)>>,
    rate_readings: Vec<Vec<(u32, u32, f64)>>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [word, seed] = &args[..]
        && word == "as-neighbour"
    {
        neighbour(number(seed));
    }
    let options = options(&args);
    let arena = Arena::new(Path::new(env!("CARGO_BIN_EXE_hotlap"))).expect("an arena");
    let mut found = kept(&options);
    let mut rounds = found.first().map(|f| f.rounds);
    for run in 1..=options.runs {
        if found.iter().any(|f| f.run == run) {
            continue;
        }
        let rounds = *rounds.get_or_insert_with(|| calibrate(&arena, &options));
        let one = beside_neighbour(&arena, &options, run, rounds);
        keep(&options, &one);
        eprintln!(
            "run {run}: twin {:+.2} % cost (heats {:.2}, blocks {:.2}), {:+.2} % requests/s; dearer \
             {:+.2} %, least {:.1} %; {} heats, {} blocks; {:.0} % measured",
            percent(one.twin_cost),
            one.sd_heat * 100.0,
            one.sd_block * 100.0,
            percent(one.twin_rate),
            percent(one.dearer_cost),
            one.smallest.unwrap_or(f64::INFINITY) * 100.0,
            one.heats,
            one.blocks,
            one.measured * 100.0,
        );
        found.push(one);
    }
    found.retain(|f| f.run <= options.runs);
    tell(&options, &found);
}

fn options(args: &[String]) -> Options {
    let named = |name: &str| {
        let at = args.iter().position(|a| a == name)?;
        Some(args.get(at + 1).unwrap_or_else(|| panic!("{name} wants a value")))
    };
    let whole = |name, usual| named(name).map_or(usual, |v| number(v));
    let dearer = named("--dearer").map_or(3.0, |v| v.parse().expect("per cent"));
    let usual = Path::new(env!("CARGO_TARGET_TMPDIR")).join("method.jsonl");
    Options {
        runs: whole("--runs", 100),
        seconds: whole("--seconds", 20),
        slice_ms: named("--slice-ms").map(|v| number(v)),
        connections: whole("--connections", 64) as usize,
        dearer,
        best_runs: whole("--best-runs", 20),
        best_seconds: whole("--best-seconds", 3),
        neighbour: !args.iter().any(|a| a == "--no-neighbour"),
        data: args.iter().any(|a| a == "--data"),
        keep: named("--keep").map_or(usual, PathBuf::from),
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

fn percent(ln: f64) -> f64 {
    ln.exp_m1() * 100.0
}

impl Options {
    fn setting(&self) -> String {
        let Self { seconds, connections, dearer, best_seconds, .. } = self;
        let slices = self.slice_ms.map_or(String::new(), |ms| format!(", slices of {ms} ms"));
        let neighbour = if self.neighbour { "neighbour" } else { "alone" };
        let data = if self.data { ", 10 MB of data" } else { "" };
        format!(
            "{seconds} s{slices}, {connections} connections, {dearer} % dearer, best of \
             three {best_seconds} s, {neighbour}{data}"
        )
    }

    /// A server that works for so many rounds more than the reference on each request.
    fn server(&self, rounds: u64) -> Calibrated {
        const STEPS: u64 = 1_000;
        if self.data {
            Calibrated::Walking { steps: STEPS + rounds }
        } else {
            Calibrated::Working { rounds }
        }
    }

    fn slice(&self) -> Option<Duration> {
        self.slice_ms.map(Duration::from_millis)
    }
}

/// The runs of this setting that are there already.
fn kept(options: &Options) -> Vec<Found> {
    let text = fs::read_to_string(&options.keep).unwrap_or_default();
    let all = text.lines().filter_map(|line| serde_json::from_str::<Found>(line).ok());
    all.filter(|found| found.setting == options.setting()).collect()
}

fn keep(options: &Options, found: &Found) {
    let file = OpenOptions::new().create(true).append(true).open(&options.keep);
    let line = serde_json::to_string(found).expect("a line");
    writeln!(file.expect("a file to keep the runs in"), "{line}").expect("a line kept");
}

/// A process that takes a random share of every core, in bursts, until it is ended.
struct Neighbour(Child);

impl Neighbour {
    fn start(seed: u64) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["as-neighbour", &seed.to_string()]).stdin(Stdio::piped());
        Self(command.spawn().expect("a neighbour"))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One thread a core, pinned: every second or so a new share of the core between none and nine
/// tenths, taken in bursts of some milliseconds. Ends when whoever started it is gone.
fn neighbour(seed: u64) -> ! {
    let cpus = cores::allowed().expect("cores");
    for (n, cpu) in cpus.into_iter().enumerate() {
        std::thread::spawn(move || {
            let _ = cores::pin(&[cpu]);
            let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(n as u64));
            loop {
                let share = 0.9 * random.next();
                let until = Instant::now() + Duration::from_secs_f64(0.3 + 2.0 * random.next());
                while Instant::now() < until {
                    let period = Duration::from_secs_f64(0.005 + 0.095 * random.next());
                    let burst = Instant::now() + period.mul_f64(share);
                    while Instant::now() < burst {
                        (0..1_000_u64).for_each(|i| _ = std::hint::black_box(i.wrapping_mul(i)));
                    }
                    std::thread::sleep(period.mul_f64(1.0 - share));
                }
            }
        });
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0)
}

/// Seeded numbers from 0 to 1 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How many rounds of arithmetic make a request dearer by what was asked. By what they cost alone
/// it would be a third less: a server that is a little slower than the generator sleeps less often,
/// and finds more requests at a wake-up. So the reference is raced against one with about as many
/// as it will be, under the conditions of the runs, four times, and as many are taken as explain
/// what was asked by what was found.
fn calibrate(arena: &Arena, options: &Options) -> u64 {
    let rounds = alone(arena, options) * 4 / 3;
    let found: Vec<f64> = (1..=4)
        .map(|n| beside_neighbour(arena, options, UNCOUNTED + n, rounds).dearer_cost)
        .map(percent)
        .collect();
    let mean = found.iter().sum::<f64>() / found.len() as f64;
    let enough = (rounds as f64 * options.dearer / mean).round() as u64;
    eprintln!("{rounds} rounds are {found:.2?} %: {enough} rounds");
    enough
}

/// Runs from this number on are not counted.
const UNCOUNTED: u64 = 1_000_000;

/// A run with a neighbour of its own.
fn beside_neighbour(arena: &Arena, options: &Options, run: u64, rounds: u64) -> Found {
    let _neighbour = options.neighbour.then(|| Neighbour::start(run));
    race(arena, options, run, rounds)
}

/// The same, by what rounds cost a server alone: the cost of a request without any, and that of one
/// with so many that the difference is known well.
fn alone(arena: &Arena, options: &Options) -> u64 {
    const MANY: u64 = 2_000;
    let entrants = [0, MANY].map(|rounds| {
        let known = options.server(rounds);
        arena.entrant(&known.to_string(), known, Role::Contestant)
    });
    let loads = [arena.load(options.connections)];
    let setting = arena.setting(Some(Duration::from_millis(12)), Duration::from_secs(1));
    let mut live = Live::new(setting, &entrants, &loads, Arc::new(AtomicBool::new(false)));
    for entrant in 0..2 {
        live.bring_up(entrant).expect("a start");
        live.warm(entrant, 0).expect("a warm-up");
    }
    let mut costs = [Vec::new(), Vec::new()];
    for entrant in [0, 1, 1, 0].repeat(20) {
        let lap = live.whole_lap(entrant, 0, Kind::Flat).expect("a lap");
        costs[entrant].extend(lap.cost_ns());
    }
    for entrant in 0..2 {
        let _ = live.stop(entrant);
    }
    let [plain, many] = costs.map(|c| median(&c).expect("laps"));
    let round = (many - plain) / MANY as f64;
    let rounds = (plain * options.dearer / 100.0 / round).round() as u64;
    eprintln!("a request costs {plain:.0} ns, a round {round:.2} ns: {rounds} rounds");
    rounds
}

/// One run.
fn race(arena: &Arena, options: &Options, run: u64, rounds: u64) -> Found {
    let plain = options.server(0);
    let entrants = vec![
        arena.entrant("reference", plain, Role::Reference),
        arena.entrant("reference (again)", plain, Role::Double),
        arena.entrant("twin", plain, Role::Contestant),
        arena.entrant("dearer", options.server(rounds), Role::Contestant),
    ];
    let budget = Duration::from_secs(options.seconds);
    let race = arena.race(entrants, options.connections, options.slice(), budget, run);
    let setting = arena.setting(options.slice(), (budget / 16).max(Duration::from_millis(500)));
    let stop = Arc::new(AtomicBool::new(false));
    let mut track = Live::new(setting, &race.entrants, &race.loads, stop);
    let (mut exports, quiet) = (Exports::default(), Console { quiet: true, ..Console::plain(80) });
    let keeper = Timekeeper::new(arena.record(&race), None, &mut exports, &quiet);
    let kept = keeper.expect("a record").keep(&race, &mut track).run;
    let standing = Standing::of(&kept, 0);
    let ln = |server: usize, better| {
        let against = standing.servers[server].against;
        let found = against.and_then(|a| if better == Better::Lower { a.cost } else { a.rate });
        found.map_or((f64::NAN, Verdict::NoDifference), |(e, v)| (e.ratio.value.ln(), v))
    };
    let spread = standing.servers[2].against.and_then(|a| a.cost).map(|(effect, _)| effect);
    let ((twin_cost, cost), (twin_rate, rate)) = (ln(2, Better::Lower), ln(2, Better::Higher));
    let (dearer_cost, called) = ln(3, Better::Lower);
    let criterion = standing.criterion_against(0, Measure::Cost);
    let costs = |server: usize| standing.side(server, Measure::Cost);
    let readings = |measure| {
        let told = |r: &Reading| (r.heat, r.block, r.value);
        let of = |s: &Measured| s.readings(measure).iter().map(told).collect();
        standing.servers.iter().map(of).collect()
    };
    let windows: u64 = kept.laps.iter().map(|l| l.window_ns).sum();
    let noise = standing.cost_noise;
    Found {
        run,
        setting: options.setting(),
        rounds,
        twin_cost,
        twin_rate,
        alarm_cost: cost.differs(),
        alarm_rate: rate.differs(),
        dearer_cost,
        called_dearer: called == Verdict::Worse,
        smallest: smallest(&costs(2), &costs(0), &criterion),
        sd_heat: spread.map_or(f64::NAN, |e| e.spread.sd_heat),
        sd_block: spread.map_or(f64::NAN, |e| e.spread.sd_block),
        best_rate: (1..=options.best_runs).contains(&run).then(|| best_of_three(arena, options)),
        measured: windows as f64 / 1e6 / kept.took_ms.max(1) as f64,
        heats: noise.map_or(0, |n| n.heats),
        blocks: noise.map_or(0, |n| n.blocks),
        cost_readings: readings(Measure::Cost),
        rate_readings: readings(Measure::Rate),
    }
}

/// The least difference that would have got a verdict: the twin's readings are made dearer in steps
/// of a tenth of a per cent until they do.
fn smallest(twin: &[Reading], reference: &[Reading], criterion: &Criterion) -> Option<f64> {
    let called = |by: f64| {
        let dearer = |r: &Reading| Reading { value: r.value * (1.0 + by), ..*r };
        let dearer: Vec<Reading> = twin.iter().map(dearer).collect();
        let found = effect(&pairs(&dearer, reference), 1.0 - criterion.alpha);
        found.is_some_and(|effect| verdicts(&[(*criterion, effect)])[0] == Verdict::Worse)
    };
    (1..=500).map(|step| f64::from(step) / 1e3).find(|by| called(*by))
}

/// The usual way: three long laps of one, then three of the other, and the best of each.
fn best_of_three(arena: &Arena, options: &Options) -> f64 {
    let plain = options.server(0);
    let entrants = ["one", "two"].map(|name| arena.entrant(name, plain, Role::Contestant));
    let loads = [arena.load(options.connections)];
    let setting =
        arena.setting(Some(Duration::from_secs(options.best_seconds)), Duration::from_secs(1));
    let mut live = Live::new(setting, &entrants, &loads, Arc::new(AtomicBool::new(false)));
    let mut best = |entrant| {
        live.bring_up(entrant).expect("a start");
        live.warm(entrant, 0).expect("a warm-up");
        let laps: Vec<Lap> =
            (0..3).map(|_| live.whole_lap(entrant, 0, Kind::Flat).expect("a lap")).collect();
        let _ = live.stop(entrant);
        laps.iter().map(|lap| lap.outcome.rate()).fold(0.0, f64::max)
    };
    let one: f64 = best(0);
    (best(1) / one).ln()
}

fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let squares: Vec<f64> = values.filter(|v| v.is_finite()).map(|v| v * v).collect();
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}

/// The value below which nine in ten are.
fn nine_in_ten(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * 0.9).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// So many of so many, as a share with its 95 % interval (Wilson, "Probable inference, the law of
/// succession, and statistical inference", JASA 1927).
fn share(count: usize, of: usize) -> String {
    const Z: f64 = 1.96;
    let (n, p) = (of as f64, count as f64 / of as f64);
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let [low, high] = [middle - half, middle + half].map(|v| (v * 100.0).clamp(0.0, 100.0));
    format!("{count} of {of}, {:.0} % [{low:.0}, {high:.0}]", p * 100.0)
}

fn tell(options: &Options, found: &[Found]) {
    let host = Host::describe();
    let runs = found.len();
    println!("{runs} runs of {}", options.setting());
    println!("{} × {}, {}, {}\n", host.allowed, host.cpu, host.os, host.kernel);
    if runs == 0 {
        return;
    }
    let count = |is: fn(&Found) -> bool| found.iter().filter(|f| is(f)).count();
    let middle = |value: fn(&Found) -> f64| {
        median(&found.iter().map(value).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    let mut rows: BTreeMap<usize, [String; 3]> = BTreeMap::new();
    let mut row = |what: &str, is: String, goal: &str| {
        rows.insert(rows.len(), [what.to_owned(), is, goal.to_owned()]);
    };
    row("false alarms, cost", share(count(|f| f.alarm_cost), runs), "5 %");
    row("false alarms, requests/s", share(count(|f| f.alarm_rate), runs), "5 %");
    row(
        &format!("{} % more CPU, called", options.dearer),
        share(count(|f| f.called_dearer), runs),
        if options.neighbour { "95 %" } else { "90 %" },
    );
    row(
        "the same, as found in the middle",
        format!("{:+.2} %", percent(middle(|f| f.dearer_cost))),
        "",
    );
    let least = nine_in_ten(found.iter().map(|f| f.smallest.unwrap_or(f64::INFINITY)));
    row("smallest difference found in 90 %", format!("{:.1} %", least * 100.0), "1 %");
    row(
        "error of cost, rms",
        format!("{:.2} %", rms(found.iter().map(|f| f.twin_cost)) * 100.0),
        "0.3 %",
    );
    let rate = rms(found.iter().map(|f| f.twin_rate));
    row("error of requests/s, rms", format!("{:.2} %", rate * 100.0), "2.5 %");
    let both = || found.iter().filter_map(|f| Some((f.best_rate?, f.twin_rate)));
    if both().count() > 0 {
        let best = rms(both().map(|b| b.0));
        let own = rms(both().map(|b| b.1));
        let runs = both().count();
        row(
            &format!("best of three, the same {runs} runs"),
            format!("{:.2} %, {:.1} × hotlap's", best * 100.0, best / own),
            "4 ×",
        );
    }
    let share = found.iter().map(|f| f.measured).sum::<f64>() / runs as f64;
    row("share of a run that is measured", format!("{:.0} %", share * 100.0), "60 %");
    let (heats, blocks) = (middle(|f| f64::from(f.heats)), middle(|f| f64::from(f.blocks)));
    row("heats and blocks of a run", format!("{heats:.0} and {blocks:.0}"), "");
    println!("| | found | goal |\n|---|---:|---:|");
    rows.values().for_each(|[what, is, goal]| println!("| {what} | {is} | {goal} |"));
}
