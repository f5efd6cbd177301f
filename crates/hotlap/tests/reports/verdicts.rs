//! Tests what a report says if no verdict is possible, or if figures are bounds or missing.

use crate::scene::{hang, hold, scene, script, three};
use hotlap::analysis::{Analysis, Measure};
use hotlap::cmd::run::rule::{Rule, Ruling};
use hotlap::exit::Exit;
use hotlap::model::{Pool, Question, Run};
use hotlap::render::{Format, render, terminal};
use hotlap::report::{Report, Row};
use hotlap_bench::participant::Role;
use hotlap_bench::scripted::Script;
use hotlap_observe::Gauged;
use serde_json::Value;

/// Returns the table and the sentences of a run, without the head.
fn shown(run: &Run, width: usize) -> String {
    let text = terminal::render(&Report::of(run), width, false);
    let (_, table) = text.split_once("slices of 20 ms\n").unwrap();
    table.trim_matches('\n').to_owned()
}

/// Regression: seven of 21 rows of a suite had no order, because the generator limited them.
#[test]
fn rows_that_the_generator_limits_are_told_apart_by_cpu_time() {
    let limited = |cost, wobble| Script { busy: 0.97, ..script(100_000.0, cost, 1, wobble) };
    let servers = scene(&[
        ("reference", Role::Reference, limited(8_000.0, &[0.01, -0.01, 0.0, 0.02, -0.02])),
        ("waits", Role::Plain, script(20_000.0, 4_000.0, 9, &[0.01, -0.01, 0.0])),
        ("lean", Role::Plain, limited(6_000.0, &[0.0, 0.01, -0.01])),
        ("alike", Role::Plain, limited(8_000.0, &[0.02, 0.0, -0.01, 0.01, -0.02, 0.0])),
        ("reference (again)", Role::Control, limited(8_000.0, &[0.0, 0.01, -0.02, 0.01])),
    ]);
    insta::assert_snapshot!(shown(&hold(&servers, None).run, 80), @"
         server         req/s  CPU/req    CPU vs reference     p50*     p99*
      1  lean       ≥ 100,000   6.0 µs  0.75× [0.75, 0.75]  0.63 ms  0.64 ms
    2–3  reference  ≥ 100,000   8.0 µs           reference  0.63 ms  0.65 ms
    2–3  alike      ≥ 100,000   8.0 µs  1.00× [1.00, 1.00]  0.63 ms  0.65 ms
      4  waits         20,000   4.0 µs  0.50× [0.50, 0.50]   3.2 ms        –
    * closed loop, at saturation
    p99 is left out (–) where it is known only roughly: a longer --duration helps

    Noise floor (reference against itself): ± 0.9% in requests/s, ± 0.2% in CPU
    per request.
    No request errors. More figures: --details

    Note: reference, lean, alike: requests/s is a lower bound (≥), because the
    load generator was busy. Add generators on other hosts (--generator-on).

    lean: 25.0% less CPU per request than reference [24.9, 25.0].
    alike and reference: CPU per request equal within ±0.1% (1.00× [1.00, 1.00]).
    waits: 50.0% less CPU per request than reference [50.0, 50.0]; throughput at
    most 0.20×, as the load generator limits reference.
    The load generator limited 3 servers (≥). CPU per request decides their order.
    ");
}

/// Regression: in a suite of twenty servers, the same note appeared twenty times.
#[test]
fn rows_that_the_generator_limits_are_told_of_together() {
    let fast = || {
        let mut fast = script(100_000.0, 8_000.0, 1, &[0.01, 0.0, -0.01]);
        fast.busy = 0.97;
        fast
    };
    let servers = scene(&[
        ("slow", Role::Reference, script(20_000.0, 40_000.0, 9, &[0.01, -0.01, 0.0])),
        ("fast", Role::Plain, fast()),
        ("faster", Role::Plain, fast()),
    ]);
    let text = shown(&hold(&servers, None).run, 120);
    let notes: Vec<&str> = text.lines().skip_while(|l| !l.contains("Note: ")).collect();
    insta::assert_snapshot!(notes.join("\n"), @"
    Note: fast, faster: requests/s is a lower bound (≥), because the load generator was busy. Add generators on other
    hosts (--generator-on).

    fast: 80.0% less CPU per request than slow [80.0, 80.0]; throughput at least 5.00×, limited by the load generator.
    faster: 80.0% less CPU per request than slow [80.0, 80.0]; throughput at least 5.00×, limited by the load generator.
    The load generator limited 2 servers (≥). CPU per request decides their order.
    ");
}

/// b and c are told apart. Neither is told apart from a, whose restarts differ. Regression: all
/// three shared rank 1.
#[test]
fn a_pair_that_was_told_apart_has_two_ranks_and_the_table_is_in_the_order_of_estimates() {
    let steady = |rate| script(rate, 1e9 / rate, 5, &[0.002, -0.001, 0.0, -0.002, 0.001]);
    let mut scene = scene(&[
        ("b", Role::Reference, steady(10_300.0)),
        ("a", Role::Plain, steady(10_600.0)),
        ("c", Role::Plain, steady(9_700.0)),
        ("b (again)", Role::Control, steady(10_300.0)),
    ]);
    // Each restart has twelve laps.
    let wobble = |n: u32| 1.0 + 0.15 * (f64::from(n / 12) - 1.0);
    scene.scripts[1].wobble = (0..36).map(|n| (wobble(n), 1.0)).collect();
    let report = Report::of(&hold(&scene, None).run);
    let row = |row: &Row| format!("{} {}", row.rank.unwrap(), row.name);
    let rows: Vec<String> = report.tables[0].rows.iter().map(row).collect();
    assert_eq!(rows, ["1–3 a", "1–2 b", "2–3 c"]);
}

/// Regression: runs with two restarts, and even with one, got verdicts and ranks.
#[test]
fn fewer_than_three_restarts_give_no_verdict_and_no_rank_in_any_form() {
    let mut scene = three();
    scene.experiment.restarts = Some(2);
    let mut run = hold(&scene, None).run;
    run.took_ms = 50_000;
    insta::assert_snapshot!(shown(&run, 100), @"
      server               req/s           vs reference   CPU/req     p50*    p99*  memory
      go/net-http         57,900              reference   16.9 µs   1.1 ms  1.1 ms  7.0 MB
      node/http:cluster   38,400     0.66× [0.66, 0.67]   25.6 µs   1.7 ms       –  131 MB
      python3 app.py       2,100  0.036× [0.036, 0.037]  470.0 µs  30.2 ms       –   23 MB
      ceiling            123,700                      –    7.1 µs  0.51 ms       –  1.0 MB
    * closed loop, at saturation
    p99 is left out (–) where it is known only roughly: a longer --duration helps

    Noise floor (go/net-http against itself): not known, because it needs more restarts.
    No request errors. More figures: --details

    A verdict needs at least 3 restarts of each server with laps that count, but this run has 2. A
    --duration of about 80s, or --restarts 3, gives enough restarts.
    ");
    // A run that announced a duration names the same duration again.
    run.schedule.needed_s = Some(110.0);
    assert!(shown(&run, 100).contains("--duration of about 110s"));
    let report = Report::of(&run);
    assert!(report.tables[0].rows.iter().all(|row| row.rank.is_none()));
    let json: Value = serde_json::from_str(&render(&report, Format::Json)).unwrap();
    let row = json["tables"][0]["rows"].as_array().unwrap();
    let node = row.iter().find(|r| r["name"] == "node/http:cluster").unwrap();
    let few = "inconclusive: fewer than three restarts";
    for measure in ["cost", "requests_per_s"] {
        let found = &node["against"][measure];
        assert_eq!(
            (&found["verdict"], &found["why"]),
            (&"inconclusive".into(), &"too-few-restarts".into())
        );
        assert_eq!(found["words"], few);
    }
    let junit = render(&report, Format::Junit);
    assert!(junit.contains("failures=\"0\" errors=\"0\" skipped=\"2\""), "{junit}");
    assert!(
        junit.contains(&format!("<skipped message=\"{few}\">A verdict needs at least 3 restarts")),
        "{junit}"
    );
    assert!(render(&report, Format::Markdown).contains("**A verdict needs at least 3 restarts"));
    assert!(render(&report, Format::Html).contains(few));
    let ruling = Ruling::on(&report, &[Rule::parse("cost +3%").unwrap()]);
    assert_eq!(ruling.exit(), Exit::Invalid);
}

/// The servers' core is slower in some laps than in others. By chance, the core is slower more
/// often while one of the servers runs.
#[test]
fn figures_are_adjusted_for_the_speed_of_the_core() {
    let servers = scene(&[
        ("reference", Role::Reference, script(50_000.0, 10_000.0, 1, &[0.01, -0.01, 0.0])),
        ("dear", Role::Plain, script(45_000.0, 11_000.0, 1, &[0.01, 0.0, -0.01, 0.02])),
        ("reference (again)", Role::Control, script(50_000.0, 10_000.0, 1, &[0.0, 0.01])),
    ]);
    let mut run = hold(&servers, None).run;
    for (n, lap) in run.laps.iter_mut().enumerate() {
        let slow = 1.0 + 0.01 * (n * n % 23) as f64;
        let usage = lap.usage.as_mut().unwrap();
        usage.cpu_ns = usage.cpu_ns.map(|ns| (ns as f64 * slow.powi(2)) as u64);
        usage.gauged = Some(Gauged { calls: 1_000, ns: (100_000.0 * slow) as u64 });
        lap.outcome.responses = (lap.outcome.responses as f64 / slow) as u64;
    }
    let interval_in = |run: &Run, measure: Measure| {
        let (effect, _) = Analysis::of(run, 0).servers[1].against.unwrap().found[measure].unwrap();
        (effect.ratio.low, effect.ratio.high)
    };
    let interval = |run: &Run| interval_in(run, Measure::Cost);
    let (low, high) = interval(&run);
    assert!(low > 1.09 && high < 1.11, "[{low}, {high}]");
    let (low, high) = interval_in(&run, Measure::Rate);
    assert!(low > 0.87 && high < 0.93, "[{low}, {high}]");
    let noise = Report::of(&run).noise.unwrap().sentence;
    let adjusted =
        "CPU time and requests/s are adjusted for the speed of the servers' cores, which varied by";
    assert!(noise.contains(adjusted), "{noise}");
    // The cores of another node are always slower, which says nothing about their speed in a lap.
    let mut pool = run.clone();
    pool.pool = Some(Pool { node_of: vec![0, 0, 1], ..Pool::default() });
    for lap in pool.laps.iter_mut().filter(|lap| lap.restart == 2) {
        lap.usage.as_mut().unwrap().gauged.as_mut().unwrap().ns *= 2;
    }
    let (low, high) = interval(&pool);
    assert!(low > 1.05 && high < 1.15, "[{low}, {high}]");
    // A server without a gauge would differ from an adjusted server by the speed of the core.
    for lap in run.laps.iter_mut().filter(|lap| lap.server == 1) {
        lap.usage.as_mut().unwrap().gauged = None;
    }
    let (low, high) = interval(&run);
    assert!(high - low > 0.07, "[{low}, {high}]");
    assert!(!Report::of(&run).noise.unwrap().sentence.contains("adjusted"));
}

#[test]
fn a_control_that_differs_withholds_verdicts() {
    let mut scene = three();
    scene.scripts[3].cost_ns *= 1.2;
    scene.scripts[3].rate /= 1.2;
    let report = Report::of(&hold(&scene, None).run);
    assert!(report.tables[0].rows.iter().all(|row| row.rank.is_none()));
    let said = &report.sentences;
    assert!(
        matches!(&said[..], [only] if only.contains("differs from the reference (p < 0.01)")),
        "{said:?}"
    );
}

/// Regression: rounds in which a server sent no response were left out, which made the server look
/// better.
#[test]
fn rounds_without_a_response_count_and_are_named() {
    let mut run = hold(&three(), None).run;
    let rate = |run: &hotlap::model::Run| {
        Analysis::of(run, 0).servers[1].level[Measure::Rate].unwrap().value
    };
    let before = rate(&run);
    for lap in run.laps.iter_mut().filter(|l| l.server == 1 && l.round == 2) {
        lap.outcome.responses = 0;
        lap.usage.iter_mut().for_each(|usage| usage.requests = 0);
    }
    assert!((rate(&run) / before - 5.0 / 6.0).abs() < 0.01, "{} of {before}", rate(&run));
    let warnings = Report::of(&run).warnings;
    assert!(
        warnings.iter().any(|w| w.starts_with("node/http:cluster sent no response in 3 rounds.")),
        "{warnings:?}"
    );
}

/// Regression: the p99 of a restart in which requests hung was compared as though it were exact.
/// The report called the server as quick as one that responds.
#[test]
fn a_percentile_that_is_a_lower_bound_in_any_restart_decides_nothing() {
    let found = |server: usize, compared: usize| {
        let mut run = hold(&three(), None).run;
        hang(&mut run, server);
        let analysis = Analysis::of(&run, 0);
        let found = analysis.servers[compared].against.unwrap().found;
        (found.p50.is_some(), found.p99.is_some(), analysis.noise.p99.is_some())
    };
    assert_eq!(found(4, 1), (true, true, true), "the ceiling has no part in it");
    assert_eq!(found(1, 1), (true, false, true));
    assert_eq!(found(0, 1), (true, false, false), "of the reference");
    assert_eq!(found(3, 1), (true, true, false), "of its control");
}

#[test]
fn the_steps_of_layers_are_inconclusive_too() {
    let step = |cost, wobble| script(1e9 / cost, cost, 50, wobble);
    let mut scene = scene(&[
        ("plain", Role::Reference, step(27_000.0, &[0.01, -0.01, 0.0, 0.005, -0.005])),
        ("json", Role::Plain, step(29_000.0, &[0.0, 0.01, -0.01, -0.005, 0.01])),
    ]);
    scene.question = Question::Layers;
    scene.experiment.restarts = Some(2);
    let report = Report::of(&hold(&scene, None).run);
    assert!(report.layers[0].sentence.contains("of CPU (inconclusive)"), "{:?}", report.layers);
    assert!(report.sentences[0].starts_with("A verdict needs at least 3 restarts"));
}
