//! `hotlap capacity`: what is printed, exported and judged, with scripted servers.

mod scene;

use hotlap::cmd::run::rule::{Rule, Ruling};
use hotlap::exit::Exit;
use hotlap::model::Question;
use hotlap::render::{Format, render};
use hotlap::report::Report;
use hotlap::store::Store;
use hotlap_bench::lap::Violation;
use hotlap_bench::participant::Role;
use hotlap_bench::slo::Objective;
use scene::{Scene, hold, printed, scene, script};
use serde_json::Value;

const P99: Objective = Objective::Latency { quantile: 0.99, limit_ns: 10_000_000 };

/// Two servers; the second one holds less.
fn two() -> Scene {
    let mut scene = scene(&[
        ("old", Role::Reference, script(30_000.0, 9_000.0, 9, &[0.01, -0.02, 0.015, 0.0])),
        ("new", Role::Plain, script(22_000.0, 12_000.0, 9, &[-0.01, 0.02, 0.0, 0.01, -0.015])),
    ]);
    scene.question = Question::Capacity;
    scene.experiment.objectives = vec![P99];
    scene.experiment.rounds = None;
    scene.experiment.restarts = Some(5);
    scene
}

#[test]
fn a_search_says_what_each_server_holds_and_compares_them() {
    insta::assert_snapshot!(printed(&hold(&two(), None).run, 80), @"
    hello · 64 connections, keep-alive · server on core 0, generator on core 1
    open loop, Poisson, p99 < 10 ms · 5 restarts

    server  capacity, req/s        vs reference    safe  CPU/req
    old       27,300 ± 0.5%           reference  26,900   9.0 µs
    new       19,800 ± 3.8%  0.73× [0.70, 0.75]  19,300  12.0 µs
    capacity: half of all windows keep the goal; safe: 19 of 20 do

    old holds p99 < 10 ms up to 27,300 [27,200, 27,400] requests/s.
    new holds p99 < 10 ms up to 19,800 [19,060, 20,600] requests/s: 0.73× [0.70,
    0.75] the capacity of old.
    ");
}

#[test]
fn a_search_without_a_bracket_says_what_it_proves() {
    let mut scene = two();
    // Even at the lowest rate, the second server misses the goal.
    scene.experiment.objectives = vec![Objective::Latency { quantile: 0.99, limit_ns: 1_000 }];
    let shown = printed(&hold(&scene, None).run, 80);
    assert!(shown.contains("old misses p99 < 1 µs even at "), "{shown}");
}

/// A search that ended too early once blamed the load generator.
#[test]
fn a_lower_bound_says_why_it_is_one() {
    let whole = hold(&two(), None).run;
    let mut early = whole.clone();
    early.laps.retain(|lap| lap.rate.is_some_and(|rate| rate < 15_000.0));
    let early = printed(&early, 120);
    assert!(early.contains("; the search ended before it found the limit"), "{early}");
    assert!(!early.contains("could not offer more"), "{early}");
    let mut late = whole;
    for lap in late.laps.iter_mut().filter(|lap| lap.rate.is_some_and(|rate| rate > 15_000.0)) {
        lap.failed = vec![Violation::Late { lag_us: 1e6 }];
    }
    let late = printed(&late, 120);
    assert!(late.contains("; the load generator could not offer more."), "{late}");
    assert!(!late.contains("the search ended"), "{late}");
}

#[test]
fn exports_have_the_capacities() {
    let report = Report::of(&hold(&two(), None).run);
    let json: Value = serde_json::from_str(&render(&report, Format::Json)).unwrap();
    let rows = &json["capacity"][0]["rows"];
    assert_eq!(
        (rows[0]["name"].as_str(), rows[1]["verdict"].as_str()),
        (Some("old"), Some("lower"))
    );
    let capacity = rows[0]["capacity"]["value"].as_f64().unwrap();
    assert!((26_000.0..28_000.0).contains(&capacity), "{capacity}");
    let csv = render(&report, Format::Csv);
    assert!(csv.lines().nth(1).unwrap().contains(",old,reference,old 1.0,p99 < 10 ms,"), "{csv}");
    let markdown = render(&report, Format::Markdown);
    assert!(markdown.contains("**old holds p99 &lt; 10 ms up to "), "{markdown}");
    let page = render(&report, Format::Html);
    assert!(page.contains("p99 over the offered rate"));
    let junit = render(&report, Format::Junit);
    assert!(junit.contains("name=\"new\"") && junit.contains("failures=\"0\""), "{junit}");
}

#[test]
fn a_rule_about_capacity_fails_a_server_that_holds_less() {
    let report = Report::of(&hold(&two(), None).run);
    let ruling = |rule| Ruling::on(&report, &[Rule::parse(rule).unwrap()]);
    assert_eq!(ruling("capacity -5%").exit(), Exit::Regression);
    let said: String = ruling("capacity -5%").sentences().cloned().collect();
    assert_eq!(said, "Regression: new has 0.73× [0.70, 0.75] the capacity of old (--fail-if).");
    assert_eq!(ruling("capacity -50%").exit(), Exit::Ok);
    let mut few = two();
    few.experiment.restarts = Some(2);
    let report = Report::of(&hold(&few, None).run);
    let ruling = Ruling::on(&report, &[Rule::parse("capacity -5%").unwrap()]);
    assert_eq!(ruling.exit(), Exit::Invalid);
}

#[test]
fn a_stored_search_is_reported_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("runs.db")).unwrap();
    let kept = hold(&two(), Some(store)).run;
    let store = Store::open(&folder.path().join("runs.db")).unwrap();
    let read = store.run(kept.number.unwrap()).unwrap();
    assert_eq!((read.laps.len(), &read.schedule), (kept.laps.len(), &kept.schedule));
    assert_eq!(printed(&read, 80), printed(&kept, 80));
}
