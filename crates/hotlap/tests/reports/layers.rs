//! Tests runs that ask what each layer costs, with scripted laps.

use crate::scene::{hold, scene, script, table};
use hotlap::model::{Question, Violation};
use hotlap::report::Report;
use hotlap_bench::participant::Role;

#[test]
fn layers_shows_what_each_step_costs() {
    let step = |cost, wobble| script(1e9 / cost, cost, 50, wobble);
    let mut scene = scene(&[
        ("plain", Role::Reference, step(27_000.0, &[0.01, -0.01, 0.0, 0.005, -0.005])),
        ("route", Role::Plain, step(29_000.0, &[0.005, 0.0, -0.01, 0.01, 0.0, 0.01, -0.005])),
        ("json", Role::Plain, step(29_000.0, &[0.0, 0.01, -0.01, -0.005, 0.01])),
    ]);
    scene.question = Question::Layers;
    insta::assert_snapshot!(table(&scene, 80), @"

    hello · 64 connections, keep-alive · server on core 0, generator on core 1
    3 restarts · 18 rounds · slices of 20 ms

         server   req/s        vs reference  CPU/req    p50*    p99*  memory
      1  plain   37,000           reference  27.0 µs  1.7 ms  1.7 ms   50 MB
    2–3  route   34,500  0.93× [0.93, 0.93]  29.0 µs  1.8 ms  1.9 ms   50 MB
    2–3  json    34,500  0.93× [0.93, 0.94]  29.0 µs  1.8 ms  1.9 ms   50 MB
    * closed loop, at saturation

    route, on plain: +1.99 µs [+1.98, +2.00] of CPU, +1.95 µs [+1.89, +2.01] of
    wall time a request.
    json, on route: +0.00 µs [−0.01, +0.02] of CPU (not decided), +0.01 µs
    [−0.05, +0.08] of wall time (not decided) a request.
    No request errors. More figures: --details
    ");
}

#[test]
fn a_step_stands_on_the_one_that_it_names_and_dropped_work_is_no_speed() {
    let step = |cost| script(1e9 / cost, cost, 50, &[0.01, -0.01, 0.0, 0.005, -0.005]);
    let mut scene = scene(&[
        ("plain", Role::Reference, step(27_000.0)),
        ("json", Role::Plain, step(31_000.0)),
        ("bidi", Role::Plain, step(33_000.0)),
        ("dropping", Role::Plain, step(28_000.0)),
    ]);
    scene.question = Question::Layers;
    let mut run = hold(&scene, None).run;
    for (step, on) in [(1, 0), (2, 0), (3, 1)] {
        run.servers[step].on = Some(on);
    }
    for lap in run.laps.iter_mut().filter(|l| l.server == 3) {
        lap.failed.push(Violation::SideEffect { expected: 1_000, counted: 400 });
    }
    let report = Report::of(&run);
    let steps: Vec<(&str, &str)> =
        report.layers.iter().map(|s| (s.from.as_str(), s.to.as_str())).collect();
    assert_eq!(steps, [("plain", "json"), ("plain", "bidi"), ("json", "dropping")]);
    assert_eq!(
        report.layers[2].sentence,
        "dropping: the side effect happened 14,400 times instead of 36,000 (work was \
         dropped), so its step is not measured."
    );
    assert!(report.layers[2].cpu_us.is_none() && report.layers[1].cost.is_some());
}

/// The second step drops work at full load. A third of its laps are at a rate that the step can serve.
#[test]
fn laps_at_a_rate_do_not_make_up_for_work_that_is_dropped_at_full_load() {
    let step = |cost| script(1e9 / cost, cost, 50, &[0.01, -0.01, 0.0]);
    let mut scene = scene(&[
        ("plain", Role::Reference, step(27_000.0)),
        ("dropping", Role::Plain, step(28_000.0)),
    ]);
    (scene.question, scene.experiment.paced) = (Question::Layers, true);
    (scene.experiment.restarts, scene.experiment.rounds) = (Some(2), Some(1));
    let mut run = hold(&scene, None).run;
    assert!(run.laps.iter().any(|l| l.server == 1 && l.rate().is_some()));
    for lap in run.laps.iter_mut().filter(|l| l.server == 1 && l.rate().is_none()) {
        lap.failed = vec![Violation::SideEffect { expected: 1_000, counted: 400 }];
    }
    let report = Report::of(&run);
    assert!(report.layers[0].sentence.contains("work was dropped"), "{:?}", report.layers[0]);
}
