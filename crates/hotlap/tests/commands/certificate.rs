//! Tests the certificate: `hotlap selftest --power`, and the runs that cite it.

use hotlap_testkit::{Scene, program};
use serde_json::json;

/// Compares two equal servers. `words` are further options.
fn run(scene: &Scene, words: &str) -> hotlap_testkit::Said {
    let server = program();
    let servers = format!(
        "--name a --name b '{server} __known costing:20000' '{server} __known costing:20000'"
    );
    let options = "--restarts 3 --rounds 1 --slice 12ms -d 10s --no-ceiling";
    scene.hotlap(&format!("run {options} {words} {servers}")).said()
}

#[test]
fn a_certificate_is_kept_and_cited() {
    let scene = Scene::new();
    run(&scene, "").lacks("Certificate of");
    scene
        .hotlap("selftest --power --trials 1 --duration 2s")
        .said()
        .succeeds()
        .has("in runs of two servers, --duration 2s")
        .has("10% more: ");
    let files = scene.names("data/hotlap");
    let file = files.iter().find(|name| name.starts_with("certificate-")).expect("a certificate");
    assert!(file.ends_with(".json") && !file.contains("unfinished"), "{files:?}");
    run(&scene, "").has("Certificate of").has("in 2 s for two servers");
    // From now on, the certificate says that its trial found no difference below 5%.
    let file = format!("data/hotlap/{file}");
    let mut trials = scene.json(&file);
    trials["trials"][0]["smallest"] = json!(0.05);
    trials["pair_s"] = json!(10.0);
    scene.write(&file, trials.to_string());
    run(&scene, "--fail-if 'cost +1%'").has("--fail-if 'cost +1%' may be too fine for this run");
    run(&scene, "--fail-if 'cost +20%'").lacks("too fine");
    scene.is_clean();
}

#[test]
fn a_run_ends_early_once_its_rule_is_certain() {
    let scene = Scene::new();
    let server = program();
    let early = |words: &str| {
        let servers = format!(
            "--name a --name b '{server} __known costing:20000' '{server} __known costing:40000'"
        );
        let options =
            "--stop-early --rounds 2 --slice 12ms -d 60s --no-ceiling --export-json run.json";
        let said = scene.hotlap(&format!("run {options} {words} {servers}")).said();
        (said, scene.json("run.json"))
    };
    let (said, report) = early("--fail-if 'cost +3%'");
    said.fails(5).has("Regression: b has ");
    // The test checks the number of restarts, because no test may depend on a time.
    let restarts = report["run"]["schedule"]["restarts"].as_u64();
    assert!(restarts.is_some_and(|restarts| (3..=5).contains(&restarts)), "{restarts:?}");
    let words = "--fail-if 'cost +3%' --fail-if 'memory +10%' --restarts 3";
    early(words).0.has("--stop-early has no effect");
}
