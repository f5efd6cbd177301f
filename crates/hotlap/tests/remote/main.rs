//! Tests servers and generators on other hosts. Agents run as plain processes of this machine, in
//! network namespaces that virtual cables join (as root), or behind a real `ssh`.

mod generators;
mod load;
mod servers;
mod ssh;
mod thaw;

use hotlap::store::Store;
use hotlap_testkit::{Hotlap, Scene, program, until};
use rustix::process::{Pid, test_kill_process};
use serde_json::Value;

/// Returns a short run that exports everything. The run has few connections, because the machine
/// may be busy.
fn short_run(scene: &Scene) -> Hotlap {
    let words = "run --restarts 1 --rounds 1 -c4 -d2s --no-ceiling --export-json run.json";
    scene.hotlap(words)
}

/// Returns the command of an agent that appends its process id to a file each time it is started. A
/// test can then stop or kill the agent.
fn named(scene: &Scene, file: &str) -> String {
    format!("sh -c 'echo $$ >> {}; exec \"$@\"' sh {}", scene.file(file), program())
}

/// Returns the process ids in a file.
fn pids(scene: &Scene, file: &str) -> Vec<Pid> {
    let text = scene.read(file);
    text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect()
}

/// Waits until an agent has ended.
fn is_gone(agent: Pid) {
    until("an agent goes on", || test_kill_process(agent).is_err());
}

/// Returns the number of stored laps.
fn laps(scene: &Scene) -> u64 {
    let lines = Store::open_existing(&scene.store()).and_then(|store| store.lines(None));
    lines.map_or(0, |lines| lines.iter().map(|run| run.laps).sum())
}

/// Asserts that every lap that counts has a cost, or has no response at all and old requests. On a
/// busy host, a server may give no response for seconds, and an agent may be late.
fn have_costs(export: &Value) {
    let slice_ms = export["run"]["schedule"]["slices_ms"][0].as_f64();
    let laps = export["laps"].as_array().unwrap();
    assert!(!laps.is_empty(), "{export}");
    for lap in laps.iter().filter(|lap| lap["counts"] == true) {
        match lap["responses"].as_u64().unwrap() {
            0 => assert!(lap["max_ms"].as_f64() > slice_ms.map(|ms| ms / 2.0), "{lap}"),
            _ => assert!(lap["cpu_us"].as_f64().is_some_and(|us| us > 0.0), "{lap}"),
        }
    }
}

/// Asserts that every lap that counts has a cost and is the sum of its generators' contributions.
fn adds_up(export: &Value, generators: usize) {
    have_costs(export);
    let laps = export["laps"].as_array().unwrap();
    for lap in laps.iter().filter(|lap| lap["counts"] == true) {
        let each = lap["generators"].as_array().unwrap();
        assert_eq!(each.len(), generators, "{lap}");
        let sum: u64 = each.iter().map(|own| own["responses"].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), lap["responses"].as_u64(), "{lap}");
    }
}
