//! Tests what `hotlap capacity` prints, exports and judges, with scripted servers.

use std::slice::from_ref;

use crate::scene::{Scene, hold, printed, scene, script};
use hotlap::cmd::run::rule::{Rule, Ruling};
use hotlap::exit::Exit;
use hotlap::model::{Question, Run};
use hotlap::render::{Format, markdown, render, terminal};
use hotlap::report::Report;
use hotlap::report::comparison::{Incomparable, RunComparison};
use hotlap_bench::lap::Violation;
use hotlap_bench::participant::Role;
use hotlap_bench::slo::Objective;
use hotlap_testkit::flat;
use serde_json::Value;

const P99: Objective = Objective::Latency { quantile: 0.99, limit_ns: 10_000_000 };

/// Returns two servers. The second one has the lower capacity.
pub fn two() -> Scene {
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

    server  capacity, req/s        vs reference  p99 in 10 s  CPU/req
    old       26,900 ± 1.3%           reference       1.0 ms   9.0 µs
    new       19,540 ± 1.6%  0.73× [0.71, 0.74]       1.0 ms  12.0 µs
    capacity: the highest rate that meets the goals, checked for longer at the end

    old meets p99 < 10 ms up to 26,900 [26,500, 27,200] requests/s (10 s at this
    rate: p99 1.0 ms).
    new meets p99 < 10 ms up to 19,540 [19,230, 19,850] requests/s (10 s at this
    rate: p99 1.0 ms): 0.73× [0.71, 0.74] the capacity of old.
    ");
}

#[test]
fn a_search_without_a_bracket_says_what_it_proves() {
    let mut scene = two();
    // The server `old` misses the goal even at the lowest rate.
    scene.experiment.objectives = vec![Objective::Latency { quantile: 0.99, limit_ns: 1_000 }];
    let shown = printed(&hold(&scene, None).run, 80);
    assert!(shown.contains("old does not meet p99 < 1 µs even at "), "{shown}");
}

/// Regression: the report blamed the load generator for a search that ended too early.
#[test]
fn a_lower_bound_says_why_it_is_one() {
    let whole = hold(&two(), None).run;
    let mut early = whole.clone();
    early.laps.retain(|lap| lap.rate().is_some_and(|rate| rate < 15_000.0));
    let early = printed(&early, 120);
    assert!(early.contains("; the search ended before it found the limit"), "{early}");
    assert!(!early.contains("could not offer more"), "{early}");
    let mut late = whole;
    for lap in late.laps.iter_mut().filter(|lap| lap.rate().is_some_and(|rate| rate > 15_000.0)) {
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
    assert_eq!((rows[0]["name"].as_str(), rows[1]["words"].as_str()), (Some("old"), Some("lower")));
    let capacity = rows[0]["capacity"]["value"].as_f64().unwrap();
    assert!((26_000.0..28_000.0).contains(&capacity), "{capacity}");
    let csv = render(&report, Format::Csv);
    assert!(csv.lines().nth(1).unwrap().contains(",old,reference,old 1.0,p99 < 10 ms,"), "{csv}");
    let markdown = render(&report, Format::Markdown);
    assert!(markdown.contains("**old meets p99 &lt; 10 ms up to "), "{markdown}");
    let page = render(&report, Format::Html);
    assert!(page.contains("p99 at each offered rate"));
    let junit = render(&report, Format::Junit);
    assert!(junit.contains("name=\"new\"") && junit.contains("failures=\"0\""), "{junit}");
}

#[test]
fn a_rule_about_capacity_fails_a_server_that_holds_less() {
    let report = Report::of(&hold(&two(), None).run);
    let ruling = |rule| Ruling::on(&report, &[Rule::parse(rule).unwrap()]);
    assert_eq!(ruling("capacity -5%").exit(), Exit::Regression);
    let said: String = ruling("capacity -5%").sentences().cloned().collect();
    assert_eq!(
        said,
        "Regression: new has 0.73× [0.71, 0.74] the capacity of old (--fail-if 'capacity -5%')."
    );
    assert_eq!(ruling("capacity -50%").exit(), Exit::Ok);
    let mut few = two();
    few.experiment.restarts = Some(2);
    let report = Report::of(&hold(&few, None).run);
    let ruling = Ruling::on(&report, &[Rule::parse("capacity -5%").unwrap()]);
    assert_eq!(ruling.exit(), Exit::Invalid);
}

/// Makes a search whose servers have this share of the capacity of the servers of [`two`].
fn searched(share: f64) -> Run {
    let mut scene = two();
    scene.scripts.iter_mut().for_each(|script| script.rate *= share);
    hold(&scene, None).run
}

/// Compares one search with another.
fn compared(before: &Run, after: &Run) -> Result<RunComparison, Incomparable> {
    RunComparison::of((from_ref(before), "run 1"), (from_ref(after), "run 2"))
}

#[test]
fn searches_are_compared_by_capacity() {
    let [before, after] = [1.0, 0.8].map(|share| vec![searched(share); 3]);
    let comparison = RunComparison::of((&before, "runs 1, 2, 3"), (&after, "main")).unwrap();
    let text = terminal::comparison(&comparison, 80, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let flat = flat(&text);
    assert!(flat.contains("old of main meets p99 < 10 ms up to "), "{text}");
    assert!(flat.contains(" the capacity of old of runs 1, 2, 3."), "{text}");
    assert!(markdown::comparison(&comparison).contains("capacity, req/s"));
    let change = &comparison.tables[0].servers[0].changes[0];
    let ratio = change.found.ratio.as_ref().unwrap();
    assert!((0.75..0.85).contains(&ratio.value), "{ratio:?}");
    assert_eq!((change.found.words.as_str(), change.is_worse), ("lower", true));
    let ruling = |rule| Ruling::on_change(&comparison, &[Rule::parse(rule).unwrap()]);
    assert_eq!(ruling("capacity -5%").exit(), Exit::Regression);
    assert!(ruling("capacity -5%").broken[0].sentence.contains("the capacity of runs 1, 2, 3"));
    assert_eq!(ruling("capacity -40%").exit(), Exit::Ok);
    let same = RunComparison::of((&before, "some"), (&before, "others")).unwrap();
    let told = "the capacity of old of some, equal within ±0.1%.";
    assert!(same.sentences[0].ends_with(told), "{:?}", same.sentences);
    let rule = [Rule::parse("capacity -5%").unwrap()];
    assert_eq!(Ruling::on_change(&same, &rule).exit(), Exit::Ok);
}

/// A bound has no interval, and two searches are too few for a verdict. Neither case decides a
/// rule.
#[test]
fn searches_without_a_verdict_decide_no_rule() {
    let rule = [Rule::parse("capacity -5%").unwrap()];
    let whole = searched(1.0);
    let mut bound = whole.clone();
    bound.laps.retain(|lap| lap.rate().is_some_and(|rate| rate < 15_000.0));
    let comparison = compared(&bound, &whole).unwrap();
    assert!(comparison.sentences[0].contains("not comparable"), "{:?}", comparison.sentences);
    let servers = &comparison.tables[0].servers;
    let change = &servers.iter().find(|server| server.name == "new").unwrap().changes[0];
    assert!(change.before.as_ref().unwrap().is_lower_bound && change.found.ratio.is_none());
    assert_eq!(Ruling::on_change(&comparison, &rule).exit(), Exit::Invalid);
    let comparison = compared(&whole, &whole).unwrap();
    let ruling = Ruling::on_change(&comparison, &rule);
    assert_eq!(ruling.exit(), Exit::Invalid);
    assert!(ruling.unknown[0].contains("fewer than three runs on a side"), "{ruling:?}");
    assert!(comparison.sentences.last().unwrap().contains("three runs on each side"));
}

#[test]
fn searches_are_compared_with_searches_for_the_same_goals() {
    let search = searched(1.0);
    let mut run = search.clone();
    (run.question, run.schedule.objectives) = (Question::Compare, Vec::new());
    let refused = |before, after| compared(before, after).unwrap_err().to_string();
    assert!(refused(&run, &search).starts_with("run 2 searched for capacities, but run 1 did not"));
    assert!(refused(&search, &run).starts_with("run 1 searched for capacities, but run 2 did not"));
    let mut other = search.clone();
    other.schedule.objectives = vec![Objective::Latency { quantile: 0.5, limit_ns: 5_000_000 }];
    let said = refused(&search, &other);
    assert!(said.starts_with("run 1 searched for p99 < 10 ms, but run 2 for p50 < 5 ms"), "{said}");
}
