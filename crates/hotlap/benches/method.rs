//! Tests whether the method is right. Many short runs compare a server with itself and with a
//! server that was made to need more CPU. Meanwhile, a neighbour takes a random share of every core
//! in bursts.
//!
//!     cargo bench -p hotlap --bench method -- [--runs 100] [--seconds 20] [--slice-ms 12]
//!                 [--connections 64] [--extra-cpu 3] [--best-runs 20] [--best-seconds 3]
//!                 [--no-neighbour] [--data] [--iterations N] [--keep FILE]
//!
//! The servers are hotlap's ceiling, which spends nearly all of its time in the kernel. With
//! `--data`, the servers spend most of their time in user space on 10 MB of data.
//!
//! Each run is a complete run as `hotlap run` makes it: restarts, warm-ups, mirrored rounds, an A/A
//! control, and the same verdicts. A run has four processes: the reference, its control, its twin,
//! and a server that does more arithmetic on each request. The first `--best-runs` runs also
//! measure the reference and its twin as the best of three laps, to compare the errors.
//!
//! Every run is written to the file of `--keep` when it ends. If the bench is stopped, the same
//! command continues after the last complete run. A command with a smaller `--runs` only reports
//! the kept runs. Run N has the seed N. Before the first run, the arithmetic is timed alone, so
//! that its cost is known. `--iterations` takes the result of an earlier timing.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its table")]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap::analysis::{Analysis, Measure, MeasuredServer};
use hotlap::certificate::nine_in_ten;
use hotlap::cmd::selftest::arena::Arena;
use hotlap::cmd::selftest::power::{Work, smallest};
use hotlap_bench::lap::{Lap, LapKind};
use hotlap_bench::local::LocalRunner;
use hotlap_bench::participant::{Load, Role};
use hotlap_bench::runner::Runner;
use hotlap_servers::machine::Machine;
use hotlap_stats::{Estimate, Reading, Verdict, median, proportion};
use neighbour::Neighbour;
use serde::{Deserialize, Serialize};

mod neighbour;

/// The options of the bench.
struct Options {
    runs: u64,
    seconds: u64,
    slice_ms: Option<u64>,
    connections: usize,
    extra_cpu: f64,
    best_runs: u64,
    best_seconds: u64,
    neighbour: bool,
    /// Whether the servers work on 10 MB of data.
    data: bool,
    /// The iterations that cost the extra CPU time, as an earlier calibration found them.
    iterations: Option<u64>,
    keep: PathBuf,
}

/// The results of one run.
#[derive(Serialize, Deserialize)]
struct Found {
    run: u64,
    /// The setting of the run. Only runs with the same setting are evaluated together.
    setting: String,
    /// The number of additional iterations of arithmetic that the costlier server does.
    iterations: u64,
    /// ln(twin / reference) of the cost and of requests/s. `None` where there was nothing to
    /// compare, for example because the generator limited requests/s.
    twin_cost: Option<f64>,
    twin_rate: Option<f64>,
    /// Whether the twin got a verdict on the cost and on requests/s.
    alarm_cost: bool,
    alarm_rate: bool,
    /// ln(costlier / reference) of the cost, and whether the verdict was that the server costs
    /// more.
    costlier_cost: Option<f64>,
    is_called: bool,
    /// The smallest difference in cost that would have got a verdict. `None` if no difference would
    /// have got one.
    smallest: Option<f64>,
    /// ln(twin / reference) of requests/s, as the best of three laps.
    best_rate: Option<f64>,
    /// The share of the run that was measured.
    measured: f64,
    restarts: u32,
    rounds: u32,
    /// The restart, round and value of each reading, by server. Another estimator can be applied to
    /// these values.
    #[serde(default)]
    cost_readings: Vec<Vec<(u32, u32, f64)>>,
    #[serde(default)]
    rate_readings: Vec<Vec<(u32, u32, f64)>>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    neighbour::become_one(&args);
    let options = options(&args);
    let arena = Arena::new(Path::new(env!("CARGO_BIN_EXE_hotlap"))).expect("an arena");
    let mut found = kept(&options);
    let mut iterations = found.first().map(|f| f.iterations).or(options.iterations);
    for run in 1..=options.runs {
        if found.iter().any(|f| f.run == run) {
            continue;
        }
        let calibrate = || options.work().rounds(&arena, options.connections, [options.extra_cpu]);
        let iterations = *iterations.get_or_insert_with(|| calibrate().expect("a calibration")[0]);
        let one = beside_neighbour(&arena, &options, run, iterations);
        keep(&options, &one);
        eprintln!(
            "run {run}: twin {:+.2}% cost, {:+.2}% requests/s; more CPU {:+.2}%, least {:.1}%; \
             {} restarts, {} rounds; {:.0}% measured",
            percent(one.twin_cost),
            percent(one.twin_rate),
            percent(one.costlier_cost),
            one.smallest.unwrap_or(f64::INFINITY) * 100.0,
            one.restarts,
            one.rounds,
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
    let extra_cpu = named("--extra-cpu").map_or(3.0, |v| v.parse().expect("per cent"));
    let usual = Path::new(env!("CARGO_TARGET_TMPDIR")).join("method.jsonl");
    Options {
        runs: whole("--runs", 100),
        seconds: whole("--seconds", 20),
        slice_ms: named("--slice-ms").map(|v| number(v)),
        connections: whole("--connections", 64) as usize,
        extra_cpu,
        best_runs: whole("--best-runs", 20),
        best_seconds: whole("--best-seconds", 3),
        neighbour: !args.iter().any(|a| a == "--no-neighbour"),
        data: args.iter().any(|a| a == "--data"),
        iterations: named("--iterations").map(|v| number(v)),
        keep: named("--keep").map_or(usual, PathBuf::from),
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

/// Converts a log ratio to per cent. Returns NaN if the ratio is unknown.
fn percent(ln: Option<f64>) -> f64 {
    ln.map_or(f64::NAN, |ln| ln.exp_m1() * 100.0)
}

impl Options {
    fn setting(&self) -> String {
        let Self { seconds, connections, extra_cpu, best_seconds, .. } = self;
        let slices = self.slice_ms.map_or(String::new(), |ms| format!(", slices of {ms} ms"));
        let neighbour = if self.neighbour { "neighbour" } else { "alone" };
        let data = if self.data { ", 10 MB of data" } else { "" };
        format!(
            "{seconds} s{slices}, {connections} connections, {extra_cpu}% more CPU, best of \
             three {best_seconds} s, {neighbour}{data}"
        )
    }

    fn work(&self) -> Work {
        if self.data { Work::DATA } else { Work::ARITHMETIC }
    }

    fn slice(&self) -> Option<Duration> {
        self.slice_ms.map(Duration::from_millis)
    }
}

/// Reads the kept runs of this setting.
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

/// Makes one run, with its own neighbour if the options ask for one.
fn beside_neighbour(arena: &Arena, options: &Options, run: u64, iterations: u64) -> Found {
    let _neighbour = options.neighbour.then(|| Neighbour::start(run));
    experiment(arena, options, run, iterations)
}

/// Makes one run without starting a neighbour.
fn experiment(arena: &Arena, options: &Options, run: u64, iterations: u64) -> Found {
    let plain = &options.work().server(0);
    let participants = vec![
        arena.participant("reference", plain, Role::Reference),
        arena.participant("reference (again)", plain, Role::Control),
        arena.participant("twin", plain, Role::Plain),
        arena.participant("costlier", &options.work().server(iterations), Role::Plain),
    ];
    let budget = Duration::from_secs(options.seconds);
    let experiment =
        arena.experiment(participants, options.connections, options.slice(), budget, run);
    let warm_limit = (budget / 16).max(Duration::from_millis(500));
    let stop = Arc::new(AtomicBool::new(false));
    let kept = arena.measure(&experiment, warm_limit, &stop).expect("a record");
    let analysis = Analysis::of(&kept, 0);
    let found = |server: usize, measure| analysis.servers[server].against?.found[measure];
    let ln = |server: usize, measure| {
        found(server, measure)
            .map_or((None, Verdict::NoDifference), |(e, v)| (Some(e.ratio.value.ln()), v))
    };
    let effect = found(2, Measure::Cost).map(|(effect, _)| effect);
    let ((twin_cost, cost), (twin_rate, rate)) = (ln(2, Measure::Cost), ln(2, Measure::Rate));
    let (costlier_cost, called) = ln(3, Measure::Cost);
    let restarts = effect.map_or(0, |effect| effect.restarts);
    let withheld = analysis.withheld(&[2, 0], Measure::Cost, restarts);
    let criterion = Measure::Cost.criterion(analysis.confidence, withheld);
    let costs = |server: usize| &analysis.servers[server].readings[Measure::Cost];
    let readings = |measure| {
        let told = |r: &Reading| Some((r.restart, r.round, r.share.value()?));
        let of = |s: &MeasuredServer| s.readings[measure].iter().filter_map(told).collect();
        analysis.servers.iter().map(of).collect()
    };
    let windows: u64 = kept.laps.iter().map(|lap| lap.outcome.window_ns).sum();
    Found {
        run,
        setting: options.setting(),
        iterations,
        twin_cost,
        twin_rate,
        alarm_cost: cost.differs(),
        alarm_rate: rate.differs(),
        costlier_cost,
        is_called: called == Verdict::Worse,
        smallest: smallest(costs(2), costs(0), &criterion),
        best_rate: (1..=options.best_runs).contains(&run).then(|| best_of_three(arena, options)),
        measured: windows as f64 / 1e6 / kept.took_ms.max(1) as f64,
        restarts,
        rounds: costs(2).len() as u32,
        cost_readings: readings(Measure::Cost),
        rate_readings: readings(Measure::Rate),
    }
}

/// Measures in the usual way: three long laps of one server, then three of the other, and the best
/// of each. Returns ln(second / first) of requests/s.
fn best_of_three(arena: &Arena, options: &Options) -> f64 {
    let plain = &options.work().server(0);
    let participants = ["one", "two"].map(|name| arena.participant(name, plain, Role::Plain));
    let loads = [Load::new(options.connections)];
    let setting =
        arena.setting(&[Duration::from_secs(options.best_seconds)], Duration::from_secs(1));
    let mut live =
        LocalRunner::new(setting, &participants, &loads, Arc::new(AtomicBool::new(false)));
    let mut best = |participant| {
        live.bring_up(participant).expect("a start");
        live.warm(participant, 0, &mut |_| ()).expect("a warm-up");
        let laps: Vec<Lap> =
            (0..3).map(|_| live.whole_lap(participant, 0, LapKind::Flat).expect("a lap")).collect();
        live.stop(&[participant]);
        laps.iter().map(|lap| lap.outcome.rate()).fold(0.0, f64::max)
    };
    let one: f64 = best(0);
    (best(1) / one).ln()
}

fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let squares: Vec<f64> = values.map(|v| v * v).collect();
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}

/// Formats `count` of `of` as a share with its 95% interval.
fn share(count: usize, of: usize) -> String {
    let Estimate { value, low, high } = proportion(count as u32, of as u32).scaled(100.0);
    format!("{count} of {of}, {value:.0}% [{low:.0}, {high:.0}]")
}

fn tell(options: &Options, found: &[Found]) {
    let host = Machine::describe();
    let runs = found.len();
    println!("{runs} runs of {}", options.setting());
    println!("{} × {}, {}, {}\n", host.allowed, host.cpu, host.os, host.kernel);
    if runs == 0 {
        return;
    }
    let count = |is: fn(&Found) -> bool| found.iter().filter(|f| is(f)).count();
    let middle = |value: fn(&Found) -> Option<f64>| {
        median(&found.iter().filter_map(value).collect::<Vec<_>>())
    };
    let mut rows: BTreeMap<usize, [String; 3]> = BTreeMap::new();
    let mut row = |what: &str, is: String, goal: &str| {
        rows.insert(rows.len(), [what.to_owned(), is, goal.to_owned()]);
    };
    row("false alarms, cost", share(count(|f| f.alarm_cost), runs), "5%");
    row("false alarms, requests/s", share(count(|f| f.alarm_rate), runs), "5%");
    row(
        &format!("{}% more CPU, called", options.extra_cpu),
        share(count(|f| f.is_called), runs),
        if options.neighbour { "95%" } else { "90%" },
    );
    row(
        "the same, as found in the middle",
        format!("{:+.2}%", percent(middle(|f| f.costlier_cost))),
        "",
    );
    let least =
        nine_in_ten(found.iter().map(|f| f.smallest.unwrap_or(f64::INFINITY))).unwrap_or(f64::NAN);
    row("smallest difference found in 90%", format!("{:.1}%", least * 100.0), "1%");
    row(
        "error of cost, rms",
        format!("{:.2}%", rms(found.iter().filter_map(|f| f.twin_cost)) * 100.0),
        "0.3%",
    );
    let rates: Vec<f64> = found.iter().filter_map(|f| f.twin_rate).collect();
    let compared = if rates.len() < runs {
        format!("error of requests/s, rms, {} runs in which they are known", rates.len())
    } else {
        "error of requests/s, rms".to_owned()
    };
    if !rates.is_empty() {
        row(&compared, format!("{:.2}%", rms(rates.into_iter()) * 100.0), "2.5%");
    }
    let both = || found.iter().filter_map(|f| Some((f.best_rate?, f.twin_rate?)));
    if both().count() > 0 {
        let best = rms(both().map(|b| b.0));
        let own = rms(both().map(|b| b.1));
        let runs = both().count();
        row(
            &format!("best of three, the same {runs} runs"),
            format!("{:.2}%, {:.1} × hotlap's", best * 100.0, best / own),
            "4 ×",
        );
    }
    let share = found.iter().map(|f| f.measured).sum::<f64>() / runs as f64;
    row("share of a run that is measured", format!("{:.0}%", share * 100.0), "60%");
    let (restarts, rounds) =
        (middle(|f| Some(f.restarts.into())), middle(|f| Some(f.rounds.into())));
    let [restarts, rounds] = [restarts, rounds].map(|n| n.unwrap_or(f64::NAN));
    row("restarts and rounds of a run", format!("{restarts:.0} and {rounds:.0}"), "");
    println!("| | found | goal |\n|---|---:|---:|");
    rows.values().for_each(|[what, is, goal]| println!("| {what} | {is} | {goal} |"));
}
