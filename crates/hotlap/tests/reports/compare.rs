//! Tests comparisons of stored runs: what changed, why a comparison may mislead, and the exit
//! codes.

use std::path::Path;
use std::slice::from_ref;

use crate::scene::{Scene, hang, hold, hold_as, record, script, three};
use hotlap::cmd::run::rule::{Rule, Ruling};
use hotlap::exit::Exit;
use hotlap::model::Run;
use hotlap::render::{markdown, terminal};
use hotlap::report::Figure;
use hotlap::report::comparison::{Incomparable, RunComparison};
use hotlap::report::verdict::Judged;
use hotlap::store::Store;
use hotlap_bench::scripted::Script;
use hotlap_load::plan::Reuse;
use hotlap_stats::Inconclusive;
use hotlap_testkit::{Said, Scene as Folder, flat};

/// Returns the servers of [`three`], but the first one costs `share` times as much.
fn changed(share: f64) -> Scene {
    let mut scene = three();
    for script in [0, 3] {
        scene.scripts[script].cost_ns *= share;
    }
    scene
}

/// Returns a scene with fewer rounds, for tests that read stores many times.
fn small(scene: &Scene) -> Scene {
    let mut scene = scene.clone();
    scene.experiment.rounds = Some(2);
    scene
}

/// Returns what a command prints about a store.
fn said(store: &Path, words: &str) -> Said {
    Folder::new().hotlap(words).arg("--store").arg(store).env("COLUMNS", "80").said()
}

/// Compares one run with another.
fn compared(before: &Run, after: &Run) -> Result<RunComparison, Incomparable> {
    RunComparison::of((from_ref(before), "run 1"), (from_ref(after), "run 2"))
}

/// Compares two runs as if each had been made three times.
fn compared_thrice(before: &Run, after: &Run) -> RunComparison {
    let [before, after] = [before, after].map(|run| vec![run.clone(); 3]);
    RunComparison::of((&before, "before"), (&after, "after")).unwrap()
}

/// Makes three runs of a scene on a machine whose speed differs from run to run.
fn thrice(scene: &Scene) -> [Run; 3] {
    [1.0, 1.4, 0.7].map(|machine| {
        let mut run = hold(scene, None).run;
        for lap in &mut run.laps {
            lap.outcome.responses = (lap.outcome.responses as f64 / machine) as u64;
            let cpu_ns = lap.usage.as_mut().and_then(|usage| usage.cpu_ns.as_mut());
            cpu_ns.into_iter().for_each(|ns| *ns = (*ns as f64 * machine) as u64);
        }
        run
    })
}

/// Regression: of six identical runs, `compare` called 8 of 15 pairs different, by up to 47% ± 3%.
#[test]
fn two_runs_have_no_verdict_and_three_on_each_side_have() {
    let (before, after) = (thrice(&three()), thrice(&changed(1.2)));
    let one = RunComparison::of((&before[..1], "run 1"), (&after[1..2], "run 2")).unwrap();
    assert_eq!(
        one.tables[0].servers[0].changes[1].found.judged,
        Judged::Inconclusive { why: Inconclusive::TooFewRuns }
    );
    assert!(one.sentences.last().unwrap().contains("hotlap compare 11-13 14-16"), "{one:?}");
    let rules = [Rule::parse("cost +3%").unwrap()];
    assert_eq!(Ruling::on_change(&one, &rules).exit(), Exit::Invalid);
    let all = RunComparison::of((&before, "runs 1–3"), (&after, "runs 4–6")).unwrap();
    let cost = &all.tables[0].servers[0].changes[1].found;
    let ratio = cost.ratio.as_ref().unwrap();
    assert!((ratio.value - 1.2).abs() < 1e-3 && ratio.low.unwrap() > 1.19, "{cost:?}");
    assert_eq!((cost.judged, &*cost.words), (Judged::Worse, "costs more"));
    assert_eq!(Ruling::on_change(&all, &rules).exit(), Exit::Regression);
    // Without a ceiling, the speed of the machine is part of the difference.
    let without = |mut runs: [Run; 3]| {
        runs.iter_mut().for_each(|run| run.laps.retain(|lap| lap.server != 4));
        runs
    };
    let (before, after) = (without(before), without(after));
    let all = RunComparison::of((&before, "before"), (&after, "after")).unwrap();
    assert_eq!(all.tables[0].servers[0].changes[1].found.judged, Judged::NotMeasured);
}

#[test]
fn what_changed_is_told_and_what_did_not_is_not() {
    let (before, after) = (hold(&three(), None).run, hold(&changed(1.2), None).run);
    let (before, after) = (vec![before; 3], vec![after; 3]);
    let comparison = RunComparison::of((&before, "main"), (&after, "runs 4–6")).unwrap();
    let text = terminal::comparison(&comparison, 80, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let flat = flat(&text);
    assert!(
        flat.contains(
            "go/net-http of runs 4–6: 20.0% more CPU per request than go/net-http of main [20.0, 20.0]"
        ),
        "{text}"
    );
    assert!(
        flat.contains(
            "python3 app.py of runs 4–6 and python3 app.py of main: throughput equal within"
        ),
        "{text}"
    );
    assert!(flat.contains("1.20×* [1.20, 1.20] more"), "{text}");
    assert!(flat.contains("* relative to the ceiling, the same program in all runs"), "{text}");
}

/// Regression: the name of a baseline added columns to the table and tags to the page.
#[test]
fn the_name_of_a_baseline_stays_in_its_cell() {
    let run = hold(&three(), None).run;
    let name = "a|b <i>\n\x1b[2J~$x$~ (run 1)";
    let comparison = RunComparison::of((from_ref(&run), name), (from_ref(&run), "run 2")).unwrap();
    let text = markdown::comparison(&comparison);
    let cell = "a\\|b &lt;i&gt;\\\\n\\\\x1b\\[2J\\~\\$x\\$\\~ (run 1)";
    assert!(text.starts_with(&format!("# run 2 against {cell}\n")), "{text}");
    assert!(text.contains(&format!("| server |  | {cell} | run 2 | ratio |  |\n")), "{text}");
    assert!(!text.contains("<i>") && !text.contains('\x1b'), "{text}");
    let text = terminal::comparison(&comparison, 120, false);
    assert!(!text.contains('\x1b') && text.contains("\\x1b[2J"), "{text}");
}

#[test]
fn another_machine_version_or_slice_is_a_warning() {
    let (before, mut after) = (hold(&three(), None).run, hold(&three(), None).run);
    after.host.machine.fingerprint = "other".to_owned();
    after.servers[0].version = "go/net-http 2.0".to_owned();
    after.schedule.slices_ms = vec![250.0];
    let comparison = compared(&before, &after).unwrap();
    let told = comparison.warnings.join("\n");
    for part in ["The machine differs", "The version of go/net-http", "of a slice"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn exit_codes_are_those_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (folder.path().join("a.db"), folder.path().join("main.db"));
    let keep = |scene: &Scene, path: &Path| {
        let scene = small(scene);
        (0..3).for_each(|_| _ = hold(&scene, Some(Store::open(path).unwrap())));
    };
    keep(&three(), &store);
    keep(&changed(1.2), &store);
    keep(&three(), &other);
    let code = |words: &str| said(&store, words).code;
    assert_eq!(code("compare 1-3 4-6"), Some(0));
    assert_eq!(code("compare 1-3 4-6 --fail-if 'cost +3%'"), Some(5));
    assert_eq!(code("compare 1-3 4-6 --fail-if 'cost +30%'"), Some(0));
    assert_eq!(code("compare 1 6"), Some(0));
    assert_eq!(code("compare 1 6 --fail-if 'cost +3%'"), Some(4));
    let against_file = format!("compare 4-6 --fail-if 'cost +3%' --baseline {}", other.display());
    assert_eq!(code(&against_file), Some(5));
    assert_eq!(code("compare 1 7"), Some(1));
    assert_eq!(code("compare 1-3 3-5"), Some(2));
    assert_eq!(code("compare"), Some(2));
    let json = said(&store, "compare 1-3 4-6 --export-json -").json();
    assert_eq!(json["tables"][0]["servers"][0]["changes"][1]["words"], "costs more");
    assert_eq!(json["after"]["runs"][2]["number"], 6);
}

#[test]
fn a_baseline_is_found_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let keep = |scene: &Scene, baseline: Option<&str>| {
        let scene = small(scene);
        let run = Run { baseline: baseline.map(str::to_owned), ..record(&scene) };
        hold_as(&scene, run, Some(Store::open(&path).unwrap()));
    };
    let said = |words: &str| said(&path, words);
    keep(&changed(0.5), Some("main"));
    (0..3).for_each(|_| keep(&three(), Some("main")));
    let both = said("compare --baseline main").fails(2);
    both.has("run 4 is on both sides (main (runs 2–4) and run 4)");
    (0..3).for_each(|_| keep(&changed(1.2), None));
    // The baseline consists of the newest three runs with that name.
    let against = said("compare 5-7 --baseline main --fail-if 'cost +3%'").fails(5);
    against.has("of main (runs 2–4)");
    let none = said("compare --baseline mian").fails(2);
    none.has("no baseline or file mian (saved so far: main)");
    said("history").has("baseline main · hello: go");
}

#[test]
fn runs_without_a_server_in_common_are_refused() {
    let (before, mut after) = (hold(&three(), None).run, hold(&three(), None).run);
    after.servers.iter_mut().for_each(|s| s.name += " too");
    let error = compared(&before, &after).unwrap_err().to_string();
    assert!(error.contains("no server in common (go/net-http, node"), "{error}");
}

/// Returns a run with two loads that differ only in their request, like the loads of a suite for an
/// API.
fn of_two_requests(first: &str, second: &str) -> hotlap::model::Run {
    let mut scene = three();
    scene.experiment.loads.push(scene.experiment.loads[0].clone());
    let mut run = hold(&scene, None).run;
    for (load, request) in run.loads.iter_mut().zip([first, second]) {
        load.sends = request.to_owned();
    }
    run
}

/// Regression: `POST /bla` of one run was compared with `GET /bla` of the other run, because the
/// two loads had the same number of connections.
#[test]
fn loads_are_compared_with_those_of_the_same_request() {
    let before = of_two_requests("GET /bla", "POST /bla");
    let after = of_two_requests("POST /bla", "GET /other");
    let comparison = compared(&before, &after).unwrap();
    let titles: Vec<&str> = comparison.tables.iter().map(|t| t.title.as_str()).collect();
    assert_eq!(titles, ["64 connections, keep-alive, POST /bla"]);
    let alone: Vec<&String> =
        comparison.warnings.iter().filter(|w| w.starts_with("Only run")).collect();
    assert_eq!(
        alone,
        [
            "Only run 1 has GET /bla with 64 connections, keep-alive.",
            "Only run 2 has GET /other with 64 connections, keep-alive.",
        ]
    );
}

#[test]
fn sentences_about_one_of_several_loads_name_it() {
    let (before, mut after) =
        (of_two_requests("GET /a", "GET /b"), of_two_requests("GET /a", "GET /b"));
    for lap in after.laps.iter_mut().filter(|lap| lap.load == 1 && [0, 3].contains(&lap.server)) {
        let cpu_ns = lap.usage.as_mut().and_then(|usage| usage.cpu_ns.as_mut());
        cpu_ns.into_iter().for_each(|ns| *ns = *ns * 3 / 2);
    }
    let comparison = compared_thrice(&before, &after);
    let costlier: Vec<&String> = comparison
        .sentences
        .iter()
        .filter(|s| s.contains("more CPU per request than go/net-http of before"))
        .collect();
    assert_eq!(costlier.len(), 1, "{:?}", comparison.sentences);
    assert!(
        costlier[0].starts_with("64 connections, keep-alive, GET /b: go/net-http"),
        "{costlier:?}"
    );
    let rules = [Rule::parse("cost +3%").unwrap()];
    let ruling = Ruling::on_change(&comparison, &rules);
    let under = "Regression under 64 connections, keep-alive, GET /b: go/net-http has 1.5";
    assert!(ruling.broken[0].sentence.starts_with(under), "{ruling:?}");
}

/// Regression: the first loads of two runs were compared although the runs had no load in common.
#[test]
fn runs_without_a_load_in_common_are_refused() {
    type Change = fn(&mut hotlap::model::Load);
    let changes: [Change; 6] = [
        |load| load.shape.connections = 128,
        |load| load.shape.threads = 2,
        |load| load.shape.reuse = Reuse::Close,
        |load| load.shape.pipeline = 4,
        |load| load.rate = Some(1_000.0),
        |load| load.sends = "GET /other".to_owned(),
    ];
    for change in changes {
        let (mut before, mut after) = (hold(&three(), None).run, hold(&three(), None).run);
        before.loads[0].sends = "GET /".to_owned();
        after.loads[0].sends = "GET /".to_owned();
        change(&mut after.loads[0]);
        let error = compared(&before, &after).unwrap_err().to_string();
        assert!(error.contains("no load in common: GET / with 64 connections"), "{error}");
    }
}

/// Runs that were stored before requests were kept are compared by their contracts.
#[test]
fn a_run_without_its_request_is_compared_by_its_contract() {
    let (before, mut after) = (hold(&three(), None).run, hold(&three(), None).run);
    after.loads[0].sends = "GET /".to_owned();
    assert!(compared(&before, &after).is_ok());
    after.contract = "GET /health".to_owned();
    assert!(compared(&before, &after).is_err());
}

#[test]
fn the_history_of_a_server_shows_where_it_changed() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("a.db");
    for share in [1.0, 1.0, 1.0, 1.0, 1.3, 1.3, 1.3, 1.3] {
        let mut scene = small(&changed(share));
        scene.experiment.restarts = Some(2);
        hold(&scene, Some(Store::open(&store).unwrap()));
    }
    let said = |words: &str| said(&store, words);
    let text = said("history go/net-http").out;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("CPU µs/request  ▁▁▁▁|████"), "{text}");
    let flat = flat(&text);
    assert!(flat.contains("From run 5 on (2026-11-21 20:15), CPU time per request is 1.30×"));
    let json = said("history go/net-http --json").json();
    assert_eq!(json["lines"][0]["changes"], serde_json::json!([4]));
    said("history go/net-http --last 3").has("six runs");
}

/// Regression: a p99 that depended on requests without a response was shown as exact. The
/// comparison called it longer than the p99 of the other run.
#[test]
fn a_percentile_that_is_a_lower_bound_is_shown_as_one_and_decides_nothing() {
    let (sound, mut hung) = (hold(&three(), None).run, hold(&three(), None).run);
    hang(&mut hung, 0);
    let rules = ["p99 +10%", "p50 +10%"].map(|rule| Rule::parse(rule).unwrap());
    for (before, after) in [(&sound, &hung), (&hung, &sound), (&hung, &hung)] {
        let comparison = compared_thrice(before, after);
        let go = &comparison.tables[0].servers[0];
        let change = |name: &str| go.changes.iter().find(|c| c.measure == name).unwrap();
        let p99 = change("p99");
        for (figure, run) in [(&p99.before, before), (&p99.after, after)] {
            let figure = figure.as_ref().unwrap();
            assert_eq!(figure.is_lower_bound, std::ptr::eq(run, &hung), "{figure:?}");
            assert_eq!(figure.text.starts_with('≥'), figure.is_lower_bound, "{figure:?}");
        }
        assert_eq!((&p99.found.ratio, p99.is_worse), (&None, false), "{p99:?}");
        assert_eq!(p99.found.judged, Judged::Unknown);
        assert!(change("p50").found.ratio.is_some(), "the median does not rest on them");
        assert!(terminal::comparison(&comparison, 80, false).contains("≥ "));
        assert!(markdown::comparison(&comparison).contains("≥ "));
        let p99 = Ruling::on_change(&comparison, &rules[..1]);
        assert_eq!((p99.exit(), p99.broken.len()), (Exit::Invalid, 0), "no failure, and no pass");
        assert!(p99.unknown[0].contains("requests had no response"), "{p99:?}");
        assert!(
            !Ruling::on_change(&comparison, &rules[1..]).sentences().any(|s| s.contains("go/"))
        );
    }
}

/// Regression: requests/s of a server that the generator limits were shown as exact.
#[test]
fn requests_per_second_that_the_generator_limits_are_shown_as_a_lower_bound() {
    let mut busy = three();
    busy.scripts[0] = Script { busy: 0.97, ..script(57_900.0, 16_900.0, 7, &[0.01, -0.02]) };
    let (before, after) = (hold(&three(), None).run, hold(&busy, None).run);
    let comparison = compared(&before, &after).unwrap();
    let rate = &comparison.tables[0].servers[0].changes[0];
    let is_bound = |figure: &Option<Figure>| figure.as_ref().unwrap().text.starts_with("≥ ");
    assert_eq!((is_bound(&rate.before), is_bound(&rate.after)), (false, true));
    assert_eq!(rate.found.ratio, None);
}
