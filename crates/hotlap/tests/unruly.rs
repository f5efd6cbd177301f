//! A good server is measured while another, in the same run, misbehaves at random: as a process,
//! and in its responses. `HOTLAP_SEEDS=400` tries 400 servers.

use std::time::{Duration, Instant};

use hotlap_testbed::for_seeds;
use hotlap_testkit::{Scene, ceiling, program};

/// A start may take 4 s, and there are two of them. The rest is measuring and stopping.
const WHOLE: Duration = Duration::from_secs(60);

fn try_one(seed: u64) {
    let scene = Scene::new();
    let run =
        scene.hotlap("run -q --no-store --no-ceiling -d 2s -c 4 --restarts 1 --timeout 100ms");
    let run = run.words("--start-timeout 4s --name good --name unruly --export-json run.json");
    let began = Instant::now();
    let said = run.args([ceiling(), format!("{} __unruly {seed}", program())]).said();
    let took = began.elapsed();
    assert!(took < WHOLE, "seed {seed}: {took:?}\n{said:?}");
    assert!(matches!(said.code, Some(0 | 3 | 4)), "seed {seed}: {said:?}");
    let report = scene.json("run.json");
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["name"] == name);
    let rate = row("good").and_then(|row| row["requests_per_s"]["value"].as_f64());
    assert!(rate.is_some_and(|rate| rate > 0.0), "seed {seed}: {rate:?}\n{said:?}");
    // Exit code and table agree: a server without figures is a failure.
    let is_measured = row("unruly").is_some_and(|row| !row["requests_per_s"].is_null());
    assert!(is_measured || said.code != Some(0), "seed {seed}: {said:?}");
    let left = scene.processes();
    assert!(left.is_empty(), "seed {seed}: {left:?}\n{said:?}");
}

#[test]
fn a_good_server_has_figures_beside_an_unruly_one() {
    for_seeds(6, 3, try_one);
}
