//! A good server is measured while another, in the same run, misbehaves at random: as a process,
//! and in its responses. `HOTLAP_SEEDS=400` tries 400 servers.
#![cfg(target_os = "linux")]

mod processes;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use hotlap_testbed::for_seeds;
use serde_json::Value;

const HOTLAP: &str = env!("CARGO_BIN_EXE_hotlap");

/// A start may take 4 s, and there are two of them. The rest is measuring and stopping.
const WHOLE: Duration = Duration::from_secs(60);

fn try_one(seed: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let export = folder.path().join("run.json");
    let unruly = format!("{HOTLAP} __unruly {seed}");
    let mut run = Command::new(HOTLAP);
    run.args([
        "run",
        "--quiet",
        "--no-store",
        "--no-config",
        "--no-ceiling",
        "-d",
        "2s",
        "-c",
        "4",
    ]);
    run.args(["--restarts", "1", "--timeout", "100ms", "--start-timeout", "4s"]);
    run.args(["--name", "good", "--name", "unruly", "--export-json"]).arg(&export);
    // The mark by which processes are found: servers inherit it.
    let mark = format!("unruly-test-{}-{seed}", std::process::id());
    run.env("HOTLAP_CACHE", folder.path()).env("UNRULY_TEST", &mark);
    let began = Instant::now();
    let output = run.arg(format!("{HOTLAP} __ceiling")).arg(unruly).output().expect("hotlap");
    let took = began.elapsed();
    let printed = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(took < WHOLE, "seed {seed}: {took:?}\n{printed}");
    assert!(matches!(code, Some(0 | 3 | 4)), "seed {seed}: {code:?}\n{printed}");
    let text =
        fs::read_to_string(&export).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{printed}"));
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["name"] == name);
    let rate = row("good").and_then(|row| row["requests_per_s"]["value"].as_f64());
    assert!(rate.is_some_and(|rate| rate > 0.0), "seed {seed}: {rate:?}\n{printed}");
    // Exit code and table agree: a server without figures is a failure.
    let is_measured = row("unruly").is_some_and(|row| !row["requests_per_s"].is_null());
    assert!(is_measured || code != Some(0), "seed {seed}: {code:?}\n{printed}");
    let left = processes::with(&mark);
    assert!(left.is_empty(), "seed {seed}: {left:?}\n{printed}");
}

#[test]
fn a_good_server_has_figures_beside_an_unruly_one() {
    for_seeds(6, 3, try_one);
}
